//! What a file has to say across kernels: when it is read here and lives there, or lives here and is watched there. Crate `fs` has
//! implementations for files of this kernel beside each kind of file, and those for files of others in [`crate::remote`].

use super::{control::EpollInterest, File};
use abi::{signal::SignalSet, Caller, FileRef};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{errno::Result, BoxFuture};
use messages::fs::Readiness;

/// A signalfd as a process, or one thread of it, polls it. It does not keep the file open.
pub trait SignalView: File {
    /// Which signals it is for.
    fn wanted(&self) -> SignalSet;
    /// The same view, for these signals.
    fn only(&self, wanted: SignalSet) -> Arc<dyn File>;
}

/// The first bytes of a pipe, which nobody else reads until it is dropped ([`File::hold`]).
pub trait HeldBytes: Send + Sync {
    /// The bytes, asked for once. ENOMEM.
    fn bytes(&mut self) -> Result<Vec<u8>>;
    /// Lets go without the first `count` bytes. Some: the future is done when the pipe's kernel knows of it.
    fn take(self: Box<Self>, count: usize) -> Option<BoxFuture<'static, ()>>;
}

/// What a file watches, by descriptor, with its name and what is wanted to be known of it.
pub type WatchedFiles = Vec<(i32, FileRef, EpollInterest)>;

/// A file that watches others (an epoll), to whoever brings it, or them, to another kernel.
pub trait Watcher: Send + Sync {
    /// What it watches, if it can go to another kernel and that are few files of which each has a name; `name` knows those of this kernel's, by
    /// address.
    fn to_move(&self, name: &dyn Fn(usize) -> Option<FileRef>) -> Option<WatchedFiles>;
    /// The files of other kernels that it watches.
    fn foreign(&self) -> Vec<FileRef>;
    /// Files of other kernels that have moved here are watched here from now on.
    fn follow<'a>(&'a self, caller: &'a Caller, moved: &'a BTreeMap<FileRef, Arc<dyn File>>) -> BoxFuture<'a, ()>;
}

/// A file of another kernel as an epoll of this one watches it. It does not keep the file open.
pub trait Observed: File {
    /// As its owner knows it.
    fn name(&self) -> FileRef;
    /// Is the file closed?
    fn is_gone(&self) -> bool;
    /// Is it an epoll itself?
    fn is_nested(&self) -> bool;
    /// What the owner says is ready. None: the file is closed.
    fn hear(&self, ready: Option<Readiness>);
    /// Asks the owner what is ready of its files `ids`; nothing if it is dead, for then it has no open files any more.
    fn ask(&self, ids: Vec<u64>) -> BoxFuture<'_, Vec<Option<Readiness>>>;
    /// Counts what this kernel has done at the owner, of what was begun and again when it was done. What the owner says must be asked for after that.
    fn deeds(&self) -> u64;
    /// Whether [`Observed::deeds`] was this when the owner was asked last.
    fn was_asked_at(&self, deeds: u64) -> bool;
    /// The owner was asked when it was this, and has answered.
    fn answered(&self, deeds: u64);
    /// Has the owner look whether too many epolls are above each other, if `above` are above this: see [`crate::epoll`]. `root` is
    /// the one that something is added to, if other kernels know it.
    fn check_nesting(&self, root: Option<FileRef>, above: u32) -> BoxFuture<'_, Result<()>>;
    /// The name under which other kernels observe the file of this kernel at `address`, if any does.
    fn name_here(&self, address: usize) -> Option<FileRef>;
}

/// Counts the occasions on which somebody may have got a reference to a socket, or to the stand-in of one: a message that brings it was
/// made, looked into, received or dropped; another kernel's references to it changed. While it stands still nobody but who had the
/// socket before has it now.
///
/// What leaves an inbox is counted before that inbox is unlocked: whoever has seen the message in there, and finds the same count
/// later, knows that it was still there at that time.
#[derive(Default)]
pub struct Gained(AtomicU64);

impl Gained {
    /// One more occasion.
    pub fn count_one(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Occasions so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
