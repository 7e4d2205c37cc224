//! Waiting for children (man 2 wait4, waitid). The parent's home keeps the last change of each child: its end, stop or continuation.

use crate::{exit::INIT, Process, System};
use abi::signal::{Action, Signal, SignalFields, SignalInfo};
use alloc::{boxed::Box, sync::Arc};
use core::{
    future::{poll_fn, Future},
    pin::{pin, Pin},
    task::Poll,
};
use fabric::CallError;
use machine::{errno::Result, BoxFuture, Errno, Pid};
use messages::process::{
    ChildChanged, ChildEvent, ExitStatus, PendingSignals, Reap, Wait, WaitAnswer, WaitFor, WaitKind,
};

/// The `order` of a child's end: no change comes after it.
pub(crate) const LAST: u64 = u64::MAX;

impl System {
    /// Tells the home of a parent that a child has ended, stopped or continued. Answers true if the child is to be reaped at once,
    /// since nobody will wait for it.
    ///
    /// Boxed, because it may send the parent a signal, which may stop or end it, which its own parent is told of in turn.
    pub(crate) fn child_changed(self: &Arc<Self>, event: ChildChanged) -> BoxFuture<'static, bool> {
        let system = self.clone();
        Box::pin(async move {
            if event.parent == INIT {
                // Init reaps every child at once.
                return matches!(event.event, ChildEvent::Exited(_));
            }
            match system.origin(event.parent) {
                Some(kernel) if kernel == system.kernel => system.child_changed_here(event).await,
                Some(kernel) => system.endpoint.call(kernel, event).await.unwrap_or(true),
                None => true,
            }
        })
    }

    /// The same at the parent's home.
    pub(crate) async fn child_changed_here(self: &Arc<Self>, event: ChildChanged) -> bool {
        let Some(parent) = self.process(event.parent) else { return true };
        let Some(home) = parent.home() else { return true };
        let exit_signal = {
            let state = home.state.lock();
            match state.children.get(&event.child) {
                Some(child) if state.zombie.is_none() => child.exit_signal,
                // The child is about to get another parent, which will be told.
                None if state.is_handing_out(event.child) => return false,
                // A thread has waited for it already. Its kernel may have died before it sent `Reap`.
                _ => return true,
            }
        };
        let action = parent.with_shared(|shared| shared.actions.get(Signal::CHLD));
        let info = news_of(&event, exit_signal, &action);
        // SIGCHLD is queued below, together with the change. Any other exit signal may stop or end the parent: it is sent like a kill.
        let queued = match info.filter(|info| info.signal == Signal::CHLD) {
            Some(info) if parent.wants(info.signal).await => Some(info),
            _ => None,
        };
        // POSIX: a parent that ignores SIGCHLD, or has SA_NOCLDWAIT, gets no zombies.
        let unwanted = matches!(event.event, ChildEvent::Exited(_))
            && exit_signal == Signal::CHLD.number()
            && (action.handler == Action::IGNORE || action.flags & Action::NOCLDWAIT != 0);
        {
            let mut state = home.state.lock();
            if state.zombie.is_some() {
                return true;
            }
            let Some(child) = state.children.get_mut(&event.child) else { return true };
            // A later change has overtaken this one, or the end is told twice (heir.rs).
            if event.order < child.order || child.order == LAST {
                return false;
            }
            child.order = event.order;
            child.event = Some(event.event);
            child.usage = event.usage;
            child.group = event.group;
            child.uid = event.uid;
            if unwanted {
                state.children.remove(&event.child);
            }
            // Under the same lock: a thread that blocks SIGCHLD finds it pending after its wait, and a handler finds the child.
            if let Some(info) = queued {
                let uid = state.credentials.uid;
                state.pending.pay(|| parent.account(uid));
                state.pending.push(info);
                state.pending_version += 1;
                let pending = state.pending_set();
                parent.set_pending(pending);
                for kernel in state.replicas.iter() {
                    // Fails if the kernel has died, with its threads.
                    let _ = self.endpoint.send(kernel, PendingSignals { process: parent.id, pending });
                }
            }
        }
        if queued.is_some() {
            parent.rouse(parent.pending());
        }
        home.children_changed.wake_all();
        if let Some(info) = info.filter(|_| queued.is_none()) {
            // The kernel's own signals are never refused.
            let _ = parent.signal_here(info).await;
        }
        unwanted
    }
}

/// The signal that a parent gets for its child's change, if any.
fn news_of(event: &ChildChanged, exit_signal: u8, action: &Action) -> Option<SignalInfo> {
    let signal = match event.event {
        ChildEvent::Exited(_) => Signal::new(u64::from(exit_signal))?,
        _ if action.flags & Action::NOCLDSTOP != 0 => return None,
        _ => Signal::CHLD,
    };
    // CLD_EXITED 1, KILLED 2, DUMPED 3, STOPPED 5, CONTINUED 6 (man 2 sigaction).
    let (code, status) = match event.event {
        ChildEvent::Exited(ExitStatus::Code(code)) => (1, i32::from(code)),
        ChildEvent::Exited(ExitStatus::Signal { signal, core }) => {
            (if core { 3 } else { 2 }, i32::from(signal.number()))
        }
        ChildEvent::Stopped(signal) => (5, i32::from(signal.number())),
        ChildEvent::Continued => (6, i32::from(Signal::CONT.number())),
    };
    // In clock ticks of 10 ms, as siginfo has them.
    let (utime, stime) = (event.usage.user_ns / 10_000_000, event.usage.system_ns / 10_000_000);
    let fields = SignalFields::Child { pid: event.child, uid: event.uid, status, utime, stime };
    Some(SignalInfo { signal, code, errno: 0, fields })
}

