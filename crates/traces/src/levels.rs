//! What goes up and down: requests that a disk has at once, and threads that could go on on a CPU, as their process is told (docs/umt.md).

use crate::{names::device_name, Event};
use std::collections::{hash_map::Entry, BTreeMap, HashMap, VecDeque};
use trace::{operation, Point};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Requests that a disk has and has not answered.
    Disk(u32),
    /// Monitored threads that could go on, on the `index`th CPU of a kernel, of all processes together.
    Ready {
        /// The kernel.
        kernel: u16,
        /// Which of its CPUs.
        index: u16,
    },
}

impl Level {
    /// For people.
    pub fn name(self) -> String {
        match self {
            Level::Disk(device) => format!("disk {}", device_name(device.into())),
            Level::Ready { kernel, index } => format!("ready on CPU {index} of kernel {kernel}"),
        }
    }
}

/// What was measured of a disk.
#[derive(Clone, Debug, Default)]
pub struct DiskFigures {
    /// Requests that were answered: reads, writes, flushes, discards.
    pub requests: [u64; 4],
    /// Those that were answered with an error.
    pub errors: u64,
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Sum of the times from issue to answer, in ns.
    pub time: u64,
    /// Time in which it had at least one, and how many there were at once then, weighted by that time.
    pub busy: u64,
    weighted: u64,
    /// Most at once.
    pub most: u32,
    /// Since when it has so many.
    since: u64,
    under_way: u32,
}

impl DiskFigures {
    /// Requests that it had at once, in the mean while it had any.
    pub fn mean_at_once(&self) -> f64 {
        self.weighted as f64 / self.busy.max(1) as f64
    }

    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.since);
        if self.under_way > 0 {
            self.busy += passed;
            self.weighted += passed * u64::from(self.under_way);
        }
        self.since = now;
    }
}

/// A request as issue and answer name it: disk, sector, sectors, operation.
type Request = [u64; 4];

/// Follows all levels of a trace.
#[derive(Default)]
pub struct Levels {
    /// When requests were issued that have not been answered, oldest first.
    issued: HashMap<Request, VecDeque<u64>>,
    disks: BTreeMap<u32, DiskFigures>,
    ready: BTreeMap<(u16, u16), i64>,
}

impl Levels {
    /// Hears of the next event, and tells `changed` which levels are what from now on.
    pub fn take(&mut self, event: &Event, changed: &mut impl FnMut(Level, u32)) {
        match event.point {
            Point::BlockRqIssue => {
                let device = event.number("dev") as u32;
                self.issued.entry(request(event)).or_default().push_back(event.time);
                let disk = self.disks.entry(device).or_default();
                disk.advance(event.time);
                disk.under_way += 1;
                disk.most = disk.most.max(disk.under_way);
                changed(Level::Disk(device), disk.under_way);
            }
            Point::BlockRqComplete => {
                let device = event.number("dev") as u32;
                // One that was issued before the trace began.
                let Some(issued) = self.answered(event) else { return };
                let disk = self.disks.entry(device).or_default();
                disk.advance(event.time);
                disk.under_way -= 1;
                disk.time += event.time.saturating_sub(issued);
                disk.errors += u64::from(event.number("error") != 0);
                let bytes = event.number("nr_sector") * 512;
                let kind = match event.number("rwbs") as u16 {
                    operation::READ => 0,
                    operation::WRITE => 1,
                    operation::FLUSH => 2,
                    _ => 3,
                };
                disk.requests[kind] += 1;
                if let Some(sum) = disk.bytes.get_mut(kind) {
                    *sum += bytes;
                }
                changed(Level::Disk(device), disk.under_way);
            }
            // What happened meanwhile, nobody knows.
            Point::Recording => {
                self.issued.clear();
                for (kernel, index) in core::mem::take(&mut self.ready).into_keys() {
                    changed(Level::Ready { kernel, index }, 0);
                }
                for (device, disk) in &mut self.disks {
                    disk.advance(event.time);
                    disk.under_way = 0;
                    changed(Level::Disk(*device), 0);
                }
            }
            Point::UmtBlock => self.ready(event, "index", -1, changed),
            Point::UmtUnblock => self.ready(event, "index", 1, changed),
            Point::UmtMove => {
                self.ready(event, "old", -1, changed);
                self.ready(event, "new", 1, changed);
            }
            _ => {}
        }
    }

    /// When the request was issued that is answered now.
    fn answered(&mut self, event: &Event) -> Option<u64> {
        let Entry::Occupied(mut of) = self.issued.entry(request(event)) else { return None };
        let issued = of.get_mut().pop_front();
        if of.get().is_empty() {
            of.remove();
        }
        issued
    }

    fn ready(&mut self, event: &Event, field: &str, by: i64, changed: &mut impl FnMut(Level, u32)) {
        let (kernel, index) = (event.place.kernel, event.number(field) as u16);
        let ready = self.ready.entry((kernel, index)).or_default();
        // A thread may have been ready before the trace began.
        *ready = (*ready + by).max(0);
        changed(Level::Ready { kernel, index }, *ready as u32);
    }

    /// What was measured of each disk.
    pub fn disks(&self) -> &BTreeMap<u32, DiskFigures> {
        &self.disks
    }

    /// Whether a request is answered that no event says was issued.
    pub fn is_unknown(&self, event: &Event) -> bool {
        event.point == Point::BlockRqComplete && !self.issued.contains_key(&request(event))
    }
}

fn request(event: &Event) -> Request {
    event.numbers(["dev", "sector", "nr_sector", "rwbs"])
}
