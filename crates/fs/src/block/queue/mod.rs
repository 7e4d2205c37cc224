//! What lies between who asks for blocks of a disk and the disk: a queue that merges, orders and bounds requests (Documentation/block of Linux).
//!
//! A *bio* is what one submitter wants: consecutive sectors, and the pieces of pages for them. A *request* is what the device is asked for: a bio, or several that adjoin and were merged.
//!
//! ```text
//! submit --> lane of this CPU: scheduler (merges, orders) --> device, at most `depth` at once --> each bio's submitter
//!            at most nr_requests, else submitters wait
//! ```
//!
//! A lane is for one queue of the device, which is for one CPU (multi-queue); a device of one queue has one lane (single-queue). Lanes know nothing of each other: no CPU takes another's lock.
//!
//! A submitter who is about to ask for more holds a [`Plug`]: nothing goes to the device until the last plug is pulled, so that what adjoins is merged and the device hears of all at once. A plug is pulled at the end of a
//! poll at the latest, before its holder waits for anything.
//!
//! A request is carried out by a task of the kernel if the device does not answer at once. So a submitter who stops waiting changes nothing, and the pages belong to the request until the answer.
//!
//! Order: of two requests that overlap either may be first, as long as nobody waits for one before he asks for the other; a flush covers what was *answered* before it was asked for. The page
//! cache never writes a page twice at once, and holds its lock while a direct write is under way, so nobody depends on more.
//!
//! | file | subject |
//! |---|---|
//! | request.rs | bios, requests, and when they are merged |
//! | elevator.rs | the schedulers: none, mq-deadline |
//! | settings.rs | what /sys/block/*/queue sets |

mod elevator;
mod request;
mod settings;

pub use settings::{RequestLimits, Scheduler, Settings};

use super::stats::Stats;
use crate::Services;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::{poll_fn, Future},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
};
use elevator::Elevator;
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces},
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture,
};
use request::{Bio, Request, Submission};

/// The counters that a bio is in: those of a volume, and of the disk that it is a partition of.
pub type Counted = (Arc<Stats>, Option<Arc<Stats>>);

#[derive(Default)]
struct Lane {
    elevator: Elevator,
    /// Requests that wait here or that the device has, and how many of them those are.
    requests: usize,
    under_way: usize,
    /// The device has a flush.
    flush_under_way: bool,
}

/// See the module.
pub struct Queue {
    services: Arc<Services>,
    device: Arc<dyn BlockDevice>,
    /// The disk's number, as traces have it.
    traced: u32,
    pub settings: Settings,
    lanes: Box<[Lock<Lane>]>,
    plugs: AtomicUsize,
    /// Counts of changes that were asked for and that were answered, and what that was when the newest flush began that has been answered: if it is the same, there is nothing to flush.
    changes: AtomicUsize,
    flushed: AtomicUsize,
    /// Woken when a request has been answered.
    room: WaitQueue,
}

/// While one is held no request goes to the device. It must not be held over a wait.
#[must_use = "it is pulled at once"]
pub struct Plug<'a>(&'a Arc<Queue>);

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        if self.0.plugs.fetch_sub(1, SeqCst) == 1 {
            (0..self.0.lanes.len()).for_each(|lane| self.0.run(lane));
        }
    }
}

impl Queue {
    /// The queue of the disk of this number, with the scheduler that Linux gives such a disk.
    pub fn new(
        services: &Arc<Services>,
        device: &Arc<dyn BlockDevice>,
        (major, minor): (u32, u32),
        scheduler: Scheduler,
    ) -> Arc<Queue> {
        let queues = device.limits().queues.max(1);
        let queue = Queue {
            services: services.clone(),
            device: device.clone(),
            traced: major << 20 | minor,
            settings: Settings::new(scheduler),
            lanes: (0..queues).map(|_| Lock::default()).collect(),
            plugs: AtomicUsize::new(0),
            // Nobody knows what was asked before.
            changes: AtomicUsize::new(1),
            flushed: AtomicUsize::new(0),
            room: WaitQueue::new(),
        };
        queue.select(scheduler);
        Arc::new(queue)
    }

    /// The disk.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// How many lanes there are: queues of the device.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What one request may be.
    pub fn most(&self) -> RequestLimits {
        self.settings.most(&self.device.limits())
    }

    /// Does `op` from `sector` of the disk on, within [`Queue::most`]; waits until the disk has answered. Errors: see [`BlockDevice::submit`].
    pub async fn submit(
        self: &Arc<Self>,
        op: BlockOp,
        sector: u64,
        pages: Pieces,
        counted: impl FnOnce() -> Counted,
    ) -> Result<()> {
        let changes = match op {
            BlockOp::Read => 0,
            BlockOp::Flush => self.changes.load(SeqCst),
            _ => self.changes.fetch_add(1, SeqCst),
        };
        if op == BlockOp::Flush && changes == self.flushed.load(SeqCst) {
            return Ok(());
        }
        let submission = Arc::new(Submission::default());
        let traced = (self.traced, self.services.spawner.actor().thread().0);
        let mut bio = Some(Bio { op, sector, pages, counted: counted(), submission: submission.clone(), traced });
        let lane = self.room.wait_until(|| self.enter(&mut bio)).await;
        if self.plugs.load(SeqCst) == 0 {
            self.run(lane);
        }
        let answer = submission.answered().await;
        match op {
            BlockOp::Read => {}
            BlockOp::Flush if answer.is_ok() => drop(self.flushed.fetch_max(changes, SeqCst)),
            _ => {}
        }
        answer
    }

