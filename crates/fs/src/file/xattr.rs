//! Extended attributes of what has no name: there are none.

use crate::{Caller, Kind};
use abi::{capability, XattrOp};
use alloc::vec::Vec;
use machine::{errno::Result, Errno};

/// What Linux answers for a pipe, a socket and their like.
pub(super) fn of_nameless(caller: &Caller, kind: Kind, op: &XattrOp) -> Result<Vec<u8>> {
    let (name, refused) = match op {
        XattrOp::List => return Ok(Vec::new()),
        XattrOp::Get { name } => (name, Errno::ENODATA),
        XattrOp::Set { name, .. } | XattrOp::Remove { name } => (name, Errno::EPERM),
    };
    let for_users = matches!(kind, Kind::Regular | Kind::Directory);
    let privileged = caller.credentials.can(capability::SYS_ADMIN);
    match () {
        _ if name.starts_with(b"user.") && !for_users => Err(refused),
        _ if name.starts_with(b"trusted.") && !privileged => Err(refused),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
