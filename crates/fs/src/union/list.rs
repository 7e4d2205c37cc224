//! Listing a directory of the union: the upper names first, then the lower ones that nothing above hides.
//!
//! While a scan is under way a lower name may get an upper file (it is copied up, or replaced by a rename): it has been there all the
//! time, so it must come once. The scan passed the upper names without it, so it is still the lower directory that brings it. Therefore a
//! scan notes, when it begins, how far the upper directory's numbers are ([`Scan::began`](crate::inode::listing::Scan)). An upper name made
//! before is given by the upper part and skipped in the lower one; an upper name made since is given in the lower part if the lower directory
//! has it, and is otherwise a new name, which comes in the next scan.
//!
//! ```text
//!   scan                      another program
//!   upper: a (number 3)       .
//!   .                         chmod b: copied up as number 4
//!   lower: a? above, 3: skip  .
//!   lower: b? above, 4: give, as the upper file
//! ```
//!
//! Positions in the lower directory are its own. In the upper one they are its own, too, plus [`UPPER`], which makes them negative
//! for lseek; where there is no lower directory they are left as they are.

use super::{copy::is_whiteout, mark, node::UnionInode, tmp, UPPER_INO};
use crate::{
    inode::listing::{Listing, Scan, FIRST},
    Caller, Inode,
};
use alloc::sync::Arc;
use machine::{errno::Result, yield_now};

/// In positions of a directory that has two parts, those of the upper one.
const UPPER: u64 = 1 << 63;
/// The last of them: fewer names than that are ever made.
const LAST: u64 = UPPER | 1 << 62;
/// Bytes of names that are looked at at a time: at least, and at most however many are hidden.
const PIECE: (usize, usize) = (2 << 10, 32 << 10);

/// Of a directory with or without a lower part.
pub(super) fn last_position(two_parts: bool) -> u64 {
    if two_parts {
        LAST
    } else {
        i64::MAX as u64
    }
}

/// The number that the union shows for an upper file.
fn shown(upper: &Arc<dyn Inode>) -> u64 {
    mark(upper).origin.map_or(UPPER_INO | upper.ino(), |origin| origin.ino())
}

/// Pieces of a layer: each twice as large as the one before, for the caller asks again only if he was given nothing he could use.
struct Pieces {
    room: usize,
}

impl Pieces {
    fn for_room(room: usize) -> Self {
        Pieces { room: room.clamp(PIECE.0, PIECE.1) }
    }

    fn next(&mut self, position: u64) -> Listing {
        let piece = Listing::new(Scan { position, began: None }, self.room);
        self.room = (2 * self.room).min(PIECE.1);
        piece
    }
}

impl UnionInode {
    pub(super) async fn merge(&self, caller: &Caller, to: &mut Listing) -> Result<()> {
        let position = to.scan.position;
        let in_upper = position == FIRST || position >= UPPER || self.lower.is_none();
        if position == FIRST || to.scan.began.is_none() {
            to.scan.began = Some(match self.upper() {
                Some(upper) => tmp(&upper)?.newest()?,
                None => FIRST,
            });
        }
        let began = to.scan.began.unwrap_or(FIRST);
        if in_upper && !self.list_upper(caller, began, to).await? {
            return Ok(());
        }
        self.list_lower(caller, if in_upper { FIRST } else { position }, began, to).await
    }

    /// Gives the names that were there when the scan began; false: there is no room for all.
    async fn list_upper(&self, caller: &Caller, began: u64, to: &mut Listing) -> Result<bool> {
        let Some(upper) = self.upper() else { return Ok(true) };
        let layer = if self.lower.is_some() { UPPER } else { 0 };
        // Behind the newest, so that it is the first.
        let mut position = match to.scan.position {
            FIRST => began + 1,
            position => (position & !UPPER).min(began + 1),
        };
        let mut pieces = Pieces::for_room(to.room());
        loop {
            let mut piece = pieces.next(position);
            upper.list(caller, &mut piece).await?;
            let entries = piece.into_entries();
            let Some(last) = entries.last() else { return Ok(true) };
            position = last.next;
            let room = to.room();
            for entry in entries {
                let Some((_, node)) = tmp(&upper)?.find(&entry.name)? else { continue };
                if !is_whiteout(&node) && !to.add(shown(&node), layer | entry.next, entry.d_type, &entry.name) {
                    return Ok(false);
                }
            }
            // However many names are hidden, others have their turn.
            if to.room() == room {
                yield_now().await;
            }
        }
    }

    /// Gives the lower names from `position` on, as what they are above if they came there since the scan began.
    async fn list_lower(&self, caller: &Caller, mut position: u64, began: u64, to: &mut Listing) -> Result<()> {
        let Some(below) = self.below() else { return Ok(()) };
        let mut pieces = Pieces::for_room(to.room());
        let mut given = false;
        while !given {
            let mut piece = pieces.next(position);
            below.list(caller, &mut piece).await?;
            let entries = piece.into_entries();
            let Some(last) = entries.last() else { return Ok(()) };
            position = last.next;
            for entry in entries {
                let above = match self.upper() {
                    Some(upper) => tmp(&upper)?.find(&entry.name)?,
                    None => None,
                };
                let (ino, d_type) = match above {
                    Some((number, node)) if number <= began || is_whiteout(&node) => continue,
                    Some((_, node)) => (shown(&node), node.kind().d_type()),
                    None => (entry.ino, entry.d_type),
                };
                if !to.add(ino, entry.next, d_type, &entry.name) {
                    return Ok(());
                }
                given = true;
            }
            if !given {
                yield_now().await;
            }
        }
        Ok(())
    }

    pub(super) async fn is_empty(&self) -> Result<bool> {
        let mut names = Listing::new(Scan { position: FIRST, began: None }, PIECE.1);
        self.merge(&crate::file::SYSTEM, &mut names).await?;
        Ok(names.is_empty())
    }
}
