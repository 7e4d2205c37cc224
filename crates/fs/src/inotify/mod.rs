//! inotify(7): who watches what, and what is told.
//!
//! All files with names live on the kernel that owns the root, so watches and the descriptors that collect
//! events live there too, whichever kernel asked; a descriptor elsewhere is a stand-in like any other.
//! The namespace tells ([`about`], [`in_directory`]) *after* a change has been made, while it still holds
//! what makes the change one (`changing`, `renaming`), so events come in the order of the changes.
//!
//! A watch keeps its inode, lest another takes its address, which is its name in the table. The table is one
//! for the kernel. The order of locks: table, then a descriptor's queue; wake-ups and drops happen under
//! neither, for the last reference of a descriptor takes its watches out of the table.
//!
//! "Deleted" is told when the last name is gone *and* nothing has the file open: when the removed name's
//! [`Dentry`](crate::namespace::Dentry) ends.

mod file;

pub use file::Inotify;

use crate::{Inode, Kind, SetAttributes};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use machine::sync::Lock;

pub const ACCESS: u32 = 0x1;
pub const MODIFY: u32 = 0x2;
pub const ATTRIB: u32 = 0x4;
pub const CLOSE_WRITE: u32 = 0x8;
pub const CLOSE_NOWRITE: u32 = 0x10;
pub const OPEN: u32 = 0x20;
pub const MOVED_FROM: u32 = 0x40;
pub const MOVED_TO: u32 = 0x80;
pub const CREATE: u32 = 0x100;
pub const DELETE: u32 = 0x200;
pub const DELETE_SELF: u32 = 0x400;
pub const MOVE_SELF: u32 = 0x800;
pub const IS_DIRECTORY: u32 = 0x4000_0000;

const OVERFLOW: u32 = 0x4000;
const IGNORED: u32 = 0x8000;
const ALL_EVENTS: u32 = 0xfff;
/// IN_ONLYDIR, IN_DONT_FOLLOW.
pub const ONLY_DIRECTORY: u32 = 0x0100_0000;
pub const DONT_FOLLOW: u32 = 0x0200_0000;
const EXCLUDE_UNLINKED: u32 = 0x0400_0000;
const MASK_CREATE: u32 = 0x1000_0000;
const MASK_ADD: u32 = 0x2000_0000;
const ONESHOT: u32 = 0x8000_0000;

/// What /proc/PID/fd shows of such a file.
pub(crate) const PATH: &[u8] = b"anon_inode:inotify";

/// /proc/sys/fs/inotify.
pub const MAX_QUEUED: usize = 16384;
pub const MAX_INSTANCES: usize = 128;
pub const MAX_WATCHES: usize = 65536;

/// Only bits that mean something, and at least one.
pub fn bits_are_known(mask: u32) -> bool {
    let known = ALL_EVENTS | 0x2000 | OVERFLOW | IGNORED | ONLY_DIRECTORY | DONT_FOLLOW | EXCLUDE_UNLINKED;
    let known = known | MASK_CREATE | MASK_ADD | IS_DIRECTORY | ONESHOT;
    mask != 0 && mask & !known == 0
}

/// A watch can't be a new one and be added to.
pub fn bits_go_together(mask: u32) -> bool {
    mask & (MASK_CREATE | MASK_ADD) != MASK_CREATE | MASK_ADD
}

type Watchers = Vec<(Weak<Inotify>, i32)>;

/// By address of the inode.
static WATCHED: Lock<BTreeMap<usize, Watchers>> = Lock::new(BTreeMap::new());
/// Watches there are: with none, nothing of this costs anything.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static COOKIE: AtomicU32 = AtomicU32::new(0);

fn address(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

fn watchers(inode: &Arc<dyn Inode>) -> Vec<(Arc<Inotify>, i32)> {
    let watched = WATCHED.lock();
    let Some(watchers) = watched.get(&address(inode)) else { return Vec::new() };
    watchers.iter().filter_map(|(owner, watch)| Some((owner.upgrade()?, *watch))).collect()
}

fn enter(inode: &Arc<dyn Inode>, owner: Weak<Inotify>, watch: i32) {
    WATCHED.lock().entry(address(inode)).or_default().push((owner, watch));
    COUNT.fetch_add(1, Ordering::Relaxed);
}

fn leave(inode: &Arc<dyn Inode>, owner: &Weak<Inotify>, watch: i32) {
    let mut watched = WATCHED.lock();
    let Some(watchers) = watched.get_mut(&address(inode)) else { return };
    let before = watchers.len();
    // Dropping the Weak frees nothing that wants a lock.
    watchers.retain(|(there, number)| !(there.ptr_eq(owner) && *number == watch));
    COUNT.fetch_sub(before - watchers.len(), Ordering::Relaxed);
    if watchers.is_empty() {
        watched.remove(&address(inode));
    }
}

/// Does anybody watch this very file or directory?
pub fn is_watched(inode: &Arc<dyn Inode>) -> bool {
    !nobody_watches() && WATCHED.lock().contains_key(&address(inode))
}

pub fn nobody_watches() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}

/// For the two halves of a rename.
pub fn cookie() -> u32 {
    COOKIE.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

fn tell(inode: &Arc<dyn Inode>, event: u32, cookie: u32, name: &[u8], unlinked: bool) {
    for (owner, watch) in watchers(inode) {
        owner.event(watch, event, cookie, name, unlinked);
    }
}

fn with_kind(event: u32, inode: &Arc<dyn Inode>) -> u32 {
    match inode.kind() {
        // What is told of a directory as itself has never said that it is one.
        Kind::Directory if event & (MOVE_SELF | DELETE_SELF) == 0 => event | IS_DIRECTORY,
        _ => event,
    }
}

/// Something happened to a file that was reached by a name, given by its directory, itself, and whether it was unlinked: told to who
/// watches that directory, and to who watches the file.
pub(crate) fn about(inode: &Arc<dyn Inode>, name: Option<(&Arc<dyn Inode>, &[u8], bool)>, event: u32) {
    let event = with_kind(event, inode);
    if let Some((directory, name, unlinked)) = name {
        tell(directory, event, 0, name, unlinked);
    }
    tell(inode, event, 0, b"", false);
}

/// Something happened to the file itself, whatever its names.
pub fn itself(inode: &Arc<dyn Inode>, event: u32) {
    if !nobody_watches() {
        tell(inode, with_kind(event, inode), 0, b"", false);
    }
}

/// `name`, which is or was `child`, was made, removed or moved.
pub fn in_directory(directory: &Arc<dyn Inode>, name: &[u8], child: &Arc<dyn Inode>, event: u32, cookie: u32) {
    if !nobody_watches() {
        tell(directory, with_kind(event, child), cookie, name, false);
    }
}

/// What a change of attributes is told as.
pub fn of_change(set: &SetAttributes) -> u32 {
    let mut event = 0;
    if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
        event |= ATTRIB;
    }
    if set.size.is_some() {
        event |= MODIFY;
    }
    event
        | match (set.accessed.is_some(), set.modified.is_some()) {
            (true, true) => ATTRIB,
            (true, false) => ACCESS,
            (false, true) => MODIFY,
            (false, false) => 0,
        }
}

/// The last name of `inode` is gone, and nobody has it open.
pub fn deleted(inode: &Arc<dyn Inode>) {
    if nobody_watches() {
        return;
    }
    for (owner, watch) in watchers(inode) {
        owner.event(watch, DELETE_SELF, 0, b"", false);
        let _ = owner.remove(watch);
    }
}
