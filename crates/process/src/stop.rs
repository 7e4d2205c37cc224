//! Stopping a process and continuing it (man 7 signal).
//!
//! A stop has its effect when a thread takes it, SIGCONT when it is sent. So a stop is under way for a while: it waits at the
//! home or with a thread, it moves with the thread, or a thread has taken it and the home has not heard of that. A SIGCONT that is sent
//! meanwhile must make it void wherever it is, or the process would stay stopped for ever:
//!
//! ```text
//!   thread (K1)                 home                       sender
//!                               SIGSTOP waits              kill(SIGSTOP) has returned
//!   -- TakeSignal ------------>
//!   <------- SIGSTOP, 4 ------- continues = 4
//!                               continues = 5  <---------- kill(SIGCONT)
//!   -- StopProcess { 4 } -----> 4 < 5: void
//! ```
//!
//! The home numbers the SIGCONTs (`Pending::continues`, under the lock of its state), and a stop carries the number that was the
//! last when it was sent: one for the process gets it in its queue at home, one for a thread asks the home ([`Sending`]) before it goes
//! to the thread. The home stops the process only if the number is still the last; check and change are one step there.
//! SIGCONT also removes stops that wait (a replica hears of it before kill returns), so that sigpending shows none and no handler
//! of SIGTSTP runs; but whether the process stops, the number decides.
//!
//! Stops and continuations are ordered (`StopState::order`): two CPUs of the home may tell a replica in another order than they happened.
//! kill(SIGCONT) returns when the parent has been told: a shell that continues a job and waits for it must not find it stopped.

use crate::{process::Flags, Process, System};
use abi::signal::{DefaultAction, Signal, SignalInfo, SignalSet, Taken};
use alloc::sync::Arc;
use machine::Pid;
use messages::process::{ChildChanged, ChildEvent, ExitStatus, Sending, SetStopped, StopProcess, StopState, Usage};

impl System {
    /// The effects on its process that a signal for a thread has when it is sent; the number of the last SIGCONT, for
    /// the signals that it matters to.
    pub(crate) async fn sending(self: &Arc<Self>, process: Pid, signal: Signal) -> u64 {
        if signal != Signal::CONT && !SignalSet::STOPPING.contains(signal) {
            return 0;
        }
        match self.origin(process) {
            Some(home) if home == self.kernel => self.sending_here(process, signal).await,
            // A dead home takes the process with it anyway.
            Some(home) => self.endpoint.call(home, Sending { process, signal }).await.unwrap_or(0),
            None => 0,
        }
    }

    pub(crate) async fn sending_here(self: &Arc<Self>, process: Pid, signal: Signal) -> u64 {
        match self.process(process) {
            Some(process) => process.sending(signal).await,
            None => 0,
        }
    }
}

impl Process {
    /// At home: the effects that stops and SIGCONT have on the process when they are sent. The number of the last SIGCONT.
    pub(crate) async fn sending(self: &Arc<Self>, signal: Signal) -> u64 {
        if signal == Signal::CONT {
            self.go_on(None).await;
        } else if SignalSet::STOPPING.contains(signal) {
            self.discard(SignalSet::only(Signal::CONT));
        }
        self.home().map_or(0, |home| home.state.lock().pending.continues())
    }

    /// SIGCONT is sent. At home. If it is for the process (`info`) it waits before anybody goes on, so that a handler is the
    /// first that runs.
    pub(crate) async fn go_on(self: &Arc<Self>, info: Option<SignalInfo>) {
        let Some(home) = self.home().filter(|_| !self.has(Flags::ENDING)) else { return };
        let waits = match info {
            Some(info) => self.wants(info.signal).await.then_some(info),
            None => None,
        };
        let (stood, stop_state, left) = {
            let mut state = home.state.lock();
            let number = state.pending.continues() + 1;
            state.pending.continued(number);
            if let Some(info) = waits {
                let uid = state.credentials.uid;
                state.pending.pay(|| self.account(uid));
                state.pending.push_sent(info, number);
            }
            state.pending_version += 1;
            let stood = state.stop_signal.take().is_some();
            state.stops += u64::from(stood);
            (stood, state.stop_state(), state.pending_set())
        };
        self.set_pending(left);
        // Also what does not stand has stops on their way.
        self.tell_stop_state(stop_state).await;
        self.rouse(left.set);
        if stood {
            self.tell_parent(ChildEvent::Continued, stop_state.order).await;
        }
    }

