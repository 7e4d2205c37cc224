//! ICMP echo sockets (SOCK_DGRAM with IPPROTO_ICMP or IPPROTO_ICMPV6; man 7 icmp): what is sent to an address of this machine is answered at
//! once, into the inbox of who has sent it. Their port is the identifier of their requests.

use super::{address::is_v4, Internet, Protocol};
use crate::{
    control::{DatagramHeader, InternetAddress, SocketMessage, UnixCredentials},
    socket::Socket,
    Caller,
};
use machine::{errno::Result, Errno};

/// Type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;
/// Longest packet: 65,535 bytes.
const LONGEST: usize = 65_535;
/// Of the kernel's answers.
const TTL: u8 = 64;

impl Protocol {
    pub(super) fn is_echo(self) -> bool {
        matches!(self, Protocol::Icmp | Protocol::Icmp6)
    }

    /// The types of a request and of its answer.
    fn types(self) -> (u8, u8) {
        match self {
            Protocol::Icmp6 => (128, 129),
            _ => (8, 0),
        }
    }
}

/// The sum of RFC 1071, to be continued or inverted.
fn sum(bytes: &[u8], so_far: u32) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    words.fold(so_far, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

/// The checksum of a packet; of ICMPv6 with both addresses, which are the same.
fn checksum(packet: &[u8], six: Option<u128>) -> u16 {
    let begin = six.map_or(0, |ip| {
        let length = (packet.len() as u32).to_be_bytes();
        let addresses = sum(&ip.to_be_bytes(), sum(&ip.to_be_bytes(), 0));
        sum(&[0, 0, 0, Protocol::Icmp6 as u8], sum(&length, addresses))
    });
    !(sum(packet, begin) as u16)
}

/// The answer to an echo request.
fn answer(protocol: Protocol, mut packet: alloc::vec::Vec<u8>, identifier: u16, ip: u128) -> alloc::vec::Vec<u8> {
    packet[0] = protocol.types().1;
    packet[2..4].fill(0);
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    let checksum = checksum(&packet, (protocol == Protocol::Icmp6).then_some(ip));
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

impl Socket {
    /// socket(2): EACCES unless net.ipv4.ping_group_range has one of the caller's groups (ping_init_sock).
    pub async fn may_echo(names: &super::NetNamespace, caller: &Caller) -> Result<()> {
        let (first, last) = names.ping_groups_of_all().await?;
        let who = &caller.credentials;
        match who.groups.iter().chain([&who.fsgid]).any(|group| (first..=last).contains(group)) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }

    /// Sends a request, which is answered.
    pub(super) fn send_echo(
        &self,
        inet: &Internet,
        to: InternetAddress,
        header: DatagramHeader,
        message: &mut SocketMessage,
        sender: UnixCredentials,
    ) -> Result<usize> {
        let count = message.bytes.len();
        let request = inet.protocol.types().0;
        if is_v4(to.ip) == inet.six || message.bytes.get(..2) != Some(&[request, 0]) {
            return Err(Errno::EINVAL);
        }
        let mut packet = answer(inet.protocol, core::mem::take(&mut message.bytes), inet.ends.lock().local.port, to.ip);
        // It comes from where the request went; of the kernel's own packets nobody chooses the time to live.
        let (from, header) = (InternetAddress { port: 0, ..to }, DatagramHeader { ttl: TTL, port: 0, ..header });
        match self.put_datagram(inet, from, header, &mut packet, sender) {
            // No room: it is lost.
            Ok(()) | Err(Errno::EAGAIN) => Ok(count),
            Err(error) => Err(error),
        }
    }

    /// EINVAL: it is not even a header.
    pub(super) fn check_echo(bytes: usize) -> Result<()> {
        match bytes {
            _ if bytes > LONGEST => Err(Errno::EMSGSIZE),
            _ if bytes < HEADER => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_valid_packets() {
        let request = |kind| alloc::vec![kind, 0, 9, 9, 0, 0, 0, 1, b'o', b'd', b'd'];
        let packet = answer(Protocol::Icmp, request(8), 0x1234, 0);
        assert_eq!((packet[0], &packet[4..8]), (0, &[0x12, 0x34, 0, 1][..]));
        assert_eq!(sum(&packet, 0), 0xffff);
        let packet = answer(Protocol::Icmp6, request(128), 7, 1);
        assert_eq!((packet[0], checksum(&packet, Some(1))), (129, 0));
    }
}
