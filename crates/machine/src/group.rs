//! What control groups have charged to them on one kernel: the pages of programs and files.
//!
//! A page is charged to the group of the thread that it was made for, by the kernel that counts its frame, and the frame has a [`Tag`] that says so.
//! Whoever releases the last count of the frame ends the charge with it. A kernel may charge a group with as many pages as the owner of
//! the tree has granted it: it draws them in tranches, and gives back what it does not need. So a charge costs no message, and a group never has
//! more than its limit on all kernels together.
//!
//! ```text
//!   owner of the tree: group 5 may have 1000, granted 192
//!       kernel 1: granted 128, charged 100       kernel 2: granted 64, charged 64
//!                                                a page more: draws
//! ```
//!
//! Pages of the root are charged to nobody, and their frames have no tag.

use crate::{sync::Lock, Frame, GroupId, HashMap, Memory};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use serde::{Deserialize, Serialize};

/// What a charged page is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Memory of programs that no file names.
    Anonymous,
    /// A file that can be read again.
    File,
    /// A file in memory, and memory that processes share.
    Shared,
}

/// How many kinds there are.
pub const KINDS: usize = 3;

/// To whom a frame is charged, and as what; 0: to nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u16);

impl Tag {
    /// Charged to nobody.
    pub const NONE: Tag = Tag(0);

    fn new(group: GroupId, kind: PageKind) -> Tag {
        Tag(group.0 << 2 | kind as u16)
    }

    /// The group; of no tag the root.
    pub fn group(self) -> GroupId {
        GroupId(self.0 >> 2)
    }
}

/// The kernel may charge the group with no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverGroup;

#[derive(Default)]
struct Ledger {
    pages: [usize; KINDS],
    granted: usize,
    /// The most that was charged since the owner of the tree was told.
    peak: usize,
}

impl Ledger {
    fn charged(&self) -> usize {
        self.pages.iter().sum()
    }

    fn add(&mut self, kind: PageKind) {
        self.pages[kind as usize] += 1;
        self.peak = self.peak.max(self.charged());
    }

    /// Pages that are not needed soon.
    fn surplus(&self) -> usize {
        match self.charged() {
            0 => self.granted,
            charged => self.granted.saturating_sub(charged + 2 * TRANCHE),
        }
    }
}

/// Pages that a kernel draws at once: 256 KiB.
pub const TRANCHE: usize = 64;

/// Pages that a kernel gives back to a group, and the most that it had charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// The group.
    pub group: GroupId,
    /// How many it has less from now on.
    pub pages: u64,
    /// Of what it had been granted before, the most that it has used since it said so last.
    pub peak: u64,
    /// What it had been granted before.
    pub granted: u64,
}

/// The charges of one kernel.
#[derive(Default)]
pub struct Ledgers {
    known: Lock<HashMap<GroupId, Ledger>>,
    /// Some group may have been granted too much.
    surplus: AtomicBool,
}

impl Ledgers {
    fn charge(&self, group: GroupId, kind: PageKind) -> Result<(), OverGroup> {
        let mut known = self.known.lock();
        let ledger = known.get_mut(&group).ok_or(OverGroup)?;
        if ledger.charged() >= ledger.granted {
            return Err(OverGroup);
        }
        ledger.add(kind);
        Ok(())
    }

    /// A frame with this tag has no user any more.
    #[inline]
    pub fn uncharge(&self, tag: Tag) {
        if tag != Tag::NONE {
            self.end_charge(tag);
        }
    }

    fn end_charge(&self, tag: Tag) {
        let mut known = self.known.lock();
        if let Some(ledger) = known.get_mut(&tag.group()) {
            ledger.pages[usize::from(tag.0 & 3)] -= 1;
            if ledger.surplus() > 0 {
                self.surplus.store(true, Relaxed);
            }
        }
    }

    /// The owner of the tree lets this kernel charge so many pages more.
    pub fn grant(&self, group: GroupId, pages: usize) {
        if pages > 0 {
            self.known.lock().entry(group).or_default().granted += pages;
        }
    }

    /// Whether [`Ledgers::give_back`] of all groups may give something. Says so once.
    pub fn has_surplus(&self) -> bool {
        self.surplus.load(Relaxed) && self.surplus.swap(false, Relaxed)
    }

