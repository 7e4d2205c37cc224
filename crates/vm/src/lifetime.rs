//! The end of a replica, and of a space.
//!
//! A kernel whose last thread of a process has gone keeps what it owns: others may still use it. The space
//! ends when no kernel has a thread in it, which the process service at home knows. Then first every replica
//! drops what it borrowed, and only when all have are frames released: they may be anybody's.

use crate::space::Space;
use crate::withdraw::{release, Row};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, Page, PageRange, Soft, Step};
use messages::vm::{Destroy, Detach, ListSlices};

impl Space {
    /// The space ends: drops all borrowed pages, and borrows none from now on. No thread of the process runs here any more, but questions
    /// for pages may still come: those that a thread touches first are fetched before it arrives, and it may have ended since.
    pub(crate) fn leave(&self) {
        self.state.lock().gone = true;
        self.give_back(&[PageRange::user()], machine::Access::empty());
    }

    /// Drops the borrowed pages that `choose` says, as a kernel may at any time: the next touch asks the owner again. Until then
    /// the owner believes that they are here, which costs a revocation at most.
    pub fn forget_borrowed(&self, mut choose: impl FnMut(Page) -> bool) {
        let _state = self.state.lock();
        let mut changed = None;
        self.table.walk(PageRange::user(), &mut |page, mapping| {
            if !mapping.soft.contains(Soft::BORROWED) || !choose(page) {
                return Step::Keep;
            }
            let (first, _) = changed.unwrap_or((page, page));
            changed = Some((first, page));
            Step::Remove
        });
        if let Some((first, last)) = changed {
            self.table.flush(PageRange::new(first, last.add(1)));
        }
    }

    /// At home: counts `kernel` as a member, since a replica is about to be made there.
    pub fn expect(&self, kernel: KernelId) {
        if self.is_home() {
            self.join(kernel);
        }
    }

    /// The home counts this replica from now on, so that it hears of the end of the space though it may never touch a page;
    /// and the slice table comes back. Fails if the space is gone, and then the replica is, too.
    pub async fn join_home(&self) -> Result<()> {
        if self.is_home() {
            return Ok(());
        }
        let table = self.vm.endpoint.call(self.id.home, ListSlices { space: self.id }).await.map_err(Errno::from)?;
        match table {
            Ok(slices) => {
                self.learn(&slices);
                Ok(())
            }
            Err(error) => {
                self.drop_everything();
                Err(error)
            }
        }
    }

    /// At home: counts the replica that `kernel` has. False: the space is ending, and nobody will tell that replica.
    pub(crate) fn admit(&self, kernel: KernelId) -> bool {
        let mut state = self.state.lock();
        let admitted = !state.gone;
        if admitted && kernel != self.me() {
            state.members.insert(kernel);
        }
        admitted
    }

    /// Ends the space everywhere. Called at home, when no thread is left on any kernel. A thread may still be on its way to one
    /// that has not met the space; its first faults may be here before it is (`touch` in crate `process`).
    pub async fn destroy(self: &Arc<Self>) {
        if self.vm.audits.load(core::sync::atomic::Ordering::Relaxed) {
            self.audit(&self.others()).await;
        }
        // From now on nobody gets a page, nor is counted.
        self.state.lock().gone = true;
        let others = self.others();
        if others.is_empty() {
            return self.drop_everything();
        }
        let space = self.clone();
        self.detached(async move {
            let endpoint = &space.vm.endpoint;
            space.leave();
            endpoint.multicast(&others, Detach { space: space.id }).await;
            endpoint.multicast(&others, Destroy { space: space.id }).await;
            space.drop_everything();
        })
        .await
    }

    /// The home has died, and no thread is left on this kernel. Nobody coordinates the end, and threads may
    /// still run elsewhere: faults are refused from now on, and what others borrowed is taken back, before
    /// anything is freed.
    pub async fn abandon(self: &Arc<Self>) {
        // Before the space is unknown here: another survivor that abandons it, too, asks this kernel to detach, and frees its frames
        // when it hears that there is nothing to detach.
        self.leave();
        self.vm.forget(self.id);
        let (space, others) = (self.clone(), self.vm.endpoint.others());
        self.detached(async move {
            space.vm.endpoint.multicast(&others, Detach { space: space.id }).await;
            space.drop_everything();
        })
        .await
    }

    /// Drops this replica and all it owns. No other kernel maps any of it.
    pub(crate) fn drop_everything(&self) {
        self.vm.forget(self.id);
        let regions = {
            let mut state = self.state.lock();
            state.gone = true;
            state.exports.clear();
            state.granting.clear();
            state.regions.iter().for_each(|region| self.note_written(region));
            self.release_all();
            core::mem::take(&mut state.regions)
        };
        drop(regions);
        self.changed.wake_all();
        self.vm.send_frames_home(crate::vm::FRAMES_BATCH);
    }

    /// Empties the page table. In batches: a process is ended when memory is used up, and a list of all its
    /// frames may be more than there is.
    fn release_all(&self) {
        let batch = (self.vm.memory.totals().0 / 16).max(1) as usize;
        let mut frames: Vec<Row> = Vec::new();
        let mut next = Some(PageRange::user().start);
        while let Some(start) = next.take() {
            self.table.walk_runs(PageRange::new(start, PageRange::user().end), u64::MAX, &mut |pages, mapping| {
                if frames.len() == batch {
                    next = Some(pages.start);
                    return Step::Stop;
                }
                if !mapping.soft.contains(Soft::BORROWED) {
                    frames.push((mapping.frame, pages.len()));
                }
                Step::Remove
            });
            self.table.flush(PageRange::user());
            release(&*self.vm.memory, frames.drain(..));
            self.vm.send_frames_home(crate::vm::FRAMES_BATCH);
        }
    }
}
