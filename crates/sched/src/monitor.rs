//! User-monitored threads: a process hears of each time that one of its threads leaves a CPU because it waits, and of each time that it can use a
//! CPU again (Roca Nonell, "A Linux Kernel Scheduler Extension for Multi-Core Systems", 2017, section 3.3).
//!
//! A thread that asks for it is *monitored*: its task has the counters of its process for the CPUs of this kernel ([`Monitor`]).
//!
//! ```text
//! block     the thread's future waits, and nobody has woken it meanwhile: on the CPU that it leaves. Once for each time in the kernel:
//!           what it waits for afterwards, before it is in user mode again, is not counted
//! unblock   the thread is about to enter user mode again: on the CPU that it has then
//! move      the thread goes on on another CPU though it did not wait: a block on the old CPU, an unblock on the new one
//! ```
//!
//! A thread that could go on but has lost its CPU to another (a preemption, sched_yield) is not counted: the CPU has work.
//!
//! Dangerous: an unblock that does not see its block. The task can be on another CPU before the one that it left has looked whether it waits:
//!
//! ```text
//!   CPU A                              CPU B
//!   the future waits
//!                                      wakes the task, takes it, is about to enter user mode: no block, so no unblock
//!   counts a block                     <- nobody will count its end
//! ```
//!
//! So B waits for A, which is about to say that it has left the task (`on_cpu`) and waits for nobody. Who has a task on its CPU is the only
//! one who reads or writes what is here of the task.
//!
//! Until the first thread of a kernel is monitored, its code has an instruction that does nothing where a task is taken and left (a static key).
//!
//! A process may want to hear only of CPUs that have nothing to run. Then who counts a block that leaves no thread of it on a CPU notes that for the CPU
//! (`stalls`), and the CPU's loop asks for it when it is about to halt, or has looked out for [`MOST_NS`] in vain: what waits for another kernel for some
//! microseconds wakes nobody. The CPU may be another one, where the thread was when it was moved: that is woken, for it may have halted before.

use crate::{
    local::Local,
    monitored::{is_used, Edge, Monitor, PendingWake, KEY},
    patience::MOST_NS,
    sync::{spin, Ordering::*},
    task::{Entity, TaskRef},
    Scheduler,
};
use alloc::sync::Arc;

impl Scheduler {
    /// CPU `here`, which is `local`, is about to run the task.
    #[inline(always)]
    pub(crate) fn enter_monitored(&self, local: &Local, here: usize, entity: &Entity) {
        let monitored = &entity.monitored;
        while monitored.on_cpu.swap(true, Acquire) {
            spin();
        }
        local.monitors.store(true, Relaxed);
        if monitored.cpu.load(Relaxed) != here {
            self.note_moved(here, entity);
        }
    }

    #[cold]
    fn note_moved(&self, here: usize, entity: &Entity) {
        let monitored = &entity.monitored;
        let old = monitored.cpu.swap(here, Relaxed);
        if monitored.blocked.load(Relaxed) {
            // Its unblock will be counted here.
            return;
        }
        let left = monitored.count(old, Edge::Block);
        let come = monitored.count(here, Edge::Unblock);
        trace::umt_move(entity.traced(), old as u16, here as u16);
        self.tell(left, old);
        self.tell(come, here);
    }

    /// These must hear that something was counted on CPU `cpu`.
    #[inline]
    pub(crate) fn tell(&self, pending: PendingWake, cpu: usize) {
        if let PendingWake(Some(monitor)) = pending {
            self.tell_of(&*monitor, cpu);
        }
    }

    #[cold]
    fn tell_of(&self, monitor: &dyn Monitor, cpu: usize) {
        if !monitor.tell(cpu) {
            return;
        }
        self.locals[cpu].stalls.store(self.cpu.now().max(1), SeqCst);
        if cpu != self.here() {
            self.cpu.kick(self.cpu.cpus()[cpu]);
        }
    }

    /// This CPU has nothing to run. Is there somebody who wants to hear of that, and has it been so for long enough? `halts`: it is about to halt. The
    /// next answer is yes only after another block.
    pub fn take_stall(&self, halts: bool) -> bool {
        let stalls = &self.locals[self.here()].stalls;
        match stalls.load(SeqCst) {
            0 => false,
            since if !halts && self.cpu.now().saturating_sub(since) < MOST_NS => false,
            _ => stalls.swap(0, SeqCst) != 0,
        }
    }