/// The options of wait4 and waitid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOptions {
    /// Which children by their exit signal: neither option, __WCLONE or __WALL.
    pub kind: WaitKind,
    /// WEXITED.
    pub exited: bool,
    /// WSTOPPED.
    pub stopped: bool,
    /// WCONTINUED.
    pub continued: bool,
    /// WNOWAIT: leave it waitable.
    pub keep: bool,
    /// WNOHANG.
    pub poll: bool,
}

impl Process {
    /// Waits for a child, and reaps it if it has ended. None: with `poll`, no child has anything to report.
    ///
    /// When `interrupt` completes the wait ends with RESTART, unless the home has found a child before: that is always reported.
    pub async fn wait(
        self: &Arc<Self>,
        which: WaitFor,
        options: WaitOptions,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Option<WaitAnswer>> {
        let WaitOptions { kind, exited, stopped, continued, keep, poll } = options;
        let message = Wait { parent: self.id, which, kind, exited, stopped, continued, keep, poll };
        let mut interrupt = pin!(interrupt);
        let answer = if self.is_home() {
            let mut wait = pin!(self.wait_here(message));
            poll_fn(|context| match wait.as_mut().poll(context) {
                Poll::Pending => interrupt.as_mut().poll(context).map(|()| Err(Errno::RESTART)),
                ready => ready,
            })
            .await?
        } else {
            let mut call = self.system.endpoint.start(self.home, message);
            let mut interrupted = false;
            let answer = poll_fn(|context| {
                if !interrupted && interrupt.as_mut().poll(context).is_ready() {
                    interrupted = true;
                    // The home may have found a child already. Then its answer comes all the same.
                    call.cancel();
                }
                Pin::new(&mut call).poll(context)
            });
            match answer.await {
                Ok(answer) => answer?,
                Err(CallError::Cancelled) if interrupted => return Err(Errno::RESTART),
                Err(error) => return Err(error.into()),
            }
        };
        if let Some(WaitAnswer { process, event: ChildEvent::Exited(_), .. }) = answer {
            if !keep {
                self.reap(process).await;
            }
        }
        Ok(answer)
    }

    /// The same at home. It may be dropped while it waits: as soon as it has taken a child it is complete.
    pub(crate) async fn wait_here(self: &Arc<Self>, wait: Wait) -> Result<Option<WaitAnswer>> {
        let home = self.home().ok_or(Errno::ECHILD)?;
        let look = || match self.look_for_child(&wait) {
            Ok(None) if !wait.poll => None,
            other => Some(other),
        };
        home.children_changed.wait_until(look).await
    }

    /// Takes a child that `wait` accepts. None: all have nothing to report. ECHILD: there is no such child.
    fn look_for_child(&self, wait: &Wait) -> Result<Option<WaitAnswer>> {
        let home = self.home().ok_or(Errno::ECHILD)?;
        let mut state = home.state.lock();
        let mut any = false;
        let mut found = None;
        for (&pid, child) in &state.children {
            let meant = match wait.which {
                WaitFor::Any => true,
                WaitFor::Process(wanted) => wanted == pid,
                WaitFor::Group(group) => child.group == group,
            };
            let usual = child.exit_signal == Signal::CHLD.number();
            let of_kind = match wait.kind {
                WaitKind::Usual => usual,
                WaitKind::Clone => !usual,
                WaitKind::All => true,
            };
            if !meant || !of_kind {
                continue;
            }
            any = true;
            let taken = match child.event {
                Some(ChildEvent::Exited(_)) => wait.exited,
                Some(ChildEvent::Stopped(_)) => wait.stopped,
                Some(ChildEvent::Continued) => wait.continued,
                None => false,
            };
            if let (true, Some(event)) = (taken, child.event) {
                found = Some(WaitAnswer { process: pid, uid: child.uid, event, usage: child.usage });
                break;
            }
        }
        let Some(answer) = found else { return if any { Ok(None) } else { Err(Errno::ECHILD) } };
        if !wait.keep {
            match answer.event {
                ChildEvent::Exited(_) => {
                    state.children.remove(&answer.process);
                    state.children_usage.add(&answer.usage);
                }
                _ => {
                    if let Some(child) = state.children.get_mut(&answer.process) {
                        child.event = None;
                    }
                }
            }
        }
        Ok(Some(answer))
    }

    /// Has the child's home remove the zombie.
    async fn reap(&self, child: Pid) {
        match self.system.origin(child) {
            Some(kernel) if kernel == self.system.kernel => self.system.forget(child),
            Some(kernel) => {
                let _ = self.system.endpoint.call(kernel, Reap { child }).await;
            }
            None => {}
        }
    }
}
