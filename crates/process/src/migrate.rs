//! Moving a thread to another kernel (Katz 2014, 5.1-5.6).
//!
//! The thread is at its user boundary: registers, extended state and [`ThreadState`] are all there is of it.
//! It sends them in one message. What stays is the shadow: this future, suspended. A return wakes it with new
//! state; the thread's end elsewhere wakes it to vanish.
//!
//! ```text
//!   K1 (source)                        K2 (destination)                 H (home)
//!   presence = Away(K2)
//!   -- Migrate ------------------------> arriving += thread
//!                                        first visit: Join --------------> replicas += K2
//!                                        <------------------- Replica ----
//!                                        thread runs (or shadow wakes)
//!                                        -- Moved ------------------------> at = K2
//!   <------------------------- Ok ------
//! ```
//!
//! The dangerous interleaving: a signal for the thread, routed by the home to K1 while it is under way. K1
//! says Away and passes it on to K2, behind the Migrate on the same lane; K2 may still be joining, so it keeps
//! the signal in `arriving`, and the thread takes it when it appears. If the move fails (no memory, dead
//! kernel), the thread goes on at K1 as if nothing had been asked, and what was passed on comes back as an
//! error to its sender, who asks the home again.

use crate::{process::Flags, thread::Presence, Context, Process, System, Thread};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::*;
use machine::{errno::Result, Errno, KernelId, Pid};
use messages::process::{Migrate, ThreadState};

/// How a thread's stay elsewhere ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is back (or never left): go on with the context.
    Back,
    /// It ended elsewhere: the shadow ends without another word.
    Over,
}

impl Thread {
    /// If the thread may not stay on this kernel, moves it. `context` is what it goes on with.
    pub async fn settle(self: &Arc<Self>, context: &mut Context) -> Absence {
        if !self.misplaced.swap(false, SeqCst) {
            return Absence::Back;
        }
        let system = self.process.system.clone();
        let affinity = self.state.lock().affinity.clone();
        let destination = self.destination.lock().take();
        if let Some(to) = destination {
            // An affinity that was set since wins.
            if system.reaches(to, &affinity) {
                return self.move_placed(context, to).await;
            }
            system.note_under_way(to, false);
        }
        if system.admits(&affinity) {
            // Another CPU of this kernel: the scheduler's affair.
            if let Some(task) = &*self.task.lock() {
                task.set_allowed(system.local_mask(&affinity));
            }
            sched::yield_now().await;
            return Absence::Back;
        }
        match system.place(&affinity) {
            Some(to) if to != system.kernel => self.move_to(context, to).await,
            _ => Absence::Back,
        }
    }

    /// A move that was counted when the thread was placed.
    async fn move_placed(self: &Arc<Self>, context: &mut Context, to: KernelId) -> Absence {
        let left = self.leave_for(context, to).await;
        self.process.system.note_under_way(to, false);
        match left {
            true => self.rest(context).await,
            false => Absence::Back,
        }
    }

    /// Moves to kernel `to` and comes back when the thread does.
    pub async fn move_to(self: &Arc<Self>, context: &mut Context, to: KernelId) -> Absence {
        match self.leave_for(context, to).await {
            true => self.rest(context).await,
            false => Absence::Back,
        }
    }

    /// Hands the thread to kernel `to`; false if that failed, and it goes on here.
    async fn leave_for(self: &Arc<Self>, context: &mut Context, to: KernelId) -> bool {
        let process = &self.process;
        let system = &process.system;
        let replica = match process.is_home() {
            true => process.replica_for(to).await.ok(),
            false => None,
        };
        let fpu = self.with_fpu(|fpu| fpu.clone());
        let state = {
            let mut state = self.state.lock();
            state.visited.insert(system.kernel);
            state.clone()
        };
        *self.presence.lock() = Presence::Away(to);
        process.threads.lock().remove(&self.tid);
        // What came in before Away was set and after the copy was made goes along by itself: see `forward`.
        let sent_pending = state.pending.clone();
        let message =
            Migrate { process: process.id, thread: self.tid, registers: context.registers, fpu, state, replica };
        let moved = system.endpoint.call(to, message).await.map_err(Errno::from).and_then(|answer| answer);
        if let Err(error) = moved {
            log::warn!("thread {} stays on kernel {}: kernel {to} answers {error:?}", self.tid, system.kernel);
            *self.presence.lock() = Presence::Here;
            process.threads.lock().insert(self.tid, self.clone());
            return false;
        }
        system.counters.migrations_out.fetch_add(1, Relaxed);
        self.forward_late_signals(sent_pending, to);
        true
    }

