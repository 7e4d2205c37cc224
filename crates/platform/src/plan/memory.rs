//! Memory for the kernels of a plan: first the addresses that were asked for, then the sizes, then the rest in even shares.

use super::{MemoryRange, Topology, Wish, LEAST_MEMORY};
use crate::layout::{COMMON_END, PARTITION_ALIGN, PRIMARY_IMAGE_PHYS};
use alloc::{collections::BTreeSet, format, string::String, vec, vec::Vec};
use core::ops::Range;

/// Memory nobody owns yet: ascending, disjoint, aligned.
#[derive(Clone)]
pub(super) struct Pool(pub Vec<MemoryRange>);

impl Pool {
    pub fn new(memory: &[MemoryRange]) -> Pool {
        let mut sorted = memory.to_vec();
        sorted.sort_by_key(|m| m.start);
        let mut whole: Vec<MemoryRange> = vec![];
        for mut m in sorted {
            // Firmware may say the same twice.
            m.start = whole.last().map_or(COMMON_END, |last| last.end).max(m.start);
            match whole.last_mut() {
                _ if m.start >= m.end => {}
                Some(last) if last.end == m.start && last.node == m.node => last.end = m.end,
                _ => whole.push(m),
            }
        }
        let aligned = whole.into_iter().filter_map(|m| {
            let start = m.start.checked_next_multiple_of(PARTITION_ALIGN)?;
            let end = m.end / PARTITION_ALIGN * PARTITION_ALIGN;
            (start < end).then_some(MemoryRange { start, end, node: m.node })
        });
        Pool(aligned.collect())
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

    /// Up to `bytes` of the ranges that `allowed` says for one that has `held` already: first what lies behind that, which is the primary's
    /// image, for an initramfs must have room behind it; then the start of the lowest range that has them all; where none has, of the
    /// largest ones first.
    fn take(&mut self, mut bytes: u64, held: &[MemoryRange], allowed: impl Fn(u32) -> bool) -> Vec<MemoryRange> {
        let mut taken = vec![];
        let behind = self.0.iter().find(|m| allowed(m.node) && held.iter().any(|held| held.end == m.start)).copied();
        if let Some(behind) = behind {
            let piece = behind.start..behind.start + behind.bytes().min(bytes);
            bytes -= piece.end - piece.start;
            taken.extend(self.carve(piece).expect("part of a range of the pool"));
        }
        while bytes > 0 {
            let ranges = || self.0.iter().filter(|m| allowed(m.node));
            let from = ranges().find(|m| m.bytes() >= bytes).or_else(|| ranges().max_by_key(|m| m.bytes()));
            let Some(from) = from.copied() else { break };
            let piece = from.start..from.start + from.bytes().min(bytes);
            bytes -= piece.end - piece.start;
            taken.extend(self.carve(piece).expect("part of a range of the pool"));
        }
        taken
    }

    /// [`LEAST_MEMORY`] in one piece.
    fn take_boot_piece(&mut self, allowed: impl Fn(u32) -> bool) -> Option<Vec<MemoryRange>> {
        let from = self.0.iter().find(|m| m.can_boot() && allowed(m.node))?.start;
        self.carve(from..from + LEAST_MEMORY)
    }

    fn on_node(&self, node: u32) -> u64 {
        self.0.iter().filter(|m| m.node == node).map(MemoryRange::bytes).sum()
    }
}

/// Gives every wish its memory; a sentence if that cannot be.
pub(super) fn give(topology: &Topology, wishes: &mut [Wish]) -> Result<(), String> {
    let mut pool = Pool::new(&topology.memory);
    for (index, wish) in wishes.iter_mut().enumerate() {
        for range in wish.exact.clone() {
            let taken = pool.carve(range.clone());
            let taken = taken.ok_or_else(|| format!("kernel {index}: {range:#x?} is not free memory"))?;
            wish.receive(taken);
        }
    }
    // The loader has put the primary's image there; nobody else may have it.
    let image = PRIMARY_IMAGE_PHYS..PRIMARY_IMAGE_PHYS + LEAST_MEMORY;
    if !wishes[0].partition.memory.iter().any(|m| m.start <= image.start && image.end <= m.end) {
        let taken = pool.carve(image).ok_or("kernel 0 must have the memory its image was loaded to")?;
        wishes[0].receive_of_size(taken);
    }
    let before = wishes.to_vec();
    share_out(topology, wishes, pool.clone())?;
    if wishes.iter().any(|wish| wish.partition.boot_range().is_none()) {
        // Memory is in many pieces: those that are large enough to boot in go first, one to each.
        wishes.clone_from_slice(&before);
        for wish in wishes.iter_mut().filter(|wish| wish.has_nowhere_to_boot()) {
            let nodes = wish.nodes(topology);
            let near = nodes.iter().any(|node| pool.on_node(*node) > 0);
            if let Some(taken) = pool.take_boot_piece(|node| !near || nodes.contains(&node)) {
                wish.receive_of_size(taken);
            }
        }
        share_out(topology, wishes, pool)?;
    }
    for (index, wish) in wishes.iter().enumerate() {
        if wish.partition.boot_range().is_none() {
            let bytes = wish.partition.memory.iter().map(MemoryRange::bytes).sum::<u64>();
            let pieces = if bytes < LEAST_MEMORY { "" } else { " in one piece" };
            let (has, needs) = (bytes >> 20, LEAST_MEMORY >> 20);
            return Err(format!(
                "kernel {index} would have {has} MiB of memory, and a kernel needs {needs} MiB{pieces}"
            ));
        }
    }
    Ok(())
}

impl Wish {
    /// Whether it has no place to boot in yet, and does not want so little, or just these addresses, that it can have none.
    fn has_nowhere_to_boot(&self) -> bool {
        let wants_one = self.exact.is_empty() && self.size.is_none_or(|size| size >= LEAST_MEMORY);
        wants_one && self.partition.boot_range().is_none()
    }

