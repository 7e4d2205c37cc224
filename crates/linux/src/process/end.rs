//! exit, wait, and what they report (man 2 exit, wait4, waitid, getrusage, times).

use crate::{call::Call, time::Timeval};
use machine::{errno::Result, Errno, Pid};
use messages::process::{ChildEvent, ExitStatus, Usage, WaitAnswer, WaitFor, WaitKind};
use process::WaitOptions;
use zerocopy::{Immutable, IntoBytes};

const WNOHANG: i32 = 1;
const WUNTRACED: i32 = 2;
const WEXITED: i32 = 4;
const WCONTINUED: i32 = 8;
const WNOWAIT: i32 = 0x0100_0000;
/// __WNOTHREAD: children of all threads are waited for all the same.
const WNOTHREAD: i32 = 0x2000_0000;
const WALL: i32 = 0x4000_0000;
const WCLONE: i32 = 0x8000_0000u32 as i32;
const KINDS: i32 = WNOTHREAD | WALL | WCLONE;

pub(crate) async fn exit(call: &mut Call<'_>) -> Result<u64> {
    let code = call.int(0) as u8;
    crate::exit::thread(call.thread, code).await;
    call.over = true;
    Ok(0)
}

pub(crate) async fn exit_group(call: &mut Call<'_>) -> Result<u64> {
    let status = ExitStatus::Code(call.int(0) as u8);
    call.process().end(status).await;
    Ok(0)
}

/// `struct rusage`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Rusage {
    user: Timeval,
    system: Timeval,
    max_rss: i64,
    unused1: [i64; 3],
    minor_faults: i64,
    major_faults: i64,
    unused2: [i64; 6],
    voluntary: i64,
    involuntary: i64,
}

impl From<Usage> for Rusage {
    fn from(usage: Usage) -> Self {
        Rusage {
            user: Timeval::from_ns(usage.user_ns),
            system: Timeval::from_ns(usage.system_ns),
            max_rss: usage.max_rss as i64,
            minor_faults: usage.minor_faults as i64,
            major_faults: usage.major_faults as i64,
            voluntary: usage.voluntary_switches as i64,
            involuntary: usage.involuntary_switches as i64,
            ..Rusage::default()
        }
    }
}

fn kind_of(options: i32) -> WaitKind {
    match (options & WALL != 0, options & WCLONE != 0) {
        (true, _) => WaitKind::All,
        (false, true) => WaitKind::Clone,
        (false, false) => WaitKind::Usual,
    }
}

fn status_of(event: ChildEvent) -> i32 {
    match event {
        ChildEvent::Exited(status) => status.to_wait(),
        ChildEvent::Stopped(signal) => i32::from(signal.number()) << 8 | 0x7f,
        ChildEvent::Continued => 0xffff,
    }
}

async fn wait(call: &Call<'_>, which: WaitFor, options: WaitOptions) -> Result<Option<WaitAnswer>> {
    call.process().wait(which, options, call.thread.interruption()).await
}

pub(crate) async fn wait4(call: &mut Call<'_>) -> Result<u64> {
    let (pid, options) = (call.int(0), call.int(2));
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | KINDS) != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match pid {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => WaitFor::Any,
        0 => WaitFor::Group(call.process().with_shared(|shared| shared.group)),
        pid if pid < 0 => WaitFor::Group(Pid(pid.unsigned_abs())),
        pid => WaitFor::Process(Pid(pid as u32)),
    };
    let options = WaitOptions {
        kind: kind_of(options),
        exited: true,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        keep: false,
        poll: options & WNOHANG != 0,
    };
    let Some(answer) = wait(call, which, options).await? else { return Ok(0) };
    call.put_if(call.pointer(1), &status_of(answer.event)).await?;
    call.put_if(call.pointer(3), &Rusage::from(answer.usage)).await?;
    Ok(u64::from(answer.process.0))
}

