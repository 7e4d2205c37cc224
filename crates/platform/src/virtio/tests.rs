//! The queues against a device that answers in any order, twice, or wrongly.

use alloc::{boxed::Box, sync::Arc, task::Wake, vec, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Poll, Waker},
};

use machine::Errno;

use super::fake::{FakeDevice, HostMemory};
use super::ring::MOST_BYTES;
use super::{ReceiveQueue, RequestQueue};

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Errno>> + Send + 'a>>;

#[derive(Default)]
struct Count(AtomicUsize, AtomicBool);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.store(true, Ordering::SeqCst);
    }
}

fn poll<'a>(future: &mut Answer<'a>, waker: &Arc<Count>) -> Poll<Result<Vec<u8>, Errno>> {
    future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker.clone())))
}

fn start<'a>(queue: &'a RequestQueue<HostMemory>, out: &[u8], room: usize) -> (Answer<'a>, Arc<Count>) {
    let mut future: Answer<'a> = Box::pin(queue.request(out.to_vec(), room));
    let waker = Arc::default();
    assert!(poll(&mut future, &waker).is_pending());
    (future, waker)
}

fn requests() -> (FakeDevice, RequestQueue<HostMemory>) {
    let device = FakeDevice::default();
    let queue = RequestQueue::new(device.ring());
    (device, queue)
}

#[test]
fn replies_in_any_order_wake_their_own_future() {
    let (device, queue) = requests();
    let mut asked: Vec<_> = (0..10u8).map(|n| start(&queue, &[n], 16)).collect();
    let chains = device.take();
    assert_eq!(device.rung.load(Ordering::SeqCst), 10);
    for chain in chains.iter().rev() {
        device.finish(chain, &[chain.out[0] + 100; 3]);
        queue.complete();
        let n = chain.out[0];
        let (future, waker) = &mut asked[usize::from(n)];
        assert_eq!(waker.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll(future, waker), Poll::Ready(Ok(vec![n + 100; 3])));
    }
}

#[test]
fn more_requests_than_descriptors_wait_for_room() {
    let (device, queue) = requests();
    let mut asked: Vec<_> = (0..100u8).map(|n| start(&queue, &[n], 16)).collect();
    let first = device.take();
    // Two descriptors each.
    assert_eq!(first.len(), 64);
    for chain in &first {
        device.finish(chain, &chain.out);
    }
    queue.complete();
    // Only what was woken is polled again, so a forgotten wake-up shows.
    let mut answered = 0;
    for round in 0..2 {
        for (future, waker) in &mut asked {
            if waker.1.swap(false, Ordering::SeqCst) {
                answered += usize::from(poll(future, waker).is_ready());
            }
        }
        if round == 0 {
            let rest = device.take();
            assert_eq!(rest.len(), 36);
            for chain in &rest {
                device.finish(chain, &chain.out);
            }
            queue.complete();
        }
    }
    assert_eq!(answered, 100);
}

#[test]
fn buffers_of_scattered_pages_are_whole() {
    let (device, queue) = requests();
    let bytes = |count: usize, seed: usize| (0..count).map(|at| (at * 7 + seed + at / 4096) as u8).collect::<Vec<_>>();
    for round in 0..20 {
        let (out, reply) =
            (bytes(MOST_BYTES / 20 * round + 1, round), bytes(MOST_BYTES - MOST_BYTES / 20 * round - 1, 99));
        let (mut future, waker) = start(&queue, &out, reply.len());
        let chain = &device.take()[0];
        assert!(chain.out == out);
        device.finish(chain, &reply);
        queue.complete();
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Ok(reply)));
    }
    let mut too_much: Answer = Box::pin(queue.request(vec![0; MOST_BYTES], 1));
    assert_eq!(poll(&mut too_much, &Arc::default()), Poll::Ready(Err(Errno::EINVAL)));
}

#[test]
fn a_dropped_request_keeps_its_buffer_until_the_device_is_done() {
    let (device, queue) = requests();
    drop(start(&queue, b"interrupted", 4096));
    let abandoned = device.take();
    let (mut second, waker) = start(&queue, b"second", 4096);
    // The device writes the first one's reply only now; it must not land in anybody else's buffer.
    device.finish(&abandoned[0], &[0xee; 4096]);
    queue.complete();
    assert_eq!(waker.0.load(Ordering::SeqCst), 0);
    device.finish(&device.take()[0], b"right");
    queue.complete();
    assert_eq!(poll(&mut second, &waker), Poll::Ready(Ok(b"right".to_vec())));
}

#[test]
fn a_reply_that_nobody_took_frees_its_key() {
    let (device, queue) = requests();
    for n in 0..1000u32 {
        let (future, _) = start(&queue, &n.to_le_bytes(), 8);
        device.finish(&device.take()[0], b"x");
        queue.complete();
        drop(future);
    }
    assert_eq!(queue.under_way(), 0);
}

#[test]
fn indices_wrap() {
    let (device, queue) = requests();
    for n in 0..70_000u32 {
        let (mut future, waker) = start(&queue, &n.to_le_bytes(), 8);
        let chains = device.take();
        assert_eq!(chains.len(), 1);
        device.finish(&chains[0], &chains[0].out);
        queue.complete();
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Ok(n.to_le_bytes().to_vec())));
    }
    assert_eq!(device.rung.load(Ordering::SeqCst), 70_000);
}

#[test]
fn a_device_that_lies_is_not_believed() {
    for (id, length) in [(5, 1), (60_000, 1)] {
        let (device, queue) = requests();
        let (mut future, waker) = start(&queue, b"a", 8);
        device.finish_raw(id, length);
        queue.complete();
        assert_eq!(waker.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Err(Errno::EIO)));
    }
    // A length beyond the buffer is cut.
    let (device, queue) = requests();
    let (mut future, waker) = start(&queue, b"a", 8);
    let chain = &device.take()[0];
    device.finish_raw(chain.head.into(), 4_000_000);
    queue.complete();
    assert_eq!(poll(&mut future, &waker), Poll::Ready(Ok(vec![0; 8])));
}

#[test]
fn a_request_without_a_reply_buffer() {
    let (device, queue) = requests();
    let (mut future, waker) = start(&queue, b"output", 0);
    let chain = &device.take()[0];
    assert_eq!(chain.out, b"output");
    device.finish(chain, b"");
    queue.complete();
    assert_eq!(poll(&mut future, &waker), Poll::Ready(Ok(vec![])));
}

#[test]
fn received_bytes_come_in_order_and_an_idle_reader_stops_the_device() {
    let device = FakeDevice::default();
    let queue = ReceiveQueue::new(device.ring());
    queue.notify();
    assert_eq!(device.rung.load(Ordering::SeqCst), 1);
    let mut posted = device.take();
    let all = posted.len();
    for (n, chain) in posted.drain(..).enumerate() {
        device.finish(&chain, &vec![n as u8; n + 1]);
    }
    queue.complete();
    // Nobody reads: the device gets no buffer back.
    assert!(device.take().is_empty());
    let waker = Arc::default();
    for n in 0..all {
        let mut future: Answer<'_> = Box::pin(queue.receive());
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Ok(vec![n as u8; n + 1])));
    }
    assert_eq!(device.take().len(), all);
    let mut future: Answer<'_> = Box::pin(queue.receive());
    assert!(poll(&mut future, &waker).is_pending());
}
