//! Life of the kernels themselves: joining, starting, dying, state.

use abi::FileRef;
use alloc::{string::String, vec::Vec};
use machine::{errno, CpuId, KernelId};
use serde::{Deserialize, Serialize};

/// What a kernel brings to the machine; everyone shows it in /proc and /sys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The machine-wide numbers of its CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Physical memory of its partition.
    pub memory_bytes: u64,
    /// NUMA nodes its memory is on.
    pub nodes: Vec<u16>,
}

/// What a kernel has done so far; `cob run --stats` and `cobctl status` print it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// Since the machine started, not this kernel: the time all kernels share.
    pub uptime_ns: u64,
    /// The machine-wide numbers of its CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Bytes of its partition that its allocator has, used or free.
    pub memory_total: u64,
    /// Bytes of these that are free.
    pub memory_free: u64,
    /// Threads and tasks that run or wait for a CPU.
    pub load: u64,
    /// Load averages of its threads over 1, 5 and 15 minutes, in fixed point with 11 fraction bits (as in Linux's getloadavg).
    pub averages: [u64; 3],
    /// Threads that are on this kernel now.
    pub threads_now: u64,
    /// Threads that have started here since it booted, those that moved here included.
    pub threads_started: u64,
    /// Tasks that were given a CPU.
    pub switches: u64,
    /// Threads that have arrived here from other kernels, returns to a shadow included.
    pub migrations_in: u64,
    /// Threads that have left for another kernel.
    pub migrations_out: u64,
    /// Page faults that this kernel resolved alone.
    pub faults_local: u64,
    /// Page faults for which this kernel asked the owner of the page.
    pub faults_remote: u64,
    /// Requests, notices and replies to other kernels.
    pub messages_sent: u64,
    /// The same from other kernels.
    pub messages_received: u64,
    /// Interrupts sent to tell another kernel of messages.
    pub doorbells_sent: u64,
    /// Interrupts spared, because the receiver was polling or one was under way already.
    pub doorbells_suppressed: u64,
    /// Calls of this kernel to others that have no answer yet.
    pub calls_under_way: u64,
    /// Calls of others that a task works on here, because their handler had to wait.
    pub calls_parked: u64,
    /// Most bytes that any of its CPUs has had on its stack.
    pub deepest_stack: u64,
    /// Idle time of each of `cpus`, in the same order.
    pub idle_ns: Vec<u64>,
    /// Time each of them has spent in user mode.
    pub user_ns: Vec<u64>,
}

/// Where a kernel stands, as the board has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelState {
    /// It was never started.
    Absent,
    /// Another kernel has started it, and it has not said Hello yet.
    Starting,
    /// It takes part in the machine.
    Running,
    /// It was declared dead, by itself or by a kernel that it did not answer. It may be booted again.
    Dead,
}

/// A partition of the plan, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The kernel that the partition is for.
    pub kernel: KernelId,
    /// How far that kernel is.
    pub state: KernelState,
    /// How often it was started.
    pub boot_generation: u32,
    /// The machine-wide numbers of its CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Physical memory of the partition.
    pub memory_bytes: u64,
}

/// How much a kernel has of everything that must be given back, by name (`cob run --audit`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stock {
    /// What is counted (`spaces`, `open files`, ...) and how many there are.
    pub counts: Vec<(String, u64)>,
    /// Frames of other kernels that stay here: pages of files that are only in memory, and what is in stock.
    pub borrowed: Vec<(KernelId, u64)>,
    /// References of this kernel to files of others. At rest they equal what those kernels have in `lent`.
    pub held: Vec<Reference>,
    /// References of other kernels to files of this one.
    pub lent: Vec<Reference>,
}

/// So many references a kernel has to a file of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The file; its owner is part of the name.
    pub file: FileRef,
    /// The kernel that has the references.
    pub holder: KernelId,
    /// How many it has.
    pub count: u64,
}

messages! {
    "control" 0x100;

    /// A kernel that has come up introduces itself to every kernel present, after its lanes are on
    /// the board; each answers with its own resources.
    hello: Hello {
        /// What the sender brings to the machine.
        resources: Resources,
    } -> Resources, Low;

    /// Is the kernel there, and are its lanes sound? Answered with the same bytes.
    ping: Ping {
        /// Bytes that come back unchanged.
        payload: Vec<u8>,
    } -> Vec<u8>, Low;

    /// Answered when the kernels that are there and `newcomers` all know each other, so that whoever
    /// runs a program afterwards may send it anywhere. A newcomer that dies is not waited for.
    meet: Meet {
        /// Kernels that have just been booted.
        newcomers: Vec<KernelId>,
    } -> (), Low;

    /// Any kernel asks another to start a secondary; answered when it has joined the machine.
    boot: Boot {
        /// The secondary to be started.
        kernel: KernelId,
    } -> errno::Result<()>, Low;

    /// `cobctl status` and `--stats` ask every kernel what it has done.
    status: Status {} -> KernelStatus, Low;

    /// A kernel is dead, and whoever wants to boot it again asks the others to have done with it: each
    /// fails its calls, kills the processes that had something there, and answers when none of them
    /// maps its memory any more.
    dead: KernelDied {
        /// The kernel that is dead.
        kernel: KernelId,
    } -> (), High;

    /// Root wants the kernel to end; `status` is one of those below.
    stop: Stop {
        /// How it ends: one of the constants of [`Stop`].
        status: u8,
    } -> (), High;

    /// What partitions there are; any kernel knows.
    partitions: Partitions {} -> Vec<Partition>, Low;

    /// Before the first program and after the last: is anything left over?
    take_stock: TakeStock {} -> Stock, Low;

    /// Which events are recorded from now on. False: the kernel has no trace rings (`cob trace` gives the machine some).
    trace: Trace {
        /// Which.
        events: Traced,
    } -> bool, Low;

    /// How many messages of each type a kernel has sent and received, without the answers.
    message_types: MessageTypes {} -> Vec<(u16, u64, u64)>, Low;
}

/// What a kernel is to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Traced {
    /// Nothing.
    Nothing,
    /// What it recorded last.
    Again,
    /// These points: bit N is point N of crate `trace`.
    Points(u64),
}

impl Stop {
    /// It halts without telling anybody; the others notice by its heartbeat.
    pub const QUIETLY: u8 = 0;
    /// It panics: what it was doing is lost, and the others declare it dead.
    pub const BY_A_PANIC: u8 = 1;
    /// It does not end, but spins with interrupts off, until another kernel notices.
    pub const HANGING: u8 = 2;
    /// It does not end, but probes all others once, as if it suspected them (`kernel::watch`). For tests.
    pub const PROBING: u8 = 3;
}
