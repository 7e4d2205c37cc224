//! What only some kinds of files can do, and what they answer: epolls, sockets, pipes, signalfds.

use super::MovedEnd;
use abi::{signal::SignalSet, Events, FileAdvice, FileRef, OpenFlags};
use alloc::{boxed::Box, vec::Vec};
use machine::KernelId;
use serde::{Deserialize, Serialize};

/// An operation that only some kinds of files have. `F` is how files are named: by reference on the
/// wire, as open files in a kernel. Answered with EINVAL (ENOTSOCK, ENOTTY where Linux has it) by others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Control<F> {
    /// F_GETPIPE_SZ, F_SETPIPE_SZ.
    PipeSize,
    /// F_SETPIPE_SZ to so many bytes; answered with the size it has got.
    SetPipeSize(u64),
    /// Waits until a fifo that was opened has met its other side. EINVAL: it is none.
    MeetPartner,
    /// The same without waiting, after a signal: if the other side has not come, this end counts as closed from now on (EAGAIN),
    /// so that whoever comes next does not take it for a partner.
    GiveUpPartner,
    /// TIOCGPTPEER.
    PtyPeer(OpenFlags),
    /// The process a pidfd stands for (a number).
    Process,
    /// The process a directory /proc/PID is of (a number).
    ProcessDirectory,
    /// timerfd_settime: `value` is a time of the timer's clock, or from now; 0 disarms.
    TimerSet {
        /// `value` is a time of the timer's clock (TFD_TIMER_ABSTIME), not a distance from now.
        absolute: bool,
        /// First expiration, in ns.
        value: u64,
        /// Distance between further expirations, in ns; 0: it expires once.
        interval: u64,
    },
    /// timerfd_gettime.
    TimerGet,
    /// epoll_ctl.
    Epoll(EpollControl<F>),
    /// Up to `most` events that are ready now.
    EpollTake {
        /// `maxevents` of epoll_wait.
        most: u32,
        /// The signals of a caller on another kernel than the epoll's.
        signals: Option<SignalsSeen>,
        /// The owners of all watched files are asked, for the caller does not wait to be told.
        sure: bool,
    },
    /// An operation of sockets.
    Socket(SocketControl<F>),
    /// inotify_rm_watch.
    Unwatch(i32),
    /// posix_fadvise, readahead.
    Advise(FileAdvice),
    /// LOOP_SET_FD, LOOP_CONFIGURE: a loop device gets the file that its bytes are in. ENOTTY: it is no loop device.
    AttachLoop {
        /// What the descriptor was open on.
        file: F,
        /// `struct loop_config`; empty: LOOP_SET_FD.
        configuration: Vec<u8>,
    },
}

/// epoll_ctl. The number of the descriptor is part of an entry's name, as on Linux.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EpollControl<F> {
    /// EPOLL_CTL_ADD. EEXIST if the file is there under this number.
    Add {
        /// Descriptor number the caller named the file by.
        fd: i32,
        /// The file to watch.
        file: F,
        /// What to watch for, and what to report.
        interest: EpollInterest,
    },
    /// EPOLL_CTL_MOD. ENOENT if the file is not there under this number.
    Modify {
        /// Descriptor number the file was added under.
        fd: i32,
        /// The file that is watched.
        file: F,
        /// What to watch for from now on.
        interest: EpollInterest,
    },
    /// EPOLL_CTL_DEL. ENOENT if the file is not there under this number.
    Delete {
        /// Descriptor number the file was added under.
        fd: i32,
        /// The file that is watched.
        file: F,
    },
}

/// `struct epoll_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollInterest {
    /// EPOLLIN and so on, with EPOLLET, EPOLLONESHOT and EPOLLEXCLUSIVE; in an answer, what is ready.
    pub events: u32,
    /// Whatever the program wants to find in its events (`epoll_data_t`).
    pub data: u64,
}

/// The signals that a thread could take, as its own kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalsSeen {
    /// Those pending, for the thread or its process.
    pub pending: SignalSet,
    /// When its kernel looked.
    pub as_of: SignalTime,
}

