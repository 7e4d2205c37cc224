//! timerfd_create(2).
//!
//! A timer is a deadline and an interval; how often it has expired follows from the clock when somebody
//! asks. Only for waking those who wait does a task run: one for each armed timer, which ends when the
//! timer is armed anew or closed. As on Linux it wakes them once, and sleeps until the timer is read or asked for its
//! time; an expiry that comes while the last one was not read is counted only. So whoever wants to be woken more often
//! has to call more often, and pays for it; and not sooner than [`period::GRAIN_NS`] after that, so that a call takes longer than
//! the wake-up that it causes.

use crate::{
    anonymous::{Identity, StatusFlags},
    control::{Control, ControlAnswer},
    file::{ready, Access, Destination, Transfer},
    waiting::attempt,
    Attributes, Caller, Events, File, OpenFlags,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{any::Any, future::poll_fn, task::Poll};
use machine::{
    errno::Result,
    period,
    sync::{Lock, Registration, WaitQueue},
    BoxFuture, Errno, Spawner,
};

/// Time as the kernel serves it: nanoseconds of CLOCK_MONOTONIC. Absolute times of other clocks are
/// converted by the system call.
pub trait Timers: Send + Sync {
    fn now(&self) -> u64;
    /// Done once [`Timers::now`] has reached `ns`.
    fn at(&self, ns: u64) -> BoxFuture<'static, ()>;
}

#[derive(Clone, Copy, Default)]
struct Setting {
    /// Next expiry that was not read yet; None: disarmed.
    next: Option<u64>,
    interval: u64,
    /// When the task wakes those who wait; None: it has, and nobody has looked at the timer since.
    alarm: Option<u64>,
    /// Counts settings, so that the task of an old one knows that it is.
    generation: u64,
    closed: bool,
}

impl Setting {
    /// Expiries up to `now` that were not read.
    fn expired(&self, now: u64) -> u64 {
        self.next.map_or(0, |next| period::expirations(next, self.interval, now))
    }

    /// The first expiry after `now`.
    fn upcoming(&self, now: u64) -> Option<u64> {
        self.next.and_then(|next| period::first_after(next, self.interval, now))
    }

    /// Time to that, and the interval.
    fn left(&self, now: u64) -> (u64, u64) {
        (self.upcoming(now).map_or(0, |next| next - now), self.interval)
    }

    /// The timer was looked at: those who wait are woken at its next expiry again. True if the task sleeps until it hears of that.
    fn rearm(&mut self, now: u64) -> bool {
        let sleeps = self.alarm.is_none();
        if sleeps {
            self.alarm = self.upcoming(now).map(|next| next.max(now.saturating_add(period::GRAIN_NS)));
        }
        sleeps && self.alarm.is_some()
    }
}

struct Shared {
    timers: Arc<dyn Timers>,
    setting: Lock<Setting>,
    changes: WaitQueue,
    /// Woken when the setting is another one.
    rearmed: WaitQueue,
}

pub struct TimerFd {
    shared: Arc<Shared>,
    spawner: Arc<dyn Spawner>,
    flags: StatusFlags,
    inode: Identity,
}

impl TimerFd {
    pub fn new(timers: Arc<dyn Timers>, spawner: Arc<dyn Spawner>, flags: OpenFlags) -> Result<Arc<Self>> {
        if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
            return Err(Errno::EINVAL);
        }
        let shared = Shared {
            timers,
            setting: Lock::new(Setting::default()),
            changes: WaitQueue::new(),
            rearmed: WaitQueue::new(),
        };
        Ok(Arc::new(TimerFd {
            shared: Arc::new(shared),
            spawner,
            flags: StatusFlags::new(flags | OpenFlags::RDWR),
            inode: Identity::untyped(),
        }))
    }

    /// timerfd_gettime: time to the next expiry (0: disarmed), and the interval.
    pub fn get(&self) -> (u64, u64) {
        let now = self.shared.timers.now();
        let (left, rearmed) = {
            let mut setting = self.shared.setting.lock();
            (setting.left(now), setting.rearm(now))
        };
        if rearmed {
            self.shared.rearmed.wake_all();
        }
        left
    }

    /// timerfd_settime; `next` in nanoseconds of CLOCK_MONOTONIC. Gives what [`TimerFd::get`] gave before.
    pub fn set(&self, next: Option<u64>, interval: u64) -> (u64, u64) {
        let now = self.shared.timers.now();
        let (before, generation) = {
            let mut setting = self.shared.setting.lock();
            let (before, generation) = (setting.left(now), setting.generation + 1);
            *setting = Setting { next, interval, alarm: next, generation, closed: false };
            (before, generation)
        };
        self.shared.rearmed.wake_all();
        if next.is_some() {
            self.spawner.spawn(Box::pin(announce(self.shared.clone(), generation)));
        }
        before
    }

    fn take(&self) -> Result<u64> {
        let now = self.shared.timers.now();
        let (expired, rearmed) = {
            let mut setting = self.shared.setting.lock();
            let expired = setting.expired(now);
            if expired == 0 {
                return Err(Errno::EAGAIN);
            }
            setting.next = setting.upcoming(now);
            (expired, setting.rearm(now))
        };
        if rearmed {
            self.shared.rearmed.wake_all();
        }
        Ok(expired)
    }
}

