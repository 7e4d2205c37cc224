//! System V IPC: shared memory segments, semaphore sets and message queues (man 7 sysvipc).

use crate::fs::{Data, Opened, ReadReply};
use abi::{Credentials, ObjectId};
use alloc::vec::Vec;
use machine::{errno, Frame, Pid};
use serde::{Deserialize, Serialize};

/// The three kinds of System V IPC objects. Each has its own keys and ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpcKind {
    /// Shared memory segments (shmget).
    Memory,
    /// Semaphore sets (semget).
    Semaphores,
    /// Message queues (msgget).
    Messages,
}

/// The process that makes the system call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asker {
    /// Effective ids, which the object's mode is compared with, and capabilities.
    pub who: Credentials,
    /// The process, for `shm_lpid`, `sempid` and their like, and whose adjustments SEM_UNDO keeps.
    pub process: Pid,
}

/// `struct ipc_perm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// The key it was made with; IPC_PRIVATE (0): it has none.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Creator.
    pub cuid: u32,
    /// Creator's group.
    pub cgid: u32,
    /// Permissions in the low nine bits, SHM_DEST and SHM_LOCKED above.
    pub mode: u32,
}

/// What IPC_STAT and /proc/sysvipc tell of an object; times in seconds since the epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Status {
    /// What shmat, semop, msgsnd and their like name it by.
    pub id: i32,
    /// Whose it is.
    pub permissions: Permissions,
    /// When it was made or changed by IPC_SET (`shm_ctime` and its like).
    pub changed: i64,
    /// What depends on the kind.
    pub details: Details,
}

/// The part of IPC_STAT's answer that each kind has for itself. A time of 0: it never happened.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Details {
    /// `struct shmid_ds`.
    Memory {
        /// In bytes, as shmget asked.
        size: u64,
        /// `shm_nattch`, over all kernels.
        attached: u64,
        /// Pages of it that are in memory.
        resident: u64,
        /// `shm_atime`.
        attach_time: i64,
        /// `shm_dtime`.
        detach_time: i64,
        /// `shm_cpid`.
        creator: Pid,
        /// `shm_lpid`: the last that attached or detached it.
        last: Pid,
    },
    /// `struct semid_ds`.
    Semaphores {
        /// `sem_nsems`.
        count: u64,
        /// `sem_otime`.
        operated: i64,
    },
    /// `struct msqid_ds`.
    Messages {
        /// Bytes that are in the queue.
        bytes: u64,
        /// `msg_qnum`.
        count: u64,
        /// `msg_qbytes`.
        limit: u64,
        /// `msg_stime`.
        sent: i64,
        /// `msg_rtime`.
        received: i64,
        /// `msg_lspid`.
        sender: Pid,
        /// `msg_lrpid`.
        receiver: Pid,
    },
}

/// `struct sembuf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreOp {
    /// Which of the set.
    pub number: u16,
    /// Added to the value; 0: wait until the value is 0.
    pub change: i16,
    /// IPC_NOWAIT and SEM_UNDO.
    pub flags: i16,
}

/// The commands of shmctl, semctl and msgctl that look at one object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// `check`: with read permission only (not IPC_STAT's cousin SHM_STAT_ANY).
    Status {
        /// Whether read permission is needed: IPC_STAT, not SHM_STAT_ANY and its like.
        check: bool,
    },
    /// IPC_SET.
    Set {
        /// New owner.
        uid: u32,
        /// New group.
        gid: u32,
        /// New permissions; only the low nine bits count.
        mode: u32,
        /// `msg_qbytes` of a queue; more than the machine's limit needs CAP_SYS_RESOURCE.
        limit: Option<u64>,
    },
    /// IPC_RMID.
    Remove,
    /// SHM_LOCK, SHM_UNLOCK.
    Lock(bool),
    /// GETVAL.
    GetValue {
        /// Which semaphore of the set; EINVAL if there is none.
        number: i32,
    },
    /// GETPID: who changed it last.
    GetPid {
        /// Which semaphore of the set; EINVAL if there is none.
        number: i32,
    },
    /// GETNCNT, GETZCNT.
    GetWaiting {
        /// Which semaphore of the set; EINVAL if there is none.
        number: i32,
        /// Those that wait for 0, not those that wait for more.
        zero: bool,
    },
    /// GETALL.
    GetAll,
    /// SETVAL.
    SetValue {
        /// Which semaphore of the set; EINVAL if there is none.
        number: i32,
        /// Its new value; ERANGE outside 0 to 32767.
        value: i32,
    },
    /// SETALL: a value for each of the set.
    SetAll(Vec<u16>),
}

