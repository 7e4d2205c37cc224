//! Taking pages back from the kernels that have them, and only then reusing their frames.
//!
//! Problem: a frame may not be reused, and munmap or mprotect may not return, while a CPU anywhere can still
//! use an old translation. Idea: the owner changes its own state first, under its lock, so that nobody gets
//! the page any more; then it asks exactly the kernels in the export table to drop it, and only when all have
//! answered are the frames released and the caller told.
//!
//! The caller's future may be dropped at any time (its thread was killed). The second half must happen anyway,
//! or frames are lost or, worse, reused too early: so it is a task of the kernel, and the caller only waits
//! for it. With no sharers there is no second half and no task.

use crate::space::{Operating, Ranges, Space, State};
use alloc::{sync::Arc, vec::Vec};
use core::future::Future;
use machine::{to_completion, Access, Frame, KernelSet, Mapping, Memory, PageRange, Soft, Step};
use messages::vm::Revoke;

/// How many rows of frames are collected before they are released. One list of all rows of a program could be larger than the
/// largest allocation (4 MiB), or than the memory that is left.
pub(crate) const BATCH: usize = 2048;

/// Frames that follow each other: the first one, and how many.
pub(crate) type Row = (Frame, u64);

/// Releases the frames, the last one first. The allocator gives out first what was released last, so the next program that touches
/// pages in order gets frames in order.
pub(crate) fn release(memory: &dyn Memory, rows: impl DoubleEndedIterator<Item = Row>) {
    rows.rev().flat_map(|(first, count)| first.row(count).rev()).for_each(|frame| memory.release(frame));
}

/// Frames to be released when all sharers have answered. Dropping the list releases nothing, since sharers may still use them.
/// It is kept in pieces of 4 KiB, because one large allocation might fail (see [`BATCH`]).
#[derive(Default)]
pub(crate) struct Frames(Vec<Vec<Row>>);

impl Frames {
    const PIECE: usize = 256;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, first: Frame, count: u64) {
        match self.0.last_mut() {
            Some(last) if last.len() < Self::PIECE => last.push((first, count)),
            _ => self.0.push(Vec::from([(first, count)])),
        }
    }

    pub fn release(self, memory: &dyn Memory) {
        release(memory, self.0.into_iter().flatten());
    }
}

/// What has to be taken back from which kernels, and which frames are released afterwards.
pub(crate) struct Withdrawal {
    pub sharers: KernelSet,
    pub ranges: Ranges,
    pub frames: Frames,
    /// Faults in these ranges wait until all pages are taken back. Otherwise one thread could find a page gone while another, on a
    /// kernel that has not been asked yet, still finds it.
    pub busy: Vec<PageRange>,
    /// The access that sharers keep.
    pub keep: Access,
}

impl Withdrawal {
    /// Sharers are to unmap the pages.
    pub fn new() -> Self {
        Self::keeping(Access::empty())
    }

    /// Sharers are to narrow their access to `keep`.
    pub fn keeping(keep: Access) -> Self {
        Withdrawal {
            sharers: KernelSet::new(),
            ranges: Ranges::default(),
            frames: Frames::default(),
            busy: Vec::new(),
            keep,
        }
    }

    /// Adds the exported pages of `range`, and takes them out of the export table.
    pub fn unexport(&mut self, state: &mut State, range: PageRange) {
        self.narrow(state, range);
        state.exports.remove(range);
    }

    /// Makes faults in `range` wait until the withdrawal is settled, if there are sharers.
    pub fn hold(&mut self, state: &mut State, range: PageRange) {
        if !self.sharers.is_empty() {
            state.busy.push(range);
            self.busy.push(range);
        }
    }

    /// Adds the exported pages of `range`, which stay in the export table.
    pub fn narrow(&mut self, state: &State, range: PageRange) {
        for (range, sharers) in state.exports.inside(range) {
            for kernel in sharers.iter() {
                self.sharers.insert(kernel);
            }
            self.ranges.add(range);
        }
    }
}

impl Space {
    /// Unmaps the pages of `range` that this kernel owns. Frames that nobody else has are released at once; those of exported pages
    /// go to `withdrawal`, with their sharers. With `moved` no frame is released, since the table has them at another address.
    pub(crate) fn take_pages(&self, state: &mut State, range: PageRange, withdrawal: &mut Withdrawal, moved: bool) {
        self.take_some(state, range, withdrawal, |_| true, moved)
    }

