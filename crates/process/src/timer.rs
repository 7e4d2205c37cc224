//! Timers of a process (man 2 timer_create, setitimer).
//!
//! They live at its home, so that all threads see the same ones wherever they run, and a signal to the process
//! is queued without a message. While one is armed, one task of the process sleeps until the earliest may
//! expire or until somebody changes them. A clock of CPU time cannot be slept on: the task looks at it when a
//! timer could expire at the earliest, that is if all threads had been running all the time.
//!
//! Expirations are never made up for: a signal stands for all that came since the last, and says how many
//! (`overrun`). What is added while the signal still waits is counted in the queue (`Pending::push`), so only who takes it knows the
//! sum: the home is told when a thread has taken one (timer_getoverrun). However short an interval
//! is, the program goes on: the task rests [`REST`] times as long as it fired, a tick at most, and [`period::GRAIN_NS`] at least. A timer that tells
//! nobody needs no task.

use crate::{home::Home, limits::SIGNALS_PENDING, Process};
use abi::signal::{Signal, SignalFields, SignalInfo};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::{future::Future, pin::pin, task::Poll};
use machine::{
    account::{Charge, OverLimit, Resource},
    errno::Result,
    period,
    sync::{Lock, WaitQueue},
    Errno, Pid,
};
use messages::{
    process::Usage,
    timer::{Notify, TimerCall, TimerClock, TimerId, TimerOp, TimerState},
};

/// Clocks of CPU time are not looked at more often, in ns: Linux's tick.
const CPU_TICK: u64 = 1_000_000;

/// Firing takes one part of a CPU's time in this many and one, unless it takes longer than a tick can make up for.
const REST: u64 = 7;

struct Timer {
    clock: TimerClock,
    notify: Notify,
    /// On its clock (a realtime timer's is turned into monotonic time: their distance never changes).
    next: Option<u64>,
    interval: u64,
    /// Of the last signal that was taken.
    overrun: i32,
    /// Its place among the signals that may wait for its user.
    _place: Charge,
}

#[derive(Default)]
struct Table {
    timers: BTreeMap<TimerId, Timer>,
    next_number: i32,
    /// Counts changes, for the task.
    version: u64,
    /// The task exists.
    runs: bool,
    over: bool,
    /// Rounds of signals so far, and those that are not sent yet.
    rounds: u64,
    firing: BTreeSet<u64>,
}

#[derive(Default)]
pub(crate) struct Timers {
    table: Lock<Table>,
    changed: WaitQueue,
    /// Woken when a round of signals has been sent.
    fired: WaitQueue,
}

/// What the clocks say.
#[derive(Default)]
struct Now {
    monotonic: u64,
    process: Usage,
    threads: Vec<(Pid, u64)>,
    /// Processes whose clocks a timer of this one counts.
    others: Vec<(Pid, u64)>,
}

impl Now {
    fn on(&self, clock: TimerClock) -> u64 {
        match clock {
            TimerClock::Realtime | TimerClock::Monotonic => self.monotonic,
            TimerClock::Process => self.process.cpu_ns(),
            TimerClock::ProcessUser => self.process.user_ns,
            TimerClock::Other(pid) => self.others.iter().find(|(known, _)| *known == pid).map_or(0, |(_, ns)| *ns),
            // A thread that is gone uses nothing any more.
            TimerClock::Thread(tid) => self.threads.iter().find(|(known, _)| *known == tid).map_or(0, |(_, ns)| *ns),
        }
    }
}

fn counts_cpu_time(clock: TimerClock) -> bool {
    !matches!(clock, TimerClock::Realtime | TimerClock::Monotonic)
}

/// A timer has expired.
struct Expired {
    id: TimerId,
    notify: Notify,
    missed: i32,
}

impl Timer {
    fn is_silent(&self) -> bool {
        matches!(self.notify, Notify::None)
    }

