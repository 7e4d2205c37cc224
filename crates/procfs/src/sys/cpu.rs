//! /sys/devices/system/cpu. Every CPU is a socket of its own, as in /proc/cpuinfo.

use crate::proc::made::{number_list, number_mask, Directory as Names};
use ::machine::Cpu;
use ::process::System;
use alloc::{format, sync::Arc, vec::Vec};
use fs::synthetic::Fixed;

pub(super) const PATH: &str = "/sys/devices/system/cpu";

/// A cache of every CPU.
#[derive(Debug, PartialEq, Eq)]
pub struct Cache {
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: &'static str,
    pub line: u32,
    pub partitions: u32,
    pub ways: u32,
    pub sets: u32,
}

impl Cache {
    pub fn bytes(&self) -> u64 {
        [self.line, self.partitions, self.ways, self.sets].into_iter().map(u64::from).product()
    }
}

/// What caches a CPU has: the architecture knows.
pub type Caches = fn(&dyn Cpu) -> Vec<Cache>;

pub(super) fn directory(system: &Arc<System>, caches: Caches) -> Fixed {
    let cpus: Vec<(u32, u32)> = system.all_cpus().iter().map(|cpu| (cpu.0, system.node_of(cpu.0))).collect();
    names(&cpus, &caches(&*system.cpu)).done()
}

/// `cpus`: numbers and nodes.
fn names(cpus: &[(u32, u32)], caches: &[Cache]) -> Names {
    let list = format!("{}\n", number_list(cpus.iter().map(|cpu| cpu.0)));
    let width = cpus.iter().map(|cpu| cpu.0 + 1).max().unwrap_or(1);
    let mut names = Names::new(PATH)
        .constant("online", &*list)
        .constant("possible", &*list)
        .constant("present", &*list)
        .constant("offline", "\n")
        .constant("isolated", "\n")
        .constant("kernel_max", "8191\n")
        .directory("vulnerabilities", |names| names);
    for &(cpu, node) in cpus {
        names = names.directory(&format!("cpu{cpu}"), |names| one(names, cpu, node, width, caches));
    }
    names
}

fn one(names: Names, cpu: u32, node: u32, width: u32, caches: &[Cache]) -> Names {
    let list = format!("{cpu}\n");
    let mask = format!("{}\n", number_mask([cpu], width));
    // The first CPU can't be taken offline, so it has no such file.
    let names = if cpu == 0 { names } else { names.constant("online", "1\n") };
    names
        .directory(&format!("node{node}"), |names| names)
        .directory("topology", |mut names| {
            for group in ["thread_siblings", "core_cpus", "core_siblings", "package_cpus", "die_cpus", "cluster_cpus"] {
                names = names.constant(group, &*mask).constant(&format!("{group}_list"), &*list);
            }
            names
                .constant("core_id", "0\n")
                .constant("die_id", "0\n")
                .constant("cluster_id", "65535\n")
                .constant("physical_package_id", &*list)
        })
        .directory("cache", |mut names| {
            for (index, cache) in caches.iter().enumerate() {
                names = names.directory(&format!("index{index}"), |names| {
                    names
                        .constant("id", &*list)
                        .constant("level", format!("{}\n", cache.level))
                        .constant("type", format!("{}\n", cache.kind))
                        .constant("size", format!("{}K\n", cache.bytes() / 1024))
                        .constant("coherency_line_size", format!("{}\n", cache.line))
                        .constant("number_of_sets", format!("{}\n", cache.sets))
                        .constant("ways_of_associativity", format!("{}\n", cache.ways))
                        .constant("physical_line_partition", format!("{}\n", cache.partitions))
                        .constant("shared_cpu_list", &*list)
                        .constant("shared_cpu_map", &*mask)
                });
            }
            names
        })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::string::String;

    #[test]
    fn names_are_those_of_the_host() {
        let own = names(&[(0, 0), (1, 1)], &[]).done();
        let listed: Vec<String> = own.names().map(|name| String::from_utf8(name.to_vec()).expect("ASCII")).collect();
        for name in &listed {
            let host = std::path::Path::new(PATH).join(name);
            assert!(host.exists() || name == "cpu1", "{name}");
        }
        assert!(listed.contains(&"cpu0".into()) && listed.contains(&"cpu1".into()));
    }
}
