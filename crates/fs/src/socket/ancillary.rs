//! Control messages beside descriptors and credentials (man 3 cmsg; man 7 socket, ip, ipv6, tcp): those that a receiver has asked for, in
//! Linux's order, and those that a sender of datagrams gives.

use super::{
    inbox::{Along, Taken},
    inet::address::{self, is_v4, scope_of, Scope},
    options::{Wishes, IP, IPV6, SOL_SOCKET, TCP},
    Internet, Socket, State,
};
use crate::{
    control::{ControlMessage, DatagramHeader, InternetAddress, MessageExtra, SocketMessage},
    Timestamp,
};
use alloc::{boxed::Box, vec::Vec};
use machine::{errno::Result, Errno};

const SO_TIMESTAMP: u32 = 29;
const SO_TIMESTAMP_NEW: u32 = 63;
const IP_TOS: u32 = 1;
const IP_TTL: u32 = 2;
const IP_RETOPTS: u32 = 7;
const IP_PKTINFO: u32 = 8;
const IP_RECVERR: u32 = 11;
const IP_ORIGDSTADDR: u32 = 20;
const IPV6_RECVERR: u32 = 25;
const IPV6_PKTINFO: u32 = 50;
const IPV6_HOPLIMIT: u32 = 52;
const IPV6_TCLASS: u32 = 67;
const IPV6_ORIGDSTADDR: u32 = 74;
const TCP_CM_INQ: u32 = 36;
const SCM_RIGHTS: u32 = 1;
const SCM_CREDENTIALS: u32 = 2;
/// `lo`.
const INTERFACE: u32 = 1;

/// What a sender says about one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendOptions {
    /// Its source address.
    pub from: Option<u128>,
    pub ttl: Option<u8>,
    pub tos: Option<u8>,
}

fn word(data: &[u8], at: usize) -> Result<u32> {
    let word = data.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or(Errno::EINVAL)?;
    Ok(u32::from_ne_bytes(word))
}

