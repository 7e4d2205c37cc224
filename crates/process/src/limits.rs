//! Resource limits of any process (man 2 prlimit). They are part of what the threads share; those that mappings obey
//! are handed to each kernel's replica of the space.

use crate::{Process, System};
use abi::{
    signal::{Pending, SignalInfo},
    Credentials,
};
use alloc::sync::Arc;
use machine::{account::Resource, errno::Result, Errno, Pid};
use messages::{
    process::{Change, ProcessLimit},
    timer::{TimerId, TimerOp},
};

const CPU: usize = 0;
const DATA: usize = 2;
const STACK: usize = 3;
const FILES: usize = 7;
const MEMLOCK: usize = 8;
pub(crate) const SIGNALS_PENDING: usize = 11;
const ADDRESS_SPACE: usize = 9;

/// fs.nr_open.
const MOST_FILES: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// The resources that [`of_mappings`] reads.
const BOUND_MAPPINGS: [usize; 4] = [STACK, DATA, ADDRESS_SPACE, MEMLOCK];

/// A limit that a machine takes over from where it was started. No process may have more descriptors than fs.nr_open says.
pub fn taken_over(resource: usize, (soft, hard): (u64, u64)) -> (u64, u64) {
    match resource {
        FILES => (soft.min(MOST_FILES), hard.min(MOST_FILES)),
        _ => (soft, hard),
    }
}

/// Selects the limits that mappings obey.
pub(crate) fn of_mappings(limits: &[(u64, u64)]) -> vm::Limits {
    let soft = |resource: usize| limits.get(resource).map_or(u64::MAX, |limit| limit.0);
    vm::Limits { stack: soft(STACK), data: soft(DATA), address_space: soft(ADDRESS_SPACE), locked: soft(MEMLOCK) }
}

impl System {
    /// The limit of `process`; with `new` it is changed. `own`: by the process itself, which needs no right
    /// to it but to raise a hard limit. EPERM, ESRCH.
    pub async fn limit(
        self: &Arc<Self>,
        process: Pid,
        resource: u32,
        new: Option<(u64, u64)>,
        sender: &Credentials,
        own: bool,
    ) -> Result<(u64, u64)> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.limit_here(process, resource, new, sender, own).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let ask = ProcessLimit { process, resource, new, sender: sender.clone(), own };
        self.endpoint.call(home, ask).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn limit_here(
        &self,
        process: Pid,
        resource: u32,
        new: Option<(u64, u64)>,
        sender: &Credentials,
        own: bool,
    ) -> Result<(u64, u64)> {
        let process = self.process(process).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        let owner = process.credentials();
        let same = [owner.uid, owner.euid, owner.suid].iter().all(|id| *id == sender.uid)
            && [owner.gid, owner.egid, owner.sgid].iter().all(|id| *id == sender.gid);
        if !own && !same && !sender.can(abi::capability::SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        let turn = process.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        let old = process.with_shared(|shared| shared.limits.get(resource as usize).copied()).ok_or(Errno::EINVAL)?;
        if let Some((soft, hard)) = new {
            if soft > hard {
                return Err(Errno::EINVAL);
            }
            if resource as usize == FILES && hard > MOST_FILES {
                return Err(Errno::EPERM);
            }
            if hard > old.1 && !sender.can(abi::capability::SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            process.change_in_turn(Change::Limit { resource, limit: (soft, hard) }, &turn).await?;
            drop(turn);
            if BOUND_MAPPINGS.contains(&(resource as usize)) {
                process.limit_space().await;
            }
            if resource as usize == CPU {
                process.watch_cpu_time().await;
            }
        }
        Ok(old)
    }
}

impl Process {
    fn cpu_limit(&self) -> (u64, u64) {
        self.with_shared(|shared| shared.limits.get(CPU).copied()).unwrap_or((u64::MAX, u64::MAX))
    }

    /// At home of a new process: arms the timer of the RLIMIT_CPU that it has inherited.
    pub(crate) async fn watch_inherited_cpu_time(self: &Arc<Self>) {
        if self.cpu_limit() != (u64::MAX, u64::MAX) {
            self.watch_cpu_time().await;
        }
    }

    /// At home: RLIMIT_CPU is a timer, which goes off at the soft limit and then every second.
    async fn watch_cpu_time(self: &Arc<Self>) {
        let (soft, hard) = self.cpu_limit();
        let value = match soft.min(hard) {
            u64::MAX => 0,
            seconds => seconds.saturating_mul(SECOND).max(1),
        };
        let set = TimerOp::Set { id: TimerId::Limit, absolute: true, value, interval: SECOND };
        // A process that has ended uses nothing more.
        let _ = self.timer_here(set).await;
    }

    /// Whether the process has used up its hard limit.
    pub(crate) async fn cpu_time_is_over(self: &Arc<Self>) -> bool {
        let (_, hard) = self.cpu_limit();
        hard != u64::MAX && self.gather_usage().await.0.cpu_ns() >= hard.saturating_mul(SECOND)
    }

    /// What becomes of a signal that is sent where `pending` waits, to who acts for the user with the real id `uid`. EAGAIN: so many wait
    /// for that user's processes on this kernel, or have a place there as timers have, as RLIMIT_SIGPENDING says. Of one that kill(2)
    /// sends, and of a standard one, only what is known of it is lost then. None: it waits already. (Linux: sig_get_ucounts.)
    pub(crate) fn admit(&self, info: SignalInfo, pending: &Pending, uid: u32) -> Result<Option<SignalInfo>> {
        let (signal, code) = (info.signal, info.code);
        let exempt = code == SignalInfo::SI_TIMER || !signal.is_realtime() && code >= 0;
        if exempt || (self.account(uid).used_at_top(Resource::Signals) as u64) < self.limit(SIGNALS_PENDING) {
            return Ok(Some(info));
        }
        if signal.is_realtime() && code != SignalInfo::SI_USER {
            return Err(Errno::EAGAIN);
        }
        Ok((!pending.set().contains(signal)).then(|| SignalInfo::lost(signal)))
    }

    /// At home, after the change of a limit: kernels may own parts of the space where the process has no thread (see
    /// [`Process::bound_space`]).
    pub(crate) async fn limit_space(&self) {
        if !self.is_in_parents_space() {
            let limits = of_mappings(&self.shared.lock().limits);
            self.space().limit(limits).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_descriptors_than_nr_open_are_not_taken_over() {
        assert_eq!(taken_over(FILES, (1024, 1 << 30)), (1024, 1 << 20));
        assert_eq!(taken_over(FILES, (u64::MAX, u64::MAX)), (1 << 20, 1 << 20));
        assert_eq!(taken_over(FILES, (1024, 4096)), (1024, 4096));
        assert_eq!(taken_over(STACK, (8 << 20, u64::MAX)), (8 << 20, u64::MAX));
    }
}
