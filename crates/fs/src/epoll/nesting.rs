//! Epolls that watch epolls.
//!
//! A change of a file wakes everything above it, way by way: an epoll, the epolls that watch this one, and so on, also on other kernels. So
//! ways are limited as by Linux (fs/eventpoll.c) when an entry is added: none is a circle or leads through more than `MAX_NESTS` + 1 epolls
//! (ELOOP), and of those that lead up from one file through more than one epoll there are no more than [`MOST`] (EINVAL). Here that holds
//! also for the ways that lead up from an epoll, which Linux counts once there is a file in it.
//!
//! Who adds has entered what is added before, and subscribed: of two that add at the same moment each sees the other's entry, or one does, which comes
//! later. So what two do together is never too much; both may be refused.

use super::{entry::Notify, watched::Watched, Epoll};
use crate::{file::address_of, File, FileRef};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Subscriber, WaitQueue},
    yield_now, BoxFuture, Errno,
};

/// How deep epolls may watch epolls (Linux's EP_MAX_NESTS).
pub const MAX_NESTS: u32 = 4;

/// Most ways up from one file that lead through so many epolls after the first (Linux's path_limits).
const MOST: [u32; MAX_NESTS as usize + 1] = [u32::MAX, 500, 100, 50, 10];

/// Who looks at so many files or ways lets others have the CPU.
const PACE: usize = 64;

/// Ways up from one file, by the number of epolls after the first.
#[derive(Clone, Default)]
pub struct Ways(pub [u32; MOST.len()]);

impl Ways {
    fn count(&mut self, nests: u32) -> Result<()> {
        let index = nests as usize;
        self.0[index] = self.0[index].saturating_add(1);
        if self.0[index] > MOST[index] {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }
}

/// Does an epoll watch what has this queue?
pub fn is_watched(queue: &WaitQueue) -> bool {
    watchers(queue).next().is_some()
}

/// How many entries of epolls of this kernel are in this queue; all of one other kernel's count as one.
pub fn count_watchers(queue: &WaitQueue) -> usize {
    watchers(queue).count()
}

/// Epolls of one other kernel that watch a file of this one, as [`crate::remote`] knows them.
pub trait EpollsElsewhere: Send + Sync {
    /// The file may have changed.
    fn changed(&self);
    /// Has that kernel count the ways that lead on from its epolls: see [`ways_up`].
    fn ways_up<'a>(&'a self, nests: u32, ways: &'a mut Ways) -> BoxFuture<'a, Result<u32>>;
}

/// What lies in the file's queue for them.
pub struct FarWatchers(pub Box<dyn EpollsElsewhere>);

impl Subscriber for FarWatchers {
    /// An exclusive entry at that kernel is one of its own: here nobody is known to wake up.
    fn changed(&self) -> bool {
        self.0.changed();
        false
    }
}

enum Watcher {
    Epoll(Arc<super::Shared>),
    Elsewhere(Arc<FarWatchers>),
}

fn watchers(queue: &WaitQueue) -> impl Iterator<Item = Watcher> + '_ {
    let mut from = 0;
    let subscribers = core::iter::from_fn(move || {
        let (key, subscriber) = queue.subscriber(from)?;
        from = key + 1;
        Some(subscriber as Arc<dyn Any + Send + Sync>)
    });
    subscribers.filter_map(|subscriber| match subscriber.downcast::<Notify>() {
        Ok(notify) => notify.epoll().map(Watcher::Epoll),
        Err(other) => other.downcast().ok().map(Watcher::Elsewhere),
    })
}

/// Counts the ways up from what has this queue, which lies `nests` epolls above the file that is counted for, to epolls that no epoll watches.
/// Answers how many epolls lie on the longest one.
pub fn ways_up<'a>(queue: &'a WaitQueue, nests: u32, ways: &'a mut Ways) -> BoxFuture<'a, Result<u32>> {
    Box::pin(async move {
        let (mut longest, mut looked) = (0, 0);
        for watcher in watchers(queue) {
            if nests > MAX_NESTS {
                return Err(Errno::EINVAL);
            }
            let above = match watcher {
                Watcher::Epoll(epoll) => {
                    let above = ways_up(&epoll.changes, nests + 1, ways).await?;
                    if above == 0 {
                        ways.count(nests)?;
                    }
                    above + 1
                }
                Watcher::Elsewhere(watchers) => watchers.0.ways_up(nests, ways).await?,
            };
            longest = longest.max(above);
            // A file may be in as many epolls as a user can have.
            looked += 1;
            if nests == 0 && usize::is_multiple_of(looked, PACE) {
                yield_now().await;
            }
        }
        Ok(longest)
    })
}

/// What lies below an epoll that is added to another.
pub struct Below<'a> {
    /// The epoll that something is added to, if it is of this kernel; and the name under which others know it, if they do.
    root: Option<&'a Arc<super::Shared>>,
    name: Option<FileRef>,
    /// Epolls and files that were looked at, each with how many epolls lie above it on that way: at least one.
    seen: BTreeMap<usize, u32>,
}

impl<'a> Below<'a> {
    pub fn new(root: Option<&'a Arc<super::Shared>>, name: Option<FileRef>) -> Self {
        Below { root, name, seen: BTreeMap::new() }
    }

    /// Is `watched`, with `above` epolls above it, added to an epoll without making too many ways, too long ones, or a circle?
    pub fn check<'b>(&'b mut self, watched: &'b Watched, above: u32) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move {
            let seen = self.seen.entry(address_of(&watched.file())).or_default();
            if *seen >= above {
                return Ok(());
            }
            *seen = above;
            let file = match watched {
                Watched::Here(file) => file,
                Watched::Elsewhere(file) => return file.check_nesting(self.name, above).await,
            };
            if self.seen.len().is_multiple_of(PACE) {
                yield_now().await;
            }
            let Some(queue) = file.changes() else { return Ok(()) };
            let Some(epoll) = file.as_any().downcast_ref::<Epoll>() else {
                return ways_up(queue, 0, &mut Ways::default()).await.map(drop);
            };
            if self.root.is_some_and(|root| Arc::ptr_eq(&epoll.shared, root)) || above > MAX_NESTS {
                return Err(Errno::ELOOP);
            }
            let mut entry = epoll.entry_after(None);
            while let Some(there) = entry {
                if let Some(watched) = there.watched() {
                    self.check(&watched, above + 1).await?;
                }
                entry = epoll.entry_after(Some(there.key));
            }
            ways_up(queue, 0, &mut Ways::default()).await.map(drop)
        })
    }
}

/// Is it an epoll?
pub fn is_epoll(file: &dyn File) -> bool {
    file.as_any().is::<Epoll>()
}

/// What [`Below::check`] of another kernel asks the owner of `file`. `root`: what something is added to, if it is of this kernel;
/// `name`: as others know it.
pub async fn check_below(
    root: Option<Arc<dyn File>>,
    name: Option<FileRef>,
    file: Arc<dyn File>,
    above: u32,
) -> Result<()> {
    let root = root.as_ref().and_then(|root| root.as_any().downcast_ref::<Epoll>());
    Below::new(root.map(|root| &root.shared), name).check(&Watched::Here(file), above).await
}
