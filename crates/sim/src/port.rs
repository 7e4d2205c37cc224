//! Lanes without hardware: a queue per ordered pair and priority, with delays, so that messages of different
//! pairs overtake each other, and with as little room as the seed likes.
//!
//! With `scramble`, two messages in the lane of the answers may change places. Real lanes never do that, but a kernel
//! with several CPUs looks like it from outside: one CPU computes an answer, another sends a later message first. What is sent
//! under the lock that a later sender takes first ([`keeps_its_place`]) does not.
//!
//! A step of the simulation must not cost more with more kernels, so nobody ever looks through all lanes: per kernel
//! and priority `mail` has a bit for each sender whose first message has arrived, `coming` has the other lanes that
//! are not empty by the arrival of their first message, and `room` says whose lane got room after it had none.

use crate::{recorder, world::World};
use fabric::{Full, Port};
use machine::{
    sync::{Lock, LockGuard},
    KernelId,
};
use messages::{process::PushReplica, Priority, Request};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
};

/// As many as `mail` has bits.
pub const MAX_KERNELS: usize = 64;

/// A replica is sent under the lock of its process's home (`Process::send_replica`), which whoever tells the replica something has
/// held before: so on no kernel, however many CPUs it has, another message overtakes it.
fn keeps_its_place(packet: &[u8]) -> bool {
    fabric::kind_of(packet) == Some(PushReplica::KIND)
}

/// How a network behaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Messages a lane holds.
    pub room: usize,
    /// Bytes a message has at most.
    pub longest: usize,
    /// Ticks a message is under way at most.
    pub delay: u64,
    pub scramble: bool,
}

/// What to write about each message that is sent, for a trace.
pub type Watcher = Box<dyn Fn(KernelId, KernelId, &[u8]) + Send + Sync>;

/// Which messages are held back.
pub type Holder = Box<dyn Fn(KernelId, KernelId, &[u8]) -> bool + Send + Sync>;

#[derive(Default)]
struct Lane {
    /// Messages under way, with the tick at which each arrives.
    packets: VecDeque<(u64, Vec<u8>)>,
    /// A message did not find room, and none was taken out since.
    starved: bool,
}

#[derive(Default)]
struct Lanes {
    lanes: Vec<Lane>,
    coming: BinaryHeap<Reverse<(u64, usize)>>,
    /// Buffers of messages that were received.
    spare: Vec<Vec<u8>>,
    /// Messages that are held back, and their lanes.
    held: Vec<(usize, Vec<u8>)>,
}

/// All lanes.
pub struct Network {
    world: Arc<World>,
    weather: Weather,
    kernels: usize,
    lanes: Lock<Lanes>,
    mail: Vec<[AtomicU64; 2]>,
    room: Vec<AtomicBool>,
    /// Bits of the kernels that are there.
    alive: AtomicU64,
    clock: AtomicU64,
    pub sent: AtomicU64,
    /// The kernels are recorded ([`recorder`]): who sends must be known.
    is_recorded: AtomicBool,
    watcher: Lock<Option<Watcher>>,
    holder: Lock<Option<Holder>>,
}

impl Network {
    pub fn new(world: Arc<World>, kernels: usize, weather: Weather) -> Arc<Self> {
        assert!(kernels <= MAX_KERNELS);
        let lanes = (0..kernels * kernels * 2).map(|_| Lane::default()).collect();
        Arc::new(Network {
            world,
            weather,
            kernels,
            lanes: Lock::new(Lanes { lanes, ..Lanes::default() }),
            mail: (0..kernels).map(|_| Default::default()).collect(),
            room: (0..kernels).map(|_| AtomicBool::new(false)).collect(),
            alive: AtomicU64::new(u64::MAX),
            clock: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            is_recorded: AtomicBool::new(false),
            watcher: Lock::new(None),
            holder: Lock::new(None),
        })
    }

    pub fn watch(&self, watcher: Watcher) {
        *self.watcher.lock() = Some(watcher);
    }

    /// From now on, or no longer, kernels send only while the recorder knows who does what.
    pub fn set_recorded(&self, is_recorded: bool) {
        self.is_recorded.store(is_recorded, Ordering::Relaxed);
    }

    /// From now on messages that `holder` names stay beside their lanes, in which others pass them: what does not go on meanwhile
    /// waits for them.
    pub fn hold(&self, holder: Holder) {
        *self.holder.lock() = Some(holder);
    }