    fn state(&mut self, now: u64) -> TimerState {
        if self.is_silent() {
            self.advance(now);
        }
        let left = match self.next {
            // Due, but not fired yet: there is still some time.
            Some(next) => next.saturating_sub(now).max(1),
            None => 0,
        };
        TimerState { left, interval: self.interval, ..TimerState::default() }
    }

    /// How many expirations came up to `now`, moving on to the next.
    fn advance(&mut self, now: u64) -> Option<u64> {
        let next = self.next?;
        let times = period::expirations(next, self.interval, now);
        self.next = period::first_after(next, self.interval, now);
        (times > 0).then_some(times)
    }
}

/// When signals may be sent again that were sent from `begun` to `ended`.
fn rested(begun: u64, ended: u64) -> u64 {
    ended + (REST * ended.saturating_sub(begun)).clamp(period::GRAIN_NS, CPU_TICK)
}

impl Table {
    fn needs_cpu_time(&self) -> bool {
        self.timers.values().any(|timer| timer.next.is_some() && !timer.is_silent() && counts_cpu_time(timer.clock))
    }

    /// What has expired is about to be sent.
    fn begin_round(&mut self) -> u64 {
        self.rounds += 1;
        self.firing.insert(self.rounds);
        self.rounds
    }

    /// Takes what is due; then when to look again, if anything is armed.
    fn step(&mut self, now: &Now, threads: usize) -> (Vec<Expired>, Option<u64>) {
        let mut expired = Vec::new();
        let mut wake = None;
        for (&id, timer) in self.timers.iter_mut().filter(|(_, timer)| !timer.is_silent()) {
            let clock = now.on(timer.clock);
            if let Some(times) = timer.advance(clock) {
                let missed = i32::try_from(times - 1).unwrap_or(i32::MAX);
                expired.push(Expired { id, notify: timer.notify, missed });
            }
            let Some(next) = timer.next else { continue };
            let left = next.saturating_sub(clock);
            let wait = match counts_cpu_time(timer.clock) {
                // How many threads another process has is not known here.
                true if matches!(timer.clock, TimerClock::Other(_)) => CPU_TICK,
                true => (left / threads.max(1) as u64).max(CPU_TICK),
                false => left,
            };
            let at = now.monotonic.saturating_add(wait);
            wake = Some(wake.map_or(at, |earlier: u64| earlier.min(at)));
        }
        (expired, wake)
    }
}

impl Timers {
    /// What had expired before has been sent. Who deletes or stops a timer waits for that (as on Linux): the signal must not come
    /// after what the caller does next, which may be to give up its handler.
    async fn settled(&self) {
        let last = self.table.lock().rounds;
        let sent = || self.table.lock().firing.first().is_none_or(|&round| round > last).then_some(());
        self.fired.wait_until(sent).await;
    }

    /// The process is over.
    pub fn end(&self) {
        {
            let mut table = self.table.lock();
            table.timers.clear();
            table.over = true;
            table.version += 1;
        }
        self.changed.wake_all();
    }
}

/// The signal of an interval timer, and of a limit of CPU time.
fn own_signal(id: TimerId) -> Option<(TimerClock, Signal)> {
    Some(match id {
        TimerId::Posix(_) => return None,
        TimerId::Real => (TimerClock::Monotonic, Signal::ALRM),
        TimerId::Virtual => (TimerClock::ProcessUser, Signal::VTALRM),
        TimerId::Profiling => (TimerClock::Process, Signal::PROF),
        TimerId::Limit => (TimerClock::Process, Signal::XCPU),
    })
}

impl Process {
    /// Makes, sets or asks a timer of the process, from any kernel.
    pub async fn timer(self: &Arc<Self>, op: TimerOp) -> Result<TimerState> {
        match self.is_home() {
            true => self.timer_here(op).await,
            false => {
                let ask = TimerCall { process: self.id, op };
                self.system.endpoint.call(self.home, ask).await.map_err(Errno::from)?
            }
        }
    }

