//! What processes and threads have used, over all kernels (man 2 getrusage, clock_gettime).
//!
//! A thread's account is where the thread is; the home keeps those of threads that are gone. So the sum is made by the
//! home, which asks every kernel that holds a replica. It counts exactly the members it had before it asked, each once: the
//! clock of a process must not go back because a thread ended or moved meanwhile. One that nobody found is between two
//! kernels, and is looked for again. So it is with all that /proc shows of threads.

use crate::{Process, System, Thread};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, Pid};
use messages::{
    inspect::{ListThreads, ThreadView},
    process::{AskUsage, Usage},
};

/// A move takes less than this, unless kernels are very busy.
const FIRST_PAUSE_NS: u64 = 100_000;
/// Each pause is twice the last. Who is not found in a second in all is not waited for.
const MOST_PAUSES: u32 = 13;

impl Process {
    /// What all its threads have used up to now, and the children it waited for.
    pub async fn total_usage(self: &Arc<Self>) -> Result<(Usage, Usage)> {
        self.system.usage_of(self.id, None).await
    }

    /// At home: the sum, and each live thread's part.
    pub(crate) async fn gather_usage(self: &Arc<Self>) -> (Usage, BTreeMap<Pid, Usage>) {
        let (mut sum, threads) = self.gather_threads().await;
        threads.values().for_each(|thread| sum.add(&thread.usage));
        (sum, threads.into_iter().map(|(tid, thread)| (tid, thread.usage)).collect())
    }

    /// At home: what those that are gone have used, and all others.
    pub(crate) async fn gather_threads(self: &Arc<Self>) -> (Usage, BTreeMap<Pid, ThreadView>) {
        let mut pauses = 0;
        loop {
            let (gone, members) = match self.home().map(|home| home.state.lock()) {
                Some(state) => (state.usage, state.members.keys().copied().collect()),
                None => (Usage::default(), Vec::new()),
            };
            let mut found = self.find_threads().await;
            found.retain(|tid, _| members.contains(tid));
            if found.len() == members.len() || pauses == MOST_PAUSES {
                return (gone, found);
            }
            let system = &self.system;
            system.scheduler.sleep_until(system.now() + (FIRST_PAUSE_NS << pauses)).await;
            pauses += 1;
        }
    }

    /// The threads that are on some kernel when that is asked.
    async fn find_threads(&self) -> BTreeMap<Pid, ThreadView> {
        let mut found = BTreeMap::new();
        for kernel in self.replicas().iter() {
            // A dead kernel's threads count no further.
            let there = self.system.endpoint.call(kernel, ListThreads { process: self.id }).await.unwrap_or_default();
            found.extend(there.into_iter().map(|view| (view.thread, view)));
        }
        // What is here is newest: who was found twice has moved here.
        found.extend(self.views_here().into_iter().map(|view| (view.thread, view)));
        found
    }

    /// Of the threads that are on this kernel. Who has begun to leave or to end may have told its account before this looked at it.
    pub(crate) fn views_here(&self) -> Vec<ThreadView> {
        let threads = self.local_threads();
        let views = threads.iter().map(|thread| (thread, thread.view()));
        let stays = |thread: &Thread| !thread.is_away() && self.threads.lock().contains_key(&thread.tid);
        views.filter(|(thread, _)| stays(thread)).map(|(_, view)| view).collect()
    }
}

impl System {
    /// What any process of the machine, or one thread of it, has used. ESRCH; EINVAL if the thread is not the process's.
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
                let usage = threads.get(&tid).copied().ok_or(Errno::EINVAL)?;
                Ok((usage, Usage::default()))
            }
        }
    }
}
