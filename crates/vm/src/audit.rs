//! The invariants of an address space on the real machine, looked at when it ends (`cob.audit=on`, `cob run --audit`).
//!
//! Problem: a kernel that maps a page which its owner does not know of, or another frame than the owner's, harms nobody
//! until the frame is reused; by then nothing shows who was wrong. Idea: when the last thread has gone and before
//! anything is released, the home asks every replica what its page table says and compares. No thread runs in the space,
//! so nothing changes except what is under way; every kernel waits for that first.
//!
//! Large spaces are compared in pieces. A kernel answers with its next entries, at most [`MOST`] of them; what is compared
//! is the part that every answer covers. Small pieces: a process that is ended because memory is used up still has all its
//! frames, and the kernels have only what they keep back for themselves.

use crate::space::Space;
use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use machine::{Access, KernelId, KernelSet, Page, PageRange, Soft, Step};
use messages::vm::{Census, CensusEntry};

/// Most entries of an answer.
const MOST: usize = 64;
/// Most faults that are logged for one space.
const NAMED: u64 = 4;

/// A kernel, and its entry for a page.
type View = (KernelId, CensusEntry);

impl Space {
    /// Called at home before the space ends.
    pub(crate) async fn audit(self: &Arc<Self>, others: &KernelSet) {
        let mut faults = 0u64;
        let asked: KernelSet = others.iter().chain([self.me()]).collect();
        let mut from = Some(PageRange::user().start);
        while let Some(start) = from {
            let mut answers = Vec::from([(self.me(), self.census(start).await)]);
            for (kernel, answer) in self.vm.endpoint.multicast(others, Census { space: self.id, from: start }).await {
                // A kernel that died is no witness.
                answers.push((kernel, answer.unwrap_or_default()));
            }
            let covered = answers.iter().filter(|(_, list)| list.len() == MOST).filter_map(|(_, list)| list.last());
            let last = covered.map(|entry| entry.page).min();
            let views =
                answers.into_iter().flat_map(|(kernel, list)| list.into_iter().map(move |entry| (kernel, entry)));
            let mut views: Vec<View> = views.filter(|(_, entry)| last.is_none_or(|last| entry.page <= last)).collect();
            views.sort_unstable_by_key(|(kernel, entry)| (entry.page, *kernel));
            for views in views.chunk_by(|(_, one), (_, other)| one.page == other.page) {
                if let Err(wrong) = check(views, &asked) {
                    faults += 1;
                    if faults <= NAMED {
                        log::error!("audit: {:?} {:?}: {wrong}: {views:?}", self.id, views[0].1.page);
                    }
                }
            }
            from = last.map(|page| page.add(1));
        }
        self.vm.audit_faults.fetch_add(faults, Relaxed);
    }

    /// The entries of this replica's page table from page `from` on, taken when no question of its is unanswered.
    pub(crate) async fn census(&self, from: Page) -> Vec<CensusEntry> {
        let at_rest = || {
            let state = self.state.lock();
            let rests = state.pending.is_empty() && state.busy.is_empty() && !state.operating && state.frozen.is_none();
            rests.then_some(())
        };
        self.changed.wait_until(at_rest).await;
        let state = self.state.lock();
        let mut list = Vec::with_capacity(MOST);
        self.table.walk(PageRange::new(from, PageRange::user().end), &mut |page, mapping| {
            list.push(CensusEntry {
                page,
                frame: (mapping.frame != self.vm.zero).then_some(mapping.frame),
                access: mapping.access,
                borrowed: mapping.soft.contains(Soft::BORROWED),
                exported: mapping.soft.contains(Soft::EXPORTED),
                copy_on_write: mapping.soft.contains(Soft::COW),
                owned: self.owns(&state, PageRange::one(page)),
                allowed: state.regions.find(page).map(|region| region.access()),
                sharers: state.exports.sharers(page).cloned().unwrap_or_default(),
            });
            if list.len() < MOST {
                Step::Keep
            } else {
                Step::Stop
            }
        });
        list
    }
}

