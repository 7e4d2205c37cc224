//! Which socket is bound where, on this kernel and on the others.
//!
//! The kernel of a socket knows it by place and by number; one kernel of the machine keeps which kernel has
//! which place (`remote/unix.rs` says how they speak). Without [`crate::remote::Remote::join_sockets`] there are no others.

use super::{
    flight::Flight,
    inet::{claims::Claims, ports::Ports},
    transfer::Datagram,
    Circles, FarSocket, OtherKernels, Socket, SocketKind,
};
use crate::control::{UnixCredentials, UnixPlace};
use crate::{cache::Clock, event::Timers, Timestamp};
use alloc::{
    collections::BTreeMap,
    format,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    account::{Account, Accounts},
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, KernelId, Pid,
};

/// Names that autobind may choose (man 7 unix): a NUL and five hexadecimal digits.
const AUTOMATIC: u32 = 1 << 20;

/// An abstract name as the tables know it.
pub(super) fn of_kind(kind: SocketKind, name: &[u8]) -> Vec<u8> {
    let mut key = alloc::vec![kind as u8];
    key.extend_from_slice(name);
    key
}

#[derive(Default)]
struct Bound {
    places: BTreeMap<UnixPlace, u64>,
    sockets: BTreeMap<u64, Weak<Socket>>,
    last: u64,
}

#[derive(Clone)]
struct Machine {
    others: Arc<dyn OtherKernels>,
    /// Who keeps the names.
    keeper: KernelId,
}

/// Which groups may have ICMP sockets.
struct PingGroups {
    first: u32,
    last: u32,
}

impl Default for PingGroups {
    /// None.
    fn default() -> Self {
        PingGroups { first: 1, last: 0 }
    }
}

/// What Linux has in `struct net`, as far as it is this kernel's: names and ports that sockets are bound to, all sockets, and settings. There is one
/// for the machine, of which each kernel has a part.
#[derive(Default)]
pub struct NetNamespace {
    bound: Lock<Bound>,
    machine: Lock<Option<Machine>>,
    /// At the keeper: whose a place is.
    claims: Lock<BTreeMap<UnixPlace, FarSocket>>,
    /// Descriptors in the messages of this kernel's sockets.
    pub(super) flight: Arc<Flight>,
    pub(super) circles: Circles,
    accounts: Lock<Option<Arc<Accounts>>>,
    timers: Lock<Option<Arc<dyn Timers>>>,
    clock: Lock<Option<Arc<dyn Clock>>>,
    /// net.ipv4.ping_group_range; on the kernel that has /proc.
    ping_groups: Lock<PingGroups>,
    pub(super) ports: Ports,
    /// All sockets of this kernel, by their places in its list.
    open: Lock<BTreeMap<u64, Weak<Socket>>>,
    /// Held while an end leaves whose other end is of this kernel.
    pub(super) leaves: Lock<()>,
}

/// Where a name leads.
pub(super) enum Found {
    Here(Arc<Socket>),
    There(FarSocket),
}

impl Bound {
    fn find(&self, place: &UnixPlace) -> Option<(u64, Arc<Socket>)> {
        let serial = *self.places.get(place)?;
        Some((serial, self.sockets.get(&serial)?.upgrade()?))
    }

    /// Without a reference, whose end would want the lock we hold.
    fn lives(&self, place: &UnixPlace) -> bool {
        let socket = self.places.get(place).and_then(|serial| self.sockets.get(serial));
        socket.is_some_and(|socket| socket.strong_count() > 0)
    }

    fn remove(&mut self, place: &UnixPlace, serial: u64) {
        self.sockets.remove(&serial);
        if self.places.get(place) == Some(&serial) {
            self.places.remove(place);
        }
    }
}

/// A name taken here, given up again unless the whole machine agrees.
struct Taking<'a> {
    names: &'a NetNamespace,
    place: Option<UnixPlace>,
    serial: u64,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.names.bound.lock().remove(place, self.serial);
        }
    }
}

impl NetNamespace {
    /// One of several kernels: `keeper` has the names of all.
    pub(crate) fn join(&self, others: Arc<dyn OtherKernels>, keeper: KernelId) {
        self.bound.lock().last = others.first_serial();
        *self.machine.lock() = Some(Machine { others, keeper });
    }

    /// Whom messages are charged to; without this, nobody.
    pub fn set_accounts(&self, accounts: &Arc<Accounts>) {
        *self.accounts.lock() = Some(accounts.clone());
    }

    /// What TIME_WAIT goes by; without this, there is none.
    pub fn set_timers(&self, timers: Arc<dyn Timers>) {
        *self.timers.lock() = Some(timers);
    }

