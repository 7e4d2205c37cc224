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
//!                                        beside it: FirstPages ----------> (to the owners of its first pages)
//!                                        <------------------- Replica ----
//!                                        thread runs (or shadow wakes)
//!                                        -- Moved ------------------------> at = K2
//!   <------------------------- Ok ------
//! ```
//!
//! If K1 is the home the Ok is all it needs to know; if K2 is, it knows without a message. And a first visit from the home asks nothing: the
//! home sends the replica before the thread, and the first pages with it. K2 makes the one while K1 looks for the others.
//!
//! ```text
//!   H (source)                         K2 (destination)
//!   replicas += K2
//!   -- PushReplica (High) -------------> a replica, which waits for the first pages
//!   first pages: K2 is a sharer
//!   -- Migrate, pages (Low) -----------> maps the pages; thread runs
//!   <------------------------- Ok ------
//! ```
//!
//! The dangerous interleaving: a signal for the thread, routed by the home to K1 while it is under way. K1
//! says Away and passes it on to K2, behind the Migrate on the same lane; K2 may still be joining, so it keeps
//! the signal in `arriving`, and the thread takes it when it appears. So that no signal falls between, `presence` is
//! held from the copy to the message, and by whoever queues a signal. If the move fails (no memory, dead kernel), the
//! thread goes on at K1 as if nothing had been asked.
//!
//! The other one is about the first visit. From the moment at which the home counts K2 as a replica it tells it of
//! every change, but K2 can't take anything over before it has made the replica:
//!
//! ```text
//!   K2                                 H, CPU 0                          H, CPU 1
//!   -- Join ---------------------------> replicas += K2
//!                                                                          a signal, the end of the process, sigaction
//!   <---------------------------------------------------------- EndThreads: no such process: forgotten, and
//!   <-------------------- Replica ------                                   the thread would live for ever
//!   makes the replica
//! ```
//!
//! So K2 first writes down that it is joining, and what comes for such a process waits until the replica is there. PushReplica needs no such
//! note: it is sent under the lock with which K2 is counted, and all that a replica is told takes its lane. Migrate, which has another lane (that
//! of the signals for the thread), may overtake it. Then K2 asks as it does elsewhere; the PushReplica is before the answer, finds K2 joining, and
//! is dropped, and so are the pages that nobody waits for.

use crate::{death::KILLED, files::follow::FEW, process::Flags, thread::Presence, Context, Process, System, Thread};
use abi::signal::SignalSet;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::{poll_fn, Future},
    pin::pin,
    sync::atomic::Ordering::*,
    task::Poll,
};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Access, Actor, Errno, HashMap, KernelId, Page, Pid, Registers, ReturnAddress, UserAddr, UserRegisters,
};
use messages::process::{Migrate, Survivor, ThreadContext, ThreadState};

/// Threads that are on their way to this kernel.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Signals for threads whose arrival is not finished.
    pub arriving: Lock<HashMap<Pid, Vec<abi::signal::Taken>>>,
    /// Woken when a thread has arrived, or can't.
    pub arrived: WaitQueue,
}

/// How a thread's stay elsewhere ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The thread is back, or never left: it goes on with the context.
    Back,
    /// The thread ended elsewhere: its shadow ends without telling anybody.
    Over,
}

impl Thread {
    /// If the thread may not stay on this kernel, moves it; else what it has left elsewhere follows it. `context` is what it goes on with.
    pub async fn settle(self: &Arc<Self>, context: &mut Context) -> Absence {
        if !self.misplaced.swap(false, SeqCst) {
            return Absence::Back;
        }
        let absence = self.find_place(context).await;
        if absence == Absence::Back {
            self.fetch_left_files().await;
        }
        absence
    }

