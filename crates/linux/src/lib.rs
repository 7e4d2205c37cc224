//! The Linux ABI: the life of a thread between user mode and the kernel, the system call table,
//! the structures programs pass, and signal frames. The text of /proc and /sys is crate `procfs`.
//!
//! One file per family of system calls; each call parses its arguments, asks a service of a crate below, and
//! returns. `table.rs` is the one list of them all: dispatch, names in the log and the list in `docs/` come
//! from it; `arch` has what differs between architectures; `node.rs` puts one kernel's services together, `tree.rs` the file systems that every program finds. What may not be here: mechanisms (crates `process`, `vm`,
//! `fs`, `futex`).
#![no_std]
#![forbid(unsafe_code)]
// clippy.toml is for what runs in a kernel.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

extern crate alloc;

mod arch;
mod call;
mod exit;
mod files;
mod futex;
mod ipc;
mod memory;
mod mlock;
pub mod node;
mod process;
mod rseq;
mod run;
mod signal;
pub mod system;
mod table;
mod time;
mod trap;
pub mod tree;
mod user;

use alloc::{sync::Arc, vec::Vec};

pub use run::Linux;
pub use table::{name_of, table_markdown};

/// A tree to be mounted: where, what, and its name in /proc/mounts.
type Pseudo = (&'static str, Arc<dyn fs::FileSystem>, &'static str);

/// The trees that show the machine and its processes.
fn pseudo_file_systems(
    system: &Arc<::process::System>,
    services: &Arc<fs::Services>,
    paths: &Arc<fs::LocalPaths>,
    terminals: &Arc<fs::tty::Terminals>,
    disks: &Arc<fs::block::Disks>,
) -> Vec<Pseudo> {
    let shown = procfs::proc::Shown { paths, terminals, disks };
    let proc = procfs::proc::tree(system, services, shown, arch::cpuinfo);
    alloc::vec![
        ("/proc", proc as Arc<dyn fs::FileSystem>, "proc"),
        ("/sys", procfs::sys::tree(system, services, disks, arch::caches), "sysfs"),
        ("/sys/fs/cgroup", procfs::cgroup::tree(system, services), "cgroup2"),
        ("/dev/pts", fs::tty::devpts::tree(services, terminals), "devpts"),
    ]
}
