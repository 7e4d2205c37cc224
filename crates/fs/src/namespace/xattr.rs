//! Extended attributes and ACLs: who may read and change them, the same for all file systems (Linux: fs/xattr.c, fs/posix_acl.c and
//! security/commoncap.c).
//!
//! | name | who may read it | who may change it |
//! |---|---|---|
//! | `user.` of files and directories | who may read the file | who may write the file; in a sticky directory's own its owner |
//! | `trusted.` | CAP_SYS_ADMIN; others do not find it | CAP_SYS_ADMIN |
//! | `security.` | everybody | CAP_SYS_ADMIN; `security.capability`: CAP_SETFCAP |
//! | ACLs | everybody | the owner |

use super::{
    dentry::Location,
    permission::{self, READ, WRITE},
    walk::{attributes, Target},
    LocalPaths,
};
use crate::{
    file,
    inode::acl::{Acl, AclKind},
    inotify, lease, Base, Caller, Inode, Kind, SetAttributes,
};
use abi::{capability, SetWhen, XattrOp};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno};

const CAPABILITY: &[u8] = b"security.capability";

/// `struct vfs_cap_data`: bytes of its second version, and of the third, which ends with the root user of a user namespace.
const VERSION_2: (u8, usize) = (2, 20);
const VERSION_3: (u8, usize) = (3, 24);

