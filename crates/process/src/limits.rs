//! Resource limits of any process (man 2 prlimit). They are part of what the threads share; those that mappings obey
//! are handed to each kernel's replica of the space.

use crate::{Process, System};
use abi::{signal::SignalInfo, Credentials};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid};
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

/// What [`of_mappings`] looks at.
const BOUND_MAPPINGS: [usize; 4] = [STACK, DATA, ADDRESS_SPACE, MEMLOCK];

/// Of all limits those that mappings obey.
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

    /// At home, after its birth: RLIMIT_CPU came with it.
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

    /// Has it used up its hard limit?
    pub(crate) async fn cpu_time_is_over(self: &Arc<Self>) -> bool {
        let (_, hard) = self.cpu_limit();
        hard != u64::MAX && self.gather_usage().await.0.cpu_ns() >= hard.saturating_mul(SECOND)
    }

    /// RLIMIT_SIGPENDING: may another such signal wait where so many do? Those that kill(2) sends are never refused. (Linux counts
    /// what waits for all processes of the user.)
    pub(crate) fn check_room(&self, info: &SignalInfo, waiting: usize) -> Result<()> {
        let bounded = info.signal.is_realtime() && info.code < 0 && info.code != SignalInfo::SI_TIMER;
        match bounded && waiting as u64 >= self.limit(SIGNALS_PENDING) {
            true => Err(Errno::EAGAIN),
            false => Ok(()),
        }
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
