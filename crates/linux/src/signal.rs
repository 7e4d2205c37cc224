//! Signal delivery: which handler runs, on which stack, with what blocked, and the way back. What a frame looks like is the
//! architecture's affair ([`arch::Frame`]).

use crate::arch::{self, Frame, Saved};
use crate::{process::signals::next_stack, run::Restart};
use abi::signal::{Action, AltStack, Signal, SignalFields, SignalInfo, SignalSet};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, UserAddr, UserRegisters};
use messages::process::ExitStatus;
use process::{Context, Thread};

/// Bytes of `siginfo_t`.
pub(crate) const SIGINFO_SIZE: usize = 128;

/// Delivers what is pending and not blocked, one signal after the other, each on top of the last frame.
pub(crate) async fn deliver(thread: &Arc<Thread>, context: &mut Context, restart: &mut Option<Restart>) {
    let process = &thread.process;
    loop {
        if thread.must_end() || process.has(process::Flags::STOPPED) {
            return;
        }
        let wanted = SignalSet(u64::MAX).without(thread.blocked());
        let Some(taken) = thread.take_to_act(wanted).await else { break };
        let info = taken.info;
        let action = process.take_action(info.signal).await;
        match action.handler {
            Action::IGNORE => {}
            Action::DEFAULT => {
                Restart::touched(restart);
                process.default_action(&taken).await;
                if thread.must_end() {
                    return;
                }
            }
            _ => {
                if let Some(restart) = restart.take() {
                    let wanted = restart.kind == Errno::RESTART && action.flags & Action::RESTART != 0;
                    if wanted || restart.kind == Errno::RESTART_ALWAYS {
                        context.registers.repeat_call(restart.number);
                    }
                }
                enter_handler(thread, context, info, action).await;
            }
        }
    }
    if let Some(restart) = restart.take() {
        context.registers.repeat_call(restart.number);
    }
    // No handler took the temporary mask along in its frame.
    if let Some(mask) = thread.take_saved_mask() {
        thread.set_blocked(mask);
    }
}

/// A synchronous fault: the handler runs even if... it can't be blocked or ignored: then the process ends.
pub(crate) async fn force(thread: &Arc<Thread>, context: &mut Context, info: SignalInfo) {
    let process = &thread.process;
    let action = process.take_action(info.signal).await;
    if action.handler <= Action::IGNORE || thread.blocked().contains(info.signal) {
        return end_by(thread, info.signal).await;
    }
    enter_handler(thread, context, info, action).await;
}

async fn end_by(thread: &Arc<Thread>, signal: Signal) {
    thread.process.end(ExitStatus::Signal { signal, core: false }).await;
}

/// The handler's frame. Where it can't be written SIGSEGV comes instead, which may have a handler on another stack; if that one's can't
/// be written either the process ends.
async fn enter_handler(thread: &Arc<Thread>, context: &mut Context, info: SignalInfo, action: Action) {
    // A sleep that this signal ended is not going to be restarted.
    thread.state.lock().sleep_end.take();
    let segv = SignalInfo::kernel(Signal::SEGV);
    if try_handler(thread, context, &info, &action).await.is_ok() {
        return;
    }
    log::debug!("{}: no stack for signal {}", crate::call::name(thread), info.signal.number());
    if info.signal == Signal::SEGV {
        return end_by(thread, Signal::SEGV).await;
    }
    let action = thread.process.take_action(Signal::SEGV).await;
    let caught = action.handler > Action::IGNORE && !thread.blocked().contains(Signal::SEGV);
    if !caught || try_handler(thread, context, &segv, &action).await.is_err() {
        end_by(thread, Signal::SEGV).await;
    }
}

async fn try_handler(thread: &Arc<Thread>, context: &mut Context, info: &SignalInfo, action: &Action) -> Result<()> {
    crate::rseq::leave_section(thread, context).await?;
    push_frame(thread, context, info, action).await?;
    let mut blocked = thread.blocked().union(action.mask);
    if action.flags & Action::NODEFER == 0 {
        blocked.insert(info.signal);
    }
    thread.set_blocked(blocked);
    Ok(())
}

