//! What this kernel does when its memory runs out.

use alloc::sync::{Arc, Weak};
use fs::{remote::Remote, Services};
use machine::{BoxFuture, SpaceId, PAGE_SIZE};
use process::System;
use vm::Relief;

/// Frames taken from caches at a time: enough that not every fault has to look for some.
const BATCH: usize = 256;

pub struct Pressure {
    pub services: Arc<Services>,
    pub remote: Arc<Remote>,
    pub system: Weak<System>,
    pub plan: &'static platform::plan::Plan,
}

impl Relief for Pressure {
    fn machine_pages(&self) -> u64 {
        let memory = self.plan.kernels.iter().flat_map(|kernel| &kernel.memory);
        memory.map(|range| range.bytes()).sum::<u64>() / PAGE_SIZE as u64
    }

    fn reclaim(&self) -> usize {
        match self.services.reclaim(BATCH) {
            0 => self.remote.reclaim(),
            freed => freed,
        }
    }

    fn end_one(&self, space: SpaceId) -> BoxFuture<'_, bool> {
        let system = self.system.upgrade();
        alloc::boxed::Box::pin(async move {
            match system {
                Some(system) => system.end_heaviest(space).await,
                None => false,
            }
        })
    }
}
