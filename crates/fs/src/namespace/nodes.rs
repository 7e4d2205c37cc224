//! Devices and fifos that were opened by a name: they answer stat, chmod and /proc/PID/fd as the node does,
//! so that ttyname(3) and `test -ef` find that they are the same.

use crate::{
    anonymous::Identity,
    namespace::{permission::check_set, Location},
    Attributes, Caller, SetAttributes,
};
use machine::errno::Result;

pub(crate) async fn attributes(at: Option<&Location>, identity: &Identity) -> Result<Attributes> {
    match at {
        Some(at) => at.inode().attributes().await,
        None => Ok(identity.attributes()),
    }
}

pub(crate) async fn set_attributes(
    at: Option<&Location>,
    identity: &Identity,
    caller: &Caller,
    set: SetAttributes,
) -> Result<()> {
    let Some(at) = at else { return identity.set(caller, set) };
    at.mount.check_writable()?;
    let now = at.inode().attributes().await?;
    let set = check_set(caller, at.inode(), &now, set, true)?;
    at.inode().set(set).await
}
