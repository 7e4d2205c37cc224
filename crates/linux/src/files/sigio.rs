//! Signal-driven I/O: whom a file signals, and how (man 2 fcntl, "Managing signals"). What is kept, and when a signal is sent, is
//! crate `fs`'s (`file/sigio.rs`); who may be signalled, crate `process`'s.

use crate::{call::Call, process::signals};
use abi::{
    capability,
    signal::{Signal, SignalInfo},
    CapabilitySet, Credentials, FileOwner, OwnerChange, OwnerKind,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use fs::{file::Signaller, remote::change_owner, File};
use machine::{errno::Result, BoxFuture, Errno, Pid};
use process::{System, Target};

/// Signals owners of files of this kernel, wherever they are.
pub(crate) struct Owners(pub Weak<System>);

impl Signaller for Owners {
    fn signal(&self, owner: FileOwner, info: SignalInfo) -> BoxFuture<'static, Result<()>> {
        let system = self.0.upgrade();
        Box::pin(async move {
            let (Some(system), Some(id)) = (system, owner.id) else { return Ok(()) };
            let (info, sender) = (Some(info), Some(sender(&owner)));
            match owner.kind {
                OwnerKind::Thread => system.signal_thread(None, id, info, sender).await,
                OwnerKind::Process => system.signal(Target::Process(id), info, sender, Pid(0)).await,
                OwnerKind::Group => system.signal(Target::Group(id), info, sender, Pid(0)).await,
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(system) = self.0.upgrade() {
            system.scheduler.defer(task);
        }
    }
}

/// Who made it the owner, as sigio_perm looks at them: root may signal everybody, whatever its capabilities.
fn sender(owner: &FileOwner) -> Credentials {
    let effective = if owner.euid == 0 { CapabilitySet::only(capability::KILL) } else { CapabilitySet::NONE };
    Credentials { uid: owner.uid, euid: owner.euid, effective, ..Credentials::default() }
}

async fn change(call: &Call<'_>, file: &Arc<dyn File>, change: OwnerChange) -> Result<FileOwner> {
    let signaller: Arc<dyn Signaller> = Arc::new(Owners(Arc::downgrade(call.system())));
    change_owner(file, &call.caller(), change, &signaller).await
}

/// O_ASYNC by F_SETFL or FIOASYNC. ENOTTY: the file signals nobody.
pub(crate) async fn set_async(call: &Call<'_>, file: &Arc<dyn File>, on: bool) -> Result<()> {
    let begin_or_end = if on { OwnerChange::Begin(call.int(0)) } else { OwnerChange::End };
    change(call, file, begin_or_end).await.map(drop)
}

/// F_SETFL drops an O_ASYNC that means nothing to the file.
pub(crate) fn without_it(error: Errno) -> Result<()> {
    match error {
        Errno::ENOTTY => Ok(()),
        error => Err(error),
    }
}

/// Does this number name a process or a thread, also one that has ended but was not waited for?
async fn is_process(system: &Arc<System>, id: Pid) -> bool {
    system.signal(Target::Process(id), None, None, Pid(0)).await.is_ok()
}

async fn set(call: &Call<'_>, file: &Arc<dyn File>, kind: OwnerKind, id: Option<Pid>) -> Result<()> {
    if let Some(id) = id {
        let system = call.system();
        if !is_process(system, id).await && !system.group_exists(id, None).await {
            return Err(Errno::ESRCH);
        }
    }
    let Credentials { uid, euid, .. } = call.caller().credentials;
    change(call, file, OwnerChange::Owner { kind, id, uid, euid }).await.map(drop)
}

/// F_SETOWN, FIOSETOWN, SIOCSPGRP: a process, or (negative) a group.
pub(crate) async fn set_owner(call: &Call<'_>, file: &Arc<dyn File>, id: i32) -> Result<()> {
    let kind = if id < 0 { OwnerKind::Group } else { OwnerKind::Process };
    let id = id.checked_abs().ok_or(Errno::EINVAL)? as u32;
    set(call, file, kind, (id != 0).then_some(Pid(id))).await
}

/// F_SETOWN_EX.
pub(crate) async fn set_owner_of_kind(call: &Call<'_>, file: &Arc<dyn File>) -> Result<()> {
    let [kind, id]: [u32; 2] = call.get(call.pointer(2)).await?;
    let kinds = [OwnerKind::Thread, OwnerKind::Process, OwnerKind::Group];
    let kind = kinds.into_iter().find(|known| *known as u32 == kind).ok_or(Errno::EINVAL)?;
    set(call, file, kind, (id != 0).then_some(Pid(id))).await
}

/// The owner of `file`, as far as it is still there; 0: nobody.
async fn living(call: &Call<'_>, file: &Arc<dyn File>) -> Result<(OwnerKind, i32)> {
    let owner = change(call, file, OwnerChange::Ask).await?;
    let Some(id) = owner.id else { return Ok((owner.kind, 0)) };
    let system = call.system();
    let lives = match owner.kind {
        OwnerKind::Thread => is_process(system, id).await,
        // A thread may be signalled as if it were the process, but does not count as one here.
        OwnerKind::Process => is_process(system, id).await && system.process_of(id).await.is_none_or(|of| of == id),
        OwnerKind::Group => system.group_exists(id, None).await,
    };
    Ok((owner.kind, if lives { id.0 as i32 } else { 0 }))
}

/// F_GETOWN, FIOGETOWN, SIOCGPGRP: a process, or (negative) a group.
pub(crate) async fn owner(call: &Call<'_>, file: &Arc<dyn File>) -> Result<i32> {
    Ok(match living(call, file).await? {
        (OwnerKind::Group, id) => -id,
        (_, id) => id,
    })
}

/// F_GETOWN_EX.
pub(crate) async fn owner_of_kind(call: &Call<'_>, file: &Arc<dyn File>) -> Result<()> {
    let (kind, id) = living(call, file).await?;
    call.put(call.pointer(2), &[kind as i32, id]).await
}

/// F_GETOWNER_UIDS.
pub(crate) async fn owner_ids(call: &Call<'_>, file: &Arc<dyn File>) -> Result<()> {
    let FileOwner { uid, euid, .. } = change(call, file, OwnerChange::Ask).await?;
    call.put(call.pointer(2), &[uid, euid]).await
}

/// F_SETSIG; 0 is SIGIO without anything about the file.
pub(crate) async fn set_signal(call: &Call<'_>, file: &Arc<dyn File>) -> Result<()> {
    let signal: Option<Signal> = signals::number(call.arg(2))?;
    change(call, file, OwnerChange::Signal(signal)).await.map(drop)
}

/// F_GETSIG.
pub(crate) async fn signal(call: &Call<'_>, file: &Arc<dyn File>) -> Result<u32> {
    let owner = change(call, file, OwnerChange::Ask).await?;
    Ok(owner.signal.map_or(0, |signal| u32::from(signal.number())))
}
