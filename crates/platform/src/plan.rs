//! Who gets what: the machine's CPUs and memory cut into partitions. Pure; tested on the host.
//!
//! Command line:
//!
//! - `cob.kernels=N`: N kernels, CPUs split evenly in order of their numbers. Default: one.
//! - `cob.partition=core`: a kernel per CPU; `node`: one per NUMA node that has CPUs; a number N: one
//!   per N CPUs; or a list of kernels separated by `;`, each `CPUS[@MEMORY[+MEMORY...]]`, CPUS like
//!   `0-1,4`, MEMORY a size (`512M`) or addresses (`0x40000000-0x60000000`, 2 MiB aligned). The kernel with the
//!   boot CPU comes first. CPUs in no list stay unused.
//! - `cob.boot=all|none|0,2-3`: which secondaries the primary starts at once.
//! - `cob.devices=blk0@2,blk1@1`: which kernels drive disks, in the order in which they lie on the bus; the primary the others.
//!
//! Memory: what nobody asked for by size or address is split evenly among the kernels that have CPUs on
//! its NUMA node (among all, if none has), at 2 MiB boundaries. A share is one range where one is large enough, several
//! ranges otherwise; one of them always has [`LEAST_MEMORY`], for that is where a kernel boots.

mod memory;

use crate::layout::PARTITION_ALIGN;
use alloc::{collections::BTreeMap, collections::BTreeSet, format, string::String, string::ToString, vec, vec::Vec};
use core::ops::Range;
use machine::{CpuId, KernelId};
use serde::{Deserialize, Serialize};

/// Least memory a kernel can live in, and least size of the range that it boots in.
pub const LEAST_MEMORY: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuInfo {
    /// What interrupts are addressed to (x86: the APIC id).
    pub hardware_id: u32,
    pub node: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRange {
    pub start: u64,
    pub end: u64,
    pub node: u32,
}

impl MemoryRange {
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn can_boot(&self) -> bool {
        self.bytes() >= LEAST_MEMORY
    }
}

/// The PCI configuration space (ACPI MCFG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ecam {
    pub base: u64,
    pub first_bus: u8,
    pub last_bus: u8,
}

/// What the firmware says about the machine. CPUs are indexed by their global number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    pub cpus: Vec<CpuInfo>,
    pub memory: Vec<MemoryRange>,
    pub ecam: Option<Ecam>,
    /// Relative distances of the nodes (ACPI SLIT), row by row; empty if the firmware gives none.
    pub distances: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Ascending, except that the boot CPU is first.
    pub cpus: Vec<CpuId>,
    /// Ascending, disjoint, 2 MiB aligned.
    pub memory: Vec<MemoryRange>,
}

impl Partition {
    /// The range that holds image, first page tables and first heap, in one piece from its start on. Every partition of a plan has one;
    /// the primary's begins where the loader has put the image.
    pub fn boot_range(&self) -> Option<MemoryRange> {
        self.memory.iter().copied().find(MemoryRange::can_boot)
    }
}

/// The whole machine as every kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub topology: Topology,
    pub kernels: Vec<Partition>,
    pub command_line: String,
}

impl Plan {
    pub fn new(topology: Topology, command_line: &str) -> Result<Plan, String> {
        let mut wanted = partitions(&topology, command_line)?;
        memory::give(&topology, &mut wanted)?;
        let kernels = wanted.into_iter().map(|wish| wish.partition).collect();
        Ok(Plan { topology, kernels, command_line: command_line.to_string() })
    }

    pub fn partition(&self, kernel: KernelId) -> Option<&Partition> {
        self.kernels.get(kernel.index())
    }

    /// The kernel in whose partition the physical address lies.
    pub fn home_of(&self, phys: u64) -> Option<KernelId> {
        let holds = |p: &Partition| p.memory.iter().any(|m| (m.start..m.end).contains(&phys));
        self.kernels.iter().position(holds).map(|index| KernelId(index as u16))
    }

    pub fn kernel_of(&self, cpu: CpuId) -> Option<KernelId> {
        self.kernels.iter().position(|p| p.cpus.contains(&cpu)).map(|index| KernelId(index as u16))
    }

    /// The secondaries to start at once (`cob.boot`).
    pub fn boot_now(&self) -> Result<Vec<KernelId>, String> {
        let all = || (1..self.kernels.len() as u32).collect::<Vec<_>>();
        let list = match option(&self.command_line, "cob.boot") {
            None | Some("all") => all(),
            Some("none") => vec![],
            Some(list) => numbers(list).ok_or_else(|| format!("cob.boot={list}: no list of kernels"))?,
        };
        if let Some(kernel) = list.iter().find(|&&k| k as usize >= self.kernels.len()) {
            return Err(format!("cob.boot: there is no kernel {kernel}"));
        }
        Ok(list.into_iter().filter(|&k| k != 0).map(|k| KernelId(k as u16)).collect())
    }
}

