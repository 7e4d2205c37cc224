//! clone, clone3, fork, vfork, and the ids they leave (man 2 clone).

use crate::{arch, call::Call, table::unsupported};
use abi::signal::Signal;
use alloc::vec::Vec;
use fs::{event::PidFd, Kind, OpenFlags, PathAnswer, PathOp};
use machine::{errno::Result, Errno, Pid, UserAddr, UserRegisters};
use messages::{
    inspect::{Inspect, Inspection},
    process::{ExitStatus, SharedPart},
};
use process::{CloneRequest, Thread};
use procfs::cgroup::MAGIC as CGROUP2_MAGIC;
use zerocopy::{FromBytes, IntoBytes};

const CSIGNAL: u64 = 0xff;
const VM: u64 = 0x100;
const FS: u64 = 0x200;
const FILES: u64 = 0x400;
const SIGHAND: u64 = 0x800;
const PIDFD: u64 = 0x1000;
const PTRACE: u64 = 0x2000;
const VFORK: u64 = 0x4000;
const PARENT: u64 = 0x8000;
const THREAD: u64 = 0x1_0000;
const NEWNS: u64 = 0x2_0000;
const SYSVSEM: u64 = 0x4_0000;
const SETTLS: u64 = 0x8_0000;
const PARENT_SETTID: u64 = 0x10_0000;
const CHILD_CLEARTID: u64 = 0x20_0000;
const DETACHED: u64 = 0x40_0000;
const UNTRACED: u64 = 0x80_0000;
const CHILD_SETTID: u64 = 0x100_0000;
const IO: u64 = 0x8000_0000;
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const INTO_CGROUP: u64 = 0x2_0000_0000;
const NEWUSER: u64 = 0x1000_0000;
/// Most process ids that a caller may choose.
const MAX_PID_NS_LEVEL: u64 = 32;
/// Namespaces that Cob does not have.
const NAMESPACES: u64 = 0x7e00_0000 | NEWNS | 0x80;

/// The arguments of all four calls.
#[derive(Clone, Copy, Default)]
struct Request {
    flags: u64,
    exit_signal: u64,
    stack: u64,
    tls: u64,
    parent_tid: UserAddr,
    child_tid: UserAddr,
    pidfd: UserAddr,
    cgroup: Option<u64>,
}

pub(crate) async fn clone(call: &mut Call<'_>) -> Result<u64> {
    let [flags, stack, parent_tid, child_tid, tls] = arch::clone_arguments(call.arguments());
    if flags & PIDFD != 0 && flags & DETACHED != 0 {
        return Err(Errno::EINVAL);
    }
    let request = Request {
        pidfd: UserAddr(parent_tid),
        flags: flags & 0xffff_ffff & !CSIGNAL,
        exit_signal: flags & CSIGNAL,
        stack,
        tls,
        parent_tid: UserAddr(parent_tid),
        child_tid: UserAddr(child_tid),
        cgroup: None,
    };
    start(call, request).await
}

pub(crate) async fn fork(call: &mut Call<'_>) -> Result<u64> {
    start(call, Request { exit_signal: u64::from(Signal::CHLD.number()), ..Request::default() }).await
}

pub(crate) async fn vfork(call: &mut Call<'_>) -> Result<u64> {
    let exit_signal = u64::from(Signal::CHLD.number());
    start(call, Request { flags: VM | VFORK, exit_signal, ..Request::default() }).await
}

/// `struct clone_args`, version 2.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes)]
#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