    fn nodes(&self, topology: &Topology) -> BTreeSet<u32> {
        self.partition.cpus.iter().map(|cpu| topology.cpus[cpu.0 as usize].node).collect()
    }

    fn receive(&mut self, taken: Vec<MemoryRange>) {
        let memory = &mut self.partition.memory;
        memory.extend(taken);
        memory.sort_by_key(|m| m.start);
        memory.dedup_by(|next, previous| {
            let joined = previous.end == next.start && previous.node == next.node;
            if joined {
                previous.end = next.end;
            }
            joined
        });
    }

    /// Receives what counts towards the size that was asked for.
    fn receive_of_size(&mut self, taken: Vec<MemoryRange>) {
        let bytes = taken.iter().map(MemoryRange::bytes).sum();
        self.size = self.size.map(|size| size.saturating_sub(bytes));
        self.receive(taken);
    }
}

/// First the sizes that were asked for, then the rest in even shares.
fn share_out(topology: &Topology, wishes: &mut [Wish], mut pool: Pool) -> Result<(), String> {
    for (index, wish) in wishes.iter_mut().enumerate() {
        let Some(size) = wish.size else { continue };
        let nodes = wish.nodes(topology);
        let mut taken = pool.take(size, &wish.partition.memory, |node| nodes.contains(&node));
        let missing = size - taken.iter().map(MemoryRange::bytes).sum::<u64>();
        taken.extend(pool.take(missing, &[], |_| true));
        if taken.iter().map(MemoryRange::bytes).sum::<u64>() < size {
            return Err(format!("kernel {index}: there is not that much memory"));
        }
        wish.receive(taken);
    }
    let nodes: BTreeSet<u32> = pool.0.iter().map(|m| m.node).collect();
    for node in nodes {
        let is_open = |wish: &Wish| wish.size.is_none() && wish.exact.is_empty();
        let local = wishes.iter().any(|wish| is_open(wish) && wish.nodes(topology).contains(&node));
        let shares = |wish: &&mut Wish| is_open(wish) && (!local || wish.nodes(topology).contains(&node));
        let sharers: Vec<&mut Wish> = wishes.iter_mut().filter(shares).collect();
        let count = sharers.len() as u64;
        // The primary's image counts towards its share.
        let has =
            |wish: &Wish| wish.partition.memory.iter().filter(|m| m.node == node).map(MemoryRange::bytes).sum::<u64>();
        let total = pool.on_node(node) + sharers.iter().map(|wish| has(wish)).sum::<u64>();
        for wish in sharers {
            let share = (total / count / PARTITION_ALIGN * PARTITION_ALIGN).saturating_sub(has(wish));
            let taken = pool.take(share, &wish.partition.memory, |n| n == node);
            wish.receive(taken);
        }
    }
    Ok(())
}
