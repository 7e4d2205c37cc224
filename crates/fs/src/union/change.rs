//! Changing names in the union.

use super::{
    copy::{close, is_whiteout, white_out},
    mark,
    node::{union, UnionInode},
    tmp,
};
use crate::{
    inode::{
        listing::{Listing, Scan, FIRST},
        NewNode,
    },
    Inode, Kind,
};
use alloc::sync::Arc;
use machine::{errno::Result, Errno};

/// The upper entry `name`, whiteouts included.
async fn entry(directory: &Arc<dyn Inode>, name: &[u8]) -> Result<Option<Arc<dyn Inode>>> {
    match directory.lookup(&crate::file::SYSTEM, name).await {
        Ok(node) => Ok(Some(node)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes a whiteout away; was there one?
async fn uncover(directory: &Arc<dyn Inode>, name: &[u8]) -> Result<bool> {
    match entry(directory, name).await? {
        Some(node) if is_whiteout(&node) => {
            directory.unlink(name, &node).await?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Empties a directory of its whiteouts before it goes.
async fn clear(directory: &Arc<dyn Inode>) -> Result<()> {
    let mut scan = Scan { position: FIRST, began: None };
    loop {
        let mut names = Listing::new(scan, 4096);
        directory.list(&crate::file::SYSTEM, &mut names).await?;
        let names = names.into_entries();
        let Some(last) = names.last() else { return Ok(()) };
        scan.position = last.next;
        for entry in names {
            uncover(directory, &entry.name).await?;
        }
    }
}

impl UnionInode {
    pub(super) async fn make(&self, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        let above = self.raise(true).await?;
        let hidden = uncover(&above, name).await?;
        let directory = new.kind == Kind::Directory;
        let upper = match above.create(name, new).await {
            Ok(upper) => upper,
            Err(error) => {
                if hidden {
                    white_out(&above, name).await?;
                }
                return Err(error);
            }
        };
        // Also if nothing is hidden: the host may make the same name later.
        if directory {
            close(&upper)?;
        }
        let this = self.this.upgrade().ok_or(Errno::ESTALE)?;
        let kind = upper.kind();
        let node = Self::get(&self.shared, None, Some(upper.clone()), Some((this, name.to_vec())))?;
        // A bound socket or a fifo's pipe hangs on this inode, which must not go while it has a name.
        if matches!(kind, Kind::Fifo | Kind::Socket)
            && let Some(attachment) = upper.attachment()
        {
            *attachment.lock() = Some(node.clone());
        }
        Ok(node)
    }

    pub(super) async fn add_name(&self, name: &[u8], node: &Arc<dyn Inode>) -> Result<()> {
        let upper = union(node)?.raise(true).await?;
        let above = self.raise(true).await?;
        uncover(&above, name).await?;
        above.link(name, &upper).await
    }

    /// After a name of `upper` went: what has no name left needs no remembering.
    fn release(&self, upper: &Arc<dyn Inode>) {
        if upper.attributes_now().is_none_or(|now| now.nlink > 0) {
            return;
        }
        if let Some(origin) = mark(upper).origin {
            let copy = self.shared.copies.lock().remove(&origin.ino());
            drop(copy);
        }
        let keeper = upper.attachment().and_then(|attachment| attachment.lock().take());
        drop(keeper);
    }

    /// `node` lost a name that exists only below.
    fn lose(&self, node: &UnionInode) -> Result<()> {
        match node.upper() {
            Some(upper) if node.kind() != Kind::Directory => {
                tmp(&upper)?.drop_link();
                self.release(&upper);
            }
            Some(_) => {}
            None => node.lose_name(),
        }
        Ok(())
    }

    pub(super) async fn remove(&self, name: &[u8], node: &Arc<dyn Inode>) -> Result<()> {
        let node = union(node)?;
        if node.kind() == Kind::Directory && !node.is_empty().await? {
            return Err(Errno::ENOTEMPTY);
        }
        let above = self.raise(true).await?;
        // Asked first: from here on nothing waits, so nobody sees the lower file come back.
        let hide = self.shows_through(name).await?;
        match entry(&above, name).await? {
            Some(found) => {
                if found.kind() == Kind::Directory {
                    clear(&found).await?;
                }
                above.unlink(name, &found).await?;
                self.release(&found);
            }
            None => self.lose(node)?,
        }
        if hide {
            white_out(&above, name).await?;
        }
        Ok(())
    }

    /// What may be moved: whatever is or can be wholly above.
    async fn movable(&self) -> Result<Arc<dyn Inode>> {
        if self.kind() == Kind::Directory && self.lower.is_some() {
            return Err(Errno::EXDEV);
        }
        self.raise(true).await
    }

    pub(super) async fn move_name(
        &self,
        from: &[u8],
        node: &Arc<dyn Inode>,
        target: &Arc<dyn Inode>,
        to: &[u8],
        old: Option<&Arc<dyn Inode>>,
    ) -> Result<()> {
        let target = union(target)?;
        if let Some(old) = old {
            let old = union(old)?;
            if old.kind() == Kind::Directory && !old.is_empty().await? {
                return Err(Errno::ENOTEMPTY);
            }
        }
        let upper = union(node)?.movable().await?;
        let (above, below) = (self.raise(true).await?, target.raise(true).await?);
        let hide = self.shows_through(from).await?;
        // From here on nothing waits.
        let replaced = entry(&below, to).await?;
        match (&replaced, old) {
            (Some(whiteout), _) if is_whiteout(whiteout) => below.unlink(to, whiteout).await?,
            (Some(directory), _) if directory.kind() == Kind::Directory => clear(directory).await?,
            (None, Some(old)) => self.lose(union(old)?)?,
            _ => {}
        }
        let replaced = replaced.filter(|replaced| !is_whiteout(replaced));
        if entry(&above, from).await?.is_none() {
            // A lower name of a copied-up file: give it an upper one first, without counting it twice.
            above.link(from, &upper).await?;
            tmp(&upper)?.drop_link();
        }
        above.rename(from, &upper, &below, to, replaced.as_ref()).await?;
        if let Some(replaced) = &replaced {
            self.release(replaced);
        }
        if upper.kind() == Kind::Directory {
            close(&upper)?;
        }
        if hide {
            white_out(&above, from).await?;
        }
        Ok(())
    }

    pub(super) async fn swap_names(
        &self,
        from: &[u8],
        node: &Arc<dyn Inode>,
        target: &Arc<dyn Inode>,
        to: &[u8],
        other: &Arc<dyn Inode>,
    ) -> Result<()> {
        let (a, b) = (union(node)?.movable().await?, union(other)?.movable().await?);
        let (above, below) = (self.raise(true).await?, union(target)?.raise(true).await?);
        for (directory, name, upper) in [(&above, from, &a), (&below, to, &b)] {
            if entry(directory, name).await?.is_none() {
                directory.link(name, upper).await?;
                tmp(upper)?.drop_link();
            }
        }
        above.exchange(from, &a, &below, to, &b).await?;
        for upper in [&a, &b] {
            if upper.kind() == Kind::Directory && !mark(upper).opaque {
                close(upper)?;
            }
        }
        Ok(())
    }
}
