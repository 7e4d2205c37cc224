//! How many processes use an address space (CLONE_VM without CLONE_THREAD, vfork), and how many a descriptor table.
//!
//! The home of the space or table counts, because the sharers may be at home on different kernels; only the last one's end
//! ends it. Nearly every space has one user, at home where the space is: no entry means that, so an ordinary process costs nothing.
//! A new user is counted before it exists, on behalf of one that does: the count can't reach zero in between.
//!
//! Users are counted by the kernel they are at home on. When that dies, it says of none of them that it has ended, and what it
//! alone used may be on kernels that no process of its has a record on (execve leaves the table where it is, and forgets all
//! replicas). So each survivor takes the users of the dead kernel out of its counts.

use crate::{Files, System};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{KernelId, SpaceId};
use messages::process::SpaceUsers;
use vm::Space;

/// By the kernels they are at home on.
#[derive(Default)]
pub(crate) struct Users(BTreeMap<KernelId, usize>);

impl Users {
    pub fn only(home: KernelId) -> Self {
        Users([(home, 1)].into())
    }

    pub fn add(&mut self, home: KernelId) {
        *self.0.entry(home).or_default() += 1;
    }

    /// One of `home` less; whether nobody is left. One that was forgotten with its kernel is not there any more.
    pub fn remove(&mut self, home: KernelId) -> bool {
        if let Some(count) = self.0.get_mut(&home) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&home);
            }
        }
        self.0.is_empty()
    }

    /// All of `home` are gone; whether they were the only ones.
    pub fn forget(&mut self, home: KernelId) -> bool {
        self.0.remove(&home).is_some() && self.0.is_empty()
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl System {
    /// A process that is at home on `of` begins to use a space that was made here.
    pub(crate) fn first_user(&self, space: SpaceId, of: KernelId) {
        if of != self.kernel {
            self.sharing.space_users.lock().insert(space, Users::only(of));
        }
    }

    /// A process that is at home on `of` will use `space`, as another one does.
    pub(crate) async fn retain_space(&self, space: SpaceId, of: KernelId) {
        if space.home == self.kernel {
            return self.retain_space_here(space, of);
        }
        // With a dead home the process is about to be killed.
        let _ = self.endpoint.call(space.home, SpaceUsers { space, of, more: true }).await;
    }

    pub(crate) fn retain_space_here(&self, space: SpaceId, of: KernelId) {
        self.sharing.space_users.lock().entry(space).or_insert_with(|| Users::only(self.kernel)).add(of);
    }

    /// A process stops using `space`; the last one's end is the space's.
    pub(crate) async fn release_space(&self, space: &Arc<Space>, of: KernelId) {
        let id = space.id();
        if id.home == self.kernel {
            return self.release_space_here(id, of).await;
        }
        let _ = self.endpoint.call(id.home, SpaceUsers { space: id, of, more: false }).await;
    }

    pub(crate) async fn release_space_here(&self, space: SpaceId, of: KernelId) {
        let last = self.sharing.space_users.lock().get_mut(&space).is_none_or(|users| users.remove(of));
        if last {
            self.end_space_here(space).await;
        }
    }

    /// Nobody uses the space, though some may not have been able to say so.
    pub(crate) async fn end_space_here(&self, space: SpaceId) {
        self.sharing.space_users.lock().remove(&space);
        self.vm.end(space).await;
    }

    /// Is `space` surely used by one process only?
    pub(crate) fn is_private(&self, space: SpaceId) -> bool {
        space.home == self.kernel && self.sharing.space_users.lock().get(&space).is_none_or(|users| users.total() == 1)
    }

    /// The processes that were at home on `dead` use nothing any more.
    pub(crate) async fn forget_users(&self, dead: KernelId) {
        let unused: Vec<SpaceId> = {
            let mut spaces = self.sharing.space_users.lock();
            spaces.iter_mut().filter_map(|(space, users)| users.forget(dead).then_some(*space)).collect()
        };
        for space in unused {
            self.end_space_here(space).await;
        }
        let tables: Vec<Arc<Files>> = self.tables.home.lock().values().cloned().collect();
        tables.iter().for_each(|table| table.forget_users(dead));
        self.forget_members(dead).await;
    }
}
