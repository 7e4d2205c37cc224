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
//! A kernel counts in sums, in pages that programs map by any of these descriptors: an event is one addition there. What an eventfd has is the difference to what was read
//! of it. A program may want to be told only of CPUs that
//! have nothing to run: then only the sums count, and the eventfd of a CPU is 1 from when the CPU's loop finds nothing to run until somebody reads it or a thread
//! can go on there.
//!
//! A monitored thread that comes to a kernel is counted there from when it first enters user mode; the kernel that it leaves has counted a block by then.
//! The counters go when the process ends or executes a program: its home tells all kernels (`DropCounters`). On a kernel that was booted after
//! umt_enable there are none, and its threads are not counted while they are there.

use crate::{Process, System, Thread};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use fs::{
    event::{EventFd, Half},
    File, MappedWords, OpenFlags,
};
use machine::{
    account::{Charge, OverLimit, Resource},
    errno::Result,
    CpuId, Errno, KernelId, Pid, PAGE_SIZE,
};
use messages::{
    fs::Opened,
    process::{Change, DropCounters, MakeCounters},
};
use sched::{Edge, Monitor, TaskRef};

/// What a counter takes of the kernel's memory, about, beside what is mapped.
const COUNTER_BYTES: usize = 256;
/// An entry of what is mapped: `struct umt_sums` of include/cob/umt.h, by the number of the CPU. Its first word counts blocks, its second unblocks.
const ENTRY_BYTES: usize = 64;

/// The counters of one process for the CPUs of this kernel.
pub(crate) struct CpuCounters {
    counters: Vec<CpuCounter>,
    /// What programs map of them.
    sums: Arc<MappedWords>,
    /// Only CPUs that have nothing to run are told of (UMT_IDLE).
    idle_only: bool,
    _charge: Charge,
}

/// That of one CPU. Only this CPU counts unblocks, and tells that it has nothing to run.
struct CpuCounter {
    file: Arc<EventFd>,
    /// Where its sums are, in bytes.
    at: usize,
    /// A block has left no thread that can go on here, and nobody was told.
    stalls: AtomicBool,
    /// Somebody was told, and it is not known whether he has read it.
    told: AtomicBool,
}

impl CpuCounters {
    /// Threads that can go on on a CPU.
    fn ready(&self, counter: &CpuCounter) -> i32 {
        let [blocks, unblocks] = self.sums_of(counter);
        unblocks.wrapping_sub(blocks) as i32
    }

    fn sums_of(&self, counter: &CpuCounter) -> [u32; 2] {
        [0, 4].map(|word| self.sums.get(counter.at + word))
    }

    fn stalls(&self, cpu: usize) -> bool {
        self.counters.get(cpu).is_some_and(|counter| counter.stalls.load(Relaxed))
    }

    /// The CPU, on which this runs, has nothing to run. Whether somebody was told.
    fn tell_stall(&self, cpu: usize) -> bool {
        let Some(counter) = self.counters.get(cpu) else { return false };
        counter.stalls.store(false, Relaxed);
        let stalls = self.ready(counter) <= 0;
        if stalls {
            counter.told.store(true, Relaxed);
            counter.file.post();
        }
        stalls
    }
}

impl Monitor for CpuCounters {
    fn count(&self, cpu: usize, edge: Edge) -> bool {
        let Some(counter) = self.counters.get(cpu) else { return false };
        match (self.idle_only, edge) {
            (false, Edge::Block) => counter.file.count(Half::Lower),
            (false, Edge::Unblock) => counter.file.count(Half::Upper),
            (true, Edge::Block) => {
                self.sums.count(counter.at);
                self.ready(counter) <= 0
            }
            (true, Edge::Unblock) => {
                self.sums.count(counter.at + 4);
                counter.stalls.store(false, Relaxed);
                if counter.told.load(Relaxed) && counter.told.swap(false, Relaxed) {
                    counter.file.withdraw();
                }
                false
            }
        }
    }

    fn tell(&self, cpu: usize) -> bool {
        let Some(counter) = self.counters.get(cpu) else { return false };
        if !self.idle_only {
            counter.file.tell();
            return false;
        }
        let stalls = self.ready(counter) <= 0;
        if stalls {
            counter.stalls.store(true, Relaxed);
        }
        stalls
    }
}

