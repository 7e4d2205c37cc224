//! Everything that knows it is an x86-64 machine: boot, page tables, traps, interrupts, clocks, PCI.
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

pub mod layout;
pub mod plan;
