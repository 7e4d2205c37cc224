//! /sys: the CPUs, caches and NUMA nodes of the machine (Documentation/ABI of Linux, sysfs-devices-system-cpu
//! and -node), for lscpu, libnuma and the C library; and the network interface. Beside them only directories that programs expect to find.
//!
//! Kernels join and disks come while the machine runs, so what depends on them is made anew at every lookup ([`Rebuilt`]).

mod block;
mod cpu;
mod net;
mod node;
mod tracing;

pub use cpu::{Cache, Caches};

use crate::proc::made::Directory as Names;
use ::process::System;
use alloc::{boxed::Box, sync::Arc};
use fs::{
    block::{Disks, Volume},
    inode::listing::Listing,
    synthetic::{hash_ino, Directory, Fixed, Node, Synthetic},
    Caller, Services,
};
use machine::{errno::Result, BoxFuture, Errno};

/// SYSFS_MAGIC.
const MAGIC: u64 = 0x6265_6572;

/// The tree for /sys.
pub fn tree(system: &Arc<System>, services: &Arc<Services>, disks: &Arc<Disks>, caches: Caches) -> Arc<Synthetic> {
    Synthetic::new(services, "sysfs", MAGIC, Node::directory(1, root(system, disks, caches)))
}

fn root(system: &Arc<System>, disks: &Arc<Disks>, caches: Caches) -> Fixed {
    let empty = |names: Names| names;
    let rebuilt = |path: &str, make: Box<dyn Fn() -> Fixed + Send + Sync>| {
        Node::directory(hash_ino(path.as_bytes()), Rebuilt(make))
    };
    // Disks come and go.
    let of_disks = |path: &'static str, fill: fn(Names, &[Arc<Volume>]) -> Names| {
        let disks = disks.clone();
        rebuilt(path, Box::new(move || fill(Names::new(path), &disks.list()).done()))
    };
    Names::new("/sys")
        .with("block", of_disks("/sys/block", block::disks))
        .directory("bus", |names| names.directory("cpu", empty).directory("node", empty))
        .directory("class", |names| {
            names
                .with("block", of_disks("/sys/class/block", block::class))
                .directory("net", |names| names.link("lo", net::LINK))
                .directory("tty", empty)
        })
        .directory("dev", |names| {
            names.with("block", of_disks("/sys/dev/block", block::numbers)).directory("char", empty)
        })
        .directory("devices", |names| {
            names
                .directory("virtual", |names| {
                    let names = names.with("block", of_disks("/sys/devices/virtual/block", block::devices));
                    names.directory("net", |names| {
                        names.directory("lo", |names| net::interface(names, "/sys/devices/virtual/net/lo"))
                    })
                })
                .directory("system", |names| {
                    let (cpus, nodes) = (system.clone(), system.clone());
                    names
                        .with("cpu", rebuilt(cpu::PATH, Box::new(move || cpu::directory(&cpus, caches))))
                        .with("node", rebuilt(node::PATH, Box::new(move || node::directory(&nodes))))
                })
        })
        .directory("firmware", empty)
        .directory("fs", |names| names.directory("cgroup", empty))
        .directory("kernel", |names| {
            names
                .directory("mm", |names| {
                    names.directory("transparent_hugepage", |names| {
                        names.constant("enabled", "always madvise [never]\n").constant("hpage_pmd_size", "2097152\n")
                    })
                })
                .directory("tracing", |names| names.with("trace_marker", tracing::marker(system)))
        })
        .directory("module", empty)
        .directory("power", empty)
        .done()
}

/// A directory that depends on which kernels or disks there are.
pub(super) struct Rebuilt(Box<dyn Fn() -> Fixed + Send + Sync>);

impl Directory for Rebuilt {
    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        let found = (self.0)().get(name);
        Box::pin(core::future::ready(found.ok_or(Errno::ENOENT)))
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        (self.0)().list_by_number(to);
        Box::pin(core::future::ready(Ok(())))
    }

    fn subdirectories(&self) -> u32 {
        (self.0)().subdirectories()
    }
}