    async fn find_place(self: &Arc<Self>, context: &mut Context) -> Absence {
        let system = self.process.system.clone();
        let affinity = self.state.lock().affinity.clone();
        let destination = self.destination.lock().take();
        if let Some(to) = destination.and_then(|destination| self.decide(destination, &affinity)) {
            return self.move_placed(context, to).await;
        }
        if system.admits(&affinity) {
            // To another CPU of this kernel the scheduler moves it.
            if let Some(task) = &*self.task.lock() {
                task.set_allowed(system.local_mask(&affinity));
            }
            machine::yield_now().await;
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
        if self.is_reserved() {
            return false;
        }
        let process = &self.process;
        let system = &process.system;
        let is_return = self.state.lock().visited.contains(to);
        // A kernel that the thread has been on has the process, and the pages.
        let mut touches = if is_return { Vec::new() } else { self.first_pages(&context.registers) };
        let promised = process.send_replica(self.tid, to, &touches);
        let pages = if promised.is_empty() { Vec::new() } else { process.space().serve_first(to, &promised) };
        touches.retain(|(page, _)| !promised.iter().any(|touch| touch.page == *page));
        let fpu = self.with_fpu(|fpu| fpu.clone());
        // What this future does from here on is not the thread's. Before the message: the thread may run there at once.
        self.suspend_monitoring();
        self.act_for(Actor::NOBODY);
        // Signals that come from now on follow the message, on the same lane: see `push_signal`.
        let (sent, call) = {
            let mut presence = self.presence.lock();
            // Since it was asked above.
            if self.is_reserved() {
                drop(presence);
                self.act_for(self.actor());
                // That has it looked at before it is in user mode, and monitored again.
                return false;
            }
            let state = self.pack();
            let (sent, moves) = (state.pending.clone(), state.moves);
            let space = process.space().id();
            let thread_context = Box::new(ThreadContext { registers: context.registers, fpu, state });
            let (thread, home) = (self.tid, process.home);
            trace::thread_leave(thread.0, moves as u32, to.0);
            let message = Migrate { process: process.id, home, thread, thread_context, pages, space, touches };
            // In the drain, as with Moved: before anything else that comes from there about the thread.
            let (home, tid) = (process.clone(), self.tid);
            let call = system
                .endpoint
                .call_then(to, message, move |answer| answer.inspect(|()| home.member_moved(tid, to, moves)));
            *presence = Presence::Away(to);
            self.leaving.store(true, SeqCst);
            (sent, call)
        };
        process.threads.lock().remove(&self.tid);
        let _soon = system.vm.expect_soon();
        let moved = call.await.map_err(Errno::from).and_then(|answer| answer);
        if let Err(error) = moved {
            log::warn!("thread {} stays on kernel {}: kernel {to} answers {error:?}", self.tid, system.kernel);
            if !system.endpoint.is_alive(to) {
                // It may have run there. What it did then it would do again.
                process.end(KILLED).await;
            }
            *self.presence.lock() = Presence::Here;
            self.leaving.store(false, SeqCst);
            self.act_for(self.actor());
            self.enter_process();
            self.push_all(sent);
            return false;
        }
        self.leaving.store(false, SeqCst);
        system.counters.migrations_out.fetch_add(1, Relaxed);
        true
    }

    /// Takes out the state that travels. A pending signal must not stay here as well.
    fn pack(&self) -> ThreadState {
        let mut state = self.state.lock();
        state.visited.insert(self.process.system.kernel);
        self.settle_account(&mut state);
        // Counted even if the move fails, so that the number of the next one is greater.
        state.moves += 1;
        state.left_files |= self.process.files().may_follow(FEW);
        let pending = core::mem::take(&mut state.pending);
        ThreadState { pending, ..state.clone() }
    }

    /// The pages that it will touch at once elsewhere: its text, stack and thread-local data, and, as it mostly leaves in a system call
    /// that the C library made for it, the text that this returns to.
    fn first_pages(&self, registers: &Registers) -> Vec<(Page, Access)> {
        let space = self.process.space();
        let returns_to = match registers.return_address() {
            ReturnAddress::Known(at) => at.page(),
            ReturnAddress::At(at) => {
                let mut word = [0; 8];
                space.take_bytes(at, &mut word);
                UserAddr(u64::from_le_bytes(word)).page()
            }
        };
        let mut pages = Vec::new();
        let known = [
            (registers.instruction(), Access::EXEC),
            (registers.stack(), Access::WRITE),
            (registers.thread_pointer(), Access::READ),
        ];
        for (at, access) in known {
            pages.extend((at != 0).then_some((UserAddr(at).page(), access)));
        }
        let is_new = pages.iter().all(|(page, _)| *page != returns_to);
        pages.extend((is_new && space.allows(returns_to, Access::EXEC)).then_some((returns_to, Access::EXEC)));
        pages
    }

    fn push_all(self: &Arc<Self>, mut signals: abi::signal::Pending) {
        while let Some(taken) = signals.take(SignalSet(u64::MAX)) {
            self.push_signal(taken.info, taken.sent);
        }
    }

    /// Waits, as a shadow, until the thread comes back or has ended elsewhere.
    async fn rest(self: &Arc<Self>, context: &mut Context) -> Absence {
        let woken = self.presence_changed.wait_until(|| {
            let mut presence = self.presence.lock();
            match &*presence {
                Presence::Away(_) => None,
                Presence::Ended | Presence::Here => Some(None),
                Presence::Returning(_) => match core::mem::replace(&mut *presence, Presence::Here) {
                    Presence::Returning(thread_context) => {
                        let ThreadContext { registers, fpu, state } = *thread_context;
                        // Under the same lock: a signal goes into the context or into what is installed.
                        self.install(state);
                        Some(Some((registers, fpu)))
                    }
                    _ => None,
                },
            }
        });
        let Some((registers, fpu)) = woken.await else { return Absence::Over };
        context.registers = registers;
        self.with_fpu(|mine| *mine = fpu);
        self.act_for(self.actor());
        self.appear();
        Absence::Back
    }

    /// Enters the thread among the local threads of its process, and does what these were told while it was not there: execve ended all
    /// other threads, or signals have become ignored.
    pub(crate) fn enter_process(self: &Arc<Self>) {
        self.process.threads.lock().insert(self.tid, self.clone());
        self.follow_actions();
        self.doom_if_replaced();
    }

    fn doom_if_replaced(&self) {
        let replaced = |survivor: Survivor| survivor.thread != self.tid && self.state.lock().started < survivor.at;
        if self.process.survivor.lock().is_some_and(replaced) {
            self.doomed.store(true, SeqCst);
        }
    }

    /// Called when the thread has arrived: it becomes a local thread and gets the signals that came before it.
    fn appear(self: &Arc<Self>) {
        let process = &self.process;
        self.enter_process();
        let mail = process.system.arrivals.arriving.lock().remove(&self.tid);
        for signal in mail.unwrap_or_default() {
            self.push_signal(signal.info, signal.sent);
        }
        if !self.pending().is_empty() {
            process.signal_came();
        }
        // It may have been under way while its process was continued.
        self.continued(process.continues());
        process.system.arrivals.arrived.wake_all();
        // The task may be on another CPU of this kernel than the thread wants, and the affinity may have been
        // changed on the way.
        let (affinity, left_files) = {
            let state = self.state.lock();
            (state.affinity.clone(), state.left_files)
        };
        // The task of a shadow still knows the CPUs of its last stay.
        if let Some(task) = &*self.task.lock() {
            task.set_allowed(process.system.local_mask(&affinity));
        }
        self.here_since.store(process.system.now(), Relaxed);
        self.reschedule();
        if left_files || !affinity.contains(process.system.cpu.current()) {
            self.misplaced.store(true, SeqCst);
        }
    }
}

impl System {
    /// Serves a thread that arrives ([`Migrate`]).
    pub(crate) async fn arrive(self: &Arc<Self>, from: KernelId, message: Migrate) -> Result<()> {
        let (process, thread) = (message.process, message.thread);
        self.arrivals.arriving.lock().entry(thread).or_default();
        let result = self.admit(message, from).await;
        if result.is_err() {
            // Signals that came for it meanwhile follow it.
            let mail = self.arrivals.arriving.lock().remove(&thread).unwrap_or_default();
            for signal in mail {
                self.forward_signal(process, thread, signal.info, signal.sent, from);
            }
            self.arrivals.arrived.wake_all();
        }
        result
    }

