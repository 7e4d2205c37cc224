//! Sending and receiving (man 2 send, recv, sendmmsg, recvmmsg).

use super::{
    address::{check_address, find_place, put_address, put_address_within, read_address, Address, LARGEST},
    control, on_socket, rights, socket_type, takes_control, AF_NETLINK, SOCK_SEQPACKET,
};
use crate::{
    call::Call,
    files::{
        poll::Deadline,
        room, transfer,
        vector::{self, gather, scatter, single, total, Segment, MAX_RW_COUNT},
    },
};
use abi::signal::Signal;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    control::{
        ControlAnswer, ControlMessage, MessageExtra, SocketAddress, SocketControl, SocketMessage, UnixCredentials,
    },
    socket::{MSG_GOES_ON, MSG_PROBES},
    File,
};
use machine::{errno::Result, Errno, UserAddr, PAGE_SIZE};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const MSG_CTRUNC: u32 = 0x8;
const MSG_TRUNC: u32 = 0x20;
const MSG_DONTWAIT: u32 = 0x40;
const MSG_WAITALL: u32 = 0x100;
const MSG_PEEK: u32 = 0x2;
const MSG_NOSIGNAL: u32 = 0x4000;
const MSG_WAITFORONE: u32 = 0x1_0000;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;
const MSG_CMSG_COMPAT: u32 = 0x8000_0000;
const MSG_OOB: u32 = 1;
const MSG_ERRQUEUE: u32 = 0x2000;

/// Bytes of one message from or to a stream; longer transfers are several.
const STEP: usize = 64 * 1024;
/// Longest datagram that is looked at (more than Linux's largest send buffer); the socket says EMSGSIZE.
const DATAGRAM_MAX: usize = 512 * 1024;
/// Most control data.
const CONTROL_MAX: u64 = 20480;
const VECTOR_MAX: u32 = 1024;

/// `struct msghdr`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    name: u64,
    name_len: u32,
    padding: u32,
    vector: u64,
    vector_len: u64,
    control: u64,
    control_len: u64,
    flags: u32,
    tail: u32,
}

/// `struct mmsghdr` is a header, the bytes moved, and padding.
const MANY: usize = size_of::<Header>() + 8;

/// What is sent beside the bytes.
#[derive(Default)]
struct Along {
    place: Option<SocketAddress>,
    files: Vec<Arc<dyn File>>,
    credentials: Option<UnixCredentials>,
    control: Vec<ControlMessage>,
}

fn is_stream(file: &dyn File) -> Result<bool> {
    Ok(socket_type(file)?.is_stream())
}

/// Sends all of `segments`. A stream goes in steps, files and credentials with the first; what was sent
/// before an error counts.
async fn send(call: &Call<'_>, file: &Arc<dyn File>, segments: &[Segment], along: Along, flags: u32) -> Result<u64> {
    let stream = is_stream(&**file)?;
    let Along { place, mut files, mut credentials, control: controls } = along;
    let mut extra =
        (!controls.is_empty()).then(|| Box::new(MessageExtra { control: controls, ..MessageExtra::default() }));
    let most_in_flight = match files.is_empty() {
        true => 0,
        false => rights::most_in_flight(call),
    };
    let (wanted, space) = (total(segments), call.space());
    if !stream && wanted > DATAGRAM_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut done = 0;
    loop {
        let step = if stream { (wanted - done).min(STEP) } else { wanted };
        // Kept as long as the sender waits.
        let (mut bytes, _charge) = match transfer::charged(call, step, None) {
            Err(_) if stream => transfer::charged(call, step.min(PAGE_SIZE), None)?,
            bytes => bytes?,
        };
        let step = bytes.len();
        let (copied, error) = gather(&space, segments, done, &mut bytes).await;
        if copied < step {
            if done > 0 {
                return Ok(done as u64);
            }
            // Whether it could be sent comes before what is to be sent.
            let flags = match stream {
                true => flags & !MSG_OOB,
                false if i32::from(socket_type(&**file)?.family) == AF_NETLINK => return Err(error),
                false => flags | MSG_PROBES,
            };
            let nothing = SocketControl::Send { place, message: SocketMessage::default(), flags };
            control(call, file, nothing).await?;
            return Err(error);
        }
        let message = SocketMessage {
            bytes,
            files: core::mem::take(&mut files),
            credentials: credentials.take(),
            most_in_flight,
            extra: extra.take(),
            ..SocketMessage::default()
        };
        // The last byte of all is the urgent one.
        let flags = if done + step < wanted { flags & !MSG_OOB } else { flags };
        let operation = SocketControl::Send { place: place.clone(), message, flags };
        match control(call, file, operation).await {
            Ok(ControlAnswer::Number(sent)) => done += sent as usize,
            Ok(_) => return Err(Errno::EIO),
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => {
                if error == Errno::EPIPE && stream && flags & MSG_NOSIGNAL == 0 {
                    call.signal_self(Signal::PIPE).await;
                }
                return Err(error);
            }
        }
        if !stream || done >= wanted {
            return Ok(done as u64);
        }
    }
}

