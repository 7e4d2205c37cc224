//! How many processes use an address space (CLONE_VM without CLONE_THREAD, vfork).
//!
//! The space's home counts, because the sharers may be at home on different kernels; only the last one's end
//! destroys the space. Nearly every space has one user: no entry means one, so an ordinary process costs nothing.
//! A new user is counted before it exists, on behalf of one that does: the count can't reach zero in between.

use crate::System;
use alloc::sync::Arc;
use machine::SpaceId;
use messages::process::SpaceUsers;
use vm::Space;

impl System {
    pub(crate) async fn retain_space(&self, space: SpaceId) {
        if space.home == self.kernel {
            return self.retain_space_here(space);
        }
        // With a dead home the process is about to be killed.
        let _ = self.endpoint.call(space.home, SpaceUsers { space, more: true }).await;
    }

    pub(crate) fn retain_space_here(&self, space: SpaceId) {
        *self.space_users.lock().entry(space).or_insert(1) += 1;
    }

    /// A process stops using `space`; the last one's end is the space's.
    pub(crate) async fn release_space(&self, space: &Arc<Space>) {
        let id = space.id();
        if id.home == self.kernel {
            return self.release_space_here(id).await;
        }
        let _ = self.endpoint.call(id.home, SpaceUsers { space: id, more: false }).await;
    }

    pub(crate) async fn release_space_here(&self, space: SpaceId) {
        {
            let mut users = self.space_users.lock();
            if let Some(count) = users.get_mut(&space) {
                *count -= 1;
                if *count == 1 {
                    users.remove(&space);
                }
                return;
            }
        }
        if let Some(space) = self.vm.find(space) {
            space.destroy().await;
        }
    }

    /// Is `space` surely used by one process only?
    pub(crate) fn is_private(&self, space: SpaceId) -> bool {
        space.home == self.kernel && !self.space_users.lock().contains_key(&space)
    }
}
