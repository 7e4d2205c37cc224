//! Group commit: one commit for all who sync at the same time.
//!
//! A commit flushes the disk twice, which takes longer than all else that fsync does. Threads that sync together come to their commits shortly after one another, for each first writes what is
//! dirty of its file. So whoever comes to a commit waits until those that have begun to sync have come to theirs, but no longer than a commit takes on this disk, nor than [`MOST`]. Who syncs alone
//! waits for nobody. (jbd2 waits for as long and with the same limit, j_average_commit_time and max_batch_time, but whether or not somebody is on his way.)

use crate::cache::Clock;
use core::{
    future::{poll_fn, Future},
    pin::pin,
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    task::Poll,
};
use machine::sync::WaitQueue;

/// How long (ns) somebody waits for others, at most (Linux: max_batch_time).
const MOST: u64 = 15_000_000;

/// Those that sync something of a file system.
#[derive(Default)]
pub struct Syncs {
    /// Who has begun and has not come to his commit.
    on_their_way: AtomicUsize,
    arrived: WaitQueue,
    /// How long (ns) a commit takes.
    average: AtomicU64,
}

/// Somebody on his way to a commit, until it is dropped.
pub struct Syncing<'a>(&'a Syncs);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        if self.0.on_their_way.fetch_sub(1, SeqCst) == 1 {
            self.0.arrived.wake_all();
        }
    }
}

impl Syncs {
    /// Somebody begins to write what is dirty, and then commits.
    pub fn begin(&self) -> Syncing<'_> {
        self.on_their_way.fetch_add(1, SeqCst);
        Syncing(self)
    }

    /// Waits for those that are on their way.
    pub async fn gather(&self, clock: &dyn Clock) {
        let none = || (self.on_their_way.load(SeqCst) == 0).then_some(());
        let most = self.average.load(Relaxed).min(MOST);
        if none().is_some() || most == 0 {
            return;
        }
        let Some(mut over) = clock.at(clock.monotonic() + most) else { return };
        let mut all = pin!(self.arrived.wait_until(none));
        poll_fn(|context| match all.as_mut().poll(context) {
            Poll::Pending => over.as_mut().poll(context),
            ready => ready,
        })
        .await
    }

    /// A commit took so long.
    pub fn took(&self, ns: u64) {
        let average = self.average.load(Relaxed);
        let next = if average == 0 { ns } else { (average * 3 + ns) / 4 };
        self.average.store(next, Relaxed);
    }
}
