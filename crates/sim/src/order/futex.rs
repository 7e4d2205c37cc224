//! Futex words (man 2 futex) of one process, on pages of different kernels: who is woken, in which order, and who
//! owns the locks, and that nobody waits for itself.

use super::{Id, Outcome, Subject, EAGAIN, EDEADLK, EPERM, ESRCH, ETIMEDOUT};
use crate::{
    nodes::user::{call, Arg, Command},
    rng::Rng,
};
use machine::KernelId;
use std::collections::VecDeque;

/// Ordinary words; after them come the locks with an owner.
const WORDS: usize = 4;
const LOCKS: usize = 3;
const ALL_BITS: u32 = u32::MAX;
/// Sooner than the simulator's patience ends.
const SHORT_NS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// FUTEX_WAIT_BITSET, or FUTEX_WAIT with a timeout.
    Wait {
        word: usize,
        value: u32,
        bits: u32,
        short: bool,
    },
    Wake {
        word: usize,
        count: u32,
        bits: u32,
    },
    /// How many are woken, how many go on to the other word; the value it must have (FUTEX_CMP_REQUEUE).
    Requeue {
        from: usize,
        to: usize,
        wake: u32,
        take: u32,
        value: Option<u32>,
    },
    /// Adds 1 to the second word; wakes there too if it was `compare`.
    AddAndWake {
        word: usize,
        second: usize,
        count: u32,
        compare: u32,
    },
    Store {
        word: usize,
        value: u32,
    },
    Load {
        word: usize,
    },
    Lock(usize),
    TryLock(usize),
    Unlock(usize),
    Exit,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    thread: Id,
    bits: u32,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct Lock {
    owner: Option<Id>,
    /// The owner has ended when nobody waited: its id stays in the word for ever.
    abandoned: bool,
    queue: VecDeque<Id>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Futex {
    addresses: Vec<u64>,
    values: Vec<u32>,
    /// Who came first is in front.
    queues: Vec<VecDeque<Waiter>>,
    /// Threads that were woken and have not returned.
    woken: Vec<Id>,
    locks: [Lock; LOCKS],
    process: Id,
}

impl Futex {
    /// Wakes the first `count` of `word` whose bits fit.
    fn wake(&mut self, word: usize, count: u32, bits: u32) -> u32 {
        let mut woken = 0;
        self.queues[word].retain(|waiter| {
            let wake = woken < count && waiter.bits & bits != 0;
            if wake {
                woken += 1;
                self.woken.push(waiter.thread);
            }
            !wake
        });
        woken
    }

    fn requeue(&mut self, from: usize, to: usize, wake: u32, take: u32) -> u32 {
        let woken = self.wake(from, wake, ALL_BITS);
        let count = self.queues[from].len().min(take as usize);
        let moved: Vec<Waiter> = self.queues[from].drain(..count).collect();
        self.queues[to].extend(moved);
        woken + count as u32
    }

    /// The owner gives the lock away, or dies.
    fn hand_over(&mut self, lock: usize) {
        let lock = &mut self.locks[lock];
        lock.owner = lock.queue.pop_front();
        self.woken.extend(lock.owner);
    }

    fn lock(&mut self, lock: usize, thread: Id, only_try: bool) -> Outcome {
        match self.locks[lock].owner {
            None => {
                self.locks[lock].owner = Some(thread);
                done(0)
            }
            Some(owner) if owner == thread => done(EDEADLK),
            Some(_) if self.locks[lock].abandoned => done(ESRCH),
            Some(_) if only_try => done(EAGAIN),
            Some(owner) if self.waits_for(owner, thread) => done(EDEADLK),
            Some(_) => {
                self.locks[lock].queue.push_back(thread);
                Outcome::Waits
            }
        }
    }

    /// Does `thread` wait for a lock of `owner`, also by way of others? No circle is ever there.
    fn waits_for(&self, mut thread: Id, owner: Id) -> bool {
        while let Some(lock) = self.locks.iter().find(|lock| lock.queue.contains(&thread)) {
            match lock.owner {
                Some(next) if next != owner => thread = next,
                next => return next.is_some(),
            }
        }
        false
    }
}

fn done(result: i64) -> Outcome {
    Outcome::Reply((result, Vec::new()))
}

impl Subject for Futex {
    const NAME: &'static str = "futex";
    const STEPS: u32 = 80;
    const THREADS: usize = 9;
    const FORKS: bool = false;
    type Op = Op;

    /// Every page of words belongs to the kernel where the caller happens to be; some are shared memory.
    fn new(first: Id, call: &mut dyn FnMut(Command) -> (i64, KernelId)) -> Self {
        const READ_WRITE: u64 = 3;
        const ANONYMOUS: u64 = 0x20;
        let words = (0..(WORDS + LOCKS) as u64).map(|word| {
            let flags = ANONYMOUS | if word % 3 == 2 { 1 } else { 2 };
            let (at, _) = call(Command::plain(call::MMAP, &[0, 0x1000, READ_WRITE, flags, u64::MAX, 0]));
            at as u64 + 64 * word
        });
        let addresses = words.collect();
        Futex {
            addresses,
            values: vec![0; WORDS],
            queues: vec![VecDeque::new(); WORDS],
            woken: Vec::new(),
            locks: Default::default(),
            process: first,
        }
    }

    fn draw(&self, _thread: Id, patient: bool, rng: &Rng) -> Op {
        let (word, second) = (rng.below(WORDS), rng.below(WORDS));
        let other = if second == word { (second + 1) % WORDS } else { second };
        let bits = *rng.pick(&[ALL_BITS, ALL_BITS, 1, 2, 3]);
        let value = if rng.one_in(4) { rng.below(3) as u32 } else { self.values[word] };
        let lock = rng.below(LOCKS);
        let (few, count) = (rng.below(3) as u32, 1 + rng.below(3) as u32);
        let compared = rng.one_in(2).then_some(value);
        match rng.below(100) {
            0..=34 if patient => Op::Wait { word, value, bits, short: rng.one_in(5) },
            35..=44 if patient => Op::Lock(lock),
            45..=46 if patient && rng.one_in(3) => Op::Exit,
            0..=54 => Op::Wake { word, count, bits },
            55..=64 => Op::Requeue { from: word, to: other, wake: few, take: count, value: compared },
            65..=73 => Op::AddAndWake { word, second: other, count, compare: rng.below(3) as u32 },
            74..=80 => Op::Store { word, value: rng.below(3) as u32 },
            81..=86 => Op::Load { word },
            87..=91 => Op::TryLock(lock),
            _ => Op::Unlock(lock),
        }
    }

    fn command(&self, op: Op) -> Command {
        const WAIT: u64 = 0;
        const REQUEUE: u64 = 3;
        const CMP_REQUEUE: u64 = 4;
        const WAKE_OP: u64 = 5;
        const LOCK_PI: u64 = 6;
        const UNLOCK_PI: u64 = 7;
        const TRYLOCK_PI: u64 = 8;
        const WAIT_BITSET: u64 = 9;
        const WAKE_BITSET: u64 = 10;
        let at = |word: usize| self.addresses[word];
        let plain = |arguments: &[u64]| Command::plain(call::FUTEX, arguments);
        match op {
            Op::Wait { word, value, short: true, .. } => {
                let timeout = [0, SHORT_NS].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
                let arguments = [Arg::Value(at(word)), Arg::Value(WAIT), Arg::Value(value.into()), Arg::Input];
                Command::new(call::FUTEX, &arguments).input(timeout)
            }
            Op::Wait { word, value, bits, .. } => plain(&[at(word), WAIT_BITSET, value.into(), 0, 0, bits.into()]),
            Op::Wake { word, count, bits } => plain(&[at(word), WAKE_BITSET, count.into(), 0, 0, bits.into()]),
            Op::Requeue { from, to, wake, take, value } => {
                let kind = if value.is_some() { CMP_REQUEUE } else { REQUEUE };
                plain(&[at(from), kind, wake.into(), take.into(), at(to), value.unwrap_or(0).into()])
            }
            Op::AddAndWake { word, second, count, compare } => {
                // FUTEX_OP_ADD 1; FUTEX_OP_CMP_EQ.
                let encoded = 1 << 28 | 1 << 12 | u64::from(compare);
                plain(&[at(word), WAKE_OP, count.into(), count.into(), at(second), encoded])
            }
            Op::Store { word, value } => Command::plain(call::GETPID, &[]).input(value.to_le_bytes()).at(at(word)),
            Op::Load { word } => Command::plain(call::GETPID, &[]).output(4).at(at(word)),
            Op::Lock(lock) => plain(&[at(WORDS + lock), LOCK_PI]),
            Op::TryLock(lock) => plain(&[at(WORDS + lock), TRYLOCK_PI]),
            Op::Unlock(lock) => plain(&[at(WORDS + lock), UNLOCK_PI]),
            Op::Exit => Command::plain(call::EXIT, &[0]),
        }
    }

    fn born(&mut self, _parent: Id, _child: Id, _process: bool) {}

    fn begin(&mut self, thread: Id, op: Op) -> Outcome {
        match op {
            Op::Wait { word, value, .. } if self.values[word] != value => done(EAGAIN),
            Op::Wait { word, bits, short, .. } => {
                let bits = if short { ALL_BITS } else { bits };
                self.queues[word].push_back(Waiter { thread, bits });
                Outcome::Waits
            }
            Op::Wake { word, count, bits } => done(self.wake(word, count, bits).into()),
            Op::Requeue { from, value: Some(value), .. } if self.values[from] != value => done(EAGAIN),
            Op::Requeue { from, to, wake, take, .. } => done(self.requeue(from, to, wake, take).into()),
            // One step, whoever queues for the words.
            Op::AddAndWake { word, second, count, compare } => {
                let before = self.values[second];
                self.values[second] = before.wrapping_add(1);
                let woken = self.wake(word, count, ALL_BITS);
                let more = if before == compare { self.wake(second, count, ALL_BITS) } else { 0 };
                done((woken + more).into())
            }
            Op::Store { word, value } => {
                self.values[word] = value;
                // The call beside it is getpid.
                done(self.process.into())
            }
            Op::Load { word } => Outcome::Reply((self.process.into(), self.values[word].to_le_bytes().into())),
            Op::Lock(lock) => self.lock(lock, thread, false),
            Op::TryLock(lock) => self.lock(lock, thread, true),
            Op::Unlock(lock) if self.locks[lock].owner != Some(thread) => done(EPERM),
            Op::Unlock(lock) => {
                self.hand_over(lock);
                done(0)
            }
            Op::Exit => {
                for lock in 0..LOCKS {
                    match self.locks[lock].owner == Some(thread) {
                        true if self.locks[lock].queue.is_empty() => self.locks[lock].abandoned = true,
                        true => self.hand_over(lock),
                        false => {}
                    }
                }
                Outcome::Ends
            }
        }
    }

    fn go_on(&mut self, thread: Id, op: Op) -> Option<Outcome> {
        if let Some(index) = self.woken.iter().position(|woken| *woken == thread) {
            self.woken.swap_remove(index);
            return Some(done(0));
        }
        match op {
            Op::Wait { short: true, .. } => {
                self.queues.iter_mut().for_each(|queue| queue.retain(|waiter| waiter.thread != thread));
                Some(done(ETIMEDOUT))
            }
            _ => None,
        }
    }
}
