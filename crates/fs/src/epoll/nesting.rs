//! Epolls that watch epolls.
//!
//! A change of a file wakes everything above it, way by way: an epoll, the epolls that watch this one, and so on, also on other kernels. So
//! ways are limited as by Linux (fs/eventpoll.c) when an entry is added: none is a circle or leads through more than `MAX_NESTS` + 1 epolls
//! (ELOOP), and of those that lead up from one file through more than one epoll there are no more than [`MOST`] (EINVAL). Here that holds
//! also for the ways that lead up from an epoll, which Linux counts once there is a file in it.
//!
//! Who adds has entered what is added before, and subscribed: of two that add at the same moment each sees the other's entry, or one does, which comes
//! later. So what two do together is never too much; both may be refused.

use super::{entry::Notify, Epoll};
use crate::{remote::Ears, remote::Observed, File, FileRef};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, yield_now, BoxFuture, Errno};

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

enum Watcher {
    Epoll(Arc<super::Shared>),
    /// Epolls of another kernel.
    Far(Arc<Ears>),
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
        Err(other) => other.downcast::<Ears>().ok().map(Watcher::Far),
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
                Watcher::Far(ears) => ears.ways_up(nests, ways).await?,
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

    /// Is `file`, with `above` epolls above it, added to an epoll without making too many ways, too long ones, or a circle?
    pub fn check<'b>(&'b mut self, file: &'b Arc<dyn File>, above: u32) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move {
            let seen = self.seen.entry(super::address(file)).or_default();
            if *seen >= above {
                return Ok(());
            }
            *seen = above;
            if let Some(foreign) = file.as_any().downcast_ref::<Observed>() {
                return foreign.check_nesting(self.name, above).await;
            }
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
                if let Some(file) = there.file() {
                    self.check(&file, above + 1).await?;
                }
                entry = epoll.entry_after(Some(there.key));
            }
            ways_up(queue, 0, &mut Ways::default()).await.map(drop)
        })
    }
}
