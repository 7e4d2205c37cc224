//! Things that concern all CPUs of a process, or its end, seen from any kernel: membarrier(2) and pidfds.

use crate::{Process, System};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, KernelSet, Page, PageRange, Pid, SpaceId};
use messages::timer::{AwaitEnd, Barrier};

impl System {
    /// Every CPU that runs user code of `process` (None: of anybody), on every kernel, passes a full barrier
    /// and serialises its instruction stream before this returns.
    pub async fn barrier(self: &Arc<Self>, process: Option<&Arc<Process>>) -> Result<()> {
        let space = process.map(|process| process.space().id());
        self.barrier_here(space);
        // Only the home knows who holds a replica, if no other process is in the space. A kernel without one answers
        // at once.
        let alone = |process: &&Arc<Process>| process.is_home() && space.is_some_and(|space| self.is_private(space));
        let kernels: KernelSet = match process.filter(alone) {
            Some(process) => process.replicas(),
            None => self.others().into_iter().collect(),
        };
        if !kernels.is_empty() {
            self.endpoint.multicast(&kernels, Barrier { space }).await;
        }
        Ok(())
    }

    /// A flush of one page of the table: it interrupts the CPUs that are in user mode on it and waits until
    /// they have left; a CPU that is in the kernel finds the new generation, behind a full fence, when it next
    /// enters, and forgets the page by INVLPG or a write of CR3, which serialise (SDM 3A 9.3). The platform's
    /// shootdown.rs proves that no CPU falls between the two.
    pub(crate) fn barrier_here(&self, space: Option<SpaceId>) {
        let spaces: Vec<_> = match space {
            Some(id) => self.vm.find(id).into_iter().collect(),
            None => self.vm.spaces(),
        };
        for space in spaces {
            space.table().flush(PageRange::new(Page(0), Page(1)));
        }
    }

    /// Waits for the end of a process, wherever it is at home. ESRCH if there is none.
    pub async fn await_end(self: &Arc<Self>, process: Pid) -> Result<()> {
        match self.home_of(process)? {
            home if home == self.kernel => self.await_end_here(process).await,
            home => self.endpoint.call(home, AwaitEnd { process }).await.map_err(Errno::from)?,
        }
    }

    pub(crate) async fn await_end_here(self: &Arc<Self>, process: Pid) -> Result<()> {
        let process = self.process(process).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        process.ended().await;
        Ok(())
    }

    fn home_of(&self, process: Pid) -> Result<KernelId> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home != self.kernel && !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        Ok(home)
    }
}
