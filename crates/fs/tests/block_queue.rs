//! The queue between who asks for blocks and the disk: what is merged, in which order requests go, how many there may be, and that each is carried out once, whoever stops waiting.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{slow::Slow, Kernel, Random};
use fs::block::{Queue, Scheduler, Stats};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Piece, Pieces},
    errno::Result,
    join_all, BoxFuture, Errno, Memory,
};
use std::{
    sync::{atomic::Ordering::SeqCst, Arc},
    task::{Context, Poll, Waker},
};

struct Bench {
    kernel: Kernel,
    memory: Arc<dyn Memory>,
    device: Arc<Slow>,
    queue: Arc<Queue>,
    stats: Arc<Stats>,
}

type Asked<'a> = BoxFuture<'a, Result<()>>;

const LIMITS: BlockLimits = BlockLimits {
    sectors: 0,
    block: 512,
    physical_block: 512,
    read_only: false,
    caches_writes: true,
    most_bytes: 64 * 512,
    most_pieces: 0,
    most_segments: 0,
    queues: 1,
    depth: 1,
    most_discarded: 0,
    most_zeroed: 0,
    serial: Vec::new(),
};

impl Bench {
    fn new(scheduler: Scheduler, limits: BlockLimits) -> Bench {
        let kernel = Kernel::new(5000);
        let device = Arc::new(Slow::new(vec![0; 512 * 512], limits));
        let queue = Queue::new(&kernel.services, &(device.clone() as Arc<dyn BlockDevice>), (254, 16), scheduler);
        kernel.tasks.1.store(true, SeqCst);
        Bench { memory: kernel.memory.clone(), kernel, device, queue, stats: Arc::default() }
    }

    /// Pieces of a sector each, with these bytes.
    fn pieces(&self, bytes: &[u8]) -> Pieces {
        let mut pieces = Pieces::none(&self.memory);
        for byte in bytes {
            let frame = self.memory.alloc().unwrap();
            self.memory.write(frame, 512, &[*byte; 512]);
            pieces.push(Piece { frame, offset: 512, bytes: 512 });
            self.memory.release(frame);
        }
        pieces
    }

    fn ask(&self, op: BlockOp, sector: u64, pieces: Pieces) -> Asked<'_> {
        Box::pin(self.queue.submit(op, sector, pieces, || (self.stats.clone(), None)))
    }

    fn read(&self, sector: u64, sectors: usize) -> Asked<'_> {
        self.ask(BlockOp::Read, sector, self.pieces(&vec![0; sectors]))
    }

    fn write(&self, sector: u64, bytes: &[u8]) -> Asked<'_> {
        self.ask(BlockOp::Write, sector, self.pieces(bytes))
    }

    /// Keeps the device busy with a request, so that all others wait in the queue.
    fn occupied(&self) -> Asked<'_> {
        let mut first = self.ask(BlockOp::Flush, 0, Pieces::none(&self.memory));
        assert!(poll(&mut first).is_none());
        first
    }

    fn answer(&self, index: usize) -> (BlockOp, u64, u64) {
        let given = self.device.answer(index);
        self.kernel.tasks.run_now();
        (given.op, given.sector, given.pages.len() as u64 / 512)
    }

    /// Answers one after the other until there is nothing left, and says what they were.
    fn answer_all(&self) -> Vec<(BlockOp, u64, u64)> {
        let mut all = Vec::new();
        while !self.device.under_way().is_empty() {
            all.push(self.answer(0));
        }
        all
    }

    fn set(&self, name: &str, value: u64) {
        self.queue.settings.set(name, value, &self.device.limits()).unwrap();
    }
}

