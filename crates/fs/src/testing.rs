//! What the tests of this crate run futures with.

use crate::{
    event::{Fetched, SignalSource, SignalSources},
    file::{Signaller, Transfer, UserBuffer},
    Caller, Credentials,
};
use abi::{
    signal::{Pending, Signal, SignalFields, SignalInfo, SignalSet, Taken},
    CapabilitySet, FileOwner,
};
use alloc::{boxed::Box, sync::Arc, task::Wake, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use machine::{
    account::Account,
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Pid, Shield, Spawner,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub fn caller(process: u32) -> Caller {
    let pid = Pid(process);
    Caller {
        credentials: Credentials::default(),
        process: pid,
        thread: pid,
        group: pid,
        session: pid,
        umask: 0o022,
        shield: Shield::new(),
    }
}

/// An account without limits.
pub fn free() -> Arc<Account> {
    Account::new(None, &[])
}

/// A caller whose effective user is `uid`, not 0, without capabilities.
pub fn user(process: u32, uid: u32) -> Caller {
    let mut caller = caller(process);
    caller.credentials.euid = uid;
    caller.credentials.effective = CapabilitySet::NONE;
    caller
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = core::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

/// One poll.
pub fn once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// One poll of a future that is then dropped: what an interrupted call is.
pub fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    once(core::pin::pin!(future))
}

/// A waker and how often it was woken.
pub fn counter() -> (Waker, impl Fn() -> usize) {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (Waker::from(count.clone()), move || count.0.load(SeqCst))
}

/// A thread for each task.
pub struct Threads;

impl Spawner for Threads {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        std::thread::spawn(move || block_on(task));
    }
}

/// A clock that a test moves.
#[derive(Default)]
pub struct FakeTimers {
    now: Lock<u64>,
    moved: WaitQueue,
}

impl FakeTimers {
    pub fn advance(&self, ns: u64) {
        *self.now.lock() += ns;
        self.moved.wake_all();
    }
}

impl crate::event::Timers for Arc<FakeTimers> {
    fn now(&self) -> u64 {
        *self.now.lock()
    }

    fn at(&self, ns: u64) -> BoxFuture<'static, ()> {
        let timers = self.clone();
        Box::pin(async move { timers.moved.wait_until(|| (*timers.now.lock() >= ns).then_some(())).await })
    }
}

/// What is pending for a process, as a kernel that is not its home knows.
#[derive(Default)]
pub struct Signals {
    pub pending: Lock<Pending>,
    /// At the home.
    pub away: Lock<Pending>,
    asked: Lock<Vec<(SignalSet, usize, Fetched)>>,
    came: AtomicUsize,
    pub changes: WaitQueue,
}

impl Signals {
    pub fn send(&self, signal: Signal) {
        self.pending.lock().push(SignalInfo::user(signal, 0, Pid(7), 9));
        self.came.fetch_add(1, SeqCst);
        self.changes.wake_all();
    }

    /// The home's answer.
    pub fn answer(&self) {
        let (wanted, most, then) = self.asked.lock().pop().expect("a read asks");
        let taken = core::iter::from_fn(|| self.away.lock().take(wanted)).take(most);
        then(taken.collect());
    }
}

impl SignalSource for Signals {
    fn take(&self, _: Option<Pid>, wanted: SignalSet) -> Option<SignalInfo> {
        self.pending.lock().take(wanted).map(|taken| taken.info)
    }
    fn fetch(&self, wanted: SignalSet, most: usize, then: Fetched) -> bool {
        let there = self.away.lock().set().0 & wanted.0 != 0;
        if there {
            self.asked.lock().push((wanted, most, then));
        }
        there
    }
    fn put_back(&self, signals: Vec<Taken>) {
        self.away.lock().put_back(signals.into_iter());
    }
    fn pending(&self, _: Option<Pid>) -> SignalSet {
        self.pending.lock().set().union(self.away.lock().set())
    }
    fn came(&self) -> u64 {
        self.came.load(SeqCst) as u64
    }
    fn changes(&self) -> &WaitQueue {
        &self.changes
    }
}

/// The same for every process.
pub struct OfAll(pub Arc<Signals>);

impl SignalSources for OfAll {
    fn of(&self, _: Pid) -> Option<Arc<dyn SignalSource>> {
        Some(self.0.clone())
    }
}

/// Who was told, `si_code` and what came with it.
pub type Told = (Option<Pid>, i32, SignalFields);

/// Keeps the signals that files send to their owners when their tasks run.
#[derive(Default)]
pub struct Owner {
    told: Arc<Lock<Vec<Told>>>,
    tasks: Lock<Vec<BoxFuture<'static, ()>>>,
}

impl Owner {
    /// All signals so far; and how many tasks there were to send the last of them.
    pub fn told(&self) -> (Vec<Told>, usize) {
        let tasks = core::mem::take(&mut *self.tasks.lock());
        let count = tasks.len();
        tasks.into_iter().for_each(block_on);
        (self.told.lock().clone(), count)
    }
}

impl Signaller for Owner {
    fn signal(&self, owner: FileOwner, info: SignalInfo) -> BoxFuture<'static, Result<()>> {
        let told = self.told.clone();
        Box::pin(async move {
            told.lock().push((owner.id, info.code, info.fields));
            Ok(())
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.lock().push(task);
    }
}

/// A program's memory, of which so many bytes are there.
pub struct Program(pub Vec<u8>, pub usize);

/// What is done at once.
pub fn at_once(transfer: Transfer<'_>) -> Option<usize> {
    match transfer {
        Transfer::Done(result) => result.ok(),
        Transfer::Later(_) => None,
    }
}

impl UserBuffer for Program {
    fn put(&mut self, from: &[u8]) -> usize {
        let moved = from.len().min(self.1);
        self.1 -= moved;
        self.0.extend_from_slice(&from[..moved]);
        moved
    }
    fn take(&mut self, to: &mut [u8]) -> usize {
        let moved = to.len().min(self.1);
        self.1 -= moved;
        to[..moved].copy_from_slice(&self.0[..moved]);
        self.0.drain(..moved);
        moved
    }
    fn put_frame(&mut self, _: machine::Frame, _: usize, _: usize) -> usize {
        unreachable!("a stream has no pages")
    }
    fn put_zeros(&mut self, _: usize) -> usize {
        unreachable!("a stream has no holes")
    }
    fn take_frame(&mut self, _: machine::Frame, _: usize, _: usize) -> usize {
        unreachable!("a stream has no pages")
    }
}
