//! What is one thread's, and goes with it when it moves.

use abi::{
    signal::{AltStack, Pending, SignalSet},
    Capabilities, CpuSet, Credentials,
};
use alloc::vec::Vec;
use machine::{FpuState, KernelSet, Registers};
use serde::{Deserialize, Serialize};

/// CPU time and counters of getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Peak resident set in KiB.
    pub max_rss: u64,
}

impl Usage {
    /// CPU time.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

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

/// Everything about a thread that goes with it when it moves, beside its registers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadState {
    pub name: Vec<u8>,
    pub credentials: Credentials,
    pub blocked: SignalSet,
    /// The mask to come back to after sigsuspend, ppoll and their like.
    pub saved_blocked: Option<SignalSet>,
    pub pending: Pending,
    pub alt_stack: AltStack,
    pub clear_child_tid: u64,
    pub robust_list: (u64, u64),
    /// (address, length, signature) of rseq(2).
    pub rseq: Option<(u64, u32, u32)>,
    pub affinity: CpuSet,
    pub nice: i8,
    /// SCHED_OTHER 0, FIFO 1, RR 2, BATCH 3, IDLE 5, and the real-time priority.
    pub policy: (u32, u32),
    pub parent_death_signal: u8,
    pub capabilities: Capabilities,
    /// man 2 personality.
    pub personality: u32,
    /// Vector, error code and address of the last exception that became a signal (`struct sigcontext`).
    pub last_trap: (u64, u64, u64),
    /// When a sleep that was interrupted and is about to be restarted is to end (ns of the clock all share).
    pub sleep_end: Option<u64>,
    pub usage: Usage,
    /// ns since boot.
    pub started: u64,
    /// Kernels it has been on.
    pub visited: KernelSet,
    /// How often it has moved.
    pub moves: u64,
}

/// All that there is of a thread at its user boundary. It moves often, and is more than a kilobyte: it stays where it was
/// decoded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Baggage {
    pub registers: Registers,
    pub fpu: FpuState,
    pub state: ThreadState,
}

impl ThreadState {
    /// Of the first thread of a machine.
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
            last_trap: (0, 0, 0),
            sleep_end: None,
            usage: Usage::default(),
            started,
            visited: KernelSet::new(),
            moves: 0,
        }
    }
}