/// A time on a kernel's logical clock that counts the signals which have come to a process there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalTime {
    /// The kernel that counts: the one where the thread is.
    pub kernel: KernelId,
    /// How many signals had come there.
    pub count: u64,
}

/// What is ready of a file, as of its so many-th change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// How often readiness had changed: a report with a lower number is out of date.
    pub change: u64,
    /// What was ready then.
    pub events: Events,
}

/// Where an AF_UNIX socket is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnixPlace {
    /// A name in the abstract namespace, without the leading zero byte.
    Abstract(Vec<u8>),
    /// The socket's inode: device and number.
    Inode((u32, u32), u64),
}

/// An address of AF_INET or AF_INET6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InternetAddress {
    /// The IPv6 address as a number; an IPv4 address is a mapped one (::ffff:a.b.c.d).
    pub ip: u128,
    /// 0: none yet.
    pub port: u16,
}

/// The two ends of a connection, as the one that connects sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternetEnds {
    /// The socket is of AF_INET6, and programs see its addresses so.
    pub six: bool,
    /// getsockname(2).
    pub local: InternetAddress,
    /// getpeername(2).
    pub peer: InternetAddress,
}

/// What a socket wants of a port, and what decides whether others may have it too (man 7 socket, SO_REUSEADDR and SO_REUSEPORT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortClaim {
    /// IPPROTO_TCP or IPPROTO_UDP.
    pub protocol: u8,
    /// The port, and for which of the machine's addresses.
    pub at: InternetAddress,
    /// IPV6_V6ONLY: the address :: does not stand for those of IPv4.
    pub only_six: bool,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// The user, for SO_REUSEPORT.
    pub uid: u32,
    /// It takes connections.
    pub listening: bool,
    /// The one address that a UDP socket takes datagrams from.
    pub peer: Option<InternetAddress>,
}

/// An address that a program gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketAddress {
    /// Of an AF_UNIX socket: where its name led.
    Unix(UnixPlace),
    /// Of any other family: the bytes of the `struct sockaddr`, not looked at.
    Other(Vec<u8>),
}

/// struct ucred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixCredentials {
    /// Process id of the sender.
    pub pid: u32,
    /// Effective user id of the sender, unless it gave another of its own (SCM_CREDENTIALS).
    pub uid: u32,
    /// Effective group id of the sender, unless it gave another of its own.
    pub gid: u32,
}

/// What programs have set of a socket's options (setsockopt(2)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketSettings {
    /// Level, name and value.
    pub values: Vec<(u32, u32, i32)>,
    /// Which control messages are wanted, one bit each; and SO_OOBINLINE.
    pub wishes: u32,
    /// SO_TIMESTAMP or its kin, whichever is set; 0: none.
    pub stamp: u32,
    /// SO_RCVLOWAT less one.
    pub least: i32,
    /// SO_SNDBUF and SO_RCVBUF as they are told; 0: the default.
    pub buffers: [i32; 2],
    /// SO_LINGER: seconds.
    pub linger: Option<i32>,
    /// SO_RCVTIMEO and SO_SNDTIMEO, in ns; 0: for ever.
    pub timeouts: [u64; 2],
    /// TCP_MAXSEG; 0: not set.
    pub segment: i32,
    /// TCP_CONGESTION, by its place among those known.
    pub algorithm: u32,
}

/// What /proc/net tells of a socket of any family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketInfo {
    /// As in `struct tcp_info`; a datagram socket or one of AF_UNIX is ESTABLISHED with a peer, and CLOSE without.
    pub state: u8,
    /// Bytes to be read. Of a listener: connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes that the other side has not read. Of a listener: how many may wait.
    pub send_queue: u32,
    /// Its owner.
    pub uid: u32,
    /// Its inode number; 0: nobody has a descriptor of it yet.
    pub inode: u64,
    /// SHUT_RD (1), SHUT_WR (2).
    pub shut: u8,
}

/// A socket in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedSocket {
    /// What every socket has.
    pub info: SocketInfo,
    /// Where it is bound, and to whom.
    pub ends: ListedEnds,
}

