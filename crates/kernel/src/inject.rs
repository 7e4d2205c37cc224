//! Fault injection in the lanes: messages that come late (`cob.shake`; see `process/src/inject.rs` for the rest).
//!
//! A lane is now and then not looked at for a while, as if this kernel had been busy with interrupts off. All of
//! it, so nothing is reordered inside a lane; what lies in other lanes overtakes it. The doorbell of what lies there has
//! rung already and will not ring again, so every pause ends with a task that looks at the lanes.

use crate::cpu;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::*};
use fabric::{Full, Port};
use machine::{Cpu, KernelId};
use messages::Priority;
use process::FaultInjector;
use sched::Scheduler;

/// Messages of a lane per pause.
const PAUSES: u64 = 24;
/// Longest pause. A few times what a call takes.
const LONGEST_NS: u64 = 400_000;

/// A port whose lanes are slow at random.
pub struct DelayedPort<P> {
    pub port: P,
    pub injector: Arc<FaultInjector>,
    pub cpu: Arc<dyn Cpu>,
    pub scheduler: Arc<Scheduler>,
    /// By kernel and priority: not looked at before.
    pub until: Vec<[AtomicU64; 2]>,
}

impl<P: Port> DelayedPort<P> {
    pub fn new(
        port: P,
        kernels: usize,
        injector: Arc<FaultInjector>,
        cpu: Arc<dyn Cpu>,
        scheduler: Arc<Scheduler>,
    ) -> Self {
        let until = (0..kernels).map(|_| Default::default()).collect();
        DelayedPort { port, injector, cpu, scheduler, until }
    }

    fn pauses(&self, from: KernelId, priority: Priority) -> bool {
        let until = self.until[from.index()][priority.index()].load(Relaxed);
        until != 0 && self.cpu.now() < until
    }

    fn pause(&self, from: KernelId, priority: Priority) {
        let until = self.cpu.now() + 1 + self.injector.below(LONGEST_NS);
        self.until[from.index()][priority.index()].store(until, Relaxed);
        let sleep = self.scheduler.sleep_until(until);
        self.scheduler.spawn(async move {
            sleep.await;
            cpu::look_again();
        });
    }
}

impl<P: Port> Port for DelayedPort<P> {
    fn max_message(&self, to: KernelId, priority: Priority) -> usize {
        self.port.max_message(to, priority)
    }

    fn try_send(&self, to: KernelId, priority: Priority, bytes: &[u8]) -> Result<(), Full> {
        self.port.try_send(to, priority, bytes)
    }

    fn pending(&self, from: KernelId, priority: Priority) -> bool {
        !self.pauses(from, priority) && self.port.pending(from, priority)
    }

    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool {
        if self.pauses(from, priority) || !self.port.try_recv(from, priority, buffer) {
            return false;
        }
        if self.injector.one_in(PAUSES) {
            self.pause(from, priority);
        }
        true
    }

    fn ring(&self, to: KernelId) -> bool {
        self.port.ring(to)
    }

    fn set_polling(&self, polling: bool) {
        self.port.set_polling(polling)
    }
}
