//! Copying up.
//!
//! The copy is complete before it gets its name, so that an interrupted one leaves nothing behind: a
//! reader finds the lower file or the whole upper one.

use super::{mark, node::UnionInode, set_mark, tmp, Mark};
use crate::{
    file::{Destination, Source},
    inode::{acl::AclKind, Followed, NewNode, WriteAt},
    lease, Inode, Kind, ReadAhead, SetAttributes, SetWhen,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{collections::try_filled, errno::Result, BoxFuture, Errno};

const CHUNK: usize = 64 * 1024;

impl UnionInode {
    /// The upper inode, made if need be. `contents`: not if they will be cut off anyway.
    pub(super) async fn raise(&self, contents: bool) -> Result<Arc<dyn Inode>> {
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        let _copying = self.shared.copying.lock().await;
        self.raise_locked(contents).await
    }

    fn raise_locked(&self, contents: bool) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            if let Some(upper) = self.upper() {
                return Ok(upper);
            }
            let lower = self.lower.clone().ok_or(Errno::ESTALE)?;
            let _changing = self.sharers.change(&[lease::OWN]).await;
            let upper = match self.origin() {
                Some((parent, name)) => {
                    let above = parent.raise_locked(true).await?;
                    self.copy(&lower, Some((&above, name.as_slice())), contents).await?
                }
                // Its name was removed while it was open.
                None => self.copy(&lower, None, contents).await?,
            };
            if self.kind() != Kind::Directory && self.links_below(1) > 0 {
                let old = self.shared.copies.lock().insert(lower.ino(), upper.clone());
                drop(old);
            }
            self.set_upper(upper.clone());
            Ok(upper)
        })
    }

    async fn copy(
        &self,
        lower: &Arc<dyn Inode>,
        place: Option<(&Arc<dyn Inode>, &[u8])>,
        contents: bool,
    ) -> Result<Arc<dyn Inode>> {
        let attributes = lower.attributes().await?;
        let kind = lower.kind();
        let target = match kind {
            Kind::Symlink => match lower.follow(&crate::file::SYSTEM).await? {
                Followed::Path(path) => path,
                Followed::File(_) => return Err(Errno::EPERM),
            },
            _ => Vec::new(),
        };
        let new = NewNode {
            kind,
            mode: attributes.mode & 0o7777,
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: attributes.rdev,
            target,
        };
        let upper = self.shared.root.create_unnamed(new).await?;
        if kind == Kind::Regular && contents {
            copy_contents(lower, &upper).await?;
        }
        copy_xattrs(lower, &upper).await?;
        let times = SetAttributes {
            accessed: Some(attributes.accessed),
            modified: Some(attributes.modified),
            ..SetAttributes::default()
        };
        upper.set(times).await?;
        set_mark(&upper, Mark { opaque: false, origin: Some(lower.clone()) })?;
        let links = if kind == Kind::Directory { 2 } else { self.links_below(attributes.nlink) };
        if let Some((above, name)) = place {
            // The directory shows no change: its names are the same ones.
            let before = above.attributes().await?;
            above.link(name, &upper).await?;
            let links = above.attributes().await?.nlink;
            tmp(above)?.set_origin(links, before.accessed, before.modified);
        }
        tmp(&upper)?.set_origin(links, attributes.accessed, attributes.modified);
        Ok(upper)
    }
}

async fn copy_xattrs(lower: &Arc<dyn Inode>, upper: &Arc<dyn Inode>) -> Result<()> {
    for name in lower.xattrs().await? {
        if let Some(kind) = AclKind::of_name(&name) {
            upper.set_acl(kind, lower.acl(kind)?, None).await?;
            continue;
        }
        match lower.xattr(&name).await {
            Ok(value) => upper.set_xattr(&name, Some(&value), SetWhen::ALWAYS).await?,
            // Removed since it was listed.
            Err(Errno::ENODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn copy_contents(lower: &Arc<dyn Inode>, upper: &Arc<dyn Inode>) -> Result<()> {
    let mut buf = try_filled(CHUNK, 0)?;
    let mut offset = 0;
    loop {
        let read = lower.read(Destination::Kernel(&mut buf), offset, ReadAhead::Normal).await?;
        if read == 0 {
            return Ok(());
        }
        let mut done = 0;
        while done < read {
            let at = WriteAt::Offset(offset + done as u64);
            done += upper.write(Source::Kernel(&buf[done..read]), at).await?.1;
        }
        offset += read as u64;
    }
}

/// Is this a whiteout?
pub(super) fn is_whiteout(node: &Arc<dyn Inode>) -> bool {
    node.kind() == Kind::CharDevice
        && node.attributes_now().is_some_and(|attributes| attributes.rdev == (0, 0) && attributes.mode & 0o7777 == 0)
}

/// Hides `name` of the tree below.
pub(super) async fn white_out(above: &Arc<dyn Inode>, name: &[u8]) -> Result<()> {
    let new = NewNode { kind: Kind::CharDevice, mode: 0, uid: 0, gid: 0, rdev: (0, 0), target: Vec::new() };
    above.create(name, new).await.map(drop)
}

/// Makes a directory opaque.
pub(super) fn close(upper: &Arc<dyn Inode>) -> Result<()> {
    let mark = mark(upper);
    set_mark(upper, Mark { opaque: true, ..mark })
}
