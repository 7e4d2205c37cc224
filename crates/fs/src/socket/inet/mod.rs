//! AF_INET and AF_INET6 (man 7 ip, tcp, udp), within the machine: there is one interface, lo, and no packets. Connections and datagrams go
//! from socket to socket as those of AF_UNIX do; what is TCP's and UDP's own is here: addresses, ports, how connections begin and end.

pub(super) mod address;
pub(super) mod claims;
mod echo;
mod errors;
pub(super) mod ports;
mod stream;
mod udp;

pub(super) use stream::first;

use super::{
    transfer::{MSG_DONTWAIT, MSG_OOB, MSG_PROBES},
    NetNamespace, Role, Socket, SocketKind,
};
use crate::{
    control::{ControlAnswer, InternetAddress, InternetEnds, PortClaim, SocketAddress, SocketControl},
    file::{self, Patience, SYSTEM},
    Caller, Control, File, OpenFlags,
};
use address::{encode, family_of, parse, scope_of, Scope, AF_INET, AF_INET6, AF_UNSPEC, ANY_4};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{errno::Result, sync::Lock, Errno};
use ports::{Port, TCP};

/// Ports below this are for CAP_NET_BIND_SERVICE (net.ipv4.ip_unprivileged_port_start).
const UNPRIVILEGED: u16 = 1024;
const CAP_NET_BIND_SERVICE: u32 = 10;

/// The protocols of the two families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp = 6,
    Udp = 17,
    /// Echo requests alone.
    Icmp = 1,
    /// The same of AF_INET6.
    Icmp6 = 58,
}

/// How far a connect has come that did not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    None,
    /// The listener has no room.
    Trying,
    /// Connected, and connect(2) has not told yet.
    Connected,
    /// Refused, and connect(2) has not told yet.
    Failed,
}

/// What a socket of these families has beside one of AF_UNIX.
pub(super) struct Internet {
    /// AF_INET6.
    pub six: bool,
    pub protocol: Protocol,
    ends: Lock<Ends>,
}

struct Ends {
    local: InternetAddress,
    peer: Option<InternetAddress>,
    port: Option<Arc<Port>>,
    /// In the table of this kernel's sockets; 0: not in it.
    serial: u64,
    progress: Progress,
    /// Nobody has accepted it yet.
    unaccepted: bool,
    /// The other side has closed, and nothing was lost.
    ended: bool,
}

impl Ends {
    /// This side closes first: a port that a program has chosen is in TIME_WAIT from `now` on.
    fn close_first(&self, now: u64) {
        if let Some(port) = self.port.as_ref().filter(|port| port.chosen) {
            port.wait_until(now.saturating_add(stream::TIME_WAIT));
        }
    }
}

impl Internet {
    fn new(six: bool, protocol: Protocol) -> Self {
        let ends = Ends {
            local: address::unspecified(six),
            peer: None,
            port: None,
            serial: 0,
            progress: Progress::None,
            unaccepted: false,
            ended: false,
        };
        Internet { six, protocol, ends: Lock::new(ends) }
    }

    /// The end of a new connection whose other end the client has.
    fn accepted(six: bool, client: InternetEnds, port: Option<Arc<Port>>) -> Self {
        let inet = Internet::new(six, Protocol::Tcp);
        {
            let mut ends = inet.ends.lock();
            (ends.local, ends.peer, ends.port) = (client.peer, Some(client.local), port);
            ends.unaccepted = true;
        }
        inet
    }

    /// Of an end for a connection that comes from another kernel. `untold`: see [`Internet::is_untold`].
    pub fn take_over(&self, connection: InternetEnds, untold: bool) {
        let mut ends = self.ends.lock();
        (ends.local, ends.peer) = (connection.local, Some(connection.peer));
        if untold {
            ends.progress = Progress::Connected;
        }
    }

    /// A connect that did not wait has come to its end, and connect(2) has not told so.
    pub fn is_untold(&self) -> bool {
        self.ends.lock().progress == Progress::Connected
    }

