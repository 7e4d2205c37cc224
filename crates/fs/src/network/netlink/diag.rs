//! NETLINK_SOCK_DIAG (man 7 sock_diag): lists of sockets, for ss(8).

use super::{
    route::{asks_for_list, Asker},
    wire::{Answers, Request},
};
use crate::network::list::{state, InternetSocket, Protocol, SocketLists, UnixSocket};
use alloc::{vec, vec::Vec};
use core::net::{IpAddr, SocketAddr};
use linux_raw_sys::netlink::NLM_F_MULTI;
use machine::{errno::Result, Errno};

const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const LAST_FAMILY: u8 = 45;
const TCP: u8 = 6;
/// `struct inet_diag_req_v2`, `struct unix_diag_req`: family, protocol, and from byte 4 on which states are wanted.
const INTERNET_REQUEST: usize = 56;
const UNIX_REQUEST: usize = 24;
// Attributes.
const INET_DIAG_SHUTDOWN: u32 = 8;
const INET_DIAG_SKV6ONLY: u32 = 11;
const UNIX_DIAG_NAME: u32 = 0;
const UNIX_DIAG_VFS: u32 = 1;
const UNIX_DIAG_PEER: u32 = 2;
const UNIX_DIAG_RQLEN: u32 = 4;
const UNIX_DIAG_SHUTDOWN: u32 = 6;
const UNIX_DIAG_UID: u32 = 7;
// Which of them are wanted (UDIAG_SHOW_*).
const SHOW_NAME: u32 = 0x1;
const SHOW_PLACE: u32 = 0x2;
const SHOW_PEER: u32 = 0x4;
const SHOW_QUEUE: u32 = 0x10;
const SHOW_UID: u32 = 0x40;
/// What one answer takes at most of a datagram; and how long a datagram gets, which programs without a larger buffer can read.
const LONGEST: usize = 320;
const DATAGRAM: usize = 3776;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Internet(Protocol),
    Unix { show: u32 },
}

/// A list that somebody has asked for, as far as it has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    of: Of,
    /// A bit for each [`state`].
    states: u32,
    from: u64,
    sequence: u32,
    port: u32,
}

/// A piece of a list.
pub struct Piece {
    pub datagrams: Vec<Answers>,
    /// Where it goes on; None: the end is told.
    pub rest: Option<List>,
}

/// ENOENT: a family, or a protocol, of which there is no list. EOPNOTSUPP: a single socket is asked for, or a socket's end.
pub fn begin(request: &Request<'_>, asker: Asker, answers: &Answers) -> Result<List> {
    match request.kind {
        BY_FAMILY => {}
        DESTROY if !asker.admin => return Err(Errno::EPERM),
        DESTROY => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    }
    let family = request.byte(0);
    if request.body.len() < 2 || family > LAST_FAMILY {
        return Err(Errno::EINVAL);
    }
    let (of, size) = match family {
        AF_UNIX => (Of::Unix { show: request.word(12) }, UNIX_REQUEST),
        AF_INET | AF_INET6 => {
            let protocol = Protocol { number: request.byte(1), six: family == AF_INET6 };
            (Of::Internet(protocol), INTERNET_REQUEST)
        }
        _ => return Err(Errno::ENOENT),
    };
    if request.body.len() < size {
        return Err(Errno::EINVAL);
    }
    if !asks_for_list(request) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(List { of, states: request.word(4), from: 0, sequence: answers.sequence, port: answers.port })
}

impl List {
    /// Whether both have been told as far.
    pub fn is_at(&self, other: &List) -> bool {
        self == other
    }

    fn wants(&self, state: u8) -> bool {
        self.states & 1 << (state & 31) != 0
    }

    /// The next piece. An error of another kernel ends the list, which says so.
    pub async fn page(&self, lists: &SocketLists) -> Piece {
        let mut datagrams = Datagrams::new(self);
        let next = match self.of {
            Of::Internet(protocol) => lists.internet(protocol, self.from).await.map(|page| {
                for socket in page.sockets.iter().filter(|socket| self.wants(socket.info.state)) {
                    put_internet(datagrams.room(), protocol, socket);
                }
                page.next
            }),
            Of::Unix { show } => lists.unix(self.from).await.map(|page| {
                for socket in page.sockets.iter().filter(|socket| self.wants(socket.info.state)) {
                    put_unix(datagrams.room(), socket, show);
                }
                page.next
            }),
        };
        let rest = match next {
            Ok(Some(from)) => Some(List { from, ..self.clone() }),
            Ok(None) => {
                datagrams.end(None);
                None
            }
            Err(error) => {
                datagrams.end(Some(error));
                None
            }
        };
        Piece { datagrams: datagrams.0, rest }
    }
}

