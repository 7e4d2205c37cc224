//! Which kernel queues the waiters of a futex word: the owner of its slice, or of the object behind it. Not the
//! owner of the page: that may change while some wait (handover.rs), a slice's does not.

use crate::space::{Space, State};
use alloc::sync::Arc;
use machine::{errno::Result, Access, Errno, KernelId, PageRange, UserAddr, PAGE_BITS, USER_END};
use messages::vm::{FutexKey, FutexPlace, LocateFutex, LocateFutexReply};

impl Space {
    /// The key of the futex word at `at`; `shared`: the caller did not promise that only this space uses
    /// it. EINVAL unaligned, EFAULT if a shared one is not mapped.
    pub async fn futex_key(self: &Arc<Self>, at: UserAddr, shared: bool) -> Result<FutexKey> {
        if !at.0.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if at.0 >= USER_END {
            return Err(Errno::EFAULT);
        }
        loop {
            let owner = {
                let state = self.state.lock();
                let owner = self.owner(&state, at.page());
                if !shared && state.slices.slice_owner(at.page()).is_some() {
                    return Ok(self.private(&state, at));
                }
                if owner == self.me() {
                    return self.futex_here(&state, at, shared).ok_or(Errno::EFAULT);
                }
                owner
            };
            self.certain(PageRange::one(at.page())).await;
            let request = LocateFutex { space: self.id, at, shared };
            match self.vm.endpoint.call(owner, request).await.map_err(Errno::from)? {
                LocateFutexReply::Key(key) => {
                    // The key names the owner of the slice. (That home answered proves nothing: it may hold a
                    // part of another's slice.)
                    if let Some(FutexKey { kernel, place: FutexPlace::Private { .. } }) = key {
                        self.state.lock().slices.claim(PageRange::one(at.page()), kernel);
                    }
                    return key.ok_or(Errno::EFAULT);
                }
                LocateFutexReply::Moved(news) => self.correct(owner, &news),
            }
        }
    }

    pub(crate) async fn serve_futex(self: &Arc<Self>, from: KernelId, at: UserAddr, shared: bool) -> LocateFutexReply {
        self.join(from);
        match self.check_owned(PageRange::one(at.page())).await {
            true => LocateFutexReply::Key(self.futex_here(&self.state.lock(), at, shared)),
            false => LocateFutexReply::Moved(self.news(PageRange::one(at.page()))),
        }
    }

    fn private(&self, state: &State, at: UserAddr) -> FutexKey {
        FutexKey { kernel: self.slice_owner(state, at.page()), place: FutexPlace::Private { space: self.id, at } }
    }

    /// The key of a word whose page this kernel owns. None: it is shared, and not mapped.
    fn futex_here(&self, state: &State, at: UserAddr, shared: bool) -> Option<FutexKey> {
        if !shared {
            return Some(self.private(state, at));
        }
        let region = state.regions.find(at.page())?;
        match region.object_page(at.page()) {
            Some((backing, index)) if region.is_shared() => {
                let object = backing.object.id();
                let offset = (index << PAGE_BITS) + at.offset() as u64;
                Some(FutexKey { kernel: object.owner, place: FutexPlace::Shared { object, offset } })
            }
            // Nobody can ever change such a word: Linux refuses to wait for that.
            _ if region.backing.is_none() && !region.kind.prot.contains(Access::WRITE) => None,
            _ => Some(self.private(state, at)),
        }
    }
}
