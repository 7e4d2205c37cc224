//! Cancels, drops and deaths at random moments; afterwards nothing may be left over.

#[path = "../tests/common/mod.rs"]
mod common;

use crate::outbox::{CREDITS, CREDIT_BATCH};
use crate::{local, CallError, Endpoint};
use common::{kernels, settle, Executor, Handle, Kernel};
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicI64, Ordering},
    task::{Context, Poll, Waker},
};
use machine::{KernelId, KernelSet};
use messages::{control::Ping, Priority};
use std::{boxed::Box, sync::Arc, vec, vec::Vec};

struct Random(u64);

impl Random {
    /// Splitmix64.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    }
}

/// Counts handlers at work.
struct AtWork(Arc<AtomicI64>);

impl AtWork {
    fn new(count: &Arc<AtomicI64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        AtWork(count.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ready after it was polled `polls` times.
struct Slow {
    polls: u8,
}

impl Future for Slow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        context.waker().wake_by_ref();
        self.polls = self.polls.saturating_sub(1);
        if self.polls == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Pings take as many polls as their first byte says.
fn serve(endpoint: &Endpoint, at_work: &Arc<AtomicI64>) {
    let at_work = at_work.clone();
    endpoint.on::<Ping, _, _>(move |_, ping| {
        let guard = AtWork::new(&at_work);
        async move {
            Slow { polls: ping.payload[0] }.await;
            drop(guard);
            ping.payload
        }
    });
}

fn check_nothing_left(machine: &[Kernel], seed: u64) {
    for (me, kernel) in machine.iter().enumerate() {
        assert_eq!(kernel.endpoint.outstanding(), (0, 0), "seed {seed}");
        assert_eq!(kernel.endpoint.stats().malformed, 0, "seed {seed}");
        for peer in kernel.endpoint.peers().iter().filter(|peer| peer.id.index() != me) {
            let credits = peer.out[Priority::Low.index()].credits();
            assert!(credits > CREDITS - CREDIT_BATCH, "seed {seed}: {credits} credits left");
        }
    }
}

type PendingCall<'a> = (u8, crate::Call<'a, Vec<u8>>, bool);

/// One random deed with the calls under way; checks each that ends.
fn disturb<'a>(random: &mut Random, calls: &mut Vec<PendingCall<'a>>, from: &'a Kernel, kernels: usize) {
    match random.below(4) {
        0 | 1 => {
            let polls = random.below(6) as u8;
            let to = KernelId(random.below(kernels) as u16);
            let mut payload = vec![polls; 1 + random.below(90)];
            payload[0] = polls;
            calls.push((polls, from.endpoint.start(to, Ping { payload }), false));
        }
        2 if !calls.is_empty() => {
            let index = random.below(calls.len());
            calls[index].1.cancel();
            calls[index].2 = true;
        }
        _ if !calls.is_empty() => drop(calls.swap_remove(random.below(calls.len()))),
        _ => {}
    }
    collect(calls, false);
}

fn collect(calls: &mut Vec<PendingCall<'_>>, deaths: bool) {
    let mut context = Context::from_waker(Waker::noop());
    calls.retain_mut(|(polls, call, cancelled)| match Pin::new(call).poll(&mut context) {
        Poll::Pending => true,
        Poll::Ready(Ok(reply)) => {
            assert_eq!(reply[0], *polls);
            false
        }
        Poll::Ready(Err(CallError::Cancelled)) => {
            assert!(*cancelled, "nobody cancelled it");
            false
        }
        Poll::Ready(Err(error)) => {
            assert!(deaths && error == CallError::Dead, "{error:?}");
            false
        }
    });
}

#[test]
fn cancels_and_drops_leave_nothing_behind() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let count = 2 + random.below(2);
        let at_work = Arc::new(AtomicI64::new(0));
        let machine = kernels(count, 1 << random.below(5));
        machine.iter().for_each(|kernel| serve(&kernel.endpoint, &at_work));
        let mut calls: Vec<Vec<PendingCall<'_>>> = machine.iter().map(|_| Vec::new()).collect();
        // Some seeds begin with more calls than there are credits.
        for _ in 0..random.below(600) {
            let ping = Ping { payload: vec![1] };
            calls[0].push((1, machine[0].endpoint.start(KernelId(1), ping), false));
        }
        for _ in 0..2000 {
            let who = random.below(count);
            match random.below(3) {
                0 => disturb(&mut random, &mut calls[who], &machine[who], count),
                1 => drop(machine[who].endpoint.drain(1 + random.below(4))),
                _ => drop(machine[who].executor.run_one()),
            }
        }
        settle(&machine);
        for calls in &mut calls {
            collect(calls, false);
            assert!(calls.is_empty(), "seed {seed}: {} calls without an answer", calls.len());
        }
        settle(&machine);
        assert_eq!(at_work.load(Ordering::SeqCst), 0, "seed {seed}: handlers left over");
        check_nothing_left(&machine, seed);
    }
}

