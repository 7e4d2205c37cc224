//! Process groups and sessions (man 2 setpgid, setsid).

use crate::call::Call;
use machine::{errno::Result, Errno, Pid};
use messages::inspect::{Inspect, Inspection, ProcessView};
use process::Process;

/// A process of the machine, by the pid argument 0 for the caller.
async fn view(call: &Call<'_>, pid: i32) -> Result<ProcessView> {
    if pid < 0 {
        return Err(Errno::ESRCH);
    }
    let reader = call.caller().credentials;
    let system = call.system();
    let process = system.process_of(Pid(pid as u32)).await.ok_or(Errno::ESRCH)?;
    match system.inspect(process, Inspect::View, reader).await? {
        Inspection::View(view) => Ok(*view),
        _ => Err(Errno::ESRCH),
    }
}

fn own<T>(call: &Call<'_>, read: impl FnOnce(&Process) -> T) -> T {
    read(call.process())
}

pub(crate) async fn setpgid(call: &mut Call<'_>) -> Result<u64> {
    let (pid, group) = (call.int(0), call.int(1));
    // The group may be named by the process.
    if group < 0 || group == 0 && pid < 0 {
        return Err(Errno::EINVAL);
    }
    if pid < 0 {
        return Err(Errno::ESRCH);
    }
    let me = call.process().id;
    let session = own(call, |process| process.with_shared(|shared| shared.session));
    let process = if pid == 0 { me } else { Pid(pid as u32) };
    let group = if group == 0 { process } else { Pid(group as u32) };
    call.system().set_group(process, group, me, session).await?;
    Ok(0)
}

pub(crate) async fn getpgid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(match call.int(0) {
        0 => own(call, |process| process.with_shared(|shared| shared.group.0)),
        pid => view(call, pid).await?.shared.group.0,
    }))
}

pub(crate) async fn getpgrp(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(own(call, |process| process.with_shared(|shared| shared.group.0))))
}

pub(crate) async fn setsid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(call.process().new_session().await?.0))
}

pub(crate) async fn getsid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(match call.int(0) {
        0 => own(call, |process| process.with_shared(|shared| shared.session.0)),
        pid => view(call, pid).await?.shared.session.0,
    }))
}
