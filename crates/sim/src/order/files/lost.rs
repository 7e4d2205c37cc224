//! What the death of a kernel leaves of open files.
//!
//! Those on that kernel are lost: what descriptors lead to answers EIO. Where a file was, the machine says; of one that only a call has
//! which waits nobody can say it, so both are possible.

use super::{
    super::{Id, Lost},
    Entry, Files, Kind,
};
use std::collections::{BTreeMap, BTreeSet};

impl Files {
    /// These threads are no more.
    pub(super) fn end(&mut self, ended: &BTreeSet<Id>) {
        self.process.retain(|thread, _| !ended.contains(thread));
        self.held.retain(|thread, _| !ended.contains(thread));
        self.moving.retain(|thread, _| !ended.contains(thread));
    }

    /// Is an open file on the kernel that dies? None if descriptors of the same one disagree: then this is not what happened.
    /// One that only a call has, which waits, may be.
    pub(super) fn fates(&self, lost: &Lost) -> Option<BTreeMap<usize, bool>> {
        let mut fates = BTreeMap::new();
        for (process, table) in &self.tables {
            for (fd, Entry { description, .. }) in table {
                let fate = *lost.get(&(*process, *fd))?;
                if *fates.entry(*description).or_insert(fate) != fate {
                    return None;
                }
            }
        }
        Some(fates)
    }

    /// What these fates leave, once for each that those not known may have.
    pub(super) fn collect_after(self, fates: BTreeMap<usize, bool>) -> Vec<Self> {
        let mut all = vec![(self, fates)];
        let state = &all[0].0;
        let moving = state.moving.values().flat_map(|moving| &moving.files);
        for description in state.held.values().chain(moving).copied().collect::<BTreeSet<usize>>() {
            if !all[0].1.contains_key(&description) {
                let other = all.iter().cloned().map(|(state, fates)| (state, with(fates, description, true)));
                let other: Vec<_> = other.collect();
                for (_, fates) in &mut all {
                    fates.insert(description, false);
                }
                all.extend(other);
            }
        }
        let finish = |(mut state, fates): (Self, BTreeMap<usize, bool>)| {
            for (number, known) in &mut state.descriptions {
                if fates.get(number) == Some(&true) {
                    // What epolls have of it goes with it, and all that an epoll has, with that.
                    state.interests.retain(|(_, of), _| of != number && known.kind != Kind::Poll);
                    known.lose();
                }
            }
            state.collect();
            state
        };
        all.into_iter().map(finish).collect()
    }
}

fn with(mut fates: BTreeMap<usize, bool>, description: usize, fate: bool) -> BTreeMap<usize, bool> {
    fates.insert(description, fate);
    fates
}