fn poll<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn poll_all(futures: &mut [Asked<'_>]) {
    futures.iter_mut().for_each(|future| assert_eq!(poll(future), None));
}

const R: BlockOp = BlockOp::Read;
const W: BlockOp = BlockOp::Write;

#[test]
fn what_adjoins_becomes_one_request_and_counts_as_merged() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        let bench = Bench::new(scheduler, LIMITS);
        let all = vec![bench.write(8, &[8, 9]), bench.write(10, &[10]), bench.write(7, &[7]), bench.write(20, &[20])];
        let mut joined: BoxFuture<'_, Vec<Result<()>>> = Box::pin(bench.queue.plugged(join_all(all)));
        assert!(poll(&mut joined).is_none());
        assert_eq!(bench.answer_all(), [(W, 7, 4), (W, 20, 1)], "{scheduler:?}");
        assert_eq!(poll(&mut joined), Some(vec![Ok(()); 4]));
        let bytes = bench.device.bytes.lock().unwrap();
        assert!([7, 8, 9, 10, 20].iter().all(|sector| bytes[*sector as usize * 512..][..512] == [*sector; 512]));
        // Writes completed, merged, sectors; nothing under way.
        let numbers = bench.stats.numbers();
        assert_eq!((numbers[4], numbers[5], numbers[6], numbers[8]), (2, 2, 5, 0));
        assert_eq!(bench.kernel.memory.used(), 0);
    }
}

#[test]
fn a_request_that_comes_between_two_makes_them_one() {
    let bench = Bench::new(Scheduler::Deadline, LIMITS);
    let _first = bench.occupied();
    let mut all = [bench.write(30, &[1; 2]), bench.write(34, &[3; 2]), bench.write(32, &[2; 2])];
    poll_all(&mut all);
    assert_eq!(bench.stats.numbers()[8], 2);
    assert_eq!(bench.answer_all()[1..], [(W, 30, 6)]);
    assert_eq!(bench.stats.numbers()[5], 2);
}

#[test]
fn requests_grow_no_longer_than_the_disk_or_the_setting_allow() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        let bench = Bench::new(scheduler, BlockLimits { most_pieces: 12, ..LIMITS });
        let go = |bench: &Bench| {
            let first = bench.occupied();
            let mut all: Vec<_> = (0..10).map(|index| bench.write(index * 4, &[1; 4])).collect();
            poll_all(&mut all);
            drop(first);
            bench.answer_all()[1..].to_vec()
        };
        assert_eq!(go(&bench), [(W, 0, 12), (W, 12, 12), (W, 24, 12), (W, 36, 4)]);
        bench.set("max_sectors_kb", 4);
        assert_eq!(go(&bench), [(W, 0, 8), (W, 8, 8), (W, 16, 8), (W, 24, 8), (W, 32, 8)]);
        bench.set("nomerges", 2);
        assert_eq!(go(&bench).len(), 10);
        let limits = bench.device.limits();
        assert_eq!(bench.queue.settings.set("max_sectors_kb", 33, &limits), Err(Errno::EINVAL));
        assert_eq!(bench.queue.settings.set("max_sectors_kb", 3, &limits), Err(Errno::EINVAL));
    }
}

#[test]
fn the_deadline_scheduler_orders_by_place_and_lets_reads_go_first() {
    let bench = Bench::new(Scheduler::Deadline, LIMITS);
    let _first = bench.occupied();
    let mut all =
        [bench.write(90, &[1]), bench.write(10, &[1]), bench.read(400, 1), bench.read(50, 1), bench.read(200, 1)];
    poll_all(&mut all);
    assert_eq!(bench.answer_all()[1..], [(R, 50, 1), (R, 200, 1), (R, 400, 1), (W, 10, 1), (W, 90, 1)]);
}

#[test]
fn writes_are_starved_only_so_often() {
    let bench = Bench::new(Scheduler::Deadline, LIMITS);
    bench.set("iosched/fifo_batch", 1);
    let _first = bench.occupied();
    let mut all: Vec<_> = (0..6).map(|index| bench.read(index * 10, 1)).collect();
    all.extend((0..2).map(|index| bench.write(index * 10 + 5, &[1])));
    poll_all(&mut all);
    let order: Vec<_> = bench.answer_all()[1..].iter().map(|(op, ..)| *op).collect();
    // The first continues a batch of nothing.
    assert_eq!(order, [R, R, R, W, R, R, W, R]);
}

