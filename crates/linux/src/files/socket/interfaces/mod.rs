//! ioctls about network interfaces (man 7 netdevice), which any socket may be asked for: the call answers them, not the socket.
//!
//! There is one interface, `lo`, and nobody can change it ([`fs::network::lo`]). What would change it answers what Linux finds wrong before
//! it acts; then 0 if it asks for what is so already, else EOPNOTSUPP. `ethtool.rs` has the requests behind SIOCETHTOOL.

mod ethtool;

use crate::call::Call;
use abi::capability;
use core::net::Ipv4Addr;
use fs::{network::lo, File};
use linux_raw_sys::{if_arp::ARPHRD_LOOPBACK, ioctl::*};
use machine::{errno::Result, Errno, UserAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Those that linux-raw-sys lacks (linux/sockios.h, linux/if_bridge.h).
const SIOCETHTOOL: u32 = 0x8946;
const SIOCGMIIPHY: u32 = 0x8947;
const SIOCSMIIREG: u32 = 0x8949;
const SIOCWANDEV: u32 = 0x894a;
const SIOCOUTQNSD: u32 = 0x894b;
const SIOCGSKNS: u32 = 0x894c;
const SIOCGIFVLAN: u32 = 0x8982;
const SIOCSIFVLAN: u32 = 0x8983;
const SIOCBONDENSLAVE: u32 = 0x8990;
const SIOCBONDSLAVEINFOQUERY: u32 = 0x8993;
const SIOCBONDINFOQUERY: u32 = 0x8994;
const SIOCBONDCHANGEACTIVE: u32 = 0x8995;
const SIOCBRADDBR: u32 = 0x89a0;
const SIOCBRDELBR: u32 = 0x89a1;
const SIOCBRADDIF: u32 = 0x89a2;
const SIOCBRDELIF: u32 = 0x89a3;
const SIOCSHWTSTAMP: u32 = 0x89b0;
const SIOCGHWTSTAMP: u32 = 0x89b1;
const LAST_PRIVATE: u32 = SIOCDEVPRIVATE + 15;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// `struct ifreq`: a name, and what the request makes of the rest.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    value: [u8; 24],
}

impl InterfaceRequest {
    fn put(&mut self, bytes: &[u8]) {
        self.value[..bytes.len()].copy_from_slice(bytes);
    }

    fn int(&self) -> i32 {
        let [a, b, c, d, ..] = self.value;
        i32::from_ne_bytes([a, b, c, d])
    }

