//! A kernel that does not drain is noticed by whoever has something for it; see stall.rs.

mod common;

use common::{kernels, settle, Kernel};
use fabric::{Stall, StallState, Stalls, CREDITS, STALL_NS};
use machine::{KernelId, Pid};
use messages::{control::Ping, process::Reap, Priority};

const THERE: KernelId = KernelId(1);
const SECOND: u64 = 1_000_000_000;

/// Two kernels with lanes of `slots` slots; the second answers pings and hears of children.
fn pair(slots: usize) -> Vec<Kernel> {
    let pair = kernels(2, slots);
    pair[1].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    pair[1].endpoint.on_sync::<Reap, _>(|_, _| ());
    pair
}

/// Sends so many notices of priority `Low`.
fn send(from: &Kernel, count: u32) {
    (0..count).for_each(|_| from.endpoint.send(THERE, Reap { child: Pid(1) }).unwrap());
}

fn stuck(for_ns: u64, for_room: usize, for_credit: usize) -> Stall {
    Stall { to: THERE, priority: Priority::Low, for_ns, state: StallState::Stuck { for_room, for_credit } }
}

fn over(for_ns: u64) -> Stall {
    Stall { to: THERE, priority: Priority::Low, for_ns, state: StallState::Over }
}

#[test]
fn a_lane_that_stays_full_is_reported_once_and_when_it_moves_again() {
    let (pair, mut stalls) = (pair(8), Stalls::default());
    send(&pair[0], 8);
    assert_eq!(stalls.look(&pair[0].endpoint, 0), [], "it all has room");
    send(&pair[0], 5);
    assert_eq!(stalls.look(&pair[0].endpoint, SECOND), []);
    // What comes after does not make it younger.
    send(&pair[0], 1);
    assert_eq!(stalls.look(&pair[0].endpoint, SECOND + STALL_NS - 1), []);
    assert_eq!(stalls.look(&pair[0].endpoint, SECOND + STALL_NS), [stuck(STALL_NS, 6, 0)]);
    for second in 4..100 {
        pair[0].endpoint.drain(usize::MAX);
        assert_eq!(stalls.look(&pair[0].endpoint, second * SECOND), [], "said once");
    }
    settle(&pair);
    assert_eq!(stalls.look(&pair[0].endpoint, 100 * SECOND), [over(99 * SECOND)]);
    assert_eq!(stalls.look(&pair[0].endpoint, 200 * SECOND), []);
    assert_eq!(pair[1].endpoint.stats().messages_received(), 14, "nothing was dropped");
}

#[test]
fn so_are_requests_that_get_no_credit() {
    let (pair, mut stalls) = (pair(4 * CREDITS as usize), Stalls::default());
    send(&pair[0], CREDITS + 3);
    assert_eq!(stalls.look(&pair[0].endpoint, 0), []);
    assert_eq!(stalls.look(&pair[0].endpoint, 3 * SECOND), [stuck(3 * SECOND, 0, 3)]);
    settle(&pair);
    // Others wait by now, but not as long. (Three credits are kept for the next batch.)
    send(&pair[0], CREDITS);
    assert_eq!(stalls.look(&pair[0].endpoint, 4 * SECOND), [over(4 * SECOND)]);
    assert_eq!(stalls.look(&pair[0].endpoint, 5 * SECOND), []);
    assert_eq!(stalls.look(&pair[0].endpoint, 6 * SECOND), [stuck(2 * SECOND, 0, 3)]);
    settle(&pair);
}

#[test]
fn a_lane_that_is_always_full_but_moves_is_not() {
    let (pair, mut stalls) = (pair(4), Stalls::default());
    send(&pair[0], 100);
    for second in 0..50 {
        assert_eq!(stalls.look(&pair[0].endpoint, second * SECOND), []);
        pair[1].endpoint.drain(1);
        pair[0].endpoint.drain(usize::MAX);
        assert!(pair[0].endpoint.has_backlog());
    }
}

#[test]
fn who_gives_up_waiting_makes_no_stall_of_those_that_come_after() {
    let (pair, mut stalls) = (pair(4 * CREDITS as usize), Stalls::default());
    send(&pair[0], CREDITS);
    for second in 0..10 {
        let call = pair[0].endpoint.start(THERE, Ping { payload: vec![1] });
        assert_eq!(stalls.look(&pair[0].endpoint, second * SECOND), []);
        drop(call);
    }
}

#[test]
fn what_a_dead_kernel_did_not_take_is_forgotten() {
    let (pair, mut stalls) = (pair(4), Stalls::default());
    send(&pair[0], 10);
    stalls.look(&pair[0].endpoint, 0);
    assert_eq!(stalls.look(&pair[0].endpoint, STALL_NS), [stuck(STALL_NS, 6, 0)]);
    pair[0].endpoint.declare_dead(THERE);
    assert_eq!(stalls.look(&pair[0].endpoint, 2 * STALL_NS), []);
    // The lanes of the next boot generation are new: here, those of the last one, emptied.
    while pair[1].endpoint.drain(usize::MAX) > 0 {}
    pair[0].endpoint.add_peer(THERE);
    assert_eq!(stalls.look(&pair[0].endpoint, 3 * STALL_NS), []);
    send(&pair[0], 10);
    assert_eq!(stalls.look(&pair[0].endpoint, 4 * STALL_NS), []);
    assert_eq!(stalls.look(&pair[0].endpoint, 5 * STALL_NS), [stuck(STALL_NS, 6, 0)]);
}