    /// Both addresses of a connected socket.
    pub fn connection(&self) -> Option<InternetEnds> {
        let ends = self.ends.lock();
        Some(InternetEnds { six: self.six, local: ends.local, peer: ends.peer? })
    }

    /// Where it is bound, and to whom.
    pub fn addresses(&self) -> (InternetAddress, Option<InternetAddress>) {
        let ends = self.ends.lock();
        (ends.local, ends.peer)
    }

    pub fn family(&self) -> u16 {
        match self.six {
            true => AF_INET6,
            false => AF_INET,
        }
    }

    pub fn is_bound(&self) -> bool {
        self.ends.lock().port.is_some()
    }

    /// Connecting has not come to an end.
    pub fn is_trying(&self) -> bool {
        self.ends.lock().progress == Progress::Trying
    }

    pub fn is_unaccepted(&self) -> bool {
        self.ends.lock().unaccepted
    }

    pub fn was_accepted(&self) {
        self.ends.lock().unaccepted = false;
    }

    pub fn has_been_ended(&self) {
        self.ends.lock().ended = true;
    }

    /// The other side has closed in peace: what is sent now is lost.
    pub fn has_ended(&self) -> bool {
        self.ends.lock().ended
    }

    /// Not connected any longer: a port that no program has chosen goes, too.
    fn forget_peer(&self) {
        let port = {
            let mut ends = self.ends.lock();
            ends.peer = None;
            match &ends.port {
                Some(port) if port.chosen => None,
                _ => {
                    ends.local = address::unspecified(self.six);
                    ends.port.take()
                }
            }
        };
        // Outside the lock: it may send a message.
        drop(port);
    }

    /// A port that a program has chosen, connected now, is not for other addresses.
    fn stays_at_address(&self) {
        let (ip, port) = {
            let ends = self.ends.lock();
            (ends.local.ip, ends.port.clone())
        };
        if let Some(port) = port.filter(|port| port.chosen) {
            port.reduce(|claim| claim.at.ip = ip);
        }
    }

    pub fn name(&self) -> Vec<u8> {
        encode(self.six, self.ends.lock().local)
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        Ok(encode(self.six, self.ends.lock().peer.ok_or(Errno::ENOTCONN)?))
    }
}

impl Socket {
    /// socket(2) of AF_INET or AF_INET6 (`six`).
    pub fn internet(
        names: &Arc<NetNamespace>,
        caller: &Caller,
        protocol: Protocol,
        six: bool,
        flags: OpenFlags,
    ) -> Arc<Self> {
        let kind = match protocol {
            Protocol::Tcp => SocketKind::Stream,
            Protocol::Udp | Protocol::Icmp | Protocol::Icmp6 => SocketKind::Datagram,
        };
        Self::of_family(names, caller, kind, flags, Some(Internet::new(six, protocol)))
    }

    /// The accepted end, for a client with these `ends`.
    pub(super) fn internet_server(&self, client: Option<InternetEnds>, caller: &Caller) -> Option<Arc<Self>> {
        let here = self.inet.as_ref()?;
        let (client, port) = (client?, here.ends.lock().port.clone());
        if let Some(port) = &port {
            port.accepts(client.peer.ip);
        }
        let inet = Internet::accepted(here.six, client, port);
        Some(Self::of_family(&self.names, caller, SocketKind::Stream, OpenFlags::empty(), Some(inet)))
    }

