//! Who may do what with an inode: its mode, lists of rights, and other extended attributes.

use super::{
    errno,
    node::{time, Node},
    Shared,
};
use crate::{
    inode::acl::{Acl, AclKind, Acls},
    SetAttributes, Timestamp,
};
use abi::SetWhen;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use machine::{errno::Result, Errno};

const CAPABILITIES: &[u8] = b"security.capability";

/// What a program is told of an attribute that can't be.
fn name_error(name: &[u8], error: ext4::Error) -> Errno {
    match error {
        ext4::Error::Unsupported(_) if name.ends_with(b".") => Errno::EINVAL,
        error => errno(error),
    }
}

/// The lists of rights of an inode, and whether it has capabilities. ENOENT: it is not in use.
pub(super) async fn rights(shared: &Shared, number: u32) -> Result<(Acls, bool)> {
    let volume = &shared.volume;
    let names = volume.attributes(number).await.map_err(errno)?;
    let mut acls = Acls::default();
    for kind in AclKind::BOTH.into_iter().filter(|kind| names.iter().any(|name| name == kind.name())) {
        if let Some(value) = volume.attribute(number, kind.name()).await.map_err(errno)? {
            acls.set(kind, Acl::parse(&value)?.map(Arc::new));
        }
    }
    Ok((acls, names.iter().any(|name| name == CAPABILITIES)))
}

impl Node {
    /// See [`Inode::set`]. An ACL and the mode change together.
    pub(super) async fn set_attributes(&self, set: SetAttributes) -> Result<()> {
        if let Some(size) = set.size {
            self.resize(size).await?;
        }
        let now = self.now();
        let _telling = match &self.contents {
            Some((_, content)) => Some(content.telling().await),
            None => None,
        };
        let pending = self.contents.as_ref().and_then(|(_, content)| content.modified());
        let wanted = |wanted: Timestamp| time(if wanted == Timestamp::NOW { now } else { wanted });
        let access = self.acls.lock().get(AclKind::Access).cloned();
        let acl = match (set.mode, access) {
            (Some(mode), Some(acl)) => Some(Arc::new(acl.with_mode(mode)?)),
            _ => None,
        };
        let change = |inode: &mut ext4::Inode| {
            if let Some(mode) = set.mode {
                inode.mode = inode.mode & 0xf000 | (mode & 0o7777) as u16;
            }
            inode.uid = set.uid.unwrap_or(inode.uid);
            inode.gid = set.gid.unwrap_or(inode.gid);
            if let Some(modified) = pending {
                inode.modified = time(modified);
            }
            if set.size.is_some() {
                inode.modified = time(now);
            }
            inode.accessed = set.accessed.map_or(inode.accessed, wanted);
            inode.modified = set.modified.map_or(inode.modified, wanted);
            inode.changed = time(now);
        };
        let volume = &self.shared.volume;
        match acl {
            // The mode and the list change together.
            Some(acl) => {
                let (name, value) = (AclKind::Access.name(), acl.to_bytes()?);
                let (when, now) = (ext4::SetWhen::Always, time(now));
                volume.set_attribute(self.number, name, Some(&value), when, now, change).await.map_err(errno)?;
                self.acls.lock().set(AclKind::Access, Some(acl));
            }
            None => volume.change(self.number, change).await.map_err(errno)?,
        }
        self.changed();
        if let (Some((_, content)), Some(modified)) = (&self.contents, pending) {
            content.told(modified);
        }
        Ok(())
    }

    /// See [`Inode::xattr`].
    pub(super) async fn read_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.shared.volume.attribute(self.number, name).await.map_err(|error| name_error(name, error))?;
        value.ok_or(Errno::ENODATA)
    }

    /// See [`Inode::set_xattr`].
    pub(super) async fn write_xattr(&self, name: &[u8], value: Option<&[u8]>, when: SetWhen) -> Result<()> {
        let volume = &self.shared.volume;
        let allowed = match (when.present, when.missing) {
            (true, true) => ext4::SetWhen::Always,
            (true, false) => ext4::SetWhen::Present,
            (false, true) => ext4::SetWhen::Missing,
            (false, false) => {
                let value = volume.attribute(self.number, name).await.map_err(|error| name_error(name, error))?;
                return when.check(value.is_some());
            }
        };
        let set = volume.set_attribute(self.number, name, value, allowed, time(self.now()), |_| {}).await;
        if !set.map_err(|error| name_error(name, error))? {
            return match allowed {
                ext4::SetWhen::Missing => Err(Errno::EEXIST),
                ext4::SetWhen::Present => Err(Errno::ENODATA),
                ext4::SetWhen::Always => Ok(()),
            };
        }
        if name == CAPABILITIES {
            self.has_capabilities.store(value.is_some(), Relaxed);
        }
        self.changed();
        Ok(())
    }

    /// See [`Inode::set_acl`].
    pub(super) async fn write_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, mode: Option<u32>) -> Result<()> {
        let value = acl.as_ref().map(|acl| acl.to_bytes()).transpose()?;
        let change = |inode: &mut ext4::Inode| {
            if let Some(mode) = mode {
                inode.mode = inode.mode & 0xf000 | (mode & 0o7777) as u16;
            }
        };
        let (volume, now) = (&self.shared.volume, time(self.now()));
        let (name, when) = (kind.name(), ext4::SetWhen::Always);
        let set = volume.set_attribute(self.number, name, value.as_deref(), when, now, change).await;
        if !set.map_err(errno)? {
            // There was none; the mode may change all the same.
            volume.change(self.number, change).await.map_err(errno)?;
        }
        self.acls.lock().set(kind, acl);
        self.changed();
        Ok(())
    }
}
