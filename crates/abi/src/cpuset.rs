//! A set of CPUs of the whole machine, of any size (man 3 CPU_SET).

use alloc::vec::Vec;
use machine::CpuId;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet(Vec<u64>);

impl CpuSet {
    /// From the mask of sched_setaffinity(2).
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words: Vec<u64> = Vec::with_capacity(1);
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(bytes);
            if word != 0 {
                // Sets are equal if their words are: no empty ones at the end.
                words.resize(index, 0);
                words.push(word);
            }
        }
        CpuSet(words)
    }

    /// The mask for sched_getaffinity(2), `len` bytes long.
    pub fn to_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(len, 0);
        bytes
    }

    pub fn insert(&mut self, cpu: CpuId) {
        let word = cpu.0 as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (cpu.0 % 64);
    }

    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.get(cpu.0 as usize / 64).is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    pub fn intersect(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().zip(0u32..).flat_map(|(&word, index)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let cpu = (rest != 0).then(|| CpuId(index * 64 + rest.trailing_zeros()));
                rest &= rest.wrapping_sub(1);
                cpu
            })
        })
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