/// What each family has of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ListedEnds {
    /// AF_INET, AF_INET6.
    Internet {
        /// getsockname(2) and getpeername(2).
        ends: [InternetAddress; 2],
        /// IPV6_V6ONLY.
        only_six: bool,
    },
    /// AF_UNIX.
    Unix {
        /// SOCK_*.
        kind: u8,
        /// `sun_path` as bound.
        name: Vec<u8>,
        /// Device and inode number of that path.
        place: Option<((u32, u32), u64)>,
        /// The inode number of the other end, if that is of the same kernel.
        peer: Option<u64>,
    },
}

/// A control message (`struct cmsghdr`) that brings neither descriptors nor credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlMessage {
    /// SOL_SOCKET and so on.
    pub level: u32,
    /// SCM_TIMESTAMP, IP_PKTINFO and so on.
    pub kind: u32,
    /// What follows the header.
    pub data: Vec<u8>,
}

/// What the headers of a datagram say beside where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramHeader {
    /// The address that it was sent to, as [`InternetAddress::ip`] has it.
    pub to: u128,
    /// The port that it was sent to.
    pub port: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
}

/// What few messages bring, or say about themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageExtra {
    /// MSG_OOB: the last byte is urgent.
    pub urgent: bool,
    /// Of a datagram of AF_INET or AF_INET6 on its way between kernels.
    pub datagram: Option<DatagramHeader>,
    /// Control messages: what the sender gave, or what the receiver has asked for.
    pub control: Vec<ControlMessage>,
    /// SO_PASSPIDFD: the process that a pidfd is to be made for.
    pub process: Option<u32>,
    /// Of a received message: MSG_OOB, MSG_ERRQUEUE, MSG_TRUNC.
    pub flags: u32,
}

/// What one sendmsg sends, or one recvmsg receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketMessage<F> {
    /// The data. Empty while it travels in lent frames.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// SCM_RIGHTS.
    pub files: Vec<F>,
    /// SCM_CREDENTIALS: given by a privileged sender, or filled in.
    pub credentials: Option<UnixCredentials>,
    /// The other side's address: `sun_path`, or of any other family the whole `struct sockaddr`; for datagrams, where to or where from.
    pub name: Vec<u8>,
    /// MSG_TRUNC: the datagram was longer; this is how long.
    pub full_length: u64,
    /// How many descriptors the sender's user may have in messages; of one that was received 0.
    pub most_in_flight: u64,
    /// What few messages have.
    pub extra: Option<Box<MessageExtra>>,
}

impl<F> SocketMessage<F> {
    /// MSG_OOB: its last byte is urgent.
    pub fn is_urgent(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.urgent)
    }

    /// The control messages that it brings.
    pub fn control(&self) -> &[ControlMessage] {
        self.extra.as_ref().map_or(&[], |extra| &extra.control)
    }
}

impl<F> Default for SocketMessage<F> {
    fn default() -> Self {
        SocketMessage {
            bytes: Vec::new(),
            files: Vec::new(),
            credentials: None,
            name: Vec::new(),
            full_length: 0,
            most_in_flight: 0,
            extra: None,
        }
    }
}

/// A page of one kernel's part of the graph of AF_UNIX sockets that hold references to each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketGraphPage {
    /// How many nodes the kernel's part of the graph has, on all pages.
    pub nodes: u32,
    /// Nodes and edges: the entries about a socket follow its `Socket` or `StandIn`.
    pub entries: Vec<SocketGraphEntry>,
    /// Where the next page begins; None: this is the last.
    pub next: Option<(u32, u32)>,
}

/// An entry of a [`SocketGraphPage`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum SocketGraphEntry {
    /// A socket of the kernel. The entries that follow are about it.
    Socket {
        /// The socket's number in this survey.
        node: u32,
        /// The number of its [`FileRef`]; 0: no other kernel knows it.
        id: u64,
    },
    /// Another kernel has references to it.
    Lent {
        /// The kernel that has the references.
        holder: KernelId,
        /// How many it has.
        count: u64,
    },
    /// The socket that this entry follows holds a reference to the node of this number.
    Holds(u32),
    /// A stand-in for another kernel's socket.
    StandIn {
        /// Its number in this survey.
        node: u32,
        /// The socket it stands for.
        file: FileRef,
        /// References that this stand-in has.
        count: u64,
    },
}