async fn push_frame(thread: &Arc<Thread>, context: &mut Context, info: &SignalInfo, action: &Action) -> Result<()> {
    let alt = thread.state.lock().alt_stack;
    let on_alt = alt.contains(context.registers.stack());
    let switch = action.flags & Action::ONSTACK != 0 && alt.flags & AltStack::DISABLE == 0 && !on_alt;
    let top = if switch { alt.base + alt.size } else { context.registers.stack().wrapping_sub(arch::RED_ZONE) };
    let frame = Frame::below(top, thread.process.system.cpu.fpu_size(), action)?;
    if (switch || on_alt) && frame.at < alt.base {
        return Err(Errno::EFAULT);
    }
    let bytes = {
        let mask = thread.state.lock().saved_blocked.unwrap_or_else(|| thread.blocked());
        let last_trap = thread.state.lock().last_trap;
        let stack = AltStack { flags: stack_flags(&alt, on_alt), ..alt };
        let saved = Saved { registers: context.registers, mask, stack, last_trap, info: info_bytes(info) };
        thread.with_fpu(|state| frame.bytes(&saved, state))
    };
    thread.process.space().write(UserAddr(frame.at), &bytes).await?;
    // It is in the frame now.
    thread.take_saved_mask();
    if switch && alt.flags & AltStack::AUTODISARM != 0 {
        thread.state.lock().alt_stack = AltStack::NONE;
    }
    frame.enter(&mut context.registers, info.signal, action.handler);
    Ok(())
}

fn stack_flags(alt: &AltStack, on_it: bool) -> u32 {
    match (alt.flags & AltStack::DISABLE != 0, on_it) {
        (true, _) => AltStack::DISABLE,
        (false, true) => alt.flags | AltStack::ONSTACK,
        (false, false) => alt.flags,
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// `siginfo_t`.
pub(crate) fn info_bytes(info: &SignalInfo) -> [u8; SIGINFO_SIZE] {
    let mut bytes = [0; SIGINFO_SIZE];
    put(&mut bytes, 0, &i32::from(info.signal.number()).to_le_bytes());
    put(&mut bytes, 4, &info.errno.to_le_bytes());
    put(&mut bytes, 8, &info.code.to_le_bytes());
    match info.fields {
        SignalFields::None => {}
        SignalFields::Sender { pid, uid, value } => {
            put(&mut bytes, 16, &pid.0.to_le_bytes());
            put(&mut bytes, 20, &uid.to_le_bytes());
            put(&mut bytes, 24, &value.to_le_bytes());
        }
        SignalFields::Child { pid, uid, status, utime, stime } => {
            put(&mut bytes, 16, &pid.0.to_le_bytes());
            put(&mut bytes, 20, &uid.to_le_bytes());
            put(&mut bytes, 24, &status.to_le_bytes());
            put(&mut bytes, 32, &utime.to_le_bytes());
            put(&mut bytes, 40, &stime.to_le_bytes());
        }
        SignalFields::Fault { address } => put(&mut bytes, 16, &address.to_le_bytes()),
        SignalFields::Timer { id, overrun, value } => {
            put(&mut bytes, 16, &id.to_le_bytes());
            put(&mut bytes, 20, &overrun.to_le_bytes());
            put(&mut bytes, 24, &value.to_le_bytes());
        }
        SignalFields::Poll { band, fd } => {
            put(&mut bytes, 16, &band.to_le_bytes());
            put(&mut bytes, 24, &fd.to_le_bytes());
        }
        SignalFields::Raw { words } => {
            for (index, word) in words.iter().enumerate() {
                put(&mut bytes, 16 + index * 8, &word.to_le_bytes());
            }
        }
    }
    bytes
}

/// rt_sigreturn(2): everything as the frame says. A broken frame is SIGSEGV.
pub(crate) async fn sigreturn(thread: &Arc<Thread>, context: &mut Context) -> Result<u64> {
    let restored = arch::restore(thread, context).await;
    if restored.is_err() {
        force(thread, context, SignalInfo::kernel(Signal::SEGV)).await;
    }
    Ok(context.registers.result())
}

/// The stack for signals that a frame names, in a thread whose stack pointer is `at` again: only if it is acceptable; errors are
/// ignored, as in Linux.
pub(crate) fn restore_stack(thread: &Thread, wanted: AltStack, at: u64) {
    let mut state = thread.state.lock();
    if let Ok(stack) = next_stack(state.alt_stack, wanted, at) {
        state.alt_stack = stack;
    }
}
