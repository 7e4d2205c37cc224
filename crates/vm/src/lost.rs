//! Pages of objects that are no more what they were: a file was truncated, a hole was made in it, or a copy of a page
//! here is about to be out of date. What is under way at that moment is drawn in fs/src/cache/lent.rs.
//!
//! A space that forks meanwhile is dangerous: the list of spaces was made, the parent's pages are cloned into a child
//! that is not on it, and taken from the parent only then. A fork holds *operating* of the parent while it clones, and
//! the child is known before; so after the parent's turn the child is on the list, and it is made again until
//! nothing new is on it.

use crate::{
    region::Region,
    space::Space,
    vm::{Shared, Vm},
    withdraw::Withdrawal,
};
use abi::ObjectId;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;
use fs::{Lost, Mappers, MappingUse};
use machine::{errno::Result, BoxFuture, Errno, GroupId, HashSet, KernelSet, Page, PageRange, Soft};
use messages::vm::{CountUses, RegionReport};

impl Mappers for Vm {
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()> {
        Mappers::lost(&*self.shared, lost)
    }

    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        self.shared.objects.recall(others, lost)
    }

    fn unmap(&self, object: ObjectId, pages: Range<u64>, used: bool) -> BoxFuture<'_, ()> {
        Mappers::unmap(&*self.shared, object, pages, used)
    }

    fn borrow(&self, must: bool) -> BoxFuture<'_, bool> {
        Box::pin(self.shared.borrow_for_files(must))
    }

    fn room_in_group(&self, group: GroupId) -> BoxFuture<'_, bool> {
        Box::pin(self.shared.room_in_group(group))
    }

    fn uses(&self, object: ObjectId, usage: MappingUse) -> BoxFuture<'_, u64> {
        Mappers::uses(&*self.shared, object, usage)
    }
}

impl Mappers for Shared {
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut done = HashSet::default();
            loop {
                let mut new = self.all();
                new.retain(|space| done.insert(space.id));
                if new.is_empty() {
                    return;
                }
                for space in new {
                    space.lose(lost).await;
                }
            }
        })
    }

    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        self.objects.recall(others, lost)
    }

    fn unmap(&self, object: ObjectId, pages: Range<u64>, used: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let lost = Lost { object, first: pages.start, end: pages.end, private: false };
            // A space that comes meanwhile keeps what it has.
            for space in self.all() {
                space.unmap_clean(lost, used).await;
            }
        })
    }

    fn uses(&self, object: ObjectId, usage: MappingUse) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let here = self.uses_here(object, usage);
            // Who died maps nothing.
            let elsewhere = self.endpoint.multicast(&self.endpoint.others(), CountUses { object, usage }).await;
            here + elsewhere.into_iter().map(|(_, count)| count.unwrap_or(0)).sum::<u64>()
        })
    }
}

impl Shared {
    /// Of spaces in slices of this kernel. A fork may make one meanwhile: the list is made again until nothing new is on it.
    pub(crate) fn uses_here(&self, object: ObjectId, usage: MappingUse) -> u64 {
        let (mut done, mut count) = (HashSet::default(), 0);
        loop {
            let mut new = self.all();
            new.retain(|space| done.insert(space.id));
            if new.is_empty() {
                return count;
            }
            count += new.iter().map(|space| space.uses_of(object, usage)).sum::<u64>();
        }
    }
}

/// The pages of a region that show pages of `lost`.
pub(crate) fn shown(region: &Region, lost: &Lost) -> Option<PageRange> {
    let backing = region.backing.as_ref().filter(|backing| backing.object.id() == lost.object)?;
    let place = |index: u64| region.range.start.0.saturating_add(index.saturating_sub(backing.first));
    let range = region.range;
    let (start, end) = (place(lost.first).min(range.end.0), place(lost.end).min(range.end.0));
    Some(PageRange::new(Page(start), Page(end))).filter(|range| !range.is_empty())
}

impl Space {
    async fn lose(self: &Arc<Self>, lost: Lost) {
        let find = || -> Vec<PageRange> {
            self.state.lock().regions.iter().filter_map(|region| shown(region, &lost)).collect()
        };
        if find().is_empty() {
            return;
        }
        let operating = self.operate().await;
        for range in find() {
            let mut withdrawal = Withdrawal::new();
            {
                let mut state = self.state.lock();
                for region in state.regions.overlapping(range) {
                    self.note_written(&region.cut(range));
                }
                let lost = |soft: Soft| lost.private || soft.contains(Soft::CACHE);
                self.take_some(&mut state, range, &mut withdrawal, lost, false);
            }
            self.settle(&operating, withdrawal).await;
        }
    }

    /// madvise(MADV_REMOVE): a hole in the objects behind shared mappings. Like any change of a file, it is made without
    /// a lock of this space (man 2 madvise; mm/madvise.c: madvise_remove).
    pub(crate) async fn remove(self: &Arc<Self>, range: PageRange) -> Result<()> {
        let mut at = range.start;
        let mut hole = false;
        let mut regions = self.regions(range);
        while let Some(region) = regions.next().await {
            let part = region.range.intersect(range);
            hole |= part.start > at;
            at = part.end;
            self.remove_from(&region, part).await?;
        }
        match hole || at < range.end {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    async fn remove_from(self: &Arc<Self>, region: &RegionReport, part: PageRange) -> Result<()> {
        use crate::RegionFlags;
        let flags = RegionFlags::from_bits_truncate(region.kind.flags);
        if flags.contains(RegionFlags::LOCKED) {
            return Err(Errno::EINVAL);
        }
        let backing = region.backing.clone().ok_or(Errno::EINVAL)?;
        if !flags.contains(RegionFlags::SHARED) || !region.kind.limit.contains(machine::Access::WRITE) {
            return Err(Errno::EACCES);
        }
        let first = backing.first + (part.start.0 - region.range.start.0);
        let backing = self.resolve_backing(Some(backing)).await?.ok_or(Errno::EINVAL)?;
        backing.object.punch(first, first + part.len()).await
    }
}
