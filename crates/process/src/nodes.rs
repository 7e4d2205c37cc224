//! Which NUMA node each CPU belongs to, and how far apart nodes are: what the firmware says (ACPI SRAT, SLIT).

use crate::System;
use alloc::vec::Vec;
use machine::{CpuId, HashMap};

/// ACPI 6.5, 5.2.17: the distance of a node to itself. Linux takes twice as much for another where the firmware says nothing.
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

#[derive(Default)]
pub(crate) struct Nodes {
    /// The node of each CPU that is not on node 0.
    of: HashMap<u32, u32>,
    /// Row by row, as many rows as columns; empty: the firmware says nothing.
    distances: Vec<u8>,
}

impl Nodes {
    fn of(&self, cpu: u32) -> u32 {
        self.of.get(&cpu).copied().unwrap_or(0)
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        let width = self.distances.len().isqrt();
        let said =
            |from: usize, to: usize| (from.max(to) < width).then(|| u32::from(self.distances[from * width + to]));
        // 255: there is no way. Less than to itself: nonsense (Linux takes no such table either).
        let said = said(from as usize, to as usize).filter(|said| *said >= LOCAL);
        said.unwrap_or(if from == to { LOCAL } else { REMOTE })
    }
}

impl System {
    /// The NUMA node that the CPU is on; 0 if nobody has said.
    pub fn node_of(&self, cpu: u32) -> u32 {
        self.nodes.lock().of(cpu)
    }

    /// How far the memory of node `to` is from the CPUs of node `from`: 10 is as near as its own.
    pub fn node_distance(&self, from: u32, to: u32) -> u32 {
        self.nodes.lock().distance(from, to)
    }

    /// The distance of two CPUs' nodes.
    pub(crate) fn cpu_distance(&self, from: CpuId, to: CpuId) -> u32 {
        let nodes = self.nodes.lock();
        nodes.distance(nodes.of(from.0), nodes.of(to.0))
    }

    /// Says which NUMA node a CPU is on, as the firmware has it (ACPI's SRAT).
    pub fn set_node(&self, cpu: CpuId, node: u32) {
        self.nodes.lock().of.insert(cpu.0, node);
    }

    /// What the firmware says of distances: ACPI's SLIT, row by row.
    pub fn set_node_distances(&self, distances: &[u8]) {
        self.nodes.lock().distances = distances.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_firmware_says_and_what_it_does_not() {
        let mut nodes = Nodes::default();
        assert_eq!([(0, 0), (0, 1), (5, 2)].map(|(from, to)| nodes.distance(from, to)), [10, 20, 20]);
        nodes.distances = [10, 21, 31, 21, 10, 21, 31, 21, 10].to_vec();
        assert_eq!(
            [(0, 0), (0, 1), (0, 2), (2, 1), (2, 3)].map(|(from, to)| nodes.distance(from, to)),
            [10, 21, 31, 21, 20]
        );
        nodes.distances = [10, 3, 3, 10].to_vec();
        assert_eq!(nodes.distance(0, 1), 20);
    }
}