impl Plan {
    /// Disks that another kernel than the primary drives, by their number on the bus (`cob.devices=blk0@2,blk1@1`).
    pub fn disks_elsewhere(&self) -> Result<BTreeMap<u32, KernelId>, String> {
        let mut all = BTreeMap::new();
        for word in option(&self.command_line, "cob.devices").into_iter().flat_map(|list| list.split(',')) {
            let known = || {
                let (disk, kernel) = word.strip_prefix("blk")?.split_once('@')?;
                Some((disk.parse::<u32>().ok()?, kernel.parse::<u16>().ok()?))
            };
            let (disk, kernel) = known().ok_or_else(|| format!("cob.devices={word}: no blkN@KERNEL"))?;
            if usize::from(kernel) >= self.kernels.len() {
                return Err(format!("cob.devices={word}: there is no kernel {kernel}"));
            }
            // Without ECAM a look at a device is two steps, which two kernels would mix up.
            if kernel != 0 && self.topology.ecam.is_none() {
                return Err(format!("cob.devices={word}: the machine has no PCI Express"));
            }
            if kernel != 0 {
                all.insert(disk, KernelId(kernel));
            }
        }
        Ok(all)
    }
}

/// The value of `name=value` on a command line; the last one counts.
pub fn option<'a>(command_line: &'a str, name: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(name)?.strip_prefix('=');
    command_line.split_ascii_whitespace().filter_map(value).next_back()
}

/// `0-2,5` as numbers.
pub fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has a million CPUs; a wild range must not eat the early heap.
        if first > last || last > 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all.into_iter().collect())
}

/// `512M`, `2G`, `4096K`, bytes.
pub fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[derive(Clone, Default)]
struct Wish {
    partition: Partition,
    size: Option<u64>,
    exact: Vec<Range<u64>>,
}

fn partitions(topology: &Topology, command_line: &str) -> Result<Vec<Wish>, String> {
    let cpus: Vec<CpuId> = (0..topology.cpus.len() as u32).map(CpuId).collect();
    let groups = |sets: Vec<Vec<CpuId>>| {
        let wish = |cpus| Wish { partition: Partition { cpus, memory: vec![] }, ..Wish::default() };
        sets.into_iter().map(wish).collect()
    };
    match option(command_line, "cob.partition") {
        Some("core") => Ok(groups(cpus.chunks(1).map(<[_]>::to_vec).collect())),
        Some("node") => {
            let nodes: BTreeSet<u32> = topology.cpus.iter().map(|cpu| cpu.node).collect();
            let on = |node| cpus.iter().copied().filter(|c| topology.cpus[c.0 as usize].node == node).collect();
            let mut sets: Vec<Vec<CpuId>> = nodes.into_iter().map(on).collect();
            sets.sort();
            Ok(groups(sets))
        }
        Some(text) => match text.parse::<usize>() {
            Ok(0) => Err("cob.partition=0: a kernel needs a CPU".into()),
            Ok(each) => Ok(groups(cpus.chunks(each).map(<[_]>::to_vec).collect())),
            Err(_) => explicit(topology, text),
        },
        None => {
            let text = option(command_line, "cob.kernels").unwrap_or("1");
            let count = text.parse::<usize>().ok().filter(|n| (1..=cpus.len()).contains(n));
            let count =
                count.ok_or_else(|| format!("cob.kernels={text}: must be 1 to {}, the number of CPUs", cpus.len()))?;
            let cut = |k: usize| cpus.len() * k / count;
            Ok(groups((0..count).map(|k| cpus[cut(k)..cut(k + 1)].to_vec()).collect()))
        }
    }
}

fn explicit(topology: &Topology, text: &str) -> Result<Vec<Wish>, String> {
    let mut used = BTreeSet::new();
    let mut wishes = vec![];
    for part in text.split(';') {
        let wrong = |why: &str| format!("cob.partition: {part}: {why}");
        let (cpus, memory) = part.split_once('@').map_or((part, None), |(cpus, memory)| (cpus, Some(memory)));
        let mut wish = Wish::default();
        for cpu in numbers(cpus).ok_or_else(|| wrong("no list of CPUs"))? {
            if cpu as usize >= topology.cpus.len() {
                return Err(wrong("no such CPU"));
            }
            if !used.insert(cpu) {
                return Err(wrong("a CPU belongs to one kernel only"));
            }
            wish.partition.cpus.push(CpuId(cpu));
        }
        for memory in memory.into_iter().flat_map(|list| list.split('+')) {
            match memory.split_once('-') {
                None => {
                    let bytes = size(memory).ok_or_else(|| wrong("no size of memory"))?;
                    wish.size = Some(wish.size.unwrap_or(0).saturating_add(bytes) / PARTITION_ALIGN * PARTITION_ALIGN);
                }
                Some((start, end)) => {
                    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                    let range = address(start).zip(address(end)).map(|(start, end)| start..end);
                    let aligned = |r: &Range<u64>| {
                        r.start.is_multiple_of(PARTITION_ALIGN) && r.end.is_multiple_of(PARTITION_ALIGN)
                    };
                    let range = range.filter(|r| !r.is_empty() && aligned(r));
                    wish.exact.push(range.ok_or_else(|| wrong("addresses must be 0xSTART-0xEND, 2 MiB aligned"))?);
                }
            }
        }
        wishes.push(wish);
    }
    let first = wishes.first().is_some_and(|wish| wish.partition.cpus.contains(&CpuId(0)));
    first.then_some(wishes).ok_or_else(|| "cob.partition: the first kernel must have CPU 0".into())
}

#[cfg(test)]
mod tests;
