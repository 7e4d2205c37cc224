//! What the scheduler keeps about one task, and the handle that others have on it.

use crate::{
    class::Class,
    deadline::{Budget, Reservation},
    fair::lag_after,
    load::load_of,
    monitored::Monitored,
    queue::Kept,
    sync::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::*},
};
use alloc::sync::Arc;
use machine::{Actor, GroupId};

pub(crate) type Runnable = async_task::Runnable<Arc<Entity>>;

/// A name for a task.
pub(crate) fn token(entity: &Arc<Entity>) -> usize {
    Arc::as_ptr(entity) as usize
}

/// What the scheduler keeps about a task.
pub(crate) struct Entity {
    /// [`Class::to_bits`], and what the deadline class reserves: runtime, deadline, period.
    pub class: AtomicU32,
    pub reservation: [AtomicU64; 3],
    /// Index of the CPU whose queue it is in, or where it last was.
    pub cpu: AtomicUsize,
    /// Bit i: may run on CPU i of this kernel. Kernels of more than 64 CPUs take whole words per task
    /// only when someone builds one; see docs/limits.md.
    pub allowed: AtomicU64,
    /// Whose work it is.
    pub actor: AtomicU32,
    /// The control group that pays for the pages that it makes.
    pub payer: AtomicU32,
    /// It waits in a queue.
    pub queued: AtomicBool,
    /// What it counts as load wherever it runs or waits ([`load_of`]): a thread, until it ends. Changes only while it runs, or under
    /// the lock of the queue that it is put into.
    pub share: AtomicUsize,
    /// What the fair class owed it when it went to sleep, and when that was.
    pub lag: AtomicI64,
    pub slept: AtomicU64,
    /// What it had left of its reservation then, and by when.
    pub budget: (AtomicI64, AtomicU64),
    /// It has used up what it had reserved since somebody last asked.
    pub overran: AtomicBool,
    /// It could have gone on when it last lost its CPU.
    pub put_back: AtomicBool,
    /// How often it has lost its CPU because it waited for something, and to another thread although it could have gone on.
    /// Written by the CPU that runs it.
    pub waits: AtomicU64,
    pub preemptions: AtomicU64,
    /// The last thing that a CPU said of the task in the trace is that it runs the task. Cleared when that CPU says that it has left the task.
    pub traced_here: AtomicBool,
    /// Where in its program it was when it last lost its CPU, for samples.
    pub position: trace::UserPosition,
    /// Whether its process hears of it when it waits (monitor.rs).
    pub monitored: Monitored,
}

impl Entity {
    /// It last was on CPU `cpu` of this kernel, by index.
    pub fn new(class: Class, actor: Actor, payer: GroupId, cpu: usize, allowed: u64) -> Entity {
        let reserved = match class {
            Class::Deadline(Reservation { runtime, deadline, period }) => [runtime, deadline, period],
            _ => [0; 3],
        };
        Entity {
            class: AtomicU32::new(class.to_bits()),
            reservation: reserved.map(AtomicU64::new),
            cpu: AtomicUsize::new(cpu),
            allowed: AtomicU64::new(allowed),
            actor: AtomicU32::new(actor.0),
            payer: AtomicU32::new(payer.0.into()),
            queued: AtomicBool::new(false),
            share: AtomicUsize::new(load_of(class)),
            lag: AtomicI64::new(0),
            slept: AtomicU64::new(0),
            budget: (AtomicI64::new(0), AtomicU64::new(0)),
            overran: AtomicBool::new(false),
            put_back: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            traced_here: AtomicBool::new(false),
            position: trace::UserPosition::default(),
            monitored: Monitored::new(),
        }
    }

    /// Whom a trace shows while the task runs.
    pub fn traced(&self) -> u32 {
        match (self.class(), self.actor().thread().0) {
            (Class::Kernel, _) | (_, 0) => trace::KERNEL_WORK,
            (_, thread) => thread,
        }
    }

    /// The same, and its priority as Linux's traces have it; 0 of what is no thread.
    pub fn traced_with_priority(&self) -> (u32, u8) {
        let priority = match self.class() {
            Class::Kernel => return (trace::KERNEL_WORK, 0),
            // Linux: -1.
            Class::Deadline(_) => 0,
            Class::Fifo(priority) | Class::RoundRobin(priority) => 99u8.saturating_sub(priority),
            Class::Normal(nice) | Class::Batch(nice) => 120u8.saturating_add_signed(nice),
            Class::Idle => 139,
        };
        match self.actor().thread().0 {
            0 => (trace::KERNEL_WORK, 0),
            thread => (thread, priority),
        }
    }

