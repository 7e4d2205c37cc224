//! The frame a signal handler runs on (arch/x86 `struct rt_sigframe`), and the way back.
//!
//! ```text
//!   high   extended state (XSAVE area, 64-byte aligned), FP_XSTATE_MAGIC2 behind it
//!          siginfo_t              128 bytes
//!          ucontext_t             flags, link, stack_t, sigcontext, sigset
//!   rsp -> return address         SA_RESTORER's code, which calls rt_sigreturn
//! ```

use crate::signal::{restore_stack, SIGINFO_SIZE};
use abi::signal::{Action, AltStack, Signal, SignalSet};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, FpuState, Registers, UserAddr};
use process::{Context, Thread};
use zerocopy::IntoBytes;

/// Bytes of the x86-64 psABI below the stack pointer that a leaf function may use.
pub(crate) const RED_ZONE: u64 = 128;
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

/// What a frame keeps of the thread, beside its extended state.
pub(crate) struct Saved {
    pub registers: Registers,
    pub mask: SignalSet,
    pub stack: AltStack,
    /// Vector, error code and address of the last exception.
    pub last_trap: (u64, u64, u64),
    pub info: [u8; SIGINFO_SIZE],
}

/// Where a frame lies.
pub(crate) struct Frame {
    pub at: u64,
    fpu_at: u64,
    fpu_size: usize,
    restorer: u64,
}

impl Frame {
    /// The frame for `action` below `top`. EFAULT: without a restorer there is no way back on x86-64.
    pub(crate) fn below(top: u64, fpu_size: usize, action: &Action) -> Result<Frame> {
        if action.flags & Action::RESTORER == 0 {
            return Err(Errno::EFAULT);
        }
        let fpu_size = fpu_size.next_multiple_of(64);
        let fpu_at = top.wrapping_sub((fpu_size + FP_XSTATE_MAGIC2_SIZE) as u64) & !63;
        let frame_size = (8 + UCONTEXT_SIZE + SIGINFO_SIZE) as u64;
        // The handler starts as if called: rsp + 8 is a multiple of 16.
        let at = (fpu_at.wrapping_sub(frame_size) & !15).wrapping_sub(8);
        Ok(Frame { at, fpu_at, fpu_size, restorer: action.restorer })
    }

    #[expect(clippy::disallowed_methods, reason = "a frame is as large as the CPU's state makes it")]
    pub(crate) fn bytes(&self, saved: &Saved, state: &FpuState) -> Vec<u8> {
        let fpu_in = self.fpu_at.wrapping_sub(self.at) as usize;
        let mut frame = Vec::with_capacity(fpu_in + self.fpu_size + FP_XSTATE_MAGIC2_SIZE);
        frame.extend_from_slice(&self.restorer.to_le_bytes());
        context_bytes(&mut frame, saved, self.fpu_at);
        frame.extend_from_slice(&saved.info);
        frame.resize(fpu_in, 0);
        frame.extend_from_slice(state.as_bytes());
        let fpu = &mut frame[fpu_in..];
        put(fpu, SW_RESERVED, &FP_XSTATE_MAGIC1.to_le_bytes());
        put(fpu, SW_RESERVED + 4, &((self.fpu_size + FP_XSTATE_MAGIC2_SIZE) as u32).to_le_bytes());
        let features: [u8; 8] = fpu[512..520].try_into().unwrap_or_default();
        put(fpu, SW_RESERVED + 8, &features);
        put(fpu, SW_RESERVED + 16, &(self.fpu_size as u32).to_le_bytes());
        frame.extend_from_slice(&FP_XSTATE_MAGIC2.to_le_bytes());
        frame
    }

    /// The thread goes on with the first instruction of the handler.
    pub(crate) fn enter(&self, registers: &mut Registers, signal: Signal, handler: u64) {
        *registers = Registers {
            rip: handler,
            rsp: self.at,
            rdi: u64::from(signal.number()),
            rsi: self.at + 8 + UCONTEXT_SIZE as u64,
            rdx: self.at + 8,
            rax: 0,
            // Direction, trap and resume flags off.
            rflags: registers.rflags & !(1 << 10 | 1 << 8 | 1 << 16),
            ..*registers
        };
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// `struct ucontext` with `struct sigcontext_64` inside.
fn context_bytes(out: &mut Vec<u8>, saved: &Saved, fpu_at: u64) {
    let Saved { registers: r, mask, stack, last_trap: (trap, code, address), .. } = saved;
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
        *code,
        *trap,
        mask.0,
        *address,
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

/// Everything as the frame says that the thread's handler returns from.
pub(crate) async fn restore(thread: &Arc<Thread>, context: &mut Context) -> Result<()> {
    // The handler's `ret` took the return address.
    let at = context.registers.rsp;
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
    let wanted = AltStack { base: word(2), flags: word(3) as u32, size: word(4) };
    restore_stack(thread, wanted, context.registers.rsp);
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
