//! What processes and threads have used, over all kernels (man 2 getrusage, clock_gettime).
//!
//! A thread's account is where the thread is; the home keeps those of threads that are gone. So the sum is made by the
//! home, which asks every kernel that holds a replica. Threads that are on their way are counted when they arrive.

use crate::{Process, System};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, Pid};
use messages::{
    inspect::ListThreads,
    process::{AskUsage, Usage},
};

impl Process {
    /// Of all its threads up to now, and of the children it waited for.
    pub async fn total_usage(self: &Arc<Self>) -> Result<(Usage, Usage)> {
        self.system.usage_of(self.id, None).await
    }

    /// At home: the sum, and each live thread's part.
    pub(crate) async fn gather_usage(self: &Arc<Self>) -> (Usage, Vec<(Pid, Usage)>) {
        let mut threads: Vec<(Pid, Usage)> = Vec::new();
        for kernel in self.replicas().iter() {
            // A dead kernel's threads count no further.
            let there = self.system.endpoint.call(kernel, ListThreads { process: self.id }).await.unwrap_or_default();
            threads.extend(there.into_iter().map(|view| (view.thread, view.usage)));
        }
        // A thread that moved here meanwhile is counted once, as one that is here.
        let here = self.local_threads();
        threads.retain(|(tid, _)| !here.iter().any(|thread| thread.tid == *tid));
        threads.extend(here.iter().map(|thread| (thread.tid, thread.usage())));
        let mut sum = self.home().map(|home| home.state.lock().usage).unwrap_or_default();
        threads.iter().for_each(|(_, usage)| sum.add(usage));
        (sum, threads)
    }
}

impl System {
    /// Of any process of the machine, or of one thread of it. ESRCH, EINVAL (no such thread of it).
    pub async fn usage_of(self: &Arc<Self>, process: Pid, thread: Option<Pid>) -> Result<(Usage, Usage)> {
        let here = thread.and_then(|tid| self.thread(tid));
        if let Some(thread) = here.filter(|thread| !thread.is_away() && thread.process.id == process) {
            return Ok((thread.usage(), Usage::default()));
        }
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.usage_here(process, thread).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        self.endpoint.call(home, AskUsage { process, thread }).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn usage_here(&self, pid: Pid, thread: Option<Pid>) -> Result<(Usage, Usage)> {
        let process = self.process(pid).ok_or(Errno::ESRCH)?;
        let home = process.home().ok_or(Errno::ESRCH)?;
        let (sum, threads) = process.gather_usage().await;
        match thread {
            None => Ok((sum, home.state.lock().children_usage)),
            Some(tid) => {
                let found = threads.into_iter().find(|(known, _)| *known == tid).ok_or(Errno::EINVAL)?;
                Ok((found.1, Usage::default()))
            }
        }
    }
}