    pub(crate) async fn timer_here(self: &Arc<Self>, op: TimerOp) -> Result<TimerState> {
        let home = self.home().ok_or(Errno::ESRCH)?;
        match op {
            TimerOp::Create { clock, notify } => return self.create_timer(home, clock, notify),
            TimerOp::DeleteAll => {
                let mut table = home.timers.table.lock();
                table.timers.retain(|id, _| !matches!(id, TimerId::Posix(_)));
                table.next_number = 0;
                table.version += 1;
            }
            TimerOp::Delete { id } => {
                let mut table = home.timers.table.lock();
                table.timers.remove(&id).ok_or(Errno::EINVAL)?;
                table.version += 1;
            }
            TimerOp::Overrun { id } => {
                let table = home.timers.table.lock();
                let overrun = table.timers.get(&id).ok_or(Errno::EINVAL)?.overrun;
                return Ok(TimerState { overrun, ..TimerState::default() });
            }
            TimerOp::Taken { id, overrun } => {
                home.timers.table.lock().timers.get_mut(&id).ok_or(Errno::EINVAL)?.overrun = overrun;
                return Ok(TimerState::default());
            }
            TimerOp::Get { id } => {
                let now = self.clocks(clock_of(home, id)?).await;
                let mut table = home.timers.table.lock();
                let Some(timer) = table.timers.get_mut(&id) else { return Ok(TimerState::default()) };
                return Ok(timer.state(now.on(timer.clock)));
            }
            TimerOp::Set { id, absolute, value, interval } => {
                return self.set_timer(home, id, absolute, value, interval).await;
            }
        }
        home.timers.changed.wake_all();
        home.timers.settled().await;
        Ok(TimerState::default())
    }

    fn create_timer(&self, home: &Home, clock: TimerClock, notify: Notify) -> Result<TimerState> {
        let threads = match (clock, notify) {
            (TimerClock::Thread(counted), Notify::Signal { thread, .. }) => [Some(counted), thread],
            (TimerClock::Thread(counted), Notify::None) => [Some(counted), None],
            (_, Notify::Signal { thread, .. }) => [thread, None],
            (_, Notify::None) => [None, None],
        };
        if threads.into_iter().flatten().any(|tid| self.member_at(tid).is_none()) {
            return Err(Errno::EINVAL);
        }
        // Each owns a place in a queue.
        let (uid, limit) = (home.state.lock().credentials.uid, self.limit(SIGNALS_PENDING));
        let place = self.account(uid).charge_within(Resource::Signals, 1, usize::try_from(limit).unwrap_or(usize::MAX));
        let place = place.map_err(|OverLimit| Errno::EAGAIN)?;
        let mut table = home.timers.table.lock();
        if table.over {
            return Err(Errno::EAGAIN);
        }
        let mut number = table.next_number;
        while table.timers.contains_key(&TimerId::Posix(number)) {
            number = number.wrapping_add(1) & i32::MAX;
        }
        table.next_number = number.wrapping_add(1) & i32::MAX;
        let timer = Timer { clock, notify, next: None, interval: 0, overrun: 0, _place: place };
        table.timers.insert(TimerId::Posix(number), timer);
        Ok(TimerState { number, ..TimerState::default() })
    }

    async fn set_timer(
        self: &Arc<Self>,
        home: &Home,
        id: TimerId,
        absolute: bool,
        value: u64,
        interval: u64,
    ) -> Result<TimerState> {
        let clock = clock_of(home, id)?;
        let now = self.clocks(clock).await;
        let ahead = match clock {
            TimerClock::Realtime => self.system.realtime_offset(),
            _ => 0,
        };
        let next = match (value, absolute) {
            (0, _) => None,
            (at, true) => Some(at.saturating_sub(ahead)),
            (wait, false) => Some(period::after(now.on(clock), wait)),
        };
        let (old, start) = {
            let mut table = home.timers.table.lock();
            if let Some((clock, signal)) = own_signal(id) {
                let notify = Notify::Signal { number: signal.number(), thread: None, value: None };
                let new = Timer { clock, notify, next: None, interval: 0, overrun: 0, _place: Charge::FREE };
                if !table.over {
                    table.timers.entry(id).or_insert(new);
                }
            }
            let timer = table.timers.get_mut(&id).ok_or(Errno::EINVAL)?;
            let old = timer.state(now.on(clock));
            timer.next = next;
            timer.interval = if next.is_some() { interval } else { 0 };
            timer.overrun = 0;
            table.version += 1;
            let start = next.is_some() && !table.runs;
            table.runs |= start;
            (old, start)
        };
        match start {
            true => self.system.scheduler.spawn(self.clone().run_timers()),
            false => home.timers.changed.wake_all(),
        }
        home.timers.settled().await;
        Ok(old)
    }

