//! Work of a thread that is begun only when its system call ends.

use crate::{sync::Ordering::Relaxed, Scheduler};
use alloc::sync::Arc;
use core::task::{Context, Waker};
use machine::{Actor, BoxFuture};

impl Scheduler {
    /// Keeps work that takes locks which the thread that runs on this CPU may hold now. [`Self::begin_deferred`] begins it: at the end of the
    /// thread's system call, or when the thread waits. If this CPU runs no thread, the work becomes a task of this CPU at once.
    pub fn defer(self: &Arc<Self>, work: BoxFuture<'static, ()>) {
        let local = &self.locals[self.here()];
        if self.actor() == Actor::NOBODY {
            return self.spawn_on(self.here(), work);
        }
        let mut deferred = local.deferred.lock();
        if deferred.is_empty() {
            self.deferring.fetch_add(1, Relaxed);
        }
        deferred.push(work);
    }

    /// Begins what was deferred on this CPU. What has to wait goes on as a task.
    #[inline]
    pub fn begin_deferred(self: &Arc<Self>) {
        // Every system call comes here, and hardly any defers anything.
        if self.deferring.load(Relaxed) != 0 {
            self.begin_deferred_here();
        }
    }

    #[cold]
    fn begin_deferred_here(self: &Arc<Self>) {
        let deferred = core::mem::take(&mut *self.locals[self.here()].deferred.lock());
        if deferred.is_empty() {
            return;
        }
        self.deferring.fetch_sub(1, Relaxed);
        let actor = self.actor();
        // What this defers in turn is a task.
        self.set_actor(Actor::NOBODY);
        for mut work in deferred {
            if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                self.spawn_on(self.here(), work);
            }
        }
        self.set_actor(actor);
    }
}
