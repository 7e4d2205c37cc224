//! Sockets (man 7 socket, unix, ip, ipv6, netlink). Any other family than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK answers EAFNOSUPPORT.

mod address;
pub(crate) mod interfaces;
pub(crate) mod message;
mod rights;
pub(crate) mod timeout;

use crate::call::Call;
use address::{put_address, read_address, Address};
use alloc::{sync::Arc, vec::Vec};
use fs::{
    control::{Control, ControlAnswer, SocketAddress, SocketControl, SocketType},
    network::{
        list::SocketLists,
        netlink::{NetlinkPorts, NetlinkSocket, NetlinkType},
    },
    socket::{NetNamespace, Protocol, Socket, SocketKind},
    File, OpenFlags,
};
use machine::{errno::Result, Errno};

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_NETLINK: i32 = 16;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_SEQPACKET: u32 = 5;
const IPPROTO_ICMP: i32 = 1;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;
const IPPROTO_ICMPV6: i32 = 58;
const IPPROTO_MAX: i32 = 263;
const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_CLOEXEC: u32 = 0o2000000;
const TYPE_MASK: u32 = 0xf;
/// Types there are in any family, and families.
const SOCK_MAX: u32 = 11;
const AF_MAX: i32 = 46;
const SOL_SOCKET: u32 = 1;
const IPPROTO_IP: u32 = 0;
const LEVEL_TCP: u32 = 6;
const LEVEL_UDP: u32 = 17;
const IPPROTO_IPV6: u32 = 41;
const SO_PEERNAME: u32 = 28;
const SO_PEERCRED: u32 = 17;
const SO_PEERGROUPS: u32 = 59;
const SO_PEERPIDFD: u32 = 77;
/// Longest option value.
const OPTION_MAX: usize = 4096;

/// Runs a socket operation. ENOTSOCK for a file of another kind, whatever that kind makes of the request.
async fn control(call: &Call<'_>, file: &Arc<dyn File>, operation: SocketControl) -> Result<ControlAnswer> {
    socket_type(&**file)?;
    let caller = call.caller();
    let waits = match operation {
        SocketControl::Receive { .. } | SocketControl::Accept { .. } => Some(timeout::Direction::Receive),
        SocketControl::Send { .. } => Some(timeout::Direction::Send),
        SocketControl::Connect { .. } if takes_control(&**file) => Some(timeout::Direction::Connect),
        // Of AF_UNIX a connect whose time is over is as one that finds no room.
        SocketControl::Connect { .. } => Some(timeout::Direction::Send),
        _ => None,
    };
    let wait = file.control(&caller, Control::Socket(operation));
    match waits {
        Some(direction) => timeout::wait(call, file, direction, wait).await,
        None => call.wait_for(file, wait).await,
    }
}

/// Whatever else is wrong with the call: that the file is no socket is told first.
async fn on_socket<T>(file: &Arc<dyn File>, call: impl core::future::Future<Output = Result<T>>) -> Result<T> {
    socket_type(&**file)?;
    call.await
}

/// Any family but AF_UNIX.
fn is_internet(file: &dyn File) -> bool {
    file.socket().is_some_and(|socket| i32::from(socket.family) != AF_UNIX)
}

/// AF_INET and AF_INET6, whose sockets look at control messages themselves.
fn takes_control(file: &dyn File) -> bool {
    file.socket().is_some_and(|socket| matches!(i32::from(socket.family), AF_INET | AF_INET6))
}

/// ENOTSOCK.
fn socket_type(file: &dyn File) -> Result<SocketType> {
    file.socket().ok_or(Errno::ENOTSOCK)
}

async fn done(call: &Call<'_>, operation: SocketControl) -> Result<u64> {
    let file = call.file(0).await?;
    control(call, &file, operation).await?;
    Ok(0)
}

/// What socket(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Unix(SocketKind),
    Internet { six: bool, protocol: Protocol },
    Netlink(NetlinkType),
}

