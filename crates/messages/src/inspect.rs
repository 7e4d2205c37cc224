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
    pub process: Pid,
    pub shared: Shared,
    pub name: Vec<u8>,
    pub credentials: Credentials,
    pub zombie: bool,
    pub stopped: bool,
    pub threads: Vec<ThreadView>,
    pub usage: Usage,
    pub children_usage: Usage,
    pub pending: SignalSet,
    /// Signals and timers that have a place for its user where it is at home.
    pub queued: u64,
    pub mapped_pages: u64,
    pub resident_pages: u64,
    pub locked_pages: u64,
    pub data_pages: u64,
    pub stack_pages: u64,
    pub text_pages: u64,
    /// The most it has had mapped, and in memory.
    pub most_mapped_pages: u64,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadView {
    pub thread: Pid,
    pub kernel: KernelId,
    pub name: Vec<u8>,
    pub state: RunState,
    pub blocked: SignalSet,
    pub pending: SignalSet,
    pub affinity: CpuSet,
    pub nice: i8,
    pub policy: (u32, u32),
    pub personality: u32,
    pub usage: Usage,
    pub started: u64,
    pub capabilities: Capabilities,
    pub effective: CapabilitySet,
    pub cpu: CpuId,
    /// Address of the head; 0: none.
    pub robust_list: u64,
}

/// What is asked about the memory of another process (/proc/PID/maps, cmdline, environ, fd).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Inspect {
    View,
    /// Some regions, the lowest that reach above `from`.
    Maps {
        from: Page,
    },
    /// The same, with how many pages were touched.
    Touched {
        from: Page,
    },
    /// Which kernels have what of its memory.
    Spread,
    /// clear_refs: from now on no page has been touched of anonymous mappings, or of mapped files, or of both.
    ClearTouched {
        anonymous: bool,
        files: bool,
    },
    /// clear_refs: the most pages that have been resident are those that are now.
    ClearPeak,
    /// Bytes of its memory.
    Memory {
        start: u64,
        end: u64,
    },
    /// process_vm_readv: as many bytes as can be read.
    Peek {
        at: u64,
        bytes: u32,
    },
    /// process_vm_writev: as many as can be written.
    Poke {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Which memory it has, for whoever may look into it.
    Space,
    /// /proc/PID/mem: bytes of that memory, as many as there are, for who was told of it.
    ForceRead {
        space: SpaceId,
        at: u64,
        bytes: u32,
    },
    ForceWrite {
        space: SpaceId,
        at: u64,
        bytes: Vec<u8>,
    },
    /// get_robust_list of one of its threads.
    RobustList {
        thread: Pid,
    },
    /// Open descriptors: number, path, flags.
    Descriptors,
    /// Whose it is, and its threads: what the directories of /proc need.
    Owner,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Inspection {
    View(alloc::boxed::Box<ProcessView>),
    Regions(Vec<crate::vm::RegionReport>),
    Spread(crate::vm::Spread),
    Bytes(Vec<u8>),
    Count(u32),
    Space(SpaceId),
    RobustList(u64),
    Descriptors(Vec<(u32, Vec<u8>, u32)>),
    Owner { uid: u32, gid: u32, threads: Vec<Pid> },
}

/// A file that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    Descriptor(u32),
    Cwd,
    Root,
}

messages! {
    "inspect" 0x2c0;

    /// A look at a process, answered by its home. Many bytes of its memory go in `frames`: `sent` of them are there already, to be
    /// written, or there is room for those of the answer, which says how many it put there.
    inspect: InspectProcess { process: Pid, what: Inspect, frames: Vec<Frame>, sent: u32, reader: Credentials } -> errno::Result<(Inspection, u32)>, Low;

    /// The home asks a replica for its threads of a process.
    threads: ListThreads { process: Pid } -> Vec<ThreadView>, Low;

    /// A file that a process has open, from its home.
    file: InspectFile { process: Pid, held: Held, reader: Credentials } -> errno::Result<Opened>, Low;
}
