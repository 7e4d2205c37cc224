//! [`Thread`]: one thread's incarnation on this kernel, live or a shadow.

use crate::reservation::Reserved;
use crate::{account::Account, balance::Destination, process::Flags, process::KnownSpace, Process};
use abi::signal::{Pending, Sent, SignalInfo, SignalSet, Taken};
use alloc::{boxed::Box, sync::Arc};
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering::*},
    task::{Context as TaskContext, Poll, Waker},
};
use machine::{
    sync::{Lock, WaitQueue},
    BoxFuture, Cpu, CpuId, Errno, FpuState, KernelId, Pid, Registers, Shield, Trap,
};
use messages::{
    inspect::RunState,
    process::{ThreadContext, ThreadState, Usage},
};
use sched::{Class, TaskRef};

/// Policies of sched_setscheduler(2), and the flag that may stand beside them.
pub const FIFO: u32 = 1;
pub const ROUND_ROBIN: u32 = 2;
pub const BATCH: u32 = 3;
pub const IDLE: u32 = 5;
pub const DEADLINE: u32 = 6;
/// SCHED_RESET_ON_FORK: children start with SCHED_OTHER.
pub const RESET_ON_FORK: u32 = 0x4000_0000;

/// What a thread is at the user boundary, beside the extended state, which its [`Thread`] keeps.
pub struct Context {
    /// The registers that are restored when the thread goes on.
    pub registers: Registers,
}

/// A signal (or the end of the process) interrupted a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl From<Interrupted> for Errno {
    fn from(_: Interrupted) -> Errno {
        Errno::RESTART
    }
}

/// Where the thread is, as this kernel knows.
pub(crate) enum Presence {
    Here,
    /// The thread has gone to another kernel, and its shadow is here.
    Away(KernelId),
    /// The thread has come back; its shadow goes on with this.
    Returning(Box<ThreadContext>),
    /// The thread has ended elsewhere.
    Ended,
}

/// A thread as one kernel has it: the thread itself, or the shadow of one that went away.
pub struct Thread {
    /// Thread id.
    pub tid: Pid,
    /// The process, as the same kernel has it.
    pub process: Arc<Process>,
    /// What goes with it when it moves, beside registers and extended state.
    pub state: Lock<ThreadState>,
    pub(crate) fpu: Lock<FpuState>,
    /// The extended state is in the CPU's registers, and `fpu` may be older. Only the CPU polling the thread looks.
    fpu_live: AtomicBool,
    /// The CPU (its index and one) whose registers held what `fpu` says when the thread was last suspended, and still do
    /// if no other thread's state was loaded there ([`System::claim_fpu`]). 0: none.
    fpu_on: AtomicUsize,
    /// No other thread of this kernel ever had it.
    serial: u64,
    pub(crate) presence: Lock<Presence>,
    pub(crate) presence_changed: WaitQueue,
    /// The thread is on its way to another kernel, which has not answered yet. If the move fails it stays.
    pub(crate) leaving: AtomicBool,
    /// In an execve, from when all other threads have ended: the home knows it under the process's id.
    pub(crate) executing: AtomicBool,
    /// Copies of `state`'s sets, for the check at every return to user mode.
    blocked: AtomicU64,
    pending: AtomicU64,
    /// execve elsewhere in the process wants this thread gone.
    pub(crate) doomed: AtomicBool,
    /// The thread is wanted on another CPU (of this kernel or another).
    pub(crate) misplaced: AtomicBool,
    /// Where it goes at its next user boundary (balance.rs).
    pub(crate) destination: Lock<Option<Destination>>,
    /// Run time of this kernel that it has reserved.
    pub(crate) reserved: Lock<Option<Reserved>>,
    /// When it came to this kernel, ns of the clock.
    pub(crate) here_since: AtomicU64,
    waker: Lock<Option<Waker>>,
    /// Held while the answer to a change that it began on another kernel is outstanding.
    pub(crate) shield: Shield,
    pub(crate) task: Lock<Option<TaskRef>>,
    last_cpu: AtomicU64,
    /// How it waits while its task is suspended.
    pub(crate) waits: AtomicU8,
    /// It has touched a page of a file that is being read.
    pub fetches: AtomicBool,
    /// A CPU (`last_cpu`) is running its task.
    pub(crate) polled: AtomicBool,
    /// What it has used beside what `state` says.
    pub(crate) account: Account,
    descheduled: AtomicBool,
    /// The CPU that the area of rseq(2) names.
    pub rseq_cpu: AtomicU32,
    /// A copy of `state`'s, for the look before user mode (monitor.rs).
    pub(crate) monitored: AtomicBool,
    /// Its process has gone to another control group since it was last in user mode.
    pub(crate) regrouped: AtomicBool,
}

