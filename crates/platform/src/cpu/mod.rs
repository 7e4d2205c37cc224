//! One CPU: its descriptor tables, its traps, user mode, extended state.

pub mod features;
mod fpu;
mod tables;
mod trap;
mod user;

pub use fpu::Fpu;
pub(crate) use tables::fill_gates;
pub(crate) use trap::Frame;
pub use user::X86Cpu;

use crate::percpu::PerCpu;

/// Sets the current CPU up for `area`: control registers, descriptor tables, system call entry, APIC.
pub fn init(area: &'static PerCpu) {
    features::enable();
    tables::load(area);
    crate::percpu::install(area);
    tables::enable_system_calls(area);
    fpu::enable();
    crate::apic::init_cpu();
}