/// The invariants of design section 2 for one page (the simulator's are in `sim/src/audit.rs`). `replicas`: who has a replica of the
/// space. That an owner believes a page to be where it is not is allowed (who has it may forget it), but not that it is where
/// nothing of the space is: nobody there would be asked for it when the space ends.
fn check(views: &[View], replicas: &KernelSet) -> Result<(), String> {
    let require = |holds: bool, wrong: &str| if holds { Ok(()) } else { Err(String::from(wrong)) };
    let mut owners = views.iter().filter(|(_, entry)| !entry.borrowed);
    let Some((me, owner)) = owners.next() else { return Err(String::from("borrowed of nobody")) };
    require(owners.next().is_none(), "two owners")?;
    let Some(allowed) = owner.allowed else { return Err(String::from("page without region")) };
    require(allowed.contains(owner.access), "wider than its region")?;
    require(!(owner.copy_on_write && owner.access.contains(Access::WRITE)), "copy-on-write but writable")?;
    require(owner.exported != owner.sharers.is_empty(), "export bit")?;
    require(!owner.sharers.contains(*me), "lent to its owner")?;
    require(owner.sharers.iter().all(|kernel| replicas.contains(kernel)), "lent to a kernel without a replica")?;
    for (kernel, entry) in views {
        require(entry.owned != entry.borrowed, &format!("kernel {kernel} is mistaken about whose it is"))?;
        if entry.borrowed {
            require(entry.frame == owner.frame, "two frames")?;
            require(allowed.contains(entry.access), "borrowed wider than the region")?;
            require(owner.sharers.contains(*kernel), "its owner does not know who has it")?;
            require(
                !(owner.copy_on_write && entry.access.contains(Access::WRITE)),
                "written elsewhere, copy-on-write here",
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Frame;

    fn entry(borrowed: bool, access: Access) -> CensusEntry {
        CensusEntry {
            page: Page(7),
            frame: Some(Frame(3)),
            access,
            borrowed,
            exported: !borrowed,
            copy_on_write: false,
            owned: !borrowed,
            allowed: (!borrowed).then_some(Access::READ | Access::WRITE),
            sharers: if borrowed { KernelSet::new() } else { [KernelId(1)].into_iter().collect() },
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let (owner, lender) = (entry(false, Access::READ | Access::WRITE), entry(true, Access::READ));
        let views = |owner: &CensusEntry, borrower: u16, lent: &CensusEntry| {
            Vec::from([(KernelId(0), owner.clone()), (KernelId(borrower), lent.clone())])
        };
        let replicas: KernelSet = [0, 1, 2].map(KernelId).into_iter().collect();
        assert_eq!(check(&views(&owner, 1, &lender), &replicas), Ok(()));
        let wrong = |views: Vec<View>| check(&views, &replicas).unwrap_err();
        assert!(wrong(views(&owner, 2, &lender)).contains("does not know"));
        assert!(
            wrong(views(&owner, 1, &CensusEntry { frame: Some(Frame(4)), ..lender.clone() })).contains("two frames")
        );
        assert!(wrong(views(&lender, 1, &lender)).contains("nobody"));
        assert!(wrong(views(&owner, 1, &owner)).contains("two owners"));
        let to = |kernel: u16| CensusEntry { sharers: KernelSet::only(KernelId(kernel)), ..owner.clone() };
        assert_eq!(check(&views(&to(2), 2, &lender), &replicas), Ok(()));
        // Whoever has it may have forgotten it.
        assert_eq!(check(&[(KernelId(0), to(2))], &replicas), Ok(()));
        assert!(wrong(Vec::from([(KernelId(0), to(3))])).contains("without a replica"));
        assert!(wrong(Vec::from([(KernelId(0), to(0))])).contains("to its owner"));
        let copied_on_write = CensusEntry { copy_on_write: true, access: Access::READ, ..owner.clone() };
        let written = CensusEntry { access: Access::WRITE, ..lender.clone() };
        assert!(wrong(views(&copied_on_write, 1, &written)).contains("copy-on-write here"));
        assert!(wrong(views(&CensusEntry { allowed: None, ..owner }, 1, &lender)).contains("without region"));
    }
}
