//! System V IPC over all kernels (man 7 sysvipc).
//!
//! An object is owned by the kernel it was made on, whose number is part of its id; everything that is done to it is
//! done there. Keys are one name space: the primary keeps them, and has a new object made by the kernel that asked for
//! it while it holds the key's lock, so two that create the same key get one object.
//!
//! **Waiting.** A thread that must wait (semop, msgsnd, msgrcv) waits at the owner, in a call that a signal or timeout
//! cancels. The dangerous interleaving is an operation that is carried out for a waiter that has been told that it was
//! interrupted:
//!
//! ```text
//!   waiter (K1)               owner (O)
//!   -- semop(-1) -----------> waits
//!   signal; cancel ---------->
//!                             another's +1 gives it the semaphore, and wakes it
//!                             the cancel drops the waiter     <- the semaphore is lost
//! ```
//!
//! So a wake gives nothing: whoever is woken tries by itself, and has the effect and the answer in one step. Those who
//! are dropped before have taken nothing; since all waiters are woken by every change, nobody's wake is lost with them.
//!
//! **Ends.** SEM_UNDO and attached memory are a process's until its end. The home of the process notes the kernels
//! where it has such things, a child's home those of its parent, and tells them before the parent hears of the end.
//!
//! | file | subject |
//! |---|---|
//! | names.rs | keys, ids, permissions |
//! | semaphores.rs, queues.rs, segments.rs | the three kinds |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod names;
mod queues;
mod segments;
mod semaphores;

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use fs::Services;
use machine::{account::Account, errno::Result, sync::Lock, BoxFuture, Errno, KernelId, Pid};
use messages::ipc::*;
use names::{Keys, Table};
use process::System;

pub use names::owner;
pub use queues::{COPY, EXCEPT, MESSAGE_MAX, NO_ERROR, QUEUE_MAX};
pub use segments::SIZE_MAX;
pub use semaphores::{OPS_MAX, SET_MAX, UNDO, VALUE_MAX};

pub const CREATE: u32 = 0o1000;
pub const EXCLUSIVE: u32 = 0o2000;
pub const NO_WAIT: u32 = 0o4000;

/// This kernel's part of the service.
#[derive(Default)]
struct Service(Lock<Option<Arc<Ipc>>>);

/// Starts the service of a kernel.
pub fn start(system: &Arc<System>, services: &Arc<Services>) {
    let ipc = Ipc::new(system, services);
    system.set_at_end(ipc.clone());
    *system.extension::<Service>().0.lock() = Some(ipc);
}

/// ENOSYS before [`start`].
pub fn service(system: &System) -> Result<Arc<Ipc>> {
    system.extension::<Service>().0.lock().clone().ok_or(Errno::ENOSYS)
}

/// The objects this kernel owns, and the keys if it keeps them.
pub struct Ipc {
    /// Owns this.
    system: Weak<System>,
    services: Arc<Services>,
    keys: Keys,
    sets: Table<semaphores::Set>,
    queues: Table<queues::Queue>,
    segments: Table<segments::Segment>,
}

impl Ipc {
    pub fn new(system: &Arc<System>, services: &Arc<Services>) -> Arc<Ipc> {
        let memory = &*system.memory;
        let ipc = Arc::new(Ipc {
            system: Arc::downgrade(system),
            services: services.clone(),
            keys: Keys::default(),
            sets: Table::new(memory),
            queues: Table::new(memory),
            segments: Table::new(memory),
        });
        ipc.register();
        ipc
    }

    fn system(&self) -> Arc<System> {
        self.system.upgrade().expect("it has this")
    }

    fn register(self: &Arc<Self>) {
        let system = self.system();
        let serve = system.endpoint.serve(self);
        macro_rules! answer {
            ($on:ident $message:ty, |$ipc:ident, $from:ident, $ask:ident| $body:expr) => {
                serve.$on(|$ipc, $from, $ask: $message| async move { $body });
            };
        }
        answer!(on_to_completion IpcGet, |ipc, from, ask| ipc.get_for(from, ask.wanted).await);
        answer!(on_to_completion IpcMake, |ipc, _from, ask| ipc.make(&ask.wanted).await);
        answer!(on_to_completion IpcCheck, |ipc, _from, ask| ipc.check(ask.id, &ask.wanted).await);
        answer!(on_to_completion IpcForget, |ipc, _from, ask| ipc.keys.forget(ask.kind, ask.key, ask.id));
        answer!(on_to_completion IpcList, |ipc, _from, ask| ipc.list_here(ask.kind).await);
        answer!(on_to_completion IpcControl, |ipc, _from, ask| {
            ipc.control(ask.kind, ask.id, ask.command, &ask.asker).await
        });
        answer!(on SemaphoreOps, |ipc, _from, ask| ipc.operate(ask.id, ask.ops, ask.asker).await);
        answer!(on MessageSend, |ipc, _from, ask| ipc.send(ask).await);
        answer!(on MessageReceive, |ipc, _from, ask| ipc.receive(ask).await);
        answer!(on_to_completion MemoryAttach, |ipc, from, ask| {
            ipc.attach(from, ask.id, ask.write, &ask.asker).await
        });
        answer!(on_to_completion MemoryDetach, |ipc, _from, ask| ipc.detached(ask.object, ask.process).await);
        answer!(on_to_completion MemoryCount, |ipc, _from, ask| ipc.system().vm.mappings_of(ask.object));
        answer!(on_to_completion ProcessEnded, |ipc, _from, ask| ipc.process_ended(ask.process).await);
    }

