//! Every interleaving, and every reordering that the memory model allows, of the lock-free parts:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p fabric --release --test loom
//! ```
#![cfg(loom)]

use fabric::{local, Doorbell};
use loom::{sync::Arc, thread};

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Sends `numbers` as soon as there is room.
fn send_all(sender: &fabric::Sender, numbers: impl Iterator<Item = u8>) {
    for number in numbers {
        while sender.try_send(&[number; 4]).is_err() {
            thread::yield_now();
        }
    }
}

#[test]
fn one_sender_wraps_around() {
    model(|| {
        let (sender, receiver) = local::lane(2);
        let sending = thread::spawn(move || send_all(&sender, 0..4));
        let mut buffer = Vec::new();
        for expected in 0..4 {
            while !receiver.try_recv(&mut buffer) {
                thread::yield_now();
            }
            assert_eq!(buffer, [expected; 4]);
        }
        sending.join().unwrap();
    });
}

/// In a lane of eight slots two are given back at a time.
#[test]
fn a_batch_is_given_back_when_all_of_it_was_read() {
    model(|| {
        let (sender, receiver) = local::lane(8);
        send_all(&sender, 0..8);
        let sending = thread::spawn(move || send_all(&sender, 8..10));
        let mut buffer = Vec::new();
        for expected in 0..10 {
            while !receiver.try_recv(&mut buffer) {
                thread::yield_now();
            }
            assert_eq!(buffer, [expected; 4]);
        }
        sending.join().unwrap();
    });
}

#[test]
fn a_message_of_two_slots_is_seen_whole_or_not_at_all() {
    model(|| {
        let (sender, receiver) = local::lane(4);
        let sending = thread::spawn(move || {
            for number in [1, 2] {
                while sender.try_send(&[number; 100]).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut buffer = Vec::new();
        for expected in [1, 2] {
            while !receiver.try_recv(&mut buffer) {
                thread::yield_now();
            }
            assert_eq!(buffer, [expected; 100]);
        }
        sending.join().unwrap();
    });
}

#[test]
fn two_cpus_send_into_one_lane() {
    model(|| {
        // Room for all: with a receiver that gives slots back meanwhile, the model gets too large.
        let (sender, receiver) = local::lane(4);
        let sender = Arc::new(sender);
        let other = sender.clone();
        let first = thread::spawn(move || send_all(&sender, 1..3));
        let second = thread::spawn(move || send_all(&other, 11..12));
        first.join().unwrap();
        second.join().unwrap();
        let mut buffer = Vec::new();
        let mut seen = Vec::new();
        while receiver.try_recv(&mut buffer) {
            seen.push(buffer[0]);
        }
        assert!(seen.iter().position(|n| *n == 1) < seen.iter().position(|n| *n == 2), "{seen:?}");
        seen.sort();
        assert_eq!(seen, [1, 2, 11]);
    });
}

#[test]
fn two_cpus_receive_from_one_lane() {
    model(|| {
        let (sender, receiver) = local::lane(4);
        sender.try_send(&[1]).unwrap();
        sender.try_send(&[2]).unwrap();
        let receiver = Arc::new(receiver);
        let other = receiver.clone();
        let take = |receiver: &fabric::Receiver| {
            let mut buffer = Vec::new();
            receiver.try_recv(&mut buffer).then(|| buffer[0])
        };
        let second = thread::spawn(move || take(&other));
        let (mine, theirs) = (take(&receiver), second.join().unwrap());
        let mut seen: Vec<_> = [mine, theirs].into_iter().flatten().collect();
        seen.extend(take(&receiver));
        seen.extend(take(&receiver));
        seen.sort();
        assert_eq!(seen, [1, 2], "each message once");
    });
}

/// The receiver goes to sleep while a message arrives: it finds the message, or is interrupted.
#[test]
fn nobody_sleeps_on_a_message() {
    model(|| {
        let (sender, receiver) = local::lane(2);
        let doorbell = Arc::new(Doorbell::new());
        doorbell.start_polling();
        let theirs = doorbell.clone();
        let sending = thread::spawn(move || {
            sender.try_send(&[1]).unwrap();
            theirs.must_ring()
        });
        doorbell.stop_polling();
        let found = receiver.pending();
        let rung = sending.join().unwrap();
        assert!(found || rung, "asleep on a message");
    });
}

/// Of two senders at least one rings a sleeping kernel; whoever does not can rely on the other: after
/// that interrupt the receiver finds both messages.
#[test]
fn a_suppressed_ring_is_covered_by_the_other_sender() {
    model(|| {
        let (first, first_end) = local::lane(2);
        let (second, second_end) = local::lane(2);
        let doorbell = Arc::new(Doorbell::new());
        let interrupt = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let send =
            |sender: fabric::Sender, doorbell: Arc<Doorbell>, interrupt: Arc<loom::sync::atomic::AtomicUsize>| {
                thread::spawn(move || {
                    sender.try_send(&[1]).unwrap();
                    if doorbell.must_ring() {
                        interrupt.fetch_add(1, loom::sync::atomic::Ordering::SeqCst);
                    }
                })
            };
        let one = send(first, doorbell.clone(), interrupt.clone());
        let two = send(second, doorbell.clone(), interrupt.clone());

        // The sleeping kernel takes interrupts and drains, until it has both messages; loom reports
        // a deadlock if an interrupt that it needs never comes.
        let (mut got, mut taken) = (0, 0);
        let mut buffer = Vec::new();
        while got < 2 {
            while interrupt.load(loom::sync::atomic::Ordering::SeqCst) == taken {
                thread::yield_now();
            }
            taken += 1;
            doorbell.start_polling();
            loop {
                got += usize::from(first_end.try_recv(&mut buffer));
                got += usize::from(second_end.try_recv(&mut buffer));
                doorbell.stop_polling();
                if !first_end.pending() && !second_end.pending() {
                    break;
                }
                doorbell.start_polling();
            }
        }
        one.join().unwrap();
        two.join().unwrap();
    });
}