/// Wakes the waiters at the alarms of one setting. The first may have come before this runs for the first time.
async fn announce(shared: Arc<Shared>, generation: u64) {
    let current = || Some(*shared.setting.lock()).filter(|setting| setting.generation == generation && !setting.closed);
    while let Some(setting) = current() {
        let mut sleep = setting.alarm.map(|at| shared.timers.at(at));
        let mut rearmed = Registration::new(&shared.rearmed);
        let due = poll_fn(|context| {
            rearmed.register(context.waker());
            match (current(), &mut sleep) {
                (Some(now), _) if now.alarm != setting.alarm => Poll::Ready(false),
                (Some(_), Some(sleep)) => sleep.as_mut().poll(context).map(|()| true),
                (Some(_), None) => Poll::Pending,
                (None, _) => Poll::Ready(false),
            }
        })
        .await;
        if !due {
            continue;
        }
        let now = shared.timers.now();
        let expired = {
            let mut setting = shared.setting.lock();
            if setting.generation != generation || setting.closed {
                break;
            }
            setting.alarm = None;
            let expired = setting.expired(now) > 0;
            if !expired {
                // It was read meanwhile: this is no edge for an epoll.
                setting.rearm(now);
            }
            expired
        };
        if expired {
            shared.changes.wake_all();
        }
        if setting.interval == 0 {
            break;
        }
    }
}

impl Drop for TimerFd {
    fn drop(&mut self) {
        self.shared.setting.lock().closed = true;
        self.shared.rearmed.wake_all();
    }
}

