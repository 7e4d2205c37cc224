//! Signals: numbers, sets, what they say, and what a process wants done (man 7 signal). What is pending is in pending.rs.

mod pending;

use alloc::vec::Vec;
use machine::Pid;
pub use pending::{Pending, Sent, Taken};
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
    pub const SI_SIGIO: i32 = -5;
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
