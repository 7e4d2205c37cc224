//! Copies the rings of a machine into a file while it runs, and once more when it has ended.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        Arc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Result;
use trace::{Directory, Header, Reader, DIRECTORIES_PHYS};
use traces::{file::Writer, Event, Filter, Names, Place};

use super::memory::{GuestMemory, GuestRing};

/// Time between two looks at the rings while they fill, and while they don't.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(20);

/// What was collected.
#[derive(Debug, Default)]
pub struct Collected {
    /// Events that a ring had no room for.
    pub lost: u64,
    /// Words that a ring that overwrites took back before they were read.
    pub missed_words: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why the file could not be written to its end.
    pub error: Option<String>,
    /// Kernels whose rings were found.
    pub kernels: Vec<u16>,
}

/// Reads a machine's rings.
struct Collector<W> {
    memory: GuestMemory,
    kernels: u16,
    /// Directory and readers of each kernel's present boot.
    rings: BTreeMap<u16, (u64, Vec<Reader<GuestRing>>)>,
    writer: Writer<W>,
    follow: Option<Follow>,
    limit: u64,
    result: Collected,
    lost: HashMap<Place, u64>,
}

impl<W: Write> Collector<W> {
    /// Looks for rings of kernels that have come, or come again.
    fn find(&mut self) {
        for kernel in 0..self.kernels {
            let mut word = [0];
            let at = DIRECTORIES_PHYS + u64::from(kernel) * 8;
            if self.memory.read(at, &mut word).is_none() || word[0] == 0 {
                // It is about to be booted, and what it had is memory for anything.
                self.rings.remove(&kernel);
                continue;
            }
            if self.rings.get(&kernel).is_some_and(|(directory, _)| *directory == word[0]) {
                continue;
            }
            let mut page = vec![0; 512];
            if self.memory.read(Directory::address(word[0]), &mut page).is_none() {
                continue;
            }
            let Some(places) = Directory::read(&page) else { continue };
            let ring = |[header, records]: [u64; 2]| GuestRing { memory: self.memory.clone(), header, records };
            let readers: Vec<_> = places.filter_map(|place| Reader::new(ring(place))).collect();
            self.rings.insert(kernel, (word[0], readers));
            if !self.result.kernels.contains(&kernel) {
                self.result.kernels.push(kernel);
            }
        }
    }

    /// Copies what there is; true if there was much.
    fn copy(&mut self) -> bool {
        self.find();
        let mut most = 0;
        let mut words = Vec::new();
        for reader in self.rings.values_mut().flat_map(|(_, readers)| readers) {
            words.clear();
            let layout = reader.layout();
            self.result.missed_words += reader.take(&mut words);
            most = most.max(words.len() as u64 * 8 / layout.capacity.max(1));
            let place = Place { cpu: layout.cpu, kernel: layout.kernel, boot_generation: layout.boot_generation };
            let lost = reader.lost();
            let news = self.lost.insert(place, lost) != Some(lost);
            if words.is_empty() && !news {
                continue;
            }
            if let Some(follow) = &mut self.follow {
                follow.take(place, &words);
            }
            if self.result.error.is_none() {
                let bytes = self.result.bytes + 24 + words.len() as u64 * 8;
                let written = match bytes <= self.limit {
                    true => self.writer.add(place, lost, &words).map_err(|error| error.to_string()),
                    false => Err(format!("it has reached --limit ({} MiB)", self.limit >> 20)),
                };
                match written {
                    Ok(()) => self.result.bytes = bytes,
                    Err(error) => self.result.error = Some(error),
                }
            }
        }
        if let Some(follow) = &mut self.follow {
            follow.print(false);
        }
        most > 0
    }

    fn run(mut self, stop: &AtomicBool) -> Collected {
        while !stop.load(Relaxed) {
            let busy = self.copy();
            thread::park_timeout(if busy { SOON } else { LATER });
        }
        // Nobody writes any more.
        self.copy();
        if let Some(follow) = &mut self.follow {
            follow.print(true);
        }
        let ended = match self.result.error {
            None => self.writer.end(),
            Some(_) => self.writer.flush(),
        };
        if let Err(error) = ended {
            self.result.error.get_or_insert(error.to_string());
        }
        self.result.lost = self.lost.values().sum();
        self.result
    }
}

/// Prints events while they come, in the order of time.
pub struct Follow {
    names: Names,
    waiting: Vec<Event>,
    /// What was the newest event at the last look: older ones come no more.
    newest: u64,
    filter: Filter,
}

impl Follow {
    pub fn new(filter: Filter) -> Follow {
        Follow { names: Names::default(), waiting: Vec::new(), newest: 0, filter }
    }

    fn take(&mut self, place: Place, words: &[u64]) {
        let mut at = 0;
        while let Some(header) = words.get(at).and_then(|word| Header::decode(*word)) {
            let Some(fields) = words.get(at + 1..at + header.words) else { break };
            if let Some(point) = header.point {
                self.waiting.push(Event { time: header.time, place, point, words: fields.to_vec() });
            }
            at += header.words;
        }
    }

    fn print(&mut self, all: bool) {
        self.waiting.sort_by_key(|event| event.time);
        let until = if all { u64::MAX } else { self.newest };
        let count = self.waiting.partition_point(|event| event.time <= until);
        self.newest = self.waiting.last().map_or(self.newest, |event| event.time);
        let mut out = std::io::stderr().lock();
        for event in self.waiting.drain(..count) {
            self.names.take(&event);
            if self.filter.wants(&event) {
                let _ = writeln!(out, "{}", event.line(&self.names));
            }
        }
    }
}

/// A collector at work.
pub struct Collecting {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Collected>,
}

impl Collecting {
    /// Starts to copy the rings of a machine of so many kernels to `writer`, at most `limit` bytes.
    pub fn start<W: Write + Send + 'static>(
        memory: GuestMemory,
        kernels: u16,
        writer: Writer<W>,
        limit: u64,
        follow: Option<Follow>,
    ) -> Result<Collecting> {
        let stop = Arc::new(AtomicBool::new(false));
        let collector = Collector {
            memory,
            kernels,
            rings: BTreeMap::new(),
            writer,
            follow,
            limit,
            result: Collected::default(),
            lost: HashMap::new(),
        };
        let told = stop.clone();
        let thread = thread::Builder::new().name("trace".into()).spawn(move || collector.run(&told))?;
        Ok(Collecting { stop, thread })
    }

    /// The machine has ended: copies the rest.
    pub fn end(self) -> Collected {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}
