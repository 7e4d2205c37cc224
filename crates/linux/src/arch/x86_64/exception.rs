//! Exceptions of user code as the signals that Linux sends (arch/x86/kernel/traps.c; man 2 sigaction for the codes).

use abi::signal::{Signal, SignalInfo};
use machine::{Access, Exception};
use process::{Context, Thread};

const PAGE_FAULT: u64 = 14;

/// What a signal frame says of a page fault: its vector, and the error code (SDM 3A, 4.7): present, write, user, instruction fetch.
pub(crate) fn fault_code(access: Access, is_denied: bool) -> (u64, u64) {
    let mut code = 4;
    code |= u64::from(is_denied);
    code |= u64::from(access.contains(Access::WRITE)) << 1;
    code |= u64::from(access.contains(Access::EXEC)) << 4;
    (PAGE_FAULT, code)
}

/// The signal of an exception, and what its frame says of it.
pub(crate) fn signal_of(thread: &Thread, context: &mut Context, exception: Exception) -> (SignalInfo, (u64, u64)) {
    let Exception { vector, code } = exception;
    let rip = context.registers.rip;
    // Vectors of the SDM 3A, table 6-1; codes as Linux gives them.
    let info = match vector {
        0 => SignalInfo::fault(Signal::FPE, 1, rip), // divide error: FPE_INTDIV
        1 => {
            // Single step or hardware breakpoint: TRAP_TRACE, and the trap flag is off in the handler.
            context.registers.rflags &= !(1 << 8);
            SignalInfo::fault(Signal::TRAP, 2, rip)
        }
        3 => SignalInfo::kernel(Signal::TRAP),       // int3: SI_KERNEL
        4 => SignalInfo::kernel(Signal::SEGV),       // into
        5 => SignalInfo::kernel(Signal::SEGV),       // bound
        6 => SignalInfo::fault(Signal::ILL, 2, rip), // invalid opcode: ILL_ILLOPN
        16 | 19 => SignalInfo::fault(Signal::FPE, floating_code(thread, vector), rip),
        17 => SignalInfo::fault(Signal::BUS, 1, 0), // alignment check: BUS_ADRALN
        _ => SignalInfo::kernel(Signal::SEGV),      // general protection, stack, segment
    };
    (info, (u64::from(vector), code))
}

/// Which floating-point exception it was: FPE_FLTDIV 3, OVF 4, UND 5, RES 6, INV 7. From the x87 status and
/// control words (bytes 2 and 0 of the area) or MXCSR (byte 24).
fn floating_code(thread: &Thread, vector: u8) -> i32 {
    let raised = thread.with_fpu(|fpu| {
        let word = |at: usize| u32::from(fpu.as_bytes()[at]) | u32::from(fpu.as_bytes()[at + 1]) << 8;
        match vector {
            16 => word(2) & !word(0),
            _ => word(24) & !(word(24) >> 7),
        }
    });
    match raised {
        raised if raised & 1 != 0 => 7,
        raised if raised & 4 != 0 => 3,
        raised if raised & 8 != 0 => 4,
        raised if raised & (2 | 16) != 0 => 5,
        raised if raised & 32 != 0 => 6,
        _ => 0,
    }
}
