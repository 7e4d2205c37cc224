//! Schedulers: which request the device gets next.

use super::{
    request::{Bio, Request, Side},
    settings::{Merges, RequestLimits, Scheduler, Settings},
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::ops::Bound::{Excluded, Unbounded};
use machine::block::BlockOp;

/// Requests that a bio is compared with where they are not ordered by their place (Linux: blk_bio_list_merge).
const LOOKED_AT: usize = 8;

/// The requests of a lane that the device does not have yet.
#[derive(Default)]
pub struct Elevator {
    /// Flushes. They go first: who waits for one has asked for all else before. But only one at a time: those that come while it is under way become one.
    flushes: VecDeque<Request>,
    order: Order,
}

enum Order {
    /// none: as they come.
    Arrival(VecDeque<Request>),
    Deadline(Box<Deadline>),
}

impl Default for Order {
    fn default() -> Self {
        Order::Arrival(VecDeque::new())
    }
}

impl Elevator {
    pub fn new(scheduler: Scheduler) -> Elevator {
        let order = match scheduler {
            Scheduler::None => Order::default(),
            Scheduler::Deadline => Order::Deadline(Box::default()),
        };
        Elevator { flushes: VecDeque::new(), order }
    }

    /// Makes the bio a part of a request that waits here, and says how many requests there are less by that: it may have been what lay between two. Err: there is none that it adjoins.
    pub fn merge(&mut self, bio: Bio, most: RequestLimits, settings: &Settings) -> Result<usize, Bio> {
        let looked_at = match settings.merges() {
            Merges::All => LOOKED_AT,
            Merges::Simple => 1,
            Merges::None => 0,
        };
        if bio.op == BlockOp::Flush {
            return merge_into(&mut self.flushes, bio, most, looked_at);
        }
        match &mut self.order {
            Order::Arrival(requests) => merge_into(requests, bio, most, looked_at),
            Order::Deadline(deadline) if looked_at == LOOKED_AT => deadline.merge(bio, most, settings),
            Order::Deadline(deadline) if looked_at == 1 => deadline.merge_last(bio, most),
            Order::Deadline(_) => Err(bio),
        }
    }

    pub fn insert(&mut self, request: Request, now: u64, settings: &Settings) {
        match &mut self.order {
            _ if request.op == BlockOp::Flush => self.flushes.push_back(request),
            Order::Arrival(requests) => requests.push_back(request),
            Order::Deadline(deadline) => deadline.insert(request, now, settings),
        }
    }

    /// The next one for the device. `flush_under_way`: it has a flush.
    pub fn next(&mut self, flush_under_way: bool, now: u64, settings: &Settings) -> Option<Request> {
        match &mut self.order {
            _ if !flush_under_way && !self.flushes.is_empty() => self.flushes.pop_front(),
            Order::Arrival(requests) => requests.pop_front(),
            Order::Deadline(deadline) => deadline.next(now, settings),
        }
    }

    /// All that wait, oldest first.
    pub fn into_requests(self) -> Vec<Request> {
        let mut all: Vec<Request> = self.flushes.into();
        match self.order {
            Order::Arrival(requests) => all.extend(requests),
            Order::Deadline(mut deadline) => {
                for direction in [READ, WRITE] {
                    while let Some((key, _)) = deadline.oldest(direction) {
                        all.extend(deadline.remove(direction, key));
                    }
                }
            }
        }
        all
    }
}

/// Merges with one of the last few.
fn merge_into(requests: &mut VecDeque<Request>, bio: Bio, most: RequestLimits, looked_at: usize) -> Result<usize, Bio> {
    for request in requests.iter_mut().rev().take(looked_at) {
        for side in [Side::Back, Side::Front] {
            if request.takes(&bio, side, most) {
                request.merge(bio, side);
                return Ok(0);
            }
        }
    }
    Err(bio)
}

const READ: usize = 0;
const WRITE: usize = 1;

fn direction(op: BlockOp) -> usize {
    if op == BlockOp::Read {
        READ
    } else {
        WRITE
    }
}

/// The first sector, and the number of the request.
type Key = (u64, u64);

struct Waiting {
    request: Request,
    expires: u64,
}

/// Requests of one direction.
#[derive(Default)]
struct Requests {
    by_place: BTreeMap<Key, Waiting>,
    /// The sectors by the numbers.
    by_age: BTreeMap<u64, u64>,
    /// The one that the device got last.
    position: Key,
}

/// mq-deadline (Documentation/block/deadline-iosched.rst): requests of one direction go in the order of their sectors, in batches, unless the oldest has waited for too long; reads
/// go before writes, but not always.
#[derive(Default)]
struct Deadline {
    sides: [Requests; 2],
    next_number: u64,
    /// The direction of the batch, and how many of it have gone.
    batch: (usize, u32),
    /// How often reads went while writes waited.
    starved: u32,
    last: Option<(usize, Key)>,
}

impl Deadline {
    fn insert(&mut self, request: Request, now: u64, settings: &Settings) {
        let direction = direction(request.op);
        let expires = now.saturating_add(settings.expire(direction == WRITE));
        self.next_number += 1;
        self.put(direction, (request.sector, self.next_number), Waiting { request, expires });
    }

    fn put(&mut self, direction: usize, key: Key, waiting: Waiting) {
        let side = &mut self.sides[direction];
        side.by_age.insert(key.1, key.0);
        side.by_place.insert(key, waiting);
        self.last = Some((direction, key));
    }

    fn take(&mut self, direction: usize, key: Key) -> Option<Waiting> {
        let side = &mut self.sides[direction];
        side.by_age.remove(&key.1);
        side.by_place.remove(&key)
    }

    fn remove(&mut self, direction: usize, key: Key) -> Option<Request> {
        self.take(direction, key).map(|waiting| waiting.request)
    }

    /// The oldest request of a direction, and when it expires.
    fn oldest(&self, direction: usize) -> Option<(Key, u64)> {
        let side = &self.sides[direction];
        let (number, sector) = side.by_age.first_key_value()?;
        let key = (*sector, *number);
        Some((key, side.by_place.get(&key)?.expires))
    }

    fn merge(&mut self, bio: Bio, most: RequestLimits, settings: &Settings) -> Result<usize, Bio> {
        let direction = direction(bio.op);
        let by_place = &mut self.sides[direction].by_place;
        if let Some((key, waiting)) = by_place.range_mut(..(bio.sector, 0)).next_back()
            && waiting.request.takes(&bio, Side::Back, most)
        {
            let key = *key;
            waiting.request.merge(bio, Side::Back);
            return Ok(self.join_next(direction, key, most));
        }
        if !settings.merges_in_front() {
            return Err(bio);
        }
        let Some((key, waiting)) = by_place.range_mut((bio.end(), 0)..).next() else { return Err(bio) };
        if !waiting.request.takes(&bio, Side::Front, most) {
            return Err(bio);
        }
        // It has another place, and its age.
        let (key, place) = (*key, bio.sector);
        if let Some(mut waiting) = self.take(direction, key) {
            waiting.request.merge(bio, Side::Front);
            self.put(direction, (place, key.1), waiting);
        }
        Ok(0)
    }

    /// Only with the request that came last.
    fn merge_last(&mut self, bio: Bio, most: RequestLimits) -> Result<usize, Bio> {
        let last = self.last.and_then(|(direction, key)| self.sides[direction].by_place.get_mut(&key));
        match last {
            Some(waiting) if waiting.request.takes(&bio, Side::Back, most) => {
                waiting.request.merge(bio, Side::Back);
                Ok(0)
            }
            _ => Err(bio),
        }
    }

    /// A request has grown at its end: it may have met the next one. Then both are one, as old as the older. Says how many requests there are less.
    fn join_next(&mut self, direction: usize, key: Key, most: RequestLimits) -> usize {
        let side = &mut self.sides[direction];
        let Some(waiting) = side.by_place.get(&key) else { return 0 };
        let Some((next, other)) = side.by_place.range((waiting.request.end(), 0)..).next() else { return 0 };
        let next = *next;
        if next == key || !waiting.request.takes_next(&other.request, most) {
            return 0;
        }
        let (Some(mut waiting), Some(other)) = (self.take(direction, key), self.take(direction, next)) else {
            return 0;
        };
        waiting.request.join(other.request);
        waiting.expires = waiting.expires.min(other.expires);
        self.put(direction, (key.0, key.1.min(next.1)), waiting);
        1
    }

    /// The next of a direction in the order of sectors, behind the one that went last.
    fn following(&self, direction: usize) -> Option<Key> {
        let side = &self.sides[direction];
        side.by_place.range((Excluded(side.position), Unbounded)).next().map(|(key, _)| *key)
    }

    fn next(&mut self, now: u64, settings: &Settings) -> Option<Request> {
        let (direction, key) = self.choose(now, settings)?;
        self.batch.1 += 1;
        self.sides[direction].position = key;
        self.remove(direction, key)
    }

    fn choose(&mut self, now: u64, settings: &Settings) -> Option<(usize, Key)> {
        let (direction, done) = self.batch;
        if let Some(key) = self.following(direction).filter(|_| done < settings.batch()) {
            return Some((direction, key));
        }
        let has = |direction: usize| !self.sides[direction].by_place.is_empty();
        let direction = match (has(READ), has(WRITE)) {
            (true, false) => READ,
            (true, true) if self.starved < settings.starved() => {
                self.starved += 1;
                READ
            }
            (_, true) => WRITE,
            (false, false) => return None,
        };
        if direction == WRITE {
            self.starved = 0;
        }
        self.batch = (direction, 0);
        let (oldest, expires) = self.oldest(direction)?;
        match self.following(direction) {
            Some(key) if expires > now => Some((direction, key)),
            _ => Some((direction, oldest)),
        }
    }
}
