//! [`Paths`]: the one door for everything that takes a path name.
//!
//! An operation is a value, so that it runs the same way here or, sent whole in one message, on the
//! kernel that owns the file system where its walk begins. A starting directory (cwd, root, a dirfd) is an open file.
//! A walk that leaves that kernel's file systems says where it goes on, and nothing has been done ([`Onward`]).

use crate::{lease::Lease, File};
use abi::{Attributes, Caller, FileSystemInfo, PathOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno};
use messages::fs::{Continues, TreeMount, TreeOp};

/// A walk has come to a mount of another kernel, or has left one: the operation's [`Base`] says where it goes on. No program sees it.
pub(crate) const GOES_ON: Errno = Errno(542);

pub enum PathAnswer {
    Done,
    File(Arc<dyn File>),
    /// In boxes: each layer would move an answer as long as its longest.
    Attributes(Box<Attributes>),
    FileSystem(Box<FileSystemInfo>),
    Bytes(Vec<u8>),
    Number(i64),
    /// Nothing has been done: the walk goes on at another kernel.
    GoesOn(Box<GoesOn>),
}

/// Where a walk goes on that has come to where another kernel's tree begins.
pub struct GoesOn {
    /// The operation, as it was given.
    pub op: PathOp,
    pub onward: Box<Onward>,
}

/// The place and what is left of the path.
pub struct Onward {
    /// Of the operation's second path.
    pub second: bool,
    /// A directory of another kernel. None: the caller's root, which is not on this kernel.
    pub at: Option<Arc<dyn File>>,
    pub path: Vec<u8>,
    /// Symbolic links followed since the walk began on this kernel.
    pub links: u32,
    /// How many bytes at the end of the path that was given are left, if nothing else is.
    pub tail: Option<usize>,
}

/// Where an operation starts.
pub struct Base {
    /// The process's root directory (chroot).
    pub root: Arc<dyn File>,
    /// The process's root is another kernel's, and `root` is not it: no walk of this kernel ends there.
    pub root_is_elsewhere: bool,
    /// Directory for relative paths: the cwd or a dirfd.
    pub at: Arc<dyn File>,
    /// The same for the second path of Link and Rename; for Watch, the descriptor that collects the events.
    pub to: Option<Arc<dyn File>>,
    /// For another kernel, which may keep the answer: what it rests on is noted here.
    pub lease: Option<Arc<Lease>>,
    /// What was walked on other kernels before; None: it begins here.
    pub continues: Option<Continues>,
    /// Said by a walk that goes on at another kernel ([`GOES_ON`]).
    pub(crate) onward: Lock<Option<Box<Onward>>>,
}

impl Base {
    /// A walk of a program of this kernel.
    pub fn new(root: Arc<dyn File>, at: Arc<dyn File>) -> Base {
        Base { root, root_is_elsewhere: false, at, to: None, lease: None, continues: None, onward: Lock::new(None) }
    }
}

impl Clone for Base {
    fn clone(&self) -> Self {
        let Base { root, root_is_elsewhere, at, to, lease, continues, .. } = self;
        Base {
            root: root.clone(),
            root_is_elsewhere: *root_is_elsewhere,
            at: at.clone(),
            to: to.clone(),
            lease: lease.clone(),
            continues: *continues,
            onward: Lock::new(None),
        }
    }
}

/// How a program's walk goes on that has left the file systems of its kernel.
pub trait Onwards: Send + Sync {
    fn go_on<'a>(
        &'a self,
        caller: &'a Caller,
        base: &'a Base,
        goes_on: Box<GoesOn>,
    ) -> BoxFuture<'a, Result<PathAnswer>>;
}

pub trait Paths: Send + Sync {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>>;
    /// [`Paths::run`], but where the walk leaves the file systems of this kernel, `onwards` answers.
    fn run_onwards<'a>(
        &'a self,
        caller: &'a Caller,
        base: &'a Base,
        op: PathOp,
        _onwards: &'a dyn Onwards,
    ) -> BoxFuture<'a, Result<PathAnswer>> {
        self.run(caller, base, op)
    }
    /// The root directory of the machine, as a new process of the system starts with.
    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>>;
    /// Memory is short: cached names that nobody uses go, with their inodes.
    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        crate::file::ready(())
    }
    /// Mounts a file system for the owner of the root, which has a mount in its tree for it ([`super::elsewhere`]). Its topmost directory.
    fn mount_for<'a>(&'a self, _mount: TreeMount, _above: Arc<dyn File>) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        crate::file::ready(Err(Errno::ENODEV))
    }
    /// Does what the owner of the root wants to be done to what is mounted so; `entry` is the topmost directory.
    fn control_tree<'a>(&'a self, _entry: &'a Arc<dyn File>, _op: TreeOp) -> BoxFuture<'a, Result<()>> {
        crate::file::ready(Err(Errno::EINVAL))
    }
}
