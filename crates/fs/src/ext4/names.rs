//! Names in a directory: found without keeping others from changing them, and changed by one at a time.

use super::{
    errno,
    node::{own, time, Node},
};
use crate::{
    inode::{
        listing::{Listing, FIRST},
        NewNode,
    },
    Inode, Kind,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use ext4::NewInode;
use machine::{errno::Result, sync::AsyncGuard, Errno};

impl Node {
    /// To change names in it.
    async fn change_names(&self) -> ChangingNames<'_> {
        let locked = self.names.lock().await;
        self.changes.fetch_add(1, SeqCst);
        ChangingNames { node: self, _locked: locked }
    }

    /// The same in two directories, which may be one.
    async fn change_both<'a>(&'a self, other: &'a Node) -> (ChangingNames<'a>, Option<ChangingNames<'a>>) {
        if self.number == other.number {
            return (self.change_names().await, None);
        }
        let (first, second) = if self.number < other.number { (self, other) } else { (other, self) };
        let first = first.change_names().await;
        (first, Some(second.change_names().await))
    }

    /// The inode of a directory whose names are to be looked at, and how often they have changed. Who looks keeps nobody from changing them; if somebody did ([`Node::is_unchanged`]), what
    /// was found counts for nothing, and he looks again while nobody can.
    async fn directory(&self) -> Result<(ext4::Inode, u64)> {
        if self.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let before = self.changes.load(SeqCst);
        Ok((self.shared.volume.any_inode(self.number).await.map_err(errno)?, before))
    }

    fn is_unchanged(&self, before: u64) -> bool {
        before.is_multiple_of(2) && self.changes.load(SeqCst) == before
    }

    async fn list_from(&self, from: u64) -> Result<Option<Vec<ext4::Entry>>> {
        let mut locked = None;
        loop {
            let (directory, before) = self.directory().await?;
            let found = self.shared.volume.list(&directory, from).await;
            if locked.is_some() || self.is_unchanged(before) {
                return found.map_err(|error| self.shared.met(error));
            }
            locked = Some(self.names.lock().await);
        }
    }

    /// See [`Inode::lookup`].
    pub(super) async fn lookup_name(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let mut locked = None;
        loop {
            let (directory, before) = self.directory().await?;
            let found = self.shared.volume.find(&directory, name).await;
            if locked.is_some() || self.is_unchanged(before) {
                let inode = found.map_err(|error| self.shared.met(error))?.ok_or(Errno::ENOENT)?;
                match self.shared.node(&inode).await {
                    // It has lost that name since.
                    Err(Errno::ENOENT) if locked.is_none() => {}
                    node => return Ok(node? as Arc<dyn Inode>),
                }
            }
            locked = Some(self.names.lock().await);
        }
    }

    fn new_inode(&self, new: &NewNode) -> NewInode {
        let now = self.now();
        NewInode {
            mode: (new.kind as u32 | new.mode & 0o7777) as u16,
            uid: new.uid,
            gid: new.gid,
            time: time(now),
            generation: now.nanoseconds ^ (now.seconds as u32).rotate_left(16) ^ self.number,
            device: new.rdev,
        }
    }

    /// A name of `node` in this directory has come or gone; `links`: how many it has now.
    fn count_names(&self, node: &Node, links: u16) {
        node.unlinked.store(links == 0, Relaxed);
        node.changed();
        self.changed();
    }

    /// See [`Inode::list`].
    pub(super) async fn list_names(&self, to: &mut Listing) -> Result<()> {
        self.was_read();
        let mut from = to.scan.position.saturating_sub(FIRST);
        while !to.is_full() {
            let entries = self.list_from(from).await?;
            let Some(entries) = entries else { return Ok(()) };
            for entry in entries {
                let is_dot = entry.name == b"." || entry.name == b"..";
                if !is_dot && !to.add(entry.inode.into(), FIRST + entry.next, entry.kind, &entry.name) {
                    return Ok(());
                }
                from = entry.next;
            }
        }
        Ok(())
    }

    /// See [`Inode::create`].
    pub(super) async fn make(&self, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        let inode = self.new_inode(&new);
        let target = (new.kind == Kind::Symlink).then_some(&new.target[..]);
        let _changing = self.change_names().await;
        let made = self.shared.volume.create(self.number, name, &inode, target).await.map_err(errno)?;
        self.changed();
        let node = self.shared.node(&made.inode).await?;
        node.changed();
        Ok(node as Arc<dyn Inode>)
    }

    /// See [`Inode::create_unnamed`].
    pub(super) async fn make_unnamed(&self, new: NewNode) -> Result<Arc<dyn Inode>> {
        let inode = self.new_inode(&new);
        let made = self.shared.volume.create_unnamed(self.number, &inode).await.map_err(errno)?;
        let node = self.shared.node(&made).await?;
        node.changed();
        Ok(node as Arc<dyn Inode>)
    }

    /// See [`Inode::link`].
    pub(super) async fn add_name(&self, name: &[u8], node: &Arc<dyn Inode>) -> Result<()> {
        let node = own(node)?;
        let now = time(self.now());
        let _changing = self.change_names().await;
        let linked = self.shared.volume.add_link(self.number, name, node.number, now).await.map_err(errno)?;
        self.count_names(node, linked.inode.links);
        Ok(())
    }

    /// See [`Inode::unlink`].
    pub(super) async fn remove_name(&self, name: &[u8], node: &Arc<dyn Inode>) -> Result<()> {
        let node = own(node)?;
        let (volume, now) = (&self.shared.volume, time(self.now()));
        let _changing = self.change_names().await;
        let changed = match node.kind {
            Kind::Directory => volume.remove_directory(self.number, name, node.number, now).await,
            _ => volume.unlink(self.number, name, node.number, now).await,
        };
        self.count_names(node, changed.map_err(errno)?.inode.links);
        Ok(())
    }

    /// See [`Inode::rename`].
    pub(super) async fn move_name(
        &self,
        from: &[u8],
        node: &Arc<dyn Inode>,
        target: &Arc<dyn Inode>,
        to: &[u8],
        old: Option<&Arc<dyn Inode>>,
    ) -> Result<()> {
        let (node, target) = (own(node)?, own(target)?);
        let old = old.map(own).transpose()?;
        let (volume, now) = (&self.shared.volume, time(self.now()));
        let replaced = old.map(|old| old.number);
        let _changing = self.change_both(target).await;
        let moved = volume.rename((self.number, from), node.number, (target.number, to), replaced, now);
        let changed = moved.await.map_err(errno)?;
        if let (Some(old), Some(other)) = (old, changed.other) {
            self.count_names(old, other.links);
        }
        node.changed();
        target.changed();
        self.changed();
        Ok(())
    }

    /// See [`Inode::exchange`].
    pub(super) async fn exchange_names(
        &self,
        from: &[u8],
        node: &Arc<dyn Inode>,
        target: &Arc<dyn Inode>,
        to: &[u8],
        other: &Arc<dyn Inode>,
    ) -> Result<()> {
        let (node, target, other) = (own(node)?, own(target)?, own(other)?);
        let now = time(self.now());
        let volume = &self.shared.volume;
        let _changing = self.change_both(target).await;
        let exchanged = volume.exchange((self.number, from), node.number, (target.number, to), other.number, now);
        exchanged.await.map_err(errno)?;
        [node, target, other].iter().for_each(|node| node.changed());
        self.changed();
        Ok(())
    }
}

/// Names of a directory are being changed.
struct ChangingNames<'a> {
    node: &'a Node,
    _locked: AsyncGuard<'a, ()>,
}

impl Drop for ChangingNames<'_> {
    fn drop(&mut self) {
        self.node.changes.fetch_add(1, SeqCst);
    }
}
