//! Which kernels have not taken what this one has for them, for seconds.
//!
//! A message that finds its lane full, or no credit, waits in an [`Outbox`](crate::outbox) and is never dropped. That is right as
//! long as the receiver drains; one that does not (it hangs, or a handler of it never comes to an end) would only be seen by what is
//! missing elsewhere. So the kernel looks once in a while, and says so.
//!
//! A send knows nothing of this, and reads no clock: an outbox counts what leaves its queues, which it has to touch then anyway, and
//! who looks compares the count with that of its last look. So a wait begins when it is first seen, not when the message came.
#![forbid(unsafe_code)]

use crate::endpoint::Endpoint;
use alloc::vec::Vec;
use machine::KernelId;
use messages::Priority;

/// Messages that wait for so long, without one leaving, are reported.
pub const STALL_NS: u64 = 2_000_000_000;

/// What waits in an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Changes when something leaves, or nothing waits any more.
    pub progress: u64,
    /// Packets that wait for room in the lane.
    pub for_room: usize,
    /// Requests that wait for a credit.
    pub for_credit: usize,
    /// The boot generation of the receiver that all this is about.
    pub boot_generation: Option<u32>,
}

/// One line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The kernel that the messages are for.
    pub to: KernelId,
    /// The lane that they wait for.
    pub priority: Priority,
    /// How long nothing has left.
    pub for_ns: u64,
    /// Whether they are stuck, or move again.
    pub state: StallState,
}

/// What there is to say of an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallState {
    /// So many packets wait for room in the lane, so many requests for a credit.
    Stuck {
        /// Packets that wait for room in the lane.
        for_room: usize,
        /// Requests that wait for a credit.
        for_credit: usize,
    },
    /// What was reported moves again.
    Over,
}

struct Wait {
    of: Backlog,
    since: u64,
    reported: bool,
}

/// What the last look found of each outbox in which something waited: few, as a rule none.
#[derive(Default)]
pub struct Stalls(Vec<(KernelId, Priority, Wait)>);

impl Stalls {
    /// Looks at all outboxes. What there is to say of each: at most one thing a look, and two about one stall.
    pub fn look(&mut self, endpoint: &Endpoint, now: u64) -> Vec<Stall> {
        let mut said = Vec::new();
        for peer in endpoint.peers() {
            for (priority, outbox) in Priority::ALL.into_iter().zip(&peer.out) {
                let known = self.0.iter().position(|(to, of, _)| (*to, *of) == (peer.id, priority));
                let before = known.map(|at| self.0.swap_remove(at).2);
                let (wait, state) = compare(before, outbox.waiting(), now);
                said.extend(state.map(|(for_ns, state)| Stall { to: peer.id, priority, for_ns, state }));
                self.0.extend(wait.map(|wait| (peer.id, priority, wait)));
            }
        }
        said
    }
}

/// What to remember for the next look, and what to say.
fn compare(before: Option<Wait>, of: Backlog, now: u64) -> (Option<Wait>, Option<(u64, StallState)>) {
    let waits = of.for_room + of.for_credit > 0;
    match before {
        Some(mut wait) if waits && wait.of.boot_generation == of.boot_generation && wait.of.progress == of.progress => {
            let for_ns = now.saturating_sub(wait.since);
            let stuck = for_ns >= STALL_NS && !wait.reported;
            wait.reported |= stuck;
            let Backlog { for_room, for_credit, .. } = of;
            (Some(wait), stuck.then_some((for_ns, StallState::Stuck { for_room, for_credit })))
        }
        before => {
            // What was for a kernel that is dead does not move again.
            let over = before.filter(|wait| wait.reported && wait.of.boot_generation == of.boot_generation);
            let state = over.map(|wait| (now.saturating_sub(wait.since), StallState::Over));
            (waits.then_some(Wait { of, since: now, reported: false }), state)
        }
    }
}
