//! What the kernels of a simulated machine trace, and whether that can be.
//!
//! A real kernel has its own trace points; here all kernels share those of the host's thread that runs them. So points are on only while a kernel does
//! something, and [`Recorder::during`] says which kernel: when it drains its lanes, when a CPU has its turn, when a task of it goes on. Each event goes at once, in the order in
//! which things happen, to the checker that `cob trace report --check` uses on real traces (crate `traces`); nothing is kept but the last ones, for the text of
//! a failure. A kernel that has died says no more.
//!
//! What a kernel does outside of `during` is not recorded. If it sends something there, the port panics. A machine whose tasks are nobody's is therefore not
//! recorded unless its scenario says [`Recorder::start`], and whose work is whose ([`Machine::at`](crate::machine::Machine::at)).

use crate::{port::Network, shape::Shape};
use machine::KernelId;
use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt::Write,
    sync::{
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        Arc, Mutex, MutexGuard,
    },
    thread,
};
use trace::{Kind, Point, Sink};
use traces::{check::Checker, message_name, role_name, Event, Names, Place};

/// Events that are remembered, and how many of them a failure shows.
const REMEMBERED: usize = 1024;
const SHOWN: usize = 8;

/// Events that the checker looks at, or that say who is who.
const POINTS: &str = "sched,message";

/// Machines of this process are recorded.
static RECORDS: AtomicBool = AtomicBool::new(true);

/// Machines that are made from now on are recorded, or not: it costs a quarter of the time of a run.
pub fn record_machines(are_recorded: bool) {
    RECORDS.store(are_recorded, Relaxed);
}

/// Whether they are; true unless somebody says otherwise.
pub fn are_machines_recorded() -> bool {
    RECORDS.load(Relaxed)
}

thread_local! {
    /// Whose points this thread calls.
    static HERE: RefCell<Option<(Arc<Recorder>, KernelId)>> = const { RefCell::new(None) };
}

/// The sink of all simulated kernels of this process.
struct Simulated;

impl Sink for Simulated {
    fn record(&self, point: Point, words: &[u64]) {
        HERE.with_borrow(|here| {
            if let Some((recorder, kernel)) = here {
                recorder.take(*kernel, point, words);
            }
        });
    }
}

/// Panics unless this thread does what [`Recorder::during`] calls the work of `kernel`.
pub fn assert_here(kernel: KernelId) {
    let here = HERE.with_borrow(|here| here.as_ref().map(|(_, kernel)| *kernel));
    assert!(
        here == Some(kernel) || thread::panicking(),
        "{kernel:?} sends, but what is done is recorded as {here:?}'s"
    );
}

/// Changes an event before it is checked; false: there was none.
pub type Spoiler = Box<dyn FnMut(&mut Event) -> bool + Send>;

/// What is known of a machine that is recorded.
struct Record {
    clock: Option<Arc<AtomicU64>>,
    checker: Checker,
    names: Names,
    last: VecDeque<Event>,
    dead: Vec<KernelId>,
    prints: bool,
    spoiler: Option<Spoiler>,
    failure: Option<String>,
}

/// What the kernels of one machine trace.
pub struct Recorder {
    network: Arc<Network>,
    shape: Shape,
    points: u64,
    /// The CPU of each kernel that does something now, by index.
    cpus: Vec<AtomicUsize>,
    is_on: AtomicBool,
    has_failed: AtomicBool,
    record: Mutex<Option<Record>>,
}

/// Points are off again when it goes, or another kernel's as before.
struct Leave {
    before: Option<(Arc<Recorder>, KernelId)>,
    points: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        trace::enable(self.points);
        HERE.set(self.before.take());
    }
}

impl Recorder {
    pub fn new(shape: Shape, network: Arc<Network>) -> Arc<Self> {
        let cpus = (0..shape.kernels).map(|_| AtomicUsize::new(0)).collect();
        let (is_on, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let points = trace::select(POINTS).unwrap_or(0);
        Arc::new(Recorder { network, shape, points, cpus, is_on, has_failed, record: Mutex::new(None) })
    }

    /// From now on it is recorded, if machines are, by this clock or by the ticks of the network. Before the kernels do anything.
    pub fn start(&self, clock: Option<Arc<AtomicU64>>) {
        if !are_machines_recorded() {
            return;
        }
        trace::set_sink(&Simulated);
        let checker = Checker::new(0..self.shape.kernels as u16, []);
        *self.record() = Some(Record {
            clock,
            checker,
            names: Names::default(),
            last: VecDeque::new(),
            dead: Vec::new(),
            prints: false,
            spoiler: None,
            failure: None,
        });
        self.switch(true);
    }

    fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
        self.network.set_recorded(is_on);
    }

    /// Nothing is recorded any more.
    pub fn stop(&self) {
        self.switch(false);
    }

    fn record(&self) -> MutexGuard<'_, Option<Record>> {
        self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Prints every event, too.
    pub fn print(&self, prints: bool) {
        if let Some(record) = &mut *self.record() {
            record.prints = prints;
        }
    }

    /// For tests of the checker.
    pub fn spoil(&self, spoiler: Spoiler) {
        if let Some(record) = &mut *self.record() {
            record.spoiler = Some(spoiler);
        }
    }

    /// Events so far, and messages that were sent and received.
    pub fn counts(&self) -> (u64, u64) {
        self.record().as_ref().map_or((0, 0), |record| (record.checker.events, record.checker.joined))
    }

    /// What `kernel` does from now on it does on this CPU, by index.
    pub fn set_cpu(&self, kernel: KernelId, cpu: usize) {
        self.cpus[kernel.index()].store(cpu, Relaxed);
    }