/// Type and flags as socket(2) and socketpair(2) take them, after the checks of family and protocol.
fn kind_of(family: i32, kind: u32, protocol: i32) -> Result<(Wanted, OpenFlags)> {
    if kind & !(TYPE_MASK | SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = open_flags(kind);
    let kind = kind & TYPE_MASK;
    if (0..AF_MAX).contains(&family) && kind >= SOCK_MAX {
        return Err(Errno::EINVAL);
    }
    if !matches!(family, AF_UNIX | AF_INET | AF_INET6 | AF_NETLINK) {
        return Err(Errno::EAFNOSUPPORT);
    }
    if family == AF_NETLINK {
        return Ok((Wanted::Netlink(NetlinkType::new(kind, protocol)?), flags));
    }
    if family != AF_UNIX {
        let six = family == AF_INET6;
        return Ok((Wanted::Internet { six, protocol: internet_protocol(kind, protocol, six)? }, flags));
    }
    if protocol != 0 && protocol != AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok((Wanted::Unix(SocketKind::new(kind)?), flags))
}

/// inet_create in Linux.
fn internet_protocol(kind: u32, protocol: i32, six: bool) -> Result<Protocol> {
    if !(0..IPPROTO_MAX).contains(&protocol) {
        return Err(Errno::EINVAL);
    }
    match (kind, protocol) {
        (SOCK_STREAM, 0 | IPPROTO_TCP) => Ok(Protocol::Tcp),
        (SOCK_DGRAM, 0 | IPPROTO_UDP) => Ok(Protocol::Udp),
        (SOCK_DGRAM, IPPROTO_ICMP) if !six => Ok(Protocol::Icmp),
        (SOCK_DGRAM, IPPROTO_ICMPV6) if six => Ok(Protocol::Icmp6),
        (SOCK_STREAM | SOCK_DGRAM | SOCK_RAW, _) => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// SOCK_NONBLOCK and SOCK_CLOEXEC have the values of their O_ kin.
fn open_flags(flags: u32) -> OpenFlags {
    OpenFlags::from_bits_retain(flags & (SOCK_NONBLOCK | SOCK_CLOEXEC))
}

pub(crate) async fn socket(call: &mut Call<'_>) -> Result<u64> {
    let (kind, flags) = kind_of(call.int(0), call.arg(1) as u32, call.int(2))?;
    let names = call.system().extension::<NetNamespace>();
    let socket: Arc<dyn File> = match kind {
        Wanted::Unix(kind) => Socket::new(&names, &call.caller(), kind, flags),
        Wanted::Internet { six, protocol } => {
            may_have(call, protocol).await?;
            Socket::internet(&names, &call.caller(), protocol, six, flags)
        }
        Wanted::Netlink(kind) => {
            let (ports, lists) = (call.system().extension::<NetlinkPorts>(), call.system().extension::<SocketLists>());
            NetlinkSocket::new(&ports, &lists, call.account(), &call.caller(), kind, flags)
        }
    };
    call.install(socket, flags.contains(OpenFlags::CLOEXEC)).await
}

/// EACCES.
async fn may_have(call: &Call<'_>, protocol: Protocol) -> Result<()> {
    match protocol {
        Protocol::Icmp | Protocol::Icmp6 => {
            Socket::may_echo(&call.system().extension::<NetNamespace>(), &call.caller()).await
        }
        Protocol::Tcp | Protocol::Udp => Ok(()),
    }
}

pub(crate) async fn socketpair(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(1) as u32 & !(TYPE_MASK | SOCK_NONBLOCK | SOCK_CLOEXEC) == 0 {
        // The numbers are chosen and told before the sockets are made.
        call.put(call.pointer(3), &[0i32; 2]).await?;
    }
    let (kind, flags) = kind_of(call.int(0), call.arg(1) as u32, call.int(2))?;
    let kind = match kind {
        Wanted::Unix(kind) => kind,
        Wanted::Internet { protocol, .. } => {
            // Linux makes the sockets first.
            may_have(call, protocol).await?;
            return Err(Errno::EOPNOTSUPP);
        }
        Wanted::Netlink(_) => return Err(Errno::EOPNOTSUPP),
    };
    let names = call.system().extension::<NetNamespace>();
    let (a, b) = Socket::pair(&names, &call.caller(), kind, flags);
    super::pipe::install_two(call, [a, b], flags.contains(OpenFlags::CLOEXEC), call.pointer(3)).await
}

pub(crate) async fn bind(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let address = read_address(call, socket_type(&*file)?, call.pointer(1), call.arg(2)).await?;
    let (place, name) = match address {
        Address::Other(bytes) => (Some(SocketAddress::Other(bytes)), Vec::new()),
        Address::Unspecified => return Err(Errno::EINVAL),
        Address::Unnamed => (None, Vec::new()),
        Address::Named(name) => (Some(address::make_place(call, &name).await?), name),
    };
    let bound = control(call, &file, SocketControl::Bind { place, name: name.clone() }).await;
    if bound.is_err() {
        // It has a name already: the one made for it leads nowhere.
        address::unmake_place(call, &name).await;
    }
    bound.map(|_| 0)
}

pub(crate) async fn listen(call: &mut Call<'_>) -> Result<u64> {
    done(call, SocketControl::Listen { backlog: call.int(1) }).await
}

pub(crate) async fn connect(call: &mut Call<'_>) -> Result<u64> {
    // Whether the address can be read comes before what the file is, here alone.
    let file = call.file(0).await?;
    address::check_address(call, call.pointer(1), call.arg(2)).await?;
    let place = match read_address(call, socket_type(&*file)?, call.pointer(1), call.arg(2)).await? {
        Address::Other(bytes) => Some(SocketAddress::Other(bytes)),
        Address::Unspecified => None,
        Address::Unnamed => return Err(Errno::EINVAL),
        Address::Named(name) => Some(address::find_place(call, &name).await?),
    };
    control(call, &file, SocketControl::Connect { place }).await?;
    Ok(0)
}

pub(crate) async fn accept(call: &mut Call<'_>) -> Result<u64> {
    accept_with(call, 0).await
}

pub(crate) async fn accept4(call: &mut Call<'_>) -> Result<u64> {
    accept_with(call, call.arg(3) as u32).await
}

async fn accept_with(call: &Call<'_>, raw: u32) -> Result<u64> {
    let file = call.file(0).await?;
    if raw & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = open_flags(raw);
    let status = flags - OpenFlags::CLOEXEC;
    let ControlAnswer::File(accepted) =
        control(call, &file, SocketControl::Accept { flags: status, end: None }).await?
    else {
        return Err(Errno::EIO);
    };
    if !call.pointer(1).is_null() {
        // The other side may be gone already: then it has no name.
        let name = match control(call, &accepted, SocketControl::PeerName).await {
            Ok(ControlAnswer::Bytes(name)) => name,
            _ => Vec::new(),
        };
        put_address(call, socket_type(&*accepted)?, call.pointer(1), call.pointer(2), &name).await?;
    }
    call.install(accepted, flags.contains(OpenFlags::CLOEXEC)).await
}

pub(crate) async fn getsockname(call: &mut Call<'_>) -> Result<u64> {
    name(call, SocketControl::Name).await
}

pub(crate) async fn getpeername(call: &mut Call<'_>) -> Result<u64> {
    name(call, SocketControl::PeerName).await
}

async fn name(call: &Call<'_>, operation: SocketControl) -> Result<u64> {
    let file = call.file(0).await?;
    match control(call, &file, operation).await? {
        ControlAnswer::Bytes(name) => {
            put_address(call, socket_type(&*file)?, call.pointer(1), call.pointer(2), &name).await?
        }
        _ => return Err(Errno::EIO),
    }
    Ok(0)
}

pub(crate) async fn shutdown(call: &mut Call<'_>) -> Result<u64> {
    done(call, SocketControl::Shutdown { how: call.arg(1) as u32 }).await
}

pub(crate) async fn getsockopt(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let (level, name) = (call.arg(1) as u32, call.arg(2) as u32);
    let room = on_socket(&file, async {
        // The room is looked at by the options' own code.
        if !has_level(&*file, level) {
            return Ok(0);
        }
        match (call.get::<i32>(call.pointer(4)).await?, level) {
            // IPv6 takes it for a large one.
            (room @ ..0, IPPROTO_IPV6) => Ok(room as u32 as usize),
            (room, _) => usize::try_from(room).map_err(|_| Errno::EINVAL),
        }
    });
    let room = room.await?;
    if (level, name) == (SOL_SOCKET, SO_PEERNAME) {
        return peer_name(call, &file, room).await;
    }
    let asked = match (level, name) {
        (SOL_SOCKET, SO_PEERPIDFD) => SO_PEERCRED,
        _ => name,
    };
    let answer = control(call, &file, SocketControl::GetOption { level, name: asked }).await?;
    let ControlAnswer::Bytes(mut value) = answer else { return Err(Errno::EIO) };
    match (level, name) {
        (SOL_SOCKET, SO_PEERPIDFD) => value = peer_process(call, &value).await?,
        (SOL_SOCKET, SO_PEERGROUPS) if value.len() > room => {
            call.put(call.pointer(4), &(value.len() as i32)).await?;
            return Err(Errno::ERANGE);
        }
        _ => {}
    }
    if let (IPPROTO_IP, 1..4, [byte, 0, 0, 0]) = (level, room, &value[..]) {
        value = Vec::from([*byte]);
    }
    put_option(call, value, room).await
}

async fn put_option(call: &Call<'_>, mut value: Vec<u8>, room: usize) -> Result<u64> {
    value.truncate(room);
    call.put(call.pointer(4), &(value.len() as i32)).await?;
    call.space().write(call.pointer(3), &value).await?;
    Ok(0)
}

/// SO_PEERNAME is getpeername(2), but must not be asked for more than there is.
async fn peer_name(call: &Call<'_>, file: &Arc<dyn File>, room: usize) -> Result<u64> {
    let ControlAnswer::Bytes(name) = control(call, file, SocketControl::PeerName).await? else {
        return Err(Errno::EIO);
    };
    let name = address::encode(socket_type(&**file)?, &name);
    match name.len() < room {
        true => Err(Errno::EINVAL),
        false => put_option(call, name, room).await,
    }
}

/// Whether sockets of this kind have options of that level. Where they have none, the rest of the arguments is not looked at.
fn has_level(file: &dyn File, level: u32) -> bool {
    let Some(kind) = file.socket() else { return false };
    let internet = takes_control(file);
    match level {
        SOL_SOCKET => true,
        IPPROTO_IP => internet,
        LEVEL_TCP => internet && kind.is_stream(),
        LEVEL_UDP => internet && !kind.is_stream(),
        IPPROTO_IPV6 => i32::from(kind.family) == AF_INET6,
        _ => i32::from(kind.family) == AF_NETLINK,
    }
}

/// The number of a pidfd for the process in SO_PEERCRED's answer. ENODATA: there is none.
async fn peer_process(call: &Call<'_>, peer: &[u8]) -> Result<Vec<u8>> {
    let process = peer.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    if process == 0 {
        return Err(Errno::ENODATA);
    }
    let file = crate::process::pidfd::make(call.system(), machine::Pid(process), OpenFlags::empty());
    Ok((call.install(file, true).await? as i32).to_ne_bytes().to_vec())
}

pub(crate) async fn setsockopt(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let (level, name) = (call.arg(1) as u32, call.arg(2) as u32);
    let value = on_socket(&file, async {
        let len = usize::try_from(call.int(4)).map_err(|_| Errno::EINVAL)?;
        match has_level(&*file, level) {
            // IPv6 takes no value at all for a zero.
            true if level == IPPROTO_IPV6 && call.pointer(3).is_null() => Ok([0; 4][..len.min(4)].to_vec()),
            true => match call.bytes(call.pointer(3), len.min(OPTION_MAX), OPTION_MAX).await {
                // IP looks at the option first.
                Err(Errno::EFAULT) if level == IPPROTO_IP => {
                    control(call, &file, SocketControl::GetOption { level, name }).await.and(Err(Errno::EFAULT))
                }
                value => value,
            },
            false => Ok(Vec::new()),
        }
    });
    let value = value.await?;
    control(call, &file, SocketControl::SetOption { level, name, value }).await?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_type_and_protocol_are_checked() {
        let stream = Wanted::Unix(SocketKind::Stream);
        assert_eq!(kind_of(AF_UNIX, 1 | SOCK_CLOEXEC, 0), Ok((stream, OpenFlags::CLOEXEC)));
        let udp = Wanted::Internet { six: true, protocol: Protocol::Udp };
        assert_eq!(kind_of(AF_INET6, 2, 0), Ok((udp, OpenFlags::empty())));
        assert_eq!(kind_of(AF_INET, 5, 0), Err(Errno::ESOCKTNOSUPPORT));
        assert_eq!(kind_of(AF_INET, 1, 17), Err(Errno::EPROTONOSUPPORT));
        assert_eq!(kind_of(AF_INET6, 2, 1), Err(Errno::EPROTONOSUPPORT));
        assert_eq!(kind_of(3, 1, 0), Err(Errno::EAFNOSUPPORT));
        assert_eq!(kind_of(AF_UNIX, 1 << 6, 0), Err(Errno::EINVAL));
        assert_eq!(kind_of(AF_UNIX, 1, 6), Err(Errno::EPROTONOSUPPORT));
    }
}
