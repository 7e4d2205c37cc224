//! msgget, msgsnd, msgrcv, msgctl.

use super::*;
use ::ipc::{COPY, EXCEPT, MESSAGE_MAX, NO_WAIT, QUEUE_MAX};
use ::messages::ipc::{Details, MessageReceive, MessageSend};
use alloc::sync::Arc;
use fs::remote::loan::Loan;
use machine::UserAddr;

const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const MSG_STAT_ANY: i32 = 13;

pub(crate) async fn msgget(call: &mut Call<'_>) -> Result<u64> {
    get(call, IpcKind::Messages, call.int(0), 0, call.arg(1) as u32).await
}

pub(crate) async fn msgsnd(call: &mut Call<'_>) -> Result<u64> {
    let (id, at, size, flags) = (call.int(0), call.pointer(1), call.arg(2), call.arg(3) as u32);
    let kind: i64 = call.get(at).await?;
    if size > MESSAGE_MAX || id < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let bytes = call.bytes(at.add(8), size as usize, MESSAGE_MAX as usize).await?;
    let (to, poll) = (owner(id)?, flags & NO_WAIT != 0);
    let loan = lend(call, to, bytes.len());
    let ask = MessageSend { id, kind, data: loan.send(&bytes), poll, asker: asker(call) };
    wait(call, to, ask, loan, u64::MAX, Errno::RESTART_NO_HANDLER).await?;
    Ok(0)
}

pub(crate) async fn msgrcv(call: &mut Call<'_>) -> Result<u64> {
    let (id, at, size, kind, flags) =
        (call.int(0), call.pointer(1), call.arg(2), call.arg(3) as i64, call.arg(4) as u32);
    if id < 0 || size > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    if flags & COPY != 0 && (flags & EXCEPT != 0 || flags & NO_WAIT == 0) {
        return Err(Errno::EINVAL);
    }
    if flags & COPY != 0 {
        // Linux makes the room for the copy by loading a message from there (prepare_copy).
        call.bytes(at, size.min(MESSAGE_MAX) as usize, MESSAGE_MAX as usize).await?;
    }
    let to = owner(id)?;
    let loan = lend(call, to, size.min(MESSAGE_MAX) as usize);
    let ask = MessageReceive { id, kind, size, flags, frames: loan.frames().to_vec(), asker: asker(call) };
    let (kind, taken) = wait(call, to, ask, loan.clone(), u64::MAX, Errno::RESTART_NO_HANDLER).await?;
    let bytes = loan.receive(taken);
    call.put(at, &kind).await?;
    call.space().write(at.add(8), &bytes).await?;
    Ok(bytes.len() as u64)
}

/// Frames for a message's bytes, if they go to another kernel.
fn lend(call: &Call<'_>, to: KernelId, bytes: usize) -> Arc<Loan> {
    let bytes = if to == call.system().kernel { 0 } else { bytes };
    Arc::new(Loan::for_bytes(&call.system().memory, bytes))
}

pub(crate) async fn msgctl(call: &mut Call<'_>) -> Result<u64> {
    let (id, command, at) = (call.int(0), call.int(1), call.pointer(2));
    if id < 0 || command < 0 {
        return Err(Errno::EINVAL);
    }
    let asked = match command {
        INFO | MSG_INFO => return info(call, command, at).await,
        STAT => return stat(call, id, true, at).await.map(|_| 0),
        MSG_STAT | MSG_STAT_ANY => {
            let id = at_index(call, IpcKind::Messages, id).await?;
            return stat(call, id, command == MSG_STAT, at).await;
        }
        SET => {
            let (uid, gid, mode) = new_permissions(call, at).await?;
            // msg_qbytes.
            let limit: u64 = call.get(at.add(88)).await?;
            Command::Set { uid, gid, mode, limit: Some(limit) }
        }
        REMOVE => Command::Remove,
        _ => return Err(Errno::EINVAL),
    };
    control(call, IpcKind::Messages, id, asked).await?;
    Ok(0)
}

/// `struct msqid64_ds`.
async fn stat(call: &Call<'_>, id: i32, check: bool, at: UserAddr) -> Result<u64> {
    let status = status(call, IpcKind::Messages, id, check).await?;
    let Details::Messages { bytes, count, limit, sent, received, sender, receiver } = status.details else {
        return Err(Errno::EIO);
    };
    let fields = Fields::default().permissions(&status.permissions, id).long(sent as u64).long(received as u64);
    let fields = fields.long(status.changed as u64).long(bytes).long(count).long(limit);
    let fields = fields.int(sender.0).int(receiver.0).longs(2);
    call.space().write(at, &fields.0).await?;
    Ok(id as u64)
}

/// `struct msginfo`; answers the highest index in use.
async fn info(call: &Call<'_>, command: i32, at: UserAddr) -> Result<u64> {
    const MSGMNI: u32 = 32000;
    let all = service(call.system())?.list(IpcKind::Messages).await;
    let (mut messages, mut bytes) = (0, 0);
    for status in &all {
        if let Details::Messages { bytes: held, count, .. } = status.details {
            messages += count as u32;
            bytes += held as u32;
        }
    }
    let (queue, most) = (QUEUE_MAX as u32, MESSAGE_MAX as u32);
    // MSGPOOL, MSGMAP, MSGTQL, or what is in use.
    let (pool, map, headers) = match command {
        MSG_INFO => (all.len() as u32, messages, bytes),
        _ => (MSGMNI * (queue / 1024), queue, queue),
    };
    call.put(at, &[pool, map, most, queue, MSGMNI, 16, headers, 0xffff]).await?;
    Ok(all.len().saturating_sub(1) as u64)
}
