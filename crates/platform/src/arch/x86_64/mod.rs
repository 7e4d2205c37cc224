//! x86-64 (Intel SDM; AMD APM). What the names are for: [`crate::arch`].

pub mod entry;
pub use entry::translate;
pub mod memory_map;

#[cfg(any(test, target_os = "none"))]
mod interval;

#[cfg(target_os = "none")]
mod bare_metal {
    pub use super::apic::{hardware_id, mode as interrupt_controller, reset, send, send_unmaskable, Signal};
    pub use super::area::{area, has_area, set_area, Head};
    pub use super::boot::{call_on, cpu_id, cpu_node, launch, prepare_cpu, prepare_timer, Launch};
    pub use super::code::{serialize, store_code};
    pub use super::counter::{measure_rates, ticks};
    pub use super::cpu::{fill_gates as prepare_traps, init_cpu, ThisCpu};
    pub use super::ending::{exit_machine, halt, here};
    pub use super::interrupts::{accept_interrupts, halt_until_interrupt, is_halt, message_interrupt, DEVICE_VECTORS};
    pub use super::mmu::{flush_page, load_kernel_root, Mmu};
}
#[cfg(target_os = "none")]
pub use bare_metal::*;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("bytes.s"), include_str!("usercopy.s"));
#[cfg(target_os = "none")]
mod apic;
#[cfg(target_os = "none")]
mod area;
#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod code;
#[cfg(target_os = "none")]
mod counter;
#[cfg(target_os = "none")]
mod cpu;
#[cfg(target_os = "none")]
mod ending;
#[cfg(target_os = "none")]
mod interrupts;
#[cfg(target_os = "none")]
mod mmu;
#[cfg(target_os = "none")]
pub mod pci;
#[cfg(target_os = "none")]
pub mod random;
#[cfg(target_os = "none")]
pub mod selftest;
#[cfg(target_os = "none")]
pub mod uart;
#[cfg(target_os = "none")]
mod usercopy;