    /// What SO_TIMESTAMP goes by; without this, it is always 1970.
    pub fn set_clock(&self, clock: Arc<dyn Clock>) {
        *self.clock.lock() = Some(clock);
    }

    pub(super) fn realtime(&self) -> Timestamp {
        self.clock.lock().as_ref().map_or(Timestamp::default(), |clock| clock.realtime())
    }

    /// net.ipv4.ping_group_range, as this kernel has it: first and last group.
    pub fn ping_groups(&self) -> (u32, u32) {
        let groups = self.ping_groups.lock();
        (groups.first, groups.last)
    }

    pub fn set_ping_groups(&self, first: u32, last: u32) {
        *self.ping_groups.lock() = PingGroups { first, last };
    }

    /// The same, as the kernel that has /proc knows it.
    pub async fn ping_groups_of_all(&self) -> Result<(u32, u32)> {
        match self.keeper() {
            Ok((others, keeper)) if others.me() != keeper => others.ping_groups(keeper).await,
            _ => Ok(self.ping_groups()),
        }
    }

    /// ns since the machine started.
    pub(crate) fn now(&self) -> u64 {
        self.timers.lock().as_ref().map_or(u64::MAX, |timers| timers.now())
    }

    pub(super) fn opened(&self, socket: &Arc<Socket>) {
        self.open.lock().insert(socket.listed_as, Arc::downgrade(socket));
    }

    pub(super) fn closed(&self, listed_as: u64) {
        self.open.lock().remove(&listed_as);
    }

    /// The first socket with an inode number above that, unless it is just being closed.
    pub(super) fn next_open(&self, above: u64) -> Option<(u64, Option<Arc<Socket>>)> {
        let open = self.open.lock();
        let (number, socket) = open.range(above + 1..).next()?;
        Some((*number, socket.upgrade()))
    }

    /// Gives a socket a number by which other kernels find it.
    pub(super) fn register(&self, socket: &Weak<Socket>) -> u64 {
        let mut bound = self.bound.lock();
        bound.last += 1;
        let serial = bound.last;
        bound.sockets.insert(serial, socket.clone());
        serial
    }

    pub(super) fn forget(&self, serial: u64) {
        self.bound.lock().sockets.remove(&serial);
    }

    /// A socket of this kernel as others call it.
    pub(super) fn here(&self, serial: u64) -> FarSocket {
        FarSocket { kernel: self.others().map_or(KernelId(0), |others| others.me()), serial }
    }

    /// Returns when a socket of any kernel may have room for that datagram, or for a connection, or is gone.
    pub(super) async fn room_of(&self, there: FarSocket, datagram: Datagram) -> Result<()> {
        match self.here(there.serial) == there {
            true => self.room(there.serial, datagram).await,
            false => self.others()?.room(there, datagram).await,
        }
    }

    /// The claims of the ports that this kernel keeps.
    pub(crate) fn claims(&self) -> &Claims {
        &self.ports.claims
    }

    /// Of who sends.
    pub(crate) fn account(&self, sender: UnixCredentials) -> Option<Arc<Account>> {
        Some(self.accounts.lock().as_ref()?.of(Pid(sender.pid), sender.uid))
    }

    fn machine(&self) -> Option<Machine> {
        self.machine.lock().clone()
    }

    /// How to reach a socket of another kernel.
    pub(crate) fn others(&self) -> Result<Arc<dyn OtherKernels>> {
        Ok(self.machine().ok_or(Errno::ECONNREFUSED)?.others)
    }

    /// Who keeps the names.
    pub(super) fn keeper(&self) -> Result<(Arc<dyn OtherKernels>, KernelId)> {
        self.machine().map(|machine| (machine.others, machine.keeper)).ok_or(Errno::ECONNREFUSED)
    }

    /// The socket's number.
    pub(super) async fn bind(&self, place: UnixPlace, socket: &Weak<Socket>) -> Result<u64> {
        let serial = {
            let mut bound = self.bound.lock();
            if bound.lives(&place) {
                return Err(Errno::EADDRINUSE);
            }
            bound.last += 1;
            let serial = bound.last;
            bound.places.insert(place.clone(), serial);
            bound.sockets.insert(serial, socket.clone());
            serial
        };
        let mut taking = Taking { names: self, place: Some(place.clone()), serial };
        if let Some(Machine { others, keeper }) = self.machine() {
            match others.me() == keeper {
                true => self.claim(place, FarSocket { kernel: keeper, serial }).await?,
                false => others.claim(keeper, place, serial).await?,
            }
        }
        taking.place = None;
        Ok(serial)
    }

