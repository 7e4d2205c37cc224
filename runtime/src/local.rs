//! Second halves of joins, which wait for who joins, or for another worker.
//!
//! Each CPU has a list. Who joins puts the second half at the end of his CPU's and does the first; mostly nobody has taken the second
//! one then, and he does it too, without the lock of `Central`. A worker that looks for something to do takes the
//! oldest half, which is mostly the largest.
//!
//! A half must not lie there while a CPU idles. Who puts one looks for a CPU afterwards; a worker that leaves its CPU looks for halves
//! afterwards; of the two, one sees the other (all is sequentially consistent):
//!
//! ```text
//! joins:  put the half; is a CPU free? then a worker is woken there
//! leaves: the CPU is free; is there a half? then it stays
//! ```

use crate::{
    schedule::Ready,
    task::{lock, Task},
};
use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc, Mutex,
    },
};

pub(crate) struct Local {
    halves: Vec<Mutex<VecDeque<Ready>>>,
    /// In all lists; counted before one is put, and after one is taken.
    count: AtomicUsize,
}

/// How many halves a worker in taskwait looks at. Those that it does not find are done by who has put them.
const DEPTH: usize = 64;

impl Local {
    pub fn new(cpus: usize) -> Local {
        Local { halves: (0..cpus).map(|_| Mutex::default()).collect(), count: AtomicUsize::new(0) }
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    pub fn put(&self, cpu: usize, half: Ready) {
        self.count.fetch_add(1, SeqCst);
        lock(&self.halves[cpu]).push_back(half);
    }

    /// Takes that half, if it is still there.
    pub fn take_back(&self, cpu: usize, half: &Arc<Task>) -> bool {
        let mut halves = lock(&self.halves[cpu]);
        // Mostly the last; other workers of the CPU may have put theirs meanwhile.
        let Some(place) = halves.iter().rposition(|ready| Arc::ptr_eq(&ready.0, half)) else { return false };
        let taken = halves.remove(place);
        drop(halves);
        drop(taken);
        self.count.fetch_sub(1, SeqCst);
        true
    }

    /// The oldest half of this CPU.
    pub fn pop(&self, cpu: usize) -> Option<Ready> {
        if self.is_empty() {
            return None;
        }
        let half = lock(&self.halves[cpu]).pop_front()?;
        self.count.fetch_sub(1, SeqCst);
        Some(half)
    }

    /// The oldest half of another CPU.
    pub fn steal(&self, cpu: usize) -> Option<Ready> {
        let count = self.halves.len();
        (1..count).find_map(|further| self.pop((cpu + further) % count))
    }

    /// One that `wanted` accepts.
    pub fn take(&self, mut wanted: impl FnMut(&Ready) -> bool) -> Option<Ready> {
        if self.is_empty() {
            return None;
        }
        self.halves.iter().find_map(|halves| {
            let mut halves = lock(halves);
            let place = halves.iter().take(DEPTH).position(&mut wanted)?;
            let half = halves.remove(place)?;
            self.count.fetch_sub(1, SeqCst);
            Some(half)
        })
    }
}
