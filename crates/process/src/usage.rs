//! What processes and threads have used, over all kernels (man 2 getrusage, clock_gettime).
//!
//! The kernel that a thread is on keeps its account. The home adds up those of threads that have ended. To get the sum for a process,
//! the home asks every kernel that holds a replica.
//!
//! The clock of a process must not go back because a thread ends or moves while the home asks. So the home counts exactly the
//! threads that were members before it asked, each once. A thread that no kernel has reported is moving, so the home asks again.
//! /proc gets its lists of threads in the same way.

use crate::{Process, System, Thread};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, Pid};
use messages::{
    inspect::{ListThreads, ThreadView, ThreadsThere},
    process::{AskUsage, Usage},
};

/// The pause before the home asks again. A move takes less, unless kernels are very busy.
const FIRST_PAUSE_NS: u64 = 100_000;
/// Each pause is twice as long as the one before. After about a second the home leaves out the threads that nobody has reported.
const MOST_PAUSES: u32 = 13;

/// What the home has gathered about a process.
pub(crate) struct Gathered {
    /// What threads that have ended have used.
    pub gone: Usage,
    /// All live threads.
    pub threads: BTreeMap<Pid, ThreadView>,
    /// Faults in its address space on all kernels: resolved by the kernel alone, and by asking an owner.
    pub faults: (u64, u64),
}

impl Process {
    /// What all threads of the process have used so far, and the children that it has waited for.
    pub async fn total_usage(self: &Arc<Self>) -> Result<(Usage, Usage)> {
        self.system.usage_of(self.id, None).await
    }

    /// At home: what the process has used, and what each of its live threads has.
    pub(crate) async fn gather_usage(self: &Arc<Self>) -> (Usage, BTreeMap<Pid, Usage>) {
        let Gathered { gone: mut sum, threads, .. } = self.gather_threads().await;
        threads.values().for_each(|thread| sum.add(&thread.usage));
        (sum, threads.into_iter().map(|(tid, thread)| (tid, thread.usage)).collect())
    }

    /// At home.
    pub(crate) async fn gather_threads(self: &Arc<Self>) -> Gathered {
        let mut pauses = 0;
        loop {
            let (gone, members) = match self.home().map(|home| home.state.lock()) {
                Some(state) => (state.usage, state.members.keys().copied().collect()),
                None => (Usage::default(), Vec::new()),
            };
            let (mut threads, faults) = self.find_threads().await;
            threads.retain(|tid, _| members.contains(tid));
            if threads.len() == members.len() || pauses == MOST_PAUSES {
                return Gathered { gone, threads, faults };
            }
            let system = &self.system;
            system.scheduler.sleep_until(system.now() + (FIRST_PAUSE_NS << pauses)).await;
            pauses += 1;
        }
    }

    /// Asks each kernel once for its threads of the process, and adds up their faults.
    async fn find_threads(&self) -> (BTreeMap<Pid, ThreadView>, (u64, u64)) {
        let (mut found, mut faults) = (BTreeMap::new(), (0, 0));
        let mut add = |there: ThreadsThere| {
            faults = (faults.0 + there.faults_local, faults.1 + there.faults_remote);
            found.extend(there.threads.into_iter().map(|view| (view.thread, view)));
        };
        for kernel in self.replicas().iter() {
            // Fails if the kernel has died, with its threads.
            add(self.system.endpoint.call(kernel, ListThreads { process: self.id }).await.unwrap_or_default());
        }
        // Last, so that it replaces the report of a kernel that the thread has left since.
        add(self.threads_here());
        (found, faults)
    }

    /// What this kernel answers to [`ListThreads`].
    pub(crate) fn threads_here(&self) -> ThreadsThere {
        let faults = self.space().fault_count();
        ThreadsThere { threads: self.views_here(), faults_local: faults.local, faults_remote: faults.remote }
    }

    /// The threads on this kernel, without those that have begun to leave or to end: their account may be counted elsewhere already.
    fn views_here(&self) -> Vec<ThreadView> {
        let threads = self.local_threads();
        let views = threads.iter().map(|thread| (thread, thread.view()));
        let stays = |thread: &Thread| !thread.is_away() && self.threads.lock().contains_key(&thread.tid);
        views.filter(|(thread, _)| stays(thread)).map(|(_, view)| view).collect()
    }
}

impl System {
    /// What a process of any kernel, or one thread of it, has used, and the children that the process has waited for. ESRCH: there is
    /// no such process. EINVAL: it has no such thread.
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

    /// The same for a process at home on this kernel.
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