    /// What was held back arrives, behind what is under way, and nothing is held back any more.
    pub fn release(&self) {
        *self.holder.lock() = None;
        let mut lanes = self.lanes.lock();
        for (index, packet) in std::mem::take(&mut lanes.held) {
            let last = lanes.lanes[index].packets.back().map(|(at, _)| *at);
            lanes.lanes[index].packets.push_back((last.unwrap_or(self.now()), packet));
            self.announce(&mut lanes, index);
        }
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn tick(&self) {
        let now = 1 + self.clock.fetch_add(1, Ordering::Relaxed);
        let mut lanes = self.lanes.lock();
        while lanes.coming.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, lane))) = lanes.coming.pop() {
                self.announce(&mut lanes, lane);
            }
        }
    }

    /// Moves the clock to the next arrival. False: nothing is under way.
    pub fn skip_to_arrival(&self) -> bool {
        let next = self.lanes.lock().coming.peek().map(|Reverse((at, _))| *at);
        if let Some(at) = next {
            self.clock.store(at.max(self.now() + 1) - 1, Ordering::Relaxed);
            self.tick();
        }
        next.is_some()
    }

    /// Whether draining would do something for `kernel`.
    pub fn has_work(&self, kernel: KernelId) -> bool {
        let mail = &self.mail[kernel.index()];
        mail.iter().any(|bits| bits.load(Ordering::Relaxed) != 0) || self.room[kernel.index()].load(Ordering::Relaxed)
    }

    /// `kernel` is about to drain: it will try again what found no room.
    pub fn draining(&self, kernel: KernelId) {
        self.room[kernel.index()].store(false, Ordering::Relaxed);
    }

    /// `kernel` is no more: what is under way from and to it is lost, and so is all that is sent to it.
    pub fn disconnect(&self, kernel: KernelId) {
        self.alive.fetch_and(!(1 << kernel.index()), Ordering::Relaxed);
        let mut lanes = self.lanes.lock();
        for other in 0..self.kernels {
            for index in 0..2 {
                lanes.lanes[self.lane(kernel.index(), other, index)] = Lane::default();
                lanes.lanes[self.lane(other, kernel.index(), index)] = Lane::default();
                self.mail[other][index].fetch_and(!(1 << kernel.index()), Ordering::Relaxed);
                self.mail[kernel.index()][index].store(0, Ordering::Relaxed);
            }
            self.room[other].store(true, Ordering::Relaxed);
        }
        self.room[kernel.index()].store(false, Ordering::Relaxed);
    }

    fn is_alive(&self, kernel: KernelId) -> bool {
        self.alive.load(Ordering::Relaxed) & 1 << kernel.index() != 0
    }

    fn lane(&self, from: usize, to: usize, priority: usize) -> usize {
        (from * self.kernels + to) * 2 + priority
    }

    /// The first message of `lane` has changed.
    fn announce(&self, lanes: &mut LockGuard<'_, Lanes>, lane: usize) {
        let (from, to) = (lane / 2 / self.kernels, lane / 2 % self.kernels);
        let (mail, bit) = (&self.mail[to][lane % 2], 1 << from);
        match lanes.lanes[lane].packets.front().map(|(at, _)| *at) {
            Some(at) if at <= self.now() => mail.fetch_or(bit, Ordering::Relaxed),
            first => {
                lanes.coming.extend(first.map(|at| Reverse((at, lane))));
                mail.fetch_and(!bit, Ordering::Relaxed)
            }
        };
    }
}

/// One kernel's access to it.
pub struct SimPort {
    pub network: Arc<Network>,
    pub me: KernelId,
}

impl Port for SimPort {
    fn max_message(&self, _to: KernelId, _priority: Priority) -> usize {
        self.network.weather.longest
    }

    fn try_send(&self, to: KernelId, priority: Priority, bytes: &[u8]) -> Result<(), Full> {
        let Network { world, weather, .. } = &*self.network;
        if !self.network.is_alive(to) || !self.network.is_alive(self.me) {
            return Ok(());
        }
        if self.network.is_recorded.load(Ordering::Relaxed) {
            recorder::assert_here(self.me);
        }
        let index = self.network.lane(self.me.index(), to.index(), priority.index());
        let mut guard = self.network.lanes.lock();
        if self.network.holder.lock().as_ref().is_some_and(|holds| holds(self.me, to, bytes)) {
            guard.held.push((index, bytes.to_vec()));
            return Ok(());
        }
        let Lanes { lanes, spare, .. } = &mut *guard;
        let lane = &mut lanes[index];
        if lane.packets.len() >= weather.room {
            lane.starved = true;
            return Err(Full);
        }
        let mut at = self.network.now();
        if weather.delay > 0 {
            at += world.rng.next() % (weather.delay + 1);
        }
        if let Some((last, _)) = lane.packets.back() {
            at = at.max(*last);
        }
        let mut packet = spare.pop().unwrap_or_default();
        packet.clear();
        packet.extend_from_slice(bytes);
        lane.packets.push_back((at, packet));
        let count = lane.packets.len();
        if count == 1 {
            self.network.announce(&mut guard, index);
        } else if weather.scramble && priority == Priority::High && world.rng.one_in(3) {
            // They change places, not their arrivals.
            let packets = &mut guard.lanes[index].packets;
            if !packets.range(count - 2..).any(|(_, packet)| keeps_its_place(packet)) {
                packets.swap(count - 1, count - 2);
                let (earlier, later) = (packets[count - 1].0, packets[count - 2].0);
                (packets[count - 2].0, packets[count - 1].0) = (earlier, later);
            }
        }
        drop(guard);
        self.network.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = &*self.network.watcher.lock() {
            watcher(self.me, to, bytes);
        }
        Ok(())
    }

    fn pending(&self, from: KernelId, priority: Priority) -> bool {
        self.network.mail[self.me.index()][priority.index()].load(Ordering::Relaxed) & 1 << from.index() != 0
    }

    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool {
        if !self.pending(from, priority) {
            return false;
        }
        let index = self.network.lane(from.index(), self.me.index(), priority.index());
        let mut lanes = self.network.lanes.lock();
        let Some((_, packet)) = lanes.lanes[index].packets.pop_front() else { return false };
        lanes.spare.push(std::mem::replace(buffer, packet));
        if std::mem::take(&mut lanes.lanes[index].starved) {
            self.network.room[from.index()].store(true, Ordering::Relaxed);
        }
        self.network.announce(&mut lanes, index);
        true
    }

    fn ring(&self, _to: KernelId) -> bool {
        false
    }

    fn set_polling(&self, _polling: bool) {}
}
