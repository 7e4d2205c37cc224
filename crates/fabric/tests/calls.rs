//! Calls, notices, multicast and order, on kernels that are stepped by hand.

mod common;

use common::{kernels, ready, settle};
use fabric::{Call, CallError, Endpoint};
use machine::{KernelId, KernelSet};
use messages::control::{KernelDied, Ping, Stop};
use messages::fs::FileRelease;
use std::{
    future::{pending, poll_fn},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex,
    },
    task::{Poll, Waker},
};

const K0: KernelId = KernelId(0);
const K1: KernelId = KernelId(1);
const K2: KernelId = KernelId(2);

fn ping(bytes: &[u8]) -> Ping {
    Ping { payload: bytes.to_vec() }
}

#[test]
fn a_call_is_answered_by_the_other_kernel_and_by_oneself() {
    let machine = kernels(2, 16);
    for kernel in &machine {
        kernel.endpoint.on::<Ping, _, _>(|_, ping| async move { ping.payload });
    }
    for to in [K1, K0] {
        let call = machine[0].endpoint.start(to, ping(b"there?"));
        settle(&machine);
        assert_eq!(ready(call), Some(Ok(b"there?".to_vec())));
    }
    let stats = machine[1].endpoint.stats();
    assert_eq!((stats.messages_received(), stats.messages_sent()), (1, 1));
}

#[test]
fn a_message_longer_than_the_lane_arrives_whole() {
    let machine = kernels(2, 4);
    machine[1].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    for len in [0, 30, 44, 45, 100, 112, 113, 500, 100_000] {
        let bytes: Vec<u8> = (0..len).map(|index| (index * 7 % 251) as u8).collect();
        let call = machine[0].endpoint.start(K1, ping(&bytes));
        settle(&machine);
        assert_eq!(ready(call), Some(Ok(bytes)), "{len} bytes");
    }
}

/// Something for a handler to wait for.
#[derive(Default)]
struct Gate {
    open: Mutex<(bool, Vec<Waker>)>,
}

impl Gate {
    fn open(&self) {
        let mut open = self.open.lock().unwrap();
        open.0 = true;
        open.1.drain(..).for_each(Waker::wake);
    }