    async fn admit(self: &Arc<Self>, message: Migrate, from: KernelId) -> Result<()> {
        let Migrate { process, home, thread: tid, thread_context, pages, space, touches } = message;
        let moves = thread_context.state.moves;
        trace::thread_arrive(tid.0, moves as u32, from.0);
        if let Some(shadow) = self.thread(tid) {
            // A return: the shadow goes on with what arrived.
            if from != home {
                shadow.process.tell_moved(tid, self.kernel, moves);
            }
            *shadow.presence.lock() = Presence::Returning(thread_context);
            shadow.presence_changed.wake_all();
            self.counters.migrations_in.fetch_add(1, Relaxed);
            return Ok(());
        }
        // The home is asked first: it is at it while this kernel makes room for the pages.
        let mut joining = pin!(self.join(process, home));
        let at_once = poll_fn(|context| Poll::Ready(joining.as_mut().poll(context))).await;
        // They come while this kernel joins its process.
        let touched = (!touches.is_empty()).then(|| self.vm.attach(space).ok()).flatten();
        if let Some(space) = &touched {
            space.expect_touches(&touches);
        }
        let process: Result<Arc<Process>> = match at_once {
            Poll::Ready(process) => process,
            Poll::Pending => joining.await,
        };
        if let Some(touched) = touched {
            let is_its = |process: &Arc<Process>| process.space().id() == space;
            if !process.as_ref().is_ok_and(is_its) {
                // It has ended, or been left by an execve. Who ends it hears that it is here, or it goes.
                let _ = touched.join_home().await;
            }
        }
        if let Some(expected) = self.expected_for(tid) {
            expected.came(pages);
        }
        let process = process?;
        if process.has(Flags::ENDING) {
            // The thread will end on this kernel.
            log::debug!("thread {tid} of ending process {} arrives", process.id);
        }
        let ThreadContext { registers, fpu, state } = *thread_context;
        let thread = Thread::new(tid, process.clone(), state, fpu);
        self.threads.lock().insert(tid, thread.clone());
        thread.appear();
        if from != home {
            process.tell_moved(tid, self.kernel, moves);
        }
        self.counters.migrations_in.fetch_add(1, Relaxed);
        thread.start(Context { registers });
        Ok(())
    }
}
