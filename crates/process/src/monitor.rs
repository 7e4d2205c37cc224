//! User-monitored threads (UMT): the counters of a process, one for each CPU of the machine, and which of its threads are counted. When something is
//! counted is said in sched/src/monitor.rs; docs/umt.md is about the interface.
//!
//! A counter is an eventfd of the kernel that has its CPU, so that counting costs no message:
//!
//! ```text
//!   K1: umt_enable               H (home)                  K1, K2, ...: all kernels
//!   -- ChangeShared ------------> Monitored: EBUSY if it
//!                                is; replicas are told
//!   -- MakeCounters -------------------------------------> a counter for each CPU, kept under the process's id
//!   <------------------------------------ their eventfds
//!   puts them into the process's descriptor table
//! ```
//!
//! A monitored thread that comes to a kernel is counted there from when it first enters user mode; the kernel that it leaves has counted a block by then.
//! The counters go when the process ends or executes a program: its home tells all kernels (`DropCounters`). On a kernel that was booted after
//! umt_enable there are none, and its threads are not counted while they are there.

use crate::{Process, System, Thread};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use fs::{
    event::{EventFd, Half},
    File, OpenFlags,
};
use machine::{
    account::{Charge, OverLimit, Resource},
    errno::Result,
    Errno, KernelId, Pid,
};
use messages::{
    fs::Opened,
    process::{Change, DropCounters, MakeCounters},
};
use sched::{Edge, Monitor, TaskRef};

/// What a counter takes of the kernel's memory, about.
const COUNTER_BYTES: usize = 256;

/// The counters of one process for the CPUs of this kernel.
pub(crate) struct CpuCounters {
    counters: Vec<Arc<EventFd>>,
    /// What was not counted, because half a counter was full.
    lost: AtomicU64,
    _charge: Charge,
}

impl Monitor for CpuCounters {
    fn count(&self, cpu: usize, edge: Edge) {
        let half = match edge {
            Edge::Block => Half::Lower,
            Edge::Unblock => Half::Upper,
        };
        if self.counters.get(cpu).is_some_and(|counter| !counter.count(half)) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    fn tell(&self, cpu: usize) {
        if let Some(counter) = self.counters.get(cpu) {
            counter.tell();
        }
    }
}

/// A non-blocking eventfd at zero.
fn counter() -> Result<Arc<EventFd>> {
    EventFd::new(0, OpenFlags::NONBLOCK.bits())
}

impl System {
    /// A counter for each CPU of this kernel, kept for `process`. EBUSY, ENOMEM.
    pub(crate) fn make_counters(&self, process: Pid, uid: u32) -> Result<Vec<Arc<dyn File>>> {
        let cpus = self.cpu.cpus().len();
        let account = self.accounts.of(process, uid);
        let charge = account.charge(Resource::Memory, cpus * COUNTER_BYTES).map_err(|OverLimit| Errno::ENOMEM)?;
        let counters = (0..cpus).map(|_| counter()).collect::<Result<Vec<_>>>()?;
        let files = counters.iter().map(|counter| counter.clone() as Arc<dyn File>).collect();
        let new = Arc::new(CpuCounters { counters, lost: AtomicU64::new(0), _charge: charge });
        match self.monitors.lock().try_insert(process, new) {
            Ok(_) => Ok(files),
            Err(_) => Err(Errno::EBUSY),
        }
    }

    /// Forgets the counters of `process`. Those of its threads that are still monitored go on with them.
    pub(crate) fn drop_counters_here(&self, process: Pid) {
        let dropped = self.monitors.lock().remove(&process);
        if let Some(lost) = dropped.map(|counters| counters.lost.load(Relaxed)).filter(|lost| *lost > 0) {
            log::warn!(
                "process {process}: {lost} events of monitored threads were not counted, for their counters were full"
            );
        }
    }

    /// Forgets the counters of all processes that were at home on `dead`.
    pub(crate) fn drop_counters_of(&self, dead: KernelId) {
        let lost: Vec<_> = self.monitors.lock().extract_if(|process, _| self.origin(*process) == Some(dead)).collect();
        drop(lost);
    }

