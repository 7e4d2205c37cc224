//! What /proc/PID/cob shows of a space: what each kernel has of it, and who owns which addresses.
//!
//! Every kernel with a replica is asked once, without waiting for anything: these are numbers to look at. So two of them may
//! be of different moments, and a page that is made meanwhile is in one and not in the other.

use crate::{
    slices::SliceTable,
    space::{Space, State},
};
use alloc::{sync::Arc, vec, vec::Vec};
use machine::{KernelId, KernelSet, Page, PageRange, Soft, Step};
use messages::vm::{DescribeReplica, OwnedRange, ReplicaReport, Spread};

/// Most parts of slices that one kernel lists, since a person is to read them.
const PARTS: usize = 64;

impl Space {
    /// What all kernels have of the space. Any kernel may ask.
    pub async fn spread(self: &Arc<Self>) -> Spread {
        let own = self.describe();
        let mut known = own.members.clone();
        known.insert(self.id.home);
        let mut replicas = vec![(self.me(), own)];
        let mut asked = KernelSet::only(self.me());
        // Home, which is in the first round, knows all of them.
        loop {
            let next: KernelSet = known.iter().filter(|kernel| asked.insert(*kernel)).collect();
            if next.is_empty() {
                break;
            }
            for (kernel, answer) in self.vm.endpoint.multicast(&next, DescribeReplica { space: self.id }).await {
                // Who is dead, or has no replica any more, has nothing.
                let Ok(Some(report)) = answer else { continue };
                report.members.iter().for_each(|member| _ = known.insert(member));
                replicas.push((kernel, report));
            }
        }
        let mut table = SliceTable::default();
        let at_home = replicas.iter().find(|(kernel, _)| *kernel == self.id.home);
        table.learn(at_home.map_or(&[][..], |(_, report)| &report.slices));
        for part in replicas.iter().flat_map(|(_, report)| &report.parts) {
            table.hand(part.range, part.owner);
        }
        let owners = owned_ranges(&table, self.id.home);
        Spread { replicas, owners }
    }

    /// What this kernel has of the space.
    pub(crate) fn describe(&self) -> ReplicaReport {
        let state = self.state.lock();
        let own_slice = |page: Page| self.slice_owner(&state, page) == self.me();
        let handed = || state.slices.parts(PageRange::user()).filter(|part| own_slice(part.range.start));
        let mut report = ReplicaReport {
            faults_local: state.faults.local,
            faults_remote: state.faults.remote,
            owned: state.regions.total(),
            slices: state.slices.runs(),
            parts: handed().take(PARTS).collect(),
            parts_left_out: handed().skip(PARTS).count() as u64,
            members: self.members(&state),
            ..ReplicaReport::default()
        };
        self.table.walk(PageRange::user(), &mut |_, mapping| {
            // Pages of zeroes that nobody has written are nobody's memory.
            if mapping.frame == self.vm.zero {
                return Step::Keep;
            }
            report.mapped += 1;
            // The owner of a page has it in its table too, and counts it.
            if !mapping.soft.contains(Soft::BORROWED) {
                report.exported += u64::from(mapping.soft.contains(Soft::EXPORTED));
                if let Some(home) = self.vm.memory.home_of(mapping.frame) {
                    match report.frames.iter_mut().find(|(known, _)| *known == home) {
                        Some((_, pages)) => *pages += 1,
                        None => report.frames.push((home, 1)),
                    }
                }
            }
            Step::Keep
        });
        report
    }

    /// The kernels that this one knows to have a replica: at home, all.
    fn members(&self, state: &State) -> KernelSet {
        state.members.iter().chain(state.slices.owners()).collect()
    }
}

/// User space from its start to its end, cut where `table` has another owner. What has no owner yet is asked of home.
fn owned_ranges(table: &SliceTable, home: KernelId) -> Vec<OwnedRange> {
    let (mut all, mut rest) = (Vec::new(), PageRange::user());
    let mut add = |range: PageRange, owner: KernelId, slice: Option<KernelId>| {
        if !range.is_empty() {
            all.push(OwnedRange { range, owner, slice });
        }
    };
    for run in table.runs() {
        let mut slices = crate::slices::pages_of(&run).intersect(rest);
        add(PageRange::new(rest.start, slices.start), home, None);
        rest.start = slices.end;
        for part in table.parts(slices) {
            add(PageRange::new(slices.start, part.range.start), run.owner, Some(run.owner));
            add(part.range, part.owner, Some(run.owner));
            slices.start = part.range.end;
        }
        add(slices, run.owner, Some(run.owner));
    }
    add(rest, home, None);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::SLICE_PAGES;
    use messages::vm::SliceRun;

    #[test]
    fn every_address_has_one_owner() {
        let home = KernelId(0);
        let shape = |table: &SliceTable| -> Vec<(u64, u16, Option<u16>)> {
            let ranges = owned_ranges(table, home);
            assert_eq!(ranges[0].range.start, Page(0));
            assert!(ranges.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
            assert_eq!(ranges[ranges.len() - 1].range.end, PageRange::user().end);
            ranges
                .iter()
                .map(|range| (range.range.start.0, range.owner.0, range.slice.map(|kernel| kernel.0)))
                .collect()
        };
        let mut table = SliceTable::default();
        assert_eq!(shape(&table), [(0, 0, None)]);
        table.learn(&[SliceRun { start: 1, end: 3, owner: KernelId(2) }]);
        table.hand(PageRange::new(Page(SLICE_PAGES + 5), Page(SLICE_PAGES + 9)), KernelId(3));
        assert_eq!(
            shape(&table),
            [
                (0, 0, None),
                (SLICE_PAGES, 2, Some(2)),
                (SLICE_PAGES + 5, 3, Some(2)),
                (SLICE_PAGES + 9, 2, Some(2)),
                (SLICE_PAGES * 3, 0, None)
            ]
        );
    }
}