    /// shmget, semget, msgget.
    pub async fn get(&self, wanted: Wanted) -> Result<i32> {
        const PRIVATE: i32 = 0;
        if wanted.key == PRIVATE {
            return self.make(&wanted).await;
        }
        self.system().endpoint.call(KernelId::PRIMARY, IpcGet { wanted }).await.map_err(Errno::from)?
    }

    /// All objects of a kind in the machine, by id.
    pub async fn list(&self, kind: IpcKind) -> Vec<Status> {
        let kernels = self.system().kernels().into_iter().collect();
        let answers = self.system().endpoint.multicast(&kernels, IpcList { kind }).await;
        let mut all: Vec<Status> = answers.into_iter().flat_map(|(_, answer)| answer.unwrap_or_default()).collect();
        all.sort_by_key(|status| status.id);
        all
    }

    async fn list_here(&self, kind: IpcKind) -> Vec<Status> {
        match kind {
            IpcKind::Semaphores => self.sets.all().iter().map(|(id, set)| set.status(*id)).collect(),
            IpcKind::Messages => self.queues.all().iter().map(|(id, queue)| queue.status(*id)).collect(),
            IpcKind::Memory => {
                self.sweep_segments().await;
                let mut all = Vec::new();
                for (id, segment) in self.segments.all() {
                    all.push(self.segment_status(id, &segment).await);
                }
                all
            }
        }
    }

    /// Makes an object here.
    async fn make(&self, wanted: &Wanted) -> Result<i32> {
        let now = self.seconds();
        match wanted.kind {
            IpcKind::Semaphores => {
                self.sets.insert(semaphores::Set::new(wanted, &self.account_of(&wanted.asker), now)?)
            }
            IpcKind::Messages => self.queues.insert(queues::Queue::new(wanted, now)),
            IpcKind::Memory => {
                let most = self.system().vm.machine_pages().saturating_mul(machine::PAGE_SIZE as u64);
                self.segments.insert(segments::Segment::new(&self.services, wanted, now, most).await?)
            }
        }
    }

    /// May the asker have an object that exists?
    async fn check(&self, id: i32, wanted: &Wanted) -> Result<()> {
        let (permissions, size) = match wanted.kind {
            IpcKind::Semaphores => self.sets.get(id).map(|set| (set.permissions(), set.count() as u64)),
            IpcKind::Messages => self.queues.get(id).map(|queue| (queue.permissions(), 0)),
            IpcKind::Memory => self.segments.get(id).map(|segment| (segment.permissions(), segment.size)),
        }
        .map_err(|_| Errno::EIDRM)?;
        names::check(&permissions, &wanted.asker.who, wanted.flags)?;
        if wanted.size > size {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    async fn control(&self, kind: IpcKind, id: i32, command: Command, asker: &Asker) -> Result<Answer> {
        match kind {
            IpcKind::Semaphores => self.control_set(id, command, asker).await,
            IpcKind::Messages => self.control_queue(id, command, asker).await,
            IpcKind::Memory => self.control_segment(id, command, asker).await,
        }
    }

    async fn process_ended(&self, process: Pid) {
        for (_, set) in self.sets.all() {
            set.undo(process, self.seconds());
        }
        self.sweep_segments().await;
    }

    /// Who pays for what is kept here for the asker.
    fn account_of(&self, asker: &Asker) -> Arc<Account> {
        self.system().accounts.of(asker.process, asker.who.uid)
    }

    /// An object of ours is no more: its key is free.
    async fn forget_key(&self, kind: IpcKind, key: i32, id: i32) {
        if key != 0 {
            // Without the primary there is no machine.
            let _ = self.system().endpoint.call(KernelId::PRIMARY, IpcForget { kind, key, id }).await;
        }
    }

    fn seconds(&self) -> i64 {
        (self.system().realtime() / 1_000_000_000) as i64
    }

    /// From now on this kernel hears of the end of `process`.
    async fn watch_end(&self, process: Pid) -> Result<()> {
        let system = self.system();
        system.note_ipc(process, system.kernel).await
    }
}

/// The part of process's end that is here: crate `process` calls it before the parent hears of the end.
impl process::AtEnd for Ipc {
    fn ended(&self, process: Pid, kernels: machine::KernelSet) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.system().endpoint.multicast(&kernels, ProcessEnded { process }).await;
        })
    }

    fn lost(&self, dead: machine::KernelId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for (_, set) in self.sets.all() {
                let lost = set.undoers().into_iter().filter(|process| self.system().origin(*process) == Some(dead));
                lost.for_each(|process| set.undo(process, self.seconds()));
            }
            self.sweep_segments().await;
        })
    }
}
