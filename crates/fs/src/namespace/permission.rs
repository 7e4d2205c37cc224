//! Who may do what (man 7 path_resolution, "Permissions").

use crate::{
    inode::acl::{Acl, AclKind},
    Attributes, Caller, Credentials, Inode, Kind, SetAttributes,
};
use abi::capability;
use alloc::sync::Arc;
use machine::{errno::Result, Errno};

pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const EXEC: u32 = 1;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
pub(super) const STICKY: u32 = 0o1000;

fn in_group(credentials: &Credentials, gid: u32) -> bool {
    credentials.fsgid == gid || credentials.groups.contains(&gid)
}

/// Tests `want` (of READ, WRITE, EXEC) against the mode bits.
pub fn may(credentials: &Credentials, attributes: &Attributes, want: u32) -> Result<()> {
    may_with(credentials, attributes, || None, want)
}

/// The same with the access list of `inode`, whose attributes are `now`.
pub(super) fn may_on(credentials: &Credentials, inode: &Arc<dyn Inode>, now: &Attributes, want: u32) -> Result<()> {
    may_with(credentials, now, || inode.acl(AclKind::Access).ok().flatten(), want)
}

/// `acl` is asked for the access list if it matters. The owner's rights are those of the mode; without a bit for the group the list's mask
/// leaves nobody anything.
fn may_with(
    credentials: &Credentials,
    attributes: &Attributes,
    acl: impl FnOnce() -> Option<Arc<Acl>>,
    want: u32,
) -> Result<()> {
    let mode = attributes.mode;
    if credentials.can(capability::DAC_OVERRIDE) {
        // CAP_DAC_OVERRIDE: all, but execution needs some execute bit.
        let blocked = want & EXEC != 0 && attributes.kind() != Kind::Directory && mode & 0o111 == 0;
        return if blocked { Err(Errno::EACCES) } else { Ok(()) };
    }
    let reads = want == READ || attributes.kind() == Kind::Directory && want & WRITE == 0;
    if reads && credentials.can(capability::DAC_READ_SEARCH) {
        return Ok(());
    }
    let owns = credentials.fsuid == attributes.uid;
    if !owns
        && mode & 0o070 != 0
        && let Some(acl) = acl()
    {
        return if acl.allows(credentials, attributes, want) { Ok(()) } else { Err(Errno::EACCES) };
    }
    let shift = match () {
        _ if owns => 6,
        _ if in_group(credentials, attributes.gid) => 3,
        _ => 0,
    };
    match want & !(mode >> shift & 7) {
        0 => Ok(()),
        _ => Err(Errno::EACCES),
    }
}

/// May it be read, as far as its mode says?
pub fn may_read(credentials: &Credentials, attributes: &Attributes) -> bool {
    may(credentials, attributes, READ).is_ok()
}

/// The same of `inode`, whose attributes are `now`.
pub fn may_use(credentials: &Credentials, inode: &Arc<dyn Inode>, now: &Attributes, want: u32) -> Result<()> {
    match inode.write_refused() {
        Some(error) if want & WRITE != 0 => Err(error),
        _ => may_on(credentials, inode, now, want),
    }
}

/// Owns the file, or may do what only owners may.
pub(super) fn owns(credentials: &Credentials, now: &Attributes) -> bool {
    credentials.fsuid == now.uid || credentials.can(capability::FOWNER)
}

/// A new mode without the set-group-id bit, if it is not for these to set.
pub(super) fn without_group_id(credentials: &Credentials, now: &Attributes, mode: u32) -> u32 {
    match in_group(credentials, now.gid) || credentials.can(capability::FSETID) {
        true => mode,
        false => mode & !SETGID,
    }
}

/// May the name of `node` be taken out of `directory` (its sticky bit)?
pub fn may_remove(credentials: &Credentials, directory: &Attributes, node: &Attributes) -> Result<()> {
    let bound = directory.mode & STICKY != 0
        && credentials.fsuid != node.uid
        && credentials.fsuid != directory.uid
        && !credentials.can(capability::FOWNER);
    if bound {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// What a new file begins with.
pub(super) struct Start {
    pub mode: u32,
    pub gid: u32,
    access: Option<Arc<Acl>>,
    default: Option<Arc<Acl>>,
}

impl Start {
    /// Gives the new file the lists it begins with.
    pub async fn give(self, inode: &Arc<dyn Inode>) -> Result<()> {
        for (kind, acl) in [(AclKind::Access, self.access), (AclKind::Default, self.default)] {
            if acl.is_some() {
                inode.set_acl(kind, acl, None).await?;
            }
        }
        Ok(())
    }
}

/// What a new file in directory `above`, whose attributes are `now`, begins with: set-group-id directories hand their group down, and a
/// default list takes the place of the umask.
pub(super) fn inherit(
    caller: &Caller,
    above: &Arc<dyn Inode>,
    now: &Attributes,
    kind: Kind,
    mode: u32,
) -> Result<Start> {
    let mut start = Start { mode: mode & 0o7777, gid: caller.credentials.fsgid, access: None, default: None };
    match above.acl(AclKind::Default).ok().flatten().filter(|_| kind != Kind::Symlink) {
        Some(default) => {
            let (access, mode) = default.inherited(start.mode)?;
            start.access = (!access.mode().1).then(|| Arc::new(access));
            start.default = (kind == Kind::Directory).then_some(default);
            start.mode = mode;
        }
        None => start.mode &= !caller.umask,
    }
    if now.mode & SETGID != 0 {
        start.gid = now.gid;
        if kind == Kind::Directory {
            start.mode |= SETGID;
        }
    }
    Ok(start)
}

/// Checks chmod, chown, utimensat and truncate, and adds what they bring with them: the set-id bits
/// that fall (man 2 chown, "when the owner or group of an executable file is changed").
pub fn check_set(
    caller: &Caller,
    inode: &Arc<dyn Inode>,
    now: &Attributes,
    mut set: SetAttributes,
    by_descriptor: bool,
) -> Result<SetAttributes> {
    let credentials = &caller.credentials;
    let (is_own, owner) = (credentials.fsuid == now.uid, owns(credentials, now));
    if set.mode.is_some() {
        if !owner {
            return Err(Errno::EPERM);
        }
        set.mode = set.mode.map(|mode| without_group_id(credentials, now, mode));
    }
    if set.uid.is_some() || set.gid.is_some() {
        let uid_kept = set.uid.is_none_or(|uid| uid == now.uid);
        let gid_own = set.gid.is_none_or(|gid| gid == now.gid || in_group(credentials, gid));
        if !(credentials.can(capability::CHOWN) || is_own && uid_kept && gid_own) {
            return Err(Errno::EPERM);
        }
        if now.kind() != Kind::Directory && now.mode & (SETUID | SETGID) != 0 {
            let mut mode = set.mode.unwrap_or(now.mode & 0o7777) & !SETUID;
            if mode & 0o010 != 0 {
                mode &= !SETGID;
            }
            set.mode = Some(mode);
        }
    }
    let times = [set.accessed, set.modified];
    if times.iter().any(Option::is_some) && !owner {
        let only_now = times.iter().all(|time| *time == Some(crate::Timestamp::NOW));
        if !only_now {
            return Err(Errno::EPERM);
        }
        may_on(credentials, inode, now, WRITE)?;
    }
    if set.size.is_some() {
        match now.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if !by_descriptor {
            may_on(credentials, inode, now, WRITE)?;
        }
    }
    Ok(set)
}
