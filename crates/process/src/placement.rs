//! Where new threads start: the policy, behind one small trait.

use abi::CpuSet;
use alloc::sync::Arc;
use machine::{CpuId, KernelId};

/// What the policy may look at.
pub struct Candidate<'a> {
    pub kernel: KernelId,
    pub cpus: &'a [CpuId],
    /// Threads that run or wait for a CPU there, as its entry on the board says.
    pub load: usize,
}

pub trait Placement: Send + Sync {
    /// The kernel for a new thread that may run on `affinity`, made on kernel `here`.
    fn choose(&self, here: KernelId, affinity: &CpuSet, candidates: &[Candidate<'_>]) -> KernelId;
    /// Load of a kernel, from the board.
    fn load(&self, kernel: KernelId) -> usize;
}

/// Least loaded per CPU, near the parent when equal: an unmodified OpenMP program spreads by itself.
pub struct Spread {
    load: Arc<dyn Fn(KernelId) -> usize + Send + Sync>,
}

impl Spread {
    /// `load` reads a kernel's entry on the load board.
    pub fn new(load: impl Fn(KernelId) -> usize + Send + Sync + 'static) -> Self {
        Spread { load: Arc::new(load) }
    }
}

impl Placement for Spread {
    fn choose(&self, here: KernelId, affinity: &CpuSet, candidates: &[Candidate<'_>]) -> KernelId {
        let usable = |candidate: &&Candidate| candidate.cpus.iter().any(|&cpu| affinity.contains(cpu));
        candidates
            .iter()
            .filter(usable)
            .min_by_key(|candidate| {
                // Load per CPU in thousandths; the distance in ids breaks ties, so neighbours fill first.
                let per_cpu = candidate.load * 1000 / candidate.cpus.len().max(1);
                (per_cpu, candidate.kernel.0.abs_diff(here.0))
            })
            .map_or(here, |candidate| candidate.kernel)
    }

    fn load(&self, kernel: KernelId) -> usize {
        (self.load)(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_to_the_least_loaded_kernel_they_may_use() {
        let policy = Spread::new(|_| 0);
        let cpus: [[CpuId; 1]; 3] = [[CpuId(0)], [CpuId(1)], [CpuId(2)]];
        let with = |loads: [usize; 3]| {
            [0, 1, 2].map(|index| Candidate { kernel: KernelId(index as u16), cpus: &cpus[index], load: loads[index] })
        };
        let all: CpuSet = (0..3).map(CpuId).collect();
        assert_eq!(policy.choose(KernelId(1), &all, &with([0, 0, 0])), KernelId(1));
        assert_eq!(policy.choose(KernelId(0), &all, &with([1, 1, 0])), KernelId(2));
        assert_eq!(policy.choose(KernelId(0), &all, &with([1, 0, 0])), KernelId(1));
        let only: CpuSet = [CpuId(0)].into_iter().collect();
        assert_eq!(policy.choose(KernelId(0), &only, &with([9, 0, 0])), KernelId(0));
    }
}
