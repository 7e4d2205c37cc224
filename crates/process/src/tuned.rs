//! Who may change how a thread is scheduled.

use crate::thread::{FIFO, IDLE, RESET_ON_FORK, ROUND_ROBIN};
use crate::Process;
use abi::Credentials;
use machine::{errno::Result, Errno};
use messages::process::Tune;

const RLIMIT_NICE: usize = 13;
const RLIMIT_RTPRIO: usize = 14;

impl Process {
    /// What [`Tuned::limits`] says.
    pub(crate) fn tuning_limits(&self) -> (u64, u64) {
        (self.limit(RLIMIT_NICE), self.limit(RLIMIT_RTPRIO))
    }
}

/// How a thread is scheduled that somebody wants to change.
pub(crate) struct Tuned {
    pub uid: u32,
    pub euid: u32,
    pub nice: i8,
    pub policy: (u32, u32),
    /// Soft limits of its process: RLIMIT_NICE and RLIMIT_RTPRIO.
    pub limits: (u64, u64),
}

impl Tuned {
    /// EPERM or EACCES if `sender` must not do that to it (man 2 setpriority, man 7 sched).
    pub fn check(&self, tune: &Tune, sender: &Credentials) -> Result<()> {
        let owns = [self.uid, self.euid].contains(&sender.euid);
        if matches!(tune, Tune::Read) || sender.can(abi::capability::SYS_NICE) {
            return Ok(());
        }
        match *tune {
            _ if !owns => Err(Errno::EPERM),
            Tune::Nice(nice) if nice < self.nice && !self.may_be(nice) => Err(Errno::EACCES),
            Tune::Policy(policy, priority) if !self.may_follow(policy, priority) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// RLIMIT_NICE, which counts from 19 down.
    fn may_be(&self, nice: i8) -> bool {
        self.limits.0 >= (20 - i64::from(nice)) as u64
    }

    fn may_follow(&self, policy: u32, priority: u32) -> bool {
        let ((old, old_priority), most) = (self.policy, self.limits.1);
        let (base, old_base) = (policy & !RESET_ON_FORK, old & !RESET_ON_FORK);
        if matches!(base, FIFO | ROUND_ROBIN) {
            let same = base == old_base || most > 0;
            if !same || u64::from(priority) > most && priority > old_priority {
                return false;
            }
        }
        // Out of SCHED_IDLE is up; and what is reset on fork stays so.
        let rises = old_base == IDLE && base != IDLE && !self.may_be(self.nice);
        let keeps = old & RESET_ON_FORK != 0 && policy & RESET_ON_FORK == 0;
        !rises && !keeps
    }
}
