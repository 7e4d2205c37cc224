//! Extended attributes and ACLs of a file of a tmpfs.
//!
//! They take room of the file system's account, a file's worth for each KiB of a file's attributes, as in Linux (BOGO_INODE_SIZE): who may
//! make files may not fill the memory beside them.

use crate::{
    inode::acl::{Acl, AclKind, Acls},
    SetWhen,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    collections::try_with_capacity,
    errno::Result,
    Errno,
};

/// Bytes of attributes for which a file system has a file less.
const BYTES_OF_FILE: usize = 1024;
/// What an attribute takes beside its name and value.
const OVERHEAD: usize = 96;
/// Bytes of all names of a file, each with a NUL behind it. Linux has no such bound, and tells the length of lists that nobody can read
/// (XATTR_LIST_MAX is 64 KiB).
const NAMES: usize = 1 << 20;
/// Names that are kept. An attribute must have more of a name than that.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const CAPABILITY: &[u8] = b"security.capability";

/// All of one file; in an allocation of its own, for few files have any.
#[derive(Default)]
pub(super) struct Xattrs(Option<Box<Kept>>);

struct Kept {
    values: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    acls: Acls,
    /// Bytes of the names in `values`, each with a NUL behind it.
    names: usize,
    /// What all of it takes.
    bytes: usize,
    charge: Charge,
}

/// What a change has replaced, to be dropped when nothing is locked.
#[derive(Default)]
pub(super) struct Replaced {
    _value: Option<(Vec<u8>, Arc<Vec<u8>>)>,
    _acl: Option<Arc<Acl>>,
    _all: Option<Box<Kept>>,
}

fn check_name(name: &[u8]) -> Result<()> {
    match PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = try_with_capacity(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl Kept {
    /// Charges for what it takes when `old` bytes have become `new`. ENOSPC.
    fn resize(&mut self, old: usize, new: usize) -> Result<()> {
        let bytes = self.bytes - old + new;
        let (before, after) = (self.bytes.div_ceil(BYTES_OF_FILE), bytes.div_ceil(BYTES_OF_FILE));
        match after.checked_sub(before) {
            Some(more) => self.charge.grow(more).map_err(|OverLimit| Errno::ENOSPC)?,
            None => self.charge.shrink(before - after),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Xattrs {
    fn kept(&mut self, account: &Arc<Account>) -> &mut Kept {
        self.0.get_or_insert_with(|| {
            let charge = account.nothing(Resource::Inodes);
            Box::new(Kept { values: BTreeMap::new(), acls: Acls::default(), names: 0, bytes: 0, charge })
        })
    }

    /// After a change that may have removed the last one.
    fn tidy(&mut self) -> Option<Box<Kept>> {
        self.0.take_if(|kept| kept.bytes == 0)
    }

    /// A value. ENODATA.
    pub fn get(&self, name: &[u8]) -> Result<Arc<Vec<u8>>> {
        check_name(name)?;
        let kept = self.0.as_ref().ok_or(Errno::ENODATA)?;
        kept.values.get(name).cloned().ok_or(Errno::ENODATA)
    }

    /// Whether there is `security.capability`.
    pub fn has_capabilities(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.values.contains_key(CAPABILITY))
    }

    /// All names in Linux's order: ACLs first, the others from the last to the first of the alphabet.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        let Some(kept) = &self.0 else { return Ok(Vec::new()) };
        let mut names = try_with_capacity(AclKind::BOTH.len() + kept.values.len())?;
        for kind in AclKind::BOTH.into_iter().filter(|kind| kept.acls.get(*kind).is_some()) {
            names.push(copied(kind.name())?);
        }
        for name in kept.values.keys().rev() {
            names.push(copied(name)?);
        }
        Ok(names)
    }

    /// See [`crate::Inode::set_xattr`]; charged to `account`.
    pub fn set(
        &mut self,
        account: &Arc<Account>,
        name: &[u8],
        value: Option<&[u8]>,
        when: SetWhen,
    ) -> Result<Replaced> {
        check_name(name)?;
        let size = |value: &[u8]| OVERHEAD + name.len() + value.len();
        let old = self.0.as_ref().and_then(|kept| kept.values.get(name)).map(|value| size(value));
        when.check(old.is_some())?;
        let names = self.0.as_ref().map_or(0, |kept| kept.names);
        if value.is_some() && old.is_none() && names + name.len() + 1 > NAMES {
            return Err(Errno::ENOSPC);
        }
        let mut replaced = Replaced::default();
        match value {
            Some(value) => {
                let (new_name, new_value) = (copied(name)?, Arc::new(copied(value)?));
                let kept = self.kept(account);
                match kept.resize(old.unwrap_or(0), size(value)) {
                    Ok(()) => {
                        replaced._value = kept.values.insert(new_name, new_value).map(|old| (Vec::new(), old));
                        kept.names += if old.is_none() { name.len() + 1 } else { 0 };
                    }
                    Err(error) => {
                        drop(self.tidy());
                        return Err(error);
                    }
                }
            }
            None => {
                if let Some(kept) = &mut self.0 {
                    replaced._value = kept.values.remove_entry(name);
                    kept.names -= replaced._value.as_ref().map_or(0, |(name, _)| name.len() + 1);
                    kept.resize(old.unwrap_or(0), 0)?;
                }
            }
        }
        replaced._all = self.tidy();
        Ok(replaced)
    }

    /// An ACL.
    pub fn acl(&self, kind: AclKind) -> Option<Arc<Acl>> {
        self.0.as_ref()?.acls.get(kind).cloned()
    }

    /// Replaces or removes an ACL.
    pub fn set_acl(&mut self, account: &Arc<Account>, kind: AclKind, acl: Option<Arc<Acl>>) -> Result<Replaced> {
        let size = |acl: Option<&Arc<Acl>>| acl.map_or(0, |acl| OVERHEAD + acl.size());
        if acl.is_none() && self.0.is_none() {
            return Ok(Replaced::default());
        }
        let kept = self.kept(account);
        let old = match kept.resize(size(kept.acls.get(kind)), size(acl.as_ref())) {
            Ok(()) => kept.acls.set(kind, acl),
            Err(error) => {
                drop(self.tidy());
                return Err(error);
            }
        };
        Ok(Replaced { _acl: old, _all: self.tidy(), ..Replaced::default() })
    }
}
