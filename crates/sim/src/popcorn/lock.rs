//! Lamport's distributed locks (LDMEA, 5.7.4), for a page and for all pages.

use super::{Ask, Message, Popcorn};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Page(u64),
    /// The heavy lock.
    All,
}

/// The queues of one kernel, by stamp. Who asked is nobody's business but his own.
#[derive(Default)]
pub struct Queues {
    /// Made when first asked for, gone with their last entry.
    fine: BTreeMap<u64, BTreeSet<u64>>,
    heavy: BTreeSet<u64>,
}

impl Queues {
    pub fn insert(&mut self, stamp: u64, scope: Scope) {
        match scope {
            Scope::Page(page) => {
                // A new queue begins with every heavy entry.
                let heavy = &self.heavy;
                self.fine.entry(page).or_insert_with(|| heavy.clone()).insert(stamp);
            }
            Scope::All => {
                self.heavy.insert(stamp);
                for queue in self.fine.values_mut() {
                    queue.insert(stamp);
                }
            }
        }
    }

    pub fn remove(&mut self, stamp: u64, scope: Scope) {
        match scope {
            Scope::Page(page) => {
                if let Some(queue) = self.fine.get_mut(&page) {
                    queue.remove(&stamp);
                }
            }
            Scope::All => {
                self.heavy.remove(&stamp);
                for queue in self.fine.values_mut() {
                    queue.remove(&stamp);
                }
            }
        }
        // Heavy entries alone need no queue of their own: a new one would get them again.
        let heavy = &self.heavy;
        self.fine.retain(|_, queue| !queue.is_subset(heavy));
    }

    fn at_head(&self, stamp: u64, scope: Scope) -> bool {
        let first = |queue: &BTreeSet<u64>| queue.first() == Some(&stamp);
        match scope {
            Scope::Page(page) => self.fine.get(&page).is_some_and(first),
            Scope::All => first(&self.heavy) && self.fine.values().all(first),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.fine.is_empty() && self.heavy.is_empty()
    }
}

impl Popcorn {
    /// Waits for the lock; the stamp is what it is given back with.
    pub(super) async fn lock(self: &Arc<Self>, me: usize, scope: Scope) -> u64 {
        let stamp = self.stamp();
        // In one step with the drawing of the stamp and the sending of the requests.
        self.kernels[me].lock().locks.insert(stamp, scope);
        self.ask_all(me, Ask::Lock(stamp, scope)).await;
        self.changed[me].wait_until(|| self.kernels[me].lock().locks.at_head(stamp, scope).then_some(())).await;
        stamp
    }

    pub(super) fn unlock(self: &Arc<Self>, me: usize, stamp: u64, scope: Scope) {
        self.kernels[me].lock().locks.remove(stamp, scope);
        self.others(me).for_each(|other| self.send(me, other, Message::Release(stamp, scope)));
        self.changed[me].wake_all();
    }
}
