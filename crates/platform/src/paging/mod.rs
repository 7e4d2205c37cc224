//! Page tables and physical memory as this machine has them: `machine::PageTable` and
//! `machine::Memory` on x86-64.
//!
//! Here live the four-level tables (`tree.rs`), what an entry says (`entry.rs`), when a CPU may use
//! one and how others make it forget (`shootdown.rs`), access to user memory (`table.rs`) and to
//! frames of any partition (`memory.rs`). Not here: which page belongs where (crate `vm`), which frame
//! is free (crate `frames`), and the kernel half of the tables (`kmap.rs`).
//!
//! What needs a privileged instruction is behind [`Hardware`]; all else is tested on the host with a
//! simulated TLB, and the order of accesses by loom. The boot code calls [`start`] once, `cpu/user.rs` brackets user mode with [`enter`]
//! and [`leave`], and whoever halts a CPU calls [`idle`] first.

mod entry;
mod hardware;
mod memory;
mod presence;
mod shootdown;
mod table;
mod tree;
#[cfg(target_os = "none")]
mod x86;

#[cfg(test)]
mod tests;

pub use hardware::{Hardware, Window};
pub use memory::{PartitionMemory, Setup};
pub use table::Table;
#[cfg(target_os = "none")]
pub use x86::{enter, idle, leave, memory, on_tlb_interrupt, shared_memory, start, KernelMemory, X86};
