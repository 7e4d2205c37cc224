//! Exceptions of user code: page faults that the address space resolves, and everything else as the signal
//! Linux sends (arch/x86/kernel/traps.c; man 2 sigaction for the codes).

use abi::signal::{Signal, SignalInfo};
use alloc::sync::Arc;
use machine::{Access, UserAddr};
use process::{Context, Thread};
use vm::Fault;

/// SEGV_MAPERR, SEGV_ACCERR, BUS_ADRERR.
const PAGE_FAULT: u64 = 14;
const MAPERR: i32 = 1;
const ACCERR: i32 = 2;
const BUS_ADRERR: i32 = 2;

pub(crate) async fn page(thread: &Arc<Thread>, context: &mut Context, at: UserAddr, access: Access) {
    let space = thread.process.space();
    let info = match space.fault(at, access).await {
        Ok(()) => {
            thread.state.lock().usage.minor_faults += 1;
            return;
        }
        Err(Fault::NotMapped) => SignalInfo::fault(Signal::SEGV, MAPERR, at.0),
        Err(Fault::Denied) => SignalInfo::fault(Signal::SEGV, ACCERR, at.0),
        Err(Fault::PastEnd) => SignalInfo::fault(Signal::BUS, BUS_ADRERR, at.0),
        Err(Fault::NoMemory) => return out_of_memory(thread).await,
    };
    let (name, rip) = (crate::call::name(thread), context.registers.rip);
    log::debug!("{name}: {access:?} at {:#x} is {:?} (rip {rip:#x})", at.0, info.signal);
    // Page-fault error code (SDM 3A, 4.7): present, write, user, instruction fetch.
    let mut code = 4;
    code |= u64::from(info.code == ACCERR && info.signal == Signal::SEGV);
    code |= u64::from(access.contains(Access::WRITE)) << 1;
    code |= u64::from(access.contains(Access::EXEC)) << 4;
    thread.state.lock().last_trap = (PAGE_FAULT, code, at.0);
    crate::signal::force(thread, context, info).await;
}

/// No frame could be had at all, though other processes may have been ended for it (`vm::Relief`).
async fn out_of_memory(thread: &Arc<Thread>) {
    // This one was chosen.
    if thread.must_end() {
        return;
    }
    let process = &thread.process;
    log::error!("out of memory: killed process {} ({})", process.id, crate::call::name(thread));
    let status = messages::process::ExitStatus::Signal { signal: Signal::KILL, core: false };
    process.end(status).await;
}

pub(crate) async fn exception(thread: &Arc<Thread>, context: &mut Context, vector: u8, code: u64) {
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
    log::debug!("{}: exception {vector} ({code:#x}) at {rip:#x}", crate::call::name(thread));
    {
        let mut state = thread.state.lock();
        (state.last_trap.0, state.last_trap.1) = (u64::from(vector), code);
    }
    crate::signal::force(thread, context, info).await;
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