    /// A thread on this kernel has taken a stop signal: asks the home to stop the process.
    async fn stop(self: &Arc<Self>, signal: Signal, continues: u64) {
        if !self.is_home() {
            let _ = self.system.endpoint.call(self.home, StopProcess { process: self.id, signal, continues }).await;
            return;
        }
        self.stop_here(signal, continues).await;
    }

    /// At home: stops the process, unless SIGCONT has been sent since.
    pub(crate) async fn stop_here(self: &Arc<Self>, signal: Signal, continues: u64) {
        let Some(home) = self.home().filter(|_| !self.has(Flags::ENDING)) else { return };
        let stop_state = {
            let mut state = home.state.lock();
            if state.stop_signal.is_some() || continues < state.pending.continues() {
                return;
            }
            state.stop_signal = Some(signal);
            state.stops += 1;
            state.stop_state()
        };
        self.tell_stop_state(stop_state).await;
        self.tell_parent(ChildEvent::Stopped(signal), stop_state.order).await;
    }

    /// Tells every replica whether the process is stopped, and waits until all have heard.
    async fn tell_stop_state(&self, stop_state: StopState) {
        self.set_stop_state(stop_state);
        let replicas = self.replicas();
        if !replicas.is_empty() {
            let Some(pending) = self.home().map(|home| home.state.lock().pending_set()) else { return };
            self.system.endpoint.multicast(&replicas, SetStopped { process: self.id, stop_state, pending }).await;
        }
    }

    async fn tell_parent(&self, event: ChildEvent, order: u64) {
        let Some(home) = self.home() else { return };
        let (parent, group) = self.with_shared(|shared| (shared.parent, shared.group));
        let uid = home.state.lock().credentials.uid;
        let event = ChildChanged { parent, child: self.id, group, uid, event, order, usage: Usage::default() };
        self.system.child_changed(event).await;
    }

    /// Stops or continues the threads on this kernel, as the home reports.
    pub(crate) fn set_stop_state(&self, told: StopState) {
        {
            let mut known = self.stop_state.lock();
            known.continues = known.continues.max(told.continues);
            if told.order > known.order {
                (known.order, known.stopped) = (told.order, told.stopped);
                self.change_flags(Flags::STOPPED, told.stopped);
            }
        }
        for thread in self.local_threads() {
            thread.continued(told.continues);
        }
        self.call_attention();
    }

    /// The number of the last SIGCONT that this kernel knows of.
    pub(crate) fn continues(&self) -> u64 {
        self.stop_state.lock().continues
    }

    /// What a signal without handler does to the process when a thread takes it.
    pub async fn default_action(self: &Arc<Self>, taken: &Taken) {
        let signal = taken.info.signal;
        match signal.default_action() {
            DefaultAction::Ignore | DefaultAction::Continue => {}
            DefaultAction::Stop => {
                // POSIX: nobody could continue an orphaned group, so only SIGSTOP stops it.
                let (group, session) = self.with_shared(|shared| (shared.group, shared.session));
                if signal == Signal::STOP {
                    self.stop(signal, taken.sent.continues).await;
                } else if !self.system.is_orphaned(group, session).await {
                    self.stop(signal, taken.sent.continues).await;
                    // It may have become orphaned meanwhile: orphan.rs.
                    self.system.tie_cut(group, session).await;
                }
            }
            DefaultAction::Terminate | DefaultAction::Core => {
                self.end(ExitStatus::Signal { signal, core: false }).await;
            }
        }
    }
}