#[test]
fn a_request_that_has_waited_too_long_goes_first() {
    let bench = Bench::new(Scheduler::Deadline, LIMITS);
    bench.set("iosched/fifo_batch", 2);
    let _first = bench.occupied();
    let mut all = vec![bench.read(300, 1)];
    poll_all(&mut all);
    bench.kernel.clock.advance(501_000_000);
    let mut later: Vec<_> = (0..6).map(|index| bench.read(index * 10 + 10, 1)).collect();
    poll_all(&mut later);
    all.extend(later);
    // The batch that has begun goes on, then the old one.
    let order: Vec<_> = bench.answer_all()[1..].iter().map(|(_, sector, _)| *sector).collect();
    assert_eq!(order, [10, 20, 300, 30, 40, 50, 60]);
}

#[test]
fn a_flush_waits_for_no_other_request_and_several_are_one() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        let bench = Bench::new(scheduler, LIMITS);
        let _first = bench.occupied();
        let flush = || bench.ask(BlockOp::Flush, 0, Pieces::none(&bench.memory));
        let mut all = [bench.write(1, &[1]), flush(), bench.read(9, 1), flush()];
        poll_all(&mut all);
        assert_eq!(bench.answer(0), (BlockOp::Flush, 0, 0));
        assert_eq!(bench.answer(0), (BlockOp::Flush, 0, 0));
        assert_eq!((poll(&mut all[1]), poll(&mut all[3])), (Some(Ok(())), Some(Ok(()))));
        assert_eq!(bench.answer_all().len(), 2);
    }
}

#[test]
fn flushes_that_come_while_one_is_under_way_are_one_and_hold_up_nothing_else() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        // The device takes as many requests as there are.
        let bench = Bench::new(scheduler, BlockLimits { depth: 0, ..LIMITS });
        let _first = bench.occupied();
        let ops = || bench.device.under_way().iter().map(|(op, ..)| *op).collect::<Vec<_>>();
        let flush = || bench.ask(BlockOp::Flush, 0, Pieces::none(&bench.memory));
        let mut all = [bench.write(1, &[1]), flush(), flush(), bench.read(9, 1), flush()];
        poll_all(&mut all);
        // The one that is under way, and what is no flush.
        assert_eq!(ops(), [BlockOp::Flush, BlockOp::Write, BlockOp::Read]);
        assert_eq!(bench.answer(1).0, BlockOp::Write);
        assert_eq!(bench.answer(0).0, BlockOp::Flush);
        assert_eq!(ops(), [BlockOp::Read, BlockOp::Flush]);
        assert_eq!(bench.answer(1).0, BlockOp::Flush);
        assert_eq!([1, 2, 4].map(|flush: usize| poll(&mut all[flush])), [Some(Ok(())); 3]);
        assert_eq!(ops(), [BlockOp::Read]);
    }
}

#[test]
fn of_a_flush_that_fails_all_hear_that_asked_for_it() {
    let bench = Bench::new(Scheduler::None, LIMITS);
    let _first = bench.occupied();
    let flush = || bench.ask(BlockOp::Flush, 0, Pieces::none(&bench.memory));
    // Something must have changed since the first.
    let mut all = [bench.write(1, &[1]), flush(), flush()];
    poll_all(&mut all);
    bench.answer(0);
    bench.device.fails_flush.store(true, SeqCst);
    bench.answer_all();
    assert_eq!(all.each_mut().map(poll), [Some(Ok(())), Some(Err(Errno::EIO)), Some(Err(Errno::EIO))]);
}

