//! What is one thread's, and goes with it when it moves.

use super::LastSchedulingParameters;
use abi::{
    signal::{AltStack, Pending, Sent, SignalInfo, SignalSet},
    Capabilities, CapabilitySet, CpuSet, Credentials,
};
use alloc::{borrow::Cow, boxed::Box, collections::VecDeque, vec::Vec};
use machine::{Bits, FpuState, KernelSet, Registers, PAGE_SIZE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// CPU time and counters of getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Usage {
    /// `ru_utime`.
    pub user_ns: u64,
    /// `ru_stime`.
    pub system_ns: u64,
    /// `ru_minflt`: faults resolved without a device.
    pub minor_faults: u64,
    /// `ru_majflt`: faults that waited for a device.
    pub major_faults: u64,
    /// `ru_nvcsw`: how often it gave up its CPU to wait.
    pub voluntary_switches: u64,
    /// `ru_nivcsw`: how often somebody else was given its CPU.
    pub involuntary_switches: u64,
    /// `ru_maxrss` in KiB, of address spaces that the process or thread has left.
    pub max_rss: u64,
}

impl Usage {
    /// CPU time.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// Raises the peak to that of an address space that had `pages` in memory.
    pub fn note_resident(&mut self, pages: u64) {
        self.max_rss = self.max_rss.max(pages * (PAGE_SIZE as u64 / 1024));
    }

    /// Adds the times and counters of `other`, and keeps the larger of the two peaks.
    pub fn add(&mut self, other: &Usage) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.max_rss = self.max_rss.max(other.max_rss);
    }
}

/// When, and how often, a thread has come to a kernel on which it talks with another, or another has come to it. The balancer lets it stay for
/// a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Gathered {
    /// When last, in ns of the clock that all kernels share.
    pub at: u64,
    /// How often; 0: never.
    pub times: u64,
}

/// Everything about a thread that goes with it when it moves, beside its registers.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// `comm`, at most 15 bytes.
    pub name: Vec<u8>,
    /// User and group ids, and effective capabilities.
    pub credentials: Credentials,
    /// sigprocmask(2).
    pub blocked: SignalSet,
    /// The mask that is restored after sigsuspend, ppoll and their like.
    pub saved_blocked: Option<SignalSet>,
    /// Signals sent to this thread alone that it has not taken yet.
    pub pending: Pending,
    /// sigaltstack(2).
    pub alt_stack: AltStack,
    /// set_tid_address(2): where 0 is written, and a futex woken, when it ends; 0: nowhere.
    pub clear_child_tid: u64,
    /// Head and length of set_robust_list(2); 0: none.
    pub robust_list: (u64, u64),
    /// (address, length, signature) of rseq(2).
    pub rseq: Option<(u64, u32, u32)>,
    /// CPUs it may use, of all kernels.
    pub affinity: CpuSet,
    /// From -20 to 19.
    pub nice: i8,
    /// SCHED_OTHER 0, FIFO 1, RR 2, BATCH 3, IDLE 5, DEADLINE 6, and the real-time priority.
    pub policy: (u32, u32),
    /// PR_SET_PDEATHSIG; 0: none.
    pub parent_death_signal: u8,
    /// Its capabilities but the effective ones.
    pub capabilities: Capabilities,
    /// man 2 personality.
    pub personality: u32,
    /// PR_SET_TIMERSLACK in ns, and the value that a 0 restores. It has no effect: timers are as exact as the clock.
    pub timer_slack: (u64, u64),
    /// Kind, code and address of the last exception that became a signal, as `struct sigcontext` has them.
    pub last_trap: (u64, u64, u64),
    /// End of a sleep that was interrupted and is about to be restarted, in ns of the clock that all kernels share.
    pub sleep_end: Option<u64>,
    /// What it has used so far, on all kernels.
    pub usage: Usage,
    /// ns since boot.
    pub started: u64,
    /// Kernels it has been on.
    pub visited: KernelSet,
    /// How often it has moved.
    pub moves: u64,
    /// Keeps it from being moved to and fro.
    pub gathered: Gathered,
    /// Files of its own are where it comes from that can follow it: connections and epolls.
    pub left_files: bool,
    /// Its process hears of it when it waits (umt_control).
    pub monitored: bool,
}