    /// Takes away what is granted and not needed soon; of `groups` (ascending), all that is not charged.
    pub fn give_back(&self, groups: Option<&[GroupId]>) -> Vec<GivenBack> {
        let mut given = Vec::new();
        let mut known = self.known.lock();
        for (group, ledger) in known.iter_mut() {
            let pages = match groups {
                None => ledger.surplus(),
                Some(groups) if groups.binary_search(group).is_ok() => ledger.granted.saturating_sub(ledger.charged()),
                Some(_) => 0,
            };
            if pages > 0 {
                let (peak, granted) = (ledger.peak as u64, ledger.granted as u64);
                given.push(GivenBack { group: *group, pages: pages as u64, peak, granted });
                ledger.granted -= pages;
                ledger.peak = ledger.charged();
            }
        }
        known.retain(|_, ledger| ledger.granted > 0 || ledger.charged() > 0);
        given
    }

    /// Pages that are charged to `groups` (ascending), by kind.
    pub fn usage(&self, groups: &[GroupId]) -> [u64; KINDS] {
        let mut sum = [0; KINDS];
        for (_, ledger) in self.known.lock().iter().filter(|(group, _)| groups.binary_search(group).is_ok()) {
            sum.iter_mut().zip(ledger.pages).for_each(|(sum, pages)| *sum += pages as u64);
        }
        sum
    }
}

/// A page that is charged before it has a frame: given back, unless it gets one.
#[must_use = "the charge ends at once"]
pub struct ChargedPage<'m> {
    memory: &'m dyn Memory,
    tag: Tag,
}

impl<'m> ChargedPage<'m> {
    /// Charges `group` with a page more of this kernel.
    #[inline]
    pub fn new(memory: &'m dyn Memory, group: GroupId, kind: PageKind) -> Result<Self, OverGroup> {
        // Every new page comes here, and most are the root's.
        let ledgers = if group.is_root() { None } else { memory.ledgers() };
        let Some(ledgers) = ledgers else { return Ok(ChargedPage { memory, tag: Tag::NONE }) };
        ledgers.charge(group, kind)?;
        Ok(ChargedPage { memory, tag: Tag::new(group, kind) })
    }

    /// The same, however much the kernel may charge: for some pages that come with one.
    pub fn anyway(memory: &'m dyn Memory, group: GroupId, kind: PageKind) -> Self {
        let tag = match memory.ledgers().filter(|_| !group.is_root()) {
            Some(ledgers) => {
                ledgers.known.lock().entry(group).or_default().add(kind);
                Tag::new(group, kind)
            }
            None => Tag::NONE,
        };
        ChargedPage { memory, tag }
    }

    /// The charge is for this frame, as long as it has a user here.
    #[inline]
    pub fn put_on(self, frame: Frame) {
        if self.tag != Tag::NONE {
            self.memory.set_tag(frame, self.tag);
        }
        core::mem::forget(self);
    }
}

impl Drop for ChargedPage<'_> {
    fn drop(&mut self) {
        if let Some(ledgers) = self.memory.ledgers().filter(|_| self.tag != Tag::NONE) {
            ledgers.uncharge(self.tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(5);

    #[test]
    fn a_kernel_charges_what_it_was_granted_and_gives_back_the_rest() {
        let ledgers = Ledgers::default();
        assert_eq!(ledgers.charge(GROUP, PageKind::File), Err(OverGroup));
        ledgers.grant(GROUP, 3);
        let charge = |kind| ledgers.charge(GROUP, kind).is_ok();
        assert!(charge(PageKind::File) && charge(PageKind::Anonymous) && charge(PageKind::File));
        assert!(!charge(PageKind::Shared));
        assert_eq!((ledgers.usage(&[GROUP]), ledgers.usage(&[GroupId(4)])), ([1, 2, 0], [0; 3]));
        ledgers.uncharge(Tag::new(GROUP, PageKind::File));
        assert!(ledgers.give_back(None).is_empty(), "it may need it soon");
        assert!(ledgers.give_back(Some(&[GroupId(4), GroupId(6)])).is_empty());
        assert_eq!(ledgers.give_back(Some(&[GROUP])), [GivenBack { group: GROUP, pages: 1, peak: 3, granted: 3 }]);
        assert!(!charge(PageKind::File));
        ledgers.uncharge(Tag::new(GROUP, PageKind::File));
        ledgers.uncharge(Tag::new(GROUP, PageKind::Anonymous));
        assert!(ledgers.has_surplus() && !ledgers.has_surplus());
        assert_eq!(ledgers.give_back(None), [GivenBack { group: GROUP, pages: 2, peak: 2, granted: 2 }]);
        assert!(ledgers.known.lock().is_empty());
    }

    #[test]
    fn a_tag_holds_any_group_and_kind() {
        for kind in [PageKind::Anonymous, PageKind::File, PageKind::Shared] {
            let tag = Tag::new(GroupId::MAX, kind);
            assert_eq!((tag.group(), tag.0 & 3), (GroupId::MAX, kind as u16));
        }
        assert_eq!(Tag::NONE.group(), GroupId::ROOT);
    }
}
