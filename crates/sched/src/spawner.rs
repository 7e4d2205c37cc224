//! What services see of the scheduler.

use crate::{
    class::Class,
    scheduler::{Scheduler, NOBODY},
};
use alloc::sync::Arc;
use machine::{Actor, BoxFuture, GroupId, Spawner};

/// The handle through which services (which know no scheduler) start kernel work.
pub struct KernelTasks(pub Arc<Scheduler>);

impl Spawner for KernelTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.start(Class::Kernel, NOBODY, u64::MAX, task);
    }

    fn spawn_here(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn_on(self.0.here(), task);
    }

    fn spawn_for(&self, actor: Actor, payer: GroupId, task: BoxFuture<'static, ()>) {
        self.0.start(Class::Kernel, (actor, payer), u64::MAX, task);
    }

    fn cpu(&self) -> usize {
        self.0.here()
    }

    fn actor(&self) -> Actor {
        self.0.actor()
    }

    fn set_actor(&self, actor: Actor) -> Actor {
        let before = self.0.actor();
        self.0.set_actor(actor);
        before
    }

    fn note_talk(&self) {
        self.0.talk().note_request(self.0.actor());
    }

    fn payer(&self) -> GroupId {
        self.0.payer()
    }

    fn set_payer(&self, payer: GroupId) -> GroupId {
        let before = self.0.payer();
        self.0.set_payer(payer);
        before
    }

    fn is_turn_over(&self) -> bool {
        self.0.is_turn_over()
    }
}
