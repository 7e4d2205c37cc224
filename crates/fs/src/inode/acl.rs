//! Access control lists (man 5 acl): who may do what beyond owner, group and all others.
//!
//! A file has up to two. Its access list says who may use the file, and belongs together with the mode: the mode's bits of the owner and
//! of all others are those of the list, and the mode's bits of the group are the list's mask, which bounds what users and groups in the list
//! may do. A list that says no more than a mode can say becomes the mode, and is not kept. A directory's default list is what files made in
//! it begin with.

use crate::{Attributes, Credentials};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    collections::{try_filled, try_with_capacity},
    errno::Result,
    Errno,
};

/// Version of the form that system calls have (POSIX_ACL_XATTR_VERSION).
const VERSION: u32 = 2;
/// Bytes of an entry in that form, and of the version before all entries.
const ENTRY: usize = 8;
const HEADER: usize = 4;
/// The id in entries that name nobody.
const NOBODY: u32 = u32::MAX;

/// Which of a file's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// `system.posix_acl_access`.
    Access,
    /// `system.posix_acl_default`.
    Default,
}

impl AclKind {
    /// Both, in the order in which they are listed.
    pub const BOTH: [AclKind; 2] = [AclKind::Access, AclKind::Default];

    /// The name of the extended attribute.
    pub fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The list that an extended attribute is; None: it is none.
    pub fn of_name(name: &[u8]) -> Option<AclKind> {
        AclKind::BOTH.into_iter().find(|kind| kind.name() == name)
    }
}

/// Whom an entry is about, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    who: Who,
    /// READ, WRITE and EXEC as in a mode.
    permissions: u16,
}