/// A kernel that can die: the others keep their ports, to connect its successor.
struct Mortal {
    kernel: Kernel,
    port: Arc<crate::LanePort>,
}

fn born(id: usize, count: usize, at_work: &Arc<AtomicI64>) -> Mortal {
    let port = Arc::new(local::port(count, |_| ()));
    let executor = Arc::new(Executor::default());
    let spawner = Arc::new(Handle(executor.clone()));
    let endpoint = Endpoint::new(KernelId(id as u16), count, Box::new(port.clone()), spawner);
    serve(&endpoint, at_work);
    Mortal { kernel: Kernel { endpoint, executor }, port }
}

fn meet(a: &Mortal, b: &Mortal) {
    let (first, second) = (a.kernel.endpoint.me(), b.kernel.endpoint.me());
    local::connect((first, &a.port), (second, &b.port), 8);
    a.kernel.endpoint.add_peer(second);
    b.kernel.endpoint.add_peer(first);
}

/// Kernel 2 dies and comes back, again and again, in the middle of calls in all directions. The calls of
/// the others end, and its successors never see an answer that was meant for it.
#[test]
fn a_kernel_dies_and_is_started_again() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let at_work = Arc::new(AtomicI64::new(0));
        let mut machine: Vec<Mortal> = (0..3).map(|id| born(id, 3, &at_work)).collect();
        meet(&machine[0], &machine[1]);
        for boot_generation in 0..5 {
            meet(&machine[0], &machine[2]);
            meet(&machine[1], &machine[2]);
            let present: KernelSet = (0..3).map(KernelId).collect();
            assert!(machine.iter().all(|one| one.kernel.endpoint.present() == present));
            let mut calls: Vec<Vec<PendingCall<'_>>> = machine.iter().map(|_| Vec::new()).collect();
            for _ in 0..300 {
                let who = random.below(3);
                let kernel = &machine[who].kernel;
                match random.below(3) {
                    0 => disturb(&mut random, &mut calls[who], kernel, 3),
                    1 => drop(kernel.endpoint.drain(1 + random.below(4))),
                    _ => drop(kernel.executor.run_one()),
                }
            }
            // Kernel 2 stops where it is.
            core::mem::forget(calls.pop());
            let survivors: Vec<Kernel> = machine[..2].iter().map(|one| one.kernel.clone()).collect();
            for (kernel, calls) in survivors.iter().zip(&mut calls) {
                kernel.endpoint.declare_dead(KernelId(2));
                collect(calls, true);
            }
            settle(&survivors);
            for calls in &mut calls {
                collect(calls, true);
                assert!(calls.is_empty(), "seed {seed}, boot generation {boot_generation}");
            }
            settle(&survivors);
            for kernel in &survivors {
                assert_eq!(kernel.endpoint.outstanding(), (0, 0), "seed {seed}, boot generation {boot_generation}");
            }
            drop(calls);
            // What it was working on vanishes with its memory; the tasks are leaked here.
            machine[2] = born(2, 3, &at_work);
        }
    }
}

/// Half of a long message has arrived when its sender dies; its successor begins a new one.
#[test]
fn half_a_message_of_the_dead_is_forgotten() {
    let at_work = Arc::new(AtomicI64::new(0));
    let first = born(0, 2, &at_work);
    let second = born(1, 2, &at_work);
    meet(&first, &second);
    let long = |byte| Ping { payload: vec![byte; 1000] };
    core::mem::forget(second.kernel.endpoint.start(KernelId(0), long(2)));
    assert_eq!(first.kernel.endpoint.drain(1), 1);
    first.kernel.endpoint.declare_dead(KernelId(1));

    let successor = born(1, 2, &at_work);
    meet(&first, &successor);
    let mut calls = vec![(1, successor.kernel.endpoint.start(KernelId(0), long(1)), false)];
    settle(&[first.kernel, successor.kernel.clone()]);
    collect(&mut calls, false);
    assert!(calls.is_empty());
    assert_eq!(successor.kernel.endpoint.stats().malformed, 0);
}
