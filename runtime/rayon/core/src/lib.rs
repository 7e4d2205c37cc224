//! The interface of rayon-core 1.13 on the task runtime (`cob_tasks`), so that rayon itself, with its parallel iterators and sorts, runs on it. A program that uses
//! rayon adds two lines to its Cargo.toml:
//!
//! ```toml
//! [patch.crates-io]
//! rayon-core = { path = "../cob/runtime/rayon/core" }
//! ```
//!
//! Why not threads for rayon (`ThreadPoolBuilder::spawn_handler`): rayon's pool has as many threads as it began with, each of them takes work whenever it can, and nothing is
//! called between two pieces of work. So nobody could add a worker while one waits, and a worker that is too many could not stand back.
//!
//! Where the kernel tells of threads that wait (Cob), each CPU has one worker that runs, however many wait in closures; elsewhere it is a pool with a worker a CPU.
//! What is different from rayon:
//!
//! - [`current_num_threads`] is how many workers there can be, also those that wait; 64 a CPU, or COB_TASKS_WORKERS_PER_CPU. `num_threads` of a builder is how many CPUs
//!   it uses.
//! - `broadcast`: there is no fixed set of threads, so it panics. So do `use_current_thread` and `spawn_handler`, when the pool is built.
//! - Not there, so a program that names them does not compile: `ThreadPoolBuilder::build_scoped` and `breadth_first`, `Scope::spawn_broadcast`, `ThreadPool::spawn_broadcast`,
//!   and what rayon has deprecated: `ThreadPool::new`, `Configuration`, `initialize`. `ThreadPoolBuilder` has no type parameter, and `ScopeFifo` is `Scope`.
//! - A closure that waits for another pool (`install`) keeps its worker; another worker has the CPU. Pools that call each other more deeply than there may be workers hang.
//! - Who waits in `join` or `scope` runs only work of that, and not another's; meanwhile another worker has the CPU.

#![forbid(unsafe_code)]

pub use cob_tasks::Scope;
use cob_tasks::{Builder, Handle, Runtime};
use std::{any::Any, error::Error, fmt, io, marker::PhantomData, sync::OnceLock};

static GLOBAL: OnceLock<Runtime> = OnceLock::new();

fn global() -> Handle {
    let begin = || ThreadPoolBuilder::new().runtime().unwrap_or_else(|error| panic!("the global pool: {error}"));
    GLOBAL.get_or_init(begin).handle()
}

/// The pool that the caller works for, or the global one.
fn current() -> Handle {
    Handle::current().unwrap_or_else(global)
}

/// Runs `work` in a pool.
fn run<T: Send>(pool: &Handle, work: impl FnOnce() -> T + Send) -> T {
    if pool.is_current() {
        work()
    } else {
        pool.run(work)
    }
}

pub struct FnContext {
    migrated: bool,
    _not_send: PhantomData<*mut ()>,
}

impl FnContext {
    /// Whether another worker than the one that called join runs this.
    pub fn migrated(&self) -> bool {
        self.migrated
    }

    fn new(migrated: bool) -> FnContext {
        FnContext { migrated, _not_send: PhantomData }
    }
}

pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    join_context(|_| a(), |_| b())
}

pub fn join_context<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    run(&current(), || cob_tasks::join_context(|_| a(FnContext::new(false)), |migrated| b(FnContext::new(migrated))))
}

pub type ScopeFifo<'scope> = Scope<'scope>;

pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    run(&current(), || cob_tasks::scope(op))
}

pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    scope(op)
}

pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    current().scope_here(op)
}

pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    in_place_scope(op)
}

pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    current().spawn(func);
}

pub fn spawn_fifo<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    spawn(func);
}

fn no_broadcast() -> ! {
    panic!("rayon on cob_tasks: broadcast is not there, for the workers of the pool are not always the same")
}

pub struct BroadcastContext<'a> {
    _context: PhantomData<&'a mut dyn Fn()>,
}

impl BroadcastContext<'_> {
    pub fn index(&self) -> usize {
        no_broadcast()
    }

    pub fn num_threads(&self) -> usize {
        no_broadcast()
    }
}

/// # Panics
/// Always.
pub fn broadcast<OP, R>(_op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    no_broadcast()
}

/// # Panics
/// Always.
pub fn spawn_broadcast<OP>(_op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    no_broadcast()
}

pub fn max_num_threads() -> usize {
    usize::from(u16::MAX)
}

pub fn current_num_threads() -> usize {
    current().most_workers()
}

