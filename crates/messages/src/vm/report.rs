//! What an address space looks like, for /proc and for counts of pages.

use super::{Part, RegionKind, RemoteBacking, SliceRun};
use alloc::vec::Vec;
use machine::{KernelId, KernelSet, Page, PageRange};
use serde::{Deserialize, Serialize};

/// One region as /proc/PID/maps and smaps show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionReport {
    /// Pages of the region, or of a part of it that one kernel owns.
    pub range: PageRange,
    /// The kernel that owns the pages.
    pub owner: KernelId,
    /// Protection and flags.
    pub kind: RegionKind,
    /// What it shows; None: anonymous memory.
    pub backing: Option<RemoteBacking>,
    /// How many of its pages are present; zeroes unless they were asked for.
    pub pages: PageCounts,
}

impl RegionReport {
    /// Splits `range` off. Which part the present pages are in is not known: `range` is given as many as fit into it.
    pub fn take_part(&mut self, range: PageRange) -> RegionReport {
        let mut part = RegionReport { range, ..self.clone() };
        part.pages = self.pages.take(self.pages.present.min(range.len()));
        if let Some(backing) = &mut part.backing {
            backing.first += range.start.0 - self.range.start.0;
        }
        part
    }
}

/// Pages of a region that are present, and of what kind they are (man 5 proc_pid_smaps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Rss.
    pub present: u64,
    /// Mapped by other kernels, too.
    pub exported: u64,
    /// Touched by any kernel since clear_refs; counted for smaps only.
    pub touched: u64,
    /// Pages of the process's own, not of a file.
    pub anonymous: u64,
    /// Shared_Clean: in use by more than one process, and unwritten.
    pub shared_clean: u64,
    /// Shared_Dirty.
    pub shared_dirty: u64,
    /// Private_Clean: in use by this process only, and unwritten.
    pub private_clean: u64,
    /// Private_Dirty.
    pub private_dirty: u64,
    /// Each page divided by its users, in [`SHARE`]ths of a page.
    pub proportional: u64,
    /// Pss_Dirty, in the same unit.
    pub proportional_dirty: u64,
}

/// What a page counts in [`PageCounts::proportional`] if one process uses it alone. Linux computes with the same precision.
pub const SHARE: u64 = 1 << 24;

impl PageCounts {
    fn each(&mut self) -> [&mut u64; 10] {
        let Self { present, exported, touched, anonymous, shared_clean, .. } = self;
        let Self { shared_dirty, private_clean, private_dirty, proportional, proportional_dirty, .. } = self;
        [
            present,
            exported,
            touched,
            anonymous,
            shared_clean,
            shared_dirty,
            private_clean,
            private_dirty,
            proportional,
            proportional_dirty,
        ]
    }

    /// Adds each count of `other`.
    pub fn add(&mut self, mut other: Self) {
        for (sum, more) in self.each().into_iter().zip(other.each()) {
            *sum += *more;
        }
    }

    /// Takes `present` pages away, with their share of each kind.
    fn take(&mut self, present: u64) -> Self {
        let (mut taken, all) = (*self, self.present.max(1));
        for (rest, part) in self.each().into_iter().zip(taken.each()) {
            *part = (u128::from(*rest) * u128::from(present) / u128::from(all)) as u64;
            *rest -= *part;
        }
        taken
    }
}

/// The regions that an owner has in a range; only the lowest ones if there are many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// In ascending order.
    pub regions: Vec<RegionReport>,
    /// The list is complete below this page.
    pub end: Page,
    /// The kernels that it has handed parts of its slices over to, below `end`.
    pub holders: Vec<KernelId>,
}

/// What one kernel has of a space, in pages (/proc/PID/cob).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Faults of the space's threads there that the kernel resolved alone.
    pub faults_local: u64,
    /// Faults that were resolved by asking an owner.
    pub faults_remote: u64,
    /// Pages that are mapped in what it owns, present or not.
    pub owned: u64,
    /// Pages in its page table, including those of other owners.
    pub mapped: u64,
    /// Pages that it owns and that other kernels have, too.
    pub exported: u64,
    /// The partitions that the frames of its own pages lie in, and how many in each.
    pub frames: Vec<(KernelId, u64)>,
    /// The slice table as it knows it.
    pub slices: Vec<SliceRun>,
    /// The lowest parts of its slices that it has handed over.
    pub parts: Vec<Part>,
    /// How many parts `parts` does not list.
    pub parts_left_out: u64,
    /// The kernels it knows to have a replica.
    pub members: KernelSet,
}

/// The largest numbers of pages that an address space has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// In memory.
    pub resident: u64,
    /// Mapped.
    pub mapped: u64,
}

/// A range of addresses and who owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedRange {
    /// Pages with one owner.
    pub range: PageRange,
    /// The kernel that owns the pages now.
    pub owner: KernelId,
    /// The kernel that owns the slice; None: no kernel does yet.
    pub slice: Option<KernelId>,
}

/// A space over all kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Each kernel that has a replica, and its report.
    pub replicas: Vec<(KernelId, ReplicaReport)>,
    /// All of user space, in order.
    pub owners: Vec<OwnedRange>,
}
