//! Signals: numbers, sets, what a process wants done, and what is pending (man 7 signal).

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use machine::{
    account::{Account, Charge, Resource},
    Pid,
};
use serde::{Deserialize, Serialize};

/// A signal number, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident = $number:literal)*) => {
        impl Signal { $(pub const $name: Signal = Signal($number);)* }
    };
}

signals! {
    HUP = 1 INT = 2 QUIT = 3 ILL = 4 TRAP = 5 ABRT = 6 BUS = 7 FPE = 8 KILL = 9 USR1 = 10 SEGV = 11 USR2 = 12
    PIPE = 13 ALRM = 14 TERM = 15 STKFLT = 16 CHLD = 17 CONT = 18 STOP = 19 TSTP = 20 TTIN = 21 TTOU = 22 URG = 23
    XCPU = 24 XFSZ = 25 VTALRM = 26 PROF = 27 WINCH = 28 IO = 29 PWR = 30 SYS = 31
}

/// First real-time signal: these queue, the others do not.
const FIRST_REALTIME: u8 = 32;

impl Signal {
    /// None unless 1..=64.
    pub fn new(number: u64) -> Option<Signal> {
        (1..=64).contains(&number).then_some(Signal(number as u8))
    }

    pub fn number(self) -> u8 {
        self.0
    }

    pub fn is_realtime(self) -> bool {
        self.0 >= FIRST_REALTIME
    }

    /// What happens without a handler.
    pub fn default_action(self) -> DefaultAction {
        match self {
            Signal::CHLD | Signal::URG | Signal::WINCH => DefaultAction::Ignore,
            Signal::CONT => DefaultAction::Continue,
            Signal::STOP | Signal::TSTP | Signal::TTIN | Signal::TTOU => DefaultAction::Stop,
            Signal::QUIT
            | Signal::ILL
            | Signal::TRAP
            | Signal::ABRT
            | Signal::BUS
            | Signal::FPE
            | Signal::SEGV
            | Signal::XCPU
            | Signal::XFSZ
            | Signal::SYS => DefaultAction::Core,
            _ => DefaultAction::Terminate,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    Ignore,
    Terminate,
    /// Terminates; the wait status says "core dumped" only if a core was written, and Cob writes none.
    Core,
    Stop,
    Continue,
}

/// The kernel's 64-bit sigset: bit n-1 is signal n.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalSet(pub u64);

impl SignalSet {
    pub const EMPTY: SignalSet = SignalSet(0);
    /// Cannot be blocked, caught or ignored.
    pub const UNBLOCKABLE: SignalSet = SignalSet(1 << (9 - 1) | 1 << (19 - 1));
    pub const STOPPING: SignalSet = SignalSet(1 << 18 | 1 << 19 | 1 << 20 | 1 << 21);

    pub fn only(signal: Signal) -> Self {
        SignalSet(1 << (signal.0 - 1))
    }

    pub fn contains(self, signal: Signal) -> bool {
        self.0 & Self::only(signal).0 != 0
    }

    pub fn insert(&mut self, signal: Signal) {
        self.0 |= Self::only(signal).0;
    }

    pub fn remove(&mut self, signal: Signal) {
        self.0 &= !Self::only(signal).0;
    }

    pub fn without(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & !other.0)
    }

    pub fn union(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Signal> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let signal = (rest != 0).then(|| Signal(rest.trailing_zeros() as u8 + 1));
            rest &= rest.wrapping_sub(1);
            signal
        })
    }
}

/// Where a signal came from and what it carries: the part of `siginfo_t` that is not padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalInfo {
    pub signal: Signal,
    /// `si_code`: SI_USER 0, SI_KERNEL 0x80, SI_QUEUE -1, SI_TIMER -2, SI_TKILL -6, or per signal.
    pub code: i32,
    pub errno: i32,
    pub fields: SignalFields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalFields {
    None,
    /// Sent by a process (kill, tkill, sigqueue with its value).
    Sender {
        pid: Pid,
        uid: u32,
        value: u64,
    },
    /// SIGCHLD.
    Child {
        pid: Pid,
        uid: u32,
        status: i32,
        utime: u64,
        stime: u64,
    },
    /// SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP.
    Fault {
        address: u64,
    },
    /// POSIX timer.
    Timer {
        id: i32,
        overrun: i32,
        value: u64,
    },
    /// SIGIO, SIGPOLL.
    Poll {
        band: i64,
        fd: i32,
    },
    /// `rt_sigqueueinfo` with fields of the sender's own making.
    Raw {
        words: [u64; 4],
    },
}

