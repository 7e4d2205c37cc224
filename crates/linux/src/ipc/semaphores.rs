//! semget, semop, semtimedop, semctl.

use super::*;
use crate::arch;
use ::ipc::{OPS_MAX, SET_MAX, VALUE_MAX};
use ::messages::ipc::{Details, SemaphoreOp, SemaphoreOps};
use machine::UserAddr;
use zerocopy::IntoBytes;

const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;

pub(crate) async fn semget(call: &mut Call<'_>) -> Result<u64> {
    let count = call.int(1);
    if count < 0 || count as u64 > SET_MAX {
        return Err(Errno::EINVAL);
    }
    get(call, IpcKind::Semaphores, call.int(0), count as u64, call.arg(2) as u32).await
}

pub(crate) async fn semop(call: &mut Call<'_>) -> Result<u64> {
    operate(call, UserAddr::NULL).await
}

pub(crate) async fn semtimedop(call: &mut Call<'_>) -> Result<u64> {
    operate(call, call.pointer(3)).await
}

async fn operate(call: &Call<'_>, timeout: UserAddr) -> Result<u64> {
    let (id, count) = (call.int(0), call.arg(2) as u32 as usize);
    let timeout: Option<Timespec> = match timeout.is_null() {
        true => None,
        false => Some(call.get(timeout).await?),
    };
    if count > OPS_MAX {
        return Err(Errno::E2BIG);
    }
    if count < 1 {
        return Err(Errno::EINVAL);
    }
    let raw: Vec<[u16; 3]> = call.space().read_values(call.pointer(1), count).await?;
    // What the timeout says comes last.
    let deadline = match timeout {
        None => u64::MAX,
        Some(timeout) => call.system().now().saturating_add(timeout.to_ns()?),
    };
    let ops = raw.iter().map(|[number, change, flags]| SemaphoreOp {
        number: *number,
        change: *change as i16,
        flags: *flags as i16,
    });
    let ask = SemaphoreOps { id, ops: ops.collect(), asker: asker(call) };
    wait(call, owner(id)?, ask, (), deadline, Errno::EINTR).await?;
    Ok(0)
}

pub(crate) async fn semctl(call: &mut Call<'_>) -> Result<u64> {
    let (id, number, command) = (call.int(0), call.int(1), call.int(2));
    let at = call.pointer(3);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let kind = IpcKind::Semaphores;
    let asked = match command {
        INFO | SEM_INFO => return info(call, command, at).await,
        STAT => return stat(call, id, true, at).await.map(|_| 0),
        SEM_STAT | SEM_STAT_ANY => {
            let id = at_index(call, kind, id).await?;
            return stat(call, id, command == SEM_STAT, at).await;
        }
        GETALL => Command::GetAll,
        GETVAL => Command::GetValue { number },
        GETPID => Command::GetPid { number },
        GETNCNT => Command::GetWaiting { number, zero: false },
        GETZCNT => Command::GetWaiting { number, zero: true },
        SETVAL => {
            // Told before the set is looked for.
            let value = Some(call.int(3)).filter(|value| (0..=VALUE_MAX).contains(value)).ok_or(Errno::ERANGE)?;
            Command::SetValue { number, value }
        }
        SETALL => {
            let status = status(call, kind, id, false).await?;
            let Details::Semaphores { count, .. } = status.details else { return Err(Errno::EINVAL) };
            Command::SetAll(call.space().read_values(at, count as usize).await?)
        }
        SET => {
            let (uid, gid, mode) = new_permissions(call, at).await?;
            Command::Set { uid, gid, mode, limit: None }
        }
        REMOVE => Command::Remove,
        _ => return Err(Errno::EINVAL),
    };
    match control(call, kind, id, asked).await? {
        Answer::Number(number) => Ok(number as u64),
        Answer::Values(values) => {
            call.space().write(at, values.as_slice().as_bytes()).await?;
            Ok(0)
        }
        _ => Ok(0),
    }
}

/// `struct semid64_ds`.
async fn stat(call: &Call<'_>, id: i32, check: bool, at: UserAddr) -> Result<u64> {
    let status = status(call, IpcKind::Semaphores, id, check).await?;
    let Details::Semaphores { count, operated } = status.details else { return Err(Errno::EIO) };
    let fields = Fields::default().permissions(&status.permissions, id);
    let times = [operated, status.changed].into_iter().flat_map(arch::with_time);
    let fields = times.fold(fields, Fields::long).long(count).longs(2);
    call.space().write(at, &fields.0).await?;
    Ok(id as u64)
}

/// `struct seminfo`; answers the highest index in use.
async fn info(call: &Call<'_>, command: i32, at: UserAddr) -> Result<u64> {
    let all = service(call.system())?.list(IpcKind::Semaphores).await;
    let count = |status: &Status| match status.details {
        Details::Semaphores { count, .. } => count as u32,
        _ => 0,
    };
    let (sets, semaphores) = match command {
        SEM_INFO => (all.len() as u32, all.iter().map(count).sum()),
        // SEMUSZ and SEMAEM.
        _ => (20, VALUE_MAX as u32),
    };
    const SEMMNI: u32 = 32000;
    let most = SEMMNI * SET_MAX as u32;
    let ops = OPS_MAX as u32;
    let words = [most, SEMMNI, most, most, SET_MAX as u32, ops, ops, sets, VALUE_MAX as u32, semaphores];
    call.put(at, &words).await?;
    Ok(all.len().saturating_sub(1) as u64)
}
