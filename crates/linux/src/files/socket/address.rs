//! `struct sockaddr_un`, and where a name leads. Addresses of other families pass through: the socket looks at them.

use super::AF_UNIX;
use crate::call::{Call, AT_FDCWD};
use alloc::vec::Vec;
use fs::{
    control::{SocketAddress, SocketType, UnixPlace},
    Kind, PathAnswer, PathOp,
};
use machine::{errno::Result, Errno, UserAddr};

/// Family and 108 bytes of path.
const SIZE: u64 = 110;
const FAMILY: usize = 2;
/// `struct sockaddr_storage`: longer addresses are refused before their family is looked at.
pub(super) const LARGEST: u64 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// AF_UNSPEC: dissolves a datagram socket's association.
    Unspecified,
    /// The family alone: bind chooses a name.
    Unnamed,
    /// A path without its NUL, or an abstract name with its leading NUL.
    Named(Vec<u8>),
    /// For a socket of another family: the bytes as they are.
    Other(Vec<u8>),
}

/// Can it be read? What it says is not looked at.
pub(super) async fn check_address(call: &Call<'_>, at: UserAddr, len: u64) -> Result<()> {
    bytes_of(call, at, len).await.map(drop)
}

/// An address for `socket`.
pub(super) async fn read_address(call: &Call<'_>, socket: SocketType, at: UserAddr, len: u64) -> Result<Address> {
    let bytes = bytes_of(call, at, len).await?;
    match i32::from(socket.family) {
        AF_UNIX => parse(&bytes),
        _ => Ok(Address::Other(bytes)),
    }
}

async fn bytes_of(call: &Call<'_>, at: UserAddr, len: u64) -> Result<Vec<u8>> {
    // An int argument.
    let len = u64::from(len as u32);
    if len > LARGEST {
        return Err(Errno::EINVAL);
    }
    call.bytes(at, len as usize, LARGEST as usize).await
}

fn parse(bytes: &[u8]) -> Result<Address> {
    let Some((&[low, high], name)) = bytes.split_first_chunk::<FAMILY>() else { return Err(Errno::EINVAL) };
    match i32::from(u16::from_le_bytes([low, high])) {
        0 => return Ok(Address::Unspecified),
        AF_UNIX => {}
        _ => return Err(Errno::EINVAL),
    }
    if bytes.len() as u64 > SIZE {
        return Err(Errno::EINVAL);
    }
    Ok(match name.first() {
        None => Address::Unnamed,
        Some(0) => Address::Named(name.to_vec()),
        Some(_) => Address::Named(name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()),
    })
}

/// An address as programs see it. Of an AF_UNIX socket a path has its NUL, an abstract name none.
pub(super) fn encode(socket: SocketType, name: &[u8]) -> Vec<u8> {
    if i32::from(socket.family) != AF_UNIX {
        return name.to_vec();
    }
    let mut bytes = (AF_UNIX as u16).to_le_bytes().to_vec();
    bytes.extend(name);
    if name.first().is_some_and(|&byte| byte != 0) {
        bytes.push(0);
    }
    bytes
}

/// Writes as much of an address as fits, and how long it is.
pub(super) async fn put_address(
    call: &Call<'_>,
    socket: SocketType,
    to: UserAddr,
    len_at: UserAddr,
    name: &[u8],
) -> Result<()> {
    let room: i32 = call.get(len_at).await?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let len = put_address_within(call, socket, to, room, name).await?;
    call.put(len_at, &len).await
}

pub(super) async fn put_address_within(
    call: &Call<'_>,
    socket: SocketType,
    to: UserAddr,
    room: usize,
    name: &[u8],
) -> Result<u32> {
    let bytes = encode(socket, name);
    call.space().write(to, &bytes[..bytes.len().min(room)]).await?;
    Ok(bytes.len() as u32)
}

async fn place_of(call: &Call<'_>, path: &[u8]) -> Result<UnixPlace> {
    let op = PathOp::Stat { path: path.to_vec(), follow: true, empty_ok: false };
    match call.at_path(AT_FDCWD, path, op).await? {
        PathAnswer::Attributes(found) if found.kind() == Kind::Socket => Ok(UnixPlace::Inode(found.dev, found.ino)),
        _ => Err(Errno::ECONNREFUSED),
    }
}

/// bind: makes the node. EADDRINUSE if the name is taken.
pub(super) async fn make_place(call: &Call<'_>, name: &[u8]) -> Result<SocketAddress> {
    if name.first() == Some(&0) {
        return Ok(SocketAddress::Unix(UnixPlace::Abstract(name.to_vec())));
    }
    let op = PathOp::MakeNode { path: name.to_vec(), mode: Kind::Socket as u32 | 0o777, rdev: (0, 0) };
    call.at_path(AT_FDCWD, name, op).await.map_err(|error| match error {
        Errno::EEXIST => Errno::EADDRINUSE,
        error => error,
    })?;
    place_of(call, name).await.map(SocketAddress::Unix)
}

/// Takes the node away again.
pub(super) async fn unmake_place(call: &Call<'_>, name: &[u8]) {
    if name.first().is_some_and(|&byte| byte != 0) {
        let op = PathOp::Unlink { path: name.to_vec(), directory: false };
        // Somebody else may have.
        let _ = call.at_path(AT_FDCWD, name, op).await;
    }
}

/// connect, sendto: the node must be writable (man 7 unix).
pub(super) async fn find_place(call: &Call<'_>, name: &[u8]) -> Result<SocketAddress> {
    if name.first() == Some(&0) {
        return Ok(SocketAddress::Unix(UnixPlace::Abstract(name.to_vec())));
    }
    let place = place_of(call, name).await?;
    let may = PathOp::Access { path: name.to_vec(), mode: 2, effective: true, follow: true, empty_ok: false };
    call.at_path(AT_FDCWD, name, may).await?;
    Ok(SocketAddress::Unix(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_a_nul_unless_they_are_abstract() {
        assert_eq!(parse(b"\x01\0/tmp/s\0junk"), Ok(Address::Named(b"/tmp/s".to_vec())));
        assert_eq!(parse(b"\x01\0\0x\0y"), Ok(Address::Named(b"\0x\0y".to_vec())));
        assert_eq!(parse(b"\x01\0"), Ok(Address::Unnamed));
        assert_eq!(parse(b"\0\0"), Ok(Address::Unspecified));
        assert_eq!(parse(b"\x01"), Err(Errno::EINVAL));
        let encode = |name| encode(SocketType { family: 1, kind: 1 }, name);
        assert_eq!(encode(b"/s"), b"\x01\0/s\0");
        assert_eq!(encode(b"\0s"), b"\x01\0\0s");
        assert_eq!(encode(b""), b"\x01\0");
    }
}
