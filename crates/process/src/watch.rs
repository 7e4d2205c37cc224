//! Ends that others must hear of. Who holds a lock of FUTEX_LOCK_PI may end: the kernel where others wait for it hears of that (crate `futex`).

use crate::{AtEnd, Process, System};
use alloc::sync::Arc;
use futex::Owners;
use machine::{errno::Result, BoxFuture, Errno, KernelId, KernelSet, Pid};
use messages::{
    futex::OwnerDied,
    process::{LeaveLocks, NoteIpc, WatchThread},
};

impl Owners for System {
    fn watch(&self, thread: Pid) -> BoxFuture<'_, Result<KernelSet>> {
        alloc::boxed::Box::pin(async move {
            let process = self.process_of(thread).await.ok_or(Errno::ESRCH)?;
            let home = self.origin(process).ok_or(Errno::ESRCH)?;
            if home == self.kernel {
                return self.watch_here(process, thread, self.kernel);
            }
            self.endpoint.call(home, WatchThread { process, thread }).await.map_err(|_| Errno::ESRCH)?
        })
    }

    fn now(&self) -> u64 {
        System::now(self)
    }

    fn sleep_until(&self, at: u64) -> BoxFuture<'_, ()> {
        alloc::boxed::Box::pin(self.scheduler.sleep_until(at))
    }
}

impl System {
    pub(crate) fn watch_here(&self, process: Pid, thread: Pid, watcher: KernelId) -> Result<KernelSet> {
        let process = self.process(process).ok_or(Errno::ESRCH)?;
        let mut state = process.home().ok_or(Errno::ESRCH)?.state.lock();
        if !state.members.contains_key(&thread) {
            return Err(Errno::ESRCH);
        }
        let watchers = state.watchers.entry(thread).or_default();
        watchers.insert(watcher);
        Ok(watchers.clone())
    }
}

impl System {
    /// Says who is told of the end of processes that [`System::note_ipc`] noted.
    pub fn set_at_end(&self, at_end: Arc<dyn AtEnd>) {
        *self.at_end.lock() = Some(at_end);
    }

    /// Notes that `kernel` is to hear of the end of `process`, and of that of its children.
    pub async fn note_ipc(&self, process: Pid, kernel: KernelId) -> Result<()> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.note_ipc_here(process, kernel);
        }
        self.endpoint.call(home, NoteIpc { process, kernel }).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) fn note_ipc_here(&self, process: Pid, kernel: KernelId) -> Result<()> {
        let process = self.process(process).ok_or(Errno::ESRCH)?;
        process.home().ok_or(Errno::ESRCH)?.state.lock().ipc.insert(kernel);
        Ok(())
    }
}

impl Process {
    /// At home: the process has no thread and no memory any more.
    pub(crate) async fn end_ipc(&self) {
        let kernels = self.home().map(|home| home.state.lock().ipc.clone()).unwrap_or_default();
        let at_end = self.system.at_end.lock().clone();
        if let Some(at_end) = at_end.filter(|_| !kernels.is_empty()) {
            at_end.ended(self.id, kernels).await;
        }
    }

    /// In execve, when the memory is left: the thread goes on, but others get the locks that it holds (Linux: futex_exec_release). They
    /// are told before it goes on, else a lock of the new program would be taken for one of the old.
    pub(crate) async fn leave_locks(&self, thread: Pid) {
        if self.is_home() {
            return self.leave_locks_here(thread).await;
        }
        // With a dead home the process goes.
        let _ = self.system.endpoint.call(self.home, LeaveLocks { process: self.id, thread }).await;
    }

    pub(crate) async fn leave_locks_here(&self, thread: Pid) {
        let Some(home) = self.home() else { return };
        let mut watchers = home.state.lock().watchers.remove(&thread).unwrap_or_default();
        if watchers.remove(self.system.kernel) {
            self.system.futexes.owner_died(thread).await;
        }
        if !watchers.is_empty() {
            self.system.endpoint.multicast(&watchers, OwnerDied { thread }).await;
        }
    }

    /// At home: a member has gone.
    pub(crate) fn tell_watchers(&self, thread: Pid, watchers: KernelSet) {
        for kernel in watchers.iter() {
            if kernel != self.system.kernel {
                // Nobody waits on a dead kernel.
                let _ = self.system.endpoint.send(kernel, OwnerDied { thread });
                continue;
            }
            let futexes: Arc<futex::Futexes> = self.system.futexes.clone();
            self.system.scheduler.spawn(async move { futexes.owner_died(thread).await });
        }
    }
}