/// The calls on sockets, as a socket takes them. `F` is how files are named (see [`Control`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SocketControl<F> {
    /// bind(2).
    Bind {
        /// What other sockets will find it by; None: it gets an abstract name of its own (autobind).
        place: Option<SocketAddress>,
        /// `sun_path` as getsockname tells it; an abstract name begins with a zero byte.
        name: Vec<u8>,
    },
    /// listen(2).
    Listen {
        /// How many connections may wait to be accepted; capped as Linux caps it (somaxconn).
        backlog: i32,
    },
    /// accept4(2).
    Accept {
        /// SOCK_NONBLOCK and SOCK_CLOEXEC, as flags of the new file.
        flags: OpenFlags,
        /// Who asks is another kernel, and has this end (its number there) for the connection.
        end: Option<(KernelId, u64)>,
    },
    /// The only program that has this end of a connection is on the kernel that asks; answered with [`ControlAnswer::End`]. EBUSY: it can't
    /// move now, or not at all.
    Move {
        /// The kernel that asks, and the number there of the end that takes over.
        end: (KernelId, u64),
        /// So many references it has.
        references: u64,
        /// So many entries of epolls that move, too, watch the file.
        watchers: u32,
    },
    /// To what an end has left where it was: the end was closed, before the other side closed. So the port that was kept there is in TIME_WAIT.
    ClosedFirst,
    /// connect(2).
    Connect {
        /// The other socket; None: dissolve the association of a datagram socket (AF_UNSPEC; only of an AF_UNIX socket).
        place: Option<SocketAddress>,
    },
    /// shutdown(2).
    Shutdown {
        /// SHUT_RD 0, SHUT_WR 1, SHUT_RDWR 2.
        how: u32,
    },
    /// sendmsg(2). Answered with the bytes sent.
    Send {
        /// The receiver of a datagram; None: the peer.
        place: Option<SocketAddress>,
        /// Data, files and credentials.
        message: SocketMessage<F>,
        /// MSG_*.
        flags: u32,
    },
    /// Asked for a thread of another kernel that waits in sendmsg(2) on an AF_UNIX datagram socket: waits until a datagram may find room.
    AwaitRoom {
        /// The receiver; None: the peer.
        place: Option<SocketAddress>,
        /// The datagram has so many bytes.
        bytes: u64,
        /// Who sends it, and is to pay for it.
        sender: UnixCredentials,
    },
    /// recvmsg(2).
    Receive {
        /// Room for so many bytes.
        bytes: u64,
        /// MSG_*.
        flags: u32,
    },
    /// getsockname(2): `sun_path`, or of any other family the whole `struct sockaddr`.
    Name,
    /// getpeername(2): likewise. ENOTCONN without a peer.
    PeerName,
    /// getsockopt(2).
    GetOption {
        /// SOL_SOCKET and so on.
        level: u32,
        /// SO_*.
        name: u32,
    },
    /// setsockopt(2).
    SetOption {
        /// SOL_SOCKET and so on.
        level: u32,
        /// SO_*.
        name: u32,
        /// The bytes at `optval`.
        value: Vec<u8>,
    },
}

/// What a [`Control`] answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlAnswer<F> {
    /// It was done, and there is nothing to tell.
    Done,
    /// A size, a process id or a count of bytes, as the operation says.
    Number(i64),
    /// A socket's name or the value of an option.
    Bytes(Vec<u8>),
    /// A new file: an accepted connection, or the other side of a pseudo-terminal.
    File(F),
    /// Time left and interval.
    Timer {
        /// ns until it expires; 0: it is disarmed.
        value: u64,
        /// ns between further expirations; 0: it expires once.
        interval: u64,
    },
    /// What epoll_wait found.
    Events {
        /// The `struct epoll_event`s to report; none if nothing is ready now.
        ready: Vec<EpollInterest>,
        /// The signals of which one more may make a signalfd ready for the caller.
        awaited: SignalSet,
    },
    /// What recvmsg received.
    Message(SocketMessage<F>),
    /// A connection's end, for the one that the asking kernel has made.
    End(Box<MovedEnd<F>>),
}
