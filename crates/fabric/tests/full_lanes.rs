//! Every kernel floods every other through lanes that are far too small. See outbox.rs for why
//! this must come to an end.

mod common;

use common::{kernels, ready, settle, Kernel};
use fabric::{Call, CREDITS};
use machine::{KernelId, KernelSet, Pid};
use messages::control::{KernelDied, Ping};
use messages::process::Reap;
use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
    thread,
};

/// Splitmix64: the next number of a seeded sequence.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as usize >> 1
}

/// A ping whose handler calls its caller back, and so on, `depth` times; then adds padding.
fn deep(depth: u8, padding: usize) -> Ping {
    let mut payload = vec![depth];
    payload.resize(1 + padding, 7);
    Ping { payload }
}

/// Handlers: pings that go back and forth; deaths as a harmless revocation; counted log lines.
fn serve(kernel: &Kernel, lines: &Arc<AtomicU64>) {
    let endpoint = Arc::downgrade(&kernel.endpoint);
    kernel.endpoint.on::<Ping, _, _>(move |from, ping| {
        let endpoint = endpoint.upgrade().unwrap();
        async move {
            let mut reply = ping.payload;
            if reply[0] > 0 {
                let ping = deep(reply[0] - 1, reply.len() - 1);
                let inner = endpoint.call(from, ping).await.unwrap();
                assert_eq!(inner.len(), reply.len());
                reply[0] = inner[0] + 1;
            }
            reply
        }
    });
    kernel.endpoint.on_sync::<KernelDied, _>(|_, _| ());
    let lines = lines.clone();
    kernel.endpoint.on_sync::<Reap, _>(move |_, _| {
        lines.fetch_add(1, Ordering::SeqCst);
    });
}

/// What one kernel starts: calls of all depths and lengths to all, multicasts, notices.
fn flood(kernel: &Kernel, others: &KernelSet, rounds: usize, done: &Arc<AtomicU64>) {
    for round in 0..rounds {
        let (task, done, others) = (kernel.clone(), done.clone(), others.clone());
        kernel.spawn(async move {
            let endpoint = &task.endpoint;
            let calls: Vec<(u8, Call<'_, Vec<u8>>)> = others
                .iter()
                .map(|to| {
                    let depth = (round % 5) as u8;
                    (depth, endpoint.start(to, deep(depth, round * 37 % 300)))
                })
                .collect();
            for (kernel, answer) in endpoint.multicast(&others, KernelDied { kernel: KernelId(99) }).await {
                answer.unwrap_or_else(|error| panic!("{kernel}: {error:?}"));
            }
            for (depth, call) in calls {
                let to = call.to();
                assert_eq!(call.await.unwrap()[0], depth);
                endpoint.send(to, Reap { child: Pid(1) }).unwrap();
            }
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
}

#[test]
fn everyone_floods_everyone_under_any_schedule() {
    for seed in 0..40 {
        let mut state = seed;
        let count = 2 + random(&mut state) % 3;
        let slots = 1 << (random(&mut state) % 4);
        let rounds = 40;
        let machine = kernels(count, slots);
        let (lines, done) = (Arc::default(), Arc::default());
        let all: KernelSet = (0..count as u16).map(KernelId).collect();
        for kernel in &machine {
            serve(kernel, &lines);
            flood(kernel, &all, rounds, &done);
        }
        for _ in 0..random(&mut state) % 20_000 {
            let kernel = &machine[random(&mut state) % count];
            match random(&mut state) % 4 {
                0 => drop(kernel.executor.run()),
                _ => drop(kernel.endpoint.drain(1 + random(&mut state) % 3)),
            }
        }
        settle(&machine);
        assert_eq!(done.load(Ordering::SeqCst), (rounds * count) as u64, "seed {seed}");
        assert_eq!(lines.load(Ordering::SeqCst), (rounds * count * count) as u64, "seed {seed}");
        for kernel in &machine {
            assert!(!kernel.endpoint.has_mail() && !kernel.endpoint.has_backlog(), "seed {seed}");
            assert_eq!(kernel.endpoint.stats().malformed, 0, "seed {seed}");
        }
    }
}

/// Chains of calls back and forth that need more requests at once than there are credits.
#[test]
fn handlers_that_call_back_never_wait_for_their_own_credit() {
    let machine = kernels(2, 4);
    let lines = Arc::default();
    machine.iter().for_each(|kernel| serve(kernel, &lines));
    let calls: Vec<_> = (0..4 * CREDITS).map(|_| machine[0].endpoint.start(KernelId(1), deep(9, 0))).collect();
    settle(&machine);
    for call in calls {
        assert_eq!(ready(call), Some(Ok(vec![9])));
    }
}

/// Who does not look at the credits that come back sends no more than those it had.
#[test]
fn nobody_sends_more_than_its_credits() {
    let machine = kernels(2, 8);
    let lines: Arc<AtomicU64> = Arc::default();
    machine.iter().for_each(|kernel| serve(kernel, &lines));
    for _ in 0..3 * CREDITS {
        machine[0].endpoint.send(KernelId(1), Reap { child: Pid(1) }).unwrap();
    }
    // It drains, and what has a credit follows; but its credit messages are not looked at.
    for _ in 0..CREDITS {
        machine[1].step();
        machine[0].endpoint.drain(0);
    }
    let received = lines.load(Ordering::SeqCst);
    assert_eq!(received, u64::from(CREDITS));
    settle(&machine);
    assert_eq!(lines.load(Ordering::SeqCst), 3 * u64::from(CREDITS));
}

#[test]
fn everyone_floods_everyone_in_parallel() {
    let count = 3;
    let rounds = 100;
    let machine = kernels(count, 4);
    let (lines, done) = (Arc::default(), Arc::<AtomicU64>::default());
    let all: KernelSet = (0..count as u16).map(KernelId).collect();
    for kernel in &machine {
        serve(kernel, &lines);
    }
    let expected = (rounds * count) as u64;
    thread::scope(|scope| {
        for kernel in &machine {
            flood(kernel, &all, rounds, &done);
            // A cluster of two CPUs.
            for _ in 0..2 {
                let (kernel, done) = (kernel.clone(), done.clone());
                scope.spawn(move || {
                    while done.load(Ordering::SeqCst) < expected {
                        if !kernel.step() {
                            thread::yield_now();
                        }
                    }
                });
            }
        }
    });
    settle(&machine);
    assert_eq!(lines.load(Ordering::SeqCst), (rounds * count * count) as u64);
}
