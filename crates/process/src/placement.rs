//! Where threads and programs run: the policies, behind one small trait.
//!
//! A policy looks at loads and says where; it knows no thread. Asking it (at birth, at execve, when threads
//! wait for a CPU) and moving is balance.rs. Both policies settle: what they answer is never worse for the
//! thread than where it is, and every move of [`Placement::relieve`] makes the machine more even (or, packing,
//! fuller at one end), so after finitely many moves nothing is left to say (`settles` below).

use alloc::sync::Arc;
use core::cmp::Reverse;
use machine::{CpuId, KernelId};

/// What the policy may look at: a kernel that the affinity of the thread in question allows.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The kernel that could take the thread.
    pub kernel: KernelId,
    /// Those of its CPUs that the thread may use.
    pub cpus: &'a [CpuId],
    /// Threads that run or wait for a CPU there, as its entry on the board says, without the one in question. Those of low
    /// priority count for less.
    pub load: usize,
    /// Distance of its node from that of the kernel that asks (ACPI SLIT).
    pub distance: u32,
}

impl Candidate<'_> {
    /// Load per CPU in thousandths, if one more thread came.
    fn with_one_more(&self) -> usize {
        (self.load + 1) * 1000 / self.cpus.len().max(1)
    }

    fn has_free_cpu(&self) -> bool {
        self.load < self.cpus.len()
    }

    /// Kernels as far away are told apart by their numbers: neighbours have neighbouring CPUs.
    fn distance(&self, here: KernelId) -> (u32, u16) {
        (self.distance, self.kernel.0.abs_diff(here.0))
    }
}

