//! What this kernel does when its memory runs out.

use crate::services::Kernel;
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use fs::{remote::Remote, Services};
use machine::{BoxFuture, GroupId, Pid, SpaceId, PAGE_SIZE};
use messages::cgroup::Reclaim;
use platform::plan::Plan;
use process::System;
use vm::Relief;

/// Frames taken from caches at a time: enough that not every fault has to look for some.
const BATCH: usize = 256;

pub struct Pressure {
    services: Arc<Services>,
    remote: Arc<Remote>,
    system: Weak<System>,
    machine_pages: u64,
}

impl Pressure {
    pub fn new(services: Arc<Services>, remote: Arc<Remote>, system: Weak<System>, plan: &Plan) -> Self {
        let memory = plan.kernels.iter().flat_map(|kernel| &kernel.memory);
        let machine_pages = memory.map(|range| range.bytes()).sum::<u64>() / PAGE_SIZE as u64;
        Pressure { services, remote, system, machine_pages }
    }
}

/// Once a kernel: the task that makes room for the kernel's own heap.
pub fn start(kernel: &'static Kernel) {
    kernel.scheduler.spawn(kernel.system.relieve());
}

impl Relief for Pressure {
    fn machine_pages(&self) -> u64 {
        self.machine_pages
    }

    fn reclaim(&self) -> usize {
        match self.services.reclaim(BATCH) {
            0 => self.remote.reclaim(),
            freed => freed,
        }
    }

    fn reclaim_mapped(&self, writes: bool) -> BoxFuture<'_, usize> {
        Box::pin(async move {
            if self.services.refaults.take_thrashing() {
                log::warn!("thrashing: programs read pages of files again as fast as they go");
                return 0;
            }
            let freed = match writes {
                true => self.services.reclaim_any().await,
                false => self.services.reclaim_mapped().await,
            };
            match freed {
                0 => self.remote.reclaim_mapped().await,
                freed => freed,
            }
        })
    }

    fn reclaim_of<'a>(&'a self, groups: &'a [GroupId], which: Reclaim) -> BoxFuture<'a, usize> {
        Box::pin(
            async move { self.services.reclaim_of(groups, which).await + self.remote.reclaim_of(groups, which).await },
        )
    }

    fn room_in_group(&self, group: GroupId, thread: Pid) -> BoxFuture<'_, bool> {
        let system = self.system.upgrade();
        Box::pin(async move {
            match system {
                Some(system) => system.room_in_cgroup(group, thread).await,
                None => false,
            }
        })
    }

    fn end_one(&self, space: SpaceId) -> BoxFuture<'_, bool> {
        let system = self.system.upgrade();
        Box::pin(async move {
            match system {
                Some(system) => system.end_heaviest(space).await,
                None => false,
            }
        })
    }
}
