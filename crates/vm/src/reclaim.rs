//! Pages of objects that are taken out of page tables because memory is short. They are still the objects': the next touch maps them again.
//!
//! This waits for no change of the space, for who makes one may itself wait for memory. So what other kernels can read stays in the table, and exported, until they have given it back, as pages of
//! zeros that are to be written do (fault.rs): a change that takes it away meanwhile asks them too.

use crate::{
    lost::shown,
    region::RegionFlags,
    space::{Ranges, Space},
    withdraw::{release, Row, Withdrawal},
};
use alloc::{sync::Arc, vec::Vec};
use fs::Lost;
use machine::{Access, Mapping, PageRange, Soft, Step};

/// An own mapping of an object's page that no program may write through. (What one may write is dirty, and stays.)
fn is_clean(mapping: &Mapping) -> bool {
    mapping.soft.contains(Soft::CACHE)
        && !mapping.soft.intersects(Soft::BORROWED | Soft::DIRTY)
        && !mapping.access.contains(Access::WRITE)
}

impl Space {
    /// See [`fs::Mappers::unmap`].
    pub(crate) async fn unmap_clean(self: &Arc<Self>, pages: Lost, used: bool) {
        let ranges: Vec<PageRange> = {
            let state = self.state.lock();
            state.regions.iter().filter_map(|region| shown(region, &pages)).collect()
        };
        for range in ranges {
            let Some((withdrawal, shared)) = self.take_clean(range, used) else { continue };
            self.settle_then(None, withdrawal, move |space| space.clean_given_back(range, &shared)).await;
        }
    }

    /// Takes out what no other kernel can read. The rest is kept busy until it has been given back.
    fn take_clean(&self, range: PageRange, used: bool) -> Option<(Withdrawal, Ranges)> {
        let mut state = self.state.lock();
        let is_locked = state.regions.overlapping(range).any(|region| region.flags().contains(RegionFlags::LOCKED));
        if state.gone || is_locked || state.is_busy(range) {
            return None;
        }
        let (mut own, mut shared): (Vec<Row>, _) = (Vec::new(), Ranges::default());
        self.table.walk(range, &mut |page, mapping| {
            if !is_clean(&mapping) {
                return Step::Keep;
            }
            if !used && mapping.soft.contains(Soft::ACCESSED) {
                // Without a flush: a CPU that remembers the page does not mark it again, and it goes too soon.
                return Step::Replace(Mapping { soft: mapping.soft - Soft::ACCESSED, ..mapping });
            }
            if mapping.soft.contains(Soft::EXPORTED) {
                shared.add(PageRange::one(page));
                return Step::Keep;
            }
            own.push((mapping.frame, 1));
            Step::Remove
        });
        if !own.is_empty() {
            self.table.flush(range);
            release(&*self.vm.memory, own.into_iter());
        }
        if shared.is_empty() {
            return None;
        }
        let mut withdrawal = Withdrawal::new();
        shared.iter().for_each(|range| withdrawal.narrow(&state, range));
        state.busy.push(range);
        Some((withdrawal, shared))
    }

    /// All kernels have given back `shared`, pages of `range`. A change may have unmapped some.
    fn clean_given_back(&self, range: PageRange, shared: &Ranges) {
        let mut state = self.state.lock();
        let mut gone: Vec<Row> = Vec::new();
        for part in shared.iter() {
            self.table.walk(part, &mut |page, mapping| {
                if !is_clean(&mapping) || !mapping.soft.contains(Soft::EXPORTED) {
                    return Step::Keep;
                }
                state.exports.remove(PageRange::one(page));
                gone.push((mapping.frame, 1));
                Step::Remove
            });
        }
        self.table.flush(range);
        release(&*self.vm.memory, gone.into_iter());
        drop(state);
        self.not_busy(range);
    }
}
