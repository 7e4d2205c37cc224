//! Looking into processes from elsewhere: /proc, ps, process_vm_readv(2).

use crate::{
    fs::Opened,
    process::{Shared, Usage},
};
use abi::{signal::SignalSet, Capabilities, CapabilitySet, CpuSet, Credentials};
use alloc::vec::Vec;
use machine::{errno, CpuId, Frame, KernelId, Page, Pid, SpaceId};
use serde::{Deserialize, Serialize};

/// A process as /proc and ps show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessView {
    /// Process id (the thread group's).
    pub process: Pid,
    /// What its threads share.
    pub shared: Shared,
    /// `comm` of its main thread.
    pub name: Vec<u8>,
    /// Of its main thread; kept of a zombie.
    pub credentials: Credentials,
    /// It has ended, and its parent has not waited for it.
    pub zombie: bool,
    /// SIGSTOP or another stop signal has stopped it.
    pub stopped: bool,
    /// Its threads on all kernels, ascending by id; none of a zombie.
    pub threads: Vec<ThreadView>,
    /// What it has used: its threads and those that have ended.
    pub usage: Usage,
    /// What the children it waited for have used.
    pub children_usage: Usage,
    /// Page faults in its address space that the kernel of the thread resolved alone.
    pub faults_local: u64,
    /// Page faults for which that kernel asked the owner of the page.
    pub faults_remote: u64,
    /// Signals for the process that no thread has taken yet.
    pub pending: SignalSet,
    /// Signals and timers that have a place for its user where it is at home.
    pub queued: u64,
    /// VmSize.
    pub mapped_pages: u64,
    /// VmRSS.
    pub resident_pages: u64,
    /// VmLck.
    pub locked_pages: u64,
    /// VmData: writable private mappings, without stacks.
    pub data_pages: u64,
    /// VmStk: mappings that grow down.
    pub stack_pages: u64,
    /// VmExe and VmLib: other executable mappings.
    pub text_pages: u64,
    /// VmPeak.
    pub most_mapped_pages: u64,
    /// VmHWM.
    pub most_resident_pages: u64,
}

/// What a thread is doing, as the letter of /proc/PID/stat says it. Whether its process is stopped is the process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It has a CPU or waits for one, in user mode or in a call.
    Runnable,
    /// It waits for what a signal ends.
    Interruptible,
    /// It waits for what only the end of the process ends.
    Uninterruptible,
}

/// A thread as /proc/PID/task/TID shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadView {
    /// Thread id.
    pub thread: Pid,
    /// The kernel that it runs or waits on.
    pub kernel: KernelId,
    /// `comm`, as /proc/PID/task/TID/comm shows it.
    pub name: Vec<u8>,
    /// Whether it runs, and if not, what ends its wait.
    pub state: RunState,
    /// Signals it blocks.
    pub blocked: SignalSet,
    /// Signals sent to it alone that it has not taken yet.
    pub pending: SignalSet,
    /// CPUs it may use.
    pub affinity: CpuSet,
    /// From -20 to 19.
    pub nice: i8,
    /// SCHED_* and the real-time priority (0 for policies that have none).
    pub policy: (u32, u32),
    /// man 2 personality.
    pub personality: u32,
    /// CPU time and faults, on all kernels.
    pub usage: Usage,
    /// When it was made, in ns since the machine started.
    pub started: u64,
    /// Its capabilities but the effective ones.
    pub capabilities: Capabilities,
    /// The capabilities that are checked.
    pub effective: CapabilitySet,
    /// The CPU it last ran on.
    pub cpu: CpuId,
    /// Address of the head; 0: none.
    pub robust_list: u64,
}

/// What a kernel has of a process that runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadsThere {
    /// Its threads there.
    pub threads: Vec<ThreadView>,
    /// Faults of its threads there that the kernel resolved alone.
    pub faults_local: u64,
    /// Faults that were resolved by asking an owner.
    pub faults_remote: u64,
}

