//! Resource limits of any process (man 2 prlimit). They are part of what the threads share; those that mappings obey
//! are handed to each kernel's replica of the space.

use crate::{Process, System};
use abi::Credentials;
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid};
use messages::process::{Change, ProcessLimit};

const DATA: usize = 2;
const STACK: usize = 3;
const MEMLOCK: usize = 8;
const ADDRESS_SPACE: usize = 9;

impl System {
    /// The limit of `process`; with `new` it is changed. EPERM, ESRCH.
    pub async fn limit(
        self: &Arc<Self>,
        process: Pid,
        resource: u32,
        new: Option<(u64, u64)>,
        sender: &Credentials,
    ) -> Result<(u64, u64)> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.limit_here(process, resource, new, sender).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let ask = ProcessLimit { process, resource, new, sender: sender.clone() };
        self.endpoint.call(home, ask).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn limit_here(
        &self,
        process: Pid,
        resource: u32,
        new: Option<(u64, u64)>,
        sender: &Credentials,
    ) -> Result<(u64, u64)> {
        let process = self.process(process).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        let owner = process.credentials();
        let same = [owner.uid, owner.euid, owner.suid].iter().all(|id| *id == sender.uid)
            && [owner.gid, owner.egid, owner.sgid].iter().all(|id| *id == sender.gid);
        if !same && !sender.can(abi::capability::SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        let old = process.with_shared(|shared| shared.limits.get(resource as usize).copied()).ok_or(Errno::EINVAL)?;
        if let Some((soft, hard)) = new {
            if soft > hard {
                return Err(Errno::EINVAL);
            }
            if hard > old.1 && !sender.can(abi::capability::SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            process.change(Change::Limit { resource, limit: (soft, hard) }).await?;
        }
        Ok(old)
    }
}

impl Process {
    pub(crate) fn apply_limits_to_space(&self) {
        let limits = vm::Limits {
            stack: self.limit(STACK),
            data: self.limit(DATA),
            address_space: self.limit(ADDRESS_SPACE),
            locked: self.limit(MEMLOCK),
        };
        self.space().set_limits(limits);
    }
}