    /// The same for those pages that `which` accepts.
    pub(crate) fn take_some(
        &self,
        state: &mut State,
        range: PageRange,
        withdrawal: &mut Withdrawal,
        which: impl Fn(Soft) -> bool,
        moved: bool,
    ) {
        let mut own: Vec<Row> = Vec::new();
        let mut shared = Ranges::default();
        let mut next = Some(range.start);
        while let Some(start) = next.take() {
            let mut taken = false;
            self.table.walk_runs(PageRange::new(start, range.end), u64::MAX, &mut |pages, mapping| {
                if mapping.soft.contains(Soft::BORROWED) || !which(mapping.soft) {
                    return Step::Keep;
                }
                if own.len() == BATCH {
                    next = Some(pages.start);
                    return Step::Stop;
                }
                taken = true;
                let exported = mapping.soft.contains(Soft::EXPORTED);
                if exported {
                    shared.add(pages);
                }
                match (moved, exported) {
                    (true, _) => {}
                    (false, true) => withdrawal.frames.push(mapping.frame, pages.len()),
                    (false, false) => own.push((mapping.frame, pages.len())),
                }
                Step::Remove
            });
            if taken {
                self.table.flush(PageRange::new(start, next.unwrap_or(range.end)));
            }
            release(&*self.vm.memory, own.drain(..));
        }
        shared.iter().for_each(|range| withdrawal.unexport(state, range));
        withdrawal.hold(state, range);
    }

    /// Carries out `withdrawal`. When the future completes no kernel has the pages and the frames are released.
    pub(crate) fn settle(
        self: &Arc<Self>,
        operating: &Operating,
        withdrawal: Withdrawal,
    ) -> impl Future<Output = ()> + Send + use<> {
        self.settle_then(Some(operating), withdrawal, |_| ())
    }

    /// The same, and then runs `then`. No other change begins until then, even if the caller stops waiting.
    ///
    /// The work begins with the call, not with the first poll. Without sharers it is done when the call returns.
    pub(crate) fn settle_then<T: Send + 'static, F: FnOnce(&Arc<Space>) -> T + Send + 'static>(
        self: &Arc<Self>,
        operating: Option<&Operating>,
        withdrawal: Withdrawal,
        then: F,
    ) -> impl Future<Output = T> + Send + use<T, F> {
        let settled = match withdrawal.sharers.is_empty() {
            true => {
                withdrawal.frames.release(&*self.vm.memory);
                Ok(then(self))
            }
            false => Err(self.withdraw(operating.cloned(), withdrawal, then)),
        };
        async move {
            match settled {
                Ok(done) => done,
                Err(settling) => settling.await,
            }
        }
    }

    fn withdraw<T: Send + 'static, F: FnOnce(&Arc<Space>) -> T + Send + 'static>(
        self: &Arc<Self>,
        operating: Option<Operating>,
        withdrawal: Withdrawal,
        then: F,
    ) -> impl Future<Output = T> + Send + use<T, F> {
        let Withdrawal { sharers, ranges, frames, busy, keep } = withdrawal;
        let space = self.clone();
        let message = Revoke { space: self.id, ranges: ranges.into_vec(), keep };
        self.detached(async move {
            // An error means that the kernel died, which is as good as an answer: it uses nothing any more.
            space.vm.endpoint.multicast(&sharers, message).await;
            frames.release(&*space.vm.memory);
            space.vm.send_frames_home(crate::vm::FRAMES_BATCH);
            busy.into_iter().for_each(|range| space.not_busy(range));
            let result = then(&space);
            drop(operating);
            result
        })
    }

    /// Runs `work` as a task of the kernel, to its end even if the caller stops waiting.
    pub(crate) fn detached<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = T> + Send + use<T, W> {
        to_completion(&*self.vm.spawner, work)
    }

    /// Answers [`Revoke`] of the owner of `ranges`: narrows this kernel's mappings to `keep`. On return no CPU here can use more.
    pub(crate) fn give_back(&self, ranges: &[PageRange], keep: Access) {
        let mut state = self.state.lock();
        state.poison(ranges);
        for range in ranges {
            let mut changed = false;
            self.table.walk_runs(*range, u64::MAX, &mut |_, mapping| {
                let access = mapping.access & keep;
                if !mapping.soft.contains(Soft::BORROWED) || access == mapping.access {
                    return Step::Keep;
                }
                changed = true;
                match access.is_empty() {
                    true => Step::Remove,
                    false => Step::Replace(Mapping { access, ..mapping }),
                }
            });
            if changed {
                self.table.flush(*range);
            }
        }
    }
}
