//! Signals for many processes beside forks.
//!
//! Problem: kill(-group) and a fork of a member may happen at the same time. On Linux both hold the lock of the process list, so there is an
//! order: either the child is there and gets the signal too, or the parent has it before it forks (`copy_process`: "signals
//! received before this point are delivered before the fork happens"; what comes during the fork the child gets as well). Here the members
//! are at many homes, which are asked one after the other, and the child is at home where the fork is made:
//!
//! ```text
//!   sender                             K1                         H (parent's home), K2: it forks
//!   members here? --------------------> none
//!                                      child: at home here  <----- the fork ends
//!   members here? ----------------------------------------------> P: has the signal
//!                                      child: has none
//! ```
//!
//! Idea: a signal for many is a *round*, with a number; every process keeps the last round of each kernel that came to it, and takes none
//! twice (a kernel sends one round after the other). Rounds go on until one pass over all kernels finds nobody new.
//! A fork has a beginning and an end at the home of the parent:
//!
//! - *beginning*: if a signal waits that the forking thread does not block, or the process ends or stops, the fork is not begun; the
//!   signal is first. Else the birth is written down, and the child begins with the rounds that its parent knows: those were
//!   before it.
//! - A round that comes to the parent during the birth is written down with it.
//! - *end*: the child, which is in the list of its kernel by now, gets the rounds that were written down, unless they came to it directly.
//!
//! Why nobody is missed: let the parent get the round before the beginning; then the signal is handled before the fork, or blocked, and not the
//! child's. During the birth: it is written down. After the end: the child is in its kernel's list already. The pass may have been
//! there before; but it found the parent, which was new, so there is another pass.
//!
//! Between the moment in which a signal is taken out and that in which it has ended or stopped the process nothing waits and nothing has
//! happened yet. So the home does what a signal does by default when a thread takes it, and a birth waits while the home is
//! at that ([`Deciding`]), or at sending.

use crate::{home::Home, Process, Thread};
use abi::signal::{Action, DefaultAction, Signal, SignalSet, Taken};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid};
use messages::process::{BeginFork, BeginForkReply, EndFork, EndForkReply, ExitStatus, Round, RoundSignal, Rounds};

/// Held while the home performs what a signal does to the process; no fork begins meanwhile.
pub(crate) struct Deciding<'a>(&'a Home);

impl<'a> Deciding<'a> {
    pub fn new(home: &'a Home) -> Self {
        home.state.lock().deciding += 1;
        Deciding(home)
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.state.lock().deciding -= 1;
        self.0.decided.wake_all();
    }
}

impl Thread {
    /// Before a fork: the rounds that the child is not meant by. RESTART_ALWAYS if there are signals to be handled first.
    pub(crate) async fn begin_fork(&self, child: Pid) -> Result<Rounds> {
        if self.is_interrupted() {
            return Err(Errno::RESTART_ALWAYS);
        }
        let (process, blocked) = (&self.process, self.blocked());
        let start = match process.home() {
            Some(_) => process.begin_fork_here(child, blocked).await,
            None => {
                let ask = BeginFork { process: process.id, child, blocked };
                process.system.endpoint.call(process.home, ask).await.map_err(Errno::from)??
            }
        };
        process.set_pending(start.pending);
        start.rounds.ok_or(Errno::RESTART_ALWAYS)
    }
}

impl Process {
    /// At home: registers the fork, unless a signal or the end of the process comes first.
    pub(crate) async fn begin_fork_here(&self, child: Pid, blocked: SignalSet) -> BeginForkReply {
        let Some(home) = self.home() else { return BeginForkReply::default() };
        let begin = || {
            let mut state = home.state.lock();
            if state.deciding > 0 {
                return None;
            }
            let pending = state.pending_set();
            let interrupted = !pending.set.without(blocked).is_empty() || state.stop_signal.is_some();
            if interrupted || self.has(crate::Flags::ENDING) {
                return Some(BeginForkReply { pending, rounds: None });
            }
            state.forks.insert(child, Default::default());
            Some(BeginForkReply { pending, rounds: Some(state.rounds.clone()) })
        };
        home.decided.wait_until(begin).await
    }

    /// Ends the fork, whether it succeeded or not. Answers what the child is to have of its parent beside what it was made with.
    pub(crate) async fn end_fork(&self, child: Pid) -> EndForkReply {
        match self.home() {
            Some(_) => self.end_fork_here(child),
            // With a dead home the process goes, and the child, which had something there, too.
            None => {
                let ask = EndFork { process: self.id, child };
                self.system.endpoint.call(self.home, ask).await.unwrap_or_default()
            }
        }
    }

    pub(crate) fn end_fork_here(&self, child: Pid) -> EndForkReply {
        let Some(home) = self.home() else { return EndForkReply::default() };
        let mut state = home.state.lock();
        EndForkReply { ipc: state.ipc.clone(), signals: state.forks.remove(&child).unwrap_or_default() }
    }

    /// At home of a child that is about to run: gives it what [`Process::end_fork`] answered.
    pub(crate) async fn take_news(self: &Arc<Self>, news: EndForkReply) {
        if let Some(home) = self.home() {
            home.state.lock().ipc = news.ipc;
        }
        for sent in news.signals {
            // The parent may have changed its group after the child was made.
            if sent.group.is_none_or(|group| self.with_shared(|shared| shared.group == group)) {
                self.reach(sent).await;
            }
        }
    }

    /// At home: whether this round has reached the process.
    pub(crate) fn knows(&self, round: Round) -> bool {
        self.home().is_none_or(|home| home.state.lock().rounds.know(round))
    }

    /// At home: takes a signal for many, unless its round has reached the process before.
    pub(crate) async fn reach(self: &Arc<Self>, sent: RoundSignal) {
        let Some(home) = self.home() else { return };
        let _deciding = Deciding::new(home);
        {
            let mut state = home.state.lock();
            if !state.rounds.enter(sent.round) {
                return;
            }
            state.forks.values_mut().for_each(|signals| signals.push(sent));
        }
        // kill(2) sends nothing that is refused.
        let _ = self.signal_here(sent.info).await;
    }

    /// At home: what a signal that a thread has taken does to the whole process by default. The thread finds it done.
    pub(crate) async fn decide(self: &Arc<Self>, taken: &Taken) {
        let signal = taken.info.signal;
        if self.with_shared(|shared| shared.actions.get(signal)).handler != Action::DEFAULT {
            return;
        }
        match signal.default_action() {
            DefaultAction::Terminate | DefaultAction::Core => {
                self.end(ExitStatus::Signal { signal, core: false }).await;
            }
            // The others ask about their group first, as Linux does without its lock.
            DefaultAction::Stop if signal == Signal::STOP => self.stop_here(signal, taken.sent.continues).await,
            DefaultAction::Stop | DefaultAction::Ignore | DefaultAction::Continue => {}
        }
    }
}
