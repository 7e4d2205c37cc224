//! pidfd_open, pidfd_send_signal, pidfd_getfd (man 2 pidfd_open). A task waits for the end of the process, at its home, and
//! tells the descriptor; it lives as long as the process.

use super::signals;
use crate::call::Call;
use alloc::sync::Arc;
use fs::{
    control::{Control, ControlAnswer},
    event::PidFd,
    File, OpenFlags,
};
use machine::{errno::Result, Errno, Pid};
use messages::inspect::{Inspect, Inspection, ProcessFile};
use process::{System, Target};

pub(crate) async fn pidfd_open(call: &mut Call<'_>) -> Result<u64> {
    let flags = OpenFlags::from_bits_retain(call.arg(1) as u32);
    if !OpenFlags::NONBLOCK.contains(flags) || call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    let pid = Pid(call.int(0) as u32);
    match call.system().process_of(pid).await {
        Some(process) if process == pid => {}
        // Only the main thread's id stands for the process.
        Some(_) => return Err(Errno::EINVAL),
        None => return Err(Errno::ESRCH),
    }
    call.install(make(call.system(), pid, flags), true).await
}

/// A descriptor's file for a process that exists.
pub(crate) fn make(system: &Arc<System>, process: Pid, flags: OpenFlags) -> Arc<PidFd> {
    let file = PidFd::new(process, flags);
    let (told, waiting) = (Arc::downgrade(&file), system.clone());
    system.scheduler.spawn(async move {
        // One that is gone already, or whose kernel died, has ended too.
        let _ = waiting.await_end(process).await;
        if let Some(file) = told.upgrade() {
            file.end();
        }
    });
    file
}

/// The process behind a descriptor's file, wherever that was made. EBADF if it is something else.
pub(crate) async fn of(call: &Call<'_>, file: &Arc<dyn File>) -> Result<Pid> {
    named(call, file, Control::Process).await
}

async fn named(call: &Call<'_>, file: &Arc<dyn File>, by: Control) -> Result<Pid> {
    match file.control(&call.caller(), by).await {
        Ok(ControlAnswer::Number(pid)) => Ok(Pid(pid as u32)),
        _ => Err(Errno::EBADF),
    }
}

/// pidfd_getfd(2): a copy of another process's descriptor.
pub(crate) async fn pidfd_getfd(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(2) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0).await?;
    let (pid, fd) = (of(call, &file).await?, call.arg(1) as u32);
    let who = call.caller().credentials;
    let found = match call.system().inspect_file(pid, ProcessFile::Descriptor(fd), who).await {
        Ok(file) => file,
        Err(Errno::EACCES) => return Err(Errno::EPERM),
        Err(Errno::ENOENT) => {
            // A zombie has no descriptors any more.
            let who = call.caller().credentials;
            let view = call.system().inspect(pid, Inspect::View, who).await;
            let ended = matches!(view, Ok(Inspection::View(view)) if view.zombie);
            return Err(if ended { Errno::ESRCH } else { Errno::EBADF });
        }
        Err(error) => return Err(error),
    };
    call.install(found, true).await
}

pub(crate) async fn pidfd_send_signal(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(3) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0).await?;
    // As Linux did before there was pidfd_open, it also takes /proc/PID.
    let pid = match of(call, &file).await {
        Err(Errno::EBADF) => named(call, &file, Control::ProcessDirectory).await?,
        pid => pid?,
    };
    let info = match call.pointer(2) {
        at if at.is_null() => signals::number(call.arg(1))?.map(|signal| signals::info(call, signal, 0)),
        at => {
            let named: u32 = call.get(at).await?;
            if named != call.arg(1) as u32 {
                return Err(Errno::EINVAL);
            }
            signals::queued_info(call, call.arg(1), at, pid == call.process().id).await??
        }
    };
    let sender = call.caller().credentials;
    Arc::clone(call.system()).signal(Target::Process(pid), info, Some(sender), call.process().id).await?;
    Ok(0)
}
