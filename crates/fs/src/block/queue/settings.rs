//! What /sys/block/*/queue shows and sets (Documentation/ABI/stable/sysfs-block).

use core::sync::atomic::{AtomicU32, AtomicU8, AtomicUsize, Ordering::Relaxed};
use machine::{block::BlockLimits, errno::Result, Errno, PAGE_SIZE};

const MS: u64 = 1_000_000;
/// BLKDEV_MIN_RQ, and as many as a kernel can keep.
const LEAST_REQUESTS: usize = 4;
const MOST_REQUESTS: usize = 4096;
/// Pages; whatever the setting is.
const MOST_READ_AHEAD: usize = 4096;

/// Who decides which request the device gets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// none: they go as they come.
    None,
    /// mq-deadline.
    Deadline,
}

impl Scheduler {
    const ALL: [Scheduler; 2] = [Scheduler::None, Scheduler::Deadline];
    /// What they are called.
    pub const NAMES: [&'static str; 2] = ["none", "mq-deadline"];

    /// As Linux chooses: a disk of one queue has one that orders.
    pub fn of(limits: &BlockLimits) -> Scheduler {
        if limits.queues > 1 {
            Scheduler::None
        } else {
            Scheduler::Deadline
        }
    }

    /// EINVAL: there is none of that name.
    pub fn named(name: &str) -> Result<Scheduler> {
        // Its other name (MODULE_ALIAS of Linux).
        let name = if name == "deadline" { "mq-deadline" } else { name };
        Self::ALL.into_iter().find(|scheduler| scheduler.name() == name).ok_or(Errno::EINVAL)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// `nomerges`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Merges {
    /// 0.
    All,
    /// 1: only what is found without a search.
    Simple,
    /// 2.
    None,
}

/// What one request may be, at most.
#[derive(Clone, Copy)]
pub struct RequestLimits {
    /// Bytes that it reads or writes.
    pub bytes: usize,
    /// Pieces of pages that these are in.
    pub pieces: usize,
    /// Runs of adjoining memory that the pieces are: addresses for the device.
    pub segments: usize,
}

/// See the module. Numbers are as the files show them.
pub struct Settings {
    scheduler: AtomicU8,
    requests: AtomicUsize,
    /// 0: as much as the disk takes.
    max_sectors_kb: AtomicUsize,
    read_ahead_kb: AtomicUsize,
    rotational: AtomicU32,
    nomerges: AtomicU32,
    read_expire: AtomicU32,
    write_expire: AtomicU32,
    writes_starved: AtomicU32,
    front_merges: AtomicU32,
    fifo_batch: AtomicU32,
}

impl Settings {
    pub(super) fn new(scheduler: Scheduler) -> Settings {
        Settings {
            scheduler: AtomicU8::new(scheduler as u8),
            requests: AtomicUsize::new(256),
            max_sectors_kb: AtomicUsize::new(0),
            read_ahead_kb: AtomicUsize::new(256),
            rotational: AtomicU32::new(1),
            nomerges: AtomicU32::new(0),
            read_expire: AtomicU32::new(500),
            write_expire: AtomicU32::new(5000),
            writes_starved: AtomicU32::new(2),
            front_merges: AtomicU32::new(1),
            fifo_batch: AtomicU32::new(16),
        }
    }

    /// Numbers below /sys/block/*/queue that have no limits but those of their type.
    fn number(&self, name: &str) -> Option<(&AtomicU32, u32)> {
        Some(match name {
            "rotational" => (&self.rotational, 1),
            "nomerges" => (&self.nomerges, 2),
            "iosched/read_expire" => (&self.read_expire, u32::MAX),
            "iosched/write_expire" => (&self.write_expire, u32::MAX),
            "iosched/writes_starved" => (&self.writes_starved, u32::MAX),
            "iosched/front_merges" => (&self.front_merges, 1),
            "iosched/fifo_batch" => (&self.fifo_batch, u32::MAX),
            _ => return None,
        })
    }

    /// Files of /sys/block/*/queue that can be set, but for `scheduler`.
    pub const NAMES: [&'static str; 5] = ["nr_requests", "max_sectors_kb", "read_ahead_kb", "rotational", "nomerges"];
    /// Those of /sys/block/*/queue/iosched.
    pub const DEADLINE_NAMES: [&'static str; 5] = [
        "iosched/read_expire",
        "iosched/write_expire",
        "iosched/writes_starved",
        "iosched/front_merges",
        "iosched/fifo_batch",
    ];

    /// The number that a file shows.
    pub fn get(&self, name: &str, limits: &BlockLimits) -> u64 {
        match name {
            "nr_requests" => self.requests.load(Relaxed) as u64,
            "max_sectors_kb" => (self.most(limits).bytes / 1024) as u64,
            "read_ahead_kb" => self.read_ahead_kb.load(Relaxed) as u64,
            name => self.number(name).map_or(0, |(number, _)| number.load(Relaxed).into()),
        }
    }

    /// A number is written to a file. EINVAL: it can't be that.
    pub fn set(&self, name: &str, value: u64, limits: &BlockLimits) -> Result<()> {
        let value_usize = usize::try_from(value).map_err(|_| Errno::EINVAL)?;
        match name {
            "nr_requests" => match value_usize {
                0..=MOST_REQUESTS => self.requests.store(value_usize.max(LEAST_REQUESTS), Relaxed),
                _ => return Err(Errno::EINVAL),
            },
            "max_sectors_kb" if (PAGE_SIZE / 1024..=limits.most_bytes / 1024).contains(&value_usize) => {
                self.max_sectors_kb.store(value_usize, Relaxed)
            }
            "read_ahead_kb" if value <= u64::from(u32::MAX) => self.read_ahead_kb.store(value_usize, Relaxed),
            name => {
                let (number, most) = self.number(name).ok_or(Errno::EINVAL)?;
                number.store(value.min(most.into()) as u32, Relaxed);
            }
        }
        Ok(())
    }

    /// The scheduler.
    pub fn scheduler(&self) -> Scheduler {
        Scheduler::ALL[usize::from(self.scheduler.load(Relaxed) != 0)]
    }

    pub(super) fn set_scheduler(&self, scheduler: Scheduler) {
        self.scheduler.store(scheduler as u8, Relaxed);
    }

    /// Whether the disk is said to be one that turns.
    pub fn is_rotational(&self) -> bool {
        self.rotational.load(Relaxed) != 0
    }

    /// Pages that are read before a sequential reader asks for them, at most.
    pub fn read_ahead(&self) -> u64 {
        (self.read_ahead_kb.load(Relaxed) / (PAGE_SIZE / 1024)).min(MOST_READ_AHEAD) as u64
    }

    /// What one request may be.
    pub(super) fn most(&self, limits: &BlockLimits) -> RequestLimits {
        let bytes = match self.max_sectors_kb.load(Relaxed) {
            0 => limits.most_bytes,
            kib => (kib * 1024 / PAGE_SIZE * PAGE_SIZE).min(limits.most_bytes),
        };
        let any = |most: usize| if most == 0 { usize::MAX } else { most };
        RequestLimits { bytes, pieces: any(limits.most_pieces), segments: any(limits.most_segments) }
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    pub(super) fn merges(&self) -> Merges {
        match self.nomerges.load(Relaxed) {
            0 => Merges::All,
            1 => Merges::Simple,
            _ => Merges::None,
        }
    }

    pub(super) fn merges_in_front(&self) -> bool {
        self.front_merges.load(Relaxed) != 0
    }

    pub(super) fn expire(&self, write: bool) -> u64 {
        u64::from(if write { &self.write_expire } else { &self.read_expire }.load(Relaxed)) * MS
    }

    pub(super) fn batch(&self) -> u32 {
        self.fifo_batch.load(Relaxed)
    }

    pub(super) fn starved(&self) -> u32 {
        self.writes_starved.load(Relaxed)
    }
}
