//! AF_NETLINK (man 7 netlink): sockets that ask the kernel, of which NETLINK_ROUTE and NETLINK_SOCK_DIAG are there.
//!
//! A request is answered while it is sent: `route.rs` says what the interface is, `diag.rs` which sockets there are, and the answers wait
//! in the socket as datagrams. A list of sockets is made as far as it is read: a page is asked for when nothing waits any more, so a
//! list of any length takes no more memory than a page. Nothing changes, so whoever joins a group hears nothing. Programs can't
//! send to each other.

mod diag;
mod file;
mod link;
mod options;
mod route;
mod routes;
mod wire;

#[cfg(test)]
mod tests;

use super::list::SocketLists;
use crate::{
    anonymous::{Identity, StatusFlags},
    control::SocketAddress,
    Caller, Kind, OpenFlags,
};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use linux_raw_sys::netlink::{NETLINK_ROUTE, NETLINK_SOCK_DIAG, NLMSG_MIN_TYPE, NLM_F_ACK, NLM_F_REQUEST};
use machine::{
    account::{Account, Charge, Resource},
    collections::Queue,
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, Pid,
};
use options::Options;
use route::{Answered, Asker};
use wire::{Answers, Request, Requests};

pub const AF_NETLINK: u16 = 16;
/// `struct sockaddr_nl`: family, padding, port, groups.
const ADDRESS: usize = 12;
/// What a datagram takes of the heap beside its bytes.
const OVERHEAD: usize = 64;

/// Which ports the netlink sockets of this kernel have.
#[derive(Default)]
pub struct NetlinkPorts(Lock<Ports>);

#[derive(Default)]
struct Ports {
    /// Protocols and ports.
    taken: BTreeSet<(u32, u32)>,
    /// How many have been chosen that are nobody's process id.
    chosen: u32,
}

impl NetlinkPorts {
    fn take(&self, protocol: u32, port: u32) -> Result<()> {
        match self.0.lock().taken.insert((protocol, port)) {
            true => Ok(()),
            false => Err(Errno::EADDRINUSE),
        }
    }

    /// The process's id, or if a socket has it, a negative number below -4096.
    fn choose(&self, protocol: u32, process: Pid) -> u32 {
        const BELOW: u32 = 4096u32.wrapping_neg();
        let mut ports = self.0.lock();
        let mut port = process.0;
        while !ports.taken.insert((protocol, port)) {
            ports.chosen = (ports.chosen + 1) % i32::MAX as u32;
            port = BELOW.wrapping_sub(ports.chosen);
        }
        port
    }

    fn give_back(&self, protocol: u32, port: u32) {
        self.0.lock().taken.remove(&(protocol, port));
    }
}

struct Datagram {
    bytes: Vec<u8>,
    _charge: Charge,
}

#[derive(Default)]
struct State {
    /// The socket's own address, once it has one.
    port: Option<u32>,
    /// Groups that it has joined, a bit each.
    groups: u64,
    /// Where it sends to without being told; 0 is the kernel.
    peer: (u32, u32),
    inbox: Queue<Datagram>,
    /// Bytes in there.
    bytes: usize,
    /// The rest of a list of sockets, which comes behind what waits.
    list: Option<diag::List>,
    options: Options,
    /// Told once by SO_ERROR or a read.
    error: Option<Errno>,
}

/// What socket(2) may be asked for in this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetlinkType {
    kind: u16,
    protocol: u32,
}

