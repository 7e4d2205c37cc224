//! A set of CPUs of the whole machine, of any size (man 3 CPU_SET).

use alloc::vec::Vec;
use machine::{Bits, CpuId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet(Bits);

impl CpuSet {
    pub const fn of_bits(bits: Bits) -> Self {
        CpuSet(bits)
    }

    pub const fn bits(&self) -> &Bits {
        &self.0
    }

    /// From the mask of sched_setaffinity(2).
    pub fn from_bytes(bytes: &[u8]) -> Self {
        CpuSet(Bits::from_words(bytes.chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        })))
    }

    /// The mask for sched_getaffinity(2), `len` bytes long.
    pub fn to_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.words().flat_map(u64::to_le_bytes).collect();
        bytes.resize(len, 0);
        bytes
    }

    pub fn insert(&mut self, cpu: CpuId) {
        self.0.insert(cpu.0 as usize);
    }

    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(cpu.0 as usize)
    }

    pub fn intersect(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersect(&other.0))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().map(|number| CpuId(number as u32))
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = CpuSet::default();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_survive_the_way_to_user_space_and_back() {
        let set: CpuSet = [0, 9, 130].map(CpuId).into_iter().collect();
        assert_eq!(CpuSet::from_bytes(&set.to_bytes(128)), set);
        assert_eq!(set.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [0, 9, 130]);
        assert!(set.intersect(&CpuSet::from_bytes(&[6])).is_empty());
    }
}