impl SignalInfo {
    pub const SI_USER: i32 = 0;
    pub const SI_KERNEL: i32 = 0x80;
    pub const SI_QUEUE: i32 = -1;
    pub const SI_TIMER: i32 = -2;
    pub const SI_TKILL: i32 = -6;

    pub fn kernel(signal: Signal) -> Self {
        SignalInfo { signal, code: Self::SI_KERNEL, errno: 0, fields: SignalFields::None }
    }

    pub fn user(signal: Signal, code: i32, pid: Pid, uid: u32) -> Self {
        SignalInfo { signal, code, errno: 0, fields: SignalFields::Sender { pid, uid, value: 0 } }
    }

    /// A signal that came when no place was left: nothing is known of its sender.
    pub fn lost(signal: Signal) -> Self {
        SignalInfo { signal, code: Self::SI_USER, errno: 0, fields: SignalFields::None }
    }

    pub fn fault(signal: Signal, code: i32, address: u64) -> Self {
        SignalInfo { signal, code, errno: 0, fields: SignalFields::Fault { address } }
    }
}

/// `struct sigaction` as rt_sigaction(2) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// SIG_DFL 0, SIG_IGN 1, or the handler's address.
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: SignalSet,
}

impl Action {
    pub const DEFAULT: u64 = 0;
    pub const IGNORE: u64 = 1;
    pub const NOCLDSTOP: u64 = 1;
    pub const NOCLDWAIT: u64 = 2;
    pub const SIGINFO: u64 = 4;
    pub const RESTORER: u64 = 0x0400_0000;
    pub const ONSTACK: u64 = 0x0800_0000;
    pub const RESTART: u64 = 0x1000_0000;
    pub const NODEFER: u64 = 0x4000_0000;
    pub const RESETHAND: u64 = 0x8000_0000;
}

/// What a process wants done with each signal. Shared by its threads on all kernels: the home kernel
/// decides the order of changes, every replica holds a copy.
///
/// A change that makes a signal ignored voids those of it that wait (man 2 sigaction), wherever they wait or are on their way: such
/// changes are numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actions {
    /// Those that are not the default: few.
    changed: Vec<(Signal, Action)>,
    /// The last change that made a signal ignored, in their order.
    ignored: Vec<(Signal, u64)>,
}

impl Actions {
    pub fn get(&self, signal: Signal) -> Action {
        self.changed.iter().find(|(of, _)| *of == signal).map_or(Action::default(), |(_, action)| *action)
    }

    pub fn set(&mut self, signal: Signal, action: Action) {
        self.changed.retain(|(of, _)| *of != signal);
        if action != Action::default() {
            self.changed.push((signal, action));
        }
        if self.ignores(signal) {
            let number = self.ignorings() + 1;
            self.ignored.retain(|(of, _)| *of != signal);
            self.ignored.push((signal, number));
        }
    }

    /// How many changes have made a signal ignored.
    pub fn ignorings(&self) -> u64 {
        self.ignored.last().map_or(0, |(_, number)| *number)
    }

    /// The signals that were made ignored after the first `ignorings` such changes.
    pub fn ignored_since(&self, ignorings: u64) -> SignalSet {
        let later = self.ignored.iter().rev().take_while(|(_, number)| *number > ignorings);
        later.fold(SignalSet::default(), |set, (signal, _)| set.union(SignalSet::only(*signal)))
    }

    /// Would delivery do nothing at all?
    pub fn ignores(&self, signal: Signal) -> bool {
        let handler = self.get(signal).handler;
        handler == Action::IGNORE || handler == Action::DEFAULT && signal.default_action() == DefaultAction::Ignore
    }

    /// After execve: handlers go back to the default, ignored signals stay ignored.
    pub fn reset_for_exec(&mut self) {
        self.changed.retain(|(_, action)| action.handler == Action::IGNORE);
        for (_, action) in &mut self.changed {
            *action = Action { handler: Action::IGNORE, ..Action::default() };
        }
    }
}

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

/// `sigaltstack`'s stack_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AltStack {
    pub base: u64,
    pub size: u64,
    pub flags: u32,
}

impl AltStack {
    pub const ONSTACK: u32 = 1;
    pub const DISABLE: u32 = 2;
    pub const AUTODISARM: u32 = 1 << 31;
    pub const NONE: AltStack = AltStack { base: 0, size: 0, flags: Self::DISABLE };

    pub fn contains(&self, sp: u64) -> bool {
        self.flags & Self::DISABLE == 0 && sp > self.base && sp - self.base <= self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
