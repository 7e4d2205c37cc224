//! Signals that were sent and not yet taken.

use super::{Actions, Signal, SignalFields, SignalInfo, SignalSet};
use alloc::{collections::VecDeque, sync::Arc};
use machine::account::{Account, Charge, Resource};
use serde::{Deserialize, Serialize};

/// When a signal was sent, among what voids signals of its process: what comes after it may void it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// How many SIGCONTs its process had been sent. A stop that is older than the last of them is void.
    pub continues: u64,
    /// How many changes had made a signal ignored ([`Actions::ignorings`]). One that was made ignored later is void.
    pub ignorings: u64,
}

/// A signal that was taken to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub info: SignalInfo,
    pub sent: Sent,
}

/// Signals that were sent and not yet taken.
///
/// SIGCONT voids the stops that were sent before it, wherever they wait or are on their way. A process's home numbers the
/// SIGCONTs; each queue knows the last number it heard of, and a stop comes with the number that was the last when it was sent.
/// So it is with the changes that make a signal ignored.
///
/// Who receives them pays for those in the queue that take a place of their own ([`Pending::pay`]).
#[derive(Debug, Default)]
pub struct Pending {
    set: SignalSet,
    queue: VecDeque<SignalInfo>,
    /// What is in the queue is not void by what this counts.
    sent: Sent,
    places: Charge,
}

/// A copy is for somewhere else, where nobody pays for it yet.
impl Clone for Pending {
    fn clone(&self) -> Self {
        Pending { set: self.set, ..Pending::of_queue(self.queue.clone(), self.sent) }
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        (self.set, &self.queue, self.sent) == (other.set, &other.queue, other.sent)
    }
}

impl Eq for Pending {}

/// A timer has its place from when it is made. What is known of a signal to be lost takes none ([`SignalInfo::lost`]).
fn takes_place(info: &SignalInfo) -> bool {
    !matches!(info.fields, SignalFields::Timer { .. }) && *info != SignalInfo::lost(info.signal)
}

impl Pending {
    /// Of a thread, or process, that is made by the one whose queue this is: nothing, but it has heard as much of the actions. A new
    /// process was sent no SIGCONT yet.
    pub fn of_child(&self) -> Pending {
        let sent = Sent { continues: 0, ..self.sent };
        Pending { sent, ..Pending::default() }
    }

    /// Of what [`Pending::queue`] and [`Pending::sent`] give.
    pub fn of_queue(queue: VecDeque<SignalInfo>, sent: Sent) -> Pending {
        let set = queue.iter().fold(SignalSet::EMPTY, |set, info| set.union(SignalSet::only(info.signal)));
        let mut places = Charge::default();
        places.grow_anyway(queue.iter().filter(|info| takes_place(info)).count());
        Pending { set, queue, sent, places }
    }

    /// From now on `account` is charged with the places ([`Resource::Signals`]), unless one is already.
    pub fn pay(&mut self, account: impl FnOnce() -> Arc<Account>) {
        if !self.places.is_charged() {
            self.pay_from(&account());
        }
    }

    /// Who was to receive them has ended: from now on nobody is.
    pub fn settle(&mut self) {
        self.places = Charge::FREE;
    }

    /// From now on this account is.
    pub fn pay_from(&mut self, account: &Arc<Account>) {
        let mut places = account.nothing(Resource::Signals);
        places.grow_anyway(self.places.amount());
        self.places = places;
    }

    pub fn queue(&self) -> &VecDeque<SignalInfo> {
        &self.queue
    }

    pub fn sent(&self) -> Sent {
        self.sent
    }

    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// A standard signal that is pending already is not queued again (man 7 signal). A timer has one place in
    /// the queue: while it stands there, its expirations are counted instead (man 2 timer_getoverrun).
    /// EAGAIN-style limits are the caller's business.
    pub fn push(&mut self, info: SignalInfo) {
        if let SignalFields::Timer { id, overrun, .. } = info.fields {
            if let Some(queued) = self.overrun_of(id) {
                *queued = queued.saturating_add(overrun).saturating_add(1);
                return;
            }
        } else if self.set.contains(info.signal) && !info.signal.is_realtime() {
            return;
        }
        self.set.insert(info.signal);
        self.queue.push_back(info);
        self.places.grow_anyway(usize::from(takes_place(&info)));
    }

    /// Queues what was sent after `continues` SIGCONTs: a stop discards a SIGCONT that waits (man 7 signal), and one that
    /// was sent before a SIGCONT that is known here comes too late.
    pub fn push_sent(&mut self, info: SignalInfo, continues: u64) {
        if SignalSet::STOPPING.contains(info.signal) {
            if continues < self.sent.continues {
                return;
            }
            self.continued(continues);
            self.discard(SignalSet::only(Signal::CONT));
        }
        self.push(info);
    }

