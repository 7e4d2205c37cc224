//! Traps taken in kernel mode. Few are legal: an interrupt that ends the idle loop's halt, and a page
//! fault (or a malformed extended state) at an instruction that says where to go on. Anything else is
//! a bug of the kernel.

use super::super::{interrupts, usercopy};
use crate::panic::CpuPosition;
use crate::{heartbeat, panic, sampling, stacks};
use machine::USER_END;
use x86_64::registers::control::Cr2;

core::arch::global_asm!(include_str!("trap.s"));

/// As trap.s pushes it.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub code: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

pub const NMI: u64 = 2;
pub const DOUBLE_FAULT: u64 = 8;
pub const GENERAL_PROTECTION: u64 = 13;
pub const PAGE_FAULT: u64 = 14;

#[unsafe(no_mangle)]
extern "C" fn kernel_trap(frame: &mut Frame) {
    match frame.vector {
        32.. => interrupts::dispatch(frame.vector as u8),
        NMI => {
            // It may have come in the middle of a copy to or from user memory. Its return restores the flag.
            usercopy::forbid_user_access();
            let sampled = sampling::take(Some([frame.rip, frame.rsp, frame.rbp]));
            heartbeat::on_probe(heartbeat::Found::InKernel(CpuPosition::from(&*frame)), sampled);
            frame.rip = interrupts::not_into_halt(frame.rip);
        }
        DOUBLE_FAULT if stacks::is_guard(Cr2::read_raw()) => panic::from_overflow(CpuPosition::from(&*frame)),
        PAGE_FAULT => {
            let at = Cr2::read_raw();
            match usercopy::fixup(frame.rip).filter(|_| at < USER_END) {
                Some(to) => frame.rip = to,
                None => fatal(frame, at),
            }
        }
        GENERAL_PROTECTION => match usercopy::fixup(frame.rip) {
            Some(to) => frame.rip = to,
            None => fatal(frame, 0),
        },
        _ => fatal(frame, 0),
    }
}

fn fatal(frame: &Frame, at: u64) -> ! {
    let text = format_args!(
        "unexpected trap {} code {:#x} at {:#x}, address {:#x}\n{:#x?}",
        frame.vector, frame.code, frame.rip, at, frame
    );
    panic::from_trap(text, frame.into())
}

impl From<&Frame> for CpuPosition {
    fn from(frame: &Frame) -> Self {
        CpuPosition { pc: frame.rip, stack: frame.rsp }
    }
}
