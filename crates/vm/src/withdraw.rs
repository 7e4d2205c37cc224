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

/// Rows of frames that are released at a time where nobody else has them. A list of all might be larger than the largest piece of
/// memory there is (4 MiB), or than all that is left: programs end because they have used it up.
pub(crate) const BATCH: usize = 2048;

/// Frames that follow each other: the first one, and how many.
pub(crate) type Row = (Frame, u64);

/// Backwards: what is released last is given out first, so whoever touches pages in order next has rows of frames again.
pub(crate) fn release(memory: &dyn Memory, rows: impl DoubleEndedIterator<Item = Row>) {
    rows.rev().flat_map(|(first, count)| first.row(count).rev()).for_each(|frame| memory.release(frame));
}

/// Rows in pieces of 4 KiB, for the same reason. They are not released when it is dropped: others may still use them, until all that
/// were asked have answered.
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

/// What has to be taken back, and which frames are free afterwards.
pub(crate) struct Withdrawal {
    pub sharers: KernelSet,
    pub ranges: Ranges,
    pub frames: Frames,
    /// Faults here wait until all is taken back: else one thread could find the page gone and then, on a
    /// kernel that has not been asked yet, find it there.
    pub busy: Vec<PageRange>,
    /// What sharers may go on doing.
    pub keep: Access,
}

impl Withdrawal {
    /// Sharers lose the pages.
    pub fn new() -> Self {
        Self::keeping(Access::empty())
    }

    /// Sharers may keep the pages, for `keep` at most.
    pub fn keeping(keep: Access) -> Self {
        Withdrawal {
            sharers: KernelSet::new(),
            ranges: Ranges::default(),
            frames: Frames::default(),
            busy: Vec::new(),
            keep,
        }
    }

    /// The pages of `range` must be taken back from whoever has them.
    pub fn unexport(&mut self, state: &mut State, range: PageRange) {
        self.narrow(state, range);
        state.exports.remove(range);
    }

    /// Keeps faults in `range` waiting, if anyone has to give back anything.
    pub fn hold(&mut self, state: &mut State, range: PageRange) {
        if !self.sharers.is_empty() {
            state.busy.push(range);
            self.busy.push(range);
        }
    }

    /// The pages of `range` must be narrowed at whoever has them.
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
    /// Takes the pages of `range` out of the table of their owner, which is this kernel. Sharers go to `withdrawal`, with the
    /// frames that they have; the others are released, unless they are `moved`: in the table elsewhere already.
    pub(crate) fn take_pages(&self, state: &mut State, range: PageRange, withdrawal: &mut Withdrawal, moved: bool) {
        self.take_some(state, range, withdrawal, |_| true, moved)
    }

    /// ...those of which `which` says so.
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

    /// Does what `withdrawal` says. Afterwards nobody has the pages and the frames are released.
    pub(crate) fn settle(
        self: &Arc<Self>,
        operating: &Operating,
        withdrawal: Withdrawal,
    ) -> impl Future<Output = ()> + Send + use<> {
        self.settle_then(Some(operating), withdrawal, |_| ())
    }

    /// ...and then runs `then`. Other changes are kept out until then, even if the caller stops waiting.
    /// Begins when it is called, and is no `async fn`: with no sharers there is nothing to wait for, and no room for it.
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
            // A kernel that died uses nothing any more; so every kind of answer will do.
            space.vm.endpoint.multicast(&sharers, message).await;
            frames.release(&*space.vm.memory);
            space.vm.send_frames_home(crate::vm::FRAMES_BATCH);
            busy.into_iter().for_each(|range| space.not_busy(range));
            let result = then(&space);
            drop(operating);
            result
        })
    }

    /// Runs `work` to its end even if the caller stops waiting.
    pub(crate) fn detached<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = T> + Send + use<T, W> {
        to_completion(&*self.vm.spawner, work)
    }

    /// Another kernel, owner of `ranges`, takes them back. On return no CPU here can use more than `keep`.
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
