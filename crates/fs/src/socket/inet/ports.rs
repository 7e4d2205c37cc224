//! Who has which port of TCP and UDP.
//!
//! Every port has one kernel that keeps it: those that programs are given (32768 to 60999, net.ipv4.ip_local_port_range) are dealt
//! out to the kernels in ranges, all others are the keeper's of the names of AF_UNIX. It knows all claims to the port, so what
//! bind(2), listen(2) and connect(2) answer is exact from any kernel. A kernel that gives a socket a port of its own range asks
//! nobody.
//!
//! A socket that listens, and the connections that it has accepted, hold their port together ([`Port`]). When it is closed, what is left of
//! its claim is that of the connections: at their address, and shared by all who set SO_REUSEADDR, until the last of them has gone and,
//! if it closed first, for TIME_WAIT after that.

use super::address::{is_v4, ANY_4, ANY_6};
use crate::{
    control::{InternetAddress, PortClaim},
    socket::{names::Found, FarSocket, NetNamespace},
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use machine::{errno::Result, sync::Lock, Errno, KernelId};

/// Ports that programs are given: first and last.
const GIVEN: (u16, u16) = (32768, 60999);
const GIVEN_COUNT: u32 = (GIVEN.1 - GIVEN.0) as u32 + 1;

pub const TCP: u8 = 6;

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
type InTheWay = Option<(FarSocket, PortClaim)>;

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
fn is_alone(claim: &PortClaim) -> bool {
    !claim.reuse_port && (claim.listening || claim.protocol != TCP && !claim.reuse_address)
}

/// How well a claim fits what comes from `from` for `to`; None: not at all.
fn score(claim: &PortClaim, to: InternetAddress, from: InternetAddress) -> Option<u32> {
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
    fn claim(&self, holder: FarSocket, claim: PortClaim, now: u64) -> core::result::Result<(), InTheWay> {
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
    fn learn(&self, holder: FarSocket, port: (u8, u16), claim: Option<PortClaim>) {
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

/// By protocol and port: what sockets claim, and their numbers.
type Held = BTreeMap<(u8, u16), Vec<(PortClaim, u64)>>;

/// Ports that this kernel's sockets have.
#[derive(Default)]
pub(crate) struct Ports {
    /// Those kept here.
    pub claims: Claims,
    /// Those of this kernel's sockets, whoever keeps them.
    held: Lock<Held>,
    /// Where the search for a free port begins.
    next: AtomicU16,
}

/// A port that sockets of this kernel have. Given up when the last one drops it.
pub(crate) struct Port {
    names: Weak<NetNamespace>,
    serial: u64,
    claim: Lock<PortClaim>,
    /// End of TIME_WAIT.
    until: AtomicU64,
    accepted: Lock<Accepted>,
    /// A program has named it (bind).
    pub chosen: bool,
}

/// At which of this machine's addresses connections of a port were accepted.
#[derive(Clone, Copy, Debug, Default)]
enum Accepted {
    #[default]
    Nowhere,
    At(u128),
    Several,
}

impl Port {
    pub fn number(&self) -> u16 {
        self.claim.lock().at.port
    }

    /// A connection of this port was closed by this side first: the port is in TIME_WAIT until then.
    pub fn wait_until(&self, until: u64) {
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// A connection to this address is accepted.
    pub fn accepts(&self, ip: u128) {
        let mut accepted = self.accepted.lock();
        *accepted = match *accepted {
            Accepted::Nowhere => Accepted::At(ip),
            Accepted::At(before) if before == ip => return,
            _ => Accepted::Several,
        };
    }

    /// The socket that claimed it is closed: it belongs to the connections that it accepted.
    pub fn left(self: Arc<Self>) {
        let Some(names) = self.names.upgrade() else { return };
        if Arc::strong_count(&self) == 1 && self.until.load(Ordering::Relaxed) <= names.now() {
            return;
        }
        let accepted = *self.accepted.lock();
        self.reduce(|claim| {
            claim.listening = false;
            if let Accepted::At(ip) = accepted {
                claim.at.ip = ip;
            }
        });
    }

    /// Wants less of it, so that nobody can be in the way. Who claims it from now on knows.
    pub fn reduce(self: Arc<Self>, change: impl FnOnce(&mut PortClaim)) {
        let Some(names) = self.names.upgrade() else { return };
        let claim = {
            let mut claim = self.claim.lock();
            let before = *claim;
            change(&mut claim);
            if *claim == before {
                return;
            }
            *claim
        };
        names.note_port(claim, self.serial);
        match names.keeper_of(claim.at.port) {
            None => {
                names.ports.claims.learn(names.here(self.serial), (claim.protocol, claim.at.port), Some(claim));
            }
            Some(keeper) => {
                let Ok(others) = names.others() else { return };
                let asks = others.clone();
                others.run(Box::pin(async move {
                    let claim = *self.claim.lock();
                    let _ = asks.claim_port(keeper, claim, self.serial).await;
                    // Released after that, if this is the last one who has it.
                    drop(self);
                }));
            }
        }
    }

    /// Wants something else of it. EADDRINUSE: others are in the way.
    pub async fn change(&self, change: impl FnOnce(&mut PortClaim)) -> Result<()> {
        let names = self.names.upgrade().ok_or(Errno::EADDRINUSE)?;
        let mut claim = *self.claim.lock();
        change(&mut claim);
        names.claim_port(self.serial, claim).await?;
        *self.claim.lock() = claim;
        names.note_port(claim, self.serial);
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(names) = self.names.upgrade() {
            names.release_port(*self.claim.get_mut(), self.serial, *self.until.get_mut());
        }
    }
}

fn is_given(port: u16) -> bool {
    (GIVEN.0..=GIVEN.1).contains(&port)
}

/// The ports of one of `kernels` kernels: first, and how many.
fn range_of(kernel: u32, kernels: u32) -> (u16, u16) {
    let at = |kernel: u32| (GIVEN_COUNT * kernel / kernels) as u16;
    (GIVEN.0 + at(kernel), at(kernel + 1) - at(kernel))
}

impl NetNamespace {
    /// Who keeps `port`; None: this kernel.
    fn keeper_of(&self, port: u16) -> Option<KernelId> {
        let (others, keeper) = self.keeper().ok()?;
        let keeper = match is_given(port) {
            false => keeper,
            true => {
                let kernels = others.kernels() as u32;
                let holds = |kernel: &u32| {
                    let (first, count) = range_of(*kernel, kernels);
                    (port - first.min(port)) < count && port >= first
                };
                KernelId((0..kernels).find(holds).unwrap_or(0) as _)
            }
        };
        (keeper != others.me()).then_some(keeper)
    }

    fn me(&self) -> KernelId {
        self.others().map_or(KernelId(0), |others| others.me())
    }

    /// At the keeper. A socket may have given up the port, or want less of it, and the keeper not have heard of it: so it is asked.
    pub(crate) async fn claim_for(&self, claimer: FarSocket, claim: PortClaim) -> Result<()> {
        let claims = &self.ports.claims;
        let (protocol, port) = (claim.protocol, claim.at.port);
        loop {
            let Err(in_the_way) = claims.claim(claimer, claim, self.now()) else { return Ok(()) };
            let away = |(holder, _): &(FarSocket, PortClaim)| holder.kernel != self.me();
            let (holder, known) = in_the_way.filter(away).ok_or(Errno::EADDRINUSE)?;
            let held = self.others()?.held_port(holder, protocol, port).await;
            if held == Some(known) {
                return Err(Errno::EADDRINUSE);
            }
            claims.learn(holder, (protocol, port), held);
        }
    }

    async fn claim_port(&self, serial: u64, claim: PortClaim) -> Result<()> {
        match self.keeper_of(claim.at.port) {
            None => self.claim_for(FarSocket { kernel: self.me(), serial }, claim).await,
            Some(keeper) => self.others()?.claim_port(keeper, claim, serial).await,
        }
    }

    fn release_port(&self, claim: PortClaim, serial: u64, until: u64) {
        let (protocol, port) = (claim.protocol, claim.at.port);
        self.unnote_port(protocol, port, serial);
        let until = if until > self.now() { until } else { 0 };
        match self.keeper_of(port) {
            None => self.ports.claims.release(FarSocket { kernel: self.me(), serial }, protocol, port, until),
            Some(keeper) => {
                if let Ok(others) = self.others() {
                    others.release_port(keeper, protocol, port, serial, until);
                }
            }
        }
    }

    fn note_port(&self, claim: PortClaim, serial: u64) {
        let mut ports = self.ports.held.lock();
        let held = ports.entry((claim.protocol, claim.at.port)).or_default();
        held.retain(|(_, holder)| *holder != serial);
        held.push((claim, serial));
    }

    fn unnote_port(&self, protocol: u8, port: u16, serial: u64) {
        let mut ports = self.ports.held.lock();
        if let Some(held) = ports.get_mut(&(protocol, port)) {
            held.retain(|(_, holder)| *holder != serial);
            if held.is_empty() {
                ports.remove(&(protocol, port));
            }
        }
    }

    /// What this kernel's socket wants of the port, if it has it.
    pub(crate) fn held_port(&self, protocol: u8, port: u16, serial: u64) -> Option<PortClaim> {
        let ports = self.ports.held.lock();
        let held = ports.get(&(protocol, port))?;
        held.iter().find(|(_, holder)| *holder == serial).map(|(claim, _)| *claim)
    }

    /// A port for the socket `serial`: the one that `claim` names, or one that is free. EADDRINUSE.
    pub(super) async fn take_port(self: &Arc<Self>, serial: u64, mut claim: PortClaim) -> Result<Arc<Port>> {
        let chosen = claim.at.port != 0;
        match chosen {
            true => self.claim_first(serial, claim).await?,
            false => claim.at.port = self.free_port(serial, claim).await?,
        }
        self.note_port(claim, serial);
        let names = Arc::downgrade(self);
        let (claim, accepted) = (Lock::new(claim), Lock::default());
        Ok(Arc::new(Port { names, serial, claim, until: AtomicU64::new(0), accepted, chosen }))
    }

    /// It is in this kernel's own table before the keeper is asked, lest another claimer be told that nobody has it.
    async fn claim_first(&self, serial: u64, claim: PortClaim) -> Result<()> {
        self.note_port(claim, serial);
        let claimed = self.claim_port(serial, claim).await;
        if claimed.is_err() {
            self.unnote_port(claim.protocol, claim.at.port, serial);
        }
        claimed
    }

    async fn free_port(&self, serial: u64, mut claim: PortClaim) -> Result<u16> {
        let (kernels, me) = self.others().map_or((1, 0), |others| (others.kernels() as u32, u32::from(others.me().0)));
        // What others share is not given to somebody who asks for any.
        (claim.reuse_address, claim.reuse_port) = (false, false);
        // Its own range first, and then that of the next.
        for distance in 0..kernels {
            let (first, count) = range_of((me + distance) % kernels, kernels);
            let start = self.ports.next.fetch_add(1, Ordering::Relaxed) % count;
            for offset in 0..count {
                claim.at.port = first + (start + offset) % count;
                match self.claim_first(serial, claim).await {
                    Ok(()) => return Ok(claim.at.port),
                    Err(Errno::EADDRINUSE) => {}
                    // That kernel has died, and its range with it.
                    Err(_) => break,
                }
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Who takes what comes from `from` for `to`. ECONNREFUSED.
    pub(super) async fn find_port(&self, protocol: u8, to: InternetAddress, from: InternetAddress) -> Result<Found> {
        let here = self.ports.held.lock().get(&(protocol, to.port)).and_then(|held| {
            let fits = held.iter().find(|(claim, _)| is_alone(claim) && score(claim, to, from).is_some());
            fits.map(|(_, serial)| *serial)
        });
        if let Some(serial) = here {
            return self.by_serial(serial).map(Found::Here);
        }
        let there = match self.keeper_of(to.port) {
            None => self.ports.claims.find(protocol, to, from)?,
            Some(keeper) => self.others()?.find_port(keeper, protocol, to, from).await?,
        };
        match there.kernel == self.me() {
            true => self.by_serial(there.serial).map(Found::Here),
            false => Ok(Found::There(there)),
        }
    }
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

    #[test]
    fn every_port_has_one_keeper() {
        for kernels in 1..=64 {
            let mut next = GIVEN.0;
            for kernel in 0..kernels {
                let (first, count) = range_of(kernel, kernels);
                assert_eq!(first, next);
                next = first + count;
            }
            assert_eq!(next, GIVEN.1 + 1);
        }
    }
}