    async fn pass(&self) {
        poll_fn(|context| {
            let mut open = self.open.lock().unwrap();
            open.1.push(context.waker().clone());
            if open.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

#[test]
fn a_handler_that_waits_is_parked_and_answers_later() {
    let machine = kernels(2, 16);
    let gate = Arc::new(Gate::default());
    let key = gate.clone();
    machine[1].endpoint.on::<Ping, _, _>(move |_, ping| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            ping.payload
        }
    });
    let mut call = machine[0].endpoint.start(K1, ping(b"later"));
    settle(&machine);
    assert_eq!(ready(&mut call), None);
    key.open();
    settle(&machine);
    assert_eq!(ready(call), Some(Ok(b"later".to_vec())));
}

/// Counts when it is dropped.
struct Guard(Arc<AtomicU64>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn cancelling_stops_a_parked_handler_on_the_other_kernel() {
    for to in [K1, K0] {
        let machine = kernels(2, 16);
        let stopped = Arc::new(AtomicU64::new(0));
        for kernel in &machine {
            let stopped = stopped.clone();
            kernel.endpoint.on::<Ping, _, _>(move |_, _| {
                let guard = Guard(stopped.clone());
                async move {
                    let _guard = guard;
                    pending().await
                }
            });
        }
        let mut call = machine[0].endpoint.start(to, ping(b"slow"));
        settle(&machine);
        assert_eq!(ready(&mut call), None);
        call.cancel();
        settle(&machine);
        assert_eq!(ready(call), Some(Err(CallError::Cancelled)));
        assert_eq!(stopped.load(Ordering::SeqCst), 1);

        drop(machine[0].endpoint.start(to, ping(b"given up")));
        settle(&machine);
        assert_eq!(stopped.load(Ordering::SeqCst), 2, "dropping a call cancels it too");
    }
}

#[test]
fn a_cancel_that_comes_too_late_gets_the_reply() {
    let machine = kernels(2, 16);
    machine[1].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    let call = machine[0].endpoint.start(K1, ping(b"done"));
    machine[1].step();
    call.cancel();
    settle(&machine);
    assert_eq!(ready(call), Some(Ok(b"done".to_vec())));
}

#[test]
fn a_handler_that_must_not_stop_is_not_stopped() {
    let machine = kernels(2, 16);
    let gate = Arc::new(Gate::default());
    let key = gate.clone();
    machine[1].endpoint.on_to_completion::<Ping, _, _>(move |_, ping| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            ping.payload
        }
    });
    let mut call = machine[0].endpoint.start(K1, ping(b"all of it"));
    settle(&machine);
    call.cancel();
    settle(&machine);
    assert_eq!(ready(&mut call), None);
    key.open();
    settle(&machine);
    assert_eq!(ready(call), Some(Ok(b"all of it".to_vec())));
}

#[test]
fn a_request_without_a_credit_is_cancelled_at_home() {
    let machine = kernels(2, 64);
    let calls: Vec<_> = (0..=fabric::CREDITS).map(|_| machine[0].endpoint.start(K1, ping(b""))).collect();
    let last = calls.into_iter().next_back().unwrap();
    last.cancel();
    assert_eq!(ready(last), Some(Err(CallError::Cancelled)));
}

#[test]
fn what_a_reply_installs_is_there_before_the_next_message() {
    let machine = kernels(2, 64);
    let log = Arc::new(Mutex::new(Vec::new()));
    machine[1].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    let revoked = log.clone();
    machine[0].endpoint.on_sync::<KernelDied, _>(move |_, _| revoked.lock().unwrap().push("revoke"));

    let installed = log.clone();
    let call = machine[0].endpoint.call_then(K1, ping(b""), move |reply| {
        installed.lock().unwrap().push("install");
        reply
    });
    machine[1].step();
    machine[1].endpoint.send(K0, KernelDied { kernel: K2 }).unwrap();
    // The caller itself is only polled after both.
    machine[0].step();
    assert_eq!(*log.lock().unwrap(), ["install", "revoke"]);
    assert_eq!(ready(call), Some(Ok(vec![])));
}

#[test]
fn the_closure_of_a_dropped_call_still_sees_the_reply() {
    let machine = kernels(2, 64);
    machine[1].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    drop(machine[0].endpoint.call_then(K1, ping(b"frame"), move |reply| {
        count.fetch_add(reply.len() as u64, Ordering::SeqCst);
    }));
    settle(&machine);
    assert_eq!(seen.load(Ordering::SeqCst), 5);
}

/// Tells K1 when it is dropped, for which it takes the lock that its answer lay behind.
struct Hold(Arc<Endpoint>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.start(K1, ping(b"given back")).detach();
    }
}

#[test]
fn what_a_closure_made_and_nobody_wants_is_dropped_outside_of_locks() {
    let machine = kernels(2, 64);
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    machine[1].endpoint.on_sync::<Ping, _>(move |_, ping| {
        count.fetch_add(1, Ordering::SeqCst);
        ping.payload
    });
    fn hold(endpoint: &Arc<Endpoint>) -> Call<'_, Hold> {
        let held = Hold(endpoint.clone());
        endpoint.call_then(K1, ping(b"hold"), move |_| held)
    }
    // Nobody waits when the reply comes.
    hold(&machine[0].endpoint).detach();
    drop(hold(&machine[0].endpoint));
    settle(&machine);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    // The reply is there, and nobody has looked.
    let (dropped, detached) = (hold(&machine[0].endpoint), hold(&machine[0].endpoint));
    settle(&machine);
    drop(dropped);
    detached.detach();
    settle(&machine);
    assert_eq!(asked.load(Ordering::SeqCst), 8);
    assert_eq!(machine[0].endpoint.outstanding(), (0, 0));
}

