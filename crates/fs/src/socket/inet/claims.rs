//! What the kernel that keeps a port knows of it: who claims it, whether two claims exclude each other, and whose is what comes for it.

use super::{
    address::{is_v4, ANY_4, ANY_6},
    ports::TCP,
};
use crate::{
    control::{InternetAddress, PortClaim},
    socket::FarSocket,
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use machine::{errno::Result, sync::Lock, Errno, KernelId};

/// A claim at the keeper of its port.
struct Kept {
    holder: FarSocket,
    claim: PortClaim,
    /// The holder is gone, and the claim in TIME_WAIT until then; 0: it is there.
    until: u64,
}

/// Most claims in TIME_WAIT that a kernel keeps, as net.ipv4.tcp_max_tw_buckets has it: nobody pays for them.
const WAITING_MAX: usize = 4096;

/// None: somebody who is gone, in TIME_WAIT.
pub type InTheWay = Option<(FarSocket, PortClaim)>;

/// By protocol and port: who claims it.
type KeptClaims = BTreeMap<(u8, u16), Vec<Kept>>;

#[derive(Default)]
struct Keeper {
    claims: KeptClaims,
    /// Those in TIME_WAIT, the first to end first: until when, which port, and whose.
    waiting: VecDeque<(u64, (u8, u16), FarSocket)>,
}

impl Keeper {
    /// Of those for which `over` holds.
    fn remove(&mut self, port: (u8, u16), holder: FarSocket, over: impl Fn(&Kept) -> bool) {
        if let Some(kept) = self.claims.get_mut(&port) {
            kept.retain(|kept| kept.holder != holder || !over(kept));
            if kept.is_empty() {
                self.claims.remove(&port);
            }
        }
    }

    /// Forgets what is over, and of TIME_WAIT the oldest if there is more than `most`.
    fn forget(&mut self, now: u64, most: usize) {
        while let Some(&(until, port, holder)) = self.waiting.front() {
            if until > now && self.waiting.len() <= most {
                return;
            }
            self.waiting.pop_front();
            // Its holder may have claimed it again.
            self.remove(port, holder, |kept| kept.until == until);
        }
    }
}

/// The claims of the ports that this kernel keeps.
#[derive(Default)]
pub(crate) struct Claims(Lock<Keeper>);

/// Which addresses a claim is for, of those of both families.
fn covers(claim: &PortClaim, ip: u128) -> bool {
    match claim.at.ip {
        ANY_6 => !claim.only_six || !is_v4(ip),
        ANY_4 => is_v4(ip),
        at => at == ip,
    }
}

fn overlap(a: &PortClaim, b: &PortClaim) -> bool {
    covers(a, b.at.ip) || covers(b, a.at.ip) || a.at.ip == b.at.ip || meet(a, b) || meet(b, a)
}

/// On Linux a connection by IPv6 of a socket of both families is in the way of who wants all addresses of IPv4 (ipv6_rcv_saddr_equal).
fn meet(all: &PortClaim, one: &PortClaim) -> bool {
    all.at.ip == ANY_4 && !is_v4(one.at.ip) && !one.only_six
}

/// inet_csk_bind_conflict, udp_lib_lport_inuse.
fn excludes(kept: &Kept, wanted: &PortClaim) -> bool {
    let claim = &kept.claim;
    if !overlap(claim, wanted) {
        return false;
    }
    let by_address = claim.reuse_address && wanted.reuse_address && !claim.listening;
    let by_port = claim.reuse_port && wanted.reuse_port && (claim.uid == wanted.uid || kept.until > 0);
    !by_address && !by_port
}

/// Does it exclude all others? Then what comes for the port is this socket's, and the keeper need not be asked.
pub fn is_alone(claim: &PortClaim) -> bool {
    !claim.reuse_port && (claim.listening || claim.protocol != TCP && !claim.reuse_address)
}

/// How well a claim fits what comes from `from` for `to`; None: not at all.
pub fn score(claim: &PortClaim, to: InternetAddress, from: InternetAddress) -> Option<u32> {
    if !covers(claim, to.ip) || claim.protocol == TCP && !claim.listening {
        return None;
    }
    let peer = match claim.peer {
        Some(peer) if peer != from => return None,
        Some(_) => 4,
        None => 0,
    };
    let address = match claim.at.ip {
        ANY_6 => 0,
        ANY_4 => 1,
        _ => 2,
    };
    Some(peer + address)
}

impl Claims {
    /// Who is in the way, and what for.
    pub fn claim(&self, holder: FarSocket, claim: PortClaim, now: u64) -> core::result::Result<(), InTheWay> {
        let mut keeper = self.0.lock();
        keeper.forget(now, WAITING_MAX);
        let kept = keeper.claims.entry((claim.protocol, claim.at.port)).or_default();
        if let Some(other) = kept.iter().find(|kept| kept.holder != holder && excludes(kept, &claim)) {
            return Err((other.until == 0).then_some((other.holder, other.claim)));
        }
        kept.retain(|kept| kept.holder != holder);
        kept.push(Kept { holder, claim, until: 0 });
        Ok(())
    }

    /// `holder` claims this by now, as its kernel says, of what it has at `port`; None: nothing.
    pub fn learn(&self, holder: FarSocket, port: (u8, u16), claim: Option<PortClaim>) {
        let mut keeper = self.0.lock();
        let Some(claim) = claim else { return keeper.remove(port, holder, |kept| kept.until == 0) };
        let kept = keeper.claims.get_mut(&port).into_iter().flatten();
        // Unless it was released meanwhile.
        kept.filter(|kept| kept.holder == holder && kept.until == 0).for_each(|kept| kept.claim = claim);
    }

    pub fn release(&self, holder: FarSocket, protocol: u8, port: u16, until: u64) {
        let mut keeper = self.0.lock();
        let keeper = &mut *keeper;
        if until == 0 {
            return keeper.remove((protocol, port), holder, |_| true);
        }
        let kept = keeper.claims.get_mut(&(protocol, port)).into_iter().flatten();
        for kept in kept.filter(|kept| kept.holder == holder && kept.until == 0) {
            kept.until = until;
            kept.claim.listening = false;
            keeper.waiting.push_back((until, (protocol, port), holder));
        }
        keeper.forget(0, WAITING_MAX);
    }

    /// The best; of several that are as good (SO_REUSEPORT) one that `from` chooses.
    pub fn find(&self, protocol: u8, to: InternetAddress, from: InternetAddress) -> Result<FarSocket> {
        let keeper = self.0.lock();
        let kept = keeper.claims.get(&(protocol, to.port)).map(Vec::as_slice).unwrap_or_default();
        let fits = |kept: &Kept| if kept.until == 0 { score(&kept.claim, to, from) } else { None };
        let best = kept.iter().filter_map(fits).max().ok_or(Errno::ECONNREFUSED)?;
        let good = || kept.iter().filter(|kept| fits(kept) == Some(best));
        let shared = good().all(|kept| kept.claim.reuse_port);
        let chosen = match shared {
            true => good().nth(mix(from) as usize % good().count()),
            // Of those that share it by SO_REUSEADDR the last one has it.
            false => good().next_back(),
        };
        chosen.map(|kept| kept.holder).ok_or(Errno::ECONNREFUSED)
    }

    pub fn kernel_died(&self, kernel: KernelId) {
        self.0.lock().claims.retain(|_, kept| {
            kept.retain(|kept| kept.holder.kernel != kernel || kept.until > 0);
            !kept.is_empty()
        });
    }
}

/// Spreads connections: neighbouring ports far apart (Knuth's multiplicative hash).
fn mix(from: InternetAddress) -> u32 {
    (u32::from(from.port) ^ from.ip as u32).wrapping_mul(0x9e37_79b1) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::inet::address::mapped;
    use core::net::Ipv4Addr;

    const UDP: u8 = 17;

    fn claim(protocol: u8, ip: u128) -> PortClaim {
        let at = InternetAddress { ip, port: 80 };
        PortClaim {
            protocol,
            at,
            only_six: false,
            reuse_address: false,
            reuse_port: false,
            uid: 1,
            listening: false,
            peer: None,
        }
    }

    fn holder(serial: u64) -> FarSocket {
        FarSocket { kernel: KernelId(0), serial }
    }

    fn in_the_way(claimed: core::result::Result<(), InTheWay>) -> Option<FarSocket> {
        claimed.err()?.map(|(holder, _)| holder)
    }

    const LOCAL: u128 = mapped(Ipv4Addr::LOCALHOST);
    const OTHER: u128 = mapped(Ipv4Addr::new(127, 0, 0, 2));

    #[test]
    fn claims_exclude_each_other_as_on_linux() {
        let claims = Claims::default();
        let try_claim = |serial, claim| claims.claim(holder(serial), claim, 10).map_err(|_| Errno::EADDRINUSE);
        assert_eq!(try_claim(1, claim(TCP, LOCAL)), Ok(()));
        assert_eq!(try_claim(2, claim(TCP, OTHER)), Ok(()));
        assert_eq!(try_claim(3, claim(TCP, ANY_4)), Err(Errno::EADDRINUSE));
        assert_eq!(try_claim(3, claim(TCP, ANY_6)), Err(Errno::EADDRINUSE));
        assert_eq!(try_claim(3, PortClaim { only_six: true, ..claim(TCP, ANY_6) }), Ok(()));
        assert_eq!(try_claim(4, claim(UDP, LOCAL)), Ok(()));
        claims.release(holder(1), TCP, 80, 0);
        claims.release(holder(2), TCP, 80, 0);
        assert_eq!(try_claim(1, claim(TCP, ANY_4)), Ok(()));
    }

    #[test]
    fn shared_by_address_until_one_listens() {
        let claims = Claims::default();
        let shared = PortClaim { reuse_address: true, ..claim(TCP, LOCAL) };
        claims.claim(holder(1), shared, 0).unwrap();
        claims.claim(holder(2), shared, 0).unwrap();
        claims.claim(holder(1), PortClaim { listening: true, ..shared }, 0).unwrap();
        assert_eq!(in_the_way(claims.claim(holder(2), PortClaim { listening: true, ..shared }, 0)), Some(holder(1)));
        assert_eq!(in_the_way(claims.claim(holder(3), shared, 0)), Some(holder(1)));
        claims.release(holder(2), TCP, 80, 0);
        // In TIME_WAIT, for those who say so.
        claims.release(holder(1), TCP, 80, 60);
        assert_eq!(claims.claim(holder(2), claim(TCP, LOCAL), 59), Err(None));
        assert_eq!(claims.claim(holder(2), PortClaim { listening: true, ..shared }, 59), Ok(()));
        claims.release(holder(2), TCP, 80, 0);
        assert_eq!(claims.claim(holder(2), claim(TCP, LOCAL), 60), Ok(()));
    }

    #[test]
    fn a_holder_is_asked_what_it_wants_by_now() {
        let claims = Claims::default();
        let shared = PortClaim { reuse_address: true, ..claim(TCP, ANY_4) };
        let listens = PortClaim { listening: true, ..shared };
        claims.claim(holder(1), listens, 0).unwrap();
        assert_eq!(in_the_way(claims.claim(holder(2), shared, 0)), Some(holder(1)));
        claims.learn(holder(1), (TCP, 80), Some(listens));
        assert_eq!(claims.claim(holder(2), shared, 0), Err(Some((holder(1), listens))));
        // It has been closed, and its connection has not.
        let connection = PortClaim { at: InternetAddress { ip: LOCAL, ..shared.at }, ..shared };
        claims.learn(holder(1), (TCP, 80), Some(connection));
        assert_eq!(claims.claim(holder(2), listens, 0), Ok(()));
        assert_eq!(in_the_way(claims.claim(holder(3), claim(TCP, OTHER), 0)), Some(holder(2)));
        claims.learn(holder(2), (TCP, 80), None);
        assert_eq!(claims.claim(holder(3), claim(TCP, OTHER), 0), Ok(()));
        // Released before the answer, in TIME_WAIT.
        claims.release(holder(1), TCP, 80, 60);
        claims.learn(holder(1), (TCP, 80), None);
        assert_eq!(claims.claim(holder(2), claim(TCP, LOCAL), 59), Err(None));
        // Who comes back while it waits keeps the port for good.
        claims.claim(holder(1), connection, 59).unwrap();
        assert_eq!(in_the_way(claims.claim(holder(2), claim(TCP, LOCAL), 61)), Some(holder(1)));
    }

    #[test]
    fn time_wait_is_bounded() {
        let claims = Claims::default();
        for serial in 1..=2 * WAITING_MAX as u64 {
            let shared = PortClaim { reuse_address: true, ..claim(TCP, LOCAL) };
            claims.claim(holder(serial), shared, 0).unwrap();
            claims.release(holder(serial), TCP, 80, 60);
        }
        let count = || claims.0.lock().claims.get(&(TCP, 80)).map_or(0, Vec::len);
        assert_eq!(count(), WAITING_MAX);
        claims.claim(holder(1), claim(UDP, LOCAL), 60).unwrap();
        assert_eq!(count(), 0);
    }

    #[test]
    fn what_comes_goes_to_the_nearest_claim() {
        let claims = Claims::default();
        let shared = |ip| PortClaim { reuse_address: true, ..claim(UDP, ip) };
        let from = InternetAddress { ip: LOCAL, port: 7 };
        let to = InternetAddress { ip: LOCAL, port: 80 };
        assert_eq!(claims.find(UDP, to, from), Err(Errno::ECONNREFUSED));
        claims.claim(holder(1), shared(ANY_6), 0).unwrap();
        claims.claim(holder(2), shared(LOCAL), 0).unwrap();
        claims.claim(holder(3), PortClaim { peer: Some(from), ..shared(ANY_4) }, 0).unwrap();
        assert_eq!(claims.find(UDP, to, from), Ok(holder(3)));
        assert_eq!(claims.find(UDP, to, InternetAddress { port: 8, ..from }), Ok(holder(2)));
        assert_eq!(claims.find(UDP, InternetAddress { ip: OTHER, ..to }, to), Ok(holder(1)));
    }
}