impl ThreadState {
    /// The scheduling parameters that the process keeps of its main thread when that has ended.
    pub fn scheduling_parameters(&self) -> LastSchedulingParameters {
        LastSchedulingParameters {
            uid: self.credentials.uid,
            euid: self.credentials.euid,
            affinity: self.affinity.clone(),
            nice: self.nice,
            policy: self.policy,
        }
    }
}

/// The numbers of a [`ThreadState`]. They are many and travel often, so they are sent as they lie in memory, not encoded one by one.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Numbers {
    effective: u64,
    permitted: u64,
    inheritable: u64,
    bounding: u64,
    ambient: u64,
    blocked: u64,
    saved_blocked: u64,
    alt_base: u64,
    alt_size: u64,
    clear_child_tid: u64,
    robust_list: [u64; 2],
    rseq: u64,
    last_trap: [u64; 3],
    timer_slack: [u64; 2],
    sleep_end: u64,
    /// CPUs below 64, and so the kernels it has been on.
    affinity: u64,
    visited: u64,
    continues: u64,
    ignorings: u64,
    usage: Usage,
    started: u64,
    moves: u64,
    gathered: Gathered,
    uid: u32,
    euid: u32,
    suid: u32,
    fsuid: u32,
    gid: u32,
    egid: u32,
    sgid: u32,
    fsgid: u32,
    secure: u32,
    alt_flags: u32,
    rseq_length: u32,
    rseq_signature: u32,
    nice: i32,
    policy: [u32; 2],
    parent_death_signal: u32,
    personality: u32,
    /// Bits for which of the optional fields are set.
    has: u32,
}

const HAS_SAVED_BLOCKED: u32 = 1;
const HAS_RSEQ: u32 = 2;
const HAS_SLEEP_END: u32 = 4;
const HAS_LEFT_FILES: u32 = 8;
const IS_MONITORED: u32 = 16;

impl Numbers {
    fn of(state: &ThreadState) -> Self {
        let ThreadState { credentials, capabilities, alt_stack, .. } = state;
        let (rseq, rseq_length, rseq_signature) = state.rseq.unwrap_or_default();
        let bit = |has: bool, bit: u32| if has { bit } else { 0 };
        Numbers {
            effective: credentials.effective.0,
            permitted: capabilities.permitted.0,
            inheritable: capabilities.inheritable.0,
            bounding: capabilities.bounding.0,
            ambient: capabilities.ambient.0,
            blocked: state.blocked.0,
            saved_blocked: state.saved_blocked.map_or(0, |set| set.0),
            alt_base: alt_stack.base,
            alt_size: alt_stack.size,
            clear_child_tid: state.clear_child_tid,
            robust_list: state.robust_list.into(),
            rseq,
            last_trap: state.last_trap.into(),
            timer_slack: state.timer_slack.into(),
            sleep_end: state.sleep_end.unwrap_or(0),
            affinity: state.affinity.bits().split().0,
            visited: state.visited.bits().split().0,
            continues: state.pending.sent().continues,
            ignorings: state.pending.sent().ignorings,
            usage: state.usage,
            started: state.started,
            moves: state.moves,
            gathered: state.gathered,
            uid: credentials.uid,
            euid: credentials.euid,
            suid: credentials.suid,
            fsuid: credentials.fsuid,
            gid: credentials.gid,
            egid: credentials.egid,
            sgid: credentials.sgid,
            fsgid: credentials.fsgid,
            secure: capabilities.secure,
            alt_flags: alt_stack.flags,
            rseq_length,
            rseq_signature,
            nice: state.nice.into(),
            policy: state.policy.into(),
            parent_death_signal: state.parent_death_signal.into(),
            personality: state.personality,
            has: bit(state.saved_blocked.is_some(), HAS_SAVED_BLOCKED)
                | bit(state.rseq.is_some(), HAS_RSEQ)
                | bit(state.sleep_end.is_some(), HAS_SLEEP_END)
                | bit(state.left_files, HAS_LEFT_FILES)
                | bit(state.monitored, IS_MONITORED),
        }
    }
}

