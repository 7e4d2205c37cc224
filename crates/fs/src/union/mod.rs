//! The root as programs see it: a tree in memory that takes all changes, over one that is only read.
//!
//! A name is looked up in the upper tree first, then, unless something there hides it, in the lower one.
//! Before a file is changed it is copied up, with the directories above it. What was removed below is
//! hidden by a *whiteout* (a character device 0:0, as overlayfs has it), and a directory made where one
//! was removed is *opaque*: nothing shows through it.
//!
//! Upper inodes carry a [`Mark`]: the number and the inode they came from, so that numbers stay the same
//! through a copy-up. All of a lower file's hard links are copied up at once, in effect: the copy is
//! remembered under the lower file's number, and its other names lead to the copy too.
//!
//! As with overlayfs: a directory that exists below can't be renamed (EXDEV; mv then copies), and a
//! mapping made before a copy-up keeps showing the lower file.

mod change;
mod copy;
mod list;
mod node;

use crate::{tmpfs::TmpInode, FileSystem, Inode, Services};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno,
};
use node::UnionInode;

/// Numbers of files that exist only above start here: those of the host are smaller.
const UPPER_INO: u64 = 1 << 52;

/// What is kept with an upper inode.
#[derive(Clone, Default)]
struct Mark {
    opaque: bool,
    /// The lower inode it is a copy of.
    origin: Option<Arc<dyn Inode>>,
}

fn tmp(node: &Arc<dyn Inode>) -> Result<&TmpInode> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

fn mark(upper: &Arc<dyn Inode>) -> Mark {
    let Ok(node) = tmp(upper) else { return Mark::default() };
    let mark = node.mark.lock();
    mark.as_ref().and_then(|mark| mark.downcast_ref::<Mark>()).cloned().unwrap_or_default()
}

fn set_mark(upper: &Arc<dyn Inode>, mark: Mark) -> Result<()> {
    let old = tmp(upper)?.mark.lock().replace(Arc::new(mark));
    drop(old);
    Ok(())
}

/// What the nodes of one union share.
struct Shared {
    device: (u32, u32),
    /// Of the upper tree.
    root: Arc<dyn Inode>,
    /// Inodes in use, by their number.
    nodes: Lock<BTreeMap<u64, Weak<UnionInode>>>,
    /// Upper copies of lower files that are not directories, by the lower number.
    copies: Lock<BTreeMap<u64, Arc<dyn Inode>>>,
    /// Held while something is copied up: a file is copied once, and its directories before it.
    copying: AsyncLock<()>,
}

pub struct Union {
    root: Arc<UnionInode>,
    upper: Arc<dyn FileSystem>,
    lower: Arc<dyn FileSystem>,
}

impl Union {
    /// `upper` must be a tmpfs that nobody else uses.
    pub fn new(services: &Arc<Services>, lower: Arc<dyn FileSystem>, upper: Arc<dyn FileSystem>) -> Result<Arc<Self>> {
        tmp(&upper.root())?;
        let shared = Arc::new(Shared {
            device: services.anonymous_device(),
            root: upper.root(),
            nodes: Lock::new(BTreeMap::new()),
            copies: Lock::new(BTreeMap::new()),
            copying: AsyncLock::new(()),
        });
        set_mark(&upper.root(), Mark { opaque: false, origin: Some(lower.root()) })?;
        let root = UnionInode::get(&shared, Some(lower.root()), Some(upper.root()), None)?;
        Ok(Arc::new(Union { root, upper, lower }))
    }
}

impl FileSystem for Union {
    fn kind(&self) -> &'static str {
        "overlay"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.upper.sync().await?;
            self.lower.sync().await
        })
    }
}