    pub(super) async fn autobind(&self, socket: &Weak<Socket>, kind: SocketKind) -> Result<(UnixPlace, Vec<u8>, u64)> {
        for number in 0..AUTOMATIC {
            let name = format!("\0{number:05x}").into_bytes();
            let place = UnixPlace::Abstract(of_kind(kind, &name));
            match self.bind(place.clone(), socket).await {
                Ok(serial) => return Ok((place, name, serial)),
                Err(Errno::EADDRINUSE) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ENOSPC)
    }

    pub(super) fn unbind(&self, place: &UnixPlace, serial: u64) {
        self.bound.lock().remove(place, serial);
        if let Some(Machine { others, keeper }) = self.machine() {
            match others.me() == keeper {
                true => self.unclaim(place, FarSocket { kernel: keeper, serial }),
                false => others.unbind(keeper, place.clone(), serial),
            }
        }
    }

    /// ECONNREFUSED: there is a node, but nobody behind it.
    pub(super) async fn find(&self, place: &UnixPlace) -> Result<Found> {
        if let Some((_, socket)) = self.bound.lock().find(place) {
            return Ok(Found::Here(socket));
        }
        let Some(Machine { others, keeper }) = self.machine() else { return Err(Errno::ECONNREFUSED) };
        let there = match others.me() == keeper {
            true => self.look_up(place)?,
            false => others.find(keeper, place.clone()).await?,
        };
        match others.me() == there.kernel {
            // It was bound meanwhile, or has gone.
            true => self.by_serial(there.serial).map(Found::Here),
            false => Ok(Found::There(there)),
        }
    }

    /// Its next life numbers its sockets anew: nothing of the last one may be found.
    pub fn kernel_died(&self, kernel: KernelId) {
        self.forget_survey(None);
        self.claims.lock().retain(|_, holder| holder.kernel != kernel);
        self.ports.claims.kernel_died(kernel);
        self.links_died(kernel);
    }

    // At the keeper.

    /// EADDRINUSE if somebody else has the place and is still there.
    pub(crate) async fn claim(&self, place: UnixPlace, claimer: FarSocket) -> Result<()> {
        let others = self.others()?;
        loop {
            let holder = {
                let mut claims = self.claims.lock();
                match claims.get(&place) {
                    Some(&holder) if holder != claimer => holder,
                    _ => {
                        claims.insert(place, claimer);
                        return Ok(());
                    }
                }
            };
            let lives = match others.me() == holder.kernel {
                true => self.by_serial(holder.serial).is_ok(),
                false => others.is_bound(holder).await,
            };
            if lives {
                return Err(Errno::EADDRINUSE);
            }
            self.unclaim(&place, holder);
        }
    }

    pub(crate) fn unclaim(&self, place: &UnixPlace, holder: FarSocket) {
        let mut claims = self.claims.lock();
        if claims.get(place) == Some(&holder) {
            claims.remove(place);
        }
    }

    pub(crate) fn look_up(&self, place: &UnixPlace) -> Result<FarSocket> {
        self.claims.lock().get(place).copied().ok_or(Errno::ECONNREFUSED)
    }

    // At the kernel of the socket.

    /// The sockets that have a number, and are open: each of them once or more, and those that come meanwhile or not.
    pub(super) fn sockets(&self) -> impl Iterator<Item = Arc<Socket>> + '_ {
        let mut above = 0;
        core::iter::from_fn(move || loop {
            let bound = self.bound.lock();
            let (number, socket) = bound.sockets.range(above + 1..).next()?;
            above = *number;
            if let Some(socket) = socket.upgrade() {
                return Some(socket);
            }
        })
    }

    pub(crate) fn by_serial(&self, serial: u64) -> Result<Arc<Socket>> {
        self.bound.lock().sockets.get(&serial).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
    }

    /// Returns when nothing that was sent to a connection's end brings files any more, or it is gone.
    pub(crate) async fn received(&self, serial: u64) {
        let Ok(room) = self.by_serial(serial).map(|socket| socket.room.clone()) else { return };
        let holds_files = || self.by_serial(serial).is_ok_and(|socket| socket.state.lock().inbox.brings_files());
        room.wait_until(|| (!holds_files()).then_some(())).await;
    }

    /// Waits without keeping the socket.
    pub(crate) async fn room(&self, serial: u64, datagram: Datagram) -> Result<()> {
        let room: Arc<WaitQueue> = self.by_serial(serial)?.room.clone();
        room.wait_until(|| match self.by_serial(serial) {
            Ok(socket) => socket.has_room(datagram).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        })
        .await
    }
}