    /// The shadow's sleep.
    async fn rest(self: &Arc<Self>, context: &mut Context) -> Absence {
        let woken = self.presence_changed.wait_until(|| {
            let mut presence = self.presence.lock();
            match &*presence {
                Presence::Away(_) => None,
                Presence::Ended | Presence::Here => Some(None),
                Presence::Returning(_) => match core::mem::replace(&mut *presence, Presence::Here) {
                    Presence::Returning(baggage) => Some(Some(baggage)),
                    _ => None,
                },
            }
        });
        let Some(baggage) = woken.await else { return Absence::Over };
        let (registers, fpu, state) = *baggage;
        context.registers = registers;
        *self.fpu.lock() = fpu;
        self.install(state);
        self.appear();
        Absence::Back
    }

    /// Signals that were queued here between the copy and the departure.
    fn forward_late_signals(&self, sent: abi::signal::Pending, to: KernelId) {
        let late: Vec<_> = {
            let mut state = self.state.lock();
            if state.pending == sent {
                return;
            }
            let mut known = sent;
            let all = abi::signal::SignalSet(u64::MAX);
            while known
                .take(all)
                .is_some_and(|info| state.pending.take(abi::signal::SignalSet::only(info.signal)).is_some())
            {
            }
            core::iter::from_fn(|| state.pending.take(all)).collect()
        };
        for info in late {
            self.process.system.forward_signal(self.process.id, self.tid, info, to);
        }
    }

    /// The thread is here and runs: a member of the local group, with its mail.
    fn appear(self: &Arc<Self>) {
        let process = &self.process;
        process.threads.lock().insert(self.tid, self.clone());
        if let Some(mut mail) = process.system.arriving.lock().remove(&self.tid) {
            while let Some(info) = mail.take(abi::signal::SignalSet(u64::MAX)) {
                self.push_signal(info);
            }
        }
        // The task may be on another CPU of this kernel than the thread wants, and the affinity may have been
        // changed on the way.
        let affinity = self.state.lock().affinity.clone();
        // The task of a shadow still knows the CPUs of its last stay.
        if let Some(task) = &*self.task.lock() {
            task.set_allowed(process.system.local_mask(&affinity));
        }
        if !affinity.contains(process.system.cpu.current()) {
            self.misplaced.store(true, SeqCst);
        }
    }
}

impl System {
    /// A thread arrives.
    pub(crate) async fn arrive(self: &Arc<Self>, from: KernelId, message: Migrate) -> Result<()> {
        let Migrate { process, thread, registers, fpu, state, replica } = message;
        self.arriving.lock().entry(thread).or_default();
        let result = self.admit(from, process, thread, registers, fpu, state, replica).await;
        if result.is_err() {
            self.arriving.lock().remove(&thread);
        }
        result
    }

    #[allow(clippy::too_many_arguments)] // The parts of one message.
    async fn admit(
        self: &Arc<Self>,
        from: KernelId,
        process: Pid,
        tid: Pid,
        registers: machine::Registers,
        fpu: machine::FpuState,
        state: ThreadState,
        replica: Option<messages::process::Replica>,
    ) -> Result<()> {
        if let Some(shadow) = self.thread(tid) {
            // A return: the shadow goes on with what arrived.
            shadow.process.tell_moved(tid, self.kernel);
            *shadow.presence.lock() = Presence::Returning(Box::new((registers, fpu, state)));
            shadow.presence_changed.wake_all();
            self.counters.migrations_in.fetch_add(1, Relaxed);
            return Ok(());
        }
        let home = match (&replica, self.process(process)) {
            (_, Some(known)) => known.home,
            (Some(_), None) => from,
            (None, None) => self.origin(process).ok_or(Errno::ESRCH)?,
        };
        let process: Arc<Process> = self.join(process, replica, home).await?;
        if process.has(Flags::ENDING) {
            // It comes here to end; that is as good a place as any.
            log::debug!("thread {tid} of ending process {} arrives", process.id);
        }
        let thread = Thread::new(tid, process.clone(), state, fpu);
        self.threads.lock().insert(tid, thread.clone());
        thread.appear();
        process.tell_moved(tid, self.kernel);
        self.counters.migrations_in.fetch_add(1, Relaxed);
        thread.start(Context { registers });
        Ok(())
    }
}
