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
//!
//! Memory: what nobody asked for by size or address is split evenly among the kernels that have CPUs on
//! its NUMA node (among all, if none has), at 2 MiB boundaries.

use crate::layout::{COMMON_END, PARTITION_ALIGN, PRIMARY_IMAGE_PHYS};
use alloc::{collections::BTreeSet, format, string::String, string::ToString, vec, vec::Vec};
use core::ops::Range;
use machine::{CpuId, KernelId};
use serde::{Deserialize, Serialize};

/// Least memory a kernel can live in.
pub const LEAST_MEMORY: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuInfo {
    pub apic: u32,
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
        give_memory(&topology, &mut wanted)?;
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

#[derive(Default)]
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

/// Memory nobody owns yet: ascending, aligned.
struct Pool(Vec<MemoryRange>);

impl Pool {
    fn new(memory: &[MemoryRange]) -> Pool {
        let aligned = memory.iter().filter_map(|m| {
            let start = m.start.max(COMMON_END).next_multiple_of(PARTITION_ALIGN);
            let end = m.end / PARTITION_ALIGN * PARTITION_ALIGN;
            (start < end).then_some(MemoryRange { start, end, node: m.node })
        });
        let mut pool: Vec<_> = aligned.collect();
        pool.sort_by_key(|m| m.start);
        Pool(pool)
    }

    /// Takes exactly `range` out; None if not all of it is there.
    fn carve(&mut self, range: Range<u64>) -> Option<Vec<MemoryRange>> {
        let (mut taken, mut left) = (vec![], vec![]);
        for m in &self.0 {
            let cut = MemoryRange { start: m.start.max(range.start), end: m.end.min(range.end), node: m.node };
            if cut.start >= cut.end {
                left.push(*m);
                continue;
            }
            let pieces = [MemoryRange { end: cut.start, ..*m }, MemoryRange { start: cut.end, ..*m }];
            left.extend(pieces.into_iter().filter(|piece| piece.start < piece.end));
            taken.push(cut);
        }
        if taken.iter().map(MemoryRange::bytes).sum::<u64>() != range.end - range.start {
            return None;
        }
        self.0 = left;
        Some(taken)
    }

    /// Up to `bytes`, lowest first, of the ranges that `allowed` says.
    fn take(&mut self, mut bytes: u64, allowed: impl Fn(u32) -> bool) -> Vec<MemoryRange> {
        let mut taken = vec![];
        while bytes > 0 {
            let Some(from) = self.0.iter().find(|m| allowed(m.node)).copied() else { break };
            let piece = from.start..from.start + from.bytes().min(bytes);
            bytes -= piece.end - piece.start;
            taken.extend(self.carve(piece).expect("part of a range of the pool"));
        }
        taken
    }

    fn on_node(&self, node: u32) -> u64 {
        self.0.iter().filter(|m| m.node == node).map(MemoryRange::bytes).sum()
    }
}

fn give_memory(topology: &Topology, wishes: &mut [Wish]) -> Result<(), String> {
    let mut pool = Pool::new(&topology.memory);
    for (index, wish) in wishes.iter_mut().enumerate() {
        for range in wish.exact.clone() {
            let taken = pool.carve(range.clone());
            let taken = taken.ok_or_else(|| format!("kernel {index}: {range:#x?} is not free memory"))?;
            wish.partition.memory.extend(taken);
        }
    }
    // The loader has put the primary's image there; nobody else may have it.
    let image = PRIMARY_IMAGE_PHYS..PRIMARY_IMAGE_PHYS + LEAST_MEMORY;
    if !wishes[0].partition.memory.iter().any(|m| m.start <= image.start && image.end <= m.end) {
        let taken = pool.carve(image).ok_or("kernel 0 must have the memory its image was loaded to")?;
        if let Some(size) = &mut wishes[0].size {
            *size = size.saturating_sub(LEAST_MEMORY);
        }
        wishes[0].partition.memory.extend(taken);
    }
    let nodes_of = |wish: &Wish| -> BTreeSet<u32> {
        wish.partition.cpus.iter().map(|cpu| topology.cpus[cpu.0 as usize].node).collect()
    };
    for (index, wish) in wishes.iter_mut().enumerate() {
        let Some(size) = wish.size else { continue };
        let nodes = nodes_of(wish);
        let mut taken = pool.take(size, |node| nodes.contains(&node));
        let missing = size - taken.iter().map(MemoryRange::bytes).sum::<u64>();
        taken.extend(pool.take(missing, |_| true));
        if taken.iter().map(MemoryRange::bytes).sum::<u64>() < size {
            return Err(format!("kernel {index}: there is not that much memory"));
        }
        wish.partition.memory.extend(taken);
    }
    let nodes: BTreeSet<u32> = pool.0.iter().map(|m| m.node).collect();
    for node in nodes {
        let open = |wish: &&mut Wish| wish.size.is_none() && wish.exact.is_empty();
        let local =
            wishes.iter().any(|wish| wish.size.is_none() && wish.exact.is_empty() && nodes_of(wish).contains(&node));
        let sharers: Vec<&mut Wish> =
            wishes.iter_mut().filter(open).filter(|wish| !local || nodes_of(wish).contains(&node)).collect();
        let count = sharers.len() as u64;
        // The primary's image counts towards its share.
        let has =
            |wish: &Wish| wish.partition.memory.iter().filter(|m| m.node == node).map(MemoryRange::bytes).sum::<u64>();
        let total = pool.on_node(node) + sharers.iter().map(|wish| has(wish)).sum::<u64>();
        for wish in sharers {
            let share = (total / count / PARTITION_ALIGN * PARTITION_ALIGN).saturating_sub(has(wish));
            wish.partition.memory.extend(pool.take(share, |n| n == node));
        }
    }
    for (index, wish) in wishes.iter_mut().enumerate() {
        let memory = &mut wish.partition.memory;
        memory.sort_by_key(|m| m.start);
        memory.dedup_by(|next, previous| {
            let joined = previous.end == next.start && previous.node == next.node;
            if joined {
                previous.end = next.end;
            }
            joined
        });
        let bytes = memory.iter().map(MemoryRange::bytes).sum::<u64>();
        // Image, page tables and first heap lie in one piece at the start of the first range.
        if memory.first().map_or(0, MemoryRange::bytes) < LEAST_MEMORY {
            return Err(format!("kernel {index} would have {} MiB, too little", bytes >> 20));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
