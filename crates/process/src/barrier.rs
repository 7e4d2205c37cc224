//! Things that concern all CPUs of a process, or its end, seen from any kernel: membarrier(2) and pidfds.

use crate::{Process, System};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, CpuId, Errno, KernelId, KernelSet, Page, PageRange, Pid};
use messages::timer::{AwaitEnd, Barrier};

impl System {
    /// Every CPU that runs user code of `process` (None: of anybody), on every kernel, passes a full barrier
    /// and serialises its instruction stream before this returns.
    pub async fn barrier(self: &Arc<Self>, process: Option<&Arc<Process>>) {
        let space = process.map(|process| process.space().id());
        self.barrier_on_all(process, Barrier { space, aborts: false }).await
    }

    /// [`System::barrier`] of one process, after which none of its threads is in a restartable sequence (rseq(2)) that it was in
    /// before: it has gone on at the abort address, or will. `only`: those that run on this CPU.
    pub async fn barrier_and_abort(self: &Arc<Self>, process: &Arc<Process>, only: Option<CpuId>) {
        let ask = Barrier { space: Some(process.space().id()), aborts: true };
        let Some(cpu) = only else { return self.barrier_on_all(Some(process), ask).await };
        match self.kernel_of(cpu) {
            Some(kernel) if kernel == self.kernel => self.barrier_here(&ask),
            // A kernel that dies runs nothing any more.
            Some(kernel) => drop(self.endpoint.call(kernel, ask).await),
            None => {}
        }
    }

    async fn barrier_on_all(self: &Arc<Self>, process: Option<&Arc<Process>>, ask: Barrier) {
        self.barrier_here(&ask);
        // Only the home knows who holds a replica, if no other process is in the space. A kernel without one answers
        // at once.
        let alone =
            |process: &&Arc<Process>| process.is_home() && ask.space.is_some_and(|space| self.is_private(space));
        let kernels: KernelSet = match process.filter(alone) {
            Some(process) => process.replicas(),
            None => self.others().into_iter().collect(),
        };
        if !kernels.is_empty() {
            self.endpoint.multicast(&kernels, ask).await;
        }
    }

    /// A flush of one page of the table: it interrupts the CPUs that are in user mode on it and waits until
    /// they have left; a CPU that is in the kernel finds the new generation, behind a full fence, when it next
    /// enters, and forgets the page, which serialises (on x86-64: SDM 3A 9.3). The
    /// platform's shootdown.rs proves that no CPU falls between the two.
    ///
    /// What is in a restartable sequence leaves it when it next gets the CPU. A thread that is in the kernel without having
    /// lost its CPU (a fault, say) would go on in its sequence: it is told before the flush, and looks when it has entered.
    pub(crate) fn barrier_here(&self, ask: &Barrier) {
        if ask.aborts {
            // Not under the lock: the last that holds a space which execve has just left may be this.
            let threads: Vec<_> = self.threads.lock().values().cloned().collect();
            let of_it = threads.iter().filter(|thread| Some(thread.process.space().id()) == ask.space);
            of_it.for_each(|thread| thread.note_descheduled());
        }
        let spaces: Vec<_> = match ask.space {
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
