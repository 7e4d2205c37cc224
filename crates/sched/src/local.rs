//! What the scheduler keeps about one CPU.

use crate::{
    class::Class,
    queue::Queue,
    sync::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering::*},
    task::{token, Entity, Runnable},
};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    sync::{Lock, LockGuard},
    BoxFuture,
};

/// No alarm.
pub(crate) const NEVER: u64 = u64::MAX;

/// One CPU's. Lines of its own: siblings read it only when they look for work, or for a CPU.
#[repr(align(128))]
pub(crate) struct Local {
    pub queue: Lock<Queue<Runnable>>,
    /// The queue is as it was when [`crate::Scheduler::should_yield`] last looked. Written under the queue's lock.
    pub settled: AtomicBool,
    pub idle: AtomicBool,
    /// Messages wait until kernel work may go on ([`crate::Scheduler::note_mail`]).
    pub mail: AtomicBool,
    /// For whom this CPU works ([`machine::Actor`]). Only this CPU uses it.
    pub actor: AtomicU32,
    /// The control group that pays for pages made on it ([`machine::GroupId`]). Only this CPU uses it.
    pub payer: AtomicU32,
    /// [`crate::Class::level`] of the task that runs.
    pub level: AtomicU8,
    /// Its deadline; [`NEVER`]: it has none.
    pub due: AtomicU64,
    /// Threads queued or running here: the sum of their [`crate::load::load_of`].
    pub load: AtomicUsize,
    /// What `load` was when this kernel's load was last published.
    pub published: AtomicUsize,
    /// Work of the thread that runs here, for before it goes back to user mode ([`crate::Scheduler::defer`]).
    pub deferred: Lock<Vec<BoxFuture<'static, ()>>>,
    /// The hardware's alarm, as far as this CPU knows; NEVER: none.
    pub alarm: AtomicU64,
    pub idle_ns: AtomicU64,
    /// Tasks it has run.
    pub turns: AtomicU64,
    /// Pieces of work that the present one has done.
    pub pieces: AtomicU32,
    /// The name of the last of them that was a thread.
    pub last_thread: AtomicUsize,
    /// Whom the trace shows on this CPU (tracing.rs). Only this CPU uses it.
    pub traced: AtomicU32,
    /// The task that it runs is monitored (monitor.rs). Only this CPU uses it: the task's own flag may be another CPU's as soon as the task has been left.
    pub monitors: AtomicBool,
    /// Since when somebody wants to hear that this CPU has nothing to run ([`crate::Scheduler::take_stall`]), in ns; 0: nobody.
    pub stalls: AtomicU64,
}

impl Local {
    pub fn new() -> Local {
        Local {
            queue: Lock::new(Queue::default()),
            settled: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            mail: AtomicBool::new(false),
            actor: AtomicU32::new(0),
            payer: AtomicU32::new(0),
            level: AtomicU8::new(0),
            due: AtomicU64::new(NEVER),
            load: AtomicUsize::new(0),
            published: AtomicUsize::new(usize::MAX),
            deferred: Lock::default(),
            alarm: AtomicU64::new(NEVER),
            idle_ns: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            pieces: AtomicU32::new(0),
            last_thread: AtomicUsize::new(0),
            traced: AtomicU32::new(trace::IDLE),
            monitors: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
        }
    }

    /// What siblings see of the task that runs.
    pub fn note_running(&self, class: Option<Class>, due: Option<u64>) {
        self.level.store(class.map_or(0, Class::level), Relaxed);
        self.due.store(due.unwrap_or(NEVER), Relaxed);
    }

    /// A thread is given this CPU. If it had one and could have gone on, but another thread came between, that was a preemption:
    /// it is counted now, when the CPU knows of both.
    pub fn note_thread(&self, entity: &Arc<Entity>) {
        let last = self.last_thread.load(Relaxed);
        let put_back = entity.put_back.load(Relaxed);
        if put_back {
            entity.put_back.store(false, Relaxed);
        }
        if last != token(entity) {
            self.last_thread.store(token(entity), Relaxed);
            if put_back {
                entity.preemptions.store(entity.preemptions.load(Relaxed) + 1, Relaxed);
            }
        }
    }

    /// The queue, to change it.
    pub fn queue(&self) -> LockGuard<'_, Queue<Runnable>> {
        let queue = self.queue.lock();
        self.settled.store(false, Relaxed);
        queue
    }
}