#[test]
fn submitters_wait_while_the_queue_is_full() {
    let bench = Bench::new(Scheduler::Deadline, LIMITS);
    bench.set("nr_requests", 4);
    let mut all: Vec<_> = (0..8).map(|index| bench.read(index * 5, 1)).collect();
    poll_all(&mut all);
    assert_eq!(bench.stats.numbers()[8], 4);
    // One that is merged needs no room, one that nobody waits for any more takes none.
    let mut merged = bench.read(6, 1);
    assert!(poll(&mut merged).is_none());
    assert_eq!((bench.stats.numbers()[8], bench.stats.numbers()[1]), (4, 1));
    drop(all.pop());
    let mut done = 0;
    while done < 7 {
        bench.answer(0);
        all.retain_mut(|one| match poll(one) {
            Some(answer) => {
                assert_eq!(answer, Ok(()));
                done += 1;
                false
            }
            None => true,
        });
        assert!(bench.stats.numbers()[8] <= 4);
    }
    assert_eq!(poll(&mut merged), Some(Ok(())));
    assert_eq!(bench.stats.numbers()[0], 7);
}

#[test]
fn a_bad_sector_fails_only_who_asked_for_it() {
    let bench = Bench::new(Scheduler::None, LIMITS);
    bench.device.bad.lock().unwrap().push(12);
    let _first = bench.occupied();
    let mut all = [bench.read(10, 2), bench.read(12, 2), bench.read(14, 2)];
    poll_all(&mut all);
    // The three together, then each.
    assert_eq!(bench.answer_all()[1..], [(R, 10, 6), (R, 10, 2), (R, 12, 2), (R, 14, 2)]);
    assert_eq!(all.each_mut().map(poll), [Some(Ok(())), Some(Err(Errno::EIO)), Some(Ok(()))]);
}

#[test]
fn another_scheduler_takes_over_what_waits() {
    let bench = Bench::new(Scheduler::None, LIMITS);
    let _first = bench.occupied();
    let mut all: Vec<_> = [30, 10, 20].map(|sector| bench.read(sector, 1)).into();
    poll_all(&mut all);
    bench.queue.select(Scheduler::Deadline);
    assert_eq!(bench.queue.settings.scheduler(), Scheduler::Deadline);
    assert_eq!(bench.answer(0), (BlockOp::Flush, 0, 0));
    bench.queue.select(Scheduler::None);
    // By age again, but for what the device has.
    assert_eq!(bench.answer_all().iter().map(|one| one.1).collect::<Vec<_>>(), [10, 30, 20]);
    assert!(all.iter_mut().all(|one| poll(one) == Some(Ok(()))));
}

/// What somebody asked for.
struct Actor<'a> {
    asked: Option<Asked<'a>>,
    sectors: std::ops::Range<u64>,
    /// Of a write, what it writes.
    value: u8,
    pieces: Option<Pieces>,
    /// How much of the log there was when it was asked for.
    since: usize,
}

