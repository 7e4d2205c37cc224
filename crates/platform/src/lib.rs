//! Everything that knows the machine: boot, page tables, traps, interrupts, clocks, PCI. What is x86-64 of it lies in `arch/x86_64`; the
//! rest names `arch` only.
//!
//! Here lives what needs privileged instructions or physical addresses, behind `machine::Cpu`,
//! `machine::Memory` and `machine::PageTable` and a few functions of this crate. No policy lives here:
//! nothing about processes, scheduling or messages. Crate `kernel` calls it to start, and hands its
//! parts to the services; the services never name it.
//!
//! Pure parts (planning, page-table layout) build and are tested on the host; the rest exists only on
//! bare metal.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

mod arch;
pub mod layout;
pub mod lines;
#[cfg(any(test, target_os = "none"))]
mod magazine;
pub mod paging;
pub mod plan;
pub mod suspicion;
pub mod tables;
pub mod virtio;

#[cfg(target_os = "none")]
pub mod board;
#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
pub mod clock;
#[cfg(target_os = "none")]
pub mod heap;
#[cfg(target_os = "none")]
pub mod heartbeat;
#[cfg(target_os = "none")]
pub mod initramfs;
#[cfg(target_os = "none")]
mod instance;
#[cfg(target_os = "none")]
pub mod irq;
#[cfg(target_os = "none")]
pub mod kmap;
#[cfg(target_os = "none")]
pub mod lanes;
#[cfg(target_os = "none")]
mod logger;
#[cfg(target_os = "none")]
pub mod pages;
#[cfg(target_os = "none")]
pub mod panic;
#[cfg(target_os = "none")]
mod patching;
#[cfg(target_os = "none")]
mod percpu;
#[cfg(target_os = "none")]
pub mod random;
#[cfg(target_os = "none")]
mod sampling;
#[cfg(target_os = "none")]
pub mod selftest;
#[cfg(target_os = "none")]
mod serial;
#[cfg(target_os = "none")]
pub mod stacks;
#[cfg(target_os = "none")]
pub mod tracing;

#[cfg(target_os = "none")]
pub use arch::{accept_interrupts, interrupt_controller};
#[cfg(target_os = "none")]
pub use boot::{boot_kernel, start_siblings, Boot};
#[cfg(target_os = "none")]
pub use instance::{cpu, kernel, plan, ring_doorbell, rung_at, shared_cpu};
#[cfg(target_os = "none")]
use instance::{has_board, image_end, set_has_board, set_kernel, set_plan};
#[cfg(target_os = "none")]
pub use irq::{events, idle, take_events, Events};
#[cfg(target_os = "none")]
pub use kmap::{audit_kernel_mappings, map_mmio, map_shared, SharedRegion};
#[cfg(target_os = "none")]
pub use paging::{memory, shared_memory};
#[cfg(target_os = "none")]
pub use serial::{drain as drain_log, flush as flush_log, write as console_write};

/// Names the function that every kernel runs, on its boot CPU: `fn(platform::Boot) -> !`. The exported
/// symbol is this crate's business, so it goes with `#![forbid(unsafe_code)]`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "Rust" fn cob_kernel_main(boot: $crate::Boot) -> ! {
            $main(boot)
        }
    };
}
