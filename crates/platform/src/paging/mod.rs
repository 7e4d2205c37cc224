//! Page tables and physical memory as this machine has them: `machine::PageTable` and
//! `machine::Memory` on hardware.
//!
//! Here live the four-level tables (`tree.rs`), when a CPU may use
//! one and how others make it forget (`shootdown.rs`), access to user memory (`table.rs`) and to
//! frames of any partition (`memory.rs`). Not here: what an entry says (`arch`), which page belongs where (crate `vm`), which frame
//! is free (crate `frames`), and the kernel half of the tables (`kmap.rs`).
//!
//! What needs a privileged instruction is behind [`Hardware`]; all else is tested on the host with a
//! simulated TLB, and the order of accesses by loom. The boot code calls [`start`] once, `arch` brackets user mode with [`enter`]
//! and [`leave`], and whoever halts a CPU calls [`idle`] first.

mod hardware;
mod memory;
#[cfg(target_os = "none")]
mod own;
mod presence;
mod shootdown;
mod table;
mod tree;

#[cfg(test)]
mod tests;

pub use hardware::{Hardware, Window};
pub use memory::{PartitionMemory, Setup};
#[cfg(target_os = "none")]
pub use own::{enter, idle, leave, memory, shared_memory, start, KernelMemory};
pub use table::Table;