impl System {
    /// A counter for each CPU of this kernel, kept for `process`. EBUSY, ENOMEM. ESRCH: its home has died.
    pub(crate) fn make_counters(&self, process: Pid, uid: u32, idle_only: bool) -> Result<Vec<Arc<dyn File>>> {
        let cpus = self.cpu.cpus();
        let account = self.accounts.of(process, uid);
        let charge = |bytes| account.charge(Resource::Memory, bytes).map_err(|OverLimit| Errno::ENOMEM);
        let pages = cpus.last().map_or(0, |cpu| (cpu.0 as usize + 1) * ENTRY_BYTES).div_ceil(PAGE_SIZE);
        let _charge = charge(cpus.len() * COUNTER_BYTES)?;
        let sums = MappedWords::new(&self.services, pages, charge(pages * PAGE_SIZE)?)?;
        let counter_of = |cpu: &CpuId| {
            let at = cpu.0 as usize * ENTRY_BYTES;
            let file = if idle_only { EventFd::mapping(&sums) } else { EventFd::counting(&sums, at) };
            CpuCounter { file, at, stalls: AtomicBool::new(false), told: AtomicBool::new(false) }
        };
        let counters: Vec<CpuCounter> = cpus.iter().map(counter_of).collect();
        let files = counters.iter().map(|counter| counter.file.clone() as Arc<dyn File>).collect();
        let new = Arc::new(CpuCounters { counters, sums, idle_only, _charge });
        if self.monitors.lock().try_insert(process, new).is_err() {
            return Err(Errno::EBUSY);
        }
        // Either this finds that the home has died, or who hears of its death finds the counters.
        if !self.origin(process).is_some_and(|home| home == self.kernel || self.endpoint.is_alive(home)) {
            self.drop_counters_here(process);
            return Err(Errno::ESRCH);
        }
        Ok(files)
    }

    /// The CPU that this runs on has nothing to run, and somebody wants to hear of that ([`sched::Scheduler::take_stall`]). Whether anybody was told.
    pub fn tell_stalls(&self) -> bool {
        let here = self.cpu.index();
        let mut told = false;
        loop {
            // One after the other: who is told is woken, which is not done with a lock held.
            let stalled = self.monitors.lock().values().find(|counters| counters.stalls(here)).cloned();
            match stalled {
                Some(counters) => told |= counters.tell_stall(here),
                None => return told,
            }
        }
    }

    /// Blocks and unblocks that the CPUs of this kernel have counted for `process`, by their numbers; None: it has no counters here. For tests.
    pub fn counted(&self, process: Pid) -> Option<Vec<(CpuId, [u32; 2])>> {
        let counters = self.monitors.lock().get(&process).cloned()?;
        let sums = counters.counters.iter().map(|counter| counters.sums_of(counter));
        Some(self.cpu.cpus().iter().copied().zip(sums).collect())
    }

    /// Forgets the counters of `process`. Those of its threads that are still monitored go on with them.
    pub(crate) fn drop_counters_here(&self, process: Pid) {
        let dropped = self.monitors.lock().remove(&process);
        let lost: u64 = dropped.iter().flat_map(|counters| &counters.counters).map(|counter| counter.file.lost()).sum();
        if lost > 0 {
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

    async fn counters_of(&self, kernel: KernelId, ask: MakeCounters) -> Result<Vec<Arc<dyn File>>> {
        if kernel == self.kernel {
            return self.make_counters(ask.process, ask.uid, ask.idle_only);
        }
        let counters = self.ask_for(kernel, ask, |from, answer: Result<Vec<Opened>>| {
            let taken: Vec<Result<Arc<dyn File>>> = answer?.into_iter().map(|opened| from.take(opened)).collect();
            taken.into_iter().collect()
        });
        counters.await?
    }
}

impl Process {
    /// Has the monitored threads of the process counted from now on. Answers the counters, by CPU. A CPU whose kernel is dead has one that nobody counts
    /// on. `idle_only`: they tell only of CPUs that have nothing to run. EBUSY: it has counters already.
    pub async fn make_counters(self: &Arc<Self>, uid: u32, idle_only: bool) -> Result<Vec<Arc<dyn File>>> {
        self.change(Change::Monitored(true)).await?;
        let made = self.collect_counters(MakeCounters { process: self.id, uid, idle_only }).await;
        if made.is_err() {
            self.end_counters().await;
        }
        made
    }

    async fn collect_counters(self: &Arc<Self>, ask: MakeCounters) -> Result<Vec<Arc<dyn File>>> {
        let machine = self.system.machine.lock().clone();
        let mut counters: Vec<Option<Arc<dyn File>>> = Vec::new();
        for (kernel, cpus) in machine {
            let made = match self.system.counters_of(kernel, ask.clone()).await {
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
                    None => EventFd::new(0, OpenFlags::NONBLOCK.bits())?,
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
        if !self.is_monitored() {
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

    /// Called before a thread that has lost its CPU is in user mode again. If it has come from another kernel it is counted here from now on. True if somebody
    /// may have been woken who wants this CPU: [`sched::Scheduler::should_yield`] must be asked again.
    #[inline]
    pub fn enters_user(&self) -> bool {
        if self.regrouped.load(Relaxed) && self.regrouped.swap(false, Relaxed) {
            self.process.system.scheduler.set_payer(self.process.cgroup());
        }
        self.is_monitored() && self.enters_user_monitored()
    }

    fn enters_user_monitored(&self) -> bool {
        let scheduler = &self.process.system.scheduler;
        // Who must be told is woken when the task is not locked.
        let pending = self.task.lock().as_ref().map(|task| scheduler.enters_user(task));
        match pending {
            Some(Some(pending)) => scheduler.tell_here(pending),
            Some(None) => {
                self.begin_monitoring();
                true
            }
            None => false,
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