/// The wire form of a [`ThreadState`].
#[derive(Serialize, Deserialize)]
struct Travelling<'a> {
    #[serde(with = "machine::plain")]
    numbers: Numbers,
    #[serde(borrow, with = "serde_bytes")]
    name: &'a [u8],
    #[serde(with = "groups")]
    groups: Cow<'a, [u32]>,
    rare: Option<Box<Rare<'a>>>,
}

/// What few threads have: pending signals, and CPUs and kernels with numbers from 64 on.
#[derive(Default, Serialize, Deserialize)]
struct Rare<'a> {
    queue: Cow<'a, VecDeque<SignalInfo>>,
    affinity: Cow<'a, [u64]>,
    visited: Cow<'a, [u64]>,
}

mod groups {
    use super::*;
    use machine::plain::list;

    pub fn serialize<S: Serializer>(groups: &[u32], to: S) -> Result<S::Ok, S::Error> {
        list::serialize(groups, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'static, [u32]>, D::Error> {
        list::deserialize(from).map(Cow::Owned)
    }
}

impl Serialize for ThreadState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (queue, affinity, visited) =
            (self.pending.queue(), self.affinity.bits().split().1, self.visited.bits().split().1);
        let is_plain = queue.is_empty() && affinity.is_empty() && visited.is_empty();
        let rare = || Rare { queue: Cow::Borrowed(queue), affinity: affinity.into(), visited: visited.into() };
        let travelling = Travelling {
            numbers: Numbers::of(self),
            name: &self.name,
            groups: Cow::Borrowed(&self.credentials.groups),
            rare: (!is_plain).then(|| Box::new(rare())),
        };
        travelling.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ThreadState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Travelling { numbers, name, groups, rare } = Deserialize::deserialize(from)?;
        let Rare { queue, affinity, visited } = rare.map(|rare| *rare).unwrap_or_default();
        let affinity = CpuSet::of_bits(Bits::join(numbers.affinity, affinity.iter().copied()));
        let visited = KernelSet::of_bits(Bits::join(numbers.visited, visited.iter().copied()));
        let sent = Sent { continues: numbers.continues, ignorings: numbers.ignorings };
        let pending = Pending::of_queue(queue.into_owned(), sent);
        let (name, groups) = (name.to_vec(), groups.into_owned());
        let Numbers { effective, permitted, inheritable, bounding, ambient, secure, has, .. } = numbers;
        let Numbers { uid, euid, suid, fsuid, gid, egid, sgid, fsgid, .. } = numbers;
        Ok(ThreadState {
            name,
            credentials: Credentials {
                uid,
                euid,
                suid,
                fsuid,
                gid,
                egid,
                sgid,
                fsgid,
                groups,
                effective: CapabilitySet(effective),
            },
            blocked: SignalSet(numbers.blocked),
            saved_blocked: (has & HAS_SAVED_BLOCKED != 0).then_some(SignalSet(numbers.saved_blocked)),
            pending,
            alt_stack: AltStack { base: numbers.alt_base, size: numbers.alt_size, flags: numbers.alt_flags },
            clear_child_tid: numbers.clear_child_tid,
            robust_list: numbers.robust_list.into(),
            rseq: (has & HAS_RSEQ != 0).then_some((numbers.rseq, numbers.rseq_length, numbers.rseq_signature)),
            affinity,
            nice: numbers.nice as i8,
            policy: numbers.policy.into(),
            parent_death_signal: numbers.parent_death_signal as u8,
            capabilities: Capabilities {
                permitted: CapabilitySet(permitted),
                inheritable: CapabilitySet(inheritable),
                bounding: CapabilitySet(bounding),
                ambient: CapabilitySet(ambient),
                secure,
            },
            personality: numbers.personality,
            timer_slack: numbers.timer_slack.into(),
            last_trap: numbers.last_trap.into(),
            sleep_end: (has & HAS_SLEEP_END != 0).then_some(numbers.sleep_end),
            usage: numbers.usage,
            started: numbers.started,
            visited,
            moves: numbers.moves,
            gathered: numbers.gathered,
            left_files: has & HAS_LEFT_FILES != 0,
            monitored: has & IS_MONITORED != 0,
        })
    }
}

