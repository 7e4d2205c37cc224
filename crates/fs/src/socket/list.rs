//! The sockets of this kernel, and of all, as /proc/net and sock_diag list them ([`SocketList`]).

use super::{inet::address, options, NetNamespace, Role, Socket, SocketKind};
use crate::{
    control::UnixPlace,
    network::list::{state, InternetSocket, Page, Protocol, SocketInfo, SocketList, UnixSocket},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use machine::{errno::Result, BoxFuture, KernelId};
use messages::fs::{InternetAddress, ListedEnds, ListedSocket};

/// Sockets in a message, and so many are looked at for it.
const PART: usize = 32;
const LOOKED_AT: usize = 256;
/// Inode numbers of a kernel's sockets ([`number_from`](crate::anonymous::number_from)).
const KERNEL_SHIFT: u32 = 32;

const FIN_WAIT2: u8 = 5;
const CLOSE_WAIT: u8 = 8;

/// The lists of a machine.
pub struct AllSockets(pub Arc<NetNamespace>);

impl Socket {
    fn listed(&self, protocol: Option<(u8, bool)>) -> Option<ListedSocket> {
        let of = self.inet.as_ref().map(|inet| (inet.protocol as u8, inet.six));
        if of != protocol {
            return None;
        }
        let attributes = self.inode.attributes();
        let only_six = self.inet.is_some() && self.setting(options::V6ONLY) != 0;
        let now = self.state.lock();
        if matches!(now.role, Role::Moved) {
            return None;
        }
        let connected = matches!(now.role, Role::Connected(_) | Role::Linked(_));
        let (state, receive_queue, send_queue) = match &now.role {
            Role::Listening { backlog, waiting } => (state::LISTEN, waiting.len(), *backlog),
            Role::Far(..) => (state::ESTABLISHED, now.inbox.bytes(), 0),
            _ if of == Some((6, false)) || of == Some((6, true)) => {
                let state = match (connected, now.read_shut, now.write_shut) {
                    (false, ..) | (_, true, true) => state::CLOSE,
                    (_, false, false) => state::ESTABLISHED,
                    (_, false, true) => FIN_WAIT2,
                    (_, true, false) => CLOSE_WAIT,
                };
                // The end of what was sent counts for a byte.
                (state, now.inbox.bytes() + usize::from(state == CLOSE_WAIT), 0)
            }
            _ => {
                let peer = self.inet.as_ref().map_or(connected, |inet| inet.connection().is_some());
                (if peer { state::ESTABLISHED } else { state::CLOSE }, now.inbox.bytes(), 0)
            }
        };
        let ends = match &self.inet {
            Some(inet) => {
                // As on Linux: who has no port is in no list, nor who has one and neither listens nor is connected.
                let hidden = self.kind == SocketKind::Stream && state == state::CLOSE;
                let ends = inet.both().filter(|ends| ends[0].port != 0 && !hidden)?;
                ListedEnds::Internet { ends, only_six }
            }
            None => {
                let place = match &now.place {
                    Some((UnixPlace::Inode(device, inode), _)) => Some((*device, *inode)),
                    _ => None,
                };
                let peer = match &now.role {
                    Role::Connected(peer) => peer.upgrade().map(|peer| peer.inode.number()),
                    _ => None,
                };
                ListedEnds::Unix { kind: self.kind as u8, name: now.name.clone(), place, peer }
            }
        };
        // Nobody has a descriptor of what was not accepted yet.
        let accepted = now.listener.strong_count() == 0;
        let info = SocketInfo {
            state,
            receive_queue: receive_queue as u32,
            send_queue: send_queue as u32,
            uid: attributes.uid,
            inode: if accepted { attributes.ino } else { 0 },
            shut: u8::from(now.read_shut) | u8::from(now.write_shut) << 1,
        };
        Some(ListedSocket { info, ends })
    }
}

impl NetNamespace {
    /// A part of this kernel's sockets, from places above `from` on, and where the next one begins.
    pub(crate) fn listed(&self, protocol: Option<(u8, bool)>, from: u64) -> (Vec<ListedSocket>, Option<u64>) {
        let (mut part, mut above) = (Vec::new(), from);
        for _ in 0..LOOKED_AT {
            let Some((number, socket)) = self.next_open(above) else { return (part, None) };
            above = number;
            part.extend(socket.and_then(|socket| socket.listed(protocol)));
            if part.len() == PART {
                break;
            }
        }
        (part, Some(above))
    }

    /// Of the first kernel from that of `from` on that has some.
    async fn list(&self, protocol: Option<(u8, bool)>, from: u64) -> Result<Page<ListedSocket>> {
        let Ok(others) = self.others() else {
            let (sockets, next) = self.listed(protocol, from);
            return Ok(Page { sockets, next });
        };
        let first = (from >> KERNEL_SHIFT) as usize;
        for index in first..others.kernels() {
            let kernel = KernelId(index as u16);
            if !others.present().contains(kernel) {
                continue;
            }
            let above = if index == first { from } else { (index as u64) << KERNEL_SHIFT };
            let (sockets, next) = match kernel == others.me() {
                true => self.listed(protocol, above),
                false => others.listed(kernel, protocol, above).await,
            };
            let next_kernel = ((index + 1) < others.kernels()).then_some((index as u64 + 1) << KERNEL_SHIFT);
            if !sockets.is_empty() || next.is_some() {
                return Ok(Page { sockets, next: next.or(next_kernel) });
            }
        }
        Ok(Page::default())
    }
}

fn socket_address(six: bool, address: InternetAddress) -> SocketAddr {
    let ip = Ipv6Addr::from(address.ip);
    let ip = match ip.to_ipv4_mapped() {
        Some(ip) if !six => IpAddr::V4(ip),
        _ => IpAddr::V6(ip),
    };
    SocketAddr::new(ip, address.port)
}

impl SocketList for AllSockets {
    fn internet(&self, protocol: Protocol, from: u64) -> BoxFuture<'_, Result<Page<InternetSocket>>> {
        Box::pin(async move {
            let page = self.0.list(Some((protocol.number, protocol.six)), from).await?;
            let sockets = page.sockets.into_iter().filter_map(|listed| match listed.ends {
                ListedEnds::Internet { ends, only_six } => Some(InternetSocket {
                    info: listed.info,
                    local: socket_address(protocol.six, ends[0]),
                    remote: socket_address(protocol.six, ends[1]),
                    only_v6: only_six,
                    timer: (0, 0),
                }),
                ListedEnds::Unix { .. } => None,
            });
            Ok(Page { sockets: sockets.collect(), next: page.next })
        })
    }

    fn unix(&self, from: u64) -> BoxFuture<'_, Result<Page<UnixSocket>>> {
        Box::pin(async move {
            let page = self.0.list(None, from).await?;
            let sockets = page.sockets.into_iter().filter_map(|ListedSocket { info, ends }| match ends {
                ListedEnds::Unix { kind, name, place, peer } => Some(UnixSocket { info, kind, name, place, peer }),
                ListedEnds::Internet { .. } => None,
            });
            Ok(Page { sockets: sockets.collect(), next: page.next })
        })
    }
}

impl super::Internet {
    /// Both addresses; that of the other side unspecified without one.
    fn both(&self) -> Option<[InternetAddress; 2]> {
        let (local, peer) = self.addresses();
        Some([local, peer.unwrap_or(address::unspecified(self.six))])
    }
}
