//! The queues against a device that answers in any order, twice, or wrongly.

use alloc::{boxed::Box, sync::Arc, task::Wake, vec, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Poll, Waker},
};

use machine::{
    block::{Piece, Pieces},
    CountedFrame, Errno, Memory, PageQueue,
};

use super::fake::{FakeDevice, Frames, HostMemory};
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

fn page_requests(indirect: bool) -> (FakeDevice, RequestQueue<HostMemory>) {
    let device = FakeDevice::default();
    let queue = RequestQueue::new(if indirect { device.indirect_ring() } else { device.ring() });
    assert!(queue.prepare_for_pieces());
    (device, queue)
}

/// Pieces of so many new frames, whose only count they have; each begins with its number.
fn numbered(memory: &Arc<dyn Memory>, count: usize) -> Pieces {
    let mut pieces = Pieces::none(memory);
    for number in 0..count {
        let frame = CountedFrame::from_raw(&**memory, memory.alloc().unwrap());
        memory.write(frame.frame(), 1024, &[number as u8]);
        pieces.push(Piece { frame: frame.frame(), offset: 1024, bytes: 512 });
    }
    pieces
}

type Status<'a> = machine::BoxFuture<'a, Result<u8, Errno>>;

fn poll_status(future: &mut Status<'_>) -> Poll<Result<u8, Errno>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_device_reads_and_writes_frames_where_they_are() {
    for indirect in [false, true] {
        let (device, queue) = page_requests(indirect);
        let frames = Arc::new(Frames::default());
        let memory: Arc<dyn Memory> = frames.clone();
        let most = queue.most_segments();
        assert_eq!(most, if indirect { 250 } else { 62 });
        let written = numbered(&memory, most);
        let mut write: Status<'_> = queue.submit(b"header".to_vec(), written, false);
        assert!(poll_status(&mut write).is_pending());
        let chain = &device.take()[0];
        assert_eq!(chain.out.len(), 6 + 512 * most);
        assert!(chain.out[6..].chunks(512).enumerate().all(|(number, sector)| sector[0] == number as u8));
        device.finish(chain, &[7]);
        queue.complete();
        assert_eq!(poll_status(&mut write), Poll::Ready(Ok(7)));
        assert_eq!(frames.used(), 0);

        let to = numbered(&memory, 2);
        let keeps = to.clone();
        let mut read: Status<'_> = queue.submit(b"h".to_vec(), to, true);
        assert!(poll_status(&mut read).is_pending());
        let chain = &device.take()[0];
        device.finish(chain, &[vec![1; 512], vec![2; 512], vec![0]].concat());
        queue.complete();
        assert_eq!(poll_status(&mut read), Poll::Ready(Ok(0)));
        let mut bytes = Vec::new();
        keeps.copy_to(&mut bytes);
        assert_eq!(bytes, [vec![1; 512], vec![2; 512]].concat());
        let mut too_many = queue.submit(b"h".to_vec(), numbered(&memory, most + 1), true);
        assert_eq!(poll_status(&mut too_many), Poll::Ready(Err(Errno::EINVAL)));
    }
}

#[test]
fn frames_of_a_dropped_request_stay_until_the_device_is_done() {
    let (device, queue) = page_requests(true);
    let frames = Arc::new(Frames::default());
    let memory: Arc<dyn Memory> = frames.clone();
    let mut read: Status<'_> = queue.submit(b"h".to_vec(), numbered(&memory, 3), true);
    assert!(poll_status(&mut read).is_pending());
    drop(read);
    assert_eq!((frames.used(), queue.under_way()), (3, 1));
    // It writes to them only now.
    device.finish(&device.take()[0], &[9; 3 * 512 + 1]);
    queue.complete();
    assert_eq!((frames.used(), queue.under_way()), (0, 0));
}

#[test]
fn a_hundred_long_requests_fit_beside_each_other_where_descriptors_may_be_elsewhere() {
    let (device, queue) = page_requests(true);
    let frames = Arc::new(Frames::default());
    let memory: Arc<dyn Memory> = frames.clone();
    let mut asked: Vec<Status<'_>> =
        (0..150).map(|_| queue.submit(b"h".to_vec(), numbered(&memory, 64), true)).collect();
    for done in [0, 128] {
        asked.iter_mut().skip(done).for_each(|one| assert!(poll_status(one).is_pending()));
        let chains = device.take();
        assert_eq!(chains.len(), if done == 0 { 128 } else { 22 });
        chains.iter().for_each(|chain| device.finish(chain, &[0; 64 * 512 + 1]));
        queue.complete();
        asked.iter_mut().skip(done).take(chains.len()).for_each(|one| assert_eq!(poll_status(one), Poll::Ready(Ok(0))));
    }
    assert_eq!(frames.used(), 0);
}

#[test]
fn a_status_that_the_device_does_not_write_is_none() {
    let (device, queue) = page_requests(true);
    let memory: Arc<dyn Memory> = Arc::new(Frames::default());
    let mut read = queue.submit(b"h".to_vec(), numbered(&memory, 1), true);
    assert!(poll_status(&mut read).is_pending());
    device.finish(&device.take()[0], &[]);
    queue.complete();
    assert_eq!(poll_status(&mut read), Poll::Ready(Ok(0xff)));
}
