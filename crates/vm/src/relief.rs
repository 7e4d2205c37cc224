//! When no frame is left for a page.
//!
//! Problem: memory is overcommitted, so it may run out at any touch of a page, long after the call that
//! promised it. Idea, as on Linux: other kernels' memory first (borrow.rs), then what can be had again goes (cached pages of
//! files, at last those that are mapped), then a process that holds much; only then does the fault fail. What has to be known for that is not known here: the kernel
//! says it through [`Relief`].
//!
//! The dangerous interleaving: a thread that waits for the end of a process under a lock which that process
//! needs to end. So room is made only between the steps of a fault, when no lock of the space is held; and a
//! fault of the process that ends is told at once to give up.

use crate::vm::{Shared, Vm};
use alloc::{boxed::Box, sync::Arc};
use machine::{
    group::{ChargedPage, PageKind},
    BoxFuture, GroupId, Pid, SpaceId,
};
use messages::cgroup::Reclaim;

/// What a kernel does to free frames.
pub trait Relief: Send + Sync {
    /// Frames of all kernels. No single mapping may promise more (Linux's heuristic overcommit).
    fn machine_pages(&self) -> u64;
    /// Drops caches that can be filled again; answers how many frames that freed.
    fn reclaim(&self) -> usize;
    /// Drops some pages of files that programs map: those that were not used lately, and if there are none, those in use. Answers how many; 0 if there is none that can go, or
    /// if the kernel thrashes: programs read what goes again at once, so somebody has to end.
    /// With `writes` dirty pages are written back and go, too; the call then waits for locks of files, so a caller that holds one may not ask for it.
    fn reclaim_mapped(&self, _writes: bool) -> BoxFuture<'_, usize> {
        Box::pin(core::future::ready(0))
    }
    /// Drops some pages of files that are charged to `groups` (ascending). Answers how many; with [`Reclaim::Used`] 0 only if there are none.
    fn reclaim_of<'a>(&'a self, _groups: &'a [GroupId], _which: Reclaim) -> BoxFuture<'a, usize> {
        Box::pin(core::future::ready(0))
    }
    /// This kernel may not charge `group` with a page more, for `thread`: gets it leave to, whatever that takes. False: there is none, or the thread
    /// is to end.
    fn room_in_group(&self, _group: GroupId, _thread: Pid) -> BoxFuture<'_, bool> {
        Box::pin(core::future::ready(false))
    }
    /// Ends a process to free its memory, and waits for that. False if the one that faults in `space` must
    /// go itself.
    fn end_one(&self, space: SpaceId) -> BoxFuture<'_, bool>;
}

/// How often one fault makes room and finds the frame taken by others, before it fails.
pub(crate) const ATTEMPTS: usize = 64;

impl Vm {
    /// Says what to do when memory runs out. Until then a fault fails at once.
    pub fn set_relief(&self, relief: Arc<dyn Relief>) {
        *self.shared.relief.lock() = Some(relief);
    }

    /// Drops caches that can be read or made again. False if that freed nothing.
    pub fn reclaim(&self) -> bool {
        self.shared.reclaim()
    }

    /// Drops clean pages of files that are mapped. False if that freed nothing.
    pub async fn reclaim_mapped(&self) -> bool {
        match self.shared.relief() {
            Some(relief) => relief.reclaim_mapped(false).await > 0,
            None => false,
        }
    }

    /// See [`Relief::reclaim_of`].
    pub async fn reclaim_of(&self, groups: &[GroupId], which: Reclaim) -> usize {
        match self.shared.relief() {
            Some(relief) => relief.reclaim_of(groups, which).await,
            None => 0,
        }
    }

    /// See [`Relief::machine_pages`].
    pub fn machine_pages(&self) -> u64 {
        self.shared.machine_pages()
    }
}

/// The kind of frame that a fault found none of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A frame for anonymous memory.
    Anywhere,
    /// A frame that must be of this kernel: for a table, or a page of an object.
    Own,
    /// Leave to charge a control group with it.
    Leave(GroupId),
}

impl Shared {
    fn relief(&self) -> Option<Arc<dyn Relief>> {
        self.relief.lock().clone()
    }

    /// True if it is worth asking for a frame again.
    pub async fn make_room(&self, space: SpaceId, missing: Missing) -> bool {
        match missing {
            Missing::Leave(group) => return self.room_in_group(group).await,
            Missing::Anywhere if self.borrow(true).await => return true,
            Missing::Anywhere | Missing::Own => {}
        }
        match self.relief() {
            Some(relief) => {
                relief.reclaim() > 0 || relief.reclaim_mapped(true).await > 0 || relief.end_one(space).await
            }
            None => false,
        }
    }

    /// Charges whoever this CPU works for with a page that is to be made.
    pub fn charge(&self, kind: PageKind) -> Result<ChargedPage<'_>, Missing> {
        let payer = self.spawner.payer();
        ChargedPage::new(&*self.memory, payer, kind).map_err(|_| Missing::Leave(payer))
    }

    /// See [`Relief::room_in_group`]. The thread is the one that this CPU works for.
    pub async fn room_in_group(&self, group: GroupId) -> bool {
        let thread = self.spawner.actor().thread();
        match self.relief() {
            Some(relief) => relief.room_in_group(group, thread).await,
            None => false,
        }
    }

    /// Frees memory as far as no process must be killed for it.
    pub fn reclaim(&self) -> bool {
        self.relief().is_some_and(|relief| relief.reclaim() > 0)
    }

    pub fn machine_pages(&self) -> u64 {
        self.relief().map_or(u64::MAX, |relief| relief.machine_pages())
    }
}
