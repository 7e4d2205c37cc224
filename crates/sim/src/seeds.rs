//! Many seeds, on all CPUs of the host.

use crate::{
    scenario::{Kind, Log, Plan, Tally},
    shape,
};
use std::{
    num::NonZero,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Mutex,
    },
    thread,
};

/// Which runs.
#[derive(Clone, Copy)]
pub struct Seeds {
    pub first: u64,
    pub count: u64,
    /// None: as the seed says.
    pub kernels: Option<usize>,
    pub steps: u32,
}

impl Seeds {
    pub fn plan(&self, seed: u64) -> Plan {
        Plan::new(seed, self.kernels.unwrap_or_else(|| shape::kernels(seed)), self.steps)
    }
}

/// The first one found that fails, with what was wrong.
pub struct Failure {
    pub plan: Plan,
    pub error: String,
    /// Runs until then.
    pub after: u64,
}

/// Runs them all, or until one fails.
pub fn run(kind: Kind, seeds: Seeds) -> Result<Tally, Failure> {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    let (operations, messages) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut sum = Tally::default();
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds.count {
                break;
            }
            let plan = seeds.plan(seeds.first.wrapping_add(index));
            match (kind.run)(&plan, Log::Nothing) {
                Ok(tally) => {
                    sum.operations += tally.operations;
                    sum.messages += tally.messages;
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    let mut first = failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    first.get_or_insert(Failure { plan, error, after: index + 1 });
                }
            }
        }
        operations.fetch_add(sum.operations, Ordering::Relaxed);
        messages.fetch_add(sum.messages, Ordering::Relaxed);
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(seeds.count.max(1) as usize);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(failure) => Err(failure),
        None => Ok(Tally { operations: operations.into_inner(), messages: messages.into_inner() }),
    }
}