    pub(super) async fn internet_control(
        &self,
        inet: &Internet,
        caller: &Caller,
        control: SocketControl,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        use messages::fs::SocketControl::*;
        let stream = inet.protocol == Protocol::Tcp;
        let flagged = patience.unless(self.flags.nonblocking());
        match control {
            Bind { place: Some(SocketAddress::Other(bytes)), .. } => {
                self.bind_port(inet, &bytes, caller).await.map(|()| ControlAnswer::Done)
            }
            Connect { place: Some(SocketAddress::Other(bytes)) } if stream => {
                self.connect_stream(inet, &bytes, caller, patience).await.map(|()| ControlAnswer::Done)
            }
            Connect { place: Some(SocketAddress::Other(bytes)) } => {
                self.connect_datagram(inet, &bytes, caller).await.map(|()| ControlAnswer::Done)
            }
            Bind { .. } | Connect { .. } | AwaitRoom { .. } => Err(Errno::EINVAL),
            Listen { backlog } => self.listen_on_port(inet, backlog, caller).await.map(|()| ControlAnswer::Done),
            Accept { flags, end } => self.accept(flags, end, caller, flagged).await,
            Move { end, references, watchers } => self.give_up(end, references, watchers, caller).await,
            ClosedFirst => {
                inet.ends.lock().close_first(self.names.now());
                Ok(ControlAnswer::Done)
            }
            Shutdown { how } => self.shutdown_internet(inet, how).map(|()| ControlAnswer::Done),
            Name => Ok(ControlAnswer::Bytes(inet.name())),
            PeerName if stream && !self.is_connected() => Err(Errno::ENOTCONN),
            PeerName => inet.peer_name().map(ControlAnswer::Bytes),
            Send { place, mut message, flags } => {
                let sender = Self::sender(caller, None)?;
                // UDP over IPv6 does not look at MSG_OOB.
                let looked_at = if stream || !inet.six { flags } else { flags & !MSG_OOB };
                self.mark_urgent(&mut message, looked_at)?;
                if flags & MSG_PROBES != 0 {
                    return self.probe_datagram(inet, place, &message).map(|()| ControlAnswer::Number(0));
                }
                let patience = flagged.unless(flags & MSG_DONTWAIT != 0);
                let count = match (stream, place) {
                    (true, _) => self.send_connected(&mut message, sender, &caller.shield, patience).await?,
                    (false, Some(SocketAddress::Unix(_))) => return Err(Errno::EINVAL),
                    (false, Some(SocketAddress::Other(bytes))) => {
                        self.send_datagram(inet, Some(&bytes), &mut message, sender, &caller.shield).await?
                    }
                    (false, None) => self.send_datagram(inet, None, &mut message, sender, &caller.shield).await?,
                };
                Ok(ControlAnswer::Number(count as i64))
            }
            Receive { bytes, flags } => self.receive(bytes, flags, flagged).await,
            GetOption { level, name } => self.option(level, name).map(ControlAnswer::Bytes),
            SetOption { level, name, value } => {
                self.set_option(caller, level, name, &value).map(|()| ControlAnswer::Done)
            }
        }
    }

    fn is_connected(&self) -> bool {
        let state = self.state.lock();
        match &state.role {
            Role::Connected(_) | Role::Linked(_) => !(state.read_shut && state.write_shut && state.error.is_some()),
            _ => false,
        }
    }

    async fn bind_port(&self, inet: &Internet, bytes: &[u8], caller: &Caller) -> Result<()> {
        let at = match family_of(bytes)? {
            // For programs that don't set the family (inet_bind in Linux).
            AF_UNSPEC if !inet.six && bytes.len() >= 16 && bytes[4..8] == [0; 4] => {
                let port = u16::from_be_bytes([bytes[2], bytes[3]]);
                InternetAddress { ip: ANY_4, port }
            }
            _ => parse(inet.six, bytes)?,
        };
        if inet.six && self.is_bound(inet) {
            return Err(Errno::EINVAL);
        }
        match scope_of(at.ip) {
            Scope::Elsewhere => return Err(Errno::EADDRNOTAVAIL),
            Scope::Multicast if inet.protocol == Protocol::Tcp && inet.six => return Err(Errno::EINVAL),
            _ => {}
        }
        if inet.six && self.setting(super::options::V6ONLY) != 0 && address::is_v4(at.ip) {
            return Err(Errno::EINVAL);
        }
        let privileged = (1..UNPRIVILEGED).contains(&at.port) && !inet.protocol.is_echo();
        if privileged && !caller.credentials.can(CAP_NET_BIND_SERVICE) {
            return Err(Errno::EACCES);
        }
        if self.is_bound(inet) {
            return Err(Errno::EINVAL);
        }
        // Who left now might have the port without knowing it.
        let _held = caller.shield.hold();
        self.take_port(inet, at, caller.credentials.euid).await?;
        if inet.six && scope_of(at.ip) != Scope::Any && !address::is_v4(at.ip) {
            // As on Linux, also for who asks.
            self.state.lock().settings.set(super::options::V6ONLY, 1);
        }
        Ok(())
    }