impl NetlinkType {
    /// ESOCKTNOSUPPORT; EPROTONOSUPPORT: nobody answers there.
    pub fn new(kind: u32, protocol: i32) -> Result<Self> {
        if ![2, 3].contains(&kind) {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        match u32::try_from(protocol) {
            Ok(protocol @ (NETLINK_ROUTE | NETLINK_SOCK_DIAG)) => Ok(NetlinkType { kind: kind as u16, protocol }),
            _ => Err(Errno::EPROTONOSUPPORT),
        }
    }
}

pub struct NetlinkSocket {
    ports: Arc<NetlinkPorts>,
    lists: Arc<SocketLists>,
    /// NETLINK_ROUTE, NETLINK_SOCK_DIAG.
    protocol: u32,
    /// SOCK_RAW (3) or SOCK_DGRAM (2), which are the same.
    kind: u16,
    state: Lock<State>,
    changes: WaitQueue,
    flags: StatusFlags,
    inode: Identity,
    /// Of who made it: pays for what waits.
    account: Arc<Account>,
}

impl NetlinkSocket {
    /// socket(2).
    pub fn new(
        ports: &Arc<NetlinkPorts>,
        lists: &Arc<SocketLists>,
        account: Arc<Account>,
        caller: &Caller,
        of: NetlinkType,
        flags: OpenFlags,
    ) -> Arc<Self> {
        Arc::new(NetlinkSocket {
            ports: ports.clone(),
            lists: lists.clone(),
            protocol: of.protocol,
            kind: of.kind,
            state: Lock::default(),
            changes: WaitQueue::new(),
            flags: StatusFlags::new(flags | OpenFlags::RDWR),
            inode: Identity::new(Kind::Socket, 0o777, caller),
            account,
        })
    }

    fn bind(&self, caller: &Caller, address: &[u8]) -> Result<()> {
        let (port, groups) = parse_address(address)?;
        let own = self.state.lock().port;
        match (own, port) {
            (Some(own), port) if own != port => return Err(Errno::EINVAL),
            (Some(_), _) => {}
            (None, 0) => self.give_port(caller),
            (None, port) => {
                self.ports.take(self.protocol, port)?;
                self.keep_port(port);
            }
        }
        let mut state = self.state.lock();
        state.groups = state.groups & !u64::from(u32::MAX) | u64::from(groups);
        Ok(())
    }

    /// Chooses an address for a socket that has none.
    fn give_port(&self, caller: &Caller) {
        if self.state.lock().port.is_none() {
            self.keep_port(self.ports.choose(self.protocol, caller.process));
        }
    }

    /// Another thread may have been faster.
    fn keep_port(&self, port: u32) {
        let other = self.state.lock().port.replace(port);
        if let Some(other) = other {
            self.ports.give_back(self.protocol, other);
        }
    }

    fn connect(&self, caller: &Caller, address: &[u8]) -> Result<()> {
        let peer = match address {
            [0, 0, ..] => (0, 0),
            address => parse_address(address)?,
        };
        if peer != (0, 0) && !is_admin(caller) {
            return Err(Errno::EPERM);
        }
        self.give_port(caller);
        self.state.lock().peer = peer;
        Ok(())
    }

    /// getsockname(2), or of the other side.
    fn name(&self, of_peer: bool) -> Vec<u8> {
        let state = self.state.lock();
        let (port, groups) = match of_peer {
            true => state.peer,
            false => (state.port.unwrap_or(0), state.groups as u32),
        };
        address(port, groups)
    }

    /// Sends to the kernel, which answers at once. To anybody else: EPERM, and for who may ECONNREFUSED, for nobody listens.
    async fn send(&self, caller: &Caller, to: Option<SocketAddress>, bytes: &[u8]) -> Result<usize> {
        let to = match to {
            Some(SocketAddress::Other(address)) => parse_address(&address)?,
            Some(SocketAddress::Unix(_)) => return Err(Errno::EINVAL),
            None => self.state.lock().peer,
        };
        if to != (0, 0) && !is_admin(caller) {
            return Err(Errno::EPERM);
        }
        self.give_port(caller);
        if bytes.len() > self.state.lock().options.most_sent() {
            return Err(Errno::EMSGSIZE);
        }
        if bytes.is_empty() {
            return Err(Errno::ENODATA);
        }
        if to.0 != 0 {
            return Err(Errno::ECONNREFUSED);
        }
        for request in Requests(bytes) {
            if !self.serve(caller, &request) {
                break;
            }
        }
        Ok(bytes.len())
    }

