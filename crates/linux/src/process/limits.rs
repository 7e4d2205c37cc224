//! Resource limits (man 2 getrlimit, prlimit).

use crate::call::Call;
use machine::{errno::Result, Errno, Pid};
use messages::process::Change;

const COUNT: u32 = 16;
const STACK: usize = 3;
const DATA: usize = 2;
const MEMLOCK: usize = 8;
const ADDRESS_SPACE: usize = 9;

pub(crate) async fn getrlimit(call: &mut Call<'_>) -> Result<u64> {
    let resource = call.arg(0) as u32;
    if resource >= COUNT {
        return Err(Errno::EINVAL);
    }
    let (soft, hard) = call.process().with_shared(|shared| shared.limits[resource as usize]);
    call.put(call.pointer(1), &[soft, hard]).await?;
    Ok(0)
}

pub(crate) async fn setrlimit(call: &mut Call<'_>) -> Result<u64> {
    let limit: [u64; 2] = call.get(call.pointer(1)).await?;
    set(call, call.arg(0) as u32, limit).await?;
    Ok(0)
}

/// For the caller's own process; another's limits need its home's word and are refused.
pub(crate) async fn prlimit64(call: &mut Call<'_>) -> Result<u64> {
    let (pid, resource) = (call.int(0), call.arg(1) as u32);
    if resource >= COUNT {
        return Err(Errno::EINVAL);
    }
    let me = call.process().id;
    if pid != 0 && Pid(pid as u32) != me {
        return Err(match call.system().process_of(Pid(pid as u32)).await {
            None => Errno::ESRCH,
            Some(process) if process == me => Errno::EINVAL,
            Some(_) => crate::table::unsupported(call, "prlimit of another process", Errno::EPERM),
        });
    }
    let new: Option<[u64; 2]> = match call.pointer(2) {
        pointer if pointer.is_null() => None,
        pointer => Some(call.get(pointer).await?),
    };
    let (soft, hard) = call.process().with_shared(|shared| shared.limits[resource as usize]);
    if let Some(new) = new {
        set(call, resource, new).await?;
    }
    call.put_if(call.pointer(3), &[soft, hard]).await?;
    Ok(0)
}

async fn set(call: &Call<'_>, resource: u32, [soft, hard]: [u64; 2]) -> Result<()> {
    if resource >= COUNT || soft > hard {
        return Err(Errno::EINVAL);
    }
    let old_hard = call.process().with_shared(|shared| shared.limits[resource as usize].1);
    if hard > old_hard && !call.thread.state.lock().credentials.is_privileged() {
        return Err(Errno::EPERM);
    }
    call.process().change(Change::Limit { resource, limit: (soft, hard) }).await?;
    apply_to_space(call.process());
    Ok(())
}

/// Hands the limits that mappings obey to the address space.
pub(crate) fn apply_to_space(process: &process::Process) {
    let limits = vm::Limits {
        stack: process.limit(STACK),
        data: process.limit(DATA),
        address_space: process.limit(ADDRESS_SPACE),
        locked: process.limit(MEMLOCK),
    };
    process.space().set_limits(limits);
}