/// A number up to 255; -1, where it may be, is what the socket has.
fn byte_of(data: &[u8], least: i32) -> Result<Option<u8>> {
    if data.len() != 4 {
        return Err(Errno::EINVAL);
    }
    match word(data, 0)? as i32 {
        -1 if least < 0 => Ok(None),
        value if value >= least.max(0) => u8::try_from(value).map(Some).map_err(|_| Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}

/// ENODEV: there is no such interface.
fn check_interface(index: u32) -> Result<()> {
    match index {
        0 | INTERFACE => Ok(()),
        _ => Err(Errno::ENODEV),
    }
}

/// The source address that a sender names, if it names one; EINVAL, of IPv4 ENETUNREACH: it is not this machine's.
fn source(ip: u128) -> Result<Option<u128>> {
    match scope_of(ip) {
        Scope::Any => Ok(None),
        Scope::Local => Ok(Some(ip)),
        _ if is_v4(ip) => Err(Errno::ENETUNREACH),
        _ => Err(Errno::EINVAL),
    }
}

impl SendOptions {
    /// ip_cmsg_send and ip6_datagram_send_ctl, of a socket of AF_INET6 (`allows_six`) to an address that is no mapped one (`six`).
    pub fn parse(control: &[ControlMessage], allows_six: bool, six: bool) -> Result<Self> {
        let mut options = SendOptions::default();
        for ControlMessage { level, kind, data } in control {
            match (*level, *kind) {
                (SOL_SOCKET, SCM_RIGHTS | SCM_CREDENTIALS) => {}
                (SOL_SOCKET, _) => return Err(Errno::EINVAL),
                (IP, _) if !six => options.take_4(*kind, data)?,
                (IPV6, IPV6_PKTINFO) if allows_six && data.len() >= 20 => {
                    check_interface(word(data, 16)?)?;
                    let ip = u128::from_be_bytes(data[..16].try_into().map_err(|_| Errno::EINVAL)?);
                    options.from = source(ip)?;
                }
                (IPV6, IPV6_HOPLIMIT) if six => options.ttl = byte_of(data, -1)?,
                (IPV6, IPV6_TCLASS) if six => options.tos = byte_of(data, -1)?,
                (IPV6, _) if six => return Err(Errno::EINVAL),
                // Of levels that do not concern it.
                _ => {}
            }
        }
        Ok(options)
    }

    fn take_4(&mut self, kind: u32, data: &[u8]) -> Result<()> {
        match kind {
            IP_PKTINFO if data.len() == 12 => {
                check_interface(word(data, 0)?)?;
                let ip: [u8; 4] = data[4..8].try_into().map_err(|_| Errno::EINVAL)?;
                self.from = source(address::mapped(ip.into()))?;
            }
            IP_TTL => self.ttl = byte_of(data, 1)?,
            IP_TOS if data.len() == 1 => self.tos = Some(data[0]),
            IP_TOS => self.tos = byte_of(data, 0)?,
            IP_RETOPTS if data.is_empty() => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

fn int(level: u32, kind: u32, value: u32) -> ControlMessage {
    ControlMessage { level, kind, data: value.to_ne_bytes().to_vec() }
}

/// `struct timeval` or `struct timespec`, as the option `kind` has it.
fn stamp(kind: u32, time: Timestamp) -> ControlMessage {
    let part = match kind {
        SO_TIMESTAMP | SO_TIMESTAMP_NEW => i64::from(time.nanoseconds / 1000),
        _ => i64::from(time.nanoseconds),
    };
    let data = [time.seconds, part].iter().flat_map(|word| word.to_ne_bytes()).collect();
    ControlMessage { level: SOL_SOCKET, kind, data }
}

fn octets(ip: u128) -> [u8; 4] {
    (ip as u32).to_be_bytes()
}

/// What the headers say, to a socket that wants to know. Of a packet that came to no port (of ICMP) it is not told from where to answer.
fn headers(wishes: Wishes, header: DatagramHeader, to: &mut Vec<ControlMessage>) {
    let DatagramHeader { to: ip, port, ttl, tos } = header;
    let own = port != 0;
    let (ttl, place) = (u32::from(ttl), InternetAddress { ip, port });
    if wishes.contains(Wishes::PKTINFO_6) {
        let data = [&ip.to_be_bytes()[..], &INTERFACE.to_ne_bytes()].concat();
        to.push(ControlMessage { level: IPV6, kind: IPV6_PKTINFO, data });
    }
    if is_v4(ip) {
        if wishes.contains(Wishes::PKTINFO) {
            let own = if own { octets(ip) } else { [0; 4] };
            let data = [&INTERFACE.to_ne_bytes()[..], &own, &octets(ip)].concat();
            to.push(ControlMessage { level: IP, kind: IP_PKTINFO, data });
        }
        if wishes.contains(Wishes::TTL) {
            to.push(int(IP, IP_TTL, ttl));
        }
        if wishes.contains(Wishes::TOS) {
            to.push(ControlMessage { level: IP, kind: IP_TOS, data: [tos].into() });
        }
        if wishes.contains(Wishes::ORIGIN) && own {
            to.push(ControlMessage { level: IP, kind: IP_ORIGDSTADDR, data: address::encode(false, place) });
        }
        return;
    }
    if wishes.contains(Wishes::TTL_6) {
        to.push(int(IPV6, IPV6_HOPLIMIT, ttl));
    }
    if wishes.contains(Wishes::TOS_6) {
        to.push(int(IPV6, IPV6_TCLASS, tos.into()));
    }
    if wishes.contains(Wishes::ORIGIN_6) && own {
        to.push(ControlMessage { level: IPV6, kind: IPV6_ORIGDSTADDR, data: address::encode(true, place) });
    }
}

/// `struct sock_extended_err` of a port that nobody has, and who has said so (man 7 ip, IP_RECVERR).
fn refusal(six: bool, to: u128) -> ControlMessage {
    // Origin, type and code: ICMP's port unreachable.
    let [origin, kind, code] = if is_v4(to) { [2, 3, 3] } else { [3, 1, 4] };
    let error = [&u32::from(Errno::ECONNREFUSED.0).to_ne_bytes()[..], &[origin, kind, code, 0], &[0; 8]].concat();
    let who = address::encode(six, InternetAddress { ip: to, port: 0 });
    let (level, kind) = if six { (IPV6, IPV6_RECVERR) } else { (IP, IP_RECVERR) };
    ControlMessage { level, kind, data: [error, who].concat() }
}

fn add(message: &mut SocketMessage, control: Vec<ControlMessage>) {
    if !control.is_empty() {
        message.extra.get_or_insert_default().control = control;
    }
}

impl State {
    /// Whether messages to it are to note when they come.
    pub(super) fn wants_time(&self) -> bool {
        self.settings.stamp != 0
    }
}

impl Socket {
    /// Adds to a message what this socket has asked for.
    pub(super) fn accompany(&self, state: &State, message: &mut SocketMessage, along: Option<&Along>) {
        let (wishes, kind) = (state.settings.wishes, state.settings.stamp);
        if wishes.contains(Wishes::PIDFD) {
            let process = message.credentials.map(|sender| sender.pid);
            message.extra.get_or_insert_default().process = process;
        }
        let is_stream = self.kind == super::SocketKind::Stream;
        if wishes.is_empty() && kind == 0 || is_stream && self.inet.is_none() {
            return;
        }
        let mut control = Vec::new();
        let time = along.and_then(|along| along.time);
        match (kind, time) {
            (0, _) => {}
            (_, Some(time)) => control.push(stamp(kind, time)),
            // It came before the option was set.
            (_, None) if !is_stream => control.push(stamp(kind, self.names.realtime())),
            _ => {}
        }
        if let Some(header) = along.and_then(|along| along.datagram) {
            headers(wishes, header, &mut control);
        }
        if is_stream && wishes.contains(Wishes::INQ) {
            control.push(Self::left(state));
        }
        add(message, control);
    }

    /// TCP_INQ: what more there is to be read; the end counts as a byte (tcp_inq_hint).
    fn left(state: &State) -> ControlMessage {
        let left = state.inbox.bytes().max(usize::from(state.read_shut));
        int(TCP, TCP_CM_INQ, left as u32)
    }

    /// The end of a stream, as its receiver has it.
    pub(super) fn end_message(&self, state: &State) -> SocketMessage {
        let mut message = SocketMessage::default();
        if self.inet.is_some() && state.settings.wishes.contains(Wishes::INQ) {
            add(&mut message, [Self::left(state)].into());
        }
        message
    }

    /// An error as MSG_ERRQUEUE receives it: what was sent, where to, and why it did not get there.
    pub(super) fn error_message(&self, inet: &Internet, state: &State, taken: Taken) -> SocketMessage {
        const MSG_ERRQUEUE: u32 = 0x2000;
        let Taken { mut message, along, .. } = taken;
        message.credentials = None;
        let along = along.map_or_else(Along::default, |along| *along);
        let mut control = Vec::new();
        if let (1.., Some(time)) = (state.settings.stamp, along.time) {
            control.push(stamp(state.settings.stamp, time));
        }
        let header = along.datagram.unwrap_or_default();
        headers(state.settings.wishes, header, &mut control);
        control.push(refusal(inet.six, header.to));
        message.extra = Some(Box::new(MessageExtra { control, flags: MSG_ERRQUEUE, ..MessageExtra::default() }));
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: u128 = 0xffff_7f00_0001;

    fn given(level: u32, kind: u32, data: &[u8]) -> [ControlMessage; 1] {
        [ControlMessage { level, kind, data: data.to_vec() }]
    }

    #[test]
    fn what_a_sender_gives_is_checked() {
        let parse = |control: &[ControlMessage], six| SendOptions::parse(control, six, six);
        let ttl = |ttl: i32| given(IP, IP_TTL, &ttl.to_ne_bytes());
        assert_eq!(parse(&ttl(5), false), Ok(SendOptions { ttl: Some(5), ..SendOptions::default() }));
        assert_eq!(parse(&ttl(0), false), Err(Errno::EINVAL));
        assert_eq!(parse(&ttl(256), false), Err(Errno::EINVAL));
        assert_eq!(parse(&ttl(256), true), Ok(SendOptions::default()), "of another level");
        assert_eq!(parse(&given(IP, IP_TOS, &[9]), false).map(|options| options.tos), Ok(Some(9)));
        let hops = |hops: i32| given(IPV6, IPV6_HOPLIMIT, &hops.to_ne_bytes());
        assert_eq!(parse(&hops(-1), true), Ok(SendOptions::default()));
        assert_eq!(parse(&hops(-2), true), Err(Errno::EINVAL));
        let info = |index: u32, ip: [u8; 4]| given(IP, IP_PKTINFO, &[&index.to_ne_bytes()[..], &ip, &[0; 4]].concat());
        assert_eq!(parse(&info(1, [127, 0, 0, 1]), false).map(|options| options.from), Ok(Some(LOCAL)));
        assert_eq!(parse(&info(7, [0; 4]), false), Err(Errno::ENODEV));
        assert_eq!(parse(&info(0, [10, 0, 0, 1]), false), Err(Errno::ENETUNREACH));
        assert_eq!(parse(&given(SOL_SOCKET, SCM_RIGHTS, &[]), false), Ok(SendOptions::default()));
        assert_eq!(parse(&given(SOL_SOCKET, 99, &[]), false), Err(Errno::EINVAL));
    }

    #[test]
    fn an_error_says_what_linux_says() {
        let told = refusal(false, LOCAL);
        assert_eq!(told.data[..8], [111, 0, 0, 0, 2, 3, 3, 0]);
        assert_eq!((told.data.len(), &told.data[20..24]), (32, &[127, 0, 0, 1][..]));
        let told = refusal(true, 1);
        assert_eq!((told.data.len(), &told.data[4..7]), (44, &[3, 1, 4][..]));
    }
}
