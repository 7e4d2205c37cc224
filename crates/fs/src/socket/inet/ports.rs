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

use super::claims::{is_alone, score, Claims};
use crate::{
    control::{InternetAddress, PortClaim},
    socket::{names::Found, FarSocket, NetNamespace},
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use machine::{errno::Result, sync::Lock, Errno, KernelId};

/// Ports that programs are given: first and last.
const GIVEN: (u16, u16) = (32768, 60999);
const GIVEN_COUNT: u32 = (GIVEN.1 - GIVEN.0) as u32 + 1;

pub const TCP: u8 = 6;

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