    /// Holds back all requests while it lives.
    pub fn plug(self: &Arc<Self>) -> Plug<'_> {
        self.plugs.fetch_add(1, SeqCst);
        Plug(self)
    }

    /// Does `work`, with the queue plugged while it is polled for the first time: all that it asks for at once is merged.
    pub async fn plugged<T>(self: &Arc<Self>, work: impl Future<Output = T> + Send) -> T {
        let (mut work, mut is_first) = (pin!(work), true);
        poll_fn(|context| {
            if core::mem::take(&mut is_first) {
                let plug = self.plug();
                if let Poll::Ready(answer) = work.as_mut().poll(context) {
                    return Poll::Ready(answer);
                }
                // Once more: a disk in memory answers now.
                drop(plug);
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Takes another scheduler. What waits goes over to it.
    pub fn select(&self, scheduler: Scheduler) {
        self.settings.set_scheduler(scheduler);
        let now = self.services.clock.monotonic();
        for lane in &self.lanes {
            let lane = &mut *lane.lock();
            let before = core::mem::replace(&mut lane.elevator, Elevator::new(scheduler));
            before.into_requests().into_iter().for_each(|request| lane.elevator.insert(request, now, &self.settings));
        }
    }

    /// Takes the bio in, if there is room for it, and says in which lane. (Each CPU's own, whoever asks again.)
    fn enter(&self, bio: &mut Option<Bio>) -> Option<usize> {
        let index = self.services.spawner.cpu() % self.lanes.len();
        let now = self.services.clock.monotonic();
        let most = self.most();
        let lane = &mut *self.lanes[index].lock();
        match lane.elevator.merge(bio.take()?, most, &self.settings) {
            Ok(joined) => lane.requests -= joined,
            Err(back) if lane.requests >= self.settings.requests() => {
                *bio = Some(back);
                return None;
            }
            Err(back) => {
                lane.requests += 1;
                back.count_begin(now);
                lane.elevator.insert(Request::new(back, now), now, &self.settings);
            }
        }
        Some(index)
    }

    /// Gives the device what it takes now.
    fn run(self: &Arc<Self>, index: usize) {
        loop {
            let depth = match self.device.limits().depth {
                0 => usize::MAX,
                depth => depth,
            };
            let request = {
                let lane = &mut *self.lanes[index].lock();
                if lane.under_way >= depth {
                    return;
                }
                let now = self.services.clock.monotonic();
                let Some(request) = lane.elevator.next(lane.flush_under_way, now, &self.settings) else { return };
                lane.under_way += 1;
                lane.flush_under_way |= request.op == BlockOp::Flush;
                request
            };
            let mut work: BoxFuture<'static, ()> = Box::pin(self.clone().carry_out(index, request));
            // A disk in memory has answered already. Any other is polled again by the task, so that nothing is lost with this waker.
            if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                let queue = self.clone();
                // The device interrupts the CPU that has asked it.
                self.services.spawner.spawn_here(Box::pin(async move {
                    work.await;
                    queue.run(index);
                }));
            }
        }
    }

    async fn carry_out(self: Arc<Self>, index: usize, request: Request) {
        request.trace_issue();
        let answer = self.device.submit(request.op, request.sector, request.pages()).await;
        request.trace_complete(answer);
        let mut answers: Vec<Result<()>> = request.bios().iter().map(|_| answer).collect();
        let has_data = matches!(request.op, BlockOp::Read | BlockOp::Write);
        if answer.is_err() && request.is_merged() && has_data {
            // One of them may be bad. The others' submitters are not to hear of it. (Of a flush all must hear: the next one may succeed, and what was lost is lost.)
            for (bio, answer) in request.bios().iter().zip(&mut answers) {
                bio.trace_issue();
                *answer = self.device.submit(bio.op, bio.sector, bio.pages.clone()).await;
                bio.trace_complete(*answer);
            }
        }
        request.count_end(self.services.clock.monotonic());
        {
            let lane = &mut *self.lanes[index].lock();
            lane.requests -= 1;
            lane.under_way -= 1;
            lane.flush_under_way &= request.op != BlockOp::Flush;
        }
        if !matches!(request.op, BlockOp::Read | BlockOp::Flush) {
            // A flush that began meanwhile did not cover it. Counted here, for who has asked may be gone.
            self.changes.fetch_add(1, SeqCst);
        }
        request.answer(answers);
        self.room.wake_all();
    }

    /// What the disk is now.
    pub fn limits(&self) -> Arc<BlockLimits> {
        self.device.limits()
    }
}
