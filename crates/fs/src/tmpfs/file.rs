//! Contents of tmpfs files, seals, and files without names.

use super::{node::TmpInode, Most, Shared};
use crate::{
    file::{Source, Transfer},
    inode::{NewNode, WriteAt},
    namespace::{Dentry, Location, Mount, RegularFile},
    File, FileSystem, Inode, Kind, MappingUse, Object, OpenFlags, PageCache, Services,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno};

/// F_SEAL_* (man 2 fcntl).
pub mod seals {
    pub const SEAL: u32 = 1;
    pub const SHRINK: u32 = 2;
    pub const GROW: u32 = 4;
    pub const WRITE: u32 = 8;
    pub const FUTURE_WRITE: u32 = 16;
    pub const EXEC: u32 = 32;
    pub const ALL: u32 = 63;
}

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

impl TmpInode {
    /// May be written up to byte `end`, say the seals.
    pub(super) fn permit(&self, cache: &PageCache, end: u64) -> Result<()> {
        let sealed = self.meta.lock().seals;
        match sealed & (seals::WRITE | seals::FUTURE_WRITE) != 0 || sealed & seals::GROW != 0 && end > cache.len() {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }

    pub(super) fn write_to<'a>(
        &'a self,
        cache: &'a PageCache,
        from: Source<'a>,
        at: WriteAt,
    ) -> Transfer<'a, (u64, usize)> {
        cache.write(from, at.offset(), |_, end| self.permit(cache, end)).inspect(|(_, bytes)| {
            if *bytes > 0 {
                self.touch();
            }
        })
    }

    pub(super) async fn resize(&self, size: u64) -> Result<()> {
        let permit = |old: u64, new: u64| {
            let sealed = self.meta.lock().seals;
            let blocked = new > old && sealed & seals::GROW != 0 || new < old && sealed & seals::SHRINK != 0;
            if blocked {
                return Err(Errno::EPERM);
            }
            Ok(())
        };
        self.data()?.truncate(size, permit, crate::file::ready(Ok(()))).await
    }

    pub(super) async fn fallocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        let cache = self.data().map_err(|_| Errno::ENODEV)?;
        let sealed = self.meta.lock().seals;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        match mode {
            m if m == PUNCH_HOLE | KEEP_SIZE => {
                if sealed & (seals::WRITE | seals::FUTURE_WRITE) != 0 {
                    return Err(Errno::EPERM);
                }
                cache.punch(offset, end).await;
            }
            m if m & !(KEEP_SIZE | ZERO_RANGE) == 0 => {
                if sealed & seals::GROW != 0 && end > cache.len() && m & KEEP_SIZE == 0 {
                    return Err(Errno::EPERM);
                }
                if m & ZERO_RANGE != 0 {
                    cache.punch(offset, end).await;
                }
                cache.reserve(offset, end, m & KEEP_SIZE != 0).await?;
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.touch();
        Ok(())
    }

    /// Whether a shared mapping may write is found out when it is made ([`Object::admit_writer`]).
    pub(super) fn map(&self) -> Result<Arc<dyn Object>> {
        Ok(self.data().map_err(|_| Errno::ENODEV)?.clone())
    }

    /// Writing can only be sealed while nobody has the file mapped so that he could write to it: mapping and sealing may meet, on two
    /// kernels.
    ///
    /// ```text
    /// sealer                                 kernel K: mmap
    /// counts K's mappings: none
    ///                                        the mapping is there
    ///                                        "may I?": not sealed yet        <- and it is written for ever
    /// sealed
    /// ```
    ///
    /// So the question waits until what has begun is decided, and the mapping is there before it is asked: either it is counted, or
    /// the answer is no.
    pub(super) async fn add_seals(&self, add: u32) -> Result<u32> {
        let cache = self.data().map_err(|_| Errno::EINVAL)?;
        if add == 0 {
            return Ok(self.meta.lock().seals);
        }
        if add & !seals::ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let _deciding = cache.sealing.lock().await;
        let before = self.meta.lock().seals;
        if before & seals::SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if add & !before & seals::WRITE != 0 {
            let writers = match self.shared.services.mappers() {
                Some(mappers) => mappers.uses(cache.id(), MappingUse::Writes).await,
                None => 0,
            };
            if writers > 0 {
                return Err(Errno::EBUSY);
            }
        }
        let mut meta = self.meta.lock();
        meta.seals |= add;
        if add & (seals::WRITE | seals::FUTURE_WRITE) != 0 {
            cache.sealed.store(true, core::sync::atomic::Ordering::Release);
        }
        Ok(meta.seals)
    }
}

const MFD_ALLOW_SEALING: u32 = 2;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 16;
/// MFD_CLOEXEC is for the descriptor.
const MFD_KNOWN: u32 = 1 | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC;

/// The file itself, and 64 KiB of extended attributes.
const MEMFD_INODES: usize = 1 + 64;

/// The tree that files without names belong to: nobody can reach its root.
struct Nowhere(Arc<TmpInode>);

impl FileSystem for Nowhere {
    fn kind(&self) -> &'static str {
        "tmpfs"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.0.clone()
    }
}

/// memfd_create(2); `name` is at most 249 bytes.
pub fn memfd(services: &Arc<Services>, name: &[u8], flags: u32) -> Result<Arc<dyn File>> {
    let both = MFD_EXEC | MFD_NOEXEC_SEAL;
    if flags & !MFD_KNOWN != 0 || flags & both == both || name.len() > 249 {
        return Err(Errno::EINVAL);
    }
    let shared = Shared::new(services, Most { pages: usize::MAX, inodes: MEMFD_INODES });
    let new = NewNode {
        kind: Kind::Regular,
        mode: if flags & MFD_NOEXEC_SEAL != 0 { 0o666 } else { 0o777 },
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        target: Vec::new(),
    };
    let inode = TmpInode::make(&shared, new)?;
    let sealed = match flags {
        f if f & MFD_NOEXEC_SEAL != 0 => seals::EXEC,
        f if f & MFD_ALLOW_SEALING != 0 => 0,
        _ => seals::SEAL,
    };
    inode.meta.lock().seals = sealed;
    if let Ok(cache) = inode.data() {
        cache.sealable.store(sealed & seals::SEAL == 0, core::sync::atomic::Ordering::Release);
    }
    let root = Arc::new(Nowhere(TmpInode::directory(&shared, 0o700, 0, 0)));
    let mount = Mount::detached(root);
    let mut full = b"memfd:".to_vec();
    full.extend_from_slice(name);
    let dentry = Dentry::unnamed(inode, None, full);
    Ok(RegularFile::of_memory(services, Location { mount, dentry }, OpenFlags::RDWR | OpenFlags::LARGEFILE))
}

/// Shared anonymous memory of `size` bytes (MAP_SHARED | MAP_ANONYMOUS, System V segments).
pub fn anonymous_object(services: &Arc<Services>, size: u64) -> Arc<dyn Object> {
    PageCache::memory(services, size)
}