    /// A signal that was taken: if it is a timer's, the home hears what it stood for before the taker goes on.
    pub(crate) async fn note_taken(self: &Arc<Self>, signal: &SignalInfo) {
        if let SignalFields::Timer { id, overrun, .. } = signal.fields {
            // It may have been deleted since.
            let _ = self.timer(TimerOp::Taken { id: TimerId::Posix(id), overrun }).await;
        }
    }

    fn other_processes(&self) -> Vec<Pid> {
        let Some(home) = self.home() else { return Vec::new() };
        let table = home.timers.table.lock();
        let others = table.timers.values().filter_map(|timer| match timer.clock {
            TimerClock::Other(pid) => Some(pid),
            _ => None,
        });
        others.collect()
    }

    /// The clocks, as far as `wanted` needs them.
    async fn clocks(self: &Arc<Self>, wanted: TimerClock) -> Now {
        let monotonic = self.system.now();
        if !counts_cpu_time(wanted) {
            return Now { monotonic, ..Now::default() };
        }
        let count = |usage: &Usage| usage.cpu_ns();
        let (process, threads) = self.gather_usage().await;
        let mut now = Now { monotonic, process, ..Now::default() };
        now.threads.extend(threads.iter().map(|(tid, usage)| (*tid, count(usage))));
        for other in self.other_processes() {
            // One that has ended counts no further.
            if let Ok((usage, _)) = self.system.usage_of(other, None).await {
                now.others.push((other, count(&usage)));
            }
        }
        now
    }

    /// The task.
    async fn run_timers(self: Arc<Self>) {
        let Some(home) = self.home() else { return };
        loop {
            let needs = home.timers.table.lock().needs_cpu_time();
            let now = self.clocks(if needs { TimerClock::Process } else { TimerClock::Monotonic }).await;
            let threads = home.state.lock().members.len();
            let (expired, wake, version, round) = {
                let mut table = home.timers.table.lock();
                if table.needs_cpu_time() && !needs {
                    continue;
                }
                let (expired, wake) = table.step(&now, threads);
                table.runs = wake.is_some();
                (expired, wake, table.version, table.begin_round())
            };
            let begun = self.system.now();
            let fires = !expired.is_empty();
            for expired in expired {
                self.fire(expired).await;
            }
            home.timers.table.lock().firing.remove(&round);
            home.timers.fired.wake_all();
            let Some(at) = wake else { return };
            let at = if fires { at.max(rested(begun, self.system.now())) } else { at };
            let mut sleep = pin!(self.system.scheduler.sleep_until(at));
            let changed =
                home.timers.changed.wait_until(|| (home.timers.table.lock().version != version).then_some(()));
            let mut changed = pin!(changed);
            core::future::poll_fn(|context| match sleep.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => changed.as_mut().poll(context),
            })
            .await;
        }
    }

    async fn fire(self: &Arc<Self>, Expired { id, notify, missed }: Expired) {
        let Notify::Signal { number, thread, value } = notify else { return };
        let Some(signal) = Signal::new(u64::from(number)) else { return };
        let info = match id {
            TimerId::Posix(number) => {
                let value = value.unwrap_or(number as u64);
                let fields = SignalFields::Timer { id: number, overrun: missed, value };
                SignalInfo { signal, code: SignalInfo::SI_TIMER, errno: 0, fields }
            }
            TimerId::Limit if self.cpu_time_is_over().await => SignalInfo::kernel(Signal::KILL),
            _ => SignalInfo::kernel(signal),
        };
        match thread {
            // A timer has its place in the queue.
            None => drop(self.signal_here(info).await),
            // A thread that has ended gets no signals.
            Some(tid) => drop(self.system.signal_thread(Some(self.id), tid, Some(info), None).await),
        }
    }
}