    /// False: there is no room for more answers.
    fn serve(&self, caller: &Caller, request: &Request<'_>) -> bool {
        let (port, asker, capped) = {
            let state = self.state.lock();
            let (admin, uid) = (is_admin(caller), caller.credentials.uid);
            let asker = Asker { admin, uid, strict: state.options.strict };
            (state.port.unwrap_or(0), asker, state.options.capped)
        };
        let mut answers = Answers::new(request, port);
        let asks = u32::from(request.flags) & NLM_F_REQUEST != 0 && u32::from(request.kind) >= NLMSG_MIN_TYPE;
        let answered = match (asks, self.protocol) {
            (false, _) => Ok(Answered::One),
            (true, NETLINK_ROUTE) => route::answer(request, asker, &mut answers),
            (true, _) => return self.serve_list(request, &answers, asker, capped),
        };
        let room = self.push(&mut answers);
        let told = match answered {
            Ok(Answered::List) => {
                answers.done(None);
                self.push(&mut answers)
            }
            // The list had begun.
            Err(error) if answers.flags != 0 => {
                answers.done(Some(error));
                self.push(&mut answers)
            }
            Ok(Answered::One) => self.acknowledge(request, &answers, None, capped),
            Err(error) => self.acknowledge(request, &answers, Some(error), capped),
        };
        room && told
    }

    fn serve_list(&self, request: &Request<'_>, answers: &Answers, asker: Asker, capped: bool) -> bool {
        let begun = diag::begin(request, asker, answers).and_then(|list| {
            let mut state = self.state.lock();
            match state.list {
                Some(_) => Err(Errno::EBUSY),
                None => {
                    state.list = Some(list);
                    Ok(())
                }
            }
        });
        match begun {
            Ok(()) => {
                self.changes.wake_all();
                true
            }
            Err(error) => self.acknowledge(request, answers, Some(error), capped),
        }
    }

    /// Tells an error, and success if that is asked for.
    fn acknowledge(&self, request: &Request<'_>, answers: &Answers, error: Option<Errno>, capped: bool) -> bool {
        if error.is_none() && u32::from(request.flags) & NLM_F_ACK == 0 {
            return true;
        }
        let mut answers = answers.continued();
        answers.acknowledge(request, error, capped);
        self.push(&mut answers)
    }

    /// Puts what has been answered into the inbox. False: there is no room; the reader is told (ENOBUFS) that something is lost.
    fn push(&self, answers: &mut Answers) -> bool {
        let bytes = core::mem::take(&mut answers.bytes);
        if bytes.is_empty() {
            return true;
        }
        let charge = self.account.charge(Resource::Memory, bytes.len() + OVERHEAD);
        let mut state = self.state.lock();
        let fits = state.bytes + bytes.len() <= state.options.receive_buffer();
        let told = match charge {
            Ok(charge) if fits => {
                state.bytes += bytes.len();
                state.inbox.push_back(Datagram { bytes, _charge: charge });
                true
            }
            _ => {
                if !state.options.quiet {
                    state.error = Some(Errno::ENOBUFS);
                }
                false
            }
        };
        drop(state);
        self.changes.wake_all();
        told
    }

    /// Asks for the next page of a list of sockets if nothing else waits. Of several readers that do, one's page counts.
    async fn fill(&self) {
        loop {
            let list = match &*self.state.lock() {
                state if !state.inbox.is_empty() => return,
                State { list: Some(list), .. } => list.clone(),
                _ => return,
            };
            let mut page = list.page(&self.lists).await;
            let mut state = self.state.lock();
            if state.list.as_ref().is_none_or(|now| !now.is_at(&list)) {
                continue;
            }
            state.list = page.rest.take();
            drop(state);
            for answers in &mut page.datagrams {
                self.push(answers);
            }
        }
    }
}

impl Drop for NetlinkSocket {
    fn drop(&mut self) {
        if let Some(port) = self.state.get_mut().port {
            self.ports.give_back(self.protocol, port);
        }
    }
}

fn is_admin(caller: &Caller) -> bool {
    caller.credentials.can(abi::capability::NET_ADMIN)
}

/// Port and groups. EINVAL: it is no address of this family.
fn parse_address(address: &[u8]) -> Result<(u32, u32)> {
    if address.len() < ADDRESS || address[..2] != AF_NETLINK.to_ne_bytes() {
        return Err(Errno::EINVAL);
    }
    Ok((wire::word(address, 4), wire::word(address, 8)))
}

fn address(port: u32, groups: u32) -> Vec<u8> {
    [&AF_NETLINK.to_ne_bytes()[..], &[0; 2], &port.to_ne_bytes(), &groups.to_ne_bytes()].concat()
}