/// A list. [`Acl::check`] says whether its entries are all there and in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// A list as a program gives it. None: the list is empty, which removes one.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, bytes) = value.split_first_chunk::<HEADER>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if !bytes.len().is_multiple_of(ENTRY) {
            return Err(Errno::EINVAL);
        }
        let mut entries = try_with_capacity(bytes.len() / ENTRY)?;
        for entry in bytes.chunks_exact(ENTRY) {
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            let id = u32::from(half(4)) | u32::from(half(6)) << 16;
            let who = match half(0) {
                0x01 => Who::Owner,
                0x02 if id != NOBODY => Who::User(id),
                0x04 => Who::OwningGroup,
                0x08 if id != NOBODY => Who::Group(id),
                0x10 => Who::Mask,
                0x20 => Who::Others,
                _ => return Err(Errno::EINVAL),
            };
            entries.push(Entry { who, permissions: half(2) });
        }
        Ok((!entries.is_empty()).then_some(Acl { entries }))
    }

    /// As [`Acl::parse`] takes it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = try_with_capacity(HEADER + ENTRY * self.entries.len())?;
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for Entry { who, permissions } in &self.entries {
            let (tag, id): (u16, u32) = match who {
                Who::Owner => (0x01, NOBODY),
                Who::User(id) => (0x02, *id),
                Who::OwningGroup => (0x04, NOBODY),
                Who::Group(id) => (0x08, *id),
                Who::Mask => (0x10, NOBODY),
                Who::Others => (0x20, NOBODY),
            };
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        Ok(bytes)
    }

    /// EINVAL unless the list is owner, users, owning group, groups, mask, others, in this order, each there that must be.
    pub fn check(&self) -> Result<()> {
        // The next one that must come, or may come more than once.
        #[derive(PartialEq)]
        enum Next {
            Owner,
            Users,
            Groups,
            Others,
            End,
        }
        let (mut next, mut needs_mask) = (Next::Owner, false);
        for entry in &self.entries {
            next = match (entry.who, next) {
                _ if entry.permissions > 7 => return Err(Errno::EINVAL),
                (Who::Owner, Next::Owner) => Next::Users,
                (Who::User(_), Next::Users) => {
                    needs_mask = true;
                    Next::Users
                }
                (Who::OwningGroup, Next::Users) => Next::Groups,
                (Who::Group(_), Next::Groups) => {
                    needs_mask = true;
                    Next::Groups
                }
                (Who::Mask, Next::Groups) => Next::Others,
                (Who::Others, Next::Others) => Next::End,
                (Who::Others, Next::Groups) if !needs_mask => Next::End,
                _ => return Err(Errno::EINVAL),
            };
        }
        match next {
            Next::End => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Bytes that it takes in memory.
    pub fn size(&self) -> usize {
        core::mem::size_of::<Acl>() + self.entries.len() * core::mem::size_of::<Entry>()
    }

    /// The permission bits of a mode that the list stands for, and whether they say all that the list does.
    pub fn mode(&self) -> (u32, bool) {
        let (mut mode, mut is_all) = (0, true);
        for Entry { who, permissions } in &self.entries {
            let permissions = u32::from(*permissions);
            match who {
                Who::Owner => mode |= permissions << 6,
                Who::OwningGroup => mode |= permissions << 3,
                Who::Others => mode |= permissions,
                // Behind the owning group, whose bits it replaces.
                Who::Mask => (mode, is_all) = (mode & !0o070 | permissions << 3, false),
                Who::User(_) | Who::Group(_) => is_all = false,
            }
        }
        (mode, is_all)
    }

    /// The list after a chmod.
    pub fn with_mode(&self, mode: u32) -> Result<Acl> {
        self.with_bits(|shift, _| mode >> shift & 7)
    }

    /// What a file of `mode` begins with in a directory whose default list this is: its access list, and the rest of its mode.
    pub fn inherited(&self, mode: u32) -> Result<(Acl, u32)> {
        let list = self.with_bits(|shift, permissions| permissions & mode >> shift)?;
        let (bits, _) = list.mode();
        Ok((list, mode & !0o777 | bits))
    }

    /// A copy whose three entries that belong to the mode say what `new` makes of them. It is given their place in a mode, and what they said.
    fn with_bits(&self, new: impl Fn(u32, u32) -> u32) -> Result<Acl> {
        let has_mask = self.entries.iter().any(|entry| entry.who == Who::Mask);
        let mut entries = try_filled(self.entries.len(), Entry { who: Who::Owner, permissions: 0 })?;
        for (entry, old) in entries.iter_mut().zip(&self.entries) {
            let shift = match old.who {
                Who::Owner => Some(6),
                Who::Mask => Some(3),
                Who::OwningGroup if !has_mask => Some(3),
                Who::Others => Some(0),
                _ => None,
            };
            let permissions = shift.map_or(old.permissions, |shift| new(shift, old.permissions.into()) as u16);
            *entry = Entry { who: old.who, permissions };
        }
        Ok(Acl { entries })
    }

    /// Whether the list allows `want` (READ, WRITE, EXEC of [`crate::namespace::permission`]) to somebody who does not own the file.
    pub fn allows(&self, credentials: &Credentials, attributes: &Attributes, want: u32) -> bool {
        let mask =
            self.entries.iter().find(|entry| entry.who == Who::Mask).map_or(7, |mask| u32::from(mask.permissions));
        let in_group = |gid: u32| credentials.fsgid == gid || credentials.groups.contains(&gid);
        let mut in_some = false;
        for Entry { who, permissions } in &self.entries {
            let permissions = u32::from(*permissions);
            let in_this = match who {
                Who::User(uid) if *uid == credentials.fsuid => return want & !(permissions & mask) == 0,
                Who::OwningGroup => in_group(attributes.gid),
                Who::Group(gid) => in_group(*gid),
                // Whoever is in a group of the list is no other.
                Who::Others => return !in_some && want & !permissions == 0,
                _ => false,
            };
            in_some |= in_this;
            if in_this && want & !permissions == 0 {
                return want & !mask == 0;
            }
        }
        false
    }
}

/// Both lists of a file.
#[derive(Default)]
pub struct Acls([Option<Arc<Acl>>; 2]);

impl Acls {
    /// One of them.
    pub fn get(&self, kind: AclKind) -> Option<&Arc<Acl>> {
        self.0[kind as usize].as_ref()
    }

    /// Replaces one; the old one.
    pub fn set(&mut self, kind: AclKind, acl: Option<Arc<Acl>>) -> Option<Arc<Acl>> {
        core::mem::replace(&mut self.0[kind as usize], acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::parse(&bytes(entries)).unwrap().unwrap()
    }

    const FULL: [(u16, u16, u32); 7] =
        [(1, 7, NOBODY), (2, 6, 7), (2, 1, 8), (4, 4, NOBODY), (8, 3, 50), (16, 6, NOBODY), (32, 0, NOBODY)];

    #[test]
    fn a_list_is_read_and_written() {
        let full = list(&FULL);
        assert_eq!((full.to_bytes(), full.check(), full.mode()), (Ok(bytes(&FULL)), Ok(()), (0o760, false)));
        let plain = list(&[(1, 6, 3), (4, 4, 3), (32, 4, 3)]);
        assert_eq!((plain.check(), plain.mode()), (Ok(()), (0o644, true)));
        // Ids that name nobody are not kept.
        assert_eq!(plain.to_bytes().unwrap()[8..12], [0xff; 4]);
        assert_eq!((Acl::parse(b""), Acl::parse(&bytes(&[]))), (Ok(None), Ok(None)));
        assert_eq!(Acl::parse(b"\x02"), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(b"\x01\0\0\0"), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::parse(b"\x02\0\0\0xx"), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&bytes(&[(3, 0, 0)])), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&bytes(&[(2, 0, NOBODY)])), Err(Errno::EINVAL));
    }

    #[test]
    fn a_list_must_be_whole_and_in_order() {
        for missing in [0, 3, 5, 6] {
            let mut entries = FULL.to_vec();
            entries.remove(missing);
            assert_eq!(list(&entries).check(), Err(Errno::EINVAL), "{missing}");
        }
        for swapped in 0..6 {
            let mut entries = FULL.to_vec();
            entries.swap(swapped, swapped + 1);
            // Users may be in any order.
            assert_eq!(list(&entries).check().is_ok(), swapped == 1, "{swapped}");
        }
        assert_eq!(list(&[(1, 8, 0), (4, 0, 0), (32, 0, 0)]).check(), Err(Errno::EINVAL));
        assert_eq!(list(&[(1, 7, 0), (4, 0, 0), (32, 0, 0), (32, 0, 0)]).check(), Err(Errno::EINVAL));
    }

    #[test]
    fn a_mode_changes_the_list_and_bounds_what_is_inherited() {
        let changed = list(&FULL).with_mode(0o4531).unwrap();
        let mut expected = FULL;
        (expected[0].1, expected[5].1, expected[6].1) = (5, 3, 1);
        assert_eq!(changed, list(&expected));
        let (access, mode) = list(&FULL).inherited(0o2664).unwrap();
        (expected[0].1, expected[5].1, expected[6].1) = (6, 6, 0);
        assert_eq!((access, mode), (list(&expected), 0o2660));
        let plain = list(&[(1, 7, 0), (4, 5, 0), (32, 5, 0)]);
        assert_eq!(plain.inherited(0o666).unwrap().1, 0o644);
        assert_eq!(plain.with_mode(0o610).unwrap(), list(&[(1, 6, 0), (4, 1, 0), (32, 0, 0)]));
    }

    #[test]
    fn users_and_groups_of_the_list_may_what_the_mask_leaves() {
        let full = list(&FULL);
        let attributes = Attributes {
            dev: (0, 0),
            ino: 1,
            mode: Kind::Regular as u32 | 0o760,
            nlink: 1,
            uid: 1,
            gid: 40,
            rdev: (0, 0),
            size: 0,
            block_size: 4096,
            blocks: 0,
            accessed: Default::default(),
            modified: Default::default(),
            changed: Default::default(),
        };
        let mut who = crate::testing::user(1, 9).credentials;
        who.fsgid = 99;
        let mut may = |uid, groups: &[u32], want| {
            who.fsuid = uid;
            who.groups = groups.to_vec();
            full.allows(&who, &attributes, want)
        };
        assert_eq!([6, 7, 1].map(|want| may(7, &[], want)), [true, false, false]);
        assert_eq!([1, 4].map(|want| may(8, &[50], want)), [false, false], "the mask, and no group beside the user");
        assert_eq!([4, 2, 6].map(|want| may(9, &[40], want)), [true, false, false]);
        assert_eq!([2, 1, 4].map(|want| may(9, &[50], want)), [true, false, false]);
        // No single group allows both.
        assert!(!may(9, &[40, 50], 6));
        assert!(!may(9, &[], 4) && may(9, &[], 0));
    }
}
