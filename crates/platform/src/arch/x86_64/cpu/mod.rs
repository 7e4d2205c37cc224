//! One CPU: its descriptor tables, its traps, user mode, extended state.

pub mod features;
mod fpu;
mod tables;
mod trap;
mod user;

pub use fpu::Fpu;
pub use tables::fill_gates;
pub use user::ThisCpu;

use crate::percpu::PerCpu;

/// Sets the current CPU up for `area`: control registers, descriptor tables, system call entry, APIC.
pub fn init_cpu(area: &'static PerCpu) {
    features::enable();
    tables::load(area);
    crate::percpu::install(area);
    tables::enable_system_calls(area);
    fpu::enable();
    super::apic::init_cpu();
}