struct Datagrams(Vec<Answers>);

impl Datagrams {
    fn new(list: &List) -> Self {
        Datagrams(vec![Answers { bytes: Vec::new(), flags: NLM_F_MULTI, sequence: list.sequence, port: list.port }])
    }

    /// Where the next answer fits.
    fn room(&mut self) -> &mut Answers {
        let last = self.0.len() - 1;
        if self.0[last].bytes.len() + LONGEST > DATAGRAM {
            self.begin();
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    fn begin(&mut self) {
        let next = self.0[self.0.len() - 1].continued();
        self.0.push(next);
    }

    /// In a datagram of its own.
    fn end(&mut self, error: Option<Errno>) {
        self.begin();
        let last = self.0.len() - 1;
        self.0[last].done(error);
    }
}

/// Sixteen bytes, in network order.
fn put_address(to: &mut [u8], address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => to[..16].copy_from_slice(&ip.octets()),
    }
}

/// `struct inet_diag_msg`.
fn put_internet(answers: &mut Answers, protocol: Protocol, socket: &InternetSocket) {
    let info = &socket.info;
    let mut structure = [0; 72];
    let family = if protocol.six { AF_INET6 } else { AF_INET };
    structure[..3].copy_from_slice(&[family, info.state, socket.timer.0]);
    structure[4..6].copy_from_slice(&socket.local.port().to_be_bytes());
    structure[6..8].copy_from_slice(&socket.remote.port().to_be_bytes());
    put_address(&mut structure[8..24], socket.local);
    put_address(&mut structure[24..40], socket.remote);
    put_cookie(&mut structure[44..52], info.inode);
    for (at, word) in
        [(52, socket.timer.1), (56, info.receive_queue), (60, info.send_queue), (64, info.uid), (68, info.inode as u32)]
    {
        structure[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    answers.message(BY_FAMILY.into(), &structure, |answers| {
        answers.attribute(INET_DIAG_SHUTDOWN, &[info.shut]);
        let unconnected = protocol.number != TCP || [state::LISTEN, state::CLOSE].contains(&info.state);
        if protocol.six && unconnected {
            answers.attribute(INET_DIAG_SKV6ONLY, &[socket.only_v6.into()]);
        }
    });
}

/// What tells a socket from one that had the same number before: here no number is given twice.
fn put_cookie(to: &mut [u8], inode: u64) {
    to.copy_from_slice(&inode.to_ne_bytes());
}

/// `struct unix_diag_msg`.
fn put_unix(answers: &mut Answers, socket: &UnixSocket, show: u32) {
    let info = &socket.info;
    let mut structure = [0; 16];
    structure[..3].copy_from_slice(&[AF_UNIX, socket.kind, info.state]);
    structure[4..8].copy_from_slice(&(info.inode as u32).to_ne_bytes());
    put_cookie(&mut structure[8..16], info.inode);
    answers.message(BY_FAMILY.into(), &structure, |answers| {
        if show & SHOW_NAME != 0 && !socket.name.is_empty() {
            answers.attribute(UNIX_DIAG_NAME, &socket.name);
        }
        if let Some(((major, minor), inode)) = socket.place.filter(|_| show & SHOW_PLACE != 0) {
            answers.nest(UNIX_DIAG_VFS, |answers| {
                answers.put(&(inode as u32).to_ne_bytes());
                answers.put(&(major << 20 | minor).to_ne_bytes());
            });
        }
        if let Some(peer) = socket.peer.filter(|_| show & SHOW_PEER != 0) {
            answers.number(UNIX_DIAG_PEER, peer as u32);
        }
        if show & SHOW_QUEUE != 0 {
            answers.nest(UNIX_DIAG_RQLEN, |answers| {
                answers.put(&info.receive_queue.to_ne_bytes());
                answers.put(&info.send_queue.to_ne_bytes());
            });
        }
        if show & SHOW_UID != 0 {
            answers.number(UNIX_DIAG_UID, info.uid);
        }
        answers.attribute(UNIX_DIAG_SHUTDOWN, &[info.shut]);
    });
}