    pub fn class(&self) -> Class {
        Class::from_bits(self.class.load(SeqCst), || self.reservation())
    }

    /// What it has reserved. A CPU that reads this while it changes may get a mixture; who changes it looks for the task in the queues then.
    fn reservation(&self) -> Reservation {
        let [runtime, deadline, period] = &self.reservation;
        Reservation { runtime: runtime.load(Relaxed), deadline: deadline.load(Relaxed), period: period.load(Relaxed) }
    }

    /// Takes this class. False: it has it already.
    pub fn set_class(&self, class: Class) -> bool {
        if let Class::Deadline(Reservation { runtime, deadline, period }) = class {
            self.overran.store(false, Relaxed);
            for (to, value) in self.reservation.iter().zip([runtime, deadline, period]) {
                to.store(value, Relaxed);
            }
            self.class.swap(class.to_bits(), SeqCst);
            return true;
        }
        self.class.swap(class.to_bits(), SeqCst) != class.to_bits()
    }

    pub fn payer(&self) -> GroupId {
        GroupId(self.payer.load(Relaxed) as u16)
    }

    pub fn actor(&self) -> Actor {
        Actor(self.actor.load(Relaxed))
    }

    pub fn share(&self) -> usize {
        self.share.load(Relaxed)
    }

    /// Its share, with its class as it is now; and by how much that has changed.
    pub fn renew_share(&self) -> (usize, usize) {
        let old = self.share();
        if old == 0 {
            return (0, 0);
        }
        let new = load_of(self.class());
        if new != old {
            self.share.store(new, Relaxed);
        }
        (new, new.wrapping_sub(old))
    }

    pub fn may_run_on(&self, cpu: usize) -> bool {
        cpu >= 64 || self.allowed.load(SeqCst) >> cpu & 1 == 1
    }

    /// What it has now of what it had when it left the queue, because it waited (`wakes`) or to go to another one.
    pub fn kept(&self, now: u64, wakes: bool) -> Kept {
        let budget = Budget { left: self.budget.0.load(Relaxed), due: self.budget.1.load(Relaxed) };
        Kept { lag: lag_after(self.lag.load(Relaxed), now.saturating_sub(self.slept.load(Relaxed))), budget, wakes }
    }

    /// It leaves the queue.
    pub fn keep(&self, kept: Kept, now: u64) {
        self.lag.store(kept.lag, Relaxed);
        self.budget.0.store(kept.budget.left, Relaxed);
        self.budget.1.store(kept.budget.due, Relaxed);
        self.slept.store(now, Relaxed);
    }
}

/// A handle on a task's scheduling.
#[derive(Clone)]
pub struct TaskRef(pub(crate) Arc<Entity>);

impl TaskRef {
    /// Restricts the task to CPUs of this kernel whose index bit is set; takes effect when it is next queued.
    pub fn set_allowed(&self, mask: u64) {
        self.0.allowed.store(mask, SeqCst);
    }

    /// Says who pays for the pages that it makes, from when it next gets a CPU on.
    pub fn set_payer(&self, payer: GroupId) {
        self.0.payer.store(payer.0.into(), Relaxed);
    }

    /// How often it has waited for something, and how often another thread was given its CPU although it could have gone on (also
    /// by its own wish: sched_yield).
    pub fn switches(&self) -> (u64, u64) {
        (self.0.waits.load(Relaxed), self.0.preemptions.load(Relaxed))
    }

    /// [`TaskRef::switches`], which begin at zero again. By the task itself, or while it waits.
    pub fn take_switches(&self) -> (u64, u64) {
        let taken = self.switches();
        self.0.waits.store(0, Relaxed);
        self.0.preemptions.store(0, Relaxed);
        taken
    }

    /// Whether it has used up what it had reserved since the last call.
    pub fn take_overrun(&self) -> bool {
        self.0.overran.load(Relaxed) && self.0.overran.swap(false, Relaxed)
    }

    /// It could run, but another has the CPU, or it has used up what it had reserved.
    pub fn is_waiting(&self) -> bool {
        self.0.queued.load(Relaxed)
    }
}
