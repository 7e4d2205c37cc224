//! Timers of a process (man 2 timer_create, setitimer).
//!
//! They live at the process's home, so that all threads see the same ones wherever they run, and a signal to the process
//! is queued without a message. While a timer is armed, one task of the process sleeps until the earliest may
//! expire or until somebody changes one. Nothing can sleep on a clock of CPU time: the task reads it when a
//! timer could expire at the earliest, which is if all threads have been running all the time. A timer with SIGEV_NONE needs no
//! task.
//!
//! One signal stands for all expirations since the last one, and says how many it stands for (`overrun`). Expirations that come
//! while the signal is still queued are added to it in the queue (`Pending::push`). So only the thread that takes the signal knows
//! the sum, and it tells the home, for timer_getoverrun.
//!
//! A program with a very short interval still makes progress: after firing, the task rests [`REST`] times as long as firing took,
//! at least [`period::GRAIN_NS`] and at most a tick.

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

/// The shortest time between two readings of a clock of CPU time, in ns. It is Linux's tick.
const CPU_TICK: u64 = 1_000_000;

/// The task rests this many times as long as firing took.
const REST: u64 = 7;

struct Timer {
    clock: TimerClock,
    notify: Notify,
    /// When it expires, on its clock; None: disarmed. A realtime timer has a monotonic time here.
    next: Option<u64>,
    interval: u64,
    /// What the last signal that a thread took stood for, beside one expiration.
    overrun: i32,
    /// As on Linux, a timer counts as one queued signal of its user (RLIMIT_SIGPENDING).
    _place: Charge,
}

#[derive(Default)]
struct Table {
    timers: BTreeMap<TimerId, Timer>,
    next_number: i32,
    /// Counts changes, so that the sleeping task notices them.
    version: u64,
    /// The task exists.
    runs: bool,
    /// The process has ended: no timer is made or armed any more.
    over: bool,
    /// Rounds of firing that have begun: a round takes what has expired and sends its signals.
    rounds: u64,
    /// Rounds whose signals are not all sent yet.
    firing: BTreeSet<u64>,
}

#[derive(Default)]
pub(crate) struct Timers {
    table: Lock<Table>,
    changed: WaitQueue,
    /// Woken when all signals of a round have been sent.
    fired: WaitQueue,
}

/// The clocks at one time.
#[derive(Default)]
struct Now {
    monotonic: u64,
    process: Usage,
    threads: Vec<(Pid, u64)>,
    /// CPU time of the other processes that a timer of this one counts.
    others: Vec<(Pid, u64)>,
}

impl Now {
    fn on(&self, clock: TimerClock) -> u64 {
        match clock {
            TimerClock::Realtime | TimerClock::Monotonic => self.monotonic,
            TimerClock::Process => self.process.cpu_ns(),
            TimerClock::ProcessUser => self.process.user_ns,
            TimerClock::Other(pid) => self.others.iter().find(|(known, _)| *known == pid).map_or(0, |(_, ns)| *ns),
            // A thread that has ended.
            TimerClock::Thread(tid) => self.threads.iter().find(|(known, _)| *known == tid).map_or(0, |(_, ns)| *ns),
        }
    }
}

fn counts_cpu_time(clock: TimerClock) -> bool {
    !matches!(clock, TimerClock::Realtime | TimerClock::Monotonic)
}

/// A timer that has expired, and whose signal is to be sent.
struct Expired {
    id: TimerId,
    notify: Notify,
    /// Expirations beside the one that the signal itself stands for.
    missed: i32,
}

impl Timer {
    /// SIGEV_NONE: it only answers timer_gettime.
    fn is_silent(&self) -> bool {
        matches!(self.notify, Notify::None)
    }

    fn state(&mut self, now: u64) -> TimerState {
        if self.is_silent() {
            self.advance(now);
        }
        let left = match self.next {
            // Due, but not fired yet. 0 would mean disarmed.
            Some(next) => next.saturating_sub(now).max(1),
            None => 0,
        };
        TimerState { left, interval: self.interval, ..TimerState::default() }
    }

    /// Counts the expirations up to `now`, and sets `next` to the first one after it. None: there were none.
    fn advance(&mut self, now: u64) -> Option<u64> {
        let next = self.next?;
        let times = period::expirations(next, self.interval, now);
        self.next = period::first_after(next, self.interval, now);
        (times > 0).then_some(times)
    }
}

/// When the task may fire again after it has sent signals from `begun` to `ended`.
fn rested(begun: u64, ended: u64) -> u64 {
    ended + (REST * ended.saturating_sub(begun)).clamp(period::GRAIN_NS, CPU_TICK)
}

impl Table {
    fn needs_cpu_time(&self) -> bool {
        self.timers.values().any(|timer| timer.next.is_some() && !timer.is_silent() && counts_cpu_time(timer.clock))
    }

    /// Begins a round: the signals of what has expired are about to be sent. Answers its number.
    fn begin_round(&mut self) -> u64 {
        self.rounds += 1;
        self.firing.insert(self.rounds);
        self.rounds
    }

    /// Takes the timers that have expired. Answers them, and when to look again; None: nothing is armed.
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
                // This kernel does not know how many threads another process has.
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
    /// Waits until the signals of all rounds that have begun are sent. Whoever deletes or stops a timer waits for that, as on
    /// Linux: its signal must not come after the call has returned, when the program may have removed its handler.
    async fn settled(&self) {
        let last = self.table.lock().rounds;
        let sent = || self.table.lock().firing.first().is_none_or(|&round| round > last).then_some(());
        self.fired.wait_until(sent).await;
    }

    /// Removes all timers, because the process has ended.
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

/// The clock and the signal of a timer of setitimer or RLIMIT_CPU. None: timer_create made it.
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
    /// Does `op` at the process's home, from any kernel.
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

    /// Called by a thread that has taken a signal. If a timer sent it, this tells the home its overrun, before the thread goes on.
    pub(crate) async fn note_taken(self: &Arc<Self>, signal: &SignalInfo) {
        if let SignalFields::Timer { id, overrun, .. } = signal.fields {
            // It may have been deleted since.
            let _ = self.timer(TimerOp::Taken { id: TimerId::Posix(id), overrun }).await;
        }
    }

    /// The other processes whose CPU time a timer of this one counts.
    fn other_processes(&self) -> Vec<Pid> {
        let Some(home) = self.home() else { return Vec::new() };
        let table = home.timers.table.lock();
        let others = table.timers.values().filter_map(|timer| match timer.clock {
            TimerClock::Other(pid) => Some(pid),
            _ => None,
        });
        others.collect()
    }

    /// Reads the monotonic clock, and if `wanted` counts CPU time, those of CPU time as well.
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
            // The clock of a process that has ended stands still.
            if let Ok((usage, _)) = self.system.usage_of(other, None).await {
                now.others.push((other, count(&usage)));
            }
        }
        now
    }

    /// The task of the process's timers. It ends when no timer is armed; setting one starts it again.
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

    /// Sends the signal of a timer that has expired.
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
            // It is not refused: the timer was charged for its place in the queue.
            None => drop(self.signal_here(info).await),
            // Fails if the thread has ended.
            Some(tid) => drop(self.system.signal_thread(Some(self.id), tid, Some(info), None).await),
        }
    }
}

/// What the timer counts. EINVAL: there is no such timer.
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
