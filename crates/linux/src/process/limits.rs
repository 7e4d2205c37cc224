//! Resource limits (man 2 getrlimit, prlimit).

use crate::call::Call;
use machine::{errno::Result, Errno, Pid};

const COUNT: u32 = 16;

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

/// Of any process of the machine.
pub(crate) async fn prlimit64(call: &mut Call<'_>) -> Result<u64> {
    let (pid, resource) = (call.int(0), call.arg(1) as u32);
    let new = match call.pointer(2) {
        pointer if pointer.is_null() => None,
        pointer => {
            let [soft, hard]: [u64; 2] = call.get(pointer).await?;
            Some((soft, hard))
        }
    };
    let process = match pid {
        0 => call.process().id,
        // A thread's id names its process.
        pid => call.system().process_of(Pid(pid as u32)).await.ok_or(Errno::ESRCH)?,
    };
    if resource >= COUNT {
        return Err(Errno::EINVAL);
    }
    let who = call.caller().credentials;
    // Who names itself needs no right to its limits (but to raise them).
    let own = pid == 0 || Pid(pid as u32) == call.thread.tid;
    let (soft, hard) = call.system().limit(process, resource, new, &who, own).await?;
    call.put_if(call.pointer(3), &[soft, hard]).await?;
    Ok(0)
}

async fn set(call: &Call<'_>, resource: u32, [soft, hard]: [u64; 2]) -> Result<()> {
    if resource >= COUNT {
        return Err(Errno::EINVAL);
    }
    let who = call.caller().credentials;
    call.system().limit(call.process().id, resource, Some((soft, hard)), &who, true).await?;
    Ok(())
}