#[test]
fn high_goes_before_low_and_each_stays_in_order() {
    let machine = kernels(3, 64);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (low, high) = (log.clone(), log.clone());
    machine[0].endpoint.on_sync::<FileRelease, _>(move |_, file| low.lock().unwrap().push(format!("low {}", file.id)));
    machine[0].endpoint.on_sync::<Stop, _>(move |_, stop| high.lock().unwrap().push(format!("high {}", stop.status)));
    for index in 0..3 {
        machine[1].endpoint.send(K0, FileRelease { id: u64::from(index), count: 0 }).unwrap();
        machine[1].endpoint.send(K0, Stop { status: index }).unwrap();
    }
    machine[0].step();
    assert_eq!(*log.lock().unwrap(), ["high 0", "high 1", "high 2", "low 0", "low 1", "low 2"]);
}

#[test]
fn a_multicast_gathers_all_answers_and_survives_a_death() {
    let machine = kernels(4, 16);
    for kernel in &machine[..3] {
        kernel.endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    }
    let set: KernelSet = (0..4).map(KernelId).collect();
    let mut multicast = machine[0].endpoint.multicast(&set, ping(b"all"));
    settle(&machine[..3]); // Kernel 3 has died and handles nothing.
    assert!(ready(&mut multicast).is_none());
    machine[0].endpoint.declare_dead(KernelId(3));
    let answers = ready(multicast).expect("nobody is left to wait for");
    let expected = [Ok(b"all".to_vec()), Ok(b"all".to_vec()), Ok(b"all".to_vec()), Err(CallError::Dead)];
    assert!(answers.iter().map(|(_, answer)| answer).eq(&expected), "{answers:?}");
    assert!(answers.iter().map(|(kernel, _)| kernel.0).eq(0..4));
}

#[test]
fn calls_to_the_dead_the_absent_and_the_deaf_fail() {
    let machine = kernels(2, 16);
    let deaf = machine[0].endpoint.start(K1, ping(b""));
    settle(&machine);
    assert_eq!(ready(deaf), Some(Err(CallError::Refused)));
    assert_eq!(ready(machine[0].endpoint.call(KernelId(77), ping(b""))), Some(Err(CallError::Dead)));
    let call = machine[0].endpoint.start(K1, ping(b""));
    machine[0].endpoint.declare_dead(K1);
    assert_eq!(ready(call), Some(Err(CallError::Dead)));
    assert_eq!(ready(machine[0].endpoint.call(K1, ping(b""))), Some(Err(CallError::Dead)));
    assert_eq!(machine[0].endpoint.send(K1, Stop { status: 0 }), Err(CallError::Dead));
    assert!(!machine[0].endpoint.present().contains(K1));
}

#[test]
fn the_handlers_of_a_dead_caller_stop_and_do_not_answer_its_successor() {
    let machine = kernels(2, 16);
    let stopped = Arc::new(AtomicU64::new(0));
    let count = stopped.clone();
    machine[1].endpoint.on::<Ping, _, _>(move |_, _| {
        let guard = Guard(count.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    let first = machine[0].endpoint.start(K1, ping(b""));
    settle(&machine);
    std::mem::forget(first); // It dies and tells nobody.
    machine[1].endpoint.declare_dead(K0);
    machine[1].endpoint.add_peer(K0);
    settle(&machine);
    assert_eq!(stopped.load(Ordering::SeqCst), 1);
    assert_eq!(machine[1].endpoint.stats().replies_sent, 0);
}

#[test]
fn notices_get_their_credits_back() {
    let machine = kernels(2, 16);
    let count = Arc::new(AtomicU64::new(0));
    let seen = count.clone();
    machine[1].endpoint.on_sync::<Stop, _>(move |_, stop| {
        let before = seen.fetch_add(1, Ordering::SeqCst);
        assert_eq!(before % 256, u64::from(stop.status), "in order");
    });
    let total = u64::from(fabric::CREDITS) * 5;
    for index in 0..total {
        machine[0].endpoint.send(K1, Stop { status: index as u8 }).unwrap();
    }
    assert!(ready(machine[0].endpoint.room::<Stop>(K1)).is_none());
    settle(&machine);
    assert_eq!(count.load(Ordering::SeqCst), total);
    assert!(ready(machine[0].endpoint.room::<Stop>(K1)).is_some());
}

#[test]
#[should_panic(expected = "two handlers for ping")]
fn a_type_has_one_handler() {
    let machine = kernels(1, 16);
    machine[0].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    machine[0].endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
}
