//! [`Paths`]: the one door for everything that takes a path name.
//!
//! An operation is a value, so that it runs the same way here or, sent whole in one message, on the
//! kernel that owns the root file system. A starting directory (cwd, root, a dirfd) is an open file.

use crate::{lease::Lease, File};
use abi::{Attributes, Caller, FileSystemInfo, PathOp};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, BoxFuture};

pub enum PathAnswer {
    Done,
    File(Arc<dyn File>),
    Attributes(Attributes),
    FileSystem(FileSystemInfo),
    Bytes(Vec<u8>),
    Number(i64),
}

/// Where an operation starts.
#[derive(Clone)]
pub struct Base {
    /// The process's root directory (chroot).
    pub root: Arc<dyn File>,
    /// Directory for relative paths: the cwd or a dirfd.
    pub at: Arc<dyn File>,
    /// The same for the second path of Link and Rename; for Watch, the descriptor that collects the events.
    pub to: Option<Arc<dyn File>>,
    /// For another kernel, which may keep the answer: what it rests on is noted here.
    pub lease: Option<Arc<Lease>>,
}

pub trait Paths: Send + Sync {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>>;
    /// The root directory of the machine, as a new process of the system starts with.
    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>>;
    /// Memory is short: cached names that nobody uses go, with their inodes. Only the kernel of the root has any.
    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        crate::file::ready(())
    }
}
