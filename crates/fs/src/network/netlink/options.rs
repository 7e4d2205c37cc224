//! getsockopt and setsockopt of netlink sockets (man 7 netlink).

use super::{NetlinkSocket, AF_NETLINK};
use crate::anonymous::{argument_int, argument_ns, timeval};
use alloc::vec::Vec;
use linux_raw_sys::netlink::{
    NETLINK_ADD_MEMBERSHIP, NETLINK_BROADCAST_ERROR, NETLINK_CAP_ACK, NETLINK_DROP_MEMBERSHIP, NETLINK_EXT_ACK,
    NETLINK_GET_STRICT_CHK, NETLINK_LIST_MEMBERSHIPS, NETLINK_NO_ENOBUFS, NETLINK_ROUTE,
};
use machine::{errno::Result, Errno};

const SOL_SOCKET: u32 = 1;
const SOL_NETLINK: u32 = 270;
const SO_REUSEADDR: u32 = 2;
const SO_TYPE: u32 = 3;
const SO_ERROR: u32 = 4;
const SO_SNDBUF: u32 = 7;
const SO_RCVBUF: u32 = 8;
const SO_KEEPALIVE: u32 = 9;
const SO_PASSCRED: u32 = 16;
const SO_RCVTIMEO: u32 = 20;
const SO_SNDTIMEO: u32 = 21;
const SO_ACCEPTCONN: u32 = 30;
const SO_PROTOCOL: u32 = 38;
const SO_DOMAIN: u32 = 39;
const SO_RCVTIMEO_NEW: u32 = 66;
const SO_SNDTIMEO_NEW: u32 = 67;

/// net.core.rmem_default, rmem_max and their kin for sending.
const BUFFER: u32 = 212_992;
/// The least that can be set, for sending and for receiving.
const LEAST_SENT: u32 = 4608;
const LEAST_RECEIVED: u32 = 2304;
/// Of the send buffer, what a message can't have.
const SENT_OVERHEAD: usize = 32;
/// Groups of NETLINK_ROUTE and NETLINK_SOCK_DIAG.
const ROUTE_GROUPS: u32 = 36;
const DIAG_GROUPS: u32 = 4;

pub(super) struct Options {
    /// NETLINK_CAP_ACK: an error has only the header of the request.
    pub capped: bool,
    /// NETLINK_EXT_ACK: errors may have attributes. They have none.
    extended: bool,
    /// NETLINK_GET_STRICT_CHK.
    pub strict: bool,
    /// NETLINK_NO_ENOBUFS: what is lost is not told.
    pub quiet: bool,
    /// NETLINK_BROADCAST_ERROR: nothing is broadcast.
    broadcast_errors: bool,
    /// SO_PASSCRED.
    pub wants_credentials: bool,
    send_buffer: u32,
    receive_buffer: u32,
    /// SO_RCVTIMEO and SO_SNDTIMEO, in ns; 0: for ever.
    pub timeouts: [u64; 2],
}

impl Default for Options {
    fn default() -> Self {
        Options {
            capped: false,
            extended: false,
            strict: false,
            quiet: false,
            broadcast_errors: false,
            wants_credentials: false,
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            timeouts: [0; 2],
        }
    }
}

impl Options {
    /// Bytes of the longest message.
    pub fn most_sent(&self) -> usize {
        (self.send_buffer as usize).saturating_sub(SENT_OVERHEAD)
    }

    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer as usize
    }
}

/// What a buffer's size becomes: twice what is asked for, within limits.
fn doubled(asked: i32, least: u32) -> u32 {
    (asked as u32).min(BUFFER).saturating_mul(2).max(least)
}

