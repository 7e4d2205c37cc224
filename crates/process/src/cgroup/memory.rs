//! How much memory a group has and may have, as the owner of the tree knows: what it has granted to each kernel.

use alloc::{collections::BTreeMap, sync::Arc};
use fs::synthetic::Changes;
use machine::{KernelId, Pid};

/// What has happened to a group (memory.events).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// It had more than memory.high when it wanted more.
    pub high: u64,
    /// It had memory.max when it wanted more.
    pub max: u64,
    /// Nothing could be dropped then.
    pub oom: u64,
    /// Processes that have ended for that.
    pub oom_kill: u64,
    /// How often all of it has (memory.oom.group).
    pub oom_group_kill: u64,
}

/// A number of [`MemoryEvents`].
pub(super) type Event = fn(&mut MemoryEvents) -> &mut u64;

/// The pages of a group and of those below it.
#[derive(Default)]
pub struct GroupMemory {
    /// memory.max, in pages; None: no limit.
    pub max: Option<u64>,
    /// memory.high.
    pub high: Option<u64>,
    /// memory.oom.group.
    pub all_end: bool,
    /// Of it and those below it.
    pub events: MemoryEvents,
    /// Of it alone.
    pub events_here: MemoryEvents,
    /// Of memory.events.
    pub changes: Arc<Changes>,
    /// Of memory.events.local.
    pub changes_here: Arc<Changes>,
    /// Pages that kernels may charge.
    pub(super) granted: u64,
    peak: u64,
    /// Those of this group alone.
    pub(super) by_kernel: BTreeMap<KernelId, u64>,
    /// The process that is to end, and how often that was waited for since it has.
    pub(super) victim: Option<(Pid, u32)>,
}

impl GroupMemory {
    /// Whether kernels may charge it.
    pub(super) fn is_granted(&self) -> bool {
        !self.by_kernel.is_empty()
    }

    pub(super) fn end_limits(&mut self) {
        (self.max, self.high, self.all_end) = (None, None, false);
    }

    /// The most there was, where there are `now`.
    pub fn peak(&mut self, now: u64) -> u64 {
        self.peak = self.peak.max(now);
        self.peak
    }
}