impl File for TimerFd {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        if buf.len() < 8 {
            return Transfer::Done(Err(Errno::EINVAL));
        }
        attempt(&self.shared.changes, access.patience.unless(self.flags.nonblocking()), move || {
            buf[..8].copy_from_slice(&self.take()?.to_ne_bytes());
            Ok(8)
        })
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        let (value, interval) = match control {
            Control::TimerGet => self.get(),
            Control::TimerSet { value: 0, .. } => self.set(None, 0),
            Control::TimerSet { absolute: true, value, interval } => self.set(Some(value), interval),
            Control::TimerSet { absolute: false, value, interval } => {
                self.set(Some(period::after(self.shared.timers.now(), value)), interval)
            }
            _ => return ready(Err(Errno::EINVAL)),
        };
        ready(Ok(ControlAnswer::Timer { value, interval }))
    }

    fn poll(&self) -> Events {
        match self.shared.setting.lock().expired(self.shared.timers.now()) {
            0 => Events::empty(),
            _ => Events::IN,
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.shared.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[timerfd]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use core::task::Context;

    fn read(file: &TimerFd) -> Option<u64> {
        let mut bytes = [0; 8];
        now_or_never(file.read(&mut bytes))?.unwrap();
        Some(u64::from_ne_bytes(bytes))
    }

    #[test]
    fn missed_expiries_are_counted_and_the_rest_is_told() {
        let clock = Arc::new(FakeTimers::default());
        let timer = TimerFd::new(Arc::new(clock.clone()), Arc::new(Threads), OpenFlags::empty()).unwrap();
        assert_eq!(timer.set(Some(100), 30), (0, 0));
        clock.advance(99);
        assert_eq!((read(&timer), timer.get()), (None, (1, 30)));
        clock.advance(65);
        assert_eq!(timer.get(), (26, 30));
        assert_eq!(read(&timer), Some(3));
        assert_eq!(read(&timer), None);
        assert_eq!(timer.set(None, 0), (26, 30));
        clock.advance(1000);
        assert_eq!(read(&timer), None);
    }

    #[derive(Default)]
    struct Later(Lock<Vec<BoxFuture<'static, ()>>>);

    impl Spawner for Later {
        fn spawn(&self, task: BoxFuture<'static, ()>) {
            self.0.lock().push(task);
        }
    }

    /// What an epoll takes for an edge: a second wake would be a second one.
    #[test]
    fn who_watches_hears_of_the_expiry_and_of_nothing_else() {
        let (clock, later) = (Arc::new(FakeTimers::default()), Arc::new(Later::default()));
        let timer = TimerFd::new(Arc::new(clock.clone()), later.clone(), OpenFlags::empty()).unwrap();
        let (waker, woken) = counter();
        timer.changes().unwrap().subscribe(Arc::new(waker), false);
        timer.set(Some(10), 0);
        let _ = once(later.0.lock()[0].as_mut());
        assert_eq!(woken(), 0);
        clock.advance(10);
        let _ = once(later.0.lock()[0].as_mut());
        assert_eq!((woken(), timer.poll()), (1, Events::IN));
        timer.set(None, 0);
        assert_eq!((woken(), timer.poll()), (1, Events::empty()));
    }

    #[test]
    fn an_expiry_before_the_task_first_runs_wakes_too() {
        for interval in [0, 100] {
            let (clock, later) = (Arc::new(FakeTimers::default()), Arc::new(Later::default()));
            let timer = TimerFd::new(Arc::new(clock.clone()), later.clone(), OpenFlags::empty()).unwrap();
            let (waker, woken) = counter();
            let mut bytes = [0; 8];
            let mut reader = timer.read(&mut bytes);
            timer.set(Some(10), interval);
            assert!(reader.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            clock.advance(10);
            assert_eq!(woken(), 0);
            let _ = once(later.0.lock()[0].as_mut());
            assert_eq!(woken(), 1);
            assert_eq!(now_or_never(reader), Some(Ok(8)));
        }
    }

    /// Runs the task of the timer until it sleeps. How often it woke `woken`.
    fn settle(later: &Later, woken: &impl Fn() -> usize) -> usize {
        let before = woken();
        let _ = once(later.0.lock().last_mut().expect("the timer is armed").as_mut());
        woken() - before
    }

    #[test]
    fn a_timer_that_nobody_reads_wakes_once_however_short_its_interval_is() {
        let (clock, later) = (Arc::new(FakeTimers::default()), Arc::new(Later::default()));
        let timer = TimerFd::new(Arc::new(clock.clone()), later.clone(), OpenFlags::empty()).unwrap();
        let (waker, woken) = counter();
        timer.changes().unwrap().subscribe(Arc::new(waker), false);
        timer.set(Some(1), 1);
        let mut wakes = 0;
        for _ in 0..1000 {
            clock.advance(1000);
            wakes += settle(&later, &woken);
        }
        assert_eq!(wakes, 1);
        // Who asks hears of the next expiry again, but not at once.
        let looks: [fn(&TimerFd); 2] =
            [|timer| assert_eq!(read(timer), Some(1_000_000)), |timer| assert_eq!(timer.get(), (1, 1))];
        for look in looks {
            look(&timer);
            clock.advance(period::GRAIN_NS - 1);
            assert_eq!(settle(&later, &woken), 0);
            clock.advance(1);
            assert_eq!(settle(&later, &woken), 1);
            clock.advance(1_000_000);
            assert_eq!(settle(&later, &woken), 0);
        }
    }

    #[test]
    fn what_was_read_before_the_task_ran_is_no_edge() {
        let (clock, later) = (Arc::new(FakeTimers::default()), Arc::new(Later::default()));
        let timer = TimerFd::new(Arc::new(clock.clone()), later.clone(), OpenFlags::empty()).unwrap();
        let (waker, woken) = counter();
        timer.changes().unwrap().subscribe(Arc::new(waker), false);
        timer.set(Some(100), 1_000_000);
        clock.advance(100);
        assert_eq!(read(&timer), Some(1));
        assert_eq!(settle(&later, &woken), 0);
        clock.advance(1_000_000);
        assert_eq!(settle(&later, &woken), 1);
    }

    #[test]
    fn an_interval_may_last_until_the_end_of_time() {
        let (clock, later) = (Arc::new(FakeTimers::default()), Arc::new(Later::default()));
        let timer = TimerFd::new(Arc::new(clock.clone()), later.clone(), OpenFlags::empty()).unwrap();
        clock.advance(1000);
        timer.set(Some(1001), period::END);
        clock.advance(1);
        let _ = once(later.0.lock()[0].as_mut());
        assert_eq!(read(&timer), Some(1));
        assert_eq!((read(&timer), timer.get()), (None, (period::END - 1001, period::END)));
    }

    #[test]
    fn a_reader_is_woken_at_the_expiry_and_the_task_ends_with_the_file() {
        let clock = Arc::new(FakeTimers::default());
        let timer = TimerFd::new(Arc::new(clock.clone()), Arc::new(Threads), OpenFlags::empty()).unwrap();
        timer.set(Some(10), 0);
        let reader = {
            let timer = timer.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 8];
                block_on(timer.read(&mut bytes)).map(|_| u64::from_ne_bytes(bytes))
            })
        };
        clock.advance(10);
        assert_eq!(reader.join().unwrap(), Ok(1));
        timer.set(Some(1_000_000), 0);
        let shared = Arc::downgrade(&timer.shared);
        drop(timer);
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
