//! An inode of ext4.

use super::{errno, Shared};
use crate::{
    file::{ready, Destination, Frames, Source, Transfer},
    inode::{
        listing::{Listing, FIRST},
        Followed, WriteAt,
    },
    lease::Sharers,
    locks::LockTable,
    Attributes, Caller, FileSystemInfo, Inode, Kind, Object, PageCache, SetAttributes, Store, Timestamp,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use ext4::{FileType, Time};
use machine::{errno::Result, BoxFuture, Errno};
use spin::Once;

pub struct Node {
    shared: Arc<Shared>,
    inode: ext4::Inode,
    kind: Kind,
    /// Of a regular file that somebody has used.
    cache: Once<Arc<PageCache>>,
    sharers: Sharers,
    locks: LockTable,
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, inode: ext4::Inode) -> Result<Arc<Node>> {
        let kind = match inode.file_type().map_err(errno)? {
            FileType::Fifo => Kind::Fifo,
            FileType::CharDevice => Kind::CharDevice,
            FileType::Directory => Kind::Directory,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Regular => Kind::Regular,
            FileType::Symlink => Kind::Symlink,
            FileType::Socket => Kind::Socket,
        };
        Ok(Arc::new(Node {
            shared: shared.clone(),
            inode,
            kind,
            cache: Once::new(),
            sharers: Sharers::default(),
            locks: LockTable::default(),
        }))
    }

    fn cache(&self) -> Result<&Arc<PageCache>> {
        if self.kind != Kind::Regular {
            return Err(Errno::EINVAL);
        }
        Ok(self.cache.call_once(|| {
            let content = Content { shared: self.shared.clone(), inode: self.inode.clone() };
            PageCache::over(&self.shared.services, self.inode.size, Arc::new(content))
        }))
    }

    fn snapshot(&self) -> Attributes {
        let inode = &self.inode;
        let time = |time: Time| Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
        let is_device = matches!(self.kind, Kind::CharDevice | Kind::BlockDevice);
        Attributes {
            dev: self.shared.disk().number(),
            ino: inode.number.into(),
            mode: inode.mode.into(),
            nlink: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            rdev: if is_device { inode.device() } else { (0, 0) },
            size: inode.size,
            block_size: self.shared.volume.superblock().block_bytes,
            blocks: inode.sectors,
            accessed: time(inode.accessed),
            modified: time(inode.modified),
            changed: time(inode.changed),
        }
    }
}

/// The largest block of a disk.
static ZEROES: [u8; 4096] = [0; 4096];

/// Where the bytes of a file come from.
struct Content {
    shared: Arc<Shared>,
    inode: ext4::Inode,
}

impl Store for Content {
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let block = u64::from(self.shared.volume.superblock().block_bytes);
            let left = usize::try_from(self.inode.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let wanted = to.len().min(left);
            let mut done = 0;
            while done < wanted {
                let at = offset + done as u64;
                let number = u32::try_from(at / block).map_err(|_| Errno::EFBIG)?;
                let run = self.shared.volume.map(&self.inode, number).await.map_err(errno)?;
                let bytes = (u64::from(run.blocks) * block - at % block).min((wanted - done) as u64) as usize;
                if let Some(place) = run.place {
                    // The disk has no smaller parts; what comes with it from behind the end nobody may see.
                    let part = self.shared.disk().device().limits().block as usize;
                    let whole = bytes.next_multiple_of(part).min(to.len() - done);
                    self.shared.disk().read_into(place * block + at % block, to.part(done, whole)).await?;
                    to.part(done + bytes, whole - bytes).put(&ZEROES[..whole - bytes]);
                }
                done += bytes;
            }
            Ok(wanted)
        })
    }

    fn write<'a>(&'a self, _offset: u64, _from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EROFS))
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn ino(&self) -> u64 {
        self.inode.number.into()
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.snapshot()))
    }

    fn attributes_now(&self) -> Option<Attributes> {
        Some(self.snapshot())
    }

    fn set(&self, _set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EROFS))
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        ready(Ok(self.shared.info()))
    }

    fn locks(&self) -> Option<&LockTable> {
        Some(&self.locks)
    }

    fn sharers(&self) -> Option<&Sharers> {
        Some(&self.sharers)
    }

    fn write_refused(&self) -> Option<Errno> {
        Some(Errno::EROFS)
    }

    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            if self.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            let volume = &self.shared.volume;
            let entry = volume.lookup(&self.inode, name).await.map_err(errno)?.ok_or(Errno::ENOENT)?;
            let inode = volume.inode(entry.inode).await.map_err(errno)?;
            let inode = inode.ok_or_else(|| errno(ext4::Error::Corrupt("a name without an inode")))?;
            Ok(self.shared.node(inode)? as Arc<dyn Inode>)
        })
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            let mut from = to.scan.position.saturating_sub(FIRST);
            while !to.is_full() {
                let entries = self.shared.volume.list(&self.inode, from).await.map_err(errno)?;
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
        })
    }

    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move {
            if self.kind != Kind::Symlink {
                return Err(Errno::EINVAL);
            }
            let target: Vec<u8> = self.shared.volume.link(&self.inode).await.map_err(errno)?;
            Ok(Followed::Path(target))
        })
    }

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        match self.cache() {
            Ok(cache) => cache.read(to, offset),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn write<'a>(&'a self, _from: Source<'a>, _at: WriteAt) -> Transfer<'a, (u64, usize)> {
        Transfer::Done(Err(Errno::EROFS))
    }

    fn object(&self, write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(match write {
            true => Err(Errno::EROFS),
            false => self.cache().map(|cache| cache.clone() as Arc<dyn Object>),
        })
    }
}
