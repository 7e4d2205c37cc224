//! The end of the machine or of a CPU, and where a CPU is.

use crate::panic::CpuPosition;
use core::arch::asm;
use x86_64::instructions::port::Port;

/// QEMU's `isa-debug-exit`.
const DEBUG_EXIT: u16 = 0xf4;

/// Ends the whole machine with `code` where there is a device for that; halts this CPU otherwise.
pub fn exit_machine(code: u32) -> ! {
    // SAFETY: the port does nothing else, and nothing at all without the device.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(code) }
    halt()
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        // SAFETY: stops; that is the purpose.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// Where this is called.
#[inline(always)]
pub fn here() -> CpuPosition {
    let (pc, stack): (u64, u64);
    // SAFETY: reads registers.
    unsafe { asm!("lea {}, [rip]", "mov {}, rsp", out(reg) pc, out(reg) stack, options(nomem, nostack)) }
    CpuPosition { pc, stack }
}
