//! tmpfs: files that exist only in memory.
//!
//! Serves /tmp and /dev, the writable layer of the root, memfd_create(2) and shared anonymous memory.
//! Names and attributes are plain structures of one kernel; contents are a [`PageCache`] with nothing
//! below it. Each tmpfs has an account of its own, which its pages, files, names and extended attributes are charged to: `size=` and
//! `nr_inodes=` are the account's limits (ENOSPC).

mod file;
mod names;
mod node;
mod xattrs;

pub use file::{anonymous_object, memfd, seals};
pub use node::TmpInode;

use crate::{
    inode::{Mounter, Placed},
    FileSystem, FileSystemInfo, Inode, Services,
};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    BoxFuture, Errno, KernelId, PAGE_SIZE,
};

/// TMPFS_MAGIC
const MAGIC: u64 = 0x0102_1994;

/// What the nodes of one tmpfs share.
pub(crate) struct Shared {
    pub services: Arc<Services>,
    pub device: (u32, u32),
    account: Arc<Account>,
    next_ino: AtomicU64,
}

impl Shared {
    fn new(services: &Arc<Services>, most: Most) -> Arc<Self> {
        Arc::new(Shared {
            services: services.clone(),
            device: services.anonymous_device(),
            account: Account::new(None, &[(Resource::Pages, most.pages), (Resource::Inodes, most.inodes)]),
            next_ino: AtomicU64::new(1),
        })
    }

    fn ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// A file, or one more name of a file. ENOSPC.
    fn charge_inode(&self) -> Result<Charge> {
        self.account.charge(Resource::Inodes, 1).map_err(|OverLimit| Errno::ENOSPC)
    }

    fn info(&self) -> FileSystemInfo {
        let (all, free) = self.services.memory.totals();
        let [(blocks, blocks_free), (files, files_free)] = [Resource::Pages, Resource::Inodes].map(|resource| {
            let (most, used) = (self.account.most(resource), self.account.used(resource));
            match most {
                usize::MAX => (all, free),
                most => (most as u64, most.saturating_sub(used) as u64),
            }
        });
        FileSystemInfo {
            kind: MAGIC,
            block_size: PAGE_SIZE as u64,
            blocks,
            blocks_free,
            blocks_available: blocks_free,
            files,
            files_free,
            id: u64::from(self.device.1),
            name_max: 255,
            ..FileSystemInfo::default()
        }
    }
}

/// However little memory there is.
const FEWEST: u64 = 1024;

/// How much may be in a tmpfs; usize::MAX: as much as there is memory.
#[derive(Clone, Copy)]
struct Most {
    pages: usize,
    inodes: usize,
}

impl Most {
    /// `part`: a file for so many pages of this kernel's memory. One takes 1 to 2 KiB with its name.
    fn new(services: &Services, part: u64) -> Self {
        Most { pages: usize::MAX, inodes: (services.memory.totals().0 / part).max(FEWEST) as usize }
    }

    /// `size=`, with a suffix or in percent of this kernel's memory (man 5 tmpfs); 0: no limit.
    fn size(services: &Services, text: &str) -> Result<usize> {
        let bytes = match text.strip_suffix('%') {
            Some(percent) => {
                let percent: u64 = percent.parse().map_err(|_| Errno::EINVAL)?;
                (services.memory.totals().0 * PAGE_SIZE as u64).checked_mul(percent).ok_or(Errno::EINVAL)? / 100
            }
            None => number(text)?,
        };
        Ok(unlimited_if_zero(bytes.div_ceil(PAGE_SIZE as u64)))
    }
}

fn unlimited_if_zero(most: u64) -> usize {
    match most {
        0 => usize::MAX,
        most => most as usize,
    }
}

/// A number with k, m or g behind it (memparse).
fn number(text: &str) -> Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    number.checked_mul(1 << shift).ok_or(Errno::EINVAL)
}

pub struct Tmpfs {
    kind: &'static str,
    root: Arc<TmpInode>,
}

impl Tmpfs {
    /// An empty tree whose root has `mode`, as large as memory allows.
    pub fn new(services: &Arc<Services>, mode: u32) -> Arc<Self> {
        Self::named(services, "tmpfs", mode)
    }

    pub(crate) fn named(services: &Arc<Services>, kind: &'static str, mode: u32) -> Arc<Self> {
        let root = TmpInode::directory(&Shared::new(services, Most::new(services, 1)), mode, 0, 0);
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

/// `mount -t tmpfs`, with the options mode=, uid=, gid=, size=, nr_blocks= and nr_inodes=; those of huge pages and NUMA are accepted
/// without effect. Without size= memory is the limit, without nr_inodes= a file for every two pages of it.
pub struct TmpMounter {
    pub services: Arc<Services>,
}

impl Mounter for TmpMounter {
    /// `-o kernel=2`: its files, and their pages, are on that kernel.
    fn place<'a>(&'a self, _source: &'a [u8], data: &'a [u8]) -> BoxFuture<'a, Result<Option<Placed>>> {
        let options = data.split(|byte| *byte == b',');
        let wanted = options.filter_map(|option| option.strip_prefix(b"kernel=")).next_back();
        let number = |text: &[u8]| core::str::from_utf8(text).ok()?.parse().ok();
        crate::file::ready(match wanted.map(number) {
            Some(None) => Err(Errno::EINVAL),
            Some(Some(kernel)) if KernelId(kernel) != self.services.memory.kernel() => {
                Ok(Some(Placed { kernel: KernelId(kernel), disk: None, lent: None }))
            }
            _ => Ok(None),
        })
    }

    fn mount<'a>(
        &'a self,
        _source: &'a [u8],
        data: &'a [u8],
        _read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(async move {
            let services = &self.services;
            let (mut mode, mut uid, mut gid, mut most) = (0o1777, 0, 0, Most::new(services, 2));
            let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
            for option in text.split(',').filter(|option| !option.is_empty()) {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                match name {
                    "mode" => mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)? & 0o7777,
                    "uid" => uid = value.parse().map_err(|_| Errno::EINVAL)?,
                    "gid" => gid = value.parse().map_err(|_| Errno::EINVAL)?,
                    "size" => most.pages = Most::size(services, value)?,
                    "nr_blocks" => most.pages = unlimited_if_zero(number(value)?),
                    "nr_inodes" => most.inodes = unlimited_if_zero(number(value)?),
                    // `kernel` has been obeyed: it is this one.
                    "huge" | "mpol" | "inode32" | "inode64" | "kernel" => {}
                    _ => return Err(Errno::EINVAL),
                }
            }
            let root = TmpInode::directory(&Shared::new(services, most), mode, uid, gid);
            Ok(Arc::new(Tmpfs { kind: "tmpfs", root }) as Arc<dyn FileSystem>)
        })
    }
}
