//! System V IPC (man 7 sysvipc). The objects and their keys are crate `ipc`'s; here are arguments, structures and waits.

pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod semaphores;

use crate::{call::Call, time::Timespec};
use ::ipc::service;
use ::messages::{
    inspect::RunState,
    ipc::{Answer, Asker, Command, IpcControl, IpcKind, Permissions, Status, Wanted},
    Request,
};
use alloc::vec::Vec;
use core::{
    future::Future,
    pin::{pin, Pin},
    task::Poll,
};
use fabric::CallError;
use machine::{errno::Result, Errno, KernelId};

pub(crate) const REMOVE: i32 = 0;
pub(crate) const SET: i32 = 1;
pub(crate) const STAT: i32 = 2;
pub(crate) const INFO: i32 = 3;

fn asker(call: &Call<'_>) -> Asker {
    Asker { who: call.caller().credentials, process: call.process().id }
}

fn owner(id: i32) -> Result<KernelId> {
    ::ipc::owner(id).ok_or(Errno::EINVAL)
}

async fn get(call: &Call<'_>, kind: IpcKind, key: i32, size: u64, flags: u32) -> Result<u64> {
    let wanted = Wanted { kind, key, flags, size, asker: asker(call) };
    Ok(service(call.system())?.get(wanted).await? as u64)
}

/// shmctl, semctl, msgctl of one object. A kernel that is not there owns nothing.
async fn control(call: &Call<'_>, kind: IpcKind, id: i32, command: Command) -> Result<Answer> {
    let ask = IpcControl { kind, id, command, asker: asker(call) };
    call.system().endpoint.call(owner(id)?, ask).await.map_err(|_| Errno::EINVAL)?
}

async fn status(call: &Call<'_>, kind: IpcKind, id: i32, check: bool) -> Result<Status> {
    match control(call, kind, id, Command::Status { check }).await? {
        Answer::Status(status) => Ok(status),
        _ => Err(Errno::EIO),
    }
}

/// The object at an index of the machine's list (SHM_STAT and its like).
async fn at_index(call: &Call<'_>, kind: IpcKind, index: i32) -> Result<i32> {
    let all = service(call.system())?.list(kind).await;
    usize::try_from(index).ok().and_then(|index| all.get(index)).map(|status| status.id).ok_or(Errno::EINVAL)
}

/// Asks an owner who may let us wait; what is `lent` stays so until it has answered, even if nobody waits for that any more. A signal is
/// `signalled`, the deadline EAGAIN.
async fn wait<M: Request<Reply = Result<T>>, T: Send + 'static>(
    call: &Call<'_>,
    to: KernelId,
    message: M,
    lent: impl Send + 'static,
    deadline: u64,
    signalled: Errno,
) -> Result<T> {
    if !call.system().kernels().contains(&to) {
        return Err(Errno::EINVAL);
    }
    let mut sleep = pin!(call.system().scheduler.sleep_until(deadline));
    let mut asked = call.system().endpoint.call_then(to, message, move |answer| {
        drop(lent);
        answer
    });
    let mut interrupted = None;
    let _waits = call.thread.waits(RunState::Interruptible);
    let answer = core::future::poll_fn(|context| {
        if let Poll::Ready(answer) = Pin::new(&mut asked).poll(context) {
            return Poll::Ready(answer);
        }
        if interrupted.is_none() {
            if call.thread.is_interrupted() {
                interrupted = Some(signalled);
            } else if sleep.as_mut().poll(context).is_ready() {
                interrupted = Some(Errno::EAGAIN);
            }
            if interrupted.is_some() {
                asked.cancel();
                return Pin::new(&mut asked).poll(context);
            }
        }
        Poll::Pending
    })
    .await;
    match answer {
        Ok(answer) => answer,
        Err(CallError::Cancelled) => Err(interrupted.unwrap_or(signalled)),
        // The owner is dead, and its objects with it.
        Err(_) => Err(if to == call.system().kernel { Errno::EIO } else { Errno::EIDRM }),
    }
}

/// Values as a structure lays them out.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn int(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn longs(self, count: usize) -> Self {
        (0..count).fold(self, |fields, _| fields.long(0))
    }

    /// `struct ipc64_perm`.
    fn permissions(self, permissions: &Permissions, id: i32) -> Self {
        let Permissions { key, uid, gid, cuid, cgid, mode } = *permissions;
        let fields = [key as u32, uid, gid, cuid, cgid, mode].into_iter().fold(self, Fields::int);
        fields.int((id / 512) as u32 & 0xffff).int(0).longs(2)
    }
}

/// What IPC_SET takes over: `struct ipc64_perm` at the beginning of the structure.
async fn new_permissions(call: &Call<'_>, at: machine::UserAddr) -> Result<(u32, u32, u32)> {
    let words: [u32; 12] = call.get(at).await?;
    Ok((words[1], words[2], words[5]))
}
