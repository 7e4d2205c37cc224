//! /proc (man 5 proc): processes and the machine as text.
//!
//! | file | subject |
//! |---|---|
//! | root.rs | the directory /proc: processes, `self`, and what is known of the machine |
//! | process.rs | /proc/PID and /proc/PID/task/TID: which files there are |
//! | stat.rs | stat, statm, status: numbers of a process or thread |
//! | maps.rs | maps, smaps, smaps_rollup, clear_refs |
//! | memory.rs | mem |
//! | about.rs | the small files: cmdline, limits, mounts and their kin |
//! | links.rs | fd, fdinfo, cwd, root, exe |
//! | net | /proc/net |
//! | machine.rs | stat, meminfo, loadavg, cpuinfo... |
//! | sysctl.rs | /proc/sys |
//! | cob.rs | what Linux does not have: kernels, slices |
//! | activity.rs | the same in numbers that `cobctl top` and `cob top` compare |
//! | control.rs | files that root writes to: boot or end a kernel |
//! | made.rs | a text that a function makes; the pieces trees are built from |
//!
//! The tree lives on the kernel that owns the root file system. Everything it says of other kernels it asks
//! them for, at the first read of an open file. Nothing here decides anything: numbers come from crates
//! `process` and `vm`, and whoever has no right to see is refused there ([`process::System::inspect`]).

mod about;
mod activity;
mod cob;
mod control;
mod links;
mod machine;
pub(crate) mod made;
mod maps;
mod memory;
mod net;
mod oom;
mod process;
mod root;
mod stat;
mod sysctl;
mod sysvipc;
mod trace;

pub use activity::activity;
pub(crate) use machine::statuses;

use ::machine::{Cpu, CpuId, Pid};
use ::process::System;
use alloc::{
    string::String,
    sync::{Arc, Weak},
    vec::Vec,
};
use fs::{
    block::Disks,
    namespace::Mount,
    synthetic::{Node, Synthetic, PROC_MAGIC},
    tty::Terminals,
    LocalPaths, Services,
};

/// USER_HZ: what a clock tick is in these texts.
const TICK_NS: u64 = 10_000_000;

/// The text of /proc/cpuinfo for these CPUs, all like the one given: the architecture knows.
pub type CpuInfo = fn(&dyn Cpu, &[CpuId]) -> String;

/// What every file of /proc may ask.
pub(crate) struct Proc {
    pub system: Arc<System>,
    pub services: Arc<Services>,
    /// Where it is mounted: it does not hold what holds it.
    paths: Weak<LocalPaths>,
    pub terminals: Arc<Terminals>,
    pub disks: Arc<Disks>,
    boot_id: [u8; 16],
    cpuinfo: CpuInfo,
}

impl Proc {
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        self.paths.upgrade().map_or_else(Vec::new, |paths| paths.mounts())
    }
}

/// What /proc shows beside the processes.
pub struct Shown<'a> {
    /// The tree that it is to be mounted in.
    pub paths: &'a Arc<LocalPaths>,
    pub terminals: &'a Arc<Terminals>,
    pub disks: &'a Arc<Disks>,
}

/// The tree for /proc.
pub fn tree(
    system: &Arc<System>,
    services: &Arc<Services>,
    Shown { paths, terminals, disks }: Shown<'_>,
    cpuinfo: CpuInfo,
) -> Arc<Synthetic> {
    let mut boot_id = [0; 16];
    system.cpu.random(&mut boot_id);
    let shared = Arc::new(Proc {
        system: system.clone(),
        services: services.clone(),
        paths: Arc::downgrade(paths),
        terminals: terminals.clone(),
        disks: disks.clone(),
        boot_id,
        cpuinfo,
    });
    Synthetic::new(services, "proc", PROC_MAGIC, Node::directory(1, root::Root::new(shared)))
}

/// A process, or one thread of it, that a file is about.
#[derive(Clone)]
pub(crate) struct Subject {
    pub proc: Arc<Proc>,
    pub pid: Pid,
    /// Below task/.
    pub thread: Option<Pid>,
}
