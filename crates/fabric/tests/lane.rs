//! The ring by itself: wrapping, long messages, full lanes, several senders.

use fabric::{local::lane, Full, PAYLOAD};
use std::thread;

fn message(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + seed * 7) as u8).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order_over_many_laps() {
    for slots in [1, 2, 4, 8, 64] {
        let (sender, receiver) = lane(slots);
        let max = sender.max_message();
        let mut buffer = Vec::new();
        for round in 0..500 {
            let sent = message(round * 13 % (max + 1), round);
            assert_eq!(sender.try_send(&sent), Ok(()), "{slots} slots, round {round}");
            assert!(receiver.pending());
            assert!(receiver.try_recv(&mut buffer));
            assert_eq!(buffer, sent, "{slots} slots, round {round}");
            assert!(!receiver.pending() && !receiver.try_recv(&mut buffer));
        }
    }
}

#[test]
fn a_full_lane_refuses_and_recovers_without_loss() {
    let (sender, receiver) = lane(8);
    let mut buffer = Vec::new();
    let (mut sent, mut received) = (0u32, 0u32);
    for round in 0..200u32 {
        while sender.try_send(&sent.to_le_bytes()).is_ok() {
            sent += 1;
        }
        assert!(sent - received <= 8, "more messages than slots");
        assert!(sent - received > 6, "slots given back are used again");
        for _ in 0..round % 8 + 1 {
            if receiver.try_recv(&mut buffer) {
                assert_eq!(buffer, received.to_le_bytes());
                received += 1;
            }
        }
    }
    assert!(received > 500);
}

#[test]
fn a_long_message_waits_for_all_its_slots() {
    let (sender, receiver) = lane(8);
    let long = message(sender.max_message(), 1);
    for _ in 0..5 {
        sender.try_send(b"short").unwrap();
    }
    assert_eq!(sender.try_send(&long), Err(Full));
    let mut buffer = Vec::new();
    while receiver.try_recv(&mut buffer) {}
    assert_eq!(sender.try_send(&long), Ok(()));
    assert!(receiver.try_recv(&mut buffer));
    assert_eq!(buffer, long);
}

#[test]
#[should_panic(expected = "message of")]
fn a_message_longer_than_the_lane_allows_is_a_bug() {
    let (sender, _receiver) = lane(4);
    let _ = sender.try_send(&[0; 2 * PAYLOAD + 1]);
}

#[test]
fn several_cpus_of_a_cluster_lose_and_duplicate_nothing() {
    const SENDERS: usize = 3;
    const EACH: usize = 3_000;
    let (sender, receiver) = lane(16);
    thread::scope(|scope| {
        for who in 0..SENDERS {
            let sender = &sender;
            scope.spawn(move || {
                for index in 0..EACH {
                    // One to three slots; the number stands at both ends.
                    let mut bytes = vec![who as u8; 8 + index * 17 % 150];
                    let len = bytes.len();
                    bytes[..4].copy_from_slice(&(index as u32).to_le_bytes());
                    bytes[len - 4..].copy_from_slice(&(index as u32).to_le_bytes());
                    bytes.push(who as u8);
                    while sender.try_send(&bytes).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; SENDERS];
        let mut buffer = Vec::new();
        while next.iter().sum::<usize>() < SENDERS * EACH {
            if !receiver.try_recv(&mut buffer) {
                thread::yield_now();
                continue;
            }
            let who = usize::from(*buffer.last().unwrap());
            let number = (next[who] as u32).to_le_bytes();
            let end = buffer.len() - 1;
            assert_eq!(end, 8 + next[who] * 17 % 150);
            assert_eq!(buffer[..4], number, "sender {who}: in order, none lost, none twice");
            assert_eq!(buffer[end - 4..end], number, "sender {who}: all slots of one message");
            next[who] += 1;
        }
        assert!(!receiver.pending());
    });
}