/// What a [`Command`] answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It was done, and there is nothing to tell.
    Done,
    /// Of GETVAL, GETPID, GETNCNT and GETZCNT.
    Number(i64),
    /// Of GETALL.
    Values(Vec<u16>),
    /// Of IPC_STAT and its like.
    Status(Status),
}

/// Where an object is made or looked for: `size` are bytes or semaphores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Which kind of object.
    pub kind: IpcKind,
    /// IPC_PRIVATE (0): always a new one.
    pub key: i32,
    /// IPC_CREAT, IPC_EXCL, and the permissions in the low nine bits.
    pub flags: u32,
    /// Bytes of a segment, semaphores of a set; not used for queues.
    pub size: u64,
    /// Who wants it.
    pub asker: Asker,
}

messages! {
    "ipc" 0x700;

    /// shmget, semget, msgget with a key: asked of the kernel that keeps the keys, which has a new object made by the
    /// kernel that asks.
    ipc_get: IpcGet {
        /// What is asked for.
        wanted: Wanted,
    } -> errno::Result<i32>, Low;

    /// The keeper of the keys has the kernel that asked make an object.
    ipc_make: IpcMake {
        /// What is to be made.
        wanted: Wanted,
    } -> errno::Result<i32>, Low;

    /// The keeper of the keys asks the owner of an object whether the asker may have it. EIDRM if it has gone.
    ipc_check: IpcCheck {
        /// What shmget, semget or msgget answered.
        id: i32,
        /// What the asker wants of it.
        wanted: Wanted,
    } -> errno::Result<()>, Low;

    /// The owner has removed an object; its key is free.
    ipc_forget: IpcForget {
        /// Which kind of object.
        kind: IpcKind,
        /// The key that is free.
        key: i32,
        /// What shmget, semget or msgget answered.
        id: i32,
    } -> (), Low;

    /// All objects of a kind that the receiver owns.
    ipc_list: IpcList {
        /// Which kind of object.
        kind: IpcKind,
    } -> Vec<Status>, Low;

    /// shmctl, semctl, msgctl, at the owner.
    ipc_control: IpcControl {
        /// Which kind of object.
        kind: IpcKind,
        /// What shmget, semget or msgget answered.
        id: i32,
        /// What is asked or changed.
        command: Command,
        /// Who makes the system call, for permissions.
        asker: Asker,
    } -> errno::Result<Answer>, Low;

    /// semop, at the owner; waits. Cancelled on a signal or timeout.
    semaphore_op: SemaphoreOps {
        /// What shmget, semget or msgget answered.
        id: i32,
        /// What is to be done, all at once or nothing.
        ops: Vec<SemaphoreOp>,
        /// Who makes the system call, for permissions.
        asker: Asker,
    } -> errno::Result<()>, Low;

    /// msgsnd, at the owner; waits unless `poll`.
    message_send: MessageSend {
        /// What shmget, semget or msgget answered.
        id: i32,
        /// `mtype`, above 0.
        kind: i64,
        /// `mtext`.
        data: Data,
        /// IPC_NOWAIT.
        poll: bool,
        /// Who makes the system call, for permissions.
        asker: Asker,
    } -> errno::Result<()>, Low;

    /// msgrcv, at the owner; waits unless `flags` say otherwise. Answers the message's type and bytes, in `frames` if there are any.
    message_receive: MessageReceive {
        /// What shmget, semget or msgget answered.
        id: i32,
        /// `msgtyp`: 0 the first, N of this type, -N the lowest type up to N.
        kind: i64,
        /// Most bytes; a longer message is E2BIG or, with MSG_NOERROR, cut.
        size: u64,
        /// IPC_NOWAIT, MSG_EXCEPT, MSG_NOERROR, MSG_COPY.
        flags: u32,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Who makes the system call, for permissions.
        asker: Asker,
    } -> errno::Result<(i64, ReadReply)>, Low;

    /// shmat, at the owner: the segment's file, its size and its key.
    memory_attach: MemoryAttach {
        /// What shmget, semget or msgget answered.
        id: i32,
        /// Whether it is to be written, too (no SHM_RDONLY).
        write: bool,
        /// Who makes the system call, for permissions.
        asker: Asker,
    } -> errno::Result<(Opened, u64, i32)>, Low;

    /// shmdt, at the owner of the memory: is it a segment's, and how large?
    memory_detach: MemoryDetach {
        /// What was mapped.
        object: ObjectId,
        /// The process that detaches it.
        process: Pid,
    } -> Option<u64>, Low;

    /// How often the receiver's processes map an object, and how many of its pages are in memory there.
    memory_count: MemoryCount {
        /// The segment's memory.
        object: ObjectId,
    } -> u64, Low;

    /// A process that has adjustments to undo, or attached memory, at the receiver has ended.
    process_ended: ProcessEnded {
        /// The process that ended.
        process: Pid,
    } -> (), Low;
}
