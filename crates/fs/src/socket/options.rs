//! getsockopt and setsockopt (man 7 socket, ip, ipv6, tcp, udp).
//!
//! Most options are numbers that a socket keeps and tells: what they would change are packets, of which there are none, or it is looked at
//! where it matters ([`Socket::setting`]). They are in [`KNOWN`] (known.rs), with Linux's default values and limits. What a receiver asks for is in
//! [`Wishes`]. Of an option that asks for something that Cob does not have, only the default can be set (ENOPROTOOPT).

pub(super) use super::known::Wishes;
use super::{
    inbox,
    inet::address::is_v4,
    known::{
        class, Known, Takes,
        Takes::{Admin, Any, ByKind, Default, Fails, Flag, Ignored, Made, Range, RangeOrDefault, ReadOnly, Wish},
        KNOWN, WANTS_BYTE, ZERO_IF_SHORT,
    },
    Protocol, Role, Socket, SocketKind,
};
use crate::Caller;
use alloc::vec::Vec;
use machine::{errno::Result, Errno};
use messages::fs::SocketSettings;

pub(super) const SOL_SOCKET: u32 = 1;
pub(super) const IP: u32 = 0;
pub(super) const TCP: u32 = 6;
pub(super) const UDP: u32 = 17;
pub(super) const IPV6: u32 = 41;

/// Level and name of an option.
pub(super) type Name = (u32, u32);

pub(super) const REUSEADDR: Name = (SOL_SOCKET, 2);
pub(super) const BROADCAST: Name = (SOL_SOCKET, 6);
pub(super) const REUSEPORT: Name = (SOL_SOCKET, 15);
pub(super) const V6ONLY: Name = (IPV6, 26);

const SO_TYPE: u32 = 3;
const SO_ERROR: u32 = 4;
const SO_SNDBUF: u32 = 7;
const SO_RCVBUF: u32 = 8;
const SO_PRIORITY: u32 = 12;
const SO_LINGER: u32 = 13;
const SO_PASSCRED: u32 = 16;
const SO_PEERCRED: u32 = 17;
const SO_RCVLOWAT: u32 = 18;
const SO_RCVTIMEO: u32 = 20;
const SO_SNDTIMEO: u32 = 21;
const SO_BINDTODEVICE: u32 = 25;
const SO_TIMESTAMP: u32 = 29;
const SO_ACCEPTCONN: u32 = 30;
const SO_SNDBUFFORCE: u32 = 32;
const SO_RCVBUFFORCE: u32 = 33;
const SO_PASSSEC: u32 = 34;
const SO_TIMESTAMPNS: u32 = 35;
const SO_MARK: u32 = 36;
const SO_PROTOCOL: u32 = 38;
const SO_DOMAIN: u32 = 39;
const SO_PEEK_OFF: u32 = 42;
const SO_PEERGROUPS: u32 = 59;
const SO_TIMESTAMP_NEW: u32 = 63;
const SO_TIMESTAMPNS_NEW: u32 = 64;
const SO_RCVTIMEO_NEW: u32 = 66;
const SO_SNDTIMEO_NEW: u32 = 67;
const SO_PASSPIDFD: u32 = 76;
const TCP_MAXSEG: u32 = 2;
const TCP_WINDOW_CLAMP: u32 = 10;
const TCP_INFO: u32 = 11;
const TCP_CONGESTION: u32 = 13;
const IP_MTU: u32 = 14;
const IPV6_MTU: u32 = 24;
const IPV6_TCLASS: u32 = 67;
/// The least of IPv6.
const MTU_MIN: i32 = 1280;
const AF_UNIX: i32 = 1;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
/// net.core.wmem_max and rmem_max, and the least that there is, doubled as Linux doubles what is set.
const BUFFER_MAX: i32 = 212_992;
const SEND_MIN: i32 = 4608;
const RECEIVE_MIN: i32 = 2304;
/// Of net.ipv4.tcp_rmem.
const RECEIVE_MAX: i32 = 6_291_456;
/// Of lo.
const MTU: i32 = 65_536;
/// Largest segment on lo, of IPv4 with time stamps; before there is a connection.
const SEGMENT: i32 = 65_483;
const SEGMENT_DEFAULT: i32 = 536;
/// Longest name of an algorithm of congestion control.
const ALGORITHM_MAX: usize = 16;
/// Of `struct tcp_info`.
const TCP_INFO_BYTES: usize = 248;

