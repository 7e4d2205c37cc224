//! System V IPC: shared memory segments, semaphore sets and message queues (man 7 sysvipc).

use crate::fs::{Data, Opened, Taken};
use abi::{Credentials, ObjectId};
use alloc::vec::Vec;
use machine::{errno, Frame, Pid};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    Memory,
    Semaphores,
    Messages,
}

/// Who asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asker {
    pub who: Credentials,
    pub process: Pid,
}

/// `struct ipc_perm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
}

/// What IPC_STAT and /proc/sysvipc tell of an object; times in seconds since the epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Status {
    pub id: i32,
    pub permissions: Permissions,
    pub changed: i64,
    pub details: Details,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Details {
    Memory { size: u64, attached: u64, resident: u64, attach_time: i64, detach_time: i64, creator: Pid, last: Pid },
    Semaphores { count: u64, operated: i64 },
    Messages { bytes: u64, count: u64, limit: u64, sent: i64, received: i64, sender: Pid, receiver: Pid },
}

/// `struct sembuf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreOp {
    pub number: u16,
    pub change: i16,
    pub flags: i16,
}

/// The commands of shmctl, semctl and msgctl that look at one object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// `check`: with read permission only (not IPC_STAT's cousin SHM_STAT_ANY).
    Status {
        check: bool,
    },
    Set {
        uid: u32,
        gid: u32,
        mode: u32,
        limit: Option<u64>,
    },
    Remove,
    /// SHM_LOCK, SHM_UNLOCK.
    Lock(bool),
    GetValue {
        number: i32,
    },
    GetPid {
        number: i32,
    },
    /// How many wait for an increase, and for zero.
    GetWaiting {
        number: i32,
        zero: bool,
    },
    GetAll,
    SetValue {
        number: i32,
        value: i32,
    },
    SetAll(Vec<u16>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Number(i64),
    Values(Vec<u16>),
    Status(Status),
}

/// Where an object is made or looked for: `size` are bytes or semaphores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub kind: Kind,
    pub key: i32,
    pub flags: u32,
    pub size: u64,
    pub asker: Asker,
}

messages! {
    "ipc" 0x700;

    /// shmget, semget, msgget with a key: asked of the kernel that keeps the keys, which has a new object made by the
    /// kernel that asks.
    ipc_get: IpcGet { wanted: Wanted } -> errno::Result<i32>, Low;

    /// The keeper of the keys has the kernel that asked make an object.
    ipc_make: IpcMake { wanted: Wanted } -> errno::Result<i32>, Low;

    /// The keeper of the keys asks the owner of an object whether the asker may have it. EIDRM if it has gone.
    ipc_check: IpcCheck { id: i32, wanted: Wanted } -> errno::Result<()>, Low;

    /// The owner has removed an object; its key is free.
    ipc_forget: IpcForget { kind: Kind, key: i32, id: i32 } -> (), Low;

    /// All objects of a kind that the receiver owns.
    ipc_list: IpcList { kind: Kind } -> Vec<Status>, Low;

    /// shmctl, semctl, msgctl, at the owner.
    ipc_control: IpcControl { kind: Kind, id: i32, command: Command, asker: Asker } -> errno::Result<Answer>, Low;

    /// semop, at the owner; waits. Cancelled on a signal or timeout.
    semaphore_op: SemaphoreOps { id: i32, ops: Vec<SemaphoreOp>, asker: Asker } -> errno::Result<()>, Low;

    /// msgsnd, at the owner; waits unless `poll`.
    message_send: MessageSend { id: i32, kind: i64, data: Data, poll: bool, asker: Asker } -> errno::Result<()>, Low;

    /// msgrcv, at the owner; waits unless `flags` say otherwise. Answers the message's type and bytes, in `frames` if there are any.
    message_receive: MessageReceive { id: i32, kind: i64, size: u64, flags: u32, frames: Vec<Frame>, asker: Asker } -> errno::Result<(i64, Taken)>, Low;

    /// shmat, at the owner: the segment's file, its size and its key.
    memory_attach: MemoryAttach { id: i32, write: bool, asker: Asker } -> errno::Result<(Opened, u64, i32)>, Low;

    /// shmdt, at the owner of the memory: is it a segment's, and how large?
    memory_detach: MemoryDetach { object: ObjectId, process: Pid } -> Option<u64>, Low;

    /// How often the receiver's processes map an object, and how many of its pages are in memory there.
    memory_count: MemoryCount { object: ObjectId } -> u64, Low;

    /// A process that has adjustments to undo, or attached memory, at the receiver has ended.
    process_ended: ProcessEnded { process: Pid } -> (), Low;
}
