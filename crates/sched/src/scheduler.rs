//! Tasks and the CPUs that run them.
//!
//! The one dangerous interleaving: CPU A finds its queue empty and is about to halt while CPU B queues a
//! task for it. B pushes, then reads A's `idle` flag; A sets `idle`, then looks into its queue once more
//! (both SeqCst). So either A sees the task or B sees the flag and kicks A out of its halt.
//!
//! A second one: the class of a task changes (sched_setscheduler) while the task is on its way into a queue.
//! The changer stores the class, then reads which CPU the task is with, and looks into that CPU's queue; the
//! queuer, with the queue locked, stores the CPU, then reads the class (both SeqCst). So either the task goes
//! in with the new class, or the changer finds it in there and puts it where it belongs. What CPUs a thread may use changes
//! in the same way ([`Scheduler::set_allowed`]): the queuer looks at that too after it has stored the CPU, and takes another one.

use crate::{
    class::{Class, DEADLINE_LEVEL},
    fair::SLICE_NS,
    load::{threads, worth},
    local::{Local, NEVER},
    monitored::{self, PendingWake},
    queue::Queue,
    realtime::ROUND_ROBIN_NS,
    sync::{fence, in_one_order, AtomicBool, AtomicUsize, Ordering::*},
    talk::Talk,
    task::{token, Entity, Runnable, TaskRef},
    timer::{Sleep, Timers},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use async_task::{ScheduleInfo, WithInfo};
use core::future::Future;
use machine::{yield_now, Actor, BoxFuture, Cpu, CpuId, GroupId, KernelId};

/// Whom the kernel's own work is done for, and who pays for its pages.
pub(crate) const NOBODY: (Actor, GroupId) = (Actor::NOBODY, GroupId::ROOT);
/// An alarm that is wanted so close to the one that is set (ns) need not be set anew.
const ALARM_SLACK_NS: u64 = 20_000;
/// Pieces of work in a row ([`machine::pause`]) after which the CPU looks around in any case: in the kernel nothing tells it that messages
/// have come.
const MOST_PIECES: u32 = 16;
/// A thread that goes to user mode is not interrupted for a timer sooner than this (Linux's default timer slack).
const TIMER_SLACK_NS: u64 = 50_000;

pub struct Scheduler {
    pub(crate) cpu: Arc<dyn Cpu>,
    pub(crate) locals: Vec<Local>,
    timers: Arc<Timers>,
    talk: Talk,
    /// A thread of this kernel has, or has had, a deadline.
    has_deadlines: AtomicBool,
    /// How many CPUs have deferred work (deferred.rs).
    pub(crate) deferring: AtomicUsize,
    /// A task of this kernel makes pages that are charged to a group, or has done so.
    has_payers: AtomicBool,
    /// Whether an alarm that is due ends user mode on CPUs of this kind ([`Cpu::alarm_ends_user_mode`]).
    alarm_ends_user_mode: bool,
}

impl Scheduler {
    /// The scheduler of `kernel`, which has these CPUs.
    pub fn new(cpu: Arc<dyn Cpu>, kernel: KernelId) -> Arc<Self> {
        let locals = cpu.cpus().iter().map(|_| Local::new()).collect();
        Arc::new(Scheduler {
            timers: Timers::new(cpu.clone()),
            alarm_ends_user_mode: cpu.alarm_ends_user_mode(),
            cpu,
            locals,
            talk: Talk::new(kernel),
            has_deadlines: AtomicBool::new(false),
            deferring: AtomicUsize::new(0),
            has_payers: AtomicBool::new(false),
        })
    }

    pub fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    /// Who has woken whom, where not both are on this kernel.
    pub fn talk(&self) -> &Talk {
        &self.talk
    }

    pub fn sleep_until(&self, at: u64) -> Sleep {
        self.timers.sleep_until(at)
    }

    /// Starts a user thread's future. It may run on this kernel's CPUs whose index bit is set in `allowed`.
    pub fn spawn_thread(self: &Arc<Self>, class: Class, allowed: u64, task: BoxFuture<'static, ()>) -> TaskRef {
        self.spawn_thread_for((Actor::NOBODY, GroupId::ROOT), class, allowed, task)
    }

    /// The same: who wakes it wakes the actor, and what it does the actor does; and the group pays for the pages that it makes.
    pub fn spawn_thread_for(
        self: &Arc<Self>,
        works_for: (Actor, GroupId),
        class: Class,
        allowed: u64,
        task: BoxFuture<'static, ()>,
    ) -> TaskRef {
        self.start(class, works_for, allowed, task)
    }

    /// Starts kernel work.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(Class::Kernel, NOBODY, u64::MAX, Box::pin(task));
    }

    /// Starts kernel work that stays on one CPU, by its index; from 64 on any CPU of this kernel may take it.
    pub fn spawn_on(self: &Arc<Self>, cpu: usize, task: impl Future<Output = ()> + Send + 'static) {
        self.start(Class::Kernel, NOBODY, 1u64.checked_shl(cpu as u32).unwrap_or(u64::MAX), Box::pin(task));
    }

    pub(crate) fn start(
        self: &Arc<Self>,
        class: Class,
        (actor, payer): (Actor, GroupId),
        allowed: u64,
        task: BoxFuture<'static, ()>,
    ) -> TaskRef {
        let entity = Arc::new(Entity::new(class, actor, payer, self.here(), allowed));
        if matches!(class, Class::Deadline(_)) {
            self.has_deadlines.store(true, Relaxed);
        }
        let scheduler = Arc::downgrade(self);
        let schedule = move |runnable: Runnable, info: ScheduleInfo| {
            if let Some(scheduler) = scheduler.upgrade() {
                match info.woken_while_running {
                    // Called by the CPU that has just run it.
                    true => scheduler.put_back(runnable),
                    false => scheduler.enqueue(runnable),
                }
            }
        };
        let builder = async_task::Builder::new().metadata(entity.clone());
        let (runnable, task) = builder.spawn(move |_| task, WithInfo(schedule));
        task.detach();
        runnable.schedule();
        TaskRef(entity)
    }

    pub(crate) fn here(&self) -> usize {
        self.cpu.index()
    }

    /// For whom this CPU works.
    pub fn actor(&self) -> Actor {
        Actor(self.locals[self.here()].actor.load(Relaxed))
    }

    /// This CPU works for `actor` from now on.
    pub(crate) fn set_actor(&self, actor: Actor) {
        self.locals[self.here()].actor.store(actor.0, Relaxed);
    }

    /// Who pays for the pages that are made on this CPU.
    #[inline]
    pub fn payer(&self) -> GroupId {
        // Every new page asks, and most machines have no groups.
        if !self.has_payers.load(Relaxed) {
            return GroupId::ROOT;
        }
        GroupId(self.locals[self.here()].payer.load(Relaxed) as u16)
    }

    /// `payer` does from now on, until the next task runs.
    pub fn set_payer(&self, payer: GroupId) {
        self.set_payer_of(&self.locals[self.here()], payer);
    }

    fn set_payer_of(&self, local: &Local, payer: GroupId) {
        // Looked at first: all CPUs read this line.
        if !payer.is_root() && !self.has_payers.load(Relaxed) {
            self.has_payers.store(true, Relaxed);
        }
        local.payer.store(payer.0.into(), Relaxed);
    }

    /// Position of a global CPU number among this kernel's CPUs.
    pub fn index_of(&self, cpu: CpuId) -> Option<usize> {
        self.cpu.cpus().binary_search(&cpu).ok()
    }

    fn enqueue(&self, runnable: Runnable) {
        self.talk.note(self.actor(), runnable.metadata().actor());
        let cpu = self.place(runnable.metadata());
        if trace::on::sched_wakeup() {
            self.trace_wakeup(runnable.metadata(), cpu);
        }
        self.push(runnable, cpu, true);
    }

    /// Puts a task into the queue of a CPU; `wakes`: it has waited for something else than one.
    pub(crate) fn push(&self, runnable: Runnable, mut cpu: usize, wakes: bool) {
        let entity = runnable.metadata().clone();
        let now = self.cpu.now();
        let matters = loop {
            let local = &self.locals[cpu];
            let mut queue = local.queue();
            entity.cpu.store(cpu, SeqCst);
            in_one_order();
            // Since the CPU was chosen the thread may have been forbidden to use it.
            if !entity.may_run_on(cpu) {
                let other = self.place(&entity);
                if other != cpu {
                    cpu = other;
                    continue;
                }
            }
            entity.queued.store(true, Relaxed);
            let class = entity.class();
            local.load.fetch_add(entity.renew_share().0, Relaxed);
            break queue.enqueue(runnable, class, entity.kept(now, wakes), now);
        };
        // Pairs with the store of `idle` in `prepare_idle` (see the head of this file). A busy sibling is
        // kicked too, so that it looks whose turn it is, but not by each of a thousand that wait for the end of a slice.
        fence(SeqCst);
        if cpu != self.here() && matters {
            self.cpu.kick(self.cpu.cpus()[cpu]);
        }
    }

    /// The task that has just run here goes on waiting for the CPU.
    fn put_back(&self, runnable: Runnable) {
        let here = self.here();
        let entity = runnable.metadata().clone();
        entity.put_back.store(true, Relaxed);
        let local = &self.locals[here];
        let mut queue = local.queue();
        // With the queue locked: who forbids it this CPU later finds it in there.
        if !entity.may_run_on(here) {
            drop(queue);
            self.leave(&entity, here);
            let cpu = self.place(&entity);
            self.trace_move(&entity, here, cpu);
            return self.push(runnable, cpu, false);
        }
        entity.queued.store(true, Relaxed);
        let (_, change) = entity.renew_share();
        if change != 0 {
            local.load.fetch_add(change, Relaxed);
        }
        if queue.put_back(runnable, entity.class(), self.cpu.now()) {
            entity.overran.store(true, Relaxed);
        }
    }

    /// The task that has just run here waits for no CPU of ours any more.
    fn leave(&self, entity: &Entity, here: usize) {
        let local = &self.locals[here];
        let now = self.cpu.now();
        let kept = local.queue().block(now);
        entity.keep(kept, now);
        local.load.fetch_sub(entity.share(), Relaxed);
    }

    /// The CPU for a task that became runnable: where it last ran if that is idle, else an idle CPU it may
    /// use, else one where it is the most urgent, else the least loaded.
    pub(crate) fn place(&self, entity: &Entity) -> usize {
        let last = entity.cpu.load(Relaxed);
        if self.locals.len() == 1 {
            return 0;
        }
        if entity.may_run_on(last) && self.locals[last].load.load(Relaxed) == 0 {
            return last;
        }
        let class = entity.class();
        let level = class.level();
        (0..self.locals.len())
            .filter(|&cpu| entity.may_run_on(cpu))
            .min_by_key(|&cpu| {
                let local = &self.locals[cpu];
                // A fair task need not look whom it would take the CPU from; one of the real-time class must.
                let blocked = level > 2 && local.level.load(Relaxed) >= level;
                // One that has a deadline takes the CPU from whose deadline is last.
                let due = if blocked && level == DEADLINE_LEVEL { local.due.load(Relaxed) } else { NEVER };
                let load = local.load.load(Relaxed);
                (blocked, NEVER - due, worth(load), threads(load), cpu != last)
            })
            .unwrap_or(last)
    }

    /// Wakes due timers and runs one task; false if there was none.
    pub fn turn(self: &Arc<Self>) -> bool {
        self.turn_at(self.here(), self.cpu.now())
    }

    /// The same for who knows the index of this CPU and the time.
    pub fn turn_at(self: &Arc<Self>, here: usize, now: u64) -> bool {
        let local = &self.locals[here];
        local.alarm.store(NEVER, Relaxed);
        let now = self.wake_sleepers(here, now);
        let has_deadlines = self.has_deadlines.load(Relaxed);
        if has_deadlines {
            self.gather_due(here);
        }
        let mut next = self.take(here, now);
        if next.is_none() && self.steal(here) {
            next = self.take(here, now);
        }
        let Some((runnable, _)) = next else {
            local.note_running(None, None);
            return false;
        };
        if has_deadlines {
            self.spread_due(here);
        }
        let entity = runnable.metadata().clone();
        entity.queued.store(false, Relaxed);
        local.turns.fetch_add(1, Relaxed);
        local.pieces.store(0, Relaxed);
        if entity.share() != 0 {
            local.note_thread(&entity);
        }
        let (waits_again, pending) = match trace::on::sched_switch() || trace::on::sample() {
            true => self.run_traced(here, runnable, &entity),
            false => self.run_task(here, runnable, &entity),
        };
        self.begin_deferred();
        local.actor.store(Actor::NOBODY.0, Relaxed);
        local.payer.store(GroupId::ROOT.0.into(), Relaxed);
        if !waits_again {
            entity.waits.store(entity.waits.load(Relaxed) + 1, Relaxed);
            self.leave(&entity, here);
        }
        // When this CPU counts as free: who hears of it may want it.
        self.tell(pending, here);
        true
    }

    /// Runs the task until it waits or has had its turn. Gives whether it could go on, and whom to tell that a monitored one has left.
    // In both places that call it, so that the one that does not record pays no call.
    #[inline(always)]
    pub(crate) fn run_task(&self, here: usize, runnable: Runnable, entity: &Arc<Entity>) -> (bool, PendingWake) {
        let local = &self.locals[here];
        local.actor.store(entity.actor().0, Relaxed);
        self.set_payer_of(local, entity.payer());
        if monitored::is_used() && entity.monitored.is_on() {
            self.enter_monitored(local, here, entity);
        }
        let waits_again = runnable.run();
        let pending = match monitored::is_used() && local.monitors.load(Relaxed) {
            true => self.leave_monitored(local, here, entity, !waits_again),
            false => PendingWake::default(),
        };
        (waits_again, pending)
    }

    /// Wakes whose time has come, if kernel work may. Gives the time.
    fn wake_sleepers(&self, here: usize, now: u64) -> u64 {
        if self.timers.next(here).is_none_or(|at| at > now) || self.threads_first() {
            return now;
        }
        trace::timer_expire(now);
        self.timers.fire(here);
        self.charge_kernel(now)
    }

    /// Must kernel work wait for threads on this CPU? See turns.rs.
    pub fn threads_first(&self) -> bool {
        self.locals[self.here()].queue.lock().threads_first()
    }

    /// This CPU has done kernel work since `began` that is no task. Gives the time.
    pub fn charge_kernel(&self, began: u64) -> u64 {
        let now = self.cpu.now();
        self.locals[self.here()].queue().charge_kernel(began, now);
        now
    }

    /// Kernel tasks that wait for this CPU.
    pub fn kernel_tasks(&self) -> usize {
        self.locals[self.here()].queue.lock().kernel_tasks()
    }

    /// Whether this CPU has left messages where they are, because it is the turn of threads or of tasks. Threads are interrupted for them
    /// when their turn is over, and the CPU does not halt.
    pub fn note_mail(&self, waits: bool) {
        let local = &self.locals[self.here()];
        let _queue = local.queue();
        local.mail.store(waits, Relaxed);
    }

    fn take(&self, here: usize, now: u64) -> Option<(Runnable, Class)> {
        let mut queue = self.locals[here].queue();
        let next = queue.next(now);
        if let Some((runnable, class)) = &next {
            queue.name_running(token(runnable.metadata()));
            self.locals[here].note_running(Some(*class), queue.due());
        }
        next
    }

    /// No thread of this kernel has a deadline any more.
    pub fn forget_deadlines(&self) {
        self.has_deadlines.store(false, Relaxed);
    }

    /// Called by a thread that ends: it needs the CPU for a moment yet, to give back what it has. Nobody who looks for a
    /// CPU now should go elsewhere because of that.
    pub fn discount(&self, task: &TaskRef) {
        self.locals[self.here()].load.fetch_sub(task.0.share.swap(0, Relaxed), Relaxed);
    }

    /// Gives a task another class, at once also where it waits.
    pub fn set_class(&self, task: &TaskRef, class: Class) {
        let entity = &task.0;
        if matches!(class, Class::Deadline(_)) {
            self.has_deadlines.store(true, Relaxed);
        }
        if !entity.set_class(class) {
            return;
        }
        // Between the store and the load: see the head of this file.
        fence(SeqCst);
        let cpu = entity.cpu.load(SeqCst);
        let now = self.cpu.now();
        {
            let mut queue = self.locals[cpu].queue();
            if !queue.change_waiting(|waiting| Arc::ptr_eq(waiting.metadata(), entity), class, now) {
                queue.change_running(token(entity), class, now);
            }
        }
        if cpu != self.here() {
            self.cpu.kick(self.cpu.cpus()[cpu]);
        }
    }

    /// Called by a thread about to (re-)enter user mode: must it let others run first? Also sets the alarm for
    /// the moment when it must, or the next timer if that is earlier.
    pub fn should_yield(&self) -> bool {
        let here = self.here();
        // The common case: nothing has happened since. If the alarm is due, it ends user mode at once.
        let quiet = self.locals[here].settled.load(Relaxed) && !self.timers.is_changed(here);
        !(quiet && self.alarm_ends_user_mode) && self.must_yield(here)
    }

    /// The same for a thread that stays in the kernel, where no alarm can interrupt it.
    pub fn should_yield_in_kernel(&self) -> bool {
        self.must_yield(self.here())
    }

    fn must_yield(&self, here: usize) -> bool {
        let local = &self.locals[here];
        let now = self.cpu.now();
        if local.settled.load(Relaxed) && !self.timers.is_changed(here) && now < local.alarm.load(Relaxed) {
            return false;
        }
        // Not by giving up the CPU: where a thousand sleepers are due one after the other, no thread would come to anything.
        let mut timer = self.timers.look(here).unwrap_or(NEVER);
        if timer <= now {
            self.wake_sleepers(here, now);
            timer = self.timers.look(here).unwrap_or(NEVER);
        }
        let work = timer <= now || local.mail.load(Relaxed);
        let end = {
            let mut queue = local.queue.lock();
            if queue.must_switch(now, work) {
                return true;
            }
            // Its class may have changed since it was chosen.
            local.note_running(queue.running(), queue.due());
            local.settled.store(true, Relaxed);
            queue.deadline(work).unwrap_or(NEVER)
        };
        if self.has_deadlines.load(Relaxed) {
            self.spread_due(here);
        }
        // Not in the past: the queue would have said so, but for rounding. Timers that are due wait with the rest of kernel work.
        let end = end.max(now + 1);
        let wanted = if timer > now { end.min(timer.max(now + TIMER_SLACK_NS)) } else { end };
        let set = local.alarm.load(Relaxed);
        let same = set > now && wanted.abs_diff(set) <= ALARM_SLACK_NS || set == wanted;
        if !same {
            local.alarm.store(wanted, Relaxed);
            self.cpu.set_alarm((wanted != NEVER).then_some(wanted));
        }
        false
    }

    /// [`machine::pause`] on a CPU of this kernel.
    pub async fn pause(&self) {
        if self.is_turn_over() {
            yield_now().await;
        }
    }

    /// Asked between two pieces of a task's work: has it had the CPU long enough?
    pub(crate) fn is_turn_over(&self) -> bool {
        let pieces = &self.locals[self.here()].pieces;
        let done = pieces.load(Relaxed) + 1;
        pieces.store(done, Relaxed);
        done >= MOST_PIECES || self.should_yield_in_kernel()
    }

    /// Before halting: announces idleness and arms the alarm. False if work turned up; then do not halt.
    pub fn prepare_idle(&self) -> bool {
        let here = self.here();
        let local = &self.locals[here];
        local.idle.store(true, SeqCst);
        let (waiting, replenishment) = {
            let queue = local.queue.lock();
            (queue.waiting(), queue.next_replenishment())
        };
        let alarm = self.timers.next(here).into_iter().chain(replenishment).min();
        if waiting > 0 || local.mail.load(Relaxed) || alarm.is_some_and(|at| at <= self.cpu.now()) {
            local.idle.store(false, SeqCst);
            return false;
        }
        self.cpu.set_alarm(alarm);
        if trace::on::sched_switch() {
            self.trace_switch(self.here(), (trace::IDLE, 0), 0);
        }
        true
    }

    /// After halting for `ns`.
    pub fn end_idle(&self, ns: u64) {
        let local = &self.locals[self.here()];
        local.idle.store(false, SeqCst);
        local.idle_ns.fetch_add(ns, Relaxed);
    }

    /// Time each CPU of this kernel has been idle, in ns.
    pub fn idle_ns(&self) -> Vec<u64> {
        self.locals.iter().map(|local| local.idle_ns.load(Relaxed)).collect()
    }

    /// How often a task was given a CPU of this kernel.
    pub fn switches(&self) -> u64 {
        self.locals.iter().map(|local| local.turns.load(Relaxed)).sum()
    }

    /// Threads running or waiting for a CPU.
    pub fn load(&self) -> usize {
        self.locals.iter().map(|local| threads(local.load.load(Relaxed))).sum()
    }

    /// What they are worth as load, in [`UNIT`](crate::UNIT)ths of a thread of ordinary priority.
    pub fn worth(&self) -> usize {
        self.locals.iter().map(|local| worth(local.load.load(Relaxed))).sum()
    }

    /// [`Scheduler::worth`], if the part of this CPU has changed since this was last asked here: siblings'
    /// lines are not read without need.
    pub fn changed_worth(&self, here: usize) -> Option<usize> {
        let local = &self.locals[here];
        let own = local.load.load(Relaxed);
        (local.published.swap(own, Relaxed) != own).then(|| self.worth())
    }

    /// Does a thread wait for the CPU with this index?
    pub fn has_waiting(&self, cpu: usize) -> bool {
        threads(self.locals[cpu].load.load(Relaxed)) > 1
    }

    /// sched_yield: lets the others of its class run, as far as that class does.
    pub async fn yield_thread(&self) {
        let local = &self.locals[self.here()];
        // Who is alone goes on at once: what else there is to look at ends user mode.
        // (But one that has reserved time gives up the rest of its period.)
        let is_alone = |queue: &Queue<Runnable>| queue.waiting() == 0 && queue.due().is_none();
        if self.alarm_ends_user_mode && is_alone(&local.queue.lock()) {
            return;
        }
        local.queue().ask_yield();
        yield_now().await;
    }

    /// The time that a thread of this class gets at once (sched_rr_get_interval).
    pub fn interval(class: Class) -> u64 {
        match class {
            Class::Fifo(_) | Class::Deadline(_) => 0,
            Class::RoundRobin(_) => ROUND_ROBIN_NS,
            _ => SLICE_NS,
        }
    }
}
