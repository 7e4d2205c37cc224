//! What callers say and are told.

use alloc::sync::Arc;
use fs::Object;
use machine::{Access, UserAddr};

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAddress {
    /// At this address if it is free, else anywhere. NULL: anywhere.
    Hint(UserAddr),
    /// MAP_FIXED: at this address, replacing what is mapped there.
    Fixed(UserAddr),
    /// MAP_FIXED_NOREPLACE: at this address; EEXIST if something is mapped there.
    FixedNoReplace(UserAddr),
}

/// What a mapping shows.
#[derive(Clone)]
pub enum Source {
    /// Memory that is zero at first.
    Anonymous,
    /// A file or shared memory.
    Object {
        /// The object that provides the pages. The region keeps it as long as it is mapped.
        object: Arc<dyn Object>,
        /// Byte offset, a multiple of the page size.
        offset: u64,
        /// Path for /proc/PID/maps.
        label: Arc<[u8]>,
        /// What mprotect may allow at most (the file's open mode).
        limit: Access,
    },
}

/// A request to map memory (mmap, execve).
#[derive(Clone)]
pub struct MapRequest {
    /// Where the mapping goes.
    pub place: MapAddress,
    /// Bytes; rounded up to whole pages. EINVAL if 0.
    pub length: u64,
    /// What may be done with the pages.
    pub prot: Access,
    /// MAP_SHARED: what is written is seen by all who map the object, and by the children of a fork.
    pub shared: bool,
    /// What it shows.
    pub source: Source,
    /// MAP_GROWSDOWN: a fault just below extends it, as far as RLIMIT_STACK allows.
    pub grows_down: bool,
    /// MAP_NORESERVE.
    pub no_reserve: bool,
    /// MAP_LOCKED, or mlockall(2) with MCL_FUTURE.
    pub locked: bool,
    /// May lie below [`crate::MMAP_MIN`] (CAP_SYS_RAWIO).
    pub low: bool,
    /// The main stack.
    pub stack: bool,
    /// The program that execve loads: nobody opens its file to write it (ETXTBSY).
    pub program: bool,
    /// The pages, if they are few and only read, belong to the kernel that maps them, so that the space outlives the object's kernel. (Of an object in that one's
    /// page cache it would see copies only.)
    pub survives_owner: bool,
}

impl MapRequest {
    /// Private anonymous memory anywhere, as malloc asks for it.
    pub fn anonymous(length: u64, prot: Access) -> Self {
        MapRequest {
            place: MapAddress::Hint(UserAddr::NULL),
            length,
            prot,
            shared: false,
            source: Source::Anonymous,
            grows_down: false,
            no_reserve: false,
            locked: false,
            low: false,
            stack: false,
            program: false,
            survives_owner: false,
        }
    }

    /// The same request, for another place.
    pub fn at(mut self, place: MapAddress) -> Self {
        self.place = place;
        self
    }
}

/// Sizes in pages (/proc/PID/statm, rusage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Size of all regions.
    pub mapped: u64,
    /// Pages of them that are in memory, on any kernel.
    pub resident: u64,
    /// Size of the regions that mlock(2) keeps in memory.
    pub locked: u64,
    /// Size of writable private regions, stacks left out.
    pub data: u64,
    /// Size of the regions that grow down.
    pub stack: u64,
    /// Size of the other executable regions.
    pub text: u64,
}
