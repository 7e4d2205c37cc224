//! Files, pipes, terminals and other open objects.

use abi::OpenFlags;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Data of one message; longer transfers are several, or go by frames.
pub const INLINE_BYTES: usize = 2048;

/// An operation that only some kinds of files have. `F` is how files are named: by reference on the
/// wire, as open files in a kernel. Answered with EINVAL (ENOTSOCK, ENOTTY where Linux has it) by others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Control<F> {
    /// F_GETPIPE_SZ, F_SETPIPE_SZ.
    PipeSize,
    SetPipeSize(u64),
    /// Up to so many bytes of a pipe, left there (tee, splice).
    Peek(u64),
    /// TIOCGPTPEER.
    PtyPeer(OpenFlags),
    /// timerfd_settime: `value` is a time of the timer's clock, or from now; 0 disarms.
    TimerSet { absolute: bool, value: u64, interval: u64 },
    TimerGet,
    Epoll(EpollControl<F>),
    /// Up to so many events that are ready now.
    EpollTake(u32),
    Socket(SocketControl<F>),
}

/// epoll_ctl. The number of the descriptor is part of an entry's name, as on Linux.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EpollControl<F> {
    Add { fd: i32, file: F, interest: EpollInterest },
    Modify { fd: i32, file: F, interest: EpollInterest },
    Delete { fd: i32, file: F },
}

/// `struct epoll_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollInterest {
    pub events: u32,
    pub data: u64,
}

/// Where an AF_UNIX socket is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnixPlace {
    Abstract(Vec<u8>),
    /// The socket's inode: device and number.
    Inode((u32, u32), u64),
}

/// struct ucred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixCredentials {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What one sendmsg sends, or one recvmsg receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketMessage<F> {
    pub bytes: Vec<u8>,
    /// SCM_RIGHTS.
    pub files: Vec<F>,
    /// SCM_CREDENTIALS: given by a privileged sender, or filled in.
    pub credentials: Option<UnixCredentials>,
    /// `sun_path` of the other side: for datagrams, where to or where from.
    pub name: Vec<u8>,
    /// MSG_TRUNC: the datagram was longer; this is how long.
    pub full_length: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SocketControl<F> {
    Bind { place: Option<UnixPlace>, name: Vec<u8> },
    Listen { backlog: i32 },
    Accept { flags: OpenFlags },
    Connect { place: Option<UnixPlace> },
    Shutdown { how: u32 },
    Send { place: Option<UnixPlace>, message: SocketMessage<F>, flags: u32 },
    Receive { bytes: u64, flags: u32 },
    Name,
    PeerName,
    GetOption { level: u32, name: u32 },
    SetOption { level: u32, name: u32, value: Vec<u8> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlAnswer<F> {
    Done,
    Number(i64),
    Bytes(Vec<u8>),
    File(F),
    /// Time left and interval.
    Timer { value: u64, interval: u64 },
    Events(Vec<EpollInterest>),
    Message(SocketMessage<F>),
}

messages! {
    "fs" 0x500;
}