    fn family(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    fn address(&self) -> Ipv4Addr {
        let [_, _, _, _, a, b, c, d, ..] = self.value;
        Ipv4Addr::new(a, b, c, d)
    }

    /// `struct sockaddr_in`.
    fn put_address(&mut self, address: Ipv4Addr) {
        let [a, b, c, d] = address.octets();
        let [low, high] = AF_INET.to_ne_bytes();
        self.put(&[low, high, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// `ifr_data`.
    fn pointer(&self) -> UserAddr {
        let [a, b, c, d, e, f, g, h, ..] = self.value;
        UserAddr(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The name up to its NUL.
    fn label(&self) -> &[u8] {
        self.name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// ENODEV unless `lo` is meant. What follows a colon is an address's label, not the interface's.
    fn check_device(&self) -> Result<()> {
        match self.label().split(|&byte| byte == b':').next() == Some(lo::NAME.as_bytes()) {
            true => Ok(()),
            false => Err(Errno::ENODEV),
        }
    }
}

/// What a request does beside checking who asks.
enum Outcome {
    /// The structure is written back.
    Tells,
    /// Nothing was to be done.
    Done,
}
use Outcome::{Done, Tells};

/// 0 for what asks for what is so already.
fn if_so(already: bool) -> Result<Outcome> {
    match already {
        true => Ok(Done),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// Answers `request` if it is one of these and `file` is a socket.
pub(crate) async fn ioctl(call: &Call<'_>, file: &dyn File, request: u32) -> Result<Option<u64>> {
    let concerns_interfaces = matches!(request, SIOCADDRT..=0x89df | SIOCDEVPRIVATE..=LAST_PRIVATE);
    let Some(socket) = file.socket().filter(|_| concerns_interfaces && request != SIOCOUTQNSD) else {
        return Ok(None);
    };
    let at = call.pointer(2);
    let admin = call.can(capability::NET_ADMIN);
    match request {
        SIOCGIFCONF => return list(call, at).await.map(Some),
        SIOCGIFVLAN | SIOCSIFVLAN => return Err(Errno::ENOPKG),
        SIOCBRADDBR | SIOCBRDELBR | SIOCBRADDIF | SIOCBRDELIF | SIOCGSKNS if !admin => return Err(Errno::EPERM),
        SIOCGIFBR | SIOCSIFBR | SIOCBRADDBR | SIOCBRDELBR | SIOCGSKNS => return Err(Errno::EOPNOTSUPP),
        _ => {}
    }
    let family = socket.family;
    if let Some(error) = at_once(request, family, admin) {
        return Err(error);
    }
    if let Some(size) = route_size(request, family) {
        call.bytes(at, size, size).await?;
        return Err(refused(admin));
    }
    let mut asked: InterfaceRequest = call.get(at).await?;
    asked.name[15] = 0;
    if request == SIOCETHTOOL {
        return ethtool::answer(call, asked, admin).await.map(Some);
    }
    let outcome = match family {
        AF_INET => match about_addresses(request, &mut asked, admin) {
            None => of_device(request, &mut asked, admin),
            Some(outcome) => outcome,
        },
        AF_INET6 if matches!(request, SIOCSIFADDR | SIOCDIFADDR) => Err(Errno::EOPNOTSUPP),
        _ => of_device(request, &mut asked, admin),
    };
    if let Tells = outcome? {
        call.put(at, &asked).await?;
    }
    Ok(Some(0))
}

/// The answer to what nobody can do here.
fn refused(admin: bool) -> Errno {
    match admin {
        true => Errno::EOPNOTSUPP,
        false => Errno::EPERM,
    }
}

/// What is refused without a look at the argument.
fn at_once(request: u32, family: u16, admin: bool) -> Option<Errno> {
    match (request, family) {
        (SIOCRTMSG, AF_INET) => Some(Errno::EINVAL),
        (SIOCDARP | SIOCSARP, AF_INET) => Some(refused(admin)),
        (SIOCSIFADDR | SIOCDIFADDR, AF_INET6) if !admin => Some(Errno::EPERM),
        (SIOCSIFDSTADDR, AF_INET6) => Some(Errno::ENODEV),
        _ => None,
    }
}

/// Of `struct rtentry` or `struct in6_rtmsg`, if the request is about routes. There are none to add or to take away.
fn route_size(request: u32, family: u16) -> Option<usize> {
    match (request, family) {
        (SIOCADDRT | SIOCDELRT, AF_INET) => Some(120),
        (SIOCADDRT | SIOCDELRT, AF_INET6) => Some(80),
        _ => None,
    }
}

/// What sockets of IPv4 are asked for (Linux: devinet_ioctl). None: it is nothing of that kind.
fn about_addresses(request: u32, asked: &mut InterfaceRequest, admin: bool) -> Option<Result<Outcome>> {
    let told = match request {
        SIOCGIFADDR | SIOCGIFDSTADDR => lo::ADDRESS,
        SIOCGIFBRDADDR => Ipv4Addr::UNSPECIFIED,
        SIOCGIFNETMASK => lo::NETMASK,
        SIOCSIFADDR | SIOCSIFDSTADDR | SIOCSIFBRDADDR | SIOCSIFNETMASK => {
            return Some(set_address(request, asked, admin))
        }
        SIOCGIFPFLAGS | SIOCSIFPFLAGS => return Some(Err(Errno::EINVAL)),
        // `struct arpreq` is longer, but begins with the address. Nothing is in the cache.
        SIOCGARP if asked.name[..2] != AF_INET.to_ne_bytes() => return Some(Err(Errno::EPFNOSUPPORT)),
        SIOCGARP => return Some(Err(Errno::ENXIO)),
        _ => return None,
    };
    if let Err(error) = asked.check_device() {
        return Some(Err(error));
    }
    if asked.label() != lo::NAME.as_bytes() {
        return Some(Err(Errno::EADDRNOTAVAIL));
    }
    asked.put_address(told);
    Some(Ok(Tells))
}

fn set_address(request: u32, asked: &InterfaceRequest, admin: bool) -> Result<Outcome> {
    if !admin {
        return Err(Errno::EPERM);
    }
    if asked.family() != AF_INET {
        return Err(Errno::EINVAL);
    }
    asked.check_device()?;
    let now = match request {
        SIOCSIFADDR | SIOCSIFDSTADDR => lo::ADDRESS,
        SIOCSIFBRDADDR => Ipv4Addr::UNSPECIFIED,
        _ => lo::NETMASK,
    };
    if_so(asked.label() == lo::NAME.as_bytes() && asked.address() == now)
}

/// What sockets of any family are asked for (Linux: dev_ioctl).
fn of_device(request: u32, asked: &mut InterfaceRequest, admin: bool) -> Result<Outcome> {
    match request {
        SIOCGIFNAME if asked.int() != lo::INDEX as i32 => return Err(Errno::ENODEV),
        SIOCGIFNAME => {
            asked.name = [0; 16];
            asked.name[..lo::NAME.len()].copy_from_slice(lo::NAME.as_bytes());
            return Ok(Tells);
        }
        SIOCGIFFLAGS..=SIOCGIFTXQLEN | SIOCGIFMAP if tells(request, asked)? => return Ok(Tells),
        SIOCWANDEV | SIOCBONDSLAVEINFOQUERY | SIOCBONDINFOQUERY | SIOCGHWTSTAMP | SIOCDEVPRIVATE..=LAST_PRIVATE => {
            asked.check_device()?;
            return Err(Errno::EOPNOTSUPP);
        }
        _ if !changes(request) => return Err(Errno::ENOTTY),
        _ if !admin => return Err(Errno::EPERM),
        _ => {}
    }
    asked.check_device()?;
    match request {
        SIOCSIFFLAGS => if_so((asked.family() ^ lo::FLAGS) & lo::SETTABLE == 0),
        SIOCSIFMTU => if_so(asked.int() == lo::MTU as i32),
        SIOCSIFTXQLEN => if_so(asked.int() == lo::QUEUE_LENGTH as i32),
        SIOCSIFHWADDR | SIOCSIFHWBROADCAST if u32::from(asked.family()) != ARPHRD_LOOPBACK => Err(Errno::EINVAL),
        SIOCSIFSLAVE | SIOCADDMULTI | SIOCDELMULTI => Err(Errno::EINVAL),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Fills in what a request asks of an interface that it names. False: it asks for nothing.
fn tells(request: u32, asked: &mut InterfaceRequest) -> Result<bool> {
    let mut value = asked.value;
    let told: &[u8] = match request {
        SIOCGIFFLAGS => &lo::FLAGS.to_ne_bytes(),
        SIOCGIFMETRIC => &[0; 4],
        SIOCGIFMTU => &lo::MTU.to_ne_bytes(),
        SIOCGIFINDEX => &lo::INDEX.to_ne_bytes(),
        SIOCGIFTXQLEN => &lo::QUEUE_LENGTH.to_ne_bytes(),
        SIOCGIFMAP => &[0; 24],
        SIOCGIFHWADDR => {
            value[..16].fill(0);
            value[..2].copy_from_slice(&(ARPHRD_LOOPBACK as u16).to_ne_bytes());
            &value
        }
        SIOCGIFSLAVE => return asked.check_device().and(Err(Errno::EINVAL)),
        _ => return Ok(false),
    };
    asked.check_device()?;
    asked.put(told);
    Ok(true)
}

/// Whether only CAP_NET_ADMIN may ask for it.
fn changes(request: u32) -> bool {
    matches!(
        request,
        SIOCSIFFLAGS
            | SIOCSIFMETRIC
            | SIOCSIFMTU
            | SIOCSIFNAME
            | SIOCSIFHWADDR
            | SIOCSIFSLAVE
            | SIOCADDMULTI
            | SIOCDELMULTI
            | SIOCSIFHWBROADCAST
            | SIOCSIFTXQLEN
            | SIOCGMIIPHY..=SIOCSMIIREG
            | SIOCSIFMAP
            | SIOCBONDENSLAVE..=0x8992
            | SIOCBONDCHANGEACTIVE
            | SIOCBRADDIF
            | SIOCBRDELIF
            | SIOCSHWTSTAMP
    )
}

/// SIOCGIFCONF: each interface that has an IPv4 address, as far as there is room; without a buffer, how much there is.
async fn list(call: &Call<'_>, at: UserAddr) -> Result<u64> {
    let [room, buffer]: [u64; 2] = call.get(at).await?;
    let size = size_of::<InterfaceRequest>() as i32;
    let mut total = size;
    if buffer != 0 && (room as i32) < size {
        total = 0;
    } else if buffer != 0 {
        let mut entry = InterfaceRequest { name: [0; 16], value: [0; 24] };
        entry.name[..lo::NAME.len()].copy_from_slice(lo::NAME.as_bytes());
        entry.put_address(lo::ADDRESS);
        call.put(UserAddr(buffer), &entry).await?;
    }
    call.put(at, &total).await?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> InterfaceRequest {
        let mut request = InterfaceRequest { name: [0; 16], value: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }

    #[test]
    fn a_label_is_not_part_of_the_interfaces_name() {
        assert!(named("lo:1").check_device().is_ok() && named("lo").check_device().is_ok());
        assert_eq!(named("lo1").check_device(), Err(Errno::ENODEV));
        let asked = about_addresses(SIOCGIFADDR, &mut named("lo:1"), false);
        assert_eq!(asked.map(|outcome| outcome.err()), Some(Some(Errno::EADDRNOTAVAIL)));
    }

    #[test]
    fn only_what_is_so_already_can_be_set() {
        let mut asked = named("lo");
        asked.put(&65536u32.to_ne_bytes());
        assert!(of_device(SIOCSIFMTU, &mut asked, true).is_ok());
        assert_eq!(of_device(SIOCSIFMTU, &mut asked, false).err(), Some(Errno::EPERM));
        asked.put(&1500u32.to_ne_bytes());
        assert_eq!(of_device(SIOCSIFMTU, &mut asked, true).err(), Some(Errno::EOPNOTSUPP));
        assert_eq!(of_device(SIOCSIFMTU, &mut named("eth0"), true).err(), Some(Errno::ENODEV));
    }
}
