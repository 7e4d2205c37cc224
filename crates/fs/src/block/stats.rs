//! What has been asked of a volume, as /proc/diskstats shows it (Documentation/admin-guide/iostats.rst).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::block::BlockOp;

/// Reads, writes, discards and flushes.
#[derive(Default)]
struct Kind {
    done: AtomicU64,
    sectors: AtomicU64,
    ns: AtomicU64,
}

/// Counters that only grow, but for the requests that are under way.
#[derive(Default)]
pub struct Stats {
    kinds: [Kind; 4],
    under_way: AtomicU64,
    /// Since when something was under way, or nothing; and for how long something was.
    since: AtomicU64,
    busy: AtomicU64,
}

fn index(op: BlockOp) -> usize {
    match op {
        BlockOp::Read => 0,
        BlockOp::Write | BlockOp::WriteZeroes { .. } => 1,
        BlockOp::Discard { .. } => 2,
        BlockOp::Flush => 3,
    }
}

impl Stats {
    pub(super) fn begin(&self, now: u64) {
        if self.under_way.fetch_add(1, Relaxed) == 0 {
            self.since.store(now, Relaxed);
        }
    }

    pub(super) fn end(&self, op: BlockOp, sectors: u64, began: u64, now: u64) {
        let kind = &self.kinds[index(op)];
        kind.done.fetch_add(1, Relaxed);
        kind.sectors.fetch_add(sectors, Relaxed);
        kind.ns.fetch_add(now.saturating_sub(began), Relaxed);
        if self.under_way.fetch_sub(1, Relaxed) == 1 {
            self.busy.fetch_add(now.saturating_sub(self.since.load(Relaxed)), Relaxed);
        }
    }

    /// The seventeen numbers of a line of /proc/diskstats. None is ever merged: the page cache asks for runs of pages.
    pub fn numbers(&self) -> [u64; 17] {
        let of = |kind: usize| {
            let Kind { done, sectors, ns } = &self.kinds[kind];
            (done.load(Relaxed), sectors.load(Relaxed), ns.load(Relaxed) / 1_000_000)
        };
        let ((reads, read, read_ms), (writes, written, write_ms)) = (of(0), of(1));
        let ((discards, discarded, discard_ms), (flushes, _, flush_ms)) = (of(2), of(3));
        let busy = self.busy.load(Relaxed) / 1_000_000;
        let weighted = read_ms + write_ms + discard_ms + flush_ms;
        let under_way = self.under_way.load(Relaxed);
        [
            reads, 0, read, read_ms, writes, 0, written, write_ms, under_way, busy, weighted, discards, 0, discarded,
            discard_ms, flushes, flush_ms,
        ]
    }
}