/// For `serial`; 0 is nobody's.
static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Thread {
    pub(crate) fn new(tid: Pid, process: Arc<Process>, state: ThreadState, fpu: FpuState) -> Arc<Thread> {
        let cpu = process.system.cpu.current();
        let now = process.system.now();
        Arc::new(Thread {
            tid,
            blocked: AtomicU64::new(state.blocked.0),
            pending: AtomicU64::new(state.pending.set().0),
            monitored: AtomicBool::new(state.monitored),
            regrouped: AtomicBool::new(false),
            process,
            state: Lock::new(state),
            fpu: Lock::new(fpu),
            fpu_live: AtomicBool::new(false),
            fpu_on: AtomicUsize::new(0),
            serial: SERIAL.fetch_add(1, Relaxed),
            presence: Lock::new(Presence::Here),
            presence_changed: WaitQueue::new(),
            leaving: AtomicBool::new(false),
            executing: AtomicBool::new(false),
            doomed: AtomicBool::new(false),
            misplaced: AtomicBool::new(false),
            destination: Lock::new(None),
            reserved: Lock::new(None),
            here_since: AtomicU64::new(now),
            waker: Lock::new(None),
            shield: Shield::new(),
            task: Lock::new(None),
            last_cpu: AtomicU64::new(u64::from(cpu.0)),
            waits: AtomicU8::new(RunState::Runnable as u8),
            fetches: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            account: Account::default(),
            descheduled: AtomicBool::new(true),
            rseq_cpu: AtomicU32::new(u32::MAX),
        })
    }

    fn cpu(&self) -> &Arc<dyn Cpu> {
        &self.process.system.cpu
    }

    /// Whether this is a shadow: the thread went away, or ended elsewhere.
    pub fn is_away(&self) -> bool {
        !matches!(*self.presence.lock(), Presence::Here)
    }

    /// The CPU it last ran on.
    pub fn last_cpu(&self) -> CpuId {
        CpuId(self.last_cpu.load(Relaxed) as u32)
    }

    /// Runs user code until the next trap. The caller has checked [`Thread::wants_attention`]. `space`: of the last time, or None.
    pub fn run_user(&self, context: &mut Context, space: &mut Option<KnownSpace>) -> Trap {
        let cpu = self.cpu();
        if !self.fpu_live.load(Relaxed) {
            self.load_fpu();
        }
        let space = self.process.known_space(space);
        self.account.enters_user(cpu.now());
        if trace::on::sample() {
            crate::tracing::sample_space(space.id());
        }
        let trap = cpu.run_user(&mut context.registers, &**space.table(), &self.descheduled);
        self.account.leaves_user(cpu.now());
        trap
    }

    #[cold]
    fn load_fpu(&self) {
        let index = self.cpu().index();
        let was_last = self.process.system.claim_fpu(index, self.serial);
        if !was_last || self.fpu_on.load(Relaxed) != index + 1 {
            self.cpu().fpu_load(&self.fpu.lock());
        }
        self.fpu_live.store(true, Relaxed);
    }

    /// Lends `use_state` the extended state, saved from the CPU.
    pub fn with_fpu<T>(&self, use_state: impl FnOnce(&mut FpuState) -> T) -> T {
        let mut fpu = self.fpu.lock();
        if self.fpu_live.load(Relaxed) {
            self.cpu().fpu_save(&mut fpu);
            self.fpu_live.store(false, Relaxed);
        }
        self.fpu_on.store(0, Relaxed);
        use_state(&mut fpu)
    }

    /// The thread is about to be suspended on the CPU with this index: another may use the CPU's registers.
    fn suspend(&self, cpu: usize) {
        if self.fpu_live.load(Relaxed) {
            self.cpu().fpu_save(&mut self.fpu.lock());
            self.fpu_live.store(false, Relaxed);
            self.fpu_on.store(cpu + 1, Relaxed);
        }
        // A swap, so that what another CPU wrote before `note_descheduled` is still seen by who takes the flag.
        self.descheduled.swap(true, Relaxed);
    }

    /// It has lost the CPU with this index.
    fn stop_account(&self, cpu: usize) {
        let (system, now) = (&self.process.system, self.cpu().now());
        system.count_user(cpu, self.account.suspended(now));
        if let Some(time) = system.threads_time.get(cpu) {
            time.stop(now);
        }
    }

    /// It has got the CPU with this index.
    fn start_account(&self, cpu: usize) {
        let now = self.cpu().now();
        self.account.resumed(now);
        if let Some(time) = self.process.system.threads_time.get(cpu) {
            time.start(now);
        }
    }

    /// What it has used up to now, the stretch that is not over included.
    pub fn usage(&self) -> Usage {
        let state = self.state.lock();
        let mut usage = state.usage;
        self.account.add_to(&mut usage, || self.cpu().now());
        self.add_switches(&mut usage, TaskRef::switches);
        usage
    }

    /// What it has used goes into what travels or stays when it ends. By the thread itself.
    pub(crate) fn settle_account(&self, state: &mut ThreadState) {
        self.account.move_to(&mut state.usage, self.cpu().now());
        self.add_switches(&mut state.usage, TaskRef::take_switches);
    }

    /// Its switches as `look` reads them from the scheduler.
    fn add_switches(&self, usage: &mut Usage, look: fn(&TaskRef) -> (u64, u64)) {
        let (voluntary, involuntary) = self.task.lock().as_ref().map_or((0, 0), look);
        usage.voluntary_switches += voluntary;
        usage.involuntary_switches += involuntary;
    }

    /// Whether it has lost its CPU since the last call. (The first call answers yes.)
    pub fn was_descheduled(&self) -> bool {
        // Pairs with `note_descheduled`: what another CPU changed before it said so is seen.
        self.descheduled.load(Relaxed) && self.descheduled.swap(false, AcqRel)
    }

    /// Makes [`Thread::was_descheduled`] say yes the next time. If another CPU calls it and then flushes the table, the thread
    /// runs no more user code before that is asked.
    pub fn note_descheduled(&self) {
        self.descheduled.store(true, Release);
    }

    /// How its state says that it is scheduled.
    pub(crate) fn class(&self) -> Class {
        let state = self.state.lock();
        let priority = state.policy.1.clamp(1, 99) as u8;
        match state.policy.0 & !RESET_ON_FORK {
            FIFO => Class::Fifo(priority),
            ROUND_ROBIN => Class::RoundRobin(priority),
            BATCH => Class::Batch(state.nice),
            IDLE => Class::Idle,
            DEADLINE => self.reservation().map_or(Class::Normal(state.nice), Class::Deadline),
            _ => Class::Normal(state.nice),
        }
    }

    /// The scheduler hears what the state says now.
    pub(crate) fn reschedule(&self) {
        let class = self.class();
        // Cloned first: the scheduler may wake somebody.
        let task = self.task.lock().clone();
        if let Some(task) = task {
            self.process.system.scheduler.set_class(&task, class);
        }
    }

    /// Takes the thread out of the load: it has begun to end, though it still runs.
    pub fn discount(&self) {
        let task = self.task.lock().clone();
        if let Some(task) = task {
            self.process.system.scheduler.discount(&task);
        }
    }

    /// Whether it could run if it had a CPU.
    pub(crate) fn waits_for_cpu(&self) -> bool {
        self.task.lock().as_ref().is_some_and(TaskRef::is_waiting)
    }

    /// Starts its future on this kernel's scheduler.
    pub(crate) fn start(self: &Arc<Self>, context: Context) {
        let system = &self.process.system;
        system.counters.threads_started.fetch_add(1, Relaxed);
        let run = system.abi.clone().run(self.clone(), context);
        let mask = system.local_mask(&self.state.lock().affinity);
        let task = Box::pin(ThreadTask { thread: self.clone(), run });
        // Of the state, which is locked before the task.
        let class = self.class();
        // Held over the start: the thread may run at once on another CPU, and look for its task.
        let mut slot = self.task.lock();
        if trace::on::thread_name() {
            self.trace_name();
        }
        let task = system.scheduler.spawn_thread_for((self.actor(), self.process.cgroup()), class, mask, task);
        *slot = Some(task);
    }

    /// Has it look around: wakes it if it waits, and calls it out of user mode if it runs.
    pub fn wake(&self) {
        // Cloned first: waking may run code that looks at this thread.
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
        // It may be in user mode right now on another CPU, or about to go there with its last look behind it. What the
        // caller changed and this load pair with the exchange and the looks after it in the task's poll; a kick that
        // meets the kernel ends the user mode that follows.
        fence(SeqCst);
        if self.polled.load(SeqCst) && self.last_cpu() != self.cpu().current() {
            self.cpu().kick(self.last_cpu());
        }
    }

    // ---- signals of this thread

    /// Queues a signal for this thread and gets its attention.
    pub(crate) fn push_signal(&self, info: SignalInfo, sent: Sent) {
        // Looked at under the lock of the queue, which `follow_actions` takes after the actions have changed.
        let push = |pending: &mut Pending| {
            if !self.process.with_shared(|shared| shared.actions.ignored_since(sent.ignorings).contains(info.signal)) {
                pending.push_sent(info, sent.continues);
            }
        };
        match &mut *self.presence.lock() {
            Presence::Here => {
                let mut state = self.state.lock();
                let uid = state.credentials.uid;
                state.pending.pay(|| self.process.account(uid));
                push(&mut state.pending);
                self.pending.store(state.pending.set().0, SeqCst);
            }
            Presence::Returning(thread_context) => push(&mut thread_context.state.pending),
            Presence::Away(to) => self.process.system.forward_signal(self.process.id, self.tid, info, sent, *to),
            Presence::Ended => {}
        }
        self.process.signal_came();
        self.wake();
    }

    /// Signals that it blocks now.
    pub fn blocked(&self) -> SignalSet {
        SignalSet(self.blocked.load(Relaxed))
    }

    /// Sets the mask; KILL and STOP can't be blocked.
    pub fn set_blocked(&self, set: SignalSet) {
        let set = set.without(SignalSet::UNBLOCKABLE);
        self.state.lock().blocked = set;
        self.blocked.store(set.0, SeqCst);
    }

    /// Blocks `mask` until the wait that follows is over and the signal it let through is handled.
    pub fn set_temporary_mask(&self, mask: SignalSet) {
        let old = self.blocked();
        self.state.lock().saved_blocked = Some(old);
        self.set_blocked(mask);
    }

    /// The mask to go back to, if a temporary one is in force.
    pub fn take_saved_mask(&self) -> Option<SignalSet> {
        self.state.lock().saved_blocked.take()
    }

    /// Signals that are pending for it or its process.
    pub fn pending(&self) -> SignalSet {
        SignalSet(self.pending.load(SeqCst)).union(self.process.pending())
    }

    /// A pending, unblocked signal, or something else that ends a wait.
    pub fn is_interrupted(&self) -> bool {
        !self.pending().without(self.blocked()).is_empty()
            || self.process.has(Flags::ENDING | Flags::STOPPED)
            || self.doomed.load(Relaxed)
    }

    /// Whether the thread must do something before it returns to user mode.
    pub fn wants_attention(&self) -> bool {
        self.is_interrupted() || self.misplaced.load(Relaxed)
    }

    /// Whether it must end.
    pub fn must_end(&self) -> bool {
        self.process.has(Flags::ENDING) || self.doomed.load(Relaxed)
    }

    /// Waits at the user boundary while the process is stopped.
    pub async fn wait_while_stopped(&self) {
        let _waits = self.waits(RunState::Interruptible);
        let check = || (!self.process.has(Flags::STOPPED) || self.must_end()).then_some(());
        self.process.changed.wait_until(check).await;
    }

    /// Takes one pending signal of `wanted`, for which the thread has waited: its own first, then one of its process (asking
    /// the home).
    pub async fn take_signal(&self, wanted: SignalSet) -> Option<Taken> {
        self.take(wanted, false).await
    }

    /// Takes a pending signal in order to perform its action.
    pub async fn take_to_act(&self, wanted: SignalSet) -> Option<Taken> {
        self.take(wanted, true).await
    }

    async fn take(&self, wanted: SignalSet, acts: bool) -> Option<Taken> {
        let own = {
            let mut state = self.state.lock();
            let own = state.pending.take(wanted);
            self.pending.store(state.pending.set().0, SeqCst);
            own
        };
        if let Some(own) = own {
            self.process.note_taken(&own.info).await;
            return Some(own);
        }
        if self.process.pending().0 & wanted.0 == 0 {
            return None;
        }
        self.process.take(wanted, acts).await
    }

    /// Drops the stop signals that were sent before SIGCONT number `continues`.
    pub(crate) fn continued(&self, continues: u64) {
        let mut state = self.state.lock();
        state.pending.continued(continues);
        self.pending.store(state.pending.set().0, SeqCst);
    }

    /// The actions of the process have changed, or may have.
    pub(crate) fn follow_actions(&self) {
        let mut state = self.state.lock();
        self.process.with_shared(|shared| state.pending.follow(&shared.actions));
        self.pending.store(state.pending.set().0, SeqCst);
    }

    pub(crate) fn discard_signals(&self, signals: SignalSet) {
        let mut state = self.state.lock();
        state.pending.discard(signals);
        self.pending.store(state.pending.set().0, SeqCst);
    }

    /// Replaces everything that travels (a return to this kernel).
    pub(crate) fn install(&self, state: ThreadState) {
        self.blocked.store(state.blocked.0, SeqCst);
        // What was written there since names CPUs of other kernels. It need not have been suspended meanwhile: while
        // this CPU was held up, another one of this kernel may have taken in the answer and the return.
        self.rseq_cpu.store(u32::MAX, Relaxed);
        self.note_descheduled();
        self.monitored.store(state.monitored, Relaxed);
        let mut mine = self.state.lock();
        self.pending.store(state.pending.set().0, SeqCst);
        // What it used here since it left was the move's.
        self.settle_account(&mut mine);
        *mine = state;
    }

    // ---- waiting

    /// `wait`, unless something interrupts it first. What was begun on another kernel is waited for all the same
    /// ([`Shield`]), also by a thread that is killed: what it took there would be lost to others.
    pub async fn interruptible<T>(&self, wait: impl Future<Output = T>) -> Result<T, Interrupted> {
        let _waits = self.waits(RunState::Interruptible);
        self.unless(|| self.is_interrupted(), wait).await.ok_or(Interrupted)
    }

    /// `wait`, unless the thread must end first; other signals stay pending. What was begun on another kernel is waited for all the same.
    pub async fn unless_killed<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let _waits = self.waits(RunState::Uninterruptible);
        self.unless(|| self.must_end(), wait).await
    }

    /// `wait`, unless the thread leaves first.
    async fn unless<T>(&self, leaves: impl Fn() -> bool, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = core::pin::pin!(wait);
        core::future::poll_fn(|context| {
            // The thread's own waker is registered by its task, so a signal polls us again.
            if let Poll::Ready(value) = wait.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            if !leaves() {
                return Poll::Pending;
            }
            if self.shield.must_stay() {
                if let Poll::Ready(value) = wait.as_mut().poll(context) {
                    return Poll::Ready(Some(value));
                }
                if self.shield.must_stay() {
                    return Poll::Pending;
                }
            }
            Poll::Ready(None)
        })
        .await
    }

    /// Completes when the thread is interrupted.
    pub async fn interruption(&self) {
        let _waits = self.waits(RunState::Interruptible);
        core::future::poll_fn(|_| if self.is_interrupted() { Poll::Ready(()) } else { Poll::Pending }).await
    }
}

/// The task of a thread: saves the extended state whenever the thread is suspended, and keeps the waker.
struct ThreadTask {
    thread: Arc<Thread>,
    run: BoxFuture<'static, ()>,
}

impl Future for ThreadTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        {
            let mut waker = self.thread.waker.lock();
            if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
        let cpu = self.thread.cpu();
        let index = cpu.index();
        self.thread.last_cpu.store(u64::from(cpu.current().0), Relaxed);
        self.thread.start_account(index);
        // A full barrier: see `Thread::wake`.
        self.thread.polled.swap(true, SeqCst);
        let poll = self.run.as_mut().poll(context);
        self.thread.polled.store(false, Relaxed);
        self.thread.stop_account(index);
        if poll.is_pending() {
            self.thread.suspend(index);
        } else {
            // A finished thread's waker would keep its task alive.
            self.thread.waker.lock().take();
            self.thread.ends();
            self.thread.fpu_live.store(false, Relaxed);
        }
        poll
    }
}
