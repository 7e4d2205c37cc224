//! The two kernels that Roca Nonell 2017 (3.2.1, 3.2.2) built before user-monitored threads, as small models, and why he dropped them. Nothing here runs threads: a test
//! walks through all orders in which things can happen.
//!
//! - KSM: the kernel has as many tokens as CPUs. Who blocks gives its token back, who wakes up needs one.
//! - KAM: the kernel tells, and holds back a worker that wakes up until the runtime lets it go.

use std::collections::{BTreeSet, VecDeque};

/// KSM.
mod tokens {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Worker {
        /// It has a token.
        Runs,
        Blocked,
        /// It was woken, and waits for a token.
        Parked,
    }

    /// One pool, or one for each CPU.
    struct Kernel {
        /// Free tokens of each pool, and who waits for one, the first first.
        free: Vec<usize>,
        parked: Vec<VecDeque<usize>>,
        workers: Vec<(usize, Worker)>,
        /// Who is woken is dispatched, and looks for a token itself; else the wake-up looks, and nobody is dispatched for nothing (the form of 5.1).
        looks_itself: bool,
        wasted: usize,
    }

    impl Kernel {
        /// `workers`: the pool of each.
        fn new(tokens: &[usize], workers: &[usize], looks_itself: bool) -> Kernel {
            let mut kernel = Kernel {
                free: tokens.to_vec(),
                parked: tokens.iter().map(|_| VecDeque::new()).collect(),
                workers: workers.iter().map(|pool| (*pool, Worker::Blocked)).collect(),
                looks_itself,
                wasted: 0,
            };
            (0..workers.len()).for_each(|worker| kernel.wake(worker));
            kernel
        }

        fn wake(&mut self, worker: usize) {
            let (pool, state) = &mut self.workers[worker];
            if *state != Worker::Blocked {
                return;
            }
            if self.free[*pool] > 0 {
                self.free[*pool] -= 1;
                *state = Worker::Runs;
            } else {
                self.wasted += usize::from(self.looks_itself);
                *state = Worker::Parked;
                self.parked[*pool].push_back(worker);
            }
        }

        fn block(&mut self, worker: usize) {
            let (pool, state) = &mut self.workers[worker];
            if *state != Worker::Runs {
                return;
            }
            *state = Worker::Blocked;
            let pool = *pool;
            // The token goes straight to who waits for it.
            match self.parked[pool].pop_front() {
                Some(next) => self.workers[next].1 = Worker::Runs,
                None => self.free[pool] += 1,
            }
        }

        fn running(&self, pool: usize) -> usize {
            self.workers.iter().filter(|(of, state)| *of == pool && *state == Worker::Runs).count()
        }

        fn parked(&self, pool: usize) -> usize {
            self.parked[pool].len()
        }
    }

    fn random(seed: &mut u64, below: usize) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    }

    #[test]
    fn no_more_run_than_there_are_tokens_and_no_token_lies_while_one_waits() {
        let floating: (&[usize], [usize; 8]) = (&[3], [0; 8]);
        let pinned: (&[usize], [usize; 8]) = (&[1, 1, 1], [0, 0, 0, 1, 1, 1, 2, 2]);
        for (tokens, workers) in [floating, pinned] {
            for looks_itself in [false, true] {
                let (mut kernel, mut seed) = (Kernel::new(tokens, &workers, looks_itself), 1);
                for _ in 0..5000 {
                    let worker = random(&mut seed, workers.len());
                    if random(&mut seed, 2) == 0 {
                        kernel.block(worker)
                    } else {
                        kernel.wake(worker)
                    }
                    for (pool, tokens) in tokens.iter().enumerate() {
                        assert_eq!(kernel.running(pool) + kernel.free[pool], *tokens);
                        assert!(kernel.free[pool] == 0 || kernel.parked(pool) == 0);
                    }
                }
                assert_eq!(kernel.wasted > 0, looks_itself);
            }
        }
    }

    /// A pool of its own keeps a CPU's workers there, and that CPU idles while another has two that could go on.
    #[test]
    fn pinned_pools_leave_a_cpu_idle_where_a_floating_one_does_not() {
        let mut pinned = Kernel::new(&[1, 1], &[0, 0, 1], false);
        pinned.block(2);
        assert_eq!((pinned.free[1], pinned.parked(0)), (1, 1));
        let mut floating = Kernel::new(&[2], &[0, 0, 0], false);
        floating.block(0);
        assert_eq!((floating.free[0], floating.parked(0)), (0, 0));
    }

    /// The flaw: an idle worker, which sleeps because there is no task, is to the kernel one that waits in a task. Its token wakes the next idle one, and so on.
    #[test]
    fn idle_workers_wake_each_other_for_ever() {
        let mut kernel = Kernel::new(&[1], &[0, 0, 0], false);
        let mut looked_for_a_task = [0; 3];
        for _ in 0..30 {
            let runs = kernel.workers.iter().position(|(_, state)| *state == Worker::Runs).unwrap();
            looked_for_a_task[runs] += 1;
            // There is none: it waits for one, on a lock of the pool that the runtime's next look releases.
            kernel.block(runs);
            kernel.wake(runs);
        }
        assert_eq!(looked_for_a_task, [10; 3]);
    }
}

