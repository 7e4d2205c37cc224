//! Lists of sockets, as /proc/net and netlink's sock_diag show them.

use alloc::{sync::Arc, vec::Vec};
use core::net::SocketAddr;
use machine::{errno::Result, sync::Lock, BoxFuture};
pub use messages::fs::SocketInfo;

/// States of a connection, of which other sockets use two: a datagram socket or one of AF_UNIX is ESTABLISHED with a peer, and CLOSE without.
pub mod state {
    pub const ESTABLISHED: u8 = 1;
    pub const TIME_WAIT: u8 = 6;
    pub const CLOSE: u8 = 7;
    pub const LISTEN: u8 = 10;
}

/// A socket of AF_INET or AF_INET6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternetSocket {
    pub info: SocketInfo,
    /// IPv6 addresses for a socket of AF_INET6, also where it speaks to IPv4.
    pub local: SocketAddr,
    /// Unspecified without a peer.
    pub remote: SocketAddr,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// Which timer runs (0: none, 1: retransmission, 2: keepalive, 3: TIME_WAIT), and when it fires, in milliseconds.
    pub timer: (u8, u32),
}

/// A socket of AF_UNIX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    pub info: SocketInfo,
    /// SOCK_STREAM (1), SOCK_DGRAM (2), SOCK_SEQPACKET (5).
    pub kind: u8,
    /// As bound; an abstract name begins with a zero byte. Empty without a name.
    pub name: Vec<u8>,
    /// Device and inode of the path that it is bound to.
    pub place: Option<((u32, u32), u64)>,
    /// The inode of the other end of a connection, where it is known.
    pub peer: Option<u64>,
}

/// Which of the sockets of AF_INET and AF_INET6 a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_RAW.
    pub number: u8,
    /// AF_INET6.
    pub six: bool,
}

/// A piece of a list, and what to ask for the next one with. None: that was the last.
pub struct Page<T> {
    pub sockets: Vec<T>,
    pub next: Option<u64>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Page { sockets: Vec::new(), next: None }
    }
}

/// The sockets of all kernels. A page has as many as fit into a message; the first is asked for with 0. A socket that is there all
/// the time is in one page, and one that comes or goes meanwhile may be.
pub trait SocketList: Send + Sync {
    fn internet(&self, protocol: Protocol, from: u64) -> BoxFuture<'_, Result<Page<InternetSocket>>>;
    fn unix(&self, from: u64) -> BoxFuture<'_, Result<Page<UnixSocket>>>;
}

/// Who has the list on this kernel; until somebody has it, the list is empty.
#[derive(Default)]
pub struct SocketLists(Lock<Option<Arc<dyn SocketList>>>);

impl SocketLists {
    pub fn set(&self, list: Arc<dyn SocketList>) {
        *self.0.lock() = Some(list);
    }

    pub async fn internet(&self, protocol: Protocol, from: u64) -> Result<Page<InternetSocket>> {
        match self.list() {
            Some(list) => list.internet(protocol, from).await,
            None => Ok(Page::default()),
        }
    }

    pub async fn unix(&self, from: u64) -> Result<Page<UnixSocket>> {
        match self.list() {
            Some(list) => list.unix(from).await,
            None => Ok(Page::default()),
        }
    }

    fn list(&self) -> Option<Arc<dyn SocketList>> {
        self.0.lock().clone()
    }
}