/// A policy that decides on which kernel threads run, within their affinity.
pub trait Placement: Send + Sync {
    /// The kernel for a thread or program that starts on `here`. Candidates are never empty.
    fn choose(&self, here: KernelId, candidates: &[Candidate<'_>]) -> KernelId;

    /// Where a thread that waits on `here` for a CPU, while others run, had better go; None: nowhere. The
    /// first candidate is `here`.
    fn relieve(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId>;

    /// Whether the policy empties kernels that have little to do.
    fn packs(&self) -> bool {
        false
    }

    /// Where a thread that has a CPU on `here` had better go, for `here` to become empty; None: nowhere.
    fn pack(&self, _here: KernelId, _candidates: &[Candidate<'_>]) -> Option<KernelId> {
        None
    }
}

/// Least loaded per CPU, near the parent when equal: an unmodified OpenMP program spreads by itself.
pub struct Spread;

/// One kernel after the other, the parent's first: what belongs together stays together, messages and borrowed
/// memory are few, and kernels that nobody needs stay idle.
pub struct Pack;

/// The policy that `cob.placement=` names; None: there is no such.
pub fn policy(name: &str) -> Option<Arc<dyn Placement>> {
    match name {
        "spread" => Some(Arc::new(Spread)),
        "pack" => Some(Arc::new(Pack)),
        _ => None,
    }
}

fn least_loaded(here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
    let best = candidates.iter().min_by_key(|candidate| (candidate.with_one_more(), candidate.distance(here)));
    best.map(|candidate| candidate.kernel)
}

impl Placement for Spread {
    fn choose(&self, here: KernelId, candidates: &[Candidate<'_>]) -> KernelId {
        least_loaded(here, candidates).unwrap_or(here)
    }

    fn relieve(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
        let stay = candidates.iter().find(|candidate| candidate.kernel == here)?.with_one_more();
        let best = candidates.iter().min_by_key(|candidate| (candidate.with_one_more(), candidate.distance(here)))?;
        // There it must be better than it is here, not only different.
        (best.with_one_more() < stay).then_some(best.kernel)
    }
}

impl Placement for Pack {
    fn choose(&self, here: KernelId, candidates: &[Candidate<'_>]) -> KernelId {
        let free = candidates.iter().filter(|candidate| candidate.has_free_cpu());
        let nearest = free.min_by_key(|candidate| candidate.distance(here)).map(|candidate| candidate.kernel);
        nearest.or_else(|| least_loaded(here, candidates)).unwrap_or(here)
    }

    fn relieve(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
        let stay = candidates.iter().find(|candidate| candidate.kernel == here)?;
        if stay.has_free_cpu() {
            return None;
        }
        let free = candidates.iter().filter(|candidate| candidate.has_free_cpu());
        let nearest = free.min_by_key(|candidate| candidate.distance(here)).map(|candidate| candidate.kernel);
        nearest.or_else(|| Spread.relieve(here, candidates))
    }

    fn packs(&self) -> bool {
        true
    }

    /// The fullest that has a free CPU and is fuller than `here`; of equals the first. So each move makes one kernel fuller and another emptier, or
    /// the same farther to the front.
    fn pack(&self, here: KernelId, candidates: &[Candidate<'_>]) -> Option<KernelId> {
        let rank = |candidate: &Candidate<'_>| (candidate.load, Reverse(candidate.kernel));
        let stay = candidates.iter().find(|candidate| candidate.kernel == here).map(rank)?;
        let fuller = candidates.iter().filter(|candidate| candidate.has_free_cpu() && rank(candidate) > stay);
        fuller.max_by_key(|candidate| rank(candidate)).map(|candidate| candidate.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CPUS: [CpuId; 4] = [CpuId(0), CpuId(1), CpuId(2), CpuId(3)];

    fn candidates(loads: &[usize], cpus: usize) -> Vec<Candidate<'static>> {
        let each = loads.iter().enumerate();
        let candidate = |(index, &load)| {
            let kernel = KernelId(index as u16);
            Candidate { kernel, cpus: &CPUS[..cpus], load, distance: 20 }
        };
        each.map(candidate).collect()
    }

    #[test]
    fn of_equals_the_kernel_on_the_nearest_node_is_taken() {
        let mut all = candidates(&[1, 0, 0, 0], 1);
        for (candidate, distance) in all.iter_mut().zip([10, 31, 21, 21]) {
            candidate.distance = distance;
        }
        assert_eq!(Spread.choose(KernelId(0), &all), KernelId(2));
        assert_eq!(Pack.choose(KernelId(0), &all), KernelId(2));
        all[1].load = 0;
        (all[2].load, all[3].load) = (1, 1);
        assert_eq!(Spread.choose(KernelId(0), &all), KernelId(1), "a CPU far away is better than none");
    }

    #[test]
    fn spreading_takes_the_least_loaded_kernel_and_the_nearest_of_equals() {
        assert_eq!(Spread.choose(KernelId(1), &candidates(&[0, 0, 0], 1)), KernelId(1));
        assert_eq!(Spread.choose(KernelId(0), &candidates(&[1, 1, 0], 1)), KernelId(2));
        assert_eq!(Spread.choose(KernelId(0), &candidates(&[1, 0, 0], 1)), KernelId(1));
        // Affinity has left only this one.
        assert_eq!(Spread.choose(KernelId(0), &candidates(&[9], 1)), KernelId(0));
    }

    #[test]
    fn packing_fills_a_kernel_before_it_takes_the_next() {
        assert_eq!(Pack.choose(KernelId(0), &candidates(&[3, 0, 0], 4)), KernelId(0));
        assert_eq!(Pack.choose(KernelId(0), &candidates(&[4, 1, 0], 4)), KernelId(1));
        assert_eq!(Pack.choose(KernelId(1), &candidates(&[4, 4, 4], 4)), KernelId(1));
        assert_eq!(Pack.choose(KernelId(0), &candidates(&[6, 5, 4], 4)), KernelId(2));
    }

    #[test]
    fn a_thread_that_waits_goes_only_where_it_is_better_off() {
        // The load of `here` is without the thread itself: it would leave one, and make one.
        assert_eq!(Spread.relieve(KernelId(0), &candidates(&[1, 1], 1)), None);
        assert_eq!(Spread.relieve(KernelId(0), &candidates(&[1, 0], 1)), Some(KernelId(1)));
        assert_eq!(Pack.relieve(KernelId(0), &candidates(&[2, 0], 4)), None);
        assert_eq!(Pack.relieve(KernelId(0), &candidates(&[4, 3, 0], 4)), Some(KernelId(1)));
    }

    fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        }
    }

    fn assert_even(loads: &[usize], cpus: usize) {
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        assert!(*most <= cpus || most - least <= 1, "{loads:?} on {cpus} CPUs each is not even");
    }

    /// From any start, with any kernel asking at any time, moves come to an end, and then the load is even.
    #[test]
    fn settles() {
        let mut random = numbers(1);
        for round in 0..2000 {
            let kernels = 2 + random(7);
            let cpus = 1 + random(4);
            let mut loads: Vec<usize> = (0..kernels).map(|_| random(12)).collect();
            let policy: &dyn Placement = if round % 2 == 0 { &Spread } else { &Pack };
            let total: usize = loads.iter().sum();
            let mut moves = 0;
            let mut quiet = 0;
            while quiet < 50 * kernels {
                let here = random(kernels);
                quiet += 1;
                if loads[here] <= cpus {
                    continue; // Nobody waits there.
                }
                loads[here] -= 1;
                let to = policy.relieve(KernelId(here as u16), &candidates(&loads, cpus));
                loads[to.map_or(here, |to| to.index())] += 1;
                if to.is_some_and(|to| to.index() != here) {
                    (moves, quiet) = (moves + 1, 0);
                    assert!(moves <= total, "{loads:?} on {cpus} CPUs each never settles");
                }
            }
            assert_even(&loads, cpus);
        }
    }

    /// Packing, from any start and with any kernel asking at any time, comes to an end, and then no kernel could be emptied into another.
    #[test]
    fn packing_settles() {
        let mut random = numbers(5);
        for _ in 0..2000 {
            let (kernels, cpus) = (2 + random(7), 1 + random(4));
            let mut loads: Vec<usize> = (0..kernels).map(|_| random(cpus + 1)).collect();
            let (start, mut moves, mut quiet) = (loads.clone(), 0, 0);
            while quiet < 50 * kernels {
                let here = random(kernels);
                quiet += 1;
                if loads[here] == 0 {
                    continue;
                }
                loads[here] -= 1;
                let to = Pack.pack(KernelId(here as u16), &candidates(&loads, cpus));
                loads[to.map_or(here, |to| to.index())] += 1;
                if to.is_some() {
                    (moves, quiet) = (moves + 1, 0);
                    assert!(moves <= 100 * kernels, "{start:?} on {cpus} CPUs each never settles");
                }
            }
            let partly = loads.iter().filter(|&&load| load > 0 && load < cpus).count();
            assert!(partly <= 1, "{start:?} on {cpus} CPUs each became {loads:?}");
            assert!(loads.iter().all(|&load| load <= cpus), "{start:?} on {cpus} CPUs each became {loads:?}");
        }
        assert_eq!(Spread.pack(KernelId(1), &candidates(&[1, 0], 2)), None);
        assert_eq!(Pack.pack(KernelId(1), &candidates(&[1, 0], 2)), Some(KernelId(0)));
    }

    /// Threads of several worths: moves come to an end, too, and then no ordinary thread waits for another one while somewhere there
    /// is a CPU that it would have for itself.
    #[test]
    fn settles_with_priorities() {
        let mut random = numbers(3);
        let unit = sched::UNIT as usize;
        let rounded = |worth: usize| (worth + unit / 2) / unit;
        for _ in 0..2000 {
            let kernels = 2 + random(7);
            let mut threads: Vec<(usize, usize)> =
                (0..random(20)).map(|_| (random(kernels), [3, 15, 335, 820, 1024, 1024][random(6)])).collect();
            let (mut moves, mut quiet) = (0, 0);
            while quiet < 50 * (threads.len() + 1) && !threads.is_empty() {
                let who = random(threads.len());
                let (here, worth) = threads[who];
                quiet += 1;
                let loads: Vec<usize> = (0..kernels)
                    .map(|kernel| threads.iter().filter(|(at, _)| *at == kernel).map(|(_, worth)| worth).sum())
                    .enumerate()
                    .map(|(kernel, load): (usize, usize)| rounded(if kernel == here { load - worth } else { load }))
                    .collect();
                let to = Spread.relieve(KernelId(here as u16), &candidates(&loads, 1));
                if let Some(to) = to.filter(|to| to.index() != here) {
                    threads[who].0 = to.index();
                    (moves, quiet) = (moves + 1, 0);
                    assert!(moves <= 100 * kernels, "{threads:?} never settles");
                }
            }
            let ordinary = |kernel: usize| threads.iter().filter(|(at, worth)| *at == kernel && *worth == unit).count();
            let load = |kernel: usize| -> usize {
                threads.iter().filter(|(at, _)| *at == kernel).map(|(_, worth)| worth).sum()
            };
            let free = (0..kernels).any(|kernel| load(kernel) < unit / 2);
            assert!(!free || (0..kernels).all(|kernel| ordinary(kernel) <= 1), "{threads:?}");
        }
    }

    /// The same where everybody who is crowded decides in the same moment, by loads that are already old: too many may go to
    /// one idle kernel, but they do not go on so.
    #[test]
    fn settles_when_all_decide_at_once() {
        let mut random = numbers(7);
        for round in 0..2000 {
            let (kernels, cpus) = (2 + random(15), 1 + random(4));
            let mut loads: Vec<usize> = (0..kernels).map(|_| random(12)).collect();
            let start = loads.clone();
            let policy: &dyn Placement = if round % 2 == 0 { &Spread } else { &Pack };
            let mut looks = 0;
            loop {
                let seen = loads.clone();
                let mut moved = false;
                for here in (0..kernels).filter(|&here| seen[here] > cpus) {
                    let mut view = seen.clone();
                    view[here] -= 1;
                    let to = policy.relieve(KernelId(here as u16), &candidates(&view, cpus));
                    if let Some(to) = to.filter(|to| to.index() != here) {
                        loads[here] -= 1;
                        loads[to.index()] += 1;
                        moved = true;
                    }
                }
                if !moved {
                    break;
                }
                looks += 1;
                assert!(looks < 12 * kernels, "{start:?} on {cpus} CPUs each is still {loads:?}");
            }
            assert_even(&loads, cpus);
        }
    }
}
