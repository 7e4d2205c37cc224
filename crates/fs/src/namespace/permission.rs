//! Who may do what (man 7 path_resolution, "Permissions").

use crate::{Attributes, Caller, Credentials, Inode, Kind, SetAttributes};
use abi::capability;
use alloc::sync::Arc;
use machine::{errno::Result, Errno};

pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const EXEC: u32 = 1;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

fn in_group(credentials: &Credentials, gid: u32) -> bool {
    credentials.fsgid == gid || credentials.groups.contains(&gid)
}

/// Tests `want` (of READ, WRITE, EXEC) against the mode bits.
pub fn may(credentials: &Credentials, attributes: &Attributes, want: u32) -> Result<()> {
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
    let shift = match () {
        _ if credentials.fsuid == attributes.uid => 6,
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
        _ => may(credentials, now, want),
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

/// Mode and group of a new file in `directory`: set-group-id directories hand theirs down.
pub fn inherit(caller: &Caller, directory: &Attributes, kind: Kind, mode: u32) -> (u32, u32) {
    let mode = mode & 0o7777 & !caller.umask;
    if directory.mode & SETGID == 0 {
        return (mode, caller.credentials.fsgid);
    }
    match kind {
        Kind::Directory => (mode | SETGID, directory.gid),
        _ => (mode, directory.gid),
    }
}

/// Checks chmod, chown, utimensat and truncate, and adds what they bring with them: the set-id bits
/// that fall (man 2 chown, "when the owner or group of an executable file is changed").
pub fn check_set(
    caller: &Caller,
    now: &Attributes,
    mut set: SetAttributes,
    by_descriptor: bool,
) -> Result<SetAttributes> {
    let credentials = &caller.credentials;
    let owns = credentials.fsuid == now.uid;
    let owner = owns || credentials.can(capability::FOWNER);
    if set.mode.is_some() {
        if !owner {
            return Err(Errno::EPERM);
        }
        if !in_group(credentials, now.gid) && !credentials.can(capability::FSETID) {
            set.mode = set.mode.map(|mode| mode & !SETGID);
        }
    }
    if set.uid.is_some() || set.gid.is_some() {
        let uid_kept = set.uid.is_none_or(|uid| uid == now.uid);
        let gid_own = set.gid.is_none_or(|gid| gid == now.gid || in_group(credentials, gid));
        if !(credentials.can(capability::CHOWN) || owns && uid_kept && gid_own) {
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
        may(credentials, now, WRITE)?;
    }
    if set.size.is_some() {
        match now.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if !by_descriptor {
            may(credentials, now, WRITE)?;
        }
    }
    Ok(set)
}