/// A thread at its user boundary: all that moves with it. It is more than a kilobyte and always boxed, so that nobody copies it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadContext {
    /// Registers at the boundary, as they are restored there.
    #[serde(with = "machine::plain")]
    pub registers: Registers,
    /// x87, SSE and AVX state.
    pub fpu: FpuState,
    /// All else.
    pub state: ThreadState,
}

impl ThreadState {
    /// The state of the first thread of a machine.
    pub fn first(credentials: Credentials, affinity: CpuSet, started: u64) -> Self {
        ThreadState {
            name: Vec::new(),
            capabilities: Capabilities::of_user(credentials.uid),
            credentials,
            blocked: SignalSet::EMPTY,
            saved_blocked: None,
            pending: Pending::default(),
            alt_stack: AltStack::NONE,
            clear_child_tid: 0,
            robust_list: (0, 0),
            rseq: None,
            affinity,
            nice: 0,
            policy: (0, 0),
            parent_death_signal: 0,
            personality: 0,
            timer_slack: (50_000, 50_000),
            last_trap: (0, 0, 0),
            sleep_end: None,
            usage: Usage::default(),
            started,
            visited: KernelSet::new(),
            moves: 0,
            gathered: Gathered::default(),
            left_files: false,
            monitored: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::signal::{Signal, SignalInfo};
    use alloc::{format, vec};

    #[test]
    fn all_of_a_thread_travels() {
        let credentials = Credentials {
            uid: 1,
            euid: 2,
            suid: 3,
            fsuid: 4,
            gid: 5,
            egid: 6,
            sgid: 7,
            fsgid: 8,
            groups: vec![9, u32::MAX],
            effective: CapabilitySet(10 << 40),
        };
        let plain = ThreadState::first(credentials, CpuSet::from_bytes(&[3; 16]), 11);
        let mut pending = Pending::default();
        pending.push(SignalInfo::kernel(Signal::USR1));
        let full = ThreadState {
            pending,
            name: b"worker".into(),
            blocked: SignalSet(12),
            saved_blocked: Some(SignalSet(0)),
            alt_stack: AltStack { base: 13, size: 14, flags: 15 },
            clear_child_tid: 16,
            robust_list: (17, 18),
            rseq: Some((19, 20, 21)),
            nice: -20,
            policy: (2, 99),
            parent_death_signal: 22,
            capabilities: Capabilities {
                permitted: CapabilitySet(23),
                inheritable: CapabilitySet(24),
                bounding: CapabilitySet(25),
                ambient: CapabilitySet(26),
                secure: 27,
            },
            personality: u32::MAX,
            timer_slack: (39, 40),
            last_trap: (28, 29, u64::MAX),
            sleep_end: Some(30),
            usage: Usage {
                user_ns: 31,
                system_ns: 32,
                minor_faults: 33,
                major_faults: 34,
                voluntary_switches: 35,
                involuntary_switches: 36,
                max_rss: 37,
            },
            visited: [machine::KernelId(3), machine::KernelId(100)].into_iter().collect(),
            moves: 38,
            monitored: true,
            ..plain.clone()
        };
        for state in [plain, full] {
            let bytes = postcard::to_allocvec(&state).unwrap();
            let there: ThreadState = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(format!("{there:?}"), format!("{state:?}"));
        }
    }
}
