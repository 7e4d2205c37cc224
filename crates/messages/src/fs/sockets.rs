//! Sockets of several kernels: names and ports, connections, datagrams, and sockets that hold each other.

use super::{
    InternetAddress, InternetEnds, ListedSocket, Opened, PortClaim, SocketAttached, SocketChange, SocketCredit,
    SocketGraphPage, SocketMessage, UnixCredentials, UnixPlace,
};
use abi::Caller;
use alloc::vec::Vec;
use machine::{errno::Result, Frame, KernelId};

messages! {
    "sockets" 0x580;

    /// bind: a socket of the sender wants a name. The receiver keeps the names of AF_UNIX. EADDRINUSE: another socket has it.
    unix_claim: UnixClaim {
        /// The name.
        place: UnixPlace,
        /// Number of the socket at the sender.
        serial: u64,
    } -> Result<()>, Low;

    /// A bound socket is gone. The kernel that keeps the names frees its name.
    unix_unbind: UnixUnbind {
        /// The name. It stays taken if another socket has it by now.
        place: UnixPlace,
        /// Number of the socket at the sender.
        serial: u64,
    } -> (), Low;

    /// Asks the kernel of a socket whether it is still bound.
    unix_bound: UnixBound {
        /// Number of the socket at the receiver.
        serial: u64,
    } -> bool, Low;

    /// Asks the kernel that keeps the names which socket has a name. Answered with the socket's kernel and number there. ECONNREFUSED: none has.
    unix_find: UnixFind {
        /// The name.
        place: UnixPlace,
    } -> Result<(KernelId, u64)>, Low;

    /// connect from another kernel: the listener's kernel makes the end that will be accepted. EAGAIN: the backlog is full.
    unix_attach: UnixAttach {
        /// Number of the listener at the receiver.
        serial: u64,
        /// SOCK_STREAM or SOCK_SEQPACKET, which must be the listener's.
        kind: u32,
        /// Number of the connecting end at the sender.
        end: u64,
        /// `sun_path` of the client, for getpeername.
        name: Vec<u8>,
        /// Instead, of a connection by TCP.
        ends: Option<InternetEnds>,
        /// Who makes the system call.
        caller: Caller,
    } -> Result<SocketAttached>, Low;

    /// What a connection's end has sent to the other, on another kernel, within its window; `sent` bytes of it are in frames, which stay
    /// lent until a credit says that all of it was received.
    socket_send: SocketSend {
        /// Number of the receiving end at the receiver.
        to: u64,
        /// Number of the sending end at the sender.
        from: u64,
        /// What the other end may send.
        credit: SocketCredit,
        /// The data, and what comes with it.
        message: SocketMessage<Opened>,
        /// Frames of the sender; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Bytes of it that are in `frames`.
        sent: u32,
    } -> (), Low;

    /// A program has received what a connection's other end has sent: that may send more.
    socket_credit: SocketCredited {
        /// Number of the sending end at the receiver.
        to: u64,
        /// What it may send.
        credit: SocketCredit,
    } -> (), Low;

    /// A connection's end wants to send more than its window allows. Answered with the window, which has grown if it could, and with how
    /// many bytes nobody has received yet. If that is not enough a [`SocketCredited`] follows as soon as there is room. ENOBUFS: there never
    /// will be so much.
    socket_want: SocketWant {
        /// Number of the receiving end at the receiver.
        to: u64,
        /// What it is to have room for, as [`SocketCredit`] counts.
        room: u64,
        /// The sender's SO_SNDBUF: no window need be larger.
        buffer: u64,
    } -> Result<(SocketCredit, u64)>, Low;

    /// A connection was accepted on another kernel: its other end is there from now on. Answered with how many messages were sent to the
    /// one that moves, so that it knows when it has all. ECONNRESET: closed.
    socket_move: SocketMove {
        /// Number of the end that stays, at the receiver.
        to: u64,
        /// Where the other end is now, and its number there.
        end: (KernelId, u64),
    } -> Result<u64>, Low;

    /// A connection's other end was shut, closed or named.
    socket_changed: SocketChanged {
        /// Number of the end at the receiver.
        to: u64,
        /// What has changed.
        change: SocketChange,
    } -> (), Low;

    /// A connection's end is closed, and frames or descriptors that it has sent are not known to have been received. Answered when the frames
    /// were copied and the descriptors received, or the other end is closed, too.
    socket_received: SocketReceived {
        /// Number of the other end at the receiver.
        to: u64,
    } -> (), Low;

    /// connect of a datagram socket: asks for the other socket's name. EPROTOTYPE: it is of another kind.
    unix_meet: UnixMeet {
        /// Number of the other socket at the receiver.
        serial: u64,
        /// SOCK_* of the sender's socket.
        kind: u32,
    } -> Result<Vec<u8>>, Low;

    /// bind, listen or connect: a socket of the sender wants a port, or wants something else of the port that it has. Asked of the kernel
    /// that keeps the port. EADDRINUSE.
    port_claim: PortClaiming {
        /// What it wants.
        claim: PortClaim,
        /// Number of the socket at the sender.
        serial: u64,
    } -> Result<()>, Low;

    /// A socket has a port no longer.
    port_release: PortRelease {
        /// IPPROTO_TCP or IPPROTO_UDP.
        protocol: u8,
        /// The port.
        port: u16,
        /// Number of the socket at the sender.
        serial: u64,
        /// TIME_WAIT: until then (ns since the machine started) others may have it only with SO_REUSEADDR. 0: at once.
        until: u64,
    } -> (), Low;

    /// What a socket wants of a port by now, asked of its own kernel: what it has sent about it has come when it answers. None: it has it no longer.
    port_held: PortHeld {
        /// IPPROTO_TCP or IPPROTO_UDP.
        protocol: u8,
        /// The port.
        port: u16,
        /// Number of the socket at the receiver.
        serial: u64,
    } -> Option<PortClaim>, Low;

    /// Which socket takes what comes for a port: its kernel and number there. ECONNREFUSED.
    port_find: PortFind {
        /// IPPROTO_TCP or IPPROTO_UDP.
        protocol: u8,
        /// Where it goes.
        to: InternetAddress,
        /// Where it comes from.
        from: InternetAddress,
    } -> Result<(KernelId, u64)>, Low;

    /// socket(2) of ICMP: asks the kernel that has /proc for net.ipv4.ping_group_range. Answered with the first and the last group.
    ping_groups: PingGroups {} -> (u32, u32), Low;

    /// Delivers a datagram to a socket of the receiver. EAGAIN: it has no room. Answered with the bytes taken.
    unix_deliver: UnixDeliver {
        /// Number of the receiving socket at the receiver.
        serial: u64,
        /// SOCK_* of the sending socket.
        kind: u32,
        /// The datagram.
        message: SocketMessage<Opened>,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Bytes of it that are in `frames`.
        sent: u32,
    } -> Result<u64>, Low;

    /// Waits until a socket of the receiver has room: a listener for a connection, another one for a datagram. ECONNREFUSED: it is gone.
    unix_room: UnixRoom {
        /// Number of the socket at the receiver.
        serial: u64,
        /// The datagram has so many bytes.
        bytes: u64,
        /// Who sends it, and is to pay for it.
        sender: UnixCredentials,
    } -> Result<()>, Low;

    /// Asks for a part of the receiver's sockets, for /proc/net and sock_diag: those with inode numbers above `from`. Also answered with the `from`
    /// of the next part; None: there are no more.
    socket_list: SocketsListed {
        /// IPPROTO_* and whether AF_INET6; None: of AF_UNIX.
        protocol: Option<(u8, bool)>,
        /// The last inode number of the part before, or 0.
        from: u64,
    } -> (Vec<ListedSocket>, Option<u64>), Low;

    /// Tells the kernel that keeps the names that sockets of the sender and of other kernels may hold each other in a circle. The receiver then
    /// surveys all kernels ([`UnixSurvey`]).
    unix_suspect: UnixSuspect {} -> (), Low;

    /// Asks for a page of a survey: those sockets that others hold and of which the receiver can't decide alone whether a program can reach them. The
    /// first page, (0, 0), makes the survey. EAGAIN: the receiver does not have this survey any more.
    unix_survey: UnixSurvey {
        /// The survey's number, by which its other messages name it.
        survey: u64,
        /// Where the page begins: [`SocketGraphPage::next`] of the page before.
        from: (u32, u32),
    } -> Result<SocketGraphPage>, Low;

    /// The receiver answers at once. Its answer shows that it has received all that the sender has told it of references before.
    unix_flush: UnixFlush {} -> (), Low;

    /// Asks which of these nodes may have become reachable since the survey: somebody may have got a reference to them.
    unix_gained: UnixGained {
        /// The number of the survey.
        survey: u64,
        /// Nodes of the survey, as its entries number them.
        nodes: Vec<u32>,
    } -> Result<Vec<u32>>, Low;

    /// Nobody can reach these nodes of a survey. The receiver empties their inboxes.
    unix_empty: UnixEmpty {
        /// The number of the survey.
        survey: u64,
        /// Nodes of the survey, as its entries number them.
        nodes: Vec<u32>,
    } -> Result<()>, Low;

    /// The receiver forgets a survey.
    unix_forget_survey: UnixForgetSurvey {
        /// The number of the survey.
        survey: u64,
    } -> (), Low;
}
