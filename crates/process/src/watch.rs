//! Who holds a lock of FUTEX_LOCK_PI may end: the kernel where others wait for it hears of that (crate `futex`).

use crate::{Process, System};
use alloc::sync::Arc;
use futex::Owners;
use machine::{errno::Result, BoxFuture, Errno, KernelId, KernelSet, Pid};
use messages::{futex::OwnerDied, process::WatchThread};

impl Owners for System {
    fn watch(&self, thread: Pid) -> BoxFuture<'_, Result<()>> {
        alloc::boxed::Box::pin(async move {
            let process = self.process_of(thread).await.ok_or(Errno::ESRCH)?;
            let home = self.origin(process).ok_or(Errno::ESRCH)?;
            if home == self.kernel {
                return self.watch_here(process, thread, self.kernel);
            }
            self.endpoint.call(home, WatchThread { process, thread }).await.map_err(|_| Errno::ESRCH)?
        })
    }
}

impl System {
    pub(crate) fn watch_here(&self, process: Pid, thread: Pid, watcher: KernelId) -> Result<()> {
        let process = self.process(process).ok_or(Errno::ESRCH)?;
        let mut state = process.home().ok_or(Errno::ESRCH)?.state.lock();
        if !state.members.contains_key(&thread) {
            return Err(Errno::ESRCH);
        }
        state.watchers.entry(thread).or_default().insert(watcher);
        Ok(())
    }
}

impl Process {
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