/// What programs have set.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// At most one for each of [`KNOWN`].
    values: Vec<(Name, i32)>,
    pub wishes: Wishes,
    /// SO_TIMESTAMP or its kin, whichever it is that messages bring; 0: none.
    pub stamp: u32,
    /// SO_RCVLOWAT less one.
    least: i32,
    /// SO_SNDBUF and SO_RCVBUF as they are told; 0: the default.
    buffers: [i32; 2],
    /// SO_LINGER: seconds.
    linger: Option<i32>,
    /// SO_RCVTIMEO and SO_SNDTIMEO, in ns; 0: for ever.
    timeouts: [u64; 2],
    /// TCP_MAXSEG; 0: not set.
    segment: i32,
    /// TCP_CONGESTION, of those in [`ALGORITHMS`].
    algorithm: usize,
}

const ALGORITHMS: [&[u8]; 2] = [b"cubic", b"reno"];

impl Settings {
    /// For another kernel.
    pub fn give(&self) -> SocketSettings {
        let Settings { values, wishes, stamp, least, buffers, linger, timeouts, segment, algorithm } = self;
        let values = values.iter().map(|((level, name), value)| (*level, *name, *value)).collect();
        let (buffers, timeouts, algorithm) = (*buffers, *timeouts, *algorithm as u32);
        let (wishes, stamp, least) = (wishes.bits(), *stamp, *least);
        SocketSettings {
            values,
            wishes,
            stamp,
            least,
            buffers,
            linger: *linger,
            timeouts,
            segment: *segment,
            algorithm,
        }
    }

    /// As another kernel gave them.
    pub fn take(given: SocketSettings) -> Self {
        let SocketSettings { values, wishes, stamp, least, buffers, linger, timeouts, segment, algorithm } = given;
        let wishes = Wishes::from_bits_truncate(wishes);
        let values = values.into_iter().map(|(level, name, value)| ((level, name), value)).collect();
        let algorithm = (algorithm as usize).min(ALGORITHMS.len() - 1);
        Settings { values, wishes, stamp, least, buffers, linger, timeouts, segment, algorithm }
    }

    fn get(&self, known: &Known) -> i32 {
        if let Wish(wish) = known.takes {
            return i32::from(self.wishes.contains(wish));
        }
        let set = self.values.iter().find(|(name, _)| *name == known.name);
        set.map_or(known.default, |(_, value)| *value)
    }

    pub fn set(&mut self, name: Name, value: i32) {
        self.values.retain(|(other, _)| *other != name);
        self.values.push((name, value));
    }

    /// Time to live and type of service of datagrams; `six`: hop limit and traffic class.
    pub fn ttl_and_tos(&self, six: bool) -> (u8, u8) {
        let set = |name: Name, usual: i32| {
            let set = self.values.iter().find(|(other, _)| *other == name);
            set.map_or(usual, |(_, value)| *value) as u8
        };
        match six {
            true => (set((IPV6, 16), 64), set((IPV6, 67), 0)),
            false => (set((IP, 2), 64), set((IP, 1), 0)),
        }
    }

    /// SO_OOBINLINE.
    pub fn inline(&self) -> bool {
        self.wishes.contains(Wishes::INLINE)
    }

    /// SO_RCVLOWAT, as far as a read of `limit` bytes is concerned.
    pub fn least(&self, limit: usize) -> usize {
        (self.least as usize + 1).min(limit)
    }

