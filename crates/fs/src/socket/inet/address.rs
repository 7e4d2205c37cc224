//! `struct sockaddr_in` and `struct sockaddr_in6` (man 7 ip, ipv6), and which addresses this machine has: 127.0.0.0/8 and ::1.

use crate::control::InternetAddress;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use machine::{errno::Result, Errno};

pub const AF_UNSPEC: u16 = 0;
pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
/// Of `struct sockaddr_in`.
const SIZE_4: usize = 16;
/// Of the first version of `struct sockaddr_in6`, which lacked the scope.
const LEAST_6: usize = 24;

/// What an address is for who binds or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// 0.0.0.0 and ::.
    Any,
    /// This machine's.
    Local,
    /// 255.255.255.255 and 127.255.255.255.
    Broadcast,
    /// 224.0.0.0/4 and ff00::/8.
    Multicast,
    /// Out of the machine.
    Elsewhere,
}

fn v4(ip: u128) -> Option<Ipv4Addr> {
    Ipv6Addr::from_bits(ip).to_ipv4_mapped()
}

pub const fn mapped(ip: Ipv4Addr) -> u128 {
    ip.to_ipv6_mapped().to_bits()
}

const LOCALHOST_4: u128 = mapped(Ipv4Addr::LOCALHOST);
/// All hosts of all links: nowhere within this machine.
pub const BROADCAST: u128 = mapped(Ipv4Addr::BROADCAST);
pub const ANY_4: u128 = mapped(Ipv4Addr::UNSPECIFIED);
pub const ANY_6: u128 = 0;

/// The address of a socket that has none yet.
pub fn unspecified(six: bool) -> InternetAddress {
    InternetAddress { ip: if six { ANY_6 } else { ANY_4 }, port: 0 }
}

pub fn is_v4(ip: u128) -> bool {
    v4(ip).is_some()
}

pub fn scope_of(ip: u128) -> Scope {
    match v4(ip) {
        Some(Ipv4Addr::UNSPECIFIED) => Scope::Any,
        Some(ip) if ip.is_broadcast() || ip.octets() == [127, 255, 255, 255] => Scope::Broadcast,
        Some(ip) if ip.is_loopback() => Scope::Local,
        Some(ip) if ip.is_multicast() => Scope::Multicast,
        Some(_) => Scope::Elsewhere,
        None => match Ipv6Addr::from_bits(ip) {
            Ipv6Addr::UNSPECIFIED => Scope::Any,
            Ipv6Addr::LOCALHOST => Scope::Local,
            ip if ip.is_multicast() => Scope::Multicast,
            _ => Scope::Elsewhere,
        },
    }
}

/// Where something for `to` goes: to nobody in particular is to this machine. ENETUNREACH: out of the machine.
pub fn reachable(to: u128) -> Result<u128> {
    match scope_of(to) {
        Scope::Any => Ok(source_for(to)),
        Scope::Local => Ok(to),
        _ => Err(Errno::ENETUNREACH),
    }
}

/// The address that Linux sends from to a local one.
pub fn source_for(to: u128) -> u128 {
    match is_v4(to) {
        true => LOCALHOST_4,
        false => Ipv6Addr::LOCALHOST.to_bits(),
    }
}

/// The family of an address. EINVAL: it is too short to have one.
pub fn family_of(bytes: &[u8]) -> Result<u16> {
    let family = bytes.first_chunk::<2>().ok_or(Errno::EINVAL)?;
    Ok(u16::from_ne_bytes(*family))
}

/// An address of the family `six` says; EINVAL if it is too short, EAFNOSUPPORT if it is of another.
pub fn parse(six: bool, bytes: &[u8]) -> Result<InternetAddress> {
    if bytes.len() < if six { LEAST_6 } else { SIZE_4 } {
        return Err(Errno::EINVAL);
    }
    if family_of(bytes)? != if six { AF_INET6 } else { AF_INET } {
        return Err(Errno::EAFNOSUPPORT);
    }
    parse_any(bytes)
}

/// The same of the family that it says itself.
fn parse_any(bytes: &[u8]) -> Result<InternetAddress> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family_of(bytes)? {
        AF_INET => {
            let ip: [u8; 4] = bytes[4..8].try_into().map_err(|_| Errno::EINVAL)?;
            mapped(Ipv4Addr::from(ip))
        }
        _ => u128::from_be_bytes(bytes[8..24].try_into().map_err(|_| Errno::EINVAL)?),
    };
    Ok(InternetAddress { ip, port })
}

/// As programs see it: of a socket of AF_INET6 (`six`), an IPv4 address is a mapped one.
pub fn encode(six: bool, address: InternetAddress) -> Vec<u8> {
    let port = address.port.to_be_bytes();
    match v4(address.ip) {
        Some(ip) if !six => [&AF_INET.to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        _ => [&AF_INET6.to_ne_bytes()[..], &port, &[0; 4], &address.ip.to_be_bytes(), &[0; 4]].concat(),
    }
}

/// Between kernels a datagram's sender is told as a `sockaddr_in6`.
pub fn decode(bytes: &[u8]) -> Result<InternetAddress> {
    parse(true, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told_as_the_family_has_them() {
        let four = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let address = parse(false, &four).unwrap();
        assert_eq!((address.ip, address.port), (LOCALHOST_4, 80));
        assert_eq!(encode(false, address), four);
        assert_eq!(encode(true, address)[18..24], [0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(decode(&encode(true, address)), Ok(address));
        assert_eq!(parse(true, &four), Err(Errno::EINVAL));
        assert_eq!(parse(true, &[0; 28]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(parse(false, &four[..15]), Err(Errno::EINVAL));
    }

    #[test]
    fn only_loopback_is_here() {
        let ip = |text: &str| mapped(text.parse().unwrap());
        assert_eq!(reachable(ip("127.9.9.9")), Ok(ip("127.9.9.9")));
        assert_eq!(reachable(ip("0.0.0.0")), Ok(LOCALHOST_4));
        assert_eq!(reachable(ANY_6), Ok(1));
        assert_eq!(reachable(ip("10.0.0.1")), Err(Errno::ENETUNREACH));
        assert_eq!(scope_of(ip("127.255.255.255")), Scope::Broadcast);
        assert_eq!(scope_of(ip("224.0.0.1")), Scope::Multicast);
    }
}
