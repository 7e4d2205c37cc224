//! The names of a directory of a tmpfs.
//!
//! Each gets a number when it is made, greater than all before it, and a directory is listed from the newest name to the oldest:
//! a position is the number of the last name given, and the names below it are left. So a scan finds each name that stays exactly
//! once, and ends even if its reader makes a new name for each that it is given, or renames them all (as Linux since 6.13: "libfs: Use
//! d_children list to iterate simple_offset directories").

use crate::{
    inode::listing::{Listing, FIRST},
    Inode,
};
use alloc::{collections::BTreeMap, sync::Arc};
use core::ops::Bound::{Excluded, Unbounded};
use machine::account::Charge;

/// A file under a name.
pub(super) struct Named {
    pub node: Arc<dyn Inode>,
    /// The first name of a file costs nothing beyond the file.
    _charge: Charge,
}

impl Named {
    pub fn first(node: &Arc<dyn Inode>) -> Self {
        Self::further(node, Charge::FREE)
    }

    pub fn further(node: &Arc<dyn Inode>, charge: Charge) -> Self {
        Named { node: node.clone(), _charge: charge }
    }
}

#[derive(Default)]
pub(super) struct Names {
    by_name: BTreeMap<Arc<[u8]>, (u64, Named)>,
    by_number: BTreeMap<u64, Arc<[u8]>>,
    /// Names made so far.
    made: u64,
}

impl Names {
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<dyn Inode>> {
        self.by_name.get(name).map(|(_, named)| &named.node)
    }

    /// A name's file, and the position behind it.
    pub fn find(&self, name: &[u8]) -> Option<(u64, Arc<dyn Inode>)> {
        self.by_name.get(name).map(|(number, named)| (*number, named.node.clone()))
    }

    /// The position behind the name made last, still there or not.
    pub fn newest(&self) -> u64 {
        FIRST + self.made
    }

    /// Has `name` lead to something: a new name, or one that stays what and where it is for who lists the directory. Gives what it led to.
    pub fn put(&mut self, name: &[u8], named: Named) -> Option<Named> {
        if let Some((_, old)) = self.by_name.get_mut(name) {
            return Some(core::mem::replace(old, named));
        }
        self.made += 1;
        let (name, number): (Arc<[u8]>, _) = (name.into(), self.newest());
        self.by_number.insert(number, name.clone());
        self.by_name.insert(name, (number, named));
        None
    }

    pub fn take(&mut self, name: &[u8]) -> Option<Named> {
        let (number, named) = self.by_name.remove(name)?;
        self.by_number.remove(&number);
        Some(named)
    }

    /// Takes any of them.
    pub fn pop(&mut self) -> Option<Named> {
        let (_, (number, named)) = self.by_name.pop_first()?;
        self.by_number.remove(&number);
        Some(named)
    }

    pub fn list(&self, to: &mut Listing) {
        let below = match to.scan.position {
            FIRST => Unbounded,
            position => Excluded(position),
        };
        for (number, name) in self.by_number.range((Unbounded, below)).rev() {
            let Some((_, named)) = self.by_name.get(name) else { continue };
            if !to.add(named.node.ino(), *number, named.node.kind().d_type(), name) {
                return;
            }
        }
    }
}
