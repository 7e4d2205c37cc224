//! Signal delivery: the frame a handler runs on, and the way back (arch/x86 `struct rt_sigframe`).
//!
//! ```text
//!   high   extended state (XSAVE area, 64-byte aligned), FP_XSTATE_MAGIC2 behind it
//!          siginfo_t              128 bytes
//!          ucontext_t             flags, link, stack_t, sigcontext, sigset
//!   rsp -> return address         SA_RESTORER's code, which calls rt_sigreturn
//! ```

use crate::{process::signals::next_stack, run::Restart};
use abi::signal::{Action, AltStack, Signal, SignalFields, SignalInfo, SignalSet};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, FpuState, Registers, UserAddr};
use messages::process::ExitStatus;
use process::{Context, Thread};
use zerocopy::IntoBytes;

/// Bytes of the x86-64 psABI below the stack pointer that a leaf function may use.
const RED_ZONE: u64 = 128;
const SIGINFO_SIZE: usize = 128;
/// uc_flags, uc_link, uc_stack (24), uc_mcontext (256), uc_sigmask.
const UCONTEXT_SIZE: usize = 8 + 8 + 24 + 256 + 8;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
const FP_XSTATE_MAGIC2_SIZE: usize = 4;
/// Where the legacy area keeps `struct _fpx_sw_bytes`.
const SW_RESERVED: usize = 464;
/// UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS.
const UC_FLAGS: u64 = 7;
/// RFLAGS bits a program may set through sigreturn (FIX_EFLAGS).
const USER_FLAGS: u64 = 0x0005_0dd5;
const USER_CS: u16 = 0x33;
const USER_SS: u64 = 0x2b;

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
                        rewind(&mut context.registers, restart.number);
                    }
                }
                enter_handler(thread, context, info, action).await;
            }
        }
    }
    if let Some(restart) = restart.take() {
        rewind(&mut context.registers, restart.number);
    }
    // No handler took the temporary mask along in its frame.
    if let Some(mask) = thread.take_saved_mask() {
        thread.set_blocked(mask);
    }
}

