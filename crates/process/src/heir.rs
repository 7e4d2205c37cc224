//! New parents for the children of a process that has ended (man 2 prctl, PR_SET_CHILD_SUBREAPER).
//!
//! The heir is the nearest living subreaper among the ancestors, else init. The parent that ends, the heir and the child have three
//! homes, and each may change meanwhile:
//!
//! ```text
//!   P ends (H1)                        child C (H2)               heir S (H3)
//!   takes its children out
//!   asks who the heir is: S
//!                                                                 ends: takes its children out, without C
//!   -- Reparent(C, S) ---------------> AdoptChild --------------> C is in a list that is over: nobody waits for it
//! ```
//!
//! A process that takes its children out says so under the lock of the list (`handed_out`), and takes no more. Then C is refused, stays
//! P's, and P looks for another heir; S is none any more, for it was marked as ending before. Until P has handed out all it is no zombie,
//! so P's own parent is somebody who lives, or is about to give P a new one.
//!
//! C may end meanwhile. It is entered with S first and names it as its parent then: who is told of an end either has C in the list, or is P, which
//! answers that the zombie stays (wait.rs). Afterwards the zombie is looked for, and S is told; if C tells it, too, the second word is
//! no news.

use crate::{exit::INIT, wait::LAST, Flags, Process, System};
use abi::signal::{Sent, Signal, SignalFields, SignalInfo};
use alloc::sync::Arc;
use machine::{KernelId, Pid};
use messages::process::{AskHeir, Change, ChildChanged, ChildEvent, Reparent, Reparented};

impl System {
    pub(crate) async fn reparent(self: &Arc<Self>, child: Pid, parent: Pid) -> Reparented {
        match self.origin(child) {
            Some(kernel) if kernel == self.kernel => self.reparent_here(child, parent).await,
            Some(kernel) => {
                let answer = self.endpoint.call(kernel, Reparent { child, parent }).await;
                answer.unwrap_or(Reparented::NoSuchChild)
            }
            None => Reparented::NoSuchChild,
        }
    }

    /// At the child's home: gives the child its new parent.
    pub(crate) async fn reparent_here(self: &Arc<Self>, child: Pid, parent: Pid) -> Reparented {
        let Some(process) = self.process(child) else { return Reparented::NoSuchChild };
        let Some(home) = process.home() else { return Reparented::NoSuchChild };
        let uid = home.state.lock().credentials.uid;
        let turn = home.changes.lock().await;
        let (group, session) = process.with_shared(|shared| (shared.group, shared.session));
        if !self.adopt(parent, child, group, uid, Signal::CHLD.number()).await {
            return Reparented::HeirGone;
        }
        let _ = process.change_in_turn(Change::Parent(parent), &turn).await;
        drop(turn);
        let (zombie, usage) = {
            let state = home.state.lock();
            (state.zombie, state.usage)
        };
        for thread in process.local_threads() {
            let signal = thread.state.lock().parent_death_signal;
            if let Some(signal) = Signal::new(u64::from(signal)) {
                let info = SignalInfo { signal, code: 0, errno: 0, fields: SignalFields::None };
                thread.push_signal(info, Sent { continues: process.continues(), ignorings: process.ignorings() });
            }
        }
        if let Some(status) = zombie {
            let event =
                ChildChanged { parent, child, group, uid, event: ChildEvent::Exited(status), order: LAST, usage };
            if self.child_changed(event).await {
                self.forget(child);
            }
        }
        Reparented::Done { group, session }
    }

    /// The process that adopts the children of `process`, which is at home here: the nearest living subreaper among its
    /// ancestors, wherever they are at home.
    pub(crate) async fn subreaper_of(&self, process: &Process) -> Pid {
        let mut missed = None;
        let mut ancestor = process.with_shared(|shared| shared.parent);
        // An ancestor that ends while we look hands its own children to one further up, where we come next.
        while ancestor != INIT {
            match self.ask_heir(ancestor).await {
                Some(Some((true, _))) => return ancestor,
                Some(Some((false, next))) if next != ancestor => ancestor = next,
                // It is gone since we heard of it, so its child has another parent by now.
                Some(None) if missed != Some(ancestor) => {
                    missed = Some(ancestor);
                    ancestor = process.with_shared(|shared| shared.parent);
                }
                _ => break,
            }
        }
        INIT
    }

    /// None: its kernel is dead.
    async fn ask_heir(&self, process: Pid) -> Option<Option<(bool, Pid)>> {
        match self.origin(process) {
            Some(home) if home == self.kernel => Some(self.heir_here(process)),
            Some(home) => self.endpoint.call(home, AskHeir { process }).await.ok(),
            None => None,
        }
    }

    /// Whether a process is alive and a subreaper, and its parent.
    pub(crate) fn heir_here(&self, process: Pid) -> Option<(bool, Pid)> {
        let process = self.process(process)?;
        let (reaps, parent) = process.with_shared(|shared| (shared.child_subreaper, shared.parent));
        Some((reaps && !process.has(Flags::ENDING), parent))
    }

    /// The parent's kernel has died.
    pub(crate) async fn give_to_init(self: &Arc<Self>, child: &Process, dead: KernelId) {
        let parent = child.with_shared(|shared| shared.parent);
        if self.origin(parent) != Some(dead) {
            return;
        }
        // What group the parent was in nobody knows any more: that it was a tie of this one's is believed.
        if let Reparented::Done { group, session } = self.reparent_here(child.id, INIT).await {
            self.tie_cut(group, session).await;
        }
    }
}
