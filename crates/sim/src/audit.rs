//! The invariants of the design, over all replicas of all spaces, while the machine is at rest.

use crate::cluster::Cluster;
use machine::{Access, KernelId, Mapping, Page, PageRange, Soft, SpaceId, Step};
use std::collections::{BTreeMap, HashMap};

/// What one page looks like from everywhere.
#[derive(Default, Debug)]
struct View {
    owned: Option<(KernelId, Mapping, Option<Access>)>,
    borrowed: Vec<(KernelId, Mapping)>,
}

/// Panics where an invariant does not hold.
pub fn check(cluster: &Cluster) {
    if let Some(stale) = cluster.world.stale() {
        panic!("not flushed: {stale}");
    }
    let mut views: BTreeMap<(SpaceId, Page), View> = BTreeMap::new();
    let mut exports = HashMap::new();
    for kernel in &cluster.kernels {
        for space in kernel.vm.spaces() {
            for (page, set) in space.exports() {
                assert!(space.owns_page(page), "{page:?} exported by {:?}, not its owner", kernel.id);
                exports.insert((space.id(), page), set);
            }
            space.table().walk(PageRange::user(), &mut |page, mapping| {
                let view = views.entry((space.id(), page)).or_default();
                if mapping.soft.contains(Soft::BORROWED) {
                    assert!(!space.owns_page(page), "{:?} borrows its own {page:?}", kernel.id);
                    view.borrowed.push((kernel.id, mapping));
                } else {
                    assert!(space.owns_page(page), "{:?} has {page:?} of another", kernel.id);
                    assert!(view.owned.is_none(), "{page:?} has two owners: {view:?}, {:?}", kernel.id);
                    view.owned = Some((kernel.id, mapping, space.allowed(page)));
                }
                Step::Keep
            });
        }
    }
    for ((space, page), view) in views {
        let at = format!("{space:?} {page:?}: {view:?}");
        let Some((_, owned, allowed)) = view.owned else { panic!("borrowed of nobody: {at}") };
        let Some(allowed) = allowed else { panic!("page without region: {at}") };
        assert!(allowed.contains(owned.access), "wider than its region: {at}");
        let copied = owned.soft.contains(Soft::COW);
        assert!(!(copied && owned.access.contains(Access::WRITE)), "copy-on-write but writable: {at}");
        let sharers = exports.get(&(space, page)).cloned().unwrap_or_default();
        assert_eq!(owned.soft.contains(Soft::EXPORTED), !sharers.is_empty(), "export bit: {at}");
        for (kernel, mapping) in view.borrowed {
            assert_eq!(mapping.frame, owned.frame, "two frames: {at}");
            assert!(allowed.contains(mapping.access), "borrowed wider than the region: {at}");
            assert!(sharers.contains(kernel), "{kernel:?} has it, its owner does not know: {at}");
            let writes = mapping.access.contains(Access::WRITE);
            assert!(!(copied && writes), "written elsewhere, copy-on-write here: {at}");
        }
    }
}