/// Whatever comes of it, the place for the answer is written to: all zero with an error.
pub(crate) async fn waitid(call: &mut Call<'_>) -> Result<u64> {
    match wait_for_id(call).await {
        Err(error) if !call.pointer(2).is_null() && may_be_told(error) => {
            call.space().write(call.pointer(2), &[0; 28]).await?;
            Err(error)
        }
        done => done,
    }
}

/// Not an interrupted wait, which may be made again.
fn may_be_told(error: Errno) -> bool {
    !matches!(error, Errno::EFAULT | Errno::RESTART | Errno::RESTART_ALWAYS | Errno::RESTART_NO_HANDLER)
}

async fn wait_for_id(call: &Call<'_>) -> Result<u64> {
    let options = call.int(3);
    let known = WNOHANG | WNOWAIT | WEXITED | WUNTRACED | WCONTINUED | KINDS;
    if options & !known != 0 || options & (WEXITED | WUNTRACED | WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let id = call.int(1);
    let mut nonblocking = false;
    let which = match (call.int(0), id) {
        (0, _) => WaitFor::Any,
        (1, id) if id > 0 => WaitFor::Process(Pid(id as u32)),
        (2, 0) => WaitFor::Group(call.process().with_shared(|shared| shared.group)),
        (2, id) if id > 0 => WaitFor::Group(Pid(id as u32)),
        (3, id) if id >= 0 => {
            let file = call.file_at(id).await?;
            let process = super::pidfd::of(call, &file).await?;
            nonblocking = file.flags().contains(fs::OpenFlags::NONBLOCK);
            WaitFor::Process(process)
        }
        _ => return Err(Errno::EINVAL),
    };
    let options = WaitOptions {
        kind: kind_of(options),
        exited: options & WEXITED != 0,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        keep: options & WNOWAIT != 0,
        poll: options & WNOHANG != 0 || nonblocking,
    };
    let nothing_is_again = nonblocking && call.int(3) & WNOHANG == 0;
    let answer = wait(call, which, options).await?;
    if answer.is_none() && nothing_is_again {
        return Err(Errno::EAGAIN);
    }
    // siginfo_t: SIGCHLD with CLD_*; all zero when nothing happened.
    let mut info = [0u8; 128];
    if let Some(answer) = &answer {
        let (code, status) = match answer.event {
            ChildEvent::Exited(ExitStatus::Code(code)) => (1, i32::from(code)),
            ChildEvent::Exited(ExitStatus::Signal { signal, core }) => {
                (2 + i32::from(core), i32::from(signal.number()))
            }
            ChildEvent::Stopped(signal) => (5, i32::from(signal.number())),
            ChildEvent::Continued => (6, 18),
        };
        for (at, value) in [(0, 17), (8, code), (16, answer.process.0 as i32), (20, answer.uid as i32), (24, status)] {
            info[at..at + 4].copy_from_slice(&i32::to_le_bytes(value));
        }
        call.put_if(call.pointer(4), &Rusage::from(answer.usage)).await?;
    }
    if !call.pointer(2).is_null() {
        call.space().write(call.pointer(2), &info).await?;
    }
    Ok(0)
}

pub(crate) async fn getrusage(call: &mut Call<'_>) -> Result<u64> {
    let mut usage = match call.int(0) {
        0 => call.process().total_usage().await?.0,
        -1 => call.process().total_usage().await?.1,
        1 => call.thread.usage(),
        _ => return Err(Errno::EINVAL),
    };
    if call.int(0) >= 0 {
        usage.note_resident(call.space().peak().await.resident);
    }
    call.put(call.pointer(1), &Rusage::from(usage)).await?;
    Ok(0)
}

/// In ticks of 10 ms (USER_HZ 100).
pub(crate) async fn times(call: &mut Call<'_>) -> Result<u64> {
    let (own, children) = call.process().total_usage().await?;
    let ticks = |ns: u64| ns / 10_000_000;
    let times = [own.user_ns, own.system_ns, children.user_ns, children.system_ns].map(ticks);
    call.put_if(call.pointer(0), &times).await?;
    Ok(ticks(call.system().now()))
}