async fn destination(call: &Call<'_>, file: &Arc<dyn File>, at: UserAddr, len: u64) -> Result<Option<SocketAddress>> {
    let kind = socket_type(&**file)?;
    // An address of no length is too short for UDP, and none for all others.
    if at.is_null() || len as u32 == 0 && (kind.is_stream() || !takes_control(&**file)) {
        return Ok(None);
    }
    if kind.is_stream() && super::is_internet(&**file) || u32::from(kind.kind) == SOCK_SEQPACKET {
        // TCP and sockets of packets do not look at it.
        return check_address(call, at, len).await.map(|()| None);
    }
    if is_stream(&**file)? {
        // Whatever it says: a stream goes where it is connected to.
        check_address(call, at, len).await?;
        return Err(match control(call, file, SocketControl::PeerName).await {
            Ok(_) => Errno::EISCONN,
            Err(_) => Errno::EOPNOTSUPP,
        });
    }
    match read_address(call, socket_type(&**file)?, at, len).await? {
        Address::Named(name) => Ok(Some(find_place(call, &name).await?)),
        Address::Other(bytes) => Ok(Some(SocketAddress::Other(bytes))),
        Address::Unnamed | Address::Unspecified => Err(Errno::EINVAL),
    }
}

pub(crate) async fn sendto(call: &mut Call<'_>) -> Result<u64> {
    // Cut first, unlike a write: a length that leads out of the address space is none.
    let segments = single(call.pointer(1), call.arg(2).min(MAX_RW_COUNT as u64))?;
    let file = call.file(0).await?;
    let sending = async {
        let place = destination(call, &file, call.pointer(4), call.arg(5)).await?;
        let flags = call.arg(3) as u32 & !MSG_CMSG_COMPAT;
        send(call, &file, &segments, Along { place, ..Along::default() }, flags).await
    };
    on_socket(&file, sending).await
}

/// A flag of the 32-bit calls, which programs may not name.
fn check_compat(flags: u64) -> Result<u32> {
    match flags as u32 & MSG_CMSG_COMPAT {
        0 => Ok(flags as u32),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) async fn sendmsg(call: &mut Call<'_>) -> Result<u64> {
    let flags = check_compat(call.arg(2))?;
    let file = call.file(0).await?;
    on_socket(&file, send_one(call, &file, call.pointer(1), flags)).await
}

async fn header_at(call: &Call<'_>, at: UserAddr) -> Result<(Header, Vec<Segment>)> {
    let mut header: Header = call.get(at).await?;
    if header.name != 0 && header.name_len > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    // Cut, unlike sendto's.
    header.name_len = header.name_len.min(LARGEST as u32);
    if header.vector_len > vector::IOV_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let segments = vector::vector(call, UserAddr(header.vector), header.vector_len).await?;
    Ok((header, segments))
}

async fn send_one(call: &Call<'_>, file: &Arc<dyn File>, at: UserAddr, flags: u32) -> Result<u64> {
    let (header, segments) = header_at(call, at).await?;
    if header.control_len > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    let control = call.bytes(UserAddr(header.control), header.control_len as usize, CONTROL_MAX as usize).await?;
    // What it carries comes before where it goes.
    let mut along = Along::default();
    match takes_control(&**file) {
        true => along.control = rights::for_internet(&control)?,
        false => (along.files, along.credentials) = rights::open(call, &control).await?,
    }
    if header.name_len > 0 {
        along.place = destination(call, file, UserAddr(header.name), u64::from(header.name_len)).await?;
    }
    send(call, file, &segments, along, flags).await
}

pub(crate) async fn sendmmsg(call: &mut Call<'_>) -> Result<u64> {
    let flags = check_compat(call.arg(3))?;
    let file = call.file(0).await?;
    let count = (call.arg(2) as u32).min(VECTOR_MAX) as usize;
    if count == 0 {
        return socket_type(&*file).map(|_| 0);
    }
    let mut done = 0;
    while done < count {
        let at = call.pointer(1).add(done * MANY);
        match on_socket(&file, send_one(call, &file, at, flags)).await {
            Ok(sent) => call.put(at.add(size_of::<Header>()), &(sent as u32)).await?,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += 1;
        call.pause().await?;
    }
    Ok(done as u64)
}

/// Receives into `segments`: the message without its bytes, and how many of them were copied.
async fn receive(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    segments: &[Segment],
    flags: u32,
) -> Result<(SocketMessage, usize)> {
    let (wanted, space) = (total(segments), call.space());
    // TCP throws away what is received for its length alone.
    let discards = flags & MSG_TRUNC != 0 && takes_control(&**file) && is_stream(&**file)?;
    let mut first: Option<SocketMessage> = None;
    let mut done = 0;
    loop {
        let room = match flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE) {
            0 if !discards => {
                let (left, dont_wait) = (wanted - done, flags & MSG_DONTWAIT != 0);
                room::for_bytes(call, file, segments, done, left, dont_wait, async { is_stream(&**file) }).await
            }
            _ => Ok(wanted - done),
        };
        let received = match room {
            Ok(room) => {
                let flags = if first.is_some() { flags | MSG_GOES_ON } else { flags };
                control(call, file, SocketControl::Receive { bytes: room as u64, flags }).await
            }
            Err(error) => Err(error),
        };
        let mut message = match received {
            Ok(ControlAnswer::Message(message)) => message,
            Ok(_) => return Err(Errno::EIO),
            Err(error) => match first {
                Some(first) => return Ok((first, done)),
                None => return Err(error),
            },
        };
        let bytes = core::mem::take(&mut message.bytes);
        let (copied, error) = match discards {
            true => (bytes.len(), Errno::EFAULT),
            false => scatter(&space, segments, done, &bytes).await,
        };
        if copied < bytes.len() {
            return Err(error);
        }
        done += copied;
        let (over, brings_files) = (bytes.is_empty(), !message.files.is_empty());
        match &mut first {
            None => first = Some(message),
            // What it says of what is left to be read.
            Some(first) => first.extra = message.extra.or(first.extra.take()),
        }
        // MSG_WAITALL asks a stream for all; the end, a message with files and a peek end it.
        let all = flags & MSG_WAITALL != 0 && flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE) == 0;
        if !all || over || brings_files || done >= wanted || !is_stream(&**file)? {
            return first.map(|first| (first, done)).ok_or(Errno::EIO);
        }
    }
}