    /// `kernel` does this.
    pub fn during<T>(self: &Arc<Self>, kernel: KernelId, work: impl FnOnce() -> T) -> T {
        if !self.is_on.load(Relaxed) {
            return work();
        }
        let before = HERE.replace(Some((self.clone(), kernel)));
        let _leave = Leave { before, points: trace::enabled() };
        trace::enable(self.points);
        work()
    }

    fn take(&self, kernel: KernelId, point: Point, words: &[u64]) {
        let mut record = self.record();
        // What goes wrong while a task is torn down by a panic has a cause already.
        let Some(record) = record.as_mut().filter(|record| !record.dead.contains(&kernel) && !thread::panicking())
        else {
            return;
        };
        let time = record.clock.as_ref().map_or_else(|| self.network.now(), |clock| clock.load(Relaxed));
        let cpu = kernel.index() * self.shape.cpus + self.cpus[kernel.index()].load(Relaxed);
        // No simulated kernel is booted twice.
        let place = Place { cpu: cpu as u16, kernel: kernel.0, boot_generation: 1 };
        let mut event = Event { time, place, point, words: record.buffer() };
        event.words.extend_from_slice(words);
        if record.spoiler.as_mut().is_some_and(|spoils| !spoils(&mut event)) {
            return;
        }
        record.take(event);
        self.has_failed.store(record.failure.is_some(), Relaxed);
    }

    /// Panics if something was recorded that can't be. Outside of what kernels do, which may hold locks.
    pub fn judge(&self) {
        if self.has_failed.load(Relaxed) {
            let failure = self.record().as_mut().and_then(|record| record.failure.take());
            self.has_failed.store(false, Relaxed);
            if let Some(failure) = failure {
                panic!("{failure}");
            }
        }
    }

    /// `kernel` is no more.
    pub fn kernel_died(&self, kernel: KernelId) {
        if let Some(record) = &mut *self.record() {
            record.dead.push(kernel);
            record.checker.kernel_died(kernel.0);
        }
    }

    /// The machine is at rest: no message between kernels that live is under way. Panics if one is.
    pub fn finish(&self) {
        self.judge();
        let lost = self.record().as_ref().and_then(Record::lost);
        if let Some(lost) = lost {
            panic!("{lost}");
        }
    }
}

impl Record {
    fn take(&mut self, event: Event) {
        self.names.take(&event);
        if self.prints {
            eprintln!("        {}", event.line(&self.names));
        }
        let found = self.checker.found().len();
        self.checker.take(&event);
        if let (None, Some(violation)) = (&self.failure, self.checker.found().get(found)) {
            let mut text = format!("the trace of the kernels can't be: {}", violation.what);
            self.show(&mut text, &event);
            self.failure = Some(text);
        }
        self.last.push_back(event);
    }

    /// For the words of the next event: those of the oldest, if enough are remembered.
    fn buffer(&mut self) -> Vec<u64> {
        let oldest = if self.last.len() < REMEMBERED { None } else { self.last.pop_front() };
        let mut words = oldest.map(|event| event.words).unwrap_or_default();
        words.clear();
        words
    }

    /// The events before `event` that have to do with it, and itself.
    fn show(&self, text: &mut String, event: &Event) {
        let before: Vec<&Event> =
            self.last.iter().rev().filter(|one| are_related(one, event)).take(SHOWN - 1).collect();
        for one in before.into_iter().rev().chain([event]) {
            let _ = write!(text, "\n      {}", one.line(&self.names));
        }
    }

    fn lost(&self) -> Option<String> {
        let lives = |kernel: u16| !self.dead.contains(&KernelId(kernel));
        let mut lost: Vec<_> = self.checker.under_way().filter(|(from, to, ..)| lives(*from) && lives(*to)).collect();
        lost.sort_unstable();
        let (from, to, kind, role, id) = *lost.first()?;
        let (name, what) = (message_name(kind), role_name(role));
        let mut text = format!("the trace of the kernels can't be: kernel {from} has sent {to} {name} ({what} {id}), which was not received; with this, {} messages", lost.len());
        let sent = |one: &&Event| {
            let field = |name, value: u64| one.number(name) == value;
            one.point == Point::MessageSend
                && field("id", id)
                && field("kind", kind.into())
                && field("role", role.into())
        };
        if let Some(event) = self.last.iter().rev().find(sent) {
            self.show(&mut text, event);
        }
        Some(text)
    }
}

/// Whether two events tell of the same thread, or of the same message.
fn are_related(one: &Event, other: &Event) -> bool {
    let is_message = |event: &Event| event.info().group == trace::Group::Message;
    if is_message(one) && is_message(other) {
        return kernels(one) == kernels(other)
            && ["id", "kind"].iter().all(|name| one.number(name) == other.number(name));
    }
    !is_message(one) && !is_message(other) && threads(one).any(|thread| threads(other).any(|other| thread == other))
}

/// The two kernels of a message, the lower number first.
fn kernels(event: &Event) -> [u64; 2] {
    let here = u64::from(event.place.kernel);
    let peer = event.fields().find(|(field, _)| field.kind == Kind::Kernel);
    let there = peer.map_or(here, |(_, value)| value.number());
    [here.min(there), here.max(there)]
}

fn threads(event: &Event) -> impl Iterator<Item = u64> + '_ {
    let is_thread = |tid: u64| tid != trace::IDLE.into() && tid != trace::KERNEL_WORK.into();
    let named = event.fields().filter(|(field, _)| field.kind == Kind::Tid).map(|(_, value)| value.number());
    named.filter(move |tid| is_thread(*tid))
}
