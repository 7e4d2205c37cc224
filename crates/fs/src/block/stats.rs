//! What has been asked of a volume, as /proc/diskstats shows it (Documentation/admin-guide/iostats.rst). A request counts from when it comes into the disk's queue until it is answered; what was merged into it
//! counts as merged, and its sectors with the request.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::block::BlockOp;

/// Reads, writes, discards and flushes.
#[derive(Default)]
struct Kind {
    done: AtomicU64,
    merged: AtomicU64,
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

    /// Sectors became a part of a request that was there.
    pub(super) fn merged(&self, op: BlockOp) {
        self.kinds[index(op)].merged.fetch_add(1, Relaxed);
    }

    /// The same with a request of its own.
    pub(super) fn joined(&self, op: BlockOp) {
        self.merged(op);
        self.under_way.fetch_sub(1, Relaxed);
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

    /// The seventeen numbers of a line of /proc/diskstats.
    pub fn numbers(&self) -> [u64; 17] {
        let ms = |ns: &AtomicU64| ns.load(Relaxed) / 1_000_000;
        let of = |kind: usize| {
            let Kind { done, merged, sectors, ns } = &self.kinds[kind];
            [done.load(Relaxed), merged.load(Relaxed), sectors.load(Relaxed), ms(ns)]
        };
        let ([r0, r1, r2, r3], [w0, w1, w2, w3], [d0, d1, d2, d3], [f0, _, _, f3]) = (of(0), of(1), of(2), of(3));
        let (under_way, busy, weighted) = (self.under_way.load(Relaxed), ms(&self.busy), r3 + w3 + d3 + f3);
        [r0, r1, r2, r3, w0, w1, w2, w3, under_way, busy, weighted, d0, d1, d2, d3, f0, f3]
    }
}
