//! Sending, catching, blocking and waiting for signals (man 7 signal).

use crate::{call::Call, signal, time};
use abi::signal::{Action, AltStack, Signal, SignalFields, SignalInfo, SignalSet};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid, UserAddr, UserRegisters};
use messages::{inspect::RunState, process::Change};
use process::Target;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Flags of sigaction(2) that Linux keeps (UAPI_SA_FLAGS and SA_RESTORER); the others it drops.
const KNOWN_FLAGS: u64 = 0xdc00_0807;

/// The kernel's sigset is eight bytes; any other size is refused.
pub(crate) fn check_size(size: u64) -> Result<()> {
    if size == 8 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// None for signal 0, which only asks.
pub(crate) fn number(value: u64) -> Result<Option<Signal>> {
    match value as u32 {
        0 => Ok(None),
        value => Signal::new(u64::from(value)).map(Some).ok_or(Errno::EINVAL),
    }
}

pub(crate) fn info(call: &Call<'_>, signal: Signal, code: i32) -> SignalInfo {
    let uid = call.thread.state.lock().credentials.uid;
    SignalInfo::user(signal, code, call.process().id, uid)
}

/// Who is not there can't be sent anything, not even a signal that is none.
fn unless_nobody(asked: Result<()>) -> Errno {
    match asked {
        Err(Errno::ESRCH) => Errno::ESRCH,
        _ => Errno::EINVAL,
    }
}

/// Sends `info` to a process or a group; a signal that is none is refused once somebody was found.
async fn send(call: &Call<'_>, target: Target, info: Result<Option<SignalInfo>>) -> Result<u64> {
    let (sender, process) = (call.caller().credentials, call.process().id);
    let sending =
        Arc::clone(call.system()).signal(target, *info.as_ref().unwrap_or(&None), Some(sender), process).await;
    match info {
        Ok(_) => sending.map(|()| 0),
        Err(_) => Err(unless_nobody(sending)),
    }
}

/// The same to a thread.
async fn send_to_thread(
    call: &Call<'_>,
    process: Option<Pid>,
    thread: Pid,
    info: Result<Option<SignalInfo>>,
) -> Result<u64> {
    let sender = call.caller().credentials;
    let sending =
        Arc::clone(call.system()).signal_thread(process, thread, *info.as_ref().unwrap_or(&None), Some(sender)).await;
    match info {
        Ok(_) => sending.map(|()| 0),
        Err(_) => Err(unless_nobody(sending)),
    }
}

pub(crate) async fn kill(call: &mut Call<'_>) -> Result<u64> {
    let target = match call.int(0) {
        -1 => Target::All,
        0 => Target::Group(call.process().with_shared(|shared| shared.group)),
        i32::MIN => return Err(Errno::ESRCH),
        pid if pid < 0 => Target::Group(Pid(pid.unsigned_abs())),
        pid => Target::Process(Pid(pid as u32)),
    };
    let info = number(call.arg(1)).map(|signal| signal.map(|signal| info(call, signal, SignalInfo::SI_USER)));
    send(call, target, info).await
}

pub(crate) async fn tkill(call: &mut Call<'_>) -> Result<u64> {
    if call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    to_thread(call, None, call.int(0), call.arg(1)).await
}

pub(crate) async fn tgkill(call: &mut Call<'_>) -> Result<u64> {
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    to_thread(call, Some(Pid(call.int(0) as u32)), call.int(1), call.arg(2)).await
}

async fn to_thread(call: &Call<'_>, process: Option<Pid>, thread: i32, signal: u64) -> Result<u64> {
    let info = number(signal).map(|signal| signal.map(|signal| info(call, signal, SignalInfo::SI_TKILL)));
    send_to_thread(call, process, Pid(thread as u32), info).await
}

/// A siginfo_t made by the sender. Only one's own processes may be sent kernel-like codes. The inner error: the signal is none.
pub(crate) async fn queued_info(
    call: &Call<'_>,
    signal: u64,
    at: UserAddr,
    own: bool,
) -> Result<Result<Option<SignalInfo>>> {
    let raw: [u64; 16] = call.get(at).await?;
    let code = raw[1] as u32 as i32;
    if (code >= 0 || code == SignalInfo::SI_TKILL) && !own {
        return Err(Errno::EPERM);
    }
    let words = [raw[2], raw[3], raw[4], raw[5]];
    let info = |signal| SignalInfo { signal, code, errno: (raw[0] >> 32) as i32, fields: SignalFields::Raw { words } };
    Ok(number(signal).map(|signal| signal.map(info)))
}

pub(crate) async fn rt_sigqueueinfo(call: &mut Call<'_>) -> Result<u64> {
    let pid = Pid(call.int(0) as u32);
    let info = queued_info(call, call.arg(1), call.pointer(2), pid == call.process().id).await?;
    send(call, Target::Process(pid), info).await
}

pub(crate) async fn rt_tgsigqueueinfo(call: &mut Call<'_>) -> Result<u64> {
    // Read before the ids are looked at.
    let _: [u64; 16] = call.get(call.pointer(3)).await?;
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    let pid = Pid(call.int(0) as u32);
    let info = queued_info(call, call.arg(2), call.pointer(3), pid == call.process().id).await?;
    send_to_thread(call, Some(pid), Pid(call.int(1) as u32), info).await
}

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct UserAction {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

pub(crate) async fn rt_sigaction(call: &mut Call<'_>) -> Result<u64> {
    check_size(call.arg(3))?;
    let new: Option<UserAction> = match call.pointer(1) {
        at if at.is_null() => None,
        at => Some(call.get(at).await?),
    };
    let signal = Signal::new(u64::from(call.arg(0) as u32)).ok_or(Errno::EINVAL)?;
    if new.is_some() && SignalSet::UNBLOCKABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let old = call.process().with_shared(|shared| shared.actions.get(signal));
    if let Some(new) = new {
        let mask = SignalSet(new.mask).without(SignalSet::UNBLOCKABLE);
        let action = Action { handler: new.handler, flags: new.flags & KNOWN_FLAGS, restorer: new.restorer, mask };
        call.process().change(Change::Action { signal, action }).await?;
    }
    let old = UserAction { handler: old.handler, flags: old.flags, restorer: old.restorer, mask: old.mask.0 };
    call.put_if(call.pointer(2), &old).await?;
    Ok(0)
}

pub(crate) async fn rt_sigprocmask(call: &mut Call<'_>) -> Result<u64> {
    check_size(call.arg(3))?;
    let old = call.thread.blocked();
    let at = call.pointer(1);
    if !at.is_null() {
        let set = SignalSet(call.get(at).await?);
        call.thread.set_blocked(match call.arg(0) as u32 {
            0 => old.union(set),
            1 => old.without(set),
            2 => set,
            _ => return Err(Errno::EINVAL),
        });
    }
    call.put_if(call.pointer(2), &old.0).await?;
    Ok(0)
}

pub(crate) async fn rt_sigpending(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(1) > 8 {
        return Err(Errno::EINVAL);
    }
    let pending = SignalSet(call.thread.pending().0 & call.thread.blocked().0);
    call.space().write(call.pointer(0), &pending.0.to_le_bytes()[..call.arg(1) as usize]).await?;
    Ok(0)
}

/// Waits for an interruption, which always comes as RESTART_NO_HANDLER.
async fn suspend(call: &Call<'_>) -> Result<u64> {
    call.thread.interruption().await;
    Err(Errno::RESTART_NO_HANDLER)
}

pub(crate) async fn rt_sigsuspend(call: &mut Call<'_>) -> Result<u64> {
    check_size(call.arg(1))?;
    let mask = SignalSet(call.get(call.pointer(0)).await?);
    call.thread.set_temporary_mask(mask);
    suspend(call).await
}

pub(crate) async fn pause(call: &mut Call<'_>) -> Result<u64> {
    suspend(call).await
}

pub(crate) async fn rt_sigreturn(call: &mut Call<'_>) -> Result<u64> {
    signal::sigreturn(call.thread, call.context).await
}

pub(crate) async fn rt_sigtimedwait(call: &mut Call<'_>) -> Result<u64> {
    check_size(call.arg(3))?;
    let wanted = SignalSet(call.get(call.pointer(0)).await?).without(SignalSet::UNBLOCKABLE);
    let deadline = match call.pointer(2) {
        at if at.is_null() => u64::MAX,
        at => {
            let timeout: time::Timespec = call.get(at).await?;
            call.system().now().saturating_add(timeout.to_ns()?)
        }
    };
    // While it waits these signals are not blocked: they wake it, and are taken here instead of delivered.
    let old = call.thread.blocked();
    let result = loop {
        if let Some(taken) = call.thread.take_signal(wanted).await {
            break Ok(taken.info);
        }
        let mut sleep = core::pin::pin!(call.system().scheduler.sleep_until(deadline));
        let thread = call.thread;
        let _waits = thread.waits(RunState::Interruptible);
        let woken = core::future::poll_fn(|context| {
            use core::{future::Future, task::Poll};
            if thread.pending().0 & wanted.0 != 0 {
                return Poll::Ready(None);
            }
            if thread.is_interrupted() {
                return Poll::Ready(Some(Errno::EINTR));
            }
            match sleep.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Errno::EAGAIN)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        if let Some(error) = woken {
            break Err(error);
        }
    };
    call.thread.set_blocked(old);
    let info = result?;
    if !call.pointer(1).is_null() {
        call.space().write(call.pointer(1), &signal::info_bytes(&info)).await?;
    }
    Ok(u64::from(info.signal.number()))
}

/// `stack_t`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct UserStack {
    base: u64,
    flags: u32,
    padding: u32,
    size: u64,
}

/// AT_MINSIGSTKSZ's floor (MINSIGSTKSZ).
const MIN_STACK: u64 = linux_raw_sys::general::MINSIGSTKSZ as u64;

/// What takes the place of `old` when `new` is asked for with the stack pointer at `at`.
pub(crate) fn next_stack(old: AltStack, new: AltStack, at: u64) -> Result<AltStack> {
    if old.contains(at) {
        return Err(Errno::EPERM);
    }
    // No change is asked for: not even one that is too small is looked at.
    let none = old.flags & AltStack::DISABLE != 0 && (new.base, new.size, new.flags) == (0, 0, 0);
    let same = (new.base, new.size, new.flags) == (old.base, old.size, old.flags);
    match new.flags & !AltStack::AUTODISARM {
        _ if none || same => Ok(old),
        AltStack::DISABLE => Ok(AltStack::NONE),
        0 | AltStack::ONSTACK if new.size < MIN_STACK => Err(Errno::ENOMEM),
        0 | AltStack::ONSTACK => Ok(AltStack { flags: new.flags & AltStack::AUTODISARM, ..new }),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) async fn sigaltstack(call: &mut Call<'_>) -> Result<u64> {
    let old = call.thread.state.lock().alt_stack;
    let on_it = old.contains(call.context.registers.stack());
    if !call.pointer(0).is_null() {
        let new: UserStack = call.get(call.pointer(0)).await?;
        let new = AltStack { base: new.base, size: new.size, flags: new.flags };
        call.thread.state.lock().alt_stack = next_stack(old, new, call.context.registers.stack())?;
    }
    let flags = match (old.flags & AltStack::DISABLE != 0, on_it) {
        (true, _) => AltStack::DISABLE,
        (false, true) => old.flags | AltStack::ONSTACK,
        (false, false) => old.flags,
    };
    let report = UserStack { base: old.base, flags, padding: 0, size: old.size };
    call.put_if(call.pointer(1), &report).await?;
    Ok(0)
}
