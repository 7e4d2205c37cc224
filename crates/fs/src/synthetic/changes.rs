//! Texts whose changes are told: kernfs_notify of Linux.

use crate::{inotify, Inode};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::sync::{Lock, WaitQueue};

/// How often a text has changed, and who wants to know.
pub struct Changes {
    version: AtomicU64,
    pub(super) queue: WaitQueue,
    /// The text as it was looked up, each of which may be watched.
    inodes: Lock<Vec<Weak<dyn Inode>>>,
}

impl Default for Changes {
    fn default() -> Self {
        // Who has not read it finds it changed.
        Changes { version: AtomicU64::new(1), queue: WaitQueue::new(), inodes: Lock::default() }
    }
}

impl Changes {
    /// The text has changed. Not to be called under a lock.
    pub fn tell(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.queue.wake_all();
        if !inotify::nobody_watches() {
            let inodes: Vec<_> = self.inodes.lock().iter().filter_map(Weak::upgrade).collect();
            inodes.iter().for_each(|inode| inotify::itself(inode, inotify::MODIFY));
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Somebody has looked up the text.
    pub(super) fn are_of(&self, inode: &Arc<dyn Inode>) {
        let mut inodes = self.inodes.lock();
        // Amortised: those that are no more go whenever the list would have to grow.
        if inodes.len() == inodes.capacity() {
            inodes.retain(|inode| inode.strong_count() > 0);
        }
        inodes.push(Arc::downgrade(inode));
    }
}
