//! Run time that threads of this kernel have reserved (SCHED_DEADLINE, man 7 sched). Together it is at most 95 % of its CPUs (`sched_rt_runtime_us` of Linux), so that
//! every deadline can be met and something is left for the others.
//!
//! A kernel is what Linux calls a root domain: a thread that has a reservation stays on its kernel, may use all of its CPUs, and is counted there alone.

use crate::{System, Thread};
use abi::signal::{Sent, SignalInfo};
use alloc::sync::Arc;
use machine::{errno::Result, Errno};
use messages::process::DeadlineParameters;
use sched::Reservation;

/// Shares of a CPU are counted in these parts.
const ONE: u64 = 1 << 20;
/// Of each CPU, in per cent.
const MOST: u64 = 95;

fn share(parameters: &DeadlineParameters) -> u64 {
    (u128::from(parameters.runtime) * u128::from(ONE) / u128::from(parameters.period.max(1))) as u64
}

/// What a thread has reserved. Given back when it is dropped.
pub(crate) struct Reserved {
    system: Arc<System>,
    parameters: DeadlineParameters,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        *self.system.reserved.lock() -= share(&self.parameters);
    }
}

impl Reserved {
    /// EBUSY: there is not so much left. `instead` of what the thread has now, if it has something.
    fn new(system: &Arc<System>, parameters: DeadlineParameters, instead: Option<&Reserved>) -> Result<Reserved> {
        let most = ONE * MOST / 100 * system.cpu.cpus().len() as u64;
        let mut sum = system.reserved.lock();
        let others = *sum - instead.map_or(0, |old| share(&old.parameters));
        if others + share(&parameters) > most {
            return Err(Errno::EBUSY);
        }
        *sum += share(&parameters);
        Ok(Reserved { system: system.clone(), parameters })
    }
}

impl Thread {
    /// What it has reserved, as the scheduler takes it.
    pub(crate) fn reservation(&self) -> Option<Reservation> {
        let reserved = self.reserved.lock();
        let DeadlineParameters { runtime, deadline, period, .. } = reserved.as_ref()?.parameters;
        Some(Reservation { runtime, deadline, period })
    }

    /// The same, as it was asked for; nothing: all zero.
    pub(crate) fn deadline_parameters(&self) -> DeadlineParameters {
        self.reserved.lock().as_ref().map(|reserved| reserved.parameters).unwrap_or_default()
    }

    /// Whether it has reserved something, and so stays on this kernel.
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.lock().is_some()
    }

    /// Reserves this, instead of what it has. EPERM: it may not use all CPUs of its kernel. EBUSY: too little is left.
    pub(crate) fn reserve(&self, parameters: DeadlineParameters, affinity: &abi::CpuSet) -> Result<()> {
        let system = &self.process.system;
        if !system.is_within(affinity) {
            return Err(Errno::EPERM);
        }
        let mut reserved = self.reserved.lock();
        let new = Reserved::new(system, parameters, reserved.as_ref())?;
        *reserved = Some(new);
        Ok(())
    }

    /// It has no reservation any more.
    pub(crate) fn release_reservation(&self) {
        // Dropped without its lock.
        let _old = self.reserved.lock().take();
    }

    /// Whether it wanted to hear (SCHED_FLAG_DL_OVERRUN) that it has used up what it had reserved, and has since the last call.
    pub fn take_overrun(&self) -> bool {
        let task = || self.task.lock().clone();
        self.deadline_parameters().overrun_signal && task().is_some_and(|task| task.take_overrun())
    }

    /// A signal that the kernel sends the thread for what it has done itself.
    pub fn push_own_signal(&self, info: SignalInfo) {
        let (continues, ignorings) = (self.process.continues(), self.process.ignorings());
        self.push_signal(info, Sent { continues, ignorings });
    }
}

impl System {
    /// Whether all CPUs of this kernel are among these.
    pub(crate) fn is_within(&self, affinity: &abi::CpuSet) -> bool {
        self.cpu.cpus().iter().all(|&cpu| affinity.contains(cpu))
    }
}
