//! Which CPU may use which table right now, and how a narrowing of a table reaches them.
//!
//! # The problem
//!
//! After the kernel has taken a page out of a table, CPUs may go on using the translation they have
//! cached. The page's frame may be reused only when none of them can. The usual answer, interrupt all
//! CPUs that ever ran the table and wait, costs an interrupt each, also for CPUs that have long been
//! doing something else; and it deadlocks when the CPU that waits holds a lock that an interrupted CPU
//! spins on with interrupts off, as this kernel always does.
//!
//! # The idea
//!
//! A CPU *uses* a table only during a **stay**: in user mode, or inside a copy from or to user
//! memory. In the kernel it may have the table loaded, but touches no user address.
//!
//! - Each table has a **generation**, bumped by every flush, and a short **log** of what was flushed.
//! - Each CPU publishes the table of its current stay (`using`), counts the stays it has ended
//!   (`stays`; both in `presence.rs`), and keeps to itself up to which generation it has caught up with the loaded table.
//! - Entering a stay: publish, then compare generations, and forget what was missed: page by page if
//!   the log still tells, everything otherwise.
//! - A flush bumps the generation, then looks at `using` of the CPUs that ever loaded the table. One
//!   that doesn't use it will catch up before it does. One that does is interrupted (if in user mode; a
//!   copy is short and ends by itself), and the flush waits until that stay has ended. Its own CPU is in
//!   the kernel, in no stay, and catches up like all others: several flushes in a row cost one.
//!
//! So memory that only one CPU uses is unmapped without an interrupt and without a look at another
//! CPU's lines.
//!
//! # The dangerous interleaving
//!
//! ```text
//!   CPU U enters a stay                      CPU F flushes
//!                                            0  take the page out of the table
//!   1  using = table                         a  generation += 1
//!   2  read generation, catch up             b  read using of U
//!   3  user code runs
//! ```
//!
//! If U's store 1 could sit in its store buffer while 2 is done, both sides could read the old value: U
//! sees no new generation, F sees no user, and U runs with the stale translation of a reused frame. So
//! both sides are store, full barrier, load: at least one of 2 and b sees the other's store. If 2 sees the bump, it also sees 0, and so do U's page walks from then on.
//!
//! F waits for the *end of a stay*, not for `using` to change alone: U may leave and enter again
//! between two looks of F, and the new stay, which is no danger, could last for ever.
//! `stays` is read before `using`: if b then sees the table, the stay it belongs to hasn't been counted,
//! and once the count moves, that stay is over, and any later one began after a, so its 2 sees the bump.
//!
//! # Why the wait ends
//!
//! The waiting CPU may hold any lock of the kernel. A CPU in user mode takes the interrupt and ends its
//! stay before it does anything else; a CPU in a copy takes at most a page fault, which ends the copy
//! rather than being resolved inside. A CPU entering takes no lock it would spin on either: if the log
//! is busy, it forgets everything instead. Two CPUs that flush wait for each other never, since neither is in
//! a stay.
//!
//! # Tables that die
//!
//! A CPU keeps the table it has loaded alive by a reference, however stale: its register points there until
//! it loads another one. [`Cpus::idle`] lets a CPU with nothing to do give up one that nobody will enter
//! any more. A CPU that has halted before that is so is woken to look once more ([`Cpus::abandon`]).

use super::{
    hardware::Hardware,
    presence::{Generation, ObservedStay, Presence, NOTHING},
    tree::Tree,
};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use machine::{sync::Lock, Page, PageRange};

/// Flushes that a table remembers.
const LOG: usize = 16;
/// Pages up to which forgetting one by one is cheaper than forgetting (and finding again) all.
const FEW_PAGES: u64 = 32;
/// CPUs interrupted at a time.
const BATCH: usize = 16;

/// Beside the table's id (which leaves the bit free) in what is published: the stay is a copy.
const COPY: u64 = 1;

/// A table as the CPUs know it.
pub struct Space {
    id: u64,
    pub tree: Tree,
    generation: Generation,
    /// What each of the last generations flushed, by generation modulo its length.
    log: Lock<[PageRange; LOG]>,
    /// CPUs that ever loaded it, as bits.
    loaded_on: Box<[AtomicUsize]>,
    abandoned: AtomicBool,
}

/// What a CPU tells the others, on cache lines of its own, and what it keeps to itself.
#[repr(align(128))]
struct CpuState {
    presence: Presence,
    /// Only this CPU touches what follows.
    loaded: AtomicU64,
    seen: AtomicU64,
    keeps: Lock<Option<Arc<Space>>>,
}

pub struct Cpus<H> {
    pub hardware: H,
    states: Box<[CpuState]>,
    next_id: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    User,
    Copy,
}

impl Space {
    /// What was flushed after generation `seen` up to `now`; None if that is too much or unknown.
    fn missed(&self, seen: u64, now: u64) -> Option<[PageRange; LOG]> {
        // Not lock(): see "Why the wait ends".
        let log = self.log.try_lock()?;
        // The log may have gone on past `now`; it changes under the lock only.
        if self.generation.latest() - seen > LOG as u64 {
            return None;
        }
        let mut missed = [PageRange::new(Page(0), Page(0)); LOG];
        let mut pages = 0;
        for generation in seen + 1..=now {
            let range = log[generation as usize % LOG];
            pages += range.len();
            missed[generation as usize % LOG] = range;
        }
        (pages <= FEW_PAGES).then_some(missed)
    }

