//! Dirty pages that nobody asks to be written go to their stores by and by (Linux: Documentation/admin-guide/sysctl/vm.rst).
//!
//! A cache is on the list from its first dirty page until it has none. A task, which exists as long as the list is not empty, writes those back that have been on it for long; when many pages are
//! dirty, a second task writes the oldest at once, and at a higher mark those who write wait until they have written their own file's pages.

use super::{PageCache, Services, MAX_SIZE};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use machine::{errno::Result, sync::Lock, Errno};

const HUNDREDTH: u64 = 10_000_000;
/// Hundredths of a second that one who writes waits for others' pages to be written, at most.
const WAITS: usize = 20;

struct Entry {
    cache: Arc<PageCache>,
    /// When its first page became dirty (ns).
    since: u64,
}

/// Linux's settings, /proc/sys/vm/dirty_*, with its defaults.
pub struct Settings {
    /// Percent of memory that may be dirty before writing back begins at once.
    pub background_ratio: AtomicU32,
    /// Percent of memory that may be dirty before those who write have to write back themselves.
    pub ratio: AtomicU32,
    /// Hundredths of a second after which a dirty page is old.
    pub expire: AtomicU32,
    /// Hundredths of a second between two looks at what is old; 0: none.
    pub interval: AtomicU32,
}

/// See the module.
pub struct Flusher {
    pub settings: Settings,
    /// Dirty pages of all caches.
    dirty: Arc<AtomicUsize>,
    /// By serial number.
    entries: Lock<BTreeMap<u64, Entry>>,
    runs: AtomicBool,
    hurries: AtomicBool,
}

impl Default for Flusher {
    fn default() -> Self {
        let settings = Settings {
            background_ratio: AtomicU32::new(10),
            ratio: AtomicU32::new(20),
            expire: AtomicU32::new(3000),
            interval: AtomicU32::new(500),
        };
        let (runs, hurries) = (AtomicBool::new(false), AtomicBool::new(false));
        Flusher { settings, dirty: Arc::default(), entries: Lock::default(), runs, hurries }
    }
}

impl Flusher {
    /// Dirty pages.
    pub fn dirty(&self) -> usize {
        self.dirty.load(Relaxed)
    }

    /// Counts dirty pages of one cache, and with those of all others.
    pub(super) fn count(&self) -> DirtyPages {
        DirtyPages { here: 0, all: self.dirty.clone() }
    }
}

/// How many pages of a cache are dirty.
pub(super) struct DirtyPages {
    here: usize,
    all: Arc<AtomicUsize>,
}

impl DirtyPages {
    pub fn get(&self) -> usize {
        self.here
    }

    pub fn add(&mut self, pages: usize) {
        self.here += pages;
        self.all.fetch_add(pages, Relaxed);
    }

    pub fn remove(&mut self, pages: usize) {
        self.here -= pages;
        self.all.fetch_sub(pages, Relaxed);
    }
}

impl Drop for DirtyPages {
    fn drop(&mut self) {
        self.all.fetch_sub(self.here, Relaxed);
    }
}

impl Services {
    /// Whether so many pages are dirty, in percent of memory.
    fn is_dirty_by(&self, percent: &AtomicU32) -> bool {
        self.flusher.dirty() as u64 * 100 > self.memory.totals().0 * u64::from(percent.load(Relaxed))
    }

    /// Whether those who write have to wait.
    pub(super) fn must_throttle(&self) -> bool {
        self.is_dirty_by(&self.flusher.settings.ratio)
    }

    /// `cache` has dirty pages: they are written back some time. It is kept until then.
    pub(crate) fn write_back_later(self: &Arc<Self>, cache: &Arc<PageCache>) {
        let since = self.clock.monotonic();
        let entry = Entry { cache: cache.clone(), since };
        self.flusher.entries.lock().entry(cache.id.serial).or_insert(entry);
        if !self.flusher.runs.swap(true, Relaxed) {
            self.spawner.spawn(Box::pin(flush_old(Arc::downgrade(self))));
        }
    }

