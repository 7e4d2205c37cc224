//! /sys/devices/system/node. A kernel's memory counts for the node that its CPUs are on.

use crate::proc::made::{number_list, number_mask, put, Directory as Names, Made, Text};
use crate::proc::statuses;
use ::process::System;
use alloc::{collections::BTreeMap, format, string::String, sync::Arc, vec::Vec};
use fs::{synthetic::Fixed, Caller};
use machine::errno::Result;

pub(super) const PATH: &str = "/sys/devices/system/node";

pub(super) fn directory(system: &Arc<System>) -> Fixed {
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in system.all_cpus().iter() {
        nodes.entry(system.node_of(cpu.0)).or_default().push(cpu.0);
    }
    let width = system.all_cpus().iter().map(|cpu| cpu.0 + 1).max().unwrap_or(1);
    let list = format!("{}\n", number_list(nodes.keys().copied()));
    let mut names = Names::new(PATH);
    for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
        names = names.constant(name, &*list);
    }
    for (&node, cpus) in &nodes {
        names = names.directory(&format!("node{node}"), |mut names| {
            for cpu in cpus {
                names = names.directory(&format!("cpu{cpu}"), |names| names);
            }
            names
                .constant("cpulist", format!("{}\n", number_list(cpus.iter().copied())))
                .constant("cpumap", format!("{}\n", number_mask(cpus.iter().copied(), width)))
                .constant("distance", distances(system, node, nodes.keys().copied()))
                .file("meminfo", Made { source: (system.clone(), node), make: meminfo })
        });
    }
    names.done()
}

fn distances(system: &System, from: u32, nodes: impl Iterator<Item = u32>) -> String {
    let words: Vec<String> = nodes.map(|to| format!("{}", system.node_distance(from, to))).collect();
    words.join(" ") + "\n"
}

async fn meminfo((system, node): (Arc<System>, u32), _caller: Caller) -> Result<Vec<u8>> {
    let (mut total, mut free) = (0, 0);
    for (_, status) in statuses(&system).await {
        if status.cpus.first().is_some_and(|cpu| system.node_of(cpu.0) == node) {
            total += status.memory_total;
            free += status.memory_free;
        }
    }
    let mut text = Text::default();
    for (name, bytes) in [("MemTotal", total), ("MemFree", free), ("MemUsed", total - free)] {
        put!(text, "Node {node} {:<15} {:>8} kB\n", format!("{name}:"), bytes / 1024);
    }
    Ok(text.0)
}