/// A value of `security.capability` as it is kept. EINVAL: it is none.
fn check_capabilities(value: &mut Vec<u8>) -> Result<()> {
    // The version is in the highest byte of a little-endian number.
    match (value.get(3).copied().unwrap_or_default(), value.len()) {
        VERSION_2 => Ok(()),
        VERSION_3 => {
            // Those of the first user namespace's root are read as version 2.
            if value[VERSION_2.1..] == [0; 4] {
                value.truncate(VERSION_2.1);
                value[3] = VERSION_2.0;
            }
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// EPERM for what nobody may change (/proc/PID).
fn check_changeable(inode: &Arc<dyn Inode>) -> Result<()> {
    match inode.write_refused() {
        Some(Errno::EPERM) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

/// May `caller` read, or with `write` change, the attribute (xattr_permission)? What only some may do with `security.` is decided elsewhere.
async fn check(caller: &Caller, inode: &Arc<dyn Inode>, name: &[u8], write: bool) -> Result<()> {
    let refused = Err(if write { Errno::EPERM } else { Errno::ENODATA });
    let credentials = &caller.credentials;
    if write {
        check_changeable(inode)?;
    }
    if name.starts_with(b"security.") || name.starts_with(b"system.") {
        return Ok(());
    }
    if name.starts_with(b"trusted.") {
        return if credentials.can(capability::SYS_ADMIN) { Ok(()) } else { refused };
    }
    let now = attributes(inode).await?;
    if name.starts_with(b"user.") {
        match now.kind() {
            Kind::Regular => {}
            Kind::Directory if write && now.mode & permission::STICKY != 0 && !permission::owns(credentials, &now) => {
                return Err(Errno::EPERM);
            }
            Kind::Directory => {}
            _ => return refused,
        }
    }
    permission::may_use(credentials, inode, &now, if write { WRITE } else { READ })
}

/// May `caller` change this one of `security.`?
fn check_security(caller: &Caller, name: &[u8]) -> Result<()> {
    let needed = match name {
        CAPABILITY => capability::SETFCAP,
        _ if name.starts_with(b"security.") => capability::SYS_ADMIN,
        _ => return Ok(()),
    };
    match caller.credentials.can(needed) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

async fn list(caller: &Caller, inode: &Arc<dyn Inode>) -> Result<Vec<u8>> {
    let names = inode.xattrs().await?;
    let privileged = caller.credentials.can(capability::SYS_ADMIN);
    let shown = names.iter().filter(|name| privileged || !name.starts_with(b"trusted."));
    let mut list = Vec::new();
    for name in shown {
        list.try_reserve(name.len() + 1).map_err(|_| Errno::ENOMEM)?;
        list.extend_from_slice(name);
        list.push(0);
    }
    Ok(list)
}

async fn set(caller: &Caller, inode: &Arc<dyn Inode>, name: &[u8], mut value: Vec<u8>, when: SetWhen) -> Result<()> {
    if name == CAPABILITY && !value.is_empty() {
        check_capabilities(&mut value)?;
    }
    check(caller, inode, name, true).await?;
    check_security(caller, name)?;
    let _changing = lease::change(inode, &[lease::OWN]).await;
    inode.set_xattr(name, Some(&value), when).await
}

/// Sets a list, or removes it.
async fn set_acl(caller: &Caller, inode: &Arc<dyn Inode>, kind: AclKind, mut acl: Option<Acl>) -> Result<()> {
    check_changeable(inode)?;
    // Whether the file system has lists at all.
    inode.acl(kind)?;
    let now = attributes(inode).await?;
    if kind == AclKind::Default && now.kind() != Kind::Directory {
        return if acl.is_some() { Err(Errno::EACCES) } else { Ok(()) };
    }
    if !permission::owns(&caller.credentials, &now) {
        return Err(Errno::EPERM);
    }
    acl.as_ref().map_or(Ok(()), Acl::check)?;
    let mut mode = now.mode & 0o7777;
    if kind == AclKind::Access {
        if let Some((bits, is_all)) = acl.as_ref().map(Acl::mode) {
            mode = mode & !0o777 | bits;
            acl = acl.filter(|_| !is_all);
        }
        mode = permission::without_group_id(&caller.credentials, &now, mode);
    }
    let mode = Some(mode).filter(|mode| *mode != now.mode & 0o7777);
    let _changing = lease::change(inode, &[lease::OWN, lease::ACCESS]).await;
    inode.set_acl(kind, acl.map(Arc::new), mode).await
}

/// Does `op` to the file at `at`. Get answers the value, List the names with a NUL behind each.
pub(super) async fn run(caller: &Caller, at: &Location, op: XattrOp) -> Result<Vec<u8>> {
    let inode = at.inode();
    let done = |()| Vec::new();
    let changed = match op {
        XattrOp::List => return list(caller, inode).await,
        XattrOp::Get { name } => {
            if let Some(kind) = AclKind::of_name(&name) {
                return inode.acl(kind)?.ok_or(Errno::ENODATA)?.to_bytes();
            }
            check(caller, inode, &name, false).await?;
            return inode.xattr(&name).await;
        }
        XattrOp::Set { name, value, when } => {
            at.mount.check_writable()?;
            match AclKind::of_name(&name) {
                Some(kind) => set_acl(caller, inode, kind, Acl::parse(&value)?).await,
                None => set(caller, inode, &name, value, when).await,
            }
        }
        XattrOp::Remove { name } => {
            at.mount.check_writable()?;
            match AclKind::of_name(&name) {
                Some(kind) => set_acl(caller, inode, kind, None).await,
                None => {
                    check(caller, inode, &name, true).await?;
                    check_security(caller, &name)?;
                    let _changing = lease::change(inode, &[lease::OWN]).await;
                    inode.set_xattr(&name, None, SetWhen::PRESENT).await
                }
            }
        }
    };
    if changed.is_ok() {
        at.dentry.tell(inotify::ATTRIB);
    }
    changed.map(done)
}

impl LocalPaths {
    /// getxattr(2) and its kin.
    pub(super) async fn xattr(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        follow: bool,
        op: &mut XattrOp,
    ) -> Result<Vec<u8>> {
        let found = self.target(caller, base, path, follow, false).await?;
        // The walk does not go on elsewhere: nobody wants the operation any more.
        let op = core::mem::replace(op, XattrOp::List);
        match found {
            Target::At(location) => run(caller, &location, op).await,
            Target::File(file) => {
                let answer = file.xattr(caller, op).await;
                file::close(file).await;
                answer
            }
        }
    }
}

/// A file that is written, cut off or given to another user loses the capabilities that programs get which execute it.
pub(super) async fn drop_capabilities(inode: &Arc<dyn Inode>) -> Result<()> {
    match inode.has_capabilities() {
        true => inode.set_xattr(CAPABILITY, None, SetWhen::ALWAYS).await,
        false => Ok(()),
    }
}

/// The same if `set` is such a change.
pub(super) async fn drop_by(inode: &Arc<dyn Inode>, set: &SetAttributes) -> Result<()> {
    match set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
        true if inode.kind() != Kind::Directory => drop_capabilities(inode).await,
        _ => Ok(()),
    }
}