pub fn current_thread_index() -> Option<usize> {
    cob_tasks::worker_number()
}

/// Not known of one worker alone.
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    cob_tasks::worker_number().map(|_| false)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    Executed,
    Idle,
}

pub fn yield_now() -> Option<Yield> {
    cob_tasks::run_another().map(|ran| if ran { Yield::Executed } else { Yield::Idle })
}

pub fn yield_local() -> Option<Yield> {
    yield_now()
}

pub struct ThreadPool(Runtime);

impl ThreadPool {
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        run(&self.0, op)
    }

    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| join(a, b))
    }

    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| cob_tasks::scope(op))
    }

    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.scope(op)
    }

    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        self.0.scope_here(op)
    }

    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        self.0.scope_here(op)
    }

    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.0.spawn(op);
    }

    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.0.spawn(op);
    }

    /// # Panics
    /// Always.
    pub fn broadcast<OP, R>(&self, _op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        no_broadcast()
    }

    pub fn current_num_threads(&self) -> usize {
        self.0.most_workers()
    }

    pub fn current_thread_index(&self) -> Option<usize> {
        self.0.is_current().then(current_thread_index)?
    }

    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        self.0.is_current().then(current_thread_has_pending_tasks)?
    }

    pub fn yield_now(&self) -> Option<Yield> {
        self.0.is_current().then(yield_now)?
    }

    pub fn yield_local(&self) -> Option<Yield> {
        self.yield_now()
    }
}

type PanicHandler = Box<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

#[derive(Default)]
pub struct ThreadPoolBuilder {
    cpus: usize,
    refused: Option<&'static str>,
    panic_handler: Option<PanicHandler>,
}

impl ThreadPoolBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    fn runtime(self) -> Result<Runtime, ThreadPoolBuildError> {
        if let Some(refused) = self.refused {
            return Err(ThreadPoolBuildError(io::Error::new(io::ErrorKind::Unsupported, refused)));
        }
        let mut builder = Builder::from_environment();
        if self.cpus > 0 {
            builder = builder.at_most_cpus(self.cpus);
        }
        let unhandled: PanicHandler = Box::new(|_| {
            eprintln!("rayon: a closure given to spawn has panicked");
            std::process::abort();
        });
        builder.on_panic(self.panic_handler.unwrap_or(unhandled)).build().map_err(ThreadPoolBuildError)
    }

    pub fn build(self) -> Result<ThreadPool, ThreadPoolBuildError> {
        Ok(ThreadPool(self.runtime()?))
    }

    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        let there_is = || ThreadPoolBuildError(io::Error::other("the global thread pool has already been initialized"));
        if GLOBAL.get().is_some() {
            return Err(there_is());
        }
        GLOBAL.set(self.runtime()?).map_err(|_| there_is())
    }

    /// How many CPUs it uses; 0: all.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.cpus = num_threads;
        self
    }

    /// Has no effect: workers have the runtime's names.
    pub fn thread_name<F>(self, _name: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self
    }

    pub fn panic_handler<H>(mut self, handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.panic_handler = Some(Box::new(handler));
        self
    }

    /// Then it can't be built: use RUST_MIN_STACK.
    pub fn stack_size(mut self, _bytes: usize) -> Self {
        self.refused = Some("stack_size: RUST_MIN_STACK says it for all threads");
        self
    }

    /// Then it can't be built.
    pub fn start_handler<H>(mut self, _handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.refused = Some("start_handler: workers are the runtime's");
        self
    }

    /// Then it can't be built.
    pub fn exit_handler<H>(mut self, _handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.refused = Some("exit_handler: workers are the runtime's");
        self
    }

    /// Then it can't be built.
    pub fn use_current_thread(mut self) -> Self {
        self.refused = Some("use_current_thread: workers are the runtime's");
        self
    }

    /// Then it can't be built.
    pub fn spawn_handler<F>(mut self, _spawn: F) -> Self
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        self.refused = Some("spawn_handler: workers are the runtime's");
        self
    }
}

/// Of a thread that a program makes itself: there are none.
#[derive(Debug)]
pub struct ThreadBuilder(());

#[derive(Debug)]
pub struct ThreadPoolBuildError(io::Error);

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl Error for ThreadPoolBuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// What rayon wants of all these: a name.
macro_rules! debug {
    ($($name:ident $(<$life:lifetime>)?),*) => {
        $(impl $(<$life>)? fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(stringify!($name))
            }
        })*
    };
}

debug!(FnContext, BroadcastContext<'a>, ThreadPool, ThreadPoolBuilder);