#[test]
fn random_requests_are_carried_out_once_each_and_what_is_read_was_there() {
    for seed in 1..400u64 {
        let random = &mut Random::new(seed);
        let scheduler = if seed % 2 == 0 { Scheduler::None } else { Scheduler::Deadline };
        let most_pieces = [0, 5, 9][random.below(3) as usize];
        let depth = [0, 1, 2, 7][random.below(4) as usize];
        let most_segments = [0, 5, 7][random.below(3) as usize];
        let bench = Bench::new(scheduler, BlockLimits { most_pieces, most_segments, depth, ..LIMITS });
        let most_sectors = if most_pieces == 0 && most_segments == 0 { 8 } else { 5 };
        bench.set("nr_requests", 4 + random.below(20));
        bench.device.bad.lock().unwrap().extend((0..random.below(3)).map(|_| random.below(60)));
        let bad = bench.device.bad.lock().unwrap().clone();
        let mut actors: Vec<Actor> = Vec::new();
        // Sectors with what was written to them, in the order in which the device did it.
        let mut log: Vec<(u64, u8)> = Vec::new();
        let mut next_value = 0u8;
        for step in 0..160 {
            match random.below(8) {
                0..4 if step < 120 && next_value < 250 => {
                    let (start, count) = (random.below(60), 1 + random.below(most_sectors));
                    let op = [R, W, W][random.below(3) as usize];
                    next_value += 1;
                    let pieces = bench.pieces(&vec![next_value; count as usize]);
                    let keeps = (op == R).then(|| pieces.clone());
                    let mut asked = bench.ask(op, start, pieces);
                    let since = log.len();
                    let plug = (random.below(3) == 0).then(|| bench.queue.plug());
                    assert_eq!(poll(&mut asked), None);
                    drop(plug);
                    let sectors = start..start + count;
                    actors.push(Actor { asked: Some(asked), sectors, value: next_value, pieces: keeps, since });
                }
                4 if !actors.is_empty() => {
                    // Somebody stops waiting: one that was never let in is not carried out.
                    let at = random.below(actors.len() as u64) as usize;
                    actors[at].asked = None;
                }
                5 => bench.queue.select([Scheduler::None, Scheduler::Deadline][random.below(2) as usize]),
                _ => {
                    let given = bench.device.under_way().len() as u64;
                    if given > 0 {
                        let done = bench.device.answer(random.below(given) as usize);
                        let is_bad = bad.iter().any(|bad| done.sectors().contains(bad));
                        if done.op == W && !is_bad {
                            let mut bytes = Vec::new();
                            done.pages.copy_to(&mut bytes);
                            log.extend(done.sectors().zip(bytes.chunks(512).map(|sector| sector[0])));
                        }
                        drop(done);
                        bench.kernel.tasks.run_now();
                    } else if step < 120 {
                        bench.kernel.clock.advance(random.below(900_000_000));
                    }
                }
            }
            let finish = |actor: &mut Actor| {
                let Some(answer) = actor.asked.as_mut().and_then(poll) else { return true };
                let is_bad = bad.iter().any(|bad| actor.sectors.contains(bad));
                assert_eq!(answer, if is_bad { Err(Errno::EIO) } else { Ok(()) }, "seed {seed}");
                if is_bad {
                    return false;
                }
                match &actor.pieces {
                    None => {
                        for sector in actor.sectors.clone() {
                            let times = log[actor.since..].iter().filter(|one| **one == (sector, actor.value)).count();
                            assert_eq!(times, 1, "seed {seed}: sector {sector}");
                        }
                    }
                    Some(pieces) => {
                        let mut bytes = Vec::new();
                        pieces.copy_to(&mut bytes);
                        for (sector, found) in actor.sectors.clone().zip(bytes.chunks(512)) {
                            let before = log[..actor.since].iter().rev().find(|one| one.0 == sector);
                            let then = log[actor.since..].iter().filter(|one| one.0 == sector);
                            let mut possible = then.map(|one| one.1).chain([before.map_or(0, |one| one.1)]);
                            assert!(possible.any(|value| found == [value; 512]), "seed {seed}: sector {sector}");
                        }
                    }
                }
                false
            };
            actors.retain_mut(finish);
            if step >= 120 && actors.iter().all(|actor| actor.asked.is_none()) && bench.device.under_way().is_empty() {
                break;
            }
        }
        // All that wait get their answers.
        let mut rounds = 0;
        while !bench.device.under_way().is_empty() || actors.iter().any(|actor| actor.asked.is_some()) {
            bench.device.answer_all(|| bench.kernel.tasks.run_now());
            bench.kernel.tasks.run_now();
            actors.iter_mut().for_each(|actor| {
                if actor.asked.as_mut().and_then(poll).is_some() {
                    actor.asked = None;
                }
            });
            rounds += 1;
            assert!(rounds < 1000, "seed {seed}: somebody waits for ever");
        }
        // No write was carried out twice.
        let mut seen = log.clone();
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all, "seed {seed}");
        assert_eq!(bench.stats.numbers()[8], 0, "seed {seed}: nothing is under way");
        drop(actors);
        assert_eq!(bench.kernel.memory.used(), 0, "seed {seed}: no frame stays");
    }
}