    fn note_loaded(&self, cpu: usize) {
        let (word, bit) = (&self.loaded_on[cpu / usize::BITS as usize], 1 << (cpu % usize::BITS as usize));
        if word.load(Ordering::Relaxed) & bit == 0 {
            // Relaxed: the fence in `Presence::enter` comes between this and the look at the generation,
            // so a flush that misses the bit is caught up with.
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// CPUs that ever loaded it, as one flush sees them.
    fn loaded_on(&self) -> impl Iterator<Item = usize> + '_ {
        self.loaded_on.iter().enumerate().flat_map(|(index, word)| {
            // Relaxed: the fence in `Generation::bump` came before.
            let mut bits = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < usize::BITS).then_some(index * usize::BITS as usize + bit as usize)
            })
        })
    }
}

impl<H: Hardware> Cpus<H> {
    pub fn new(hardware: H) -> Self {
        let state = |_| CpuState {
            presence: Presence::new(),
            loaded: AtomicU64::new(NOTHING),
            seen: AtomicU64::new(0),
            keeps: Lock::new(None),
        };
        let states = (0..hardware.cpus()).map(state).collect();
        Cpus { hardware, states, next_id: AtomicU64::new(2 * COPY) }
    }

    pub fn new_space(&self, tree: Tree) -> Arc<Space> {
        let words = self.states.len().div_ceil(usize::BITS as usize);
        Arc::new(Space {
            id: self.next_id.fetch_add(2 * COPY, Ordering::Relaxed),
            tree,
            generation: Generation::new(),
            log: Lock::new([PageRange::new(Page(0), Page(0)); LOG]),
            loaded_on: (0..words).map(|_| AtomicUsize::new(0)).collect(),
            abandoned: AtomicBool::new(false),
        })
    }

    /// Begins a stay of this CPU with an up-to-date view of `space`.
    pub fn enter(&self, space: &Arc<Space>, stay: Stay) {
        let cpu = self.hardware.cpu();
        let state = &self.states[cpu];
        debug_assert_eq!(state.presence.look().using, NOTHING, "a stay inside a stay");
        if state.loaded.load(Ordering::Relaxed) != space.id {
            self.load(cpu, space);
        }
        let copy = if stay == Stay::Copy { COPY } else { 0 };
        let now = state.presence.enter(space.id | copy, &space.generation);
        let seen = state.seen.load(Ordering::Relaxed);
        if seen != now {
            match space.missed(seen, now) {
                Some(ranges) => ranges
                    .iter()
                    .copied()
                    .flat_map(PageRange::pages)
                    .for_each(|page| self.hardware.invalidate_page(page)),
                None => self.hardware.invalidate_all(),
            }
            state.seen.store(now, Ordering::Relaxed);
        }
    }

    /// Ends the stay.
    pub fn leave(&self) {
        self.states[self.hardware.cpu()].presence.leave();
    }

    #[cold]
    fn load(&self, cpu: usize, space: &Arc<Space>) {
        let state = &self.states[cpu];
        space.note_loaded(cpu);
        // Read before the root is loaded: a bump in between is only caught up with twice.
        let seen = space.generation.latest();
        self.hardware.load_root(space.tree.root());
        state.seen.store(seen, Ordering::Relaxed);
        state.loaded.store(space.id, Ordering::Relaxed);
        // The old one may die here, now that the CPU has left it.
        let old = state.keeps.lock().replace(space.clone());
        drop(old);
    }

    /// This CPU has nothing to run: gives up a loaded table that nobody will enter any more.
    pub fn idle(&self) {
        let state = &self.states[self.hardware.cpu()];
        let dead = {
            let mut keeps = state.keeps.lock();
            match &*keeps {
                Some(space) if space.abandoned.load(Ordering::Acquire) => keeps.take(),
                _ => return,
            }
        };
        self.hardware.load_root(self.hardware.kernel_root());
        state.loaded.store(NOTHING, Ordering::Relaxed);
        drop(dead);
    }

    /// Nobody will enter `space` any more.
    pub fn abandon(&self, space: &Space) {
        space.abandoned.store(true, Ordering::Release);
        let me = self.hardware.cpu();
        for (cpu, state) in self.states.iter().enumerate() {
            if cpu != me && state.loaded.load(Ordering::Relaxed) == space.id {
                self.hardware.interrupt(cpu);
            }
        }
    }

    /// Returns once no CPU uses a translation of `range` that is older than the call.
    pub fn flush(&self, space: &Space, range: PageRange) {
        if range.is_empty() {
            return;
        }
        {
            let mut log = space.log.lock();
            log[(space.generation.latest() + 1) as usize % LOG] = range;
            space.generation.bump();
        }
        let me = self.hardware.cpu();
        let mut others = space.loaded_on().filter(|cpu| *cpu != me);
        loop {
            let mut batch = [(0, ObservedStay::default()); BATCH];
            let mut waiting = 0;
            // by_ref: the next batch goes on where this one ended.
            for cpu in others.by_ref() {
                let seen = self.states[cpu].presence.look();
                if seen.using & !COPY != space.id {
                    continue;
                }
                if seen.using & COPY == 0 {
                    self.hardware.interrupt(cpu);
                }
                batch[waiting] = (cpu, seen);
                waiting += 1;
                if waiting == BATCH {
                    break;
                }
            }
            for (cpu, seen) in &batch[..waiting] {
                while !self.states[*cpu].presence.has_left(*seen) {
                    self.hardware.relax();
                }
            }
            if waiting < BATCH {
                return;
            }
        }
    }
}