    /// How many bytes may be on their way from a socket.
    pub fn send_buffer(&self) -> usize {
        self.buffer(0)
    }

    /// How many bytes may wait in a socket to be read.
    pub fn receive_buffer(&self) -> usize {
        self.buffer(1)
    }

    /// Of TCP: what SO_RCVLOWAT can be at most, half of SO_RCVBUF or of net.ipv4.tcp_rmem's largest.
    fn most_wanted(&self) -> i32 {
        match self.buffers[1] {
            0 => RECEIVE_MAX / 2,
            set => set / 2,
        }
    }

    fn buffer(&self, which: usize) -> usize {
        match self.buffers[which] {
            0 => inbox::LIMIT,
            set => set as usize,
        }
    }

    /// SO_LINGER of no time at all: close(2) breaks the connection off.
    pub fn breaks_off(&self) -> bool {
        self.linger == Some(0)
    }
}

/// `struct timeval`.
fn argument(value: &[u8]) -> Result<i32> {
    crate::anonymous::argument_int(value).map_err(|_| Errno::EINVAL)
}

impl Socket {
    /// The options of `level`, if this socket has any. EOPNOTSUPP, ENOPROTOOPT.
    fn check_level(&self, level: u32) -> Result<()> {
        let Some(inet) = &self.inet else {
            return if level == SOL_SOCKET { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
        };
        match level {
            SOL_SOCKET | IP => Ok(()),
            TCP if inet.protocol == Protocol::Tcp => Ok(()),
            UDP if inet.protocol == Protocol::Udp => Ok(()),
            IPV6 if inet.six => Ok(()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// An option of [`KNOWN`].
    pub(super) fn setting(&self, name: Name) -> i32 {
        let known = KNOWN.iter().find(|known| known.name == name);
        known.map_or(0, |known| self.state.lock().settings.get(known))
    }

    /// How long receiving and sending may wait, in ns; 0: for ever.
    pub(super) fn timeouts(&self) -> [u64; 2] {
        self.state.lock().settings.timeouts
    }

    pub(super) fn option(&self, level: u32, name: u32) -> Result<Vec<u8>> {
        self.check_level(level).map_err(|error| match &self.inet {
            // So does Linux where it reads, of IPv4.
            Some(inet) if !inet.six => Errno::EOPNOTSUPP,
            _ => error,
        })?;
        let connected = self.is_connected_stream();
        let mut state = self.state.lock();
        let value = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => self.kind as i32,
            (SOL_SOCKET, SO_ERROR) => state.error.take().map_or(0, |errno| i32::from(errno.0)),
            (SOL_SOCKET, SO_SNDBUF) => state.settings.send_buffer() as i32,
            (SOL_SOCKET, SO_RCVBUF) => state.settings.receive_buffer() as i32,
            (SOL_SOCKET, SO_RCVLOWAT) => state.settings.least + 1,
            (SOL_SOCKET, SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW) => {
                i32::from(state.settings.stamp == name)
            }
            (SOL_SOCKET, SO_PEEK_OFF) => {
                state.inbox.peek_from().map_or(-1, |from| i32::try_from(from).unwrap_or(i32::MAX))
            }
            (SOL_SOCKET, SO_PASSCRED | SO_PASSPIDFD | SO_PASSSEC) if self.inet.is_some() => {
                return Err(Errno::EOPNOTSUPP)
            }
            (SOL_SOCKET, SO_PASSPIDFD) => i32::from(state.settings.wishes.contains(Wishes::PIDFD)),
            (SOL_SOCKET, SO_PEERGROUPS) => {
                state.peer_credentials.ok_or(Errno::ENODATA)?;
                return Ok(state.peer_groups.iter().flat_map(|group| group.to_ne_bytes()).collect());
            }
            (SOL_SOCKET, SO_PASSCRED) => i32::from(state.wants_credentials),
            (SOL_SOCKET, SO_ACCEPTCONN) => i32::from(matches!(state.role, Role::Listening { .. })),
            (SOL_SOCKET, SO_DOMAIN) => self.inet.as_ref().map_or(AF_UNIX, |inet| i32::from(inet.family())),
            (SOL_SOCKET, SO_PROTOCOL) => self.inet.as_ref().map_or(0, |inet| inet.protocol as i32),
            (SOL_SOCKET, SO_PEERCRED) => {
                let (pid, uid, gid) =
                    state.peer_credentials.map_or((0, u32::MAX, u32::MAX), |peer| (peer.pid, peer.uid, peer.gid));
                return Ok([pid, uid, gid].iter().flat_map(|word| word.to_ne_bytes()).collect());
            }
            (SOL_SOCKET, SO_LINGER) => {
                let linger = state.settings.linger;
                let words = [i32::from(linger.is_some()), linger.unwrap_or(0)];
                return Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect());
            }
            (SOL_SOCKET, SO_RCVTIMEO | SO_RCVTIMEO_NEW) => {
                return Ok(crate::anonymous::timeval(state.settings.timeouts[0]))
            }
            (SOL_SOCKET, SO_SNDTIMEO | SO_SNDTIMEO_NEW) => {
                return Ok(crate::anonymous::timeval(state.settings.timeouts[1]))
            }
            (SOL_SOCKET, SO_BINDTODEVICE) => return Ok(Vec::new()),
            (TCP, TCP_MAXSEG) => match (connected, state.settings.segment) {
                (true, _) => SEGMENT,
                (false, 0) => SEGMENT_DEFAULT,
                (false, set) => set,
            },
            (TCP, TCP_CONGESTION) => {
                let (algorithm, mut name) = (ALGORITHMS[state.settings.algorithm], [0; ALGORITHM_MAX]);
                name[..algorithm.len()].copy_from_slice(algorithm);
                return Ok(name.to_vec());
            }
            (TCP, TCP_INFO) => return Ok(tcp_info(&state.role, connected, state.read_shut, state.write_shut)),
            // IPv4's length of a packet has 16 bits.
            (IP, IP_MTU)
                if self.inet.as_ref().is_some_and(|inet| inet.connection().is_some_and(|at| is_v4(at.peer.ip))) =>
            {
                MTU - 1
            }
            (IP, IP_MTU) | (IPV6, IPV6_MTU) => match self.inet.as_ref().and_then(|inet| inet.connection()) {
                Some(_) => MTU,
                None => return Err(Errno::ENOTCONN),
            },
            _ => {
                let known = KNOWN.iter().find(|known| known.name == (level, name)).ok_or(Errno::ENOPROTOOPT)?;
                state.settings.get(known)
            }
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn is_connected_stream(&self) -> bool {
        self.kind == SocketKind::Stream && matches!(self.state.lock().role, Role::Connected(_) | Role::Linked(_))
    }

    pub(super) fn set_option(&self, caller: &Caller, level: u32, name: u32, value: &[u8]) -> Result<()> {
        self.check_level(level)?;
        let mut state = self.state.lock();
        match (level, name) {
            (SOL_SOCKET, SO_BINDTODEVICE) => {
                let device = value.split(|byte| *byte == 0).next().unwrap_or_default();
                return if matches!(device, b"" | b"lo") { Ok(()) } else { Err(Errno::ENODEV) };
            }
            (TCP, TCP_CONGESTION) if value.is_empty() => return Err(Errno::EINVAL),
            (TCP, TCP_CONGESTION) => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                let known = ALGORITHMS.iter().position(|algorithm| *algorithm == name);
                state.settings.algorithm = known.ok_or(Errno::ENOENT)?;
                return Ok(());
            }
            _ => {}
        }
        let number = match (level, value.len()) {
            (IP, 0) if !WANTS_BYTE.contains(&name) => 0,
            // A byte will do.
            (IP, 1..4) => i32::from(value[0]),
            (IPV6, 0..4) if ZERO_IF_SHORT.contains(&name) => 0,
            (IP | IPV6, 0..4) if !self.looks_at_length((level, name)) => return Err(Errno::ENOPROTOOPT),
            _ => argument(value)?,
        };
        match (level, name) {
            (SOL_SOCKET, SO_PASSCRED | SO_PASSPIDFD | SO_PASSSEC) if self.inet.is_some() => {
                return Err(Errno::EOPNOTSUPP)
            }
            (SOL_SOCKET, SO_PASSPIDFD) => state.settings.wishes.set(Wishes::PIDFD, number != 0),
            (SOL_SOCKET, SO_RCVLOWAT) => {
                let most = if self.inet.is_some() && self.kind == SocketKind::Stream {
                    state.settings.most_wanted()
                } else {
                    i32::MAX
                };
                let least = if number < 0 { most } else { number.min(most) };
                state.settings.least = (least - 1).max(0);
                drop(state);
                self.changes.wake_all();
            }
            (SOL_SOCKET, SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW) => {
                state.settings.stamp = if number != 0 { name } else { 0 };
            }
            (SOL_SOCKET, SO_PEEK_OFF) => state.inbox.set_peek_from(usize::try_from(number).ok()),
            (SOL_SOCKET, SO_PASSCRED) => state.wants_credentials = number != 0,
            (SOL_SOCKET, SO_SNDBUF | SO_SNDBUFFORCE) => {
                check_force(caller, name)?;
                state.settings.buffers[0] = (number.clamp(0, BUFFER_MAX) * 2).max(SEND_MIN);
            }
            (SOL_SOCKET, SO_RCVBUF | SO_RCVBUFFORCE) => {
                check_force(caller, name)?;
                state.settings.buffers[1] = (number.clamp(0, BUFFER_MAX) * 2).max(RECEIVE_MIN);
            }
            (SOL_SOCKET, SO_LINGER) => {
                let time = argument(value.get(4..).unwrap_or_default())?;
                state.settings.linger = (number != 0).then_some(time);
            }
            (SOL_SOCKET, SO_RCVTIMEO | SO_RCVTIMEO_NEW) => {
                state.settings.timeouts[0] = crate::anonymous::argument_ns(value)?
            }
            (SOL_SOCKET, SO_SNDTIMEO | SO_SNDTIMEO_NEW) => {
                state.settings.timeouts[1] = crate::anonymous::argument_ns(value)?
            }
            (TCP, TCP_MAXSEG) => {
                if number != 0 && !(88..=32_767).contains(&number) {
                    return Err(Errno::EINVAL);
                }
                state.settings.segment = number;
            }
            (SOL_SOCKET, 15) if self.inet.is_none() && number != 0 => return Err(Errno::EOPNOTSUPP),
            (SOL_SOCKET, SO_PRIORITY) if !(0..=6).contains(&number) && !may_route(caller) => return Err(Errno::EPERM),
            (SOL_SOCKET, SO_MARK) if !may_route(caller) => return Err(Errno::EPERM),
            (TCP, TCP_WINDOW_CLAMP) if number == 0 && !matches!(state.role, Role::Alone) => return Err(Errno::EINVAL),
            // Larger than any packet.
            (IPV6, IPV6_MTU) if number == 0 || number >= MTU_MIN => {}
            (IPV6, IPV6_MTU) => return Err(Errno::EINVAL),
            (IPV6, IPV6_TCLASS) if self.kind == SocketKind::Stream && (-1..=255).contains(&number) => {
                state.settings.set((level, name), class(number.max(0)));
            }
            (IPV6, 26) if self.inet.as_ref().is_some_and(|inet| inet.is_bound()) => return Err(Errno::EINVAL),
            _ => {
                drop(state);
                return self.set_known(caller, (level, name), number);
            }
        }
        Ok(())
    }

    /// What an option of [`KNOWN`] takes of this socket.
    fn takes(&self, name: Name) -> Option<Takes> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        Some(match known.takes {
            ByKind(stream, _) if self.kind == SocketKind::Stream => *stream,
            ByKind(_, datagrams) => *datagrams,
            takes => takes,
        })
    }

    /// Of IP and IPv6: an option that can't be set says so whatever the length.
    fn looks_at_length(&self, name: Name) -> bool {
        const IPV6_ROUTER_ALERT: Name = (IPV6, 22);
        match self.takes(name) {
            Some(ReadOnly) => name == IPV6_ROUTER_ALERT,
            Some(_) => true,
            None => name == (IPV6, IPV6_MTU),
        }
    }

    fn set_known(&self, caller: &Caller, name: Name, number: i32) -> Result<()> {
        let known = KNOWN.iter().find(|known| known.name == name).ok_or(Errno::ENOPROTOOPT)?;
        let value = match self.takes(name).unwrap_or(ReadOnly) {
            Wish(Wishes::INQ) if !(0..=1).contains(&number) => return Err(Errno::EINVAL),
            Wish(wish) => {
                self.wish(wish, number != 0);
                return Ok(());
            }
            Flag => i32::from(number != 0),
            Range(least, most) | RangeOrDefault(least, most) if (least..=most).contains(&number) => number,
            RangeOrDefault(..) if number == -1 => known.default,
            Ignored(least, most) if (least..=most).contains(&number) => return Ok(()),
            Range(..) | RangeOrDefault(..) | Ignored(..) => return Err(Errno::EINVAL),
            Any => number,
            Made(made) => made(number),
            Fails(error) => return Err(error),
            Default if number == known.default => number,
            Admin if number == 0 || caller.credentials.can(CAP_NET_ADMIN) => i32::from(number != 0),
            Admin if name == (SOL_SOCKET, 1) => return Err(Errno::EACCES),
            Admin => return Err(Errno::EPERM),
            Default | ReadOnly | ByKind(..) => return Err(Errno::ENOPROTOOPT),
        };
        self.state.lock().settings.set(name, value);
        Ok(())
    }
}

impl Socket {
    fn wish(&self, wish: Wishes, on: bool) {
        let errors = {
            let mut state = self.state.lock();
            state.settings.wishes.set(wish, on);
            match wish {
                Wishes::ERRORS | Wishes::ERRORS_6 if !on => state.errors.take(),
                _ => None,
            }
        };
        drop(errors);
        // More or less may be ready now.
        self.changes.wake_all();
    }
}

fn may_route(caller: &Caller) -> bool {
    [CAP_NET_ADMIN, CAP_NET_RAW].into_iter().any(|one| caller.credentials.can(one))
}

fn check_force(caller: &Caller, name: u32) -> Result<()> {
    let forced = matches!(name, SO_SNDBUFFORCE | SO_RCVBUFFORCE);
    match forced && !caller.credentials.can(CAP_NET_ADMIN) {
        true => Err(Errno::EPERM),
        false => Ok(()),
    }
}

/// `struct tcp_info`, as far as there is something to tell: the state and the size of segments.
fn tcp_info(role: &Role, connected: bool, read_shut: bool, write_shut: bool) -> Vec<u8> {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT2: u8 = 5;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    const LISTEN: u8 = 10;
    let state = match role {
        Role::Listening { .. } => LISTEN,
        _ if !connected => CLOSE,
        _ => match (read_shut, write_shut) {
            (false, false) => ESTABLISHED,
            (false, true) => FIN_WAIT2,
            (true, false) => CLOSE_WAIT,
            (true, true) => CLOSE,
        },
    };
    let mut info = [0; TCP_INFO_BYTES];
    info[0] = state;
    let segment = if connected { SEGMENT } else { SEGMENT_DEFAULT };
    info[16..20].copy_from_slice(&segment.to_ne_bytes());
    info[20..24].copy_from_slice(&segment.to_ne_bytes());
    info.to_vec()
}