    /// SIGCONT number `continues` was sent: stops that were sent before it are void.
    pub fn continued(&mut self, continues: u64) {
        if continues > self.sent.continues {
            self.sent.continues = continues;
            self.discard(SignalSet::STOPPING);
        }
    }

    /// The last SIGCONT known here.
    pub fn continues(&self) -> u64 {
        self.sent.continues
    }

    /// The actions of the process are now these: what they have made ignored since the queue last heard of them is void.
    pub fn follow(&mut self, actions: &Actions) {
        self.discard(actions.ignored_since(self.sent.ignorings));
        self.sent.ignorings = self.sent.ignorings.max(actions.ignorings());
    }

    /// The count in the queued signal of timer `id`.
    pub fn overrun_of(&mut self, id: i32) -> Option<&mut i32> {
        self.queue.iter_mut().find_map(|info| match &mut info.fields {
            SignalFields::Timer { id: other, overrun, .. } if *other == id => Some(overrun),
            _ => None,
        })
    }

    /// Takes the pending signal that is delivered first among those in `wanted`: synchronous faults,
    /// then the lowest number, then the oldest.
    pub fn take(&mut self, wanted: SignalSet) -> Option<Taken> {
        const SYNCHRONOUS: [Signal; 6] =
            [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::TRAP, Signal::FPE, Signal::SYS];
        let candidates = SignalSet(self.set.0 & wanted.0);
        let first = candidates.iter().next()?;
        let signal = SYNCHRONOUS.into_iter().find(|&signal| candidates.contains(signal)).unwrap_or(first);
        let index = self.queue.iter().position(|info| info.signal == signal)?;
        let info = self.queue.remove(index)?;
        self.places.shrink(usize::from(takes_place(&info)));
        if !self.queue.iter().any(|info| info.signal == signal) {
            self.set.remove(signal);
        }
        Some(Taken { info, sent: self.sent })
    }

    /// What was taken, in this order, and had no effect: before all others again, unless it is void or pending meanwhile.
    pub fn put_back(&mut self, taken: impl DoubleEndedIterator<Item = Taken>) {
        for Taken { info, sent } in taken.rev() {
            let void = SignalSet::STOPPING.contains(info.signal) && sent.continues < self.sent.continues;
            let merges = self.set.contains(info.signal) && !info.signal.is_realtime();
            if !void && !merges {
                self.set.insert(info.signal);
                self.queue.push_front(info);
                self.places.grow_anyway(usize::from(takes_place(&info)));
            }
        }
    }

    pub fn discard(&mut self, signals: SignalSet) {
        let (places, mut gone) = (&mut self.places, 0);
        self.queue.retain(|info| {
            let stays = !signals.contains(info.signal);
            gone += usize::from(!stays && takes_place(info));
            stays
        });
        places.shrink(gone);
        self.set = self.set.without(signals);
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Action, *};
    use alloc::vec::Vec;
    use machine::Pid;

    fn user(signal: Signal, value: u64) -> SignalInfo {
        let fields = SignalFields::Sender { pid: Pid(1), uid: 0, value };
        SignalInfo { signal, code: SignalInfo::SI_QUEUE, errno: 0, fields }
    }

    #[test]
    fn standard_signals_collapse_and_realtime_signals_queue() {
        let realtime = Signal::new(40).unwrap();
        let mut pending = Pending::default();
        for value in 0..3 {
            pending.push(user(Signal::USR1, value));
            pending.push(user(realtime, value));
        }
        assert_eq!(pending.len(), 4);
        let order: Vec<_> = core::iter::from_fn(|| pending.take(SignalSet(u64::MAX))).map(|taken| taken.info).collect();
        assert_eq!(order, [user(Signal::USR1, 0), user(realtime, 0), user(realtime, 1), user(realtime, 2)]);
        assert!(pending.set().is_empty());
    }

    #[test]
    fn who_has_signals_waiting_pays_for_their_places() {
        let realtime = Signal::new(40).unwrap();
        let (first, second) = (Account::new(None, &[]), Account::new(None, &[]));
        let places = |account: &Arc<Account>| account.used(Resource::Signals);
        let mut pending = Pending::default();
        pending.push(user(Signal::USR1, 0));
        pending.pay(|| first.clone());
        pending.push(user(Signal::USR1, 1));
        pending.push(user(realtime, 0));
        pending.push(SignalInfo::lost(Signal::USR2));
        let timer = SignalFields::Timer { id: 0, overrun: 0, value: 0 };
        pending.push(SignalInfo { fields: timer, ..user(realtime, 0) });
        assert_eq!((pending.len(), places(&first)), (4, 2));
        pending.pay(|| second.clone());
        assert_eq!(places(&second), 0, "somebody pays already");
        pending.pay_from(&second);
        assert_eq!((places(&first), places(&second)), (0, 2));
        let taken = pending.take(SignalSet::only(Signal::USR1)).unwrap();
        assert_eq!(places(&second), 1);
        pending.put_back([taken].into_iter());
        assert_eq!(places(&second), 2);
        let mut arrived = pending.clone();
        assert_eq!((arrived == pending, places(&second)), (true, 2), "a copy is paid for by nobody");
        arrived.pay_from(&first);
        assert_eq!(places(&first), 2);
        arrived.discard(SignalSet(u64::MAX));
        pending.settle();
        assert_eq!((places(&first), places(&second), pending.len()), (0, 0, 4));
        assert!(pending.take(SignalSet(u64::MAX)).is_some());
    }