    fn is_bound(&self, inet: &Internet) -> bool {
        inet.is_bound() || !matches!(self.state.lock().role, Role::Alone)
    }

    /// A port for `at`, any if that names none. EADDRINUSE.
    async fn take_port(&self, inet: &Internet, at: InternetAddress, uid: u32) -> Result<()> {
        use super::options::*;
        let serial = {
            let mut ends = inet.ends.lock();
            if ends.serial == 0 {
                ends.serial = self.names.register(&self.this);
            }
            ends.serial
        };
        let claim = PortClaim {
            protocol: inet.protocol as u8,
            at,
            // An address of IPv6 is none of IPv4.
            only_six: self.setting(V6ONLY) != 0 || scope_of(at.ip) != Scope::Any && !address::is_v4(at.ip),
            reuse_address: self.setting(REUSEADDR) != 0,
            reuse_port: self.setting(REUSEPORT) != 0,
            uid,
            listening: false,
            peer: None,
        };
        let port = self.names.take_port(serial, claim).await?;
        let mut ends = inet.ends.lock();
        if ends.port.is_some() {
            return Err(Errno::EINVAL);
        }
        ends.local = InternetAddress { port: port.number(), ..at };
        ends.port = Some(port);
        Ok(())
    }

    /// Any port, for who has not called bind(2).
    async fn ensure_port(&self, inet: &Internet, uid: u32) -> Result<Arc<Port>> {
        if !inet.is_bound() {
            self.take_port(inet, address::unspecified(inet.six), uid).await.map_err(|error| match error {
                Errno::EADDRINUSE => Errno::EAGAIN,
                error => error,
            })?;
        }
        inet.ends.lock().port.clone().ok_or(Errno::EINVAL)
    }

    fn shutdown_internet(&self, inet: &Internet, how: u32) -> Result<()> {
        if how > 2 {
            return Err(Errno::EINVAL);
        }
        if matches!(self.state.lock().role, Role::Listening { .. }) {
            if how != 1 {
                self.stop_listening(inet);
            }
            return Ok(());
        }
        let connected = match inet.protocol {
            Protocol::Tcp => self.is_connected(),
            _ => inet.ends.lock().peer.is_some(),
        };
        match (connected, inet.protocol) {
            (true, _) => self.shutdown(how),
            // Those who wait hear of it all the same (inet_shutdown in Linux).
            (false, Protocol::Tcp) => Err(Errno::ENOTCONN),
            (false, _) => self.shutdown(how).and(Err(Errno::ENOTCONN)),
        }
    }

    /// Of a socket that has ended: its place in the table, and for how long its port stays taken. `left`: what keeps that port if the socket is the end
    /// of a connection that has moved here.
    pub(super) fn leave_internet(&mut self, reset: bool, left: Option<Arc<dyn File>>) {
        let Some(inet) = &mut self.inet else { return };
        let ends = inet.ends.get_mut();
        if ends.serial != 0 {
            self.names.forget(ends.serial);
        }
        if inet.protocol as u8 == TCP && ends.peer.is_some() && !ends.ended && !reset {
            ends.close_first(self.names.now());
            if let (Some(left), Ok(others)) = (left, self.names.others()) {
                others.run(Box::pin(async move {
                    // If that kernel has died, so have its claims.
                    let _ = left.control(&SYSTEM, Control::Socket(SocketControl::ClosedFirst)).await;
                    file::close(left).await;
                }));
            }
        }
        if let Some(port) = ends.port.take().filter(|_| ends.serial != 0) {
            port.left();
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
