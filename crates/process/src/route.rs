//! Signals on their way: from a sender on any kernel to a process's home, or to the kernel a thread is on.

use crate::{exit::INIT, thread::Presence, Process, System, Thread};
use abi::signal::{Action, Pending, Sent, Signal, SignalInfo, SignalSet, Taken};
use abi::Credentials;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, Pid};
use messages::process::{
    AskBlocked, ExitStatus, FindThread, Round, RoundSignal, SignalGroup, SignalProcess, SignalThread,
};

const KILLED: ExitStatus = ExitStatus::Signal { signal: Signal::KILL, core: false };

/// The processes that a kill(2) is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One process.
    Process(Pid),
    /// All processes of a group.
    Group(Pid),
    /// All processes but init and the caller.
    All,
}

/// man 2 kill: the sender's real or effective id equals the target's real or saved one; SIGCONT also within
/// a session (checked by the caller, who knows sessions).
pub fn may_signal(sender: &Credentials, target: &Credentials) -> bool {
    sender.can(abi::capability::KILL)
        || [sender.uid, sender.euid].iter().any(|id| *id == target.uid || *id == target.suid)
}

/// What kill(2) of a group answers, or (`None`) of all, where it is no error that one may not signal any of them.
fn reached(group: Option<Pid>, found: u32, permitted: u32) -> Result<()> {
    match (found, permitted) {
        (0, _) => Err(Errno::ESRCH),
        _ if group.is_none() => Ok(()),
        (_, 0) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

impl System {
    /// kill(2): `info` None only asks whether it could be sent. `sender` None is the kernel itself.
    pub async fn signal(
        self: &Arc<Self>,
        target: Target,
        info: Option<SignalInfo>,
        sender: Option<Credentials>,
        caller: Pid,
    ) -> Result<()> {
        match target {
            Target::Process(process) => self.signal_process(process, info, sender).await,
            Target::Group(group) => self.signal_many(Some(group), info, sender, caller).await,
            Target::All => self.signal_many(None, info, sender, caller).await,
        }
    }

    async fn signal_process(
        self: &Arc<Self>,
        process: Pid,
        info: Option<SignalInfo>,
        sender: Option<Credentials>,
    ) -> Result<()> {
        if process == INIT {
            // Init takes no signals it did not ask for (man 2 kill, NOTES).
            return match sender {
                Some(sender) if !sender.can(abi::capability::KILL) => Err(Errno::EPERM),
                _ => Ok(()),
            };
        }
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.signal_process_here(process, info, sender).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let message = SignalProcess { process, info, sender };
        self.endpoint.call(home, message).await.map_err(|_| Errno::ESRCH)?
    }

    /// At the process's home. A thread id other than the process's own also names the process (as in Linux).
    pub(crate) async fn signal_process_here(
        self: &Arc<Self>,
        pid: Pid,
        info: Option<SignalInfo>,
        sender: Option<Credentials>,
    ) -> Result<()> {
        let process = match self.process(pid) {
            Some(process) if process.is_home() => process,
            _ => {
                let owner = self.born_here.lock().get(&pid).copied().ok_or(Errno::ESRCH)?;
                if self.origin(owner) != Some(self.kernel) {
                    let home = self.origin(owner).ok_or(Errno::ESRCH)?;
                    let message = SignalProcess { process: owner, info, sender };
                    return self.endpoint.call(home, message).await.map_err(|_| Errno::ESRCH)?;
                }
                self.process(owner).ok_or(Errno::ESRCH)?
            }
        };
        if sender.is_some_and(|sender| !may_signal(&sender, &process.credentials())) {
            return Err(Errno::EPERM);
        }
        if let Some(info) = info {
            process.signal_here(info).await?;
        }
        Ok(())
    }

    async fn signal_many(
        self: &Arc<Self>,
        group: Option<Pid>,
        info: Option<SignalInfo>,
        sender: Option<Credentials>,
        except: Pid,
    ) -> Result<()> {
        let Some(info) = info else {
            let (found, permitted) = self.signal_round(&SignalGroup { group, signal: None, sender, except }).await;
            return reached(group, found, permitted);
        };
        // One after the other: a process keeps only the last round of each kernel.
        let _turn = self.rounds.lock().await;
        let round = Round { from: self.kernel, number: self.serials.next() };
        let signal = Some(RoundSignal { round, group, info });
        let message = SignalGroup { group, signal, sender, except };
        let (found, mut new) = self.signal_round(&message).await;
        let result = reached(group, found, new);
        // Somebody who was reached may have put a child where the round had been already (births.rs). The children of those who were
        // reached know the round, so this ends.
        while new > 0 {
            new = self.signal_round(&message).await.1;
        }
        result
    }

    /// Asks every kernel once: how many processes were found, and how many of them were signalled.
    async fn signal_round(self: &Arc<Self>, message: &SignalGroup) -> (u32, u32) {
        let (mut found, mut reached) = self.signal_group_here(message.clone()).await;
        for kernel in self.others() {
            if let Ok((more, sent)) = self.endpoint.call(kernel, message.clone()).await {
                found += more;
                reached += sent;
            }
        }
        (found, reached)
    }

    /// Signals the processes at home here that the round has not reached yet: how many there are, and how many of them `sender` may signal.
    pub(crate) async fn signal_group_here(self: &Arc<Self>, message: SignalGroup) -> (u32, u32) {
        let SignalGroup { group, signal, sender, except } = message;
        let meant: alloc::vec::Vec<_> = {
            let processes = self.processes.lock();
            let meant = |process: &&Arc<Process>| match group {
                Some(group) => process.with_shared(|shared| shared.group == group),
                None => process.id != except,
            };
            let new = |process: &&Arc<Process>| signal.is_none_or(|signal| !process.knows(signal.round));
            let at_home = processes.values().filter(|process| process.is_home() && process.id != INIT);
            at_home.filter(meant).filter(new).cloned().collect()
        };
        let mut reached = 0;
        for process in &meant {
            if sender.as_ref().is_none_or(|sender| may_signal(sender, &process.credentials())) {
                reached += 1;
                if let Some(signal) = signal {
                    process.reach(signal).await;
                }
            }
        }
        (meant.len() as u32, reached)
    }

    /// tgkill(2), tkill(2) (`process` None).
    pub async fn signal_thread(
        self: &Arc<Self>,
        process: Option<Pid>,
        thread: Pid,
        info: Option<SignalInfo>,
        sender: Option<Credentials>,
    ) -> Result<()> {
        let owner = match process {
            Some(process) => process,
            None => self.process_of(thread).await.ok_or(Errno::ESRCH)?,
        };
        let message = SignalThread { process: owner, thread, info, sender, continues: None, ignorings: None };
        // Most signals to a thread come from its own process on its own kernel.
        if let Some(local) = self.thread(thread).filter(|thread| !thread.is_away() && thread.process.id == owner) {
            return self.deliver(&local, message).await;
        }
        let home = self.origin(owner).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.route_to_thread(message).await;
        }
        self.endpoint.call(home, message).await.map_err(|_| Errno::ESRCH)?
    }

    /// At the home, or on a kernel that the home named: delivers, or passes on to where the thread went.
    pub(crate) async fn route_to_thread(self: &Arc<Self>, mut message: SignalThread) -> Result<()> {
        if message.ignorings.is_none() {
            message.ignorings = self.process(message.process).map(|process| process.ignorings());
        }
        let next = loop {
            if let Some(thread) = self.thread(message.thread) {
                if thread.process.id != message.process {
                    return Err(Errno::ESRCH);
                }
                let away = match *thread.presence.lock() {
                    Presence::Away(to) => Some(to),
                    _ => None,
                };
                match away {
                    None => return self.deliver(&thread, message).await,
                    Some(to) => break to,
                }
            }
            if !self.arrivals.arriving.lock().contains_key(&message.thread) {
                match self.next_hop(&message)? {
                    Some(next) => break next,
                    None => return Ok(()),
                }
            }
            let Some(info) = message.info else { return Ok(()) };
            let Some(continues) = message.continues else {
                // It may have arrived when that is done.
                message.continues = Some(self.sending(message.process, info.signal).await);
                continue;
            };
            if let Some(mail) = self.arrivals.arriving.lock().get_mut(&message.thread) {
                // Without a number it is as if it were sent now.
                let ignorings = message.ignorings.unwrap_or(u64::MAX);
                mail.push(Taken { info, sent: Sent { continues, ignorings } });
                return Ok(());
            }
        };
        self.endpoint.call(next, message).await.map_err(|_| Errno::ESRCH)?
    }

    /// Where to send a signal for a thread that this kernel knows nothing of.
    fn next_hop(&self, message: &SignalThread) -> Result<Option<KernelId>> {
        let Some(process) = self.process(message.process) else {
            // The thread passed through, and execve has dropped what was here: the home knows where it is.
            let home = self.origin(message.process).filter(|&home| home != self.kernel);
            return Ok(Some(home.ok_or(Errno::ESRCH)?));
        };
        match process.member_at(message.thread).filter(|&at| at != self.kernel) {
            Some(next) => Ok(Some(next)),
            // A main thread that has ended, though the home may not have heard yet, is there until its process is
            // waited for, and takes nothing.
            None if message.thread == process.id => Ok(None),
            None => Err(Errno::ESRCH),
        }
    }

    /// Sends a signal after a thread that has just left.
    pub(crate) fn forward_signal(
        self: &Arc<Self>,
        process: Pid,
        thread: Pid,
        info: SignalInfo,
        sent: Sent,
        to: KernelId,
    ) {
        let system = self.clone();
        self.scheduler.spawn(async move {
            let (continues, ignorings) = (Some(sent.continues), Some(sent.ignorings));
            let message = SignalThread { process, thread, info: Some(info), sender: None, continues, ignorings };
            if system.endpoint.call(to, message).await.is_err() {
                log::warn!("a signal for thread {thread} was lost with kernel {to}");
            }
        });
    }

    /// The thread is here: it gets the signal.
    async fn deliver(self: &Arc<Self>, thread: &Arc<crate::Thread>, message: SignalThread) -> Result<()> {
        if message.sender.is_some_and(|sender| !may_signal(&sender, &thread.state.lock().credentials)) {
            return Err(Errno::EPERM);
        }
        let Some(info) = message.info.filter(|_| thread.tid != INIT) else { return Ok(()) };
        let process = thread.process.clone();
        // KILL acts on the whole process (man 7 signal).
        if info.signal == Signal::KILL {
            process.end(KILLED).await;
            return Ok(());
        }
        let continues = match message.continues {
            Some(continues) => continues,
            None => self.sending(process.id, info.signal).await,
        };
        // A signal the thread blocks may wait for sigwait even if its action is to ignore it.
        let ignored = process.with_shared(|shared| shared.actions.ignores(info.signal));
        // Of one that has just left it is not known here.
        if !ignored || thread.is_away() || thread.blocked().contains(info.signal) {
            let admitted = {
                let state = thread.state.lock();
                process.admit(info, &state.pending, state.credentials.uid)?
            };
            let Some(info) = admitted else { return Ok(()) };
            let ignorings = message.ignorings.unwrap_or_else(|| process.ignorings());
            thread.push_signal(info, Sent { continues, ignorings });
        }
        Ok(())
    }

    /// See [`AskBlocked`].
    pub(crate) fn block_here(&self, threads: &[Pid], signal: Signal) -> bool {
        threads.iter().any(|tid| match self.thread(*tid).filter(|thread| !thread.is_away()) {
            Some(thread) => thread.blocked().contains(signal),
            None => true,
        })
    }

    /// Where to look for a thread of a process next. Waits for one that is just arriving.
    pub(crate) async fn trail(&self, process: Pid, tid: Pid) -> Trail {
        let look = || loop {
            if let Some(thread) = self.thread(tid) {
                let presence = thread.presence.lock();
                match *presence {
                    Presence::Here => {
                        drop(presence);
                        return Some(Trail::Here(thread));
                    }
                    Presence::Away(to) => return Some(Trail::At(to)),
                    Presence::Returning(_) => return None,
                    Presence::Ended => {}
                }
            }
            if self.arrivals.arriving.lock().contains_key(&tid) {
                return None;
            }
            let origin = self.origin(process).filter(|home| *home != self.kernel);
            let replica = self.process(process);
            if let Some(thread) = replica.as_ref().filter(|process| process.id == tid).and_then(|it| it.executing()) {
                if thread.is_away() {
                    // It has just become the main one, or ended.
                    continue;
                }
                return Some(Trail::Here(thread));
            }
            let known = match replica.filter(|process| process.is_home()) {
                Some(home) => home.member_at(tid).filter(|at| *at != self.kernel),
                None => origin,
            };
            return Some(known.map_or(Trail::Cold, Trail::At));
        };
        self.arrivals.arrived.wait_until(look).await
    }

    /// The process a thread belongs to, wherever it was made.
    pub async fn process_of(&self, thread: Pid) -> Option<Pid> {
        if let Some(local) = self.thread(thread) {
            return Some(local.process.id);
        }
        let origin = self.origin(thread)?;
        if origin == self.kernel {
            return self.born_here.lock().get(&thread).copied();
        }
        self.kernels().contains(&origin).then_some(())?;
        self.endpoint.call(origin, FindThread { thread }).await.ok().flatten()
    }
}

/// What a kernel knows of where a thread is.
pub(crate) enum Trail {
    Here(Arc<Thread>),
    At(KernelId),
    Cold,
}

impl Process {
    /// See [`Sent::ignorings`].
    pub(crate) fn ignorings(&self) -> u64 {
        self.with_shared(|shared| shared.actions.ignorings())
    }

    /// Forgets pending signals of the process and of its local threads.
    pub(crate) fn discard(&self, signals: SignalSet) {
        self.discard_own(signals);
        for thread in self.local_threads() {
            thread.discard_signals(signals);
        }
    }

    /// Forgets pending signals of the process.
    pub(crate) fn discard_own(&self, signals: SignalSet) {
        let had = |pending: &mut Pending| {
            let had = pending.set().without(signals) != pending.set();
            pending.discard(signals);
            had
        };
        if let Some((true, left)) = self.with_pending(had) {
            self.tell_pending(left);
        }
    }

    /// At home: queues a signal for the process. EAGAIN: the queue is full.
    pub(crate) async fn signal_here(self: &Arc<Self>, info: SignalInfo) -> Result<()> {
        let Some(home) = self.home() else { return Ok(()) };
        if home.state.lock().zombie.is_some() {
            return Ok(());
        }
        if info.signal == Signal::KILL {
            self.end(KILLED).await;
            return Ok(());
        }
        if info.signal == Signal::CONT {
            self.go_on(Some(info)).await;
            return Ok(());
        }
        self.sending(info.signal).await;
        if !self.wants(info.signal).await {
            return Ok(());
        }
        let admitted = {
            let state = home.state.lock();
            self.admit(info, &state.pending, state.credentials.uid)?
        };
        let Some(info) = admitted else { return Ok(()) };
        if let Some(((), waiting)) = self.with_pending(|pending| pending.push_sent(info, pending.continues())) {
            self.tell_pending(waiting);
            self.rouse(waiting.set);
        }
        Ok(())
    }

    /// At home: whether a signal for the process has an effect, now or when it is no longer blocked.
    pub(crate) async fn wants(&self, signal: Signal) -> bool {
        let ignored = self.with_shared(|shared| shared.actions.ignores(signal));
        !ignored || self.is_blocked_somewhere(signal).await
    }

    /// At home: does a thread block the signal, on whatever kernel? Yes also if that can't be known, because a thread is
    /// under way: a signal that is ignored and not blocked does nothing when it is taken, but one that is dropped
    /// would be missed by who waits for it in sigwait.
    async fn is_blocked_somewhere(&self, signal: Signal) -> bool {
        let Some(home) = self.home() else { return true };
        let mut elsewhere: BTreeMap<KernelId, Vec<Pid>> = BTreeMap::new();
        {
            let state = home.state.lock();
            // It is being born, and its thread may.
            if state.members.is_empty() {
                return true;
            }
            for (thread, member) in &state.members {
                elsewhere.entry(member.at).or_default().push(*thread);
            }
        }
        let system = &self.system;
        if elsewhere.remove(&system.kernel).is_some_and(|here| system.block_here(&here, signal)) {
            return true;
        }
        for (kernel, threads) in elsewhere {
            let ask = AskBlocked { process: self.id, threads, signal };
            if system.endpoint.call(kernel, ask).await.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    /// The action for a signal that is about to be delivered; SA_RESETHAND takes effect: the handler goes, flags and mask stay.
    pub async fn take_action(self: &Arc<Self>, signal: Signal) -> Action {
        let action = self.with_shared(|shared| shared.actions.get(signal));
        if action.flags & Action::RESETHAND != 0 && action.handler > Action::IGNORE {
            let reset =
                messages::process::Change::Action { signal, action: Action { handler: Action::DEFAULT, ..action } };
            let _ = self.change(reset).await;
        }
        action
    }
}