/// What recv(2) returns: MSG_TRUNC asks how long the datagram was.
fn length(message: &SocketMessage, copied: usize, flags: u32) -> u64 {
    match flags & MSG_TRUNC {
        0 => copied as u64,
        _ => message.full_length.max(copied as u64),
    }
}

pub(crate) async fn recvfrom(call: &mut Call<'_>) -> Result<u64> {
    // Cut first, unlike a read: a length that leads out of the address space is none.
    let segments = single(call.pointer(1), call.arg(2).min(MAX_RW_COUNT as u64))?;
    let file = call.file(0).await?;
    let flags = call.arg(3) as u32;
    let (message, copied) = receive(call, &file, &segments, flags).await?;
    if !call.pointer(4).is_null() {
        match message.name.is_empty() {
            // A sender without a name.
            true => call.put(call.pointer(5), &0u32).await?,
            false => put_address(call, socket_type(&*file)?, call.pointer(4), call.pointer(5), &message.name).await?,
        }
    }
    Ok(length(&message, copied, flags))
}

pub(crate) async fn recvmsg(call: &mut Call<'_>) -> Result<u64> {
    let flags = check_compat(call.arg(2))?;
    let file = call.file(0).await?;
    on_socket(&file, receive_one(call, &file, call.pointer(1), flags)).await
}

async fn receive_one(call: &Call<'_>, file: &Arc<dyn File>, at: UserAddr, flags: u32) -> Result<u64> {
    let (mut header, segments) = header_at(call, at).await?;
    let (message, copied) = receive(call, file, &segments, flags & !MSG_CMSG_CLOEXEC).await?;
    let room = header.control_len.min(CONTROL_MAX) as usize;
    let (control, cut) = rights::install(call, &message, room, flags & MSG_CMSG_CLOEXEC != 0).await?;
    call.space().write(UserAddr(header.control), &control).await?;
    if header.name != 0 {
        header.name_len = match message.name.is_empty() {
            true => 0,
            false => {
                put_address_within(
                    call,
                    socket_type(&**file)?,
                    UserAddr(header.name),
                    header.name_len as usize,
                    &message.name,
                )
                .await?
            }
        };
    }
    header.control_len = control.len() as u64;
    header.flags = flags & MSG_CMSG_CLOEXEC;
    if message.full_length > copied as u64 && !is_stream(&**file)? {
        header.flags |= MSG_TRUNC;
    }
    if cut {
        header.flags |= MSG_CTRUNC;
    }
    header.flags |= message.extra.as_ref().map_or(0, |extra| extra.flags);
    call.put(at, &header).await?;
    Ok(length(&message, copied, flags))
}

pub(crate) async fn recvmmsg(call: &mut Call<'_>) -> Result<u64> {
    let mut flags = check_compat(call.arg(3))?;
    let deadline = Deadline::from_timespec(call, call.pointer(4)).await?;
    let file = call.file(0).await?;
    let count = (call.arg(2) as u32).min(VECTOR_MAX) as usize;
    if count == 0 {
        return socket_type(&*file).map(|_| 0);
    }
    let mut done = 0;
    while done < count {
        let at = call.pointer(1).add(done * MANY);
        match on_socket(&file, receive_one(call, &file, at, flags & !MSG_WAITFORONE)).await {
            Ok(received) => call.put(at.add(size_of::<Header>()), &(received as u32)).await?,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += 1;
        call.pause().await?;
        if flags & MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        // Looked at only after each message, as Linux does (man 2 recvmmsg, BUGS).
        if deadline.left(call) == Some(0) {
            break;
        }
    }
    Ok(done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_linux_layout() {
        assert_eq!((size_of::<Header>(), MANY), (56, 64));
        assert_eq!(core::mem::offset_of!(Header, control), 32);
    }
}
