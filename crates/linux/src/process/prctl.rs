//! prctl, personality and other single-purpose calls.

use crate::{
    call::Call,
    files::vector::{single, MAX_RW_COUNT},
    table::unsupported,
};
use abi::signal::Signal;
use machine::{errno::Result, Errno, UserAddr, PAGE_SIZE};
use messages::process::Change;

pub(crate) async fn prctl(call: &mut Call<'_>) -> Result<u64> {
    let value = call.arg(1);
    let process = call.process();
    if let Some(answer) = super::credentials::control(call) {
        return answer;
    }
    match call.arg(0) as u32 {
        // PR_SET_PDEATHSIG, PR_GET_PDEATHSIG
        1 => {
            if value != 0 && Signal::new(value).is_none() {
                return Err(Errno::EINVAL);
            }
            call.thread.state.lock().parent_death_signal = value as u8;
        }
        2 => {
            let signal = i32::from(call.thread.state.lock().parent_death_signal);
            call.put(UserAddr(value), &signal).await?;
        }
        // PR_GET_DUMPABLE, PR_SET_DUMPABLE
        3 => return Ok(u64::from(process.with_shared(|shared| shared.dumpable))),
        4 if value > 1 => return Err(Errno::EINVAL),
        4 => process.change(Change::Dumpable(value == 1)).await?,
        // PR_SET_NAME, PR_GET_NAME
        15 => {
            let mut name = [0u8; 16];
            let (read, error) = call.space().read_some(UserAddr(value), &mut name).await;
            let end = name.iter().position(|&byte| byte == 0);
            if read < name.len() && end.is_none_or(|end| end >= read) {
                return Err(error);
            }
            let name = name[..end.unwrap_or(15).min(15)].to_vec();
            trace::thread_name(call.thread.tid.0, process.id.0, &name);
            call.thread.state.lock().name = name;
        }
        16 => {
            let mut name = [0u8; 16];
            {
                let state = call.thread.state.lock();
                let len = state.name.len().min(15);
                name[..len].copy_from_slice(&state.name[..len]);
            }
            call.put(UserAddr(value), &name).await?;
        }
        // PR_GET_TIMING, PR_SET_TIMING: statistical.
        13 => return Ok(0),
        14 if value != 0 => return Err(Errno::EINVAL),
        14 => {}
        // PR_GET_TSC, PR_SET_TSC: the counter is for everybody (1).
        25 => call.put(UserAddr(value), &1u32).await?,
        26 if value == 1 => {}
        // PR_SET_MM
        35 if !call.can(abi::capability::SYS_RESOURCE) => return Err(Errno::EPERM),
        // PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL: none of the kinds can be controlled.
        52 if call.arguments()[2..5] == [0; 3] => return Err(Errno::ENODEV),
        53 if call.arguments()[3..5] == [0; 2] => return Err(Errno::ENODEV),
        // PR_GET_SECCOMP: off.
        21 => return Ok(0),
        // PR_SET_TIMERSLACK, PR_GET_TIMERSLACK
        29 => {
            let slack = &mut call.thread.state.lock().timer_slack;
            slack.0 = if value == 0 { slack.1 } else { value };
        }
        30 => return Ok(call.thread.state.lock().timer_slack.0),
        // PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
        36 => process.change(Change::Subreaper(value != 0)).await?,
        37 => {
            let on = i32::from(process.with_shared(|shared| shared.child_subreaper));
            call.put(UserAddr(value), &on).await?;
        }
        // PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS
        38 if value != 1 || call.arguments()[2..5] != [0; 3] => return Err(Errno::EINVAL),
        38 => process.change(Change::NoNewPrivileges).await?,
        39 if call.arguments()[1..5] != [0; 4] => return Err(Errno::EINVAL),
        39 => return Ok(u64::from(process.with_shared(|shared| shared.no_new_privileges))),
        // PR_GET_TID_ADDRESS
        40 => {
            let at = call.thread.state.lock().clear_child_tid;
            call.put(UserAddr(value), &at).await?;
        }
        // PR_SET_THP_DISABLE, PR_GET_THP_DISABLE: there are no huge pages to disable.
        41 if call.arguments()[2..5] != [0; 3] => return Err(Errno::EINVAL),
        42 if call.arguments()[1..5] != [0; 4] => return Err(Errno::EINVAL),
        41 | 42 => return Ok(u64::from(call.arg(0) == 42)),
        option => {
            log::debug!("prctl {option}");
            return Err(unsupported(call, "a prctl option", Errno::EINVAL));
        }
    }
    Ok(0)
}

/// Kept and handed on. Of its effects there are ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC and the machine name of 32 bits.
pub(crate) async fn personality(call: &mut Call<'_>) -> Result<u64> {
    let wanted = call.arg(0) as u32;
    let mut state = call.thread.state.lock();
    let old = state.personality;
    if wanted != u32::MAX {
        state.personality = wanted;
    }
    Ok(u64::from(old))
}

pub(crate) async fn getcpu(call: &mut Call<'_>) -> Result<u64> {
    let cpu = call.system().cpu.current().0;
    call.put_if(call.pointer(0), &cpu).await?;
    call.put_if(call.pointer(1), &call.system().node_of(cpu)).await?;
    Ok(0)
}

pub(crate) async fn getrandom(call: &mut Call<'_>) -> Result<u64> {
    const NONBLOCK: u64 = 1;
    const RANDOM: u64 = 2;
    const INSECURE: u64 = 4;
    let flags = u64::from(call.arg(2) as u32);
    if flags & !(NONBLOCK | RANDOM | INSECURE) != 0 || flags & (RANDOM | INSECURE) == RANDOM | INSECURE {
        return Err(Errno::EINVAL);
    }
    let len = call.arg(1).min(MAX_RW_COUNT as u64) as usize;
    single(call.pointer(0), len as u64)?;
    let mut done = 0;
    let mut chunk = [0u8; 256];
    while done < len {
        if done % PAGE_SIZE == 0 && done > 0 {
            call.pause().await?;
        }
        let part = &mut chunk[..(len - done).min(256)];
        call.system().cpu.random(part);
        let (written, error) = call.space().write_some(call.pointer(0).add(done), part).await;
        done += written;
        if written < part.len() {
            return if done > 0 { Ok(done as u64) } else { Err(error) };
        }
    }
    Ok(done as u64)
}
