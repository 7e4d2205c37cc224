//! The invariants of the design, over all replicas of all spaces, while the machine is at rest.
//!
//! For a page of a process, over all kernels (Katz 2014, 5.7.1): one frame (or each one's page of zeros), one protection no wider than the region's,
//! one backing, one status. And what Cob's protocol adds: one owner; the owner knows exactly who has the page; no slice
//! has two owners, whichever replica one asks; nothing is left in a TLB that its table does not say.

use crate::cluster::Cluster;
use abi::ObjectId;
use machine::{Access, Frame, KernelId, KernelSet, Mapping, Page, PageRange, Soft, SpaceId, Step};
use std::{collections::HashMap, fmt};
use vm::Space;

/// One page in the table of one replica.
#[derive(Clone, Copy, Debug)]
struct Entry {
    space: SpaceId,
    page: Page,
    borrowed: bool,
    kernel: KernelId,
    mapping: Mapping,
    /// Its kernel's page of zeros.
    zeros: bool,
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { space: SpaceId { home, serial }, page, kernel, mapping, .. } = self;
        let Mapping { frame, access, soft } = mapping;
        let access = access.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join("+");
        let soft = soft.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join("+");
        write!(out, "k{} process {}.{serial}  {:x} is frame {:x} {access} {soft}", kernel.0, home.0, page.0, frame.0)
    }
}

/// What the owner of a page knows of it.
struct Owned {
    allowed: Access,
    /// Of a shared mapping.
    place: Option<(ObjectId, u64)>,
}

/// Panics where an invariant does not hold.
pub fn check(cluster: &Cluster) {
    if let Some(stale) = cluster.world.stale() {
        panic!("not flushed: {stale}");
    }
    let mut audit = Audit::default();
    for kernel in &cluster.kernels {
        for space in kernel.vm.spaces() {
            audit.collect(kernel.id, &space);
        }
    }
    let mut entries = std::mem::take(&mut audit.entries);
    entries.sort_unstable_by_key(|entry| (entry.space, entry.page, entry.borrowed, entry.kernel));
    let mut rest = &entries[..];
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|entry| entry.space == first.space && entry.page == first.page).count();
        let (views, others) = rest.split_at(same);
        if let Err(wrong) = audit.check_page(cluster, views) {
            let lines: String = views.iter().map(|view| format!("\n      {view}")).collect();
            panic!("{wrong}:{lines}\n      exported to {:?}", audit.exports.get(&(first.space, first.page)));
        }
        rest = others;
    }
    audit.check_shared();
    assert!(audit.parts.is_empty(), "handed over, but only one of the two knows: {:?}", audit.parts);
}

#[derive(Default)]
struct Audit {
    entries: Vec<Entry>,
    exports: HashMap<(SpaceId, Page), KernelSet>,
    /// Owners of slices, as any replica knows them.
    slices: HashMap<(SpaceId, u32), KernelId>,
    /// Pages that were handed over, according to one kernel so far, and to whom.
    parts: HashMap<(SpaceId, Page), KernelId>,
    /// Frames of pages of objects in shared mappings.
    shared: Vec<((ObjectId, u64), Frame)>,
}

impl Audit {
    fn collect(&mut self, kernel: KernelId, space: &Space) {
        let id = space.id();
        for (range, set) in space.exports() {
            for page in range.pages() {
                assert!(space.owns_page(page), "{page:?} exported by {kernel:?}, not its owner");
                self.exports.insert((id, page), set.clone());
            }
        }
        for run in space.slice_runs() {
            for slice in run.start..run.end {
                let owner = *self.slices.entry((id, slice)).or_insert(run.owner);
                assert_eq!(owner, run.owner, "two owners of slice {slice} of {id:?}, one according to {kernel:?}");
            }
        }
        for part in space.certain_parts() {
            for page in part.range.pages() {
                // Two must know: the owner of the slice and the holder.
                match self.parts.remove(&(id, page)) {
                    Some(holder) => assert_eq!(holder, part.owner, "{page:?} of {id:?} is held by two"),
                    None => drop(self.parts.insert((id, page), part.owner)),
                }
            }
        }
        space.table().walk(PageRange::user(), &mut |page, mapping| {
            let borrowed = mapping.soft.contains(Soft::BORROWED);
            assert!(borrowed != space.owns_page(page), "{kernel:?} has {page:?} of {id:?} as {mapping:?}");
            let zeros = mapping.frame == space.zeros();
            self.entries.push(Entry { space: id, page, borrowed, kernel, mapping, zeros });
            Step::Keep
        });
    }

    /// What all replicas have of one page: the owner's first.
    fn check_page(&mut self, cluster: &Cluster, views: &[Entry]) -> Result<(), &'static str> {
        let require = |holds: bool, wrong| if holds { Ok(()) } else { Err(wrong) };
        let owner = &views[0];
        require(!owner.borrowed, "borrowed of nobody")?;
        require(views[1..].iter().all(|view| view.borrowed), "two owners")?;
        let Owned { allowed, place } = owned(cluster, owner).ok_or("page without region")?;
        let Mapping { frame, access, soft } = owner.mapping;
        require(allowed.contains(access), "wider than its region")?;
        let copied = soft.contains(Soft::COW);
        require(!(copied && access.contains(Access::WRITE)), "copy-on-write but writable")?;
        require(place.is_none() || !copied, "shared but copy-on-write")?;
        let none = KernelSet::default();
        let sharers = self.exports.get(&(owner.space, owner.page)).unwrap_or(&none);
        require(soft.contains(Soft::EXPORTED) != sharers.is_empty(), "export bit")?;
        for Entry { mapping, kernel, zeros, .. } in &views[1..] {
            require(mapping.frame == frame || *zeros && owner.zeros, "two frames")?;
            require(allowed.contains(mapping.access), "borrowed wider than the region")?;
            require(sharers.contains(*kernel), "its owner does not know who has it")?;
            require(!(copied && mapping.access.contains(Access::WRITE)), "written elsewhere, copy-on-write here")?;
        }
        self.shared.extend(place.map(|place| (place, frame)));
        Ok(())
    }

    /// Shared mappings of one page of an object are of one frame, in all spaces.
    fn check_shared(&mut self) {
        self.shared.sort_unstable();
        for pair in self.shared.windows(2) {
            let [(place, frame), (same, other)] = pair else { continue };
            assert!(place != same || frame == other, "page {} of {:?} is {frame:?} and {other:?}", place.1, place.0);
        }
    }
}

fn owned(cluster: &Cluster, entry: &Entry) -> Option<Owned> {
    let space = cluster.kernels[entry.kernel.index()].vm.find(entry.space)?;
    let (allowed, place) = space.allowed(entry.page)?;
    Some(Owned { allowed, place })
}