/// EINVAL if there is no such timer.
fn clock_of(home: &Home, id: TimerId) -> Result<TimerClock> {
    match own_signal(id) {
        Some((clock, _)) => Ok(clock),
        None => home.timers.table.lock().timers.get(&id).map(|timer| timer.clock).ok_or(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(clock: TimerClock, next: u64, interval: u64) -> Timer {
        let notify = Notify::Signal { number: 14, thread: None, value: None };
        Timer { clock, notify, next: Some(next), interval, overrun: 0, _place: Charge::FREE }
    }

    #[test]
    fn a_timer_that_tells_nobody_is_looked_at_when_it_is_asked_for() {
        let mut table = Table::default();
        let silent = Timer { notify: Notify::None, ..timer(TimerClock::Process, 100, 10) };
        table.timers.insert(TimerId::Posix(0), silent);
        let (expired, wake) = table.step(&Now { monotonic: 1000, ..Now::default() }, 1);
        assert_eq!((expired.len(), wake, table.needs_cpu_time()), (0, None, false));
        let silent = table.timers.get_mut(&TimerId::Posix(0)).expect("it is there");
        assert_eq!(silent.state(135).left, 5);
    }

    #[test]
    fn missed_periods_are_counted_and_not_made_up_for() {
        let mut periodic = timer(TimerClock::Monotonic, 100, 10);
        assert_eq!(periodic.advance(99), None);
        assert_eq!(periodic.advance(100), Some(1));
        assert_eq!(periodic.next, Some(110));
        assert_eq!(periodic.advance(135), Some(3));
        assert_eq!((periodic.next, periodic.state(135).left), (Some(140), 5));
        let mut once = timer(TimerClock::Monotonic, 100, 0);
        assert_eq!(once.state(200).left, 1);
        assert_eq!(once.advance(200), Some(1));
        assert_eq!((once.next, once.state(200).left), (None, 0));
        let mut far = timer(TimerClock::Monotonic, 1, u64::MAX);
        assert_eq!((far.advance(5), far.next), (Some(1), Some(period::END)));
    }

    #[test]
    fn however_short_an_interval_is_signals_take_a_small_part_of_the_time() {
        assert_eq!(rested(1000, 1000), 1000 + period::GRAIN_NS);
        assert_eq!(rested(0, 100_000), 800_000);
        assert_eq!(rested(0, 10_000_000), 10_000_000 + CPU_TICK);
        // What expires meanwhile is counted.
        let mut shortest = timer(TimerClock::Monotonic, 1, 1);
        assert_eq!(shortest.advance(1), Some(1));
        assert_eq!(shortest.advance(rested(1, 1)), Some(period::GRAIN_NS));
    }

    #[test]
    fn a_cpu_clock_is_looked_at_when_all_threads_could_have_used_it_up() {
        let mut table = Table::default();
        table.timers.insert(TimerId::Profiling, timer(TimerClock::Process, 50_000_000, 0));
        let process = Usage { user_ns: 6_000_000, system_ns: 4_000_000, ..Usage::default() };
        let now = Now { monotonic: 1000, process, ..Now::default() };
        let (expired, wake) = table.step(&now, 4);
        assert_eq!((expired.len(), wake), (0, Some(1000 + 10_000_000)));
        // The user time alone is further from it.
        table.timers.insert(TimerId::Virtual, timer(TimerClock::ProcessUser, 6_000_001, 0));
        assert_eq!(table.step(&now, 4).1, Some(1000 + CPU_TICK));
        let process = Usage { user_ns: 50_000_000, ..Usage::default() };
        let (expired, wake) = table.step(&Now { process, ..now }, 4);
        assert_eq!((expired.len(), wake), (2, None));
    }
}