/// KAM. A worker takes a lock, waits, gives the lock back; the leader, which alone can let it go, needs the same lock once before it does.
mod holding {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Hold {
        /// As soon as it wakes up, wherever it is in the kernel.
        AtUnblock,
        /// On its way to user mode.
        AtReturnToUser,
        /// Not while it has locks of the kernel (the thesis took LOCKDEP's count).
        UnlessItHasLocks,
        /// User-monitored threads: nobody is held.
        Never,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lock {
        /// Taken in the fault or system call, and given back there: that of the address space.
        Kernels,
        /// Taken before the system call, and given back after it: malloc's.
        Users,
    }

    /// Where the worker is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Worker {
        Begins,
        HasLock,
        Waits,
        Woken,
        /// Still in the kernel, after the lock of the kernel.
        Leaves,
        User,
        Done,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Leader {
        Sleeps,
        Heard,
        HasLock,
        Allocated,
        Done,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct State {
        worker: Worker,
        leader: Leader,
        /// The kernel does not let the worker go on.
        held: bool,
        told: bool,
        released: bool,
    }

    impl State {
        fn worker_has_lock(self, lock: Lock) -> bool {
            let until = if lock == Lock::Kernels { Worker::Woken } else { Worker::User };
            self.worker >= Worker::HasLock && self.worker <= until
        }

        fn next(self, lock: Lock, hold: Hold) -> Vec<State> {
            let mut next = Vec::new();
            let holds = |at: Hold| hold == at && !self.released;
            let worker = |worker, held, told| State { worker, held, told, ..self };
            if !self.held || self.released {
                next.extend(match self.worker {
                    Worker::Begins if self.leader != Leader::HasLock => Some(worker(Worker::HasLock, false, self.told)),
                    Worker::HasLock => Some(worker(Worker::Waits, false, self.told)),
                    // It is told, and maybe held.
                    Worker::Waits => {
                        let locked = hold == Hold::UnlessItHasLocks && lock == Lock::Kernels;
                        let held = holds(Hold::AtUnblock) || holds(Hold::UnlessItHasLocks) && !locked;
                        Some(worker(Worker::Woken, held, true))
                    }
                    Worker::Woken => Some(worker(Worker::Leaves, holds(Hold::AtReturnToUser), self.told)),
                    Worker::Leaves => Some(worker(Worker::User, false, self.told)),
                    Worker::User => Some(worker(Worker::Done, false, self.told)),
                    _ => None,
                });
            }
            let leader = |leader| State { leader, ..self };
            next.extend(match self.leader {
                Leader::Sleeps if self.told => Some(leader(Leader::Heard)),
                Leader::Heard if !self.worker_has_lock(lock) => Some(leader(Leader::HasLock)),
                Leader::HasLock => Some(leader(Leader::Allocated)),
                Leader::Allocated => Some(State { released: true, ..leader(Leader::Done) }),
                _ => None,
            });
            next
        }
    }

    /// Whether some order of events ends where nobody can go on.
    fn deadlocks(lock: Lock, hold: Hold) -> bool {
        let begin = State { worker: Worker::Begins, leader: Leader::Sleeps, held: false, told: false, released: false };
        let (mut seen, mut left) = (BTreeSet::from([begin]), vec![begin]);
        let mut stuck = false;
        while let Some(state) = left.pop() {
            let next = state.next(lock, hold);
            stuck |= next.is_empty() && (state.worker, state.leader) != (Worker::Done, Leader::Done);
            left.extend(next.into_iter().filter(|state| seen.insert(*state)));
        }
        stuck
    }

    #[test]
    fn who_is_held_with_a_lock_stops_who_could_let_it_go() {
        let of = |hold| [Lock::Kernels, Lock::Users].map(|lock| deadlocks(lock, hold));
        assert_eq!(of(Hold::AtUnblock), [true, true]);
        // Both remedies save the kernel's locks, and none the user's: that is why KAM was dropped, as Scheduler Activations before.
        assert_eq!(of(Hold::AtReturnToUser), [false, true]);
        assert_eq!(of(Hold::UnlessItHasLocks), [false, true]);
        assert_eq!(of(Hold::Never), [false, false]);
    }
}
