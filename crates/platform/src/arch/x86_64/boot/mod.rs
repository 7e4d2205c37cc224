//! The first instructions of a CPU: of the primary by PVH, of all others by the trampoline.

mod acpi;
mod pvh;
mod trampoline;

pub use acpi::{cpu_id, cpu_node};
pub use trampoline::{launch, Launch};

use super::{apic, counter, cpu};
use crate::{arch::uart, boot, percpu};
use core::arch::{asm, x86_64::__cpuid};

core::arch::global_asm!(include_str!("start.s"));

/// First Rust code of the primary.
#[unsafe(no_mangle)]
extern "C" fn primary_start(start_info: u64) -> ! {
    let started = counter::ticks();
    percpu::init_early();
    uart::init();
    let boot_apic = __cpuid(1).ebx >> 24;
    // SAFETY: start.s passes the loader's pointer, maps the first 4 GiB one to one, and runs alone.
    unsafe { boot::primary(pvh::read(start_info, boot_apic, started)) }
}

/// Control registers of a CPU that has just begun.
pub fn prepare_cpu() {
    cpu::features::enable();
}

/// What the primary's CPU needs before it measures time.
pub fn prepare_timer() {
    apic::silence_legacy();
    apic::init_cpu();
}

/// Calls `function` on another stack.
///
/// # Safety
///
/// The stack that ends at `stack` is mapped for good and nobody's, and nothing on the present one is needed.
pub unsafe fn call_on(stack: u64, function: extern "C" fn() -> !) -> ! {
    // SAFETY: says the caller.
    unsafe { asm!("mov rsp, {}", "xor ebp, ebp", "call {}", "ud2", in(reg) stack, in(reg) function, options(noreturn)) }
}
