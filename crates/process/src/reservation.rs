//! Run time that threads of this kernel have reserved (SCHED_DEADLINE, man 7 sched). Together it is at most 95 % of its CPUs (`sched_rt_runtime_us` of Linux), so that on
//! one CPU every deadline can be met, on several none is missed by much, and something is left for the others.
//!
//! A kernel is what Linux calls a root domain: a thread that has a reservation stays on its kernel, may use all of its CPUs, and is counted there alone.

use crate::{route::Target, System, Thread};
use abi::signal::{Signal, SignalInfo};
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
        let mut sum = self.system.reserved.lock();
        *sum -= share(&self.parameters);
        if *sum == 0 {
            self.system.scheduler.forget_deadlines();
        }
    }
}

impl Reserved {
    /// Nothing yet.
    fn new(system: &Arc<System>) -> Reserved {
        Reserved { system: system.clone(), parameters: DeadlineParameters::default() }
    }

    /// Reserves this instead. EBUSY: there is not so much left.
    fn set(&mut self, parameters: DeadlineParameters) -> Result<()> {
        let most = ONE * MOST / 100 * self.system.cpu.cpus().len() as u64;
        let mut sum = self.system.reserved.lock();
        let new = *sum - share(&self.parameters) + share(&parameters);
        if new > most {
            return Err(Errno::EBUSY);
        }
        (*sum, self.parameters) = (new, parameters);
        Ok(())
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
        match &mut *reserved {
            Some(reserved) => reserved.set(parameters),
            None => {
                let mut new = Reserved::new(system);
                new.set(parameters)?;
                *reserved = Some(new);
                Ok(())
            }
        }
    }

    /// It has no reservation any more.
    pub(crate) fn release_reservation(&self) {
        // Dropped without its lock.
        let _old = self.reserved.lock().take();
    }

    /// Whether it has used up what it had reserved since the last call, and wants to hear of that (SCHED_FLAG_DL_OVERRUN).
    pub fn take_overrun(&self) -> bool {
        let task = || self.task.lock().clone();
        self.deadline_parameters().overrun_signal && task().is_some_and(|task| task.take_overrun())
    }

    /// Its process hears of it.
    pub async fn tell_overrun(&self) {
        let (process, info) = (self.process.id, SignalInfo::kernel(Signal::XCPU));
        // The process may be ending.
        let _ = self.process.system.signal(Target::Process(process), Some(info), None, process).await;
    }
}

impl System {
    /// Whether all CPUs of this kernel are among these.
    pub(crate) fn is_within(&self, affinity: &abi::CpuSet) -> bool {
        self.cpu.cpus().iter().all(|&cpu| affinity.contains(cpu))
    }
}