impl NetlinkSocket {
    pub(super) fn option(&self, level: u32, name: u32) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        let options = &state.options;
        let value = match (level, name) {
            (SOL_NETLINK, NETLINK_CAP_ACK) => options.capped.into(),
            (SOL_NETLINK, NETLINK_EXT_ACK) => options.extended.into(),
            (SOL_NETLINK, NETLINK_GET_STRICT_CHK) => options.strict.into(),
            (SOL_NETLINK, NETLINK_NO_ENOBUFS) => options.quiet.into(),
            (SOL_NETLINK, NETLINK_BROADCAST_ERROR) => options.broadcast_errors.into(),
            (SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS) => return Ok(state.groups.to_ne_bytes().to_vec()),
            (SOL_SOCKET, SO_RCVTIMEO | SO_RCVTIMEO_NEW) => return Ok(timeval(options.timeouts[0])),
            (SOL_SOCKET, SO_SNDTIMEO | SO_SNDTIMEO_NEW) => return Ok(timeval(options.timeouts[1])),
            (SOL_SOCKET, SO_TYPE) => self.kind.into(),
            (SOL_SOCKET, SO_ERROR) => state.error.take().map_or(0, |errno| i32::from(errno.0)),
            (SOL_SOCKET, SO_SNDBUF) => options.send_buffer as i32,
            (SOL_SOCKET, SO_RCVBUF) => options.receive_buffer as i32,
            (SOL_SOCKET, SO_PASSCRED) => options.wants_credentials.into(),
            (SOL_SOCKET, SO_DOMAIN) => AF_NETLINK.into(),
            (SOL_SOCKET, SO_PROTOCOL) => self.protocol as i32,
            (SOL_SOCKET, SO_ACCEPTCONN | SO_REUSEADDR | SO_KEEPALIVE) => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    pub(super) fn set_option(&self, level: u32, name: u32, bytes: &[u8]) -> Result<()> {
        let given = argument_int(bytes);
        // Of its own options one that is too short is 0.
        let value = if level == SOL_NETLINK { given.unwrap_or(0) } else { given.map_err(|_| Errno::EINVAL)? };
        let (on, mut state) = (value != 0, self.state.lock());
        match (level, name) {
            (SOL_NETLINK, NETLINK_CAP_ACK) => state.options.capped = on,
            (SOL_NETLINK, NETLINK_EXT_ACK) => state.options.extended = on,
            (SOL_NETLINK, NETLINK_GET_STRICT_CHK) => state.options.strict = on,
            (SOL_NETLINK, NETLINK_NO_ENOBUFS) => state.options.quiet = on,
            (SOL_NETLINK, NETLINK_BROADCAST_ERROR) => state.options.broadcast_errors = on,
            (SOL_NETLINK, NETLINK_ADD_MEMBERSHIP) => state.groups |= self.group(value)?,
            (SOL_NETLINK, NETLINK_DROP_MEMBERSHIP) => state.groups &= !self.group(value)?,
            (SOL_SOCKET, SO_RCVTIMEO | SO_RCVTIMEO_NEW) => state.options.timeouts[0] = argument_ns(bytes)?,
            (SOL_SOCKET, SO_SNDTIMEO | SO_SNDTIMEO_NEW) => state.options.timeouts[1] = argument_ns(bytes)?,
            (SOL_SOCKET, SO_SNDBUF) => state.options.send_buffer = doubled(value, LEAST_SENT),
            (SOL_SOCKET, SO_RCVBUF) => state.options.receive_buffer = doubled(value, LEAST_RECEIVED),
            (SOL_SOCKET, SO_PASSCRED) => state.options.wants_credentials = on,
            // They mean nothing in this family, there as here.
            (SOL_SOCKET, SO_REUSEADDR | SO_KEEPALIVE) => {}
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// The bit of a group, which are counted from 1.
    fn group(&self, number: i32) -> Result<u64> {
        let most = if self.protocol == NETLINK_ROUTE { ROUTE_GROUPS } else { DIAG_GROUPS };
        match u32::try_from(number) {
            Ok(number) if (1..=most).contains(&number) => Ok(1 << (number - 1)),
            _ => Err(Errno::EINVAL),
        }
    }
}