    /// A page more is dirty: if they are many, writing back begins.
    pub(super) fn note_dirty(self: &Arc<Self>) {
        if self.is_dirty_by(&self.flusher.settings.background_ratio) && !self.flusher.hurries.swap(true, Relaxed) {
            let services = self.clone();
            self.spawner.spawn(Box::pin(async move {
                // What can't be written keeps nothing else from being: each is tried once.
                let mut tries = services.flusher.entries.lock().len();
                while services.is_dirty_by(&services.flusher.settings.background_ratio) {
                    let Some(cache) = services.oldest_dirty() else { break };
                    if services.flush(&cache).await.is_err() {
                        tries = tries.saturating_sub(1);
                        if tries == 0 {
                            break;
                        }
                    }
                }
                services.flusher.hurries.store(false, Relaxed);
            }));
        }
    }

    fn oldest_dirty(&self) -> Option<Arc<PageCache>> {
        let entries = self.flusher.entries.lock();
        entries.values().min_by_key(|entry| entry.since).map(|entry| entry.cache.clone())
    }

    /// Lets one who writes wait while memory is full of what has not been written: the pages of the file that he writes to go to the store, then he waits for the task that writes those of
    /// others, until there is `enough`. Not for long: he may write for a loop device, so that the task waits for him.
    pub(super) async fn throttle(self: &Arc<Self>, cache: &PageCache, enough: impl Fn() -> bool) -> Result<()> {
        cache.write_back(0, MAX_SIZE).await?;
        for _ in 0..WAITS {
            if enough() {
                break;
            }
            self.note_dirty();
            let Some(wait) = self.clock.at(self.clock.monotonic() + HUNDREDTH) else { break };
            wait.await;
        }
        Ok(())
    }

    /// A cache that nobody has any more is not written back.
    pub(crate) fn write_back_never(&self, cache: &PageCache) {
        let gone = self.flusher.entries.lock().remove(&cache.id.serial);
        drop(gone);
    }

    /// Writes a cache back. What becomes dirty meanwhile is as old as this.
    pub(crate) async fn flush(&self, cache: &Arc<PageCache>) -> Result<()> {
        let now = self.clock.monotonic();
        let written = cache.write_back(0, MAX_SIZE).await;
        match written {
            // Of a file system that has stopped the log knows.
            Ok(()) | Err(Errno::EROFS) => {}
            Err(error) => log::error!("writing back: {error:?}"),
        }
        if let Some(entry) = self.flusher.entries.lock().get_mut(&cache.id.serial) {
            entry.since = now;
        }
        written
    }

    /// Takes a cache off the list if it has no dirty pages, nor any on their way. One that becomes dirty afterwards comes back.
    pub(super) fn leave_list_if_clean(&self, cache: &PageCache) {
        let gone = {
            let mut entries = self.flusher.entries.lock();
            match cache.is_clean() {
                true => entries.remove(&cache.id.serial),
                false => None,
            }
        };
        // The cache may end here, if nobody else has it.
        drop(gone);
    }
}

/// Writes back what has been dirty for long, until nothing is.
async fn flush_old(services: Weak<Services>) {
    loop {
        let Some(wait) = services.upgrade().map(|services| {
            let now = services.clock.monotonic();
            let interval = services.flusher.settings.interval.load(Relaxed).max(1);
            services.clock.at(now + u64::from(interval) * HUNDREDTH)
        }) else {
            return;
        };
        let timed = wait.is_some();
        if let Some(wait) = wait {
            wait.await;
        }
        let Some(services) = services.upgrade() else { return };
        let settings = &services.flusher.settings;
        let now = services.clock.monotonic();
        let old = u64::from(settings.expire.load(Relaxed)) * HUNDREDTH;
        let is_off = settings.interval.load(Relaxed) == 0;
        let due: Vec<_> = {
            let entries = services.flusher.entries.lock();
            let due = entries.values().filter(|entry| !timed || !is_off && now.saturating_sub(entry.since) >= old);
            due.map(|entry| entry.cache.clone()).collect()
        };
        let mut failed = false;
        for cache in due {
            failed |= services.flush(&cache).await.is_err();
        }
        if services.flusher.entries.lock().is_empty() || failed && !timed {
            services.flusher.runs.store(false, Relaxed);
            // Something may have come between the two.
            if services.flusher.entries.lock().is_empty() || services.flusher.runs.swap(true, Relaxed) || !timed {
                return;
            }
        }
    }
}