/// Back to the `syscall` instruction (two bytes), with the number in rax again.
fn rewind(registers: &mut Registers, number: u64) {
    registers.rip -= 2;
    registers.rax = number;
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

#[expect(clippy::disallowed_methods, reason = "a frame is as large as the CPU's state makes it")]
async fn push_frame(thread: &Arc<Thread>, context: &mut Context, info: &SignalInfo, action: &Action) -> Result<()> {
    // Without a restorer there is no way back on x86-64.
    if action.flags & Action::RESTORER == 0 {
        return Err(Errno::EFAULT);
    }
    let registers = context.registers;
    let alt = thread.state.lock().alt_stack;
    let on_alt = alt.contains(registers.rsp);
    let switch = action.flags & Action::ONSTACK != 0 && alt.flags & AltStack::DISABLE == 0 && !on_alt;
    let top = if switch { alt.base + alt.size } else { registers.rsp.wrapping_sub(RED_ZONE) };

    let fpu_size = thread.process.system.cpu.fpu_size().next_multiple_of(64);
    let fpu_at = top.wrapping_sub((fpu_size + FP_XSTATE_MAGIC2_SIZE) as u64) & !63;
    let frame_size = (8 + UCONTEXT_SIZE + SIGINFO_SIZE) as u64;
    // The handler starts as if called: rsp + 8 is a multiple of 16.
    let frame_at = (fpu_at.wrapping_sub(frame_size) & !15).wrapping_sub(8);
    if (switch || on_alt) && frame_at < alt.base {
        return Err(Errno::EFAULT);
    }
    let mask = thread.state.lock().saved_blocked.unwrap_or_else(|| thread.blocked());
    let fpu_in = fpu_at.wrapping_sub(frame_at) as usize;
    let mut frame = Vec::with_capacity(fpu_in + fpu_size + FP_XSTATE_MAGIC2_SIZE);
    frame.extend_from_slice(&action.restorer.to_le_bytes());
    let stack = AltStack { flags: stack_flags(&alt, on_alt), ..alt };
    let last_trap = thread.state.lock().last_trap;
    context_bytes(&mut frame, &registers, last_trap, &stack, mask, fpu_at);
    let info_at = frame_at + 8 + UCONTEXT_SIZE as u64;
    frame.extend_from_slice(&info_bytes(info));
    frame.resize(fpu_in, 0);
    thread.with_fpu(|state| frame.extend_from_slice(state.as_bytes()));
    let fpu = &mut frame[fpu_in..];
    put(fpu, SW_RESERVED, &FP_XSTATE_MAGIC1.to_le_bytes());
    put(fpu, SW_RESERVED + 4, &((fpu_size + FP_XSTATE_MAGIC2_SIZE) as u32).to_le_bytes());
    let features: [u8; 8] = fpu[512..520].try_into().unwrap_or_default();
    put(fpu, SW_RESERVED + 8, &features);
    put(fpu, SW_RESERVED + 16, &(fpu_size as u32).to_le_bytes());
    frame.extend_from_slice(&FP_XSTATE_MAGIC2.to_le_bytes());

    thread.process.space().write(UserAddr(frame_at), &frame).await?;
    // It is in the frame now.
    thread.take_saved_mask();
    if switch && alt.flags & AltStack::AUTODISARM != 0 {
        thread.state.lock().alt_stack = AltStack::NONE;
    }
    context.registers = Registers {
        rip: action.handler,
        rsp: frame_at,
        rdi: u64::from(info.signal.number()),
        rsi: info_at,
        rdx: frame_at + 8,
        rax: 0,
        // Direction, trap and resume flags off.
        rflags: registers.rflags & !(1 << 10 | 1 << 8 | 1 << 16),
        ..registers
    };
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

/// `struct ucontext` with `struct sigcontext_64` inside.
fn context_bytes(
    out: &mut Vec<u8>,
    registers: &Registers,
    (trap, code, address): (u64, u64, u64),
    stack: &AltStack,
    mask: SignalSet,
    fpu_at: u64,
) {
    let r = registers;
    let words = [
        UC_FLAGS,
        0,
        stack.base,
        u64::from(stack.flags),
        stack.size,
        r.r8,
        r.r9,
        r.r10,
        r.r11,
        r.r12,
        r.r13,
        r.r14,
        r.r15,
        r.rdi,
        r.rsi,
        r.rbp,
        r.rbx,
        r.rdx,
        r.rax,
        r.rcx,
        r.rsp,
        r.rip,
        r.rflags,
        u64::from(USER_CS) | USER_SS << 48,
        code,
        trap,
        mask.0,
        address,
        fpu_at,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        mask.0,
    ];
    out.extend_from_slice(words.as_bytes());
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

/// rt_sigreturn(2): everything as the frame at rsp says. A broken frame is SIGSEGV.
pub(crate) async fn sigreturn(thread: &Arc<Thread>, context: &mut Context) -> Result<u64> {
    // The handler's `ret` took the return address.
    let at = context.registers.rsp;
    let restored = restore(thread, context, at).await;
    if restored.is_err() {
        force(thread, context, SignalInfo::kernel(Signal::SEGV)).await;
    }
    Ok(context.registers.rax)
}

async fn restore(thread: &Arc<Thread>, context: &mut Context, at: u64) -> Result<()> {
    let space = thread.process.space();
    let mut bytes = [0; UCONTEXT_SIZE];
    space.read(UserAddr(at), &mut bytes).await?;
    let word = |index: usize| {
        let bytes: [u8; 8] = bytes[index * 8..index * 8 + 8].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    // What is good of a broken frame is restored too, as on Linux: a handler of SIGSEGV finds it.
    thread.set_blocked(SignalSet(word(37)));
    let old = context.registers;
    context.registers = Registers {
        r8: word(5),
        r9: word(6),
        r10: word(7),
        r11: word(8),
        r12: word(9),
        r13: word(10),
        r14: word(11),
        r15: word(12),
        rdi: word(13),
        rsi: word(14),
        rbp: word(15),
        rbx: word(16),
        rdx: word(17),
        rax: word(18),
        rcx: word(19),
        rsp: word(20),
        rip: word(21),
        rflags: old.rflags & !USER_FLAGS | word(22) & USER_FLAGS,
        fs_base: old.fs_base,
        gs_base: old.gs_base,
    };
    let fpu_at = word(28);
    if fpu_at != 0 {
        let size = thread.process.system.cpu.fpu_size();
        let mut area = FpuState::initial(size);
        space.read(UserAddr(fpu_at), &mut area.as_mut_bytes()[..size]).await?;
        sanitize(&mut area.as_mut_bytes()[..size]);
        thread.with_fpu(|fpu| *fpu = area);
    }
    // restore_altstack: only if it is acceptable; errors are ignored as in Linux.
    let wanted = AltStack { base: word(2), flags: word(3) as u32, size: word(4) };
    let mut state = thread.state.lock();
    if let Ok(stack) = next_stack(state.alt_stack, wanted, context.registers.rsp) {
        state.alt_stack = stack;
    }
    // Linux takes any selector with the user's privilege, and the processor refuses it on the way out.
    match word(23) as u16 | 3 {
        USER_CS => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Keeps a forged frame from faulting XRSTOR in the kernel: reserved MXCSR bits and header bytes are zero
/// (SDM 1, 13.8).
fn sanitize(area: &mut [u8]) {
    area[26] = 0;
    area[27] = 0;
    if area.len() >= 576 {
        // XSTATE_BV is masked by the platform to what is enabled; XCOMP_BV and the rest must be zero.
        area[520..576].fill(0);
    }
}