    #[test]
    fn a_stop_is_void_after_the_next_continuation() {
        let all = SignalSet(u64::MAX);
        let mut pending = Pending::default();
        pending.push_sent(user(Signal::CONT, 0), 0);
        pending.push_sent(user(Signal::STOP, 0), 0);
        // The stop discards the continuation that waits.
        assert_eq!(pending.set(), SignalSet::only(Signal::STOP));
        pending.continued(1);
        assert_eq!(pending.take(all), None);
        // One that was under way meanwhile comes too late; the next one counts, and voids those before what it knows.
        pending.push_sent(user(Signal::TSTP, 0), 0);
        assert!(pending.is_empty());
        pending.push_sent(user(Signal::TSTP, 0), 1);
        pending.push_sent(user(Signal::STOP, 1), 2);
        assert_eq!(
            pending.take(all),
            Some(Taken { info: user(Signal::STOP, 1), sent: Sent { continues: 2, ignorings: 0 } })
        );
        pending.continued(2);
        assert_eq!(pending.take(all), None);
    }

    #[test]
    fn what_waits_is_void_when_it_is_ignored_and_what_comes_later_is_not() {
        let action = |handler| Action { handler, ..Action::default() };
        let (mut actions, mut pending) = (Actions::default(), Pending::default());
        let only = SignalSet::only;
        pending.push(user(Signal::USR1, 0));
        pending.push(user(Signal::USR2, 0));
        actions.set(Signal::USR1, action(Action::IGNORE));
        actions.set(Signal::USR1, action(0x1000));
        pending.follow(&actions);
        assert_eq!((pending.set(), actions.ignorings()), (only(Signal::USR2), 1));
        // Sent since, blocked, while another becomes ignored; of which a child's queue has heard.
        pending.push(user(Signal::USR1, 1));
        actions.set(Signal::CHLD, Action::default());
        pending.follow(&actions);
        assert_eq!(pending.set(), only(Signal::USR1).union(only(Signal::USR2)));
        let mut child = pending.of_child();
        child.push(user(Signal::CHLD, 0));
        child.follow(&actions);
        assert_eq!(child.set(), only(Signal::CHLD));
        pending.continued(7);
        child = pending.of_child();
        child.push_sent(user(Signal::STOP, 0), 0);
        assert_eq!(child.set(), only(Signal::STOP));
        // What was on its way since before both.
        assert_eq!(actions.ignored_since(0), only(Signal::USR1).union(only(Signal::CHLD)));
        assert_eq!(actions.ignored_since(1), only(Signal::CHLD));
        actions.set(Signal::USR1, action(Action::IGNORE));
        assert_eq!((actions.ignored_since(2), actions.ignorings()), (only(Signal::USR1), 3));
    }

    #[test]
    fn a_timer_counts_what_it_missed_while_its_signal_waits() {
        let tick = |id, overrun| SignalInfo {
            signal: Signal::ALRM,
            code: SignalInfo::SI_TIMER,
            errno: 0,
            fields: SignalFields::Timer { id, overrun, value: 0 },
        };
        let mut pending = Pending::default();
        for info in [tick(1, 0), tick(2, 0), tick(1, 0), tick(1, 3)] {
            pending.push(info);
        }
        let all = SignalSet(u64::MAX);
        let taken: Vec<_> = core::iter::from_fn(|| pending.take(all)).map(|taken| taken.info).collect();
        assert_eq!(taken, [tick(1, 5), tick(2, 0)]);
        pending.push(tick(1, 0));
        assert_eq!(pending.take(all).map(|taken| taken.info), Some(tick(1, 0)));
    }

    #[test]
    fn a_fault_comes_before_lower_numbers_and_blocked_ones_stay() {
        let mut pending = Pending::default();
        pending.push(user(Signal::HUP, 0));
        pending.push(SignalInfo::fault(Signal::SEGV, 1, 0));
        pending.push(user(Signal::INT, 0));
        let all = SignalSet(u64::MAX);
        assert_eq!(pending.take(all).unwrap().info.signal, Signal::SEGV);
        assert_eq!(pending.take(all.without(SignalSet::only(Signal::HUP))).unwrap().info.signal, Signal::INT);
        assert_eq!(pending.set(), SignalSet::only(Signal::HUP));
    }
}
