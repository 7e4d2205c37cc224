//! Which pages were touched: smaps' `Referenced`, and clear_refs, which forgets it (man 5 proc).
//!
//! The ACCESSED bits say it, and every kernel has its own of the pages that it borrowed. The owner of a range knows who has borrowed any of it, and asks
//! these; a range of several owners is asked for by home, which knows all replicas.

use crate::space::Space;
use alloc::{sync::Arc, vec, vec::Vec};
use machine::{pause, KernelSet, Mapping, Page, PageRange, Soft, Step};
use messages::vm::{RegionReport, Touched};

/// Pages of one question.
const CHUNK: u64 = 8192;

impl Space {
    /// Fills in `region.pages.touched`: asks all kernels which of its pages were touched.
    pub async fn count_touched(self: &Arc<Self>, region: &mut RegionReport) {
        if region.pages.present > 0 {
            region.pages.touched = self.touched(region.range, false).await;
        }
    }

    /// clear_refs: from now on no page of these regions has been touched, on any kernel.
    pub async fn clear_touched(self: &Arc<Self>, anonymous: bool, files: bool) {
        let mut regions = self.counted_regions(PageRange::user());
        while let Some(region) = regions.next().await {
            let wanted = if region.backing.is_some() { files } else { anonymous };
            if wanted && region.pages.present > 0 {
                self.touched(region.range, true).await;
            }
        }
    }

    async fn touched(self: &Arc<Self>, mut rest: PageRange, clear: bool) -> u64 {
        let mut touched = 0;
        while !rest.is_empty() {
            let range = PageRange::new(rest.start, rest.end.min(rest.start.add(CHUNK)));
            rest.start = range.end;
            let asks = self.is_home() || self.owns(&self.state.lock(), range);
            let bits = match asks {
                true => self.serve_touched(range, clear, true).await,
                false => {
                    let question = Touched { space: self.id, range, clear, everywhere: true };
                    self.vm.endpoint.call(self.id.home, question).await.unwrap_or_default()
                }
            };
            pause(&*self.vm.spawner).await;
            touched += bits.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
        touched
    }

    pub(crate) async fn serve_touched(&self, range: PageRange, clear: bool, everywhere: bool) -> Vec<u8> {
        let mut bits = self.touched_here(range, clear);
        if everywhere {
            let question = Touched { space: self.id, range, clear, everywhere: false };
            for (_, answer) in self.vm.endpoint.multicast(&self.borrowers(range), question).await {
                // Who died has touched nothing.
                for (byte, there) in bits.iter_mut().zip(answer.unwrap_or_default()) {
                    *byte |= there;
                }
            }
        }
        bits
    }

    /// The kernels that may have pages of `range`, without this one.
    fn borrowers(&self, range: PageRange) -> KernelSet {
        let state = self.state.lock();
        if !self.owns(&state, range) {
            drop(state);
            return self.others();
        }
        state.exports.inside(range).flat_map(|(_, sharers)| sharers.iter()).collect()
    }

    fn touched_here(&self, range: PageRange, clear: bool) -> Vec<u8> {
        let range = PageRange::new(range.start, range.end.min(Page(range.start.0.saturating_add(CHUNK))));
        let mut bits = vec![0; range.len().div_ceil(8) as usize];
        let mut cleared = false;
        let _state = self.state.lock();
        self.table.walk(range, &mut |page, mapping| {
            // Linux does not count the page of zeros either.
            if !mapping.soft.contains(Soft::ACCESSED) || mapping.frame == self.vm.zero {
                return Step::Keep;
            }
            let index = page.0 - range.start.0;
            bits[(index / 8) as usize] |= 1 << (index % 8);
            if !clear {
                return Step::Keep;
            }
            cleared = true;
            Step::Replace(Mapping { soft: mapping.soft - Soft::ACCESSED, ..mapping })
        });
        if cleared {
            // Else a CPU that remembers the translation would not mark the page again.
            self.table.flush(range);
        }
        bits
    }
}
