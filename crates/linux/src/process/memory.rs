//! process_vm_readv and process_vm_writev (man 2 of both): the memory of any process, through its home.

use crate::{
    call::Call,
    files::vector::{total, vector, Segment, IOV_MAX},
};
use abi::Credentials;
use alloc::vec::Vec;
use machine::{collections::try_filled, errno::Result, Errno, Pid, UserAddr};
use messages::inspect::{Inspect, Inspection};

/// Bytes asked for at a time.
const CHUNK: u64 = 1 << 14;

pub(crate) async fn process_vm_readv(call: &mut Call<'_>) -> Result<u64> {
    transfer(call, false).await
}

pub(crate) async fn process_vm_writev(call: &mut Call<'_>) -> Result<u64> {
    transfer(call, true).await
}

async fn transfer(call: &Call<'_>, write: bool) -> Result<u64> {
    let [pid, local_at, local_count, remote_at, remote_count, flags] = call.arguments();
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let locals = vector(call, UserAddr(local_at), local_count).await?;
    if total(&locals) == 0 {
        return Ok(0);
    }
    let remotes = ranges(call, UserAddr(remote_at), remote_count).await?;
    if remotes.iter().all(|[_, length]| *length == 0) {
        return Ok(0);
    }
    let process = call.system().process_of(Pid(pid as u32)).await.ok_or(Errno::ESRCH)?;
    let mut done = 0;
    for (local, at) in pieces(&locals, &remotes) {
        let moved = match write {
            true => put(call, process, local, at).await,
            false => take(call, process, local, at).await,
        };
        match moved {
            Ok(moved) => done += moved,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if moved != Ok(local.len) {
            break;
        }
        call.pause().await?;
    }
    Ok(done as u64)
}

/// The other side's buffers: only their lengths are checked beforehand.
async fn ranges(call: &Call<'_>, at: UserAddr, count: u64) -> Result<Vec<[u64; 2]>> {
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let raw: Vec<[u64; 2]> = call.space().read_values(at, count as usize).await?;
    match raw.iter().any(|[_, length]| *length > i64::MAX as u64) {
        true => Err(Errno::EINVAL),
        false => Ok(raw),
    }
}

/// Both sides cut where either has a border, and into chunks.
fn pieces<'a>(locals: &'a [Segment], remotes: &'a [[u64; 2]]) -> impl Iterator<Item = (Segment, u64)> + 'a {
    let (mut local, mut remote) = ((0, 0), (0, 0));
    core::iter::from_fn(move || loop {
        let here = locals.get(local.0)?;
        let there = remotes.get(remote.0)?;
        let (left, wanted) = (here.len as u64 - local.1, there[1] - remote.1);
        if left == 0 {
            local = (local.0 + 1, 0);
        } else if wanted == 0 {
            remote = (remote.0 + 1, 0);
        } else {
            let len = left.min(wanted).min(CHUNK);
            let piece =
                (Segment { at: here.at.add(local.1 as usize), len: len as usize }, there[0].wrapping_add(remote.1));
            (local.1, remote.1) = (local.1 + len, remote.1 + len);
            return Some(piece);
        }
    })
}

/// From the process to here: as much as both sides have.
async fn take(call: &Call<'_>, process: Pid, to: Segment, from: u64) -> Result<usize> {
    let what = Inspect::Peek { at: from, bytes: to.len as u32 };
    let Inspection::Bytes(bytes) = look(call, process, what).await? else { return Err(Errno::EIO) };
    match call.space().write_some(to.at, &bytes).await {
        (0, error) => Err(error),
        (moved, _) => Ok(moved),
    }
}

async fn put(call: &Call<'_>, process: Pid, from: Segment, to: u64) -> Result<usize> {
    let mut bytes = try_filled(from.len, 0)?;
    let (len, error) = call.space().read_some(from.at, &mut bytes).await;
    if len == 0 {
        return Err(error);
    }
    bytes.truncate(len);
    match look(call, process, Inspect::Poke { at: to, bytes }).await? {
        Inspection::Count(moved) => Ok(moved as usize),
        _ => Err(Errno::EIO),
    }
}

pub(super) async fn look(call: &Call<'_>, process: Pid, what: Inspect) -> Result<Inspection> {
    let reader = match process == call.process().id {
        // One's own memory is always open.
        true => Credentials::default(),
        false => call.caller().credentials,
    };
    call.system().inspect(process, what, reader).await.map_err(|error| match error {
        // It has ended: no memory any more.
        Errno::ENOENT => Errno::ESRCH,
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_either_side_does() {
        let locals = [(0x1000, 3), (0x2000, 0), (0x3000, 5)].map(|(at, len)| Segment { at: UserAddr(at), len });
        let found: Vec<_> = pieces(&locals, &[[0x10, 4], [0x20, 0], [0x30, 2]])
            .map(|(local, at)| (local.at.0, local.len, at))
            .collect();
        assert_eq!(found, [(0x1000, 3, 0x10), (0x3000, 1, 0x13), (0x3001, 2, 0x30)]);
    }
}
