//! A lane against the queues it has to measure up to, between two threads.
//!
//! `one way`: time per message when one thread sends and the other receives as fast as they can.
//! `round trip`: one message there, and one back. 56 bytes fill one slot of a lane, 64 bytes take two. `flag`: a word in a line
//! of its own, which is as fast as two CPUs can tell each other anything.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use fabric::local;
use std::{
    hint::spin_loop,
    sync::{
        atomic::{AtomicU64, Ordering::*},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

const SLOTS: usize = 256;

fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        match attempt() {
            Some(value) => return value,
            None => spin_loop(),
        }
    }
}

macro_rules! spin_until {
    ($attempt:expr) => {
        while !$attempt {
            spin_loop();
        }
    };
}

mod queues {
    use super::*;

    pub fn lane<const N: usize>() -> (impl FnMut(u8), impl FnMut() -> u8) {
        let (sender, receiver) = local::lane(SLOTS);
        let mut buffer = Vec::with_capacity(N);
        (
            move |byte| spin_until!(sender.try_send(&[byte; N]).is_ok()),
            move || {
                spin_until!(receiver.try_recv(&mut buffer));
                buffer[N - 1]
            },
        )
    }

    pub fn rtrb<const N: usize>() -> (impl FnMut(u8), impl FnMut() -> u8) {
        let (mut sender, mut receiver) = rtrb::RingBuffer::<[u8; N]>::new(SLOTS);
        (move |byte| spin_until!(sender.push([byte; N]).is_ok()), move || until(|| receiver.pop().ok())[N - 1])
    }

    pub fn flag() -> (impl FnMut(u8), impl FnMut() -> u8) {
        #[repr(align(128))]
        struct Line(AtomicU64);
        let here = Arc::new(Line(AtomicU64::new(0)));
        let there = here.clone();
        let (mut sent, mut seen) = (0u64, 0u64);
        let send = move |byte| {
            sent += 1;
            here.0.store(sent << 8 | u64::from(byte), Release);
        };
        let receive = move || {
            seen += 1;
            until(|| Some(there.0.load(Acquire)).filter(|word| word >> 8 == seen)) as u8
        };
        (send, receive)
    }

    pub fn crossbeam<const N: usize>() -> (impl FnMut(u8), impl FnMut() -> u8) {
        let (sender, receiver) = crossbeam_channel::bounded::<[u8; N]>(SLOTS);
        (move |byte| spin_until!(sender.try_send([byte; N]).is_ok()), move || until(|| receiver.try_recv().ok())[N - 1])
    }
}

fn one_way<S: FnMut(u8) + Send, R: FnMut() -> u8>(count: u64, queue: fn() -> (S, R)) -> Duration {
    let (mut send, mut receive) = queue();
    thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(move || (0..count).for_each(|index| send(index as u8)));
        for index in 0..count {
            assert_eq!(receive(), index as u8);
        }
        start.elapsed()
    })
}

fn round_trip<S, R>(count: u64, queue: fn() -> (S, R)) -> Duration
where
    S: FnMut(u8) + Send,
    R: FnMut() -> u8 + Send,
{
    let ((mut send, mut hear), (mut answer, mut receive)) = (queue(), queue());
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..count {
                answer(hear());
            }
        });
        let start = Instant::now();
        for index in 0..count {
            send(index as u8);
            assert_eq!(receive(), index as u8);
        }
        start.elapsed()
    })
}

fn compare<S, R>(criterion: &mut Criterion, name: &str, bytes: usize, queue: fn() -> (S, R))
where
    S: FnMut(u8) + Send,
    R: FnMut() -> u8 + Send,
{
    let mut group = criterion.benchmark_group("one way");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
        bencher.iter_custom(|count| one_way(count, queue));
    });
    group.finish();
    compare_round_trip(criterion, name, bytes, queue);
}

fn compare_round_trip<S, R>(criterion: &mut Criterion, name: &str, bytes: usize, queue: fn() -> (S, R))
where
    S: FnMut(u8) + Send,
    R: FnMut() -> u8 + Send,
{
    let mut group = criterion.benchmark_group("round trip");
    group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
        bencher.iter_custom(|count| round_trip(count, queue));
    });
    group.finish();
}

fn lanes(criterion: &mut Criterion) {
    compare(criterion, "lane", 56, queues::lane::<56>);
    compare(criterion, "rtrb", 56, queues::rtrb::<56>);
    compare(criterion, "lane", 64, queues::lane::<64>);
    compare(criterion, "rtrb", 64, queues::rtrb::<64>);
    compare(criterion, "crossbeam", 64, queues::crossbeam::<64>);
    compare_round_trip(criterion, "flag", 8, queues::flag);
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20);
    targets = lanes
}
criterion_main!(benches);
