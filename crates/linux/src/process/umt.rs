//! umt_enable and umt_control: user-monitored threads (docs/umt.md). Linux has neither and answers ENOSYS.

use crate::call::Call;
use alloc::vec::Vec;
use machine::{errno::Result, Errno};

/// A flag of umt_enable: only CPUs that have nothing to run are told of.
const IDLE: u64 = 1;
/// What umt_control does: tells whether the thread is monitored, then changes that.
const GET: u32 = 1;
const SET: u32 = 2;

/// `int umt_enable(int *fds, size_t count, unsigned flags)`: makes the counters of the calling process and stores their descriptors at `fds`, by the
/// number of the CPU. Answers how many there are. `flags`: 0 or [`IDLE`].
///
/// EINVAL: other flags, or `count` is less than there are CPUs. EBUSY: the process has counters. EFAULT, EMFILE, ENOMEM: and then it has none.
pub(crate) async fn umt_enable(call: &mut Call<'_>) -> Result<u64> {
    let (at, count) = (call.pointer(0), call.arg(1));
    let cpus = call.system().machine.lock().iter().flat_map(|(_, cpus)| cpus).map(|cpu| cpu.0 + 1).max().unwrap_or(0);
    let flags = call.arg(2) as u32 as u64;
    if flags & !IDLE != 0 || count < u64::from(cpus) {
        return Err(Errno::EINVAL);
    }
    let uid = call.caller().credentials.uid;
    let mut counters = call.process().make_counters(uid, flags & IDLE != 0).await?;
    // A kernel may have been booted meanwhile. Its CPUs have none.
    counters.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    let mut fds: Vec<u32> = Vec::new();
    let mut failed = None;
    for counter in counters {
        match call.install(counter, true).await {
            Ok(fd) => fds.push(fd as u32),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        failed = call.space().write_value(at, &fds[..]).await.err();
    }
    let Some(error) = failed else { return Ok(fds.len() as u64) };
    for fd in fds {
        if let Ok(file) = call.process().files().take(fd).await {
            fs::file::close(file).await;
        }
    }
    call.process().end_counters().await;
    Err(error)
}

/// `int umt_control(unsigned function, unsigned char active, unsigned char *was)`: with GET stores at `was` whether the calling thread is monitored; with SET has it
/// monitored (`active` 1) or not (0) from now on. With both, `was` is what it was before.
///
/// EINVAL: another function or `active`. ENXIO: the process has no counters. EFAULT: nothing was changed.
pub(crate) async fn umt_control(call: &mut Call<'_>) -> Result<u64> {
    let function = call.arg(0) as u32;
    if function & (GET | SET) == 0 || function & !(GET | SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let active = match call.arg(1) as u8 {
        active @ (0 | 1) => active == 1,
        _ if function & SET != 0 => return Err(Errno::EINVAL),
        _ => false,
    };
    // Who is monitored may stop that in any case: its process may have given up its counters (a umt_enable that failed in the end).
    let stops = function == SET && !active && call.thread.is_monitored();
    if !stops && !call.process().with_shared(|shared| shared.monitored) {
        return Err(Errno::ENXIO);
    }
    if function & GET != 0 {
        call.space().write_value(call.pointer(2), &[u8::from(call.thread.is_monitored())]).await?;
    }
    if function & SET != 0 {
        call.thread.set_monitored(active)?;
    }
    Ok(0)
}