    /// CPU `here`, which is `local`, has run the task, which `waits` now, or could go on.
    #[inline(always)]
    pub(crate) fn leave_monitored(&self, local: &Local, here: usize, entity: &Entity, waits: bool) -> PendingWake {
        local.monitors.store(false, Relaxed);
        let monitored = &entity.monitored;
        let pending = match waits && !monitored.blocked.load(Relaxed) {
            true => block(entity, here),
            false => PendingWake::default(),
        };
        monitored.on_cpu.swap(false, AcqRel);
        pending
    }

    /// The task is monitored from now on, and counts at once as a thread that can go on. This and the next three are called by the thread itself.
    pub fn begin_monitoring(&self, task: &TaskRef, monitor: Arc<dyn Monitor>) {
        let (here, entity) = (self.here(), &task.0);
        let monitored = &entity.monitored;
        if monitored.is_on() && monitored.monitor.lock().as_ref().is_some_and(|known| Arc::ptr_eq(known, &monitor)) {
            return;
        }
        if !is_used() {
            self.cpu.switch_key_on(KEY);
        }
        // Those of before are nobody's any more.
        self.end_monitoring(task);
        // This CPU has it: `turn` has not noted that, and will take it back.
        self.locals[here].monitors.store(true, Relaxed);
        monitored.on_cpu.store(true, Relaxed);
        *monitored.monitor.lock() = Some(monitor);
        monitored.cpu.store(here, Relaxed);
        let pending = count_unblock(entity);
        monitored.on.store(true, Relaxed);
        self.tell(pending, here);
    }

    /// The thread is about to enter user mode. Wakes nobody, but answers whom to [tell](Scheduler::tell_here). None: it is not monitored.
    pub fn enters_user(&self, task: &TaskRef) -> Option<PendingWake> {
        let monitored = &task.0.monitored;
        if !monitored.is_on() {
            return None;
        }
        Some(match monitored.blocked.load(Relaxed) {
            true => count_unblock(&task.0),
            false => PendingWake::default(),
        })
    }

    /// These must hear what was counted on this CPU. False: nobody.
    #[inline]
    pub fn tell_here(&self, pending: PendingWake) -> bool {
        let any = pending.0.is_some();
        if any {
            self.tell(pending, self.here());
        }
        any
    }

    /// The task is monitored no more: the thread has ended, or asks for it. This counts as a block.
    pub fn end_monitoring(&self, task: &TaskRef) {
        self.stop_monitoring(task, true);
    }

    /// The thread goes to another kernel, and will count there as one that was blocked. If it has waited since it was in user mode, its block is counted
    /// already.
    pub fn suspend_monitoring(&self, task: &TaskRef) {
        self.stop_monitoring(task, false);
    }

    fn stop_monitoring(&self, task: &TaskRef, ends: bool) {
        let (here, entity) = (self.here(), &task.0);
        let monitored = &entity.monitored;
        if !monitored.is_on() {
            return;
        }
        self.locals[here].monitors.store(false, Relaxed);
        let blocked = monitored.blocked.load(Relaxed);
        if blocked && ends {
            // The block that follows is told.
            let PendingWake(_) = count_unblock(entity);
        }
        if !blocked || ends {
            let pending = count_block(entity, here);
            self.tell(pending, here);
        }
        // Dropped when the lock is not held: it may be the last one.
        let monitor = monitored.monitor.lock().take();
        drop(monitor);
        monitored.blocked.store(false, Relaxed);
        monitored.on.store(false, Relaxed);
        monitored.on_cpu.swap(false, AcqRel);
    }
}

/// The task waits, and counts as such from now on. No part of who only leaves the task, which does this seldom.
#[inline(never)]
fn block(entity: &Entity, here: usize) -> PendingWake {
    entity.monitored.blocked.store(true, Relaxed);
    count_block(entity, here)
}

/// The thread can use the CPU that it has.
fn count_unblock(entity: &Entity) -> PendingWake {
    let here = entity.monitored.cpu.load(Relaxed);
    entity.monitored.blocked.store(false, Relaxed);
    let pending = entity.monitored.count(here, Edge::Unblock);
    if trace::on::umt_unblock() {
        trace::umt_unblock(entity.traced(), here as u16);
    }
    pending
}

/// The thread can't use CPU `here` any more.
fn count_block(entity: &Entity, here: usize) -> PendingWake {
    let pending = entity.monitored.count(here, Edge::Block);
    if trace::on::umt_block() {
        trace::umt_block(entity.traced(), here as u16);
    }
    pending
}
