//! System calls about files: descriptors, data, names, attributes, readiness.
//!
//! One file per family. A call checks its arguments in Linux's order, turns them into an operation of
//! [`fs::File`] or [`fs::PathOp`], and writes the answer to user memory. Where a file lives, and who may do
//! what with it, is not known here.

pub(crate) mod access;
pub(crate) mod attributes;
pub(crate) mod descriptor;
pub(crate) mod directory;
pub(crate) mod epoll;
pub(crate) mod event;
pub(crate) mod fcntl;
pub(crate) mod inotify;
pub(crate) mod ioctl;
pub(crate) mod mount;
pub(crate) mod name;
pub(crate) mod open;
pub(crate) mod pipe;
pub(crate) mod poll;
pub(crate) mod read;
pub(crate) mod room;
pub(crate) mod select;
pub(crate) mod sigio;
pub(crate) mod signalfd;
pub(crate) mod socket;
pub(crate) mod splice;
pub(crate) mod stat;
pub(crate) mod storage;
pub(crate) mod transfer;
pub(crate) mod vector;
pub(crate) mod vmsplice;
pub(crate) mod write;
pub(crate) mod xattr;

use crate::call::{Call, AT_FDCWD};
use abi::signal::{Signal, SignalInfo};
use alloc::sync::Arc;
use core::future::Future;
use fs::{Base, File, PathAnswer, PathOp};
use machine::{errno::Result, Errno};

pub(crate) const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
pub(crate) const AT_SYMLINK_FOLLOW: u64 = 0x400;
pub(crate) const AT_EMPTY_PATH: u64 = 0x1000;
/// A hint about automounts, of which there are none.
pub(crate) const AT_NO_AUTOMOUNT: u64 = 0x800;

impl Call<'_> {
    /// Where `path` starts if it is relative to `fd`; an absolute path does not look at `fd` at all.
    pub(crate) async fn base_of(&self, fd: i32, path: &[u8]) -> Result<Base> {
        let (root, at) = self.root_and_start(if path.first() == Some(&b'/') { AT_FDCWD } else { fd }).await?;
        Ok(Base::new(root, at))
    }

    /// Runs an operation on the one path it names. Not interruptible: half a rename cannot be repeated.
    pub(crate) async fn at_path(&self, fd: i32, path: &[u8], op: PathOp) -> Result<PathAnswer> {
        let base = self.base_of(fd, path).await?;
        self.system().paths.run(&self.caller(), &base, op).await
    }

    /// Waits for an operation on `file`: interruptible where it may wait for others (pipes, terminals,
    /// sockets), only by the end of the thread where it waits for a disk's equal (regular files).
    pub(crate) async fn wait_for<T>(&self, file: &Arc<dyn File>, wait: impl Future<Output = Result<T>>) -> Result<T> {
        match file.changes() {
            Some(_) => self.interruptible(wait).await,
            None => self.thread.unless_killed(wait).await.unwrap_or(Err(Errno::EINTR)),
        }
    }

    /// Sends the thread a signal that its own call has caused (SIGPIPE, SIGXFSZ).
    pub(crate) async fn signal_self(&self, signal: Signal) {
        let process = self.process().id;
        let uid = self.thread.state.lock().credentials.uid;
        let info = SignalInfo::user(signal, SignalInfo::SI_USER, process, uid);
        // The thread is alive: it is making this call.
        let _ = Arc::clone(self.system()).signal_thread(Some(process), self.thread.tid, Some(info), None).await;
    }
}

/// EINVAL if `flags` has bits that `known` lacks.
pub(crate) fn check_flags(flags: u64, known: u64) -> Result<()> {
    // An int argument: the register's high half is not looked at.
    match flags as u32 & !(known as u32) {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// A device number as programs see it (Linux's new_encode_dev).
pub(crate) fn encode_device((major, minor): (u32, u32)) -> u64 {
    u64::from(minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12)
}

/// The reverse (new_decode_dev).
pub(crate) fn decode_device(device: u64) -> (u32, u32) {
    let device = device as u32;
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_way_to_programs_and_back() {
        for device in [(1, 3), (5, 0), (136, 300), (0, 0xf_ffff), (0xfff, 0xff)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device((5, 1)), 0x501);
    }
}
