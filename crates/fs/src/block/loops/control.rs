//! /dev/loop-control: makes and removes loop devices, and says which is free.

use super::{settings::request, Loops};
use crate::{
    anonymous::{Identity, StatusFlags},
    file::ready,
    namespace::{nodes, Location},
    Attributes, Caller, File, Kind, OpenFlags, SetAttributes, Whence,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, to_completion, BoxFuture, Errno};

/// MISC_MAJOR, LOOP_CTRL_MINOR.
pub const NUMBER: (u32, u32) = (10, 237);

pub struct LoopControl {
    loops: Arc<Loops>,
    flags: StatusFlags,
    inode: Identity,
    at: Location,
}

impl LoopControl {
    pub fn open(loops: &Arc<Loops>, flags: OpenFlags, at: &Location) -> Arc<LoopControl> {
        let inode = Identity::of((0, 6), u64::from(NUMBER.1), Kind::CharDevice as u32 | 0o660, (0, 0), NUMBER);
        Arc::new(LoopControl { loops: loops.clone(), flags: StatusFlags::new(flags), inode, at: at.clone() })
    }
}

impl File for LoopControl {
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        ready(Ok(0))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(nodes::attributes(Some(&self.at), &self.inode))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(nodes::set_attributes(Some(&self.at), &self.inode, caller, set))
    }

    fn ioctl<'a>(&'a self, _caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        let argument = data.first_chunk().map_or(0, |argument| i64::from_ne_bytes(*argument) as i32);
        let loops = self.loops.clone();
        let work = async move {
            let index = match request {
                request::CTL_ADD => loops.add(u32::try_from(argument).ok()).await?,
                request::CTL_REMOVE => {
                    let index = u32::try_from(argument).map_err(|_| Errno::EINVAL)?;
                    loops.remove(index).await?;
                    0
                }
                request::CTL_GET_FREE => loops.free().await?,
                _ => return Err(Errno::ENOSYS),
            };
            Ok(index.into())
        };
        // Not half, if the thread is killed.
        Box::pin(to_completion(&*self.loops.services.spawner, work))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(self.at.path())
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.at)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