/// What is asked about the memory of another process (/proc/PID/maps, cmdline, environ, fd).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Inspect {
    /// All that ps shows.
    View,
    /// The same without the sizes of its memory, which take a walk over all its pages: they are 0.
    Threads,
    /// Some regions, the lowest that reach above `from`.
    Maps {
        /// The first page that is of interest.
        from: Page,
    },
    /// The same, with how many pages were touched.
    Touched {
        /// The first page that is of interest.
        from: Page,
    },
    /// Which kernels have what of its memory.
    Spread,
    /// clear_refs: from now on no page has been touched of anonymous mappings, or of mapped files, or of both.
    ClearTouched {
        /// Of anonymous mappings (1 or 2 written to clear_refs).
        anonymous: bool,
        /// Of mapped files (1 or 3 written to clear_refs).
        files: bool,
    },
    /// clear_refs: the most pages that have been resident are those that are now.
    ClearPeak,
    /// Bytes of its memory.
    Memory {
        /// First address.
        start: u64,
        /// The address after the last; at most 1 MiB is read.
        end: u64,
    },
    /// process_vm_readv: as many bytes as can be read.
    Peek {
        /// First address.
        at: u64,
        /// How many; at most 64 KiB, and fewer where a page among them can't be read.
        bytes: u32,
    },
    /// process_vm_writev: as many as can be written.
    Poke {
        /// First address.
        at: u64,
        /// What is written there.
        bytes: Vec<u8>,
    },
    /// Which memory it has, for whoever may look into it.
    Space,
    /// /proc/PID/mem: bytes of that memory, as many as there are, for who was told of it.
    ForceRead {
        /// The memory as [`Inspect::Space`] told; ENOENT if the process has another by now.
        space: SpaceId,
        /// First address.
        at: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// /proc/PID/mem: the same for writing, past protections like a debugger's breakpoints.
    ForceWrite {
        /// The memory as [`Inspect::Space`] told; ENOENT if the process has another by now.
        space: SpaceId,
        /// First address.
        at: u64,
        /// What is written there.
        bytes: Vec<u8>,
    },
    /// get_robust_list of one of its threads.
    RobustList {
        /// The thread whose list is asked for; ESRCH if it is not one of the process.
        thread: Pid,
    },
    /// Open descriptors, some hundred at a time.
    Descriptors {
        /// The least number wanted.
        from: u32,
    },
    /// Whose it is, and its threads: what the directories of /proc need.
    Owner,
}

/// What an [`Inspect`] answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Inspection {
    /// Of [`Inspect::View`] and [`Inspect::Threads`].
    View(alloc::boxed::Box<ProcessView>),
    /// Of [`Inspect::Maps`] and [`Inspect::Touched`]: ascending; empty when there are no more.
    Regions(Vec<crate::vm::RegionReport>),
    /// Of [`Inspect::Spread`].
    Spread(crate::vm::Spread),
    /// What was read. May be fewer than asked for.
    Bytes(Vec<u8>),
    /// How many bytes were written; 0 of an operation that writes none.
    Count(u32),
    /// The address space the process has now.
    Space(SpaceId),
    /// Address of the head of the list; 0: none.
    RobustList(u64),
    /// Of [`Inspect::Descriptors`]: ascending; empty when there are no more.
    Descriptors(Vec<u32>),
    /// Of [`Inspect::Owner`].
    Owner {
        /// Effective user id.
        uid: u32,
        /// Effective group id.
        gid: u32,
        /// Its threads, ascending.
        threads: Vec<Pid>,
    },
}

/// Which of the files that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessFile {
    /// /proc/PID/fd/N.
    Descriptor(u32),
    /// /proc/PID/cwd.
    Cwd,
    /// /proc/PID/root.
    Root,
}

messages! {
    "inspect" 0x2c0;

    /// Asks the home of a process about it, or has the home write to its memory. Many bytes of memory travel in `frames`: `sent` bytes
    /// are there to be written, or the frames have room for the answer, which says how many bytes it has put there.
    inspect: InspectProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// What is asked.
        what: Inspect,
        /// Frames of the sender, lent for the call: for memory that is read or written.
        frames: Vec<Frame>,
        /// Bytes in `frames` that are to be written.
        sent: u32,
        /// Who asks, for permissions (ptrace(2), "Ptrace access mode checking").
        reader: Credentials,
    } -> errno::Result<(Inspection, u32)>, Low;

    /// The home asks a replica for its threads of a process.
    threads: ListThreads {
        /// The process (thread group) that this is about.
        process: Pid,
    } -> ThreadsThere, Low;

    /// Asks the home of a process for a file that it has open.
    file: InspectFile {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Which file.
        which: ProcessFile,
        /// Who asks, for permissions.
        reader: Credentials,
    } -> errno::Result<Opened>, Low;
}
