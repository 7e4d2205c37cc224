//! pidfd_open, pidfd_send_signal (man 2 pidfd_open). A task waits for the end of the process, at its home, and
//! tells the descriptor; it lives as long as the process.

use super::signals;
use crate::{call::Call, table::unsupported};
use alloc::sync::Arc;
use fs::{event::PidFd, File, OpenFlags};
use machine::{errno::Result, Errno, Pid};
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

/// The process behind a descriptor's file. EBADF if it is something else.
pub(crate) fn of<'a>(call: &Call<'_>, file: &'a Arc<dyn File>) -> Result<&'a PidFd> {
    if file.remote().is_some() {
        return Err(unsupported(call, "a pidfd made on another kernel", Errno::ENOSYS));
    }
    file.as_any().downcast_ref().ok_or(Errno::EBADF)
}

pub(crate) async fn pidfd_send_signal(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(3) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0).await?;
    let pid = of(call, &file)?.process();
    let info = match call.pointer(2) {
        at if at.is_null() => signals::number(call.arg(1))?.map(|signal| signals::info(call, signal, 0)),
        at => {
            let named: u32 = call.get(at).await?;
            if named != call.arg(1) as u32 {
                return Err(Errno::EINVAL);
            }
            signals::queued_info(call, call.arg(1), at, pid == call.process().id).await?
        }
    };
    let sender = call.caller().credentials;
    Arc::clone(call.system()).signal(Target::Process(pid), info, Some(sender), call.process().id).await?;
    Ok(0)
}
