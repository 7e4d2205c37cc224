//! pidfd_open(2): a descriptor for a process, readable once it has ended. Whoever makes it says when.

use crate::{
    anonymous::{Identity, StatusFlags},
    control::{Control, ControlAnswer},
    file::ready,
    Attributes, Caller, Events, File, OpenFlags,
};
use alloc::{sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno, Pid};

pub struct PidFd {
    process: Pid,
    ended: AtomicBool,
    flags: StatusFlags,
    inode: Identity,
    changes: WaitQueue,
}

impl PidFd {
    pub fn new(process: Pid, flags: OpenFlags) -> Arc<Self> {
        Arc::new(PidFd {
            process,
            ended: AtomicBool::new(false),
            flags: StatusFlags::new(flags | OpenFlags::RDWR),
            inode: Identity::untyped(),
            changes: WaitQueue::new(),
        })
    }

    pub fn process(&self) -> Pid {
        self.process
    }

    /// The process has ended.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        self.changes.wake_all();
    }
}

impl File for PidFd {
    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(match control {
            Control::Process => Ok(ControlAnswer::Number(i64::from(self.process.0))),
            _ => Err(Errno::EINVAL),
        })
    }

    fn poll(&self) -> Events {
        match self.ended.load(SeqCst) {
            true => Events::IN | Events::RDNORM,
            false => Events::empty(),
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[pidfd]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn it_is_readable_to_poll_once_the_process_has_ended_but_has_no_bytes() {
        let file = PidFd::new(Pid(7), OpenFlags::NONBLOCK);
        assert_eq!((file.poll(), file.flags().contains(OpenFlags::NONBLOCK)), (Events::empty(), true));
        let mut wait = core::pin::pin!(file.changes.wait_until(|| (!file.poll().is_empty()).then_some(())));
        assert!(once(wait.as_mut()).is_none());
        file.end();
        assert!(once(wait.as_mut()).is_some());
        assert_eq!(block_on(file.read(&mut [0; 8])), Err(Errno::EINVAL));
    }
}
