//! Which cached names go when there are too many.
//!
//! All names that directories have cached stand in one queue, in the order in which they came. Every few new names the cache
//! looks at as many of the oldest: a name that nobody uses, and that was not looked up since the last look, goes; any other
//! stands at the end of the queue again (the clock algorithm). So a new name costs the same whatever the tree looks like, however
//! deep it is and however much of it is in use; and a name in use is paid for by what uses it: an open file, a working directory,
//! an inode that somebody is charged for.
//!
//! A directory stands before the names in it, and is in use as long as one of them is cached: it goes a round later.

use super::dentry::{Dentry, Name};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use machine::{collections::Queue, sync::Lock};

/// New names between two looks at old ones, and names looked at: twice as many, so that the cache shrinks to what it should be.
const BATCH: usize = 512;
/// Memory of the kernel for each name that it may cache, bytes. A name takes some 500 with its inode.
const MEMORY_PER_NAME: usize = 8 << 10;
/// How often [`NameCache::drop_unused`] goes through the queue. Children come after their directories as a rule, so that one
/// backward pass drops a whole tree; names that were moved may need more.
const PASSES: usize = 4;

pub(super) struct NameCache {
    queue: Lock<Queue<Cached>>,
    most: usize,
    /// So many names make the next sweep worth while.
    sweep_at: AtomicUsize,
}

struct Cached {
    directory: Weak<Dentry>,
    name: Name,
}

impl Cached {
    fn drop_unused(&self, keep_recent: bool) -> bool {
        self.directory.upgrade().is_some_and(|directory| directory.drop_unused(&self.name, keep_recent))
    }
}

impl NameCache {
    /// For a kernel with so much memory.
    pub fn new(memory: usize) -> Self {
        let most = (memory / MEMORY_PER_NAME).max(2 * BATCH);
        NameCache { queue: Lock::default(), most, sweep_at: AtomicUsize::new(most) }
    }

    /// A directory has cached a name more.
    pub fn add(&self, directory: &Arc<Dentry>, name: Name) {
        self.queue.lock().push_back(Cached { directory: Arc::downgrade(directory), name });
    }

    /// Whether [`Self::sweep`] is due.
    pub fn is_full(&self) -> bool {
        self.queue.lock().len() >= self.sweep_at.load(Relaxed)
    }

    /// Drops what nobody uses of the oldest names.
    pub fn sweep(&self) {
        for _ in 0..2 * BATCH {
            let Some(oldest) = self.queue.lock().pop_front() else { break };
            if oldest.drop_unused(true) {
                self.queue.lock().push_back(oldest);
            }
        }
        let left = self.queue.lock().len();
        self.sweep_at.store((left + BATCH).max(self.most), Relaxed);
    }

    /// Drops every name that nobody uses: their file system is unmounted, or memory is short.
    pub fn drop_unused(&self) {
        for _ in 0..PASSES {
            let before = self.queue.lock().len();
            for _ in 0..before {
                let Some(youngest) = self.queue.lock().pop_back() else { break };
                if youngest.drop_unused(false) {
                    self.queue.lock().push_front(youngest);
                }
            }
            if self.queue.lock().len() == before {
                break;
            }
        }
        let left = self.queue.lock().len();
        self.sweep_at.store((left + BATCH).max(self.most), Relaxed);
    }
}
