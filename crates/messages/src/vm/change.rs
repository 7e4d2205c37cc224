//! Changes of an address space: mmap, munmap, mprotect and their kin.

use super::Owners;
use abi::ObjectId;
use alloc::vec::Vec;
use machine::{errno, Access, Page, PageRange, UserAddr};
use serde::{Deserialize, Serialize};

/// A change of the address space that the owner of the range makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// mmap at a given place; what was there goes, unless `replace` is false: then EEXIST.
    Map {
        /// Pages that are mapped.
        range: PageRange,
        /// MAP_FIXED, not MAP_FIXED_NOREPLACE.
        replace: bool,
        /// Protection and flags.
        kind: RegionKind,
        /// What it shows; None: anonymous memory.
        backing: Option<RemoteBacking>,
    },
    /// mmap at a place that the asked kernel chooses. It owns the object that is mapped shared: the owner of a mapping of shared
    /// pages must have the frames itself.
    Place {
        /// Its length.
        pages: u64,
        /// Protection and flags.
        kind: RegionKind,
        /// The shared object.
        backing: RemoteBacking,
    },
    /// munmap(2).
    Unmap {
        /// Pages of which nothing is mapped afterwards.
        range: PageRange,
    },
    /// mprotect(2).
    Protect {
        /// Pages that get another protection. ENOMEM if something in it is not mapped.
        range: PageRange,
        /// The new protection; EACCES if a region's limit forbids it.
        prot: Access,
    },
    /// madvise(2).
    Advise {
        /// Pages that the advice is about.
        range: PageRange,
        /// MADV_*.
        advice: u32,
    },
    /// msync(2).
    Sync {
        /// Pages that are written to their file.
        range: PageRange,
        /// MS_*.
        flags: u32,
    },
    /// mlock(2), munlock(2).
    Lock {
        /// Pages that are kept in memory, or no longer.
        range: PageRange,
        /// mlock, not munlock.
        on: bool,
    },
    /// brk(2). Only home takes it, which keeps the break.
    Break {
        /// The new break. Answers the break that holds then, as brk(2) does.
        to: UserAddr,
    },
    /// mremap(2).
    Remap {
        /// What is there now.
        from: PageRange,
        /// The new length.
        pages: u64,
        /// MREMAP_*.
        flags: u32,
        /// The new place, if MREMAP_FIXED gives one.
        to: Option<Page>,
    },
}

/// Everything about a region but where it is and what backs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionKind {
    /// As given to mmap or mprotect.
    pub prot: Access,
    /// What mprotect may give it at most (a shared mapping of a file opened read-only can't become
    /// writable).
    pub limit: Access,
    /// Bits of `vm::RegionFlags`.
    pub flags: u32,
}

/// What a mapping that is not anonymous memory shows, in names that other kernels understand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteBacking {
    /// The file or shared memory; its owner is part of the name.
    pub object: ObjectId,
    /// Page of the object at the start of the mapping.
    pub first: u64,
    /// Path for /proc/PID/maps.
    pub label: Vec<u8>,
}

/// What a kernel answers to a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeReply {
    /// An address (mmap, mremap, brk) or 0; or the errno of the call.
    Done(errno::Result<u64>),
    /// The asked kernel does not own the range; these do. Nothing has been changed.
    Moved(Owners),
}
