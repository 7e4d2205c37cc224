//! tmpfs: files that exist only in memory.
//!
//! Serves /tmp and /dev, the writable layer of the root, memfd_create(2) and shared anonymous memory.
//! Names and attributes are plain structures of one kernel; contents are a [`PageCache`] with nothing
//! below it.

mod file;
mod node;

pub use file::{anonymous_object, memfd, seals};
pub use node::TmpInode;

use crate::{namespace::Mounter, FileSystem, FileSystemInfo, Inode, Services};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{errno::Result, BoxFuture, Errno, PAGE_SIZE};

/// TMPFS_MAGIC
const MAGIC: u64 = 0x0102_1994;

/// What the nodes of one tmpfs share.
pub(crate) struct Shared {
    pub services: Arc<Services>,
    pub device: (u32, u32),
    next_ino: AtomicU64,
}

impl Shared {
    fn new(services: &Arc<Services>) -> Arc<Self> {
        Arc::new(Shared {
            services: services.clone(),
            device: services.anonymous_device(),
            next_ino: AtomicU64::new(1),
        })
    }

    fn ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    fn info(&self) -> FileSystemInfo {
        let (all, free) = self.services.memory.totals();
        FileSystemInfo {
            kind: MAGIC,
            block_size: PAGE_SIZE as u64,
            blocks: all,
            blocks_free: free,
            blocks_available: free,
            files: all,
            files_free: free,
            id: u64::from(self.device.1),
            name_max: 255,
            flags: 0,
        }
    }
}

pub struct Tmpfs {
    kind: &'static str,
    root: Arc<TmpInode>,
}

impl Tmpfs {
    /// An empty tree whose root has `mode`.
    pub fn new(services: &Arc<Services>, mode: u32) -> Arc<Self> {
        Self::named(services, "tmpfs", mode)
    }

    pub(crate) fn named(services: &Arc<Services>, kind: &'static str, mode: u32) -> Arc<Self> {
        let root = TmpInode::directory(&Shared::new(services), mode, 0, 0);
        Arc::new(Tmpfs { kind, root })
    }
}

impl FileSystem for Tmpfs {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }
}

/// `mount -t tmpfs`, with the options mode=, uid=, gid=; size= and its kin are accepted and not enforced.
pub struct TmpMounter {
    pub services: Arc<Services>,
}

impl Mounter for TmpMounter {
    fn mount<'a>(&'a self, _source: &'a [u8], data: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(async move {
            let (mut mode, mut uid, mut gid) = (0o1777, 0, 0);
            let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
            for option in text.split(',').filter(|option| !option.is_empty()) {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                match name {
                    "mode" => mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)? & 0o7777,
                    "uid" => uid = value.parse().map_err(|_| Errno::EINVAL)?,
                    "gid" => gid = value.parse().map_err(|_| Errno::EINVAL)?,
                    "size" | "nr_blocks" | "nr_inodes" | "huge" | "mpol" | "inode32" | "inode64" => {}
                    _ => return Err(Errno::EINVAL),
                }
            }
            let root = TmpInode::directory(&Shared::new(&self.services), mode, uid, gid);
            Ok(Arc::new(Tmpfs { kind: "tmpfs", root }) as Arc<dyn FileSystem>)
        })
    }
}
