//! Lanes without hardware: a queue per ordered pair and priority, with delays, so that messages of different
//! pairs overtake each other, and with as little room as the seed likes.
//!
//! With `scramble`, two messages in the lane of the answers may change places. Real lanes never do that, but a kernel
//! with several CPUs looks like it from outside: one CPU computes an answer, another sends a later message first.

use crate::world::World;
use fabric::{Full, Port};
use machine::KernelId;
use messages::Priority;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard,
    },
};

type Lane = (KernelId, KernelId, usize);

/// Messages under way, with the tick at which each arrives.
type Lanes = BTreeMap<Lane, VecDeque<(u64, Vec<u8>)>>;

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

/// All lanes.
pub struct Network {
    world: Arc<World>,
    weather: Weather,
    lanes: Mutex<Lanes>,
    clock: AtomicU64,
    pub sent: AtomicU64,
}

impl Network {
    pub fn new(world: Arc<World>, weather: Weather) -> Arc<Self> {
        let (clock, sent) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Network { world, weather, lanes: Mutex::default(), clock, sent })
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn tick(&self) {
        self.clock.fetch_add(1, Ordering::Relaxed);
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Moves the clock to the next arrival. False: nothing is under way.
    pub fn skip_to_arrival(&self) -> bool {
        let next = self.lanes().values().filter_map(|lane| lane.front()).map(|(at, _)| *at).min();
        if let Some(at) = next {
            self.clock.fetch_max(at, Ordering::Relaxed);
        }
        next.is_some()
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
        let mut lanes = self.network.lanes();
        let lane = lanes.entry((self.me, to, priority.index())).or_default();
        if lane.len() >= weather.room {
            return Err(Full);
        }
        let mut at = self.network.now() + world.rng.next() % (weather.delay + 1);
        if let Some((last, _)) = lane.back() {
            at = at.max(*last);
        }
        lane.push_back((at, bytes.to_vec()));
        let count = lane.len();
        if weather.scramble && priority == Priority::High && count > 1 && world.rng.one_in(3) {
            lane.swap(count - 1, count - 2);
        }
        self.network.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn pending(&self, from: KernelId, priority: Priority) -> bool {
        let lanes = self.network.lanes();
        let head = lanes.get(&(from, self.me, priority.index())).and_then(|lane| lane.front());
        head.is_some_and(|(at, _)| *at <= self.network.now())
    }

    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool {
        if !self.pending(from, priority) {
            return false;
        }
        let mut lanes = self.network.lanes();
        match lanes.get_mut(&(from, self.me, priority.index())).and_then(|lane| lane.pop_front()) {
            Some((_, bytes)) => {
                *buffer = bytes;
                true
            }
            None => false,
        }
    }

    fn ring(&self, _to: KernelId) -> bool {
        false
    }

    fn set_polling(&self, _polling: bool) {}
}