pub(crate) async fn clone3(call: &mut Call<'_>) -> Result<u64> {
    const VERSION_0: usize = 64;
    let size = call.arg(1) as usize;
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    if size < VERSION_0 {
        return Err(Errno::EINVAL);
    }
    let bytes = call.bytes(call.pointer(0), size, 4096).await?;
    let known_size = core::mem::size_of::<CloneArgs>();
    let known = known_size;
    if bytes.iter().skip(known).any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    let mut args = CloneArgs::default();
    let len = size.min(known);
    args.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    let known = 0xffff_ffff | CLEAR_SIGHAND | INTO_CGROUP;
    if args.flags & (CSIGNAL | DETACHED) != 0 || args.flags & !known != 0 || args.exit_signal > 64 {
        return Err(Errno::EINVAL);
    }
    if args.flags & (THREAD | PARENT) != 0 && args.exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    if (args.stack == 0) != (args.stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    if args.set_tid_size > MAX_PID_NS_LEVEL || (args.set_tid == 0) != (args.set_tid_size == 0) {
        return Err(Errno::EINVAL);
    }
    if args.flags & INTO_CGROUP != 0 && (args.cgroup > i32::MAX as u64 || size < known_size) {
        return Err(Errno::EINVAL);
    }
    if args.set_tid_size != 0 {
        return Err(unsupported(call, "clone3 with set_tid", Errno::EPERM));
    }
    let cgroup = match args.flags & INTO_CGROUP != 0 {
        true => Some(group_of(call, args.cgroup as i32).await?),
        false => None,
    };
    let request = Request {
        pidfd: UserAddr(args.pidfd),
        flags: args.flags,
        exit_signal: args.exit_signal,
        stack: args.stack.wrapping_add(args.stack_size),
        tls: args.tls,
        parent_tid: UserAddr(args.parent_tid),
        child_tid: UserAddr(args.child_tid),
        cgroup,
    };
    start(call, request).await
}

/// CLONE_INTO_CGROUP: the inode number of the group's directory that is open as `fd`.
async fn group_of(call: &Call<'_>, fd: i32) -> Result<u64> {
    let file = call.file_or_name_at(fd).await?;
    let base = call.base_of(fd, &[]).await?;
    let info = call.system().paths.run(&call.caller(), &base, PathOp::StatFs { path: Vec::new() }).await?;
    let attributes = file.attributes().await?;
    match info {
        PathAnswer::FileSystem(info) if info.kind == CGROUP2_MAGIC && attributes.kind() == Kind::Directory => {
            Ok(attributes.ino)
        }
        _ => Err(Errno::EBADF),
    }
}

async fn start(call: &mut Call<'_>, request: Request) -> Result<u64> {
    let flags = request.flags;
    let has = |flag: u64| flags & flag != 0;
    if has(SIGHAND) && !has(VM) || has(THREAD) && !has(SIGHAND) || has(CLEAR_SIGHAND) && has(SIGHAND) {
        return Err(Errno::EINVAL);
    }
    // A mount or user namespace has a root directory of its own.
    if has(FS) && has(NEWNS | NEWUSER) {
        return Err(Errno::EINVAL);
    }
    if has(NAMESPACES) {
        return Err(unsupported(call, "clone into new namespaces", Errno::EPERM));
    }
    // The pidfd and the id can't both be written to one place.
    if has(PIDFD) && (has(THREAD) || has(PARENT_SETTID) && request.pidfd == request.parent_tid) {
        return Err(Errno::EINVAL);
    }
    let _ignored_as_linux_does = PTRACE | UNTRACED | SYSVSEM | IO;
    let mut registers = call.context.registers;
    registers.set_result(0);
    if request.stack != 0 {
        registers.set_stack(request.stack);
    }
    if has(SETTLS) {
        arch::set_thread_pointer(&mut registers, request.tls)?;
    }
    let clone = CloneRequest {
        thread: has(THREAD),
        share_space: has(VM),
        share_files: has(FILES),
        parent_waits: has(VFORK),
        share_directories: has(FS),
        share_handlers: has(SIGHAND),
        sibling: has(PARENT),
        clear_handlers: has(CLEAR_SIGHAND),
        exit_signal: request.exit_signal as u8,
        cgroup: request.cgroup,
        clear_child_tid: if has(CHILD_CLEARTID) { request.child_tid.0 } else { 0 },
        registers,
    };
    if has(PIDFD) {
        check_pidfd(call, request.pidfd).await?;
    }
    let child = call.thread.clone_from(&clone).await?;
    let tid = child.tid;
    if has(PIDFD) {
        // After the child got its copy of the table, which is not to have it.
        let file = super::pidfd::make(call.system(), tid, OpenFlags::empty());
        match call.install(file, true).await {
            Ok(fd) => drop(call.put(request.pidfd, &(fd as u32)).await),
            Err(error) => {
                // Another thread took the last number since the check: the child ends before it begins.
                child.process.end(ExitStatus::Signal { signal: Signal::KILL, core: false }).await;
                child.launch(&clone);
                return Err(error);
            }
        }
    }
    // As in Linux a bad address is not an error any more at this point.
    if has(PARENT_SETTID) {
        let _ = call.space().write(request.parent_tid, &tid.0.to_le_bytes()).await;
    }
    if has(CHILD_SETTID) {
        let _ = child.process.space().write(request.child_tid, &tid.0.to_le_bytes()).await;
    }
    child.launch(&clone);
    if has(VFORK) {
        // Only the end of the process ends this wait early.
        let released = Thread::wait_for_release(&child);
        call.thread.unless_killed(released).await;
    }
    Ok(u64::from(tid.0))
}

/// Is there a number left for a pidfd, and a place to tell it?
async fn check_pidfd(call: &Call<'_>, at: UserAddr) -> Result<()> {
    let file = PidFd::new(Pid(0), OpenFlags::empty());
    let fd = call.install(file, true).await?;
    call.process().files().take(fd as u32).await?;
    call.put(at, &(fd as u32)).await
}

/// unshare(2). Threads of a process have all of it in common here, so only a process of one thread can part.
pub(crate) async fn unshare(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(0);
    let has = |flag: u64| flags & flag != 0;
    if flags & !(THREAD | FS | SIGHAND | VM | FILES | SYSVSEM | NAMESPACES) != 0 {
        return Err(Errno::EINVAL);
    }
    if has(NAMESPACES) {
        return Err(unsupported(call, "unshare of namespaces", Errno::EPERM));
    }
    let process = call.process().clone();
    let sees = call.caller().credentials;
    let threads = match call.system().inspect(process.id, Inspect::Owner, sees).await? {
        Inspection::Owner { threads, .. } => threads.len(),
        _ => 1,
    };
    let several = threads > 1;
    if several && has(THREAD | SIGHAND | VM) {
        return Err(Errno::EINVAL);
    }
    if several && has(FS | FILES) {
        return Err(unsupported(call, "unshare between threads", Errno::EINVAL));
    }
    if has(FS) {
        process.leave_sharing_group(SharedPart::Directories).await?;
    }
    if has(FILES) && process.files().is_shared() {
        process.unshare_files().await?;
    }
    Ok(0)
}

pub(crate) async fn set_tid_address(call: &mut Call<'_>) -> Result<u64> {
    call.thread.state.lock().clear_child_tid = call.arg(0);
    Ok(u64::from(call.thread.tid.0))
}

pub(crate) async fn set_robust_list(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(1) != 24 {
        return Err(Errno::EINVAL);
    }
    call.thread.state.lock().robust_list = (call.arg(0), call.arg(1));
    Ok(0)
}

pub(crate) async fn get_robust_list(call: &mut Call<'_>) -> Result<u64> {
    let head = match call.int(0) {
        0 => call.thread.state.lock().robust_list.0,
        pid => {
            let thread = Pid(u32::try_from(pid).map_err(|_| Errno::ESRCH)?);
            let process = call.system().process_of(thread).await.ok_or(Errno::ESRCH)?;
            match super::memory::look(call, process, Inspect::RobustList { thread }).await? {
                Inspection::RobustList(head) => head,
                _ => return Err(Errno::EIO),
            }
        }
    };
    call.put(call.pointer(2), &24u64).await?;
    call.put(call.pointer(1), &head).await?;
    Ok(0)
}

pub(crate) async fn getpid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(call.process().id.0))
}

pub(crate) async fn gettid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(call.thread.tid.0))
}

pub(crate) async fn getppid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(call.process().with_shared(|shared| shared.parent.0)))
}
