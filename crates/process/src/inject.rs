//! Fault injection (`cob.shake=SEED`, `cob run --shake SEED`).
//!
//! Problem: the interleavings that break a protocol between kernels hardly ever happen by themselves. A thread moves
//! when somebody asks for it, a borrowed page stays until its owner wants it back, a message is looked at as soon as
//! its doorbell rings.
//!
//! Idea: make what is *allowed* to happen at any time happen often, at random. At a thread's user boundary, once in
//! [`INTERVAL`] times (in [`FAULT_INTERVAL`] after a page fault), one of these, none of which a program may notice:
//!
//! - the thread goes to a random kernel among those its affinity allows, as a balancer could send it;
//! - this kernel forgets pages that it has borrowed, some or all of them: the next touch asks the owner again;
//! - another kernel hands over pages that nobody has touched, as it would if this one touched them (`vm/src/handover.rs`);
//! - the thread goes to the end of the queue, so that others get in between (not a real-time one: its place there is the program's).
//!
//! New threads and programs start on a random kernel ([`RandomPlacement`] in place of the usual placement), and lanes are held back a while
//! by the kernel (`kernel/src/inject.rs`), whole, so that nothing is reordered inside one.
//!
//! Each kernel draws from its own sequence, made from the seed and its id. The seed does not determine what the machine
//! does, for its CPUs run as they like; but the same seed injects similar faults, which is often enough to meet a
//! bug again.

use crate::{
    migrate::Absence,
    placement::{Candidate, Placement},
    Context, Thread,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::KernelId;

/// User boundaries per injected fault.
const INTERVAL: u64 = 24;
/// The same after a page fault. Injection causes page faults, and a program whose pages are forgotten again before it has
/// got them all would make no progress.
const FAULT_INTERVAL: u64 = 8 * INTERVAL;

/// Random numbers that a seed determines: SplitMix64 (Steele, Lea, Flood 2014) over a counter.
pub struct FaultInjector(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl FaultInjector {
    /// The sequence of a kernel: another one for each seed and each kernel.
    pub fn new(seed: u64, kernel: KernelId) -> Arc<Self> {
        Arc::new(FaultInjector(AtomicU64::new(mix(seed.wrapping_add(STEP)) ^ mix(u64::from(kernel.0)))))
    }

    fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP))
    }

    /// A random number below `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True about once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Thread {
    /// Injects one of the faults above at the user boundary, at random intervals. None: it has injected none.
    pub async fn inject_fault(
        self: &Arc<Self>,
        injector: &FaultInjector,
        context: &mut Context,
        faulted: bool,
    ) -> Option<Absence> {
        let interval = if faulted { FAULT_INTERVAL } else { INTERVAL };
        if !injector.one_in(interval) {
            return None;
        }
        match injector.below(8) {
            0..4 => self.displace(injector, context).await,
            4 => {
                self.process.space().forget_borrowed(|_| true);
                Some(Absence::Back)
            }
            5 => {
                self.process.space().forget_borrowed(|_| injector.one_in(2));
                Some(Absence::Back)
            }
            6 => {
                self.process.space().steal_for_test(injector.next()).await;
                Some(Absence::Back)
            }
            _ if matches!(self.class(), sched::Class::Fifo(_) | sched::Class::RoundRobin(_)) => None,
            _ => {
                machine::yield_now().await;
                Some(Absence::Back)
            }
        }
    }

    async fn displace(self: &Arc<Self>, injector: &FaultInjector, context: &mut Context) -> Option<Absence> {
        let system = &self.process.system;
        let affinity = self.state.lock().affinity.clone();
        let others: Vec<KernelId> = {
            let machine = system.machine.lock();
            let may = machine.iter().filter(|(_, cpus)| cpus.iter().any(|&cpu| affinity.contains(cpu)));
            may.map(|(kernel, _)| *kernel).filter(|&kernel| kernel != system.kernel).collect()
        };
        if others.is_empty() {
            return None;
        }
        let to = others[injector.below(others.len() as u64) as usize];
        Some(self.move_to(context, to).await)
    }
}

/// A placement policy that chooses at random among the kernels that the thread may use. Threads that wait for a CPU are relieved by the
/// usual policy.
pub struct RandomPlacement {
    /// The source of its random numbers.
    pub injector: Arc<FaultInjector>,
    /// The policy that moves threads which wait for a CPU.
    pub policy: Arc<dyn Placement>,
}

impl Placement for RandomPlacement {
    fn choose(&self, here: KernelId, candidates: &[Candidate<'_>]) -> KernelId {
        match candidates {
            [] => here,
            all => all[self.injector.below(all.len() as u64) as usize].kernel,
        }
    }

    fn relieve(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
        self.policy.relieve(here, candidates)
    }

    fn packs(&self) -> bool {
        self.policy.packs()
    }

    fn pack(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
        self.policy.pack(here, candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_a_seed_draw_different_numbers_and_a_seed_always_the_same() {
        let draw = |seed, kernel| {
            let injector = FaultInjector::new(seed, KernelId(kernel));
            [(); 8].map(|()| injector.next())
        };
        assert_eq!(draw(7, 2), draw(7, 2));
        assert_ne!(draw(7, 2), draw(7, 3));
        assert_ne!(draw(7, 2), draw(8, 2));
        assert_ne!(draw(0, 0), draw(1, 0));
    }
}