    async fn counters_of(&self, kernel: KernelId, process: Pid, uid: u32) -> Result<Vec<Arc<dyn File>>> {
        if kernel == self.kernel {
            return self.make_counters(process, uid);
        }
        let ask = MakeCounters { process, uid };
        let counters = self.ask_for(kernel, ask, |from, answer: Result<Vec<Opened>>| {
            let taken: Vec<Result<Arc<dyn File>>> = answer?.into_iter().map(|opened| from.take(opened)).collect();
            taken.into_iter().collect()
        });
        counters.await?
    }
}

impl Process {
    /// Has the monitored threads of the process counted from now on. Answers the counters, by CPU. A CPU whose kernel is dead has one that nobody counts
    /// on. EBUSY: it has counters already.
    pub async fn make_counters(self: &Arc<Self>, uid: u32) -> Result<Vec<Arc<dyn File>>> {
        self.change(Change::Monitored(true)).await?;
        let made = self.collect_counters(uid).await;
        if made.is_err() {
            self.end_counters().await;
        }
        made
    }

    async fn collect_counters(self: &Arc<Self>, uid: u32) -> Result<Vec<Arc<dyn File>>> {
        let machine = self.system.machine.lock().clone();
        let mut counters: Vec<Option<Arc<dyn File>>> = Vec::new();
        for (kernel, cpus) in machine {
            let made = match self.system.counters_of(kernel, self.id, uid).await {
                Ok(made) => made,
                Err(_) if !self.system.endpoint.is_alive(kernel) => continue,
                Err(error) => return Err(error),
            };
            for (cpu, file) in cpus.into_iter().zip(made) {
                let place = cpu.0 as usize;
                if counters.len() <= place {
                    counters.resize_with(place + 1, || None);
                }
                counters[place] = Some(file);
            }
        }
        counters
            .into_iter()
            .map(|counter_of| {
                Ok(match counter_of {
                    Some(file) => file,
                    None => counter()?,
                })
            })
            .collect()
    }

    /// Undoes [`Process::make_counters`], as far as it went.
    pub async fn end_counters(self: &Arc<Self>) {
        // If the home is dead the process is about to end.
        let _ = self.change(Change::Monitored(false)).await;
    }

    /// At home: all kernels forget the counters.
    pub(crate) async fn drop_counters(&self) {
        if !self.with_shared(|shared| shared.monitored) {
            return;
        }
        let system = &self.system;
        system.drop_counters_here(self.id);
        system.endpoint.multicast(&system.endpoint.others(), DropCounters { process: self.id }).await;
    }
}

impl Thread {
    fn with_task(&self, use_task: impl FnOnce(&sched::Scheduler, &TaskRef)) {
        if !self.monitored.load(Relaxed) {
            return;
        }
        // Cloned first: the scheduler may wake somebody.
        let task = self.task.lock().clone();
        if let Some(task) = task {
            use_task(&self.process.system.scheduler, &task);
        }
    }

    /// Whether the thread has asked to be monitored.
    pub fn is_monitored(&self) -> bool {
        self.monitored.load(Relaxed)
    }

    /// The thread asks to be monitored, or not to be any more. ENXIO: its process has no counters.
    pub fn set_monitored(&self, on: bool) -> Result<()> {
        if on && !self.process.with_shared(|shared| shared.monitored) {
            return Err(Errno::ENXIO);
        }
        trace::umt_activate(self.tid.0, self.is_monitored().into(), on.into());
        match on {
            true => {
                self.note_monitored(true);
                self.begin_monitoring();
            }
            false => self.end_monitoring(),
        }
        Ok(())
    }

    fn note_monitored(&self, on: bool) {
        self.state.lock().monitored = on;
        self.monitored.store(on, Relaxed);
    }

    fn begin_monitoring(&self) {
        let counters = self.process.system.monitors.lock().get(&self.process.id).cloned();
        if let Some(counters) = counters {
            self.with_task(|scheduler, task| scheduler.begin_monitoring(task, counters));
        }
    }

    /// Called before a thread that has lost its CPU is in user mode again. If it has come from another kernel it is counted here from now on.
    pub fn enters_user(&self) {
        if self.monitored.load(Relaxed) {
            self.with_task(|scheduler, task| {
                if !scheduler.enters_user(task) {
                    self.begin_monitoring();
                }
            });
        }
    }

    /// The thread goes to another kernel.
    pub(crate) fn suspend_monitoring(&self) {
        self.with_task(|scheduler, task| scheduler.suspend_monitoring(task));
    }

    /// The thread is not monitored any more.
    pub(crate) fn end_monitoring(&self) {
        self.with_task(|scheduler, task| scheduler.end_monitoring(task));
        if self.is_monitored() {
            self.note_monitored(false);
        }
    }
}
