//! Exceptions of user code: page faults that the address space resolves, and everything else as the signal
//! Linux sends (man 2 sigaction for the codes).

use crate::arch;
use abi::signal::{Signal, SignalInfo};
use alloc::sync::Arc;
use machine::{Access, Exception, UserAddr, UserRegisters};
use process::{Context, Thread};
use vm::Fault;

/// SEGV_MAPERR, SEGV_ACCERR, BUS_ADRERR.
const MAPERR: i32 = 1;
const ACCERR: i32 = 2;
const BUS_ADRERR: i32 = 2;

pub(crate) async fn page(thread: &Arc<Thread>, context: &mut Context, at: UserAddr, access: Access) {
    let space = thread.process.space();
    let info = match space.fault_noting(at, access, Some(&thread.fetches)).await {
        Ok(()) => {
            thread.state.lock().usage.minor_faults += 1;
            return;
        }
        Err(Fault::NotMapped) => SignalInfo::fault(Signal::SEGV, MAPERR, at.0),
        Err(Fault::Denied) => SignalInfo::fault(Signal::SEGV, ACCERR, at.0),
        Err(Fault::PastEnd) => SignalInfo::fault(Signal::BUS, BUS_ADRERR, at.0),
        Err(Fault::NoMemory) => return out_of_memory(thread).await,
    };
    let (name, pc) = (crate::call::name(thread), context.registers.instruction());
    log::debug!("{name}: {access:?} at {:#x} is {:?} (pc {pc:#x})", at.0, info.signal);
    let (trap, code) = arch::fault_code(access, info.code == ACCERR && info.signal == Signal::SEGV);
    thread.state.lock().last_trap = (trap, code, at.0);
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

pub(crate) async fn exception(thread: &Arc<Thread>, context: &mut Context, exception: Exception) {
    let pc = context.registers.instruction();
    let (info, (trap, code)) = arch::signal_of(thread, context, exception);
    log::debug!("{}: {exception:x?} at {pc:#x}", crate::call::name(thread));
    {
        let mut state = thread.state.lock();
        (state.last_trap.0, state.last_trap.1) = (trap, code);
    }
    crate::signal::force(thread, context, info).await;
}
