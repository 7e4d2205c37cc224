//! What callers say and are told.

use alloc::sync::Arc;
use fs::Object;
use machine::{Access, UserAddr};

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere; there if it is free. NULL: no wish.
    Hint(UserAddr),
    /// MAP_FIXED: there, replacing what is there.
    Fixed(UserAddr),
    /// MAP_FIXED_NOREPLACE: there, or EEXIST.
    FixedNoReplace(UserAddr),
}

#[derive(Clone)]
pub enum Source {
    Anonymous,
    Object {
        object: Arc<dyn Object>,
        /// Byte offset, a multiple of the page size.
        offset: u64,
        /// Path for /proc/PID/maps.
        label: Arc<[u8]>,
        /// What mprotect may allow at most (the file's open mode).
        limit: Access,
    },
}

/// An mmap.
#[derive(Clone)]
pub struct MapRequest {
    pub place: Place,
    pub length: u64,
    pub prot: Access,
    pub shared: bool,
    pub source: Source,
    pub grows_down: bool,
    pub no_reserve: bool,
    pub locked: bool,
    /// May lie below [`crate::MMAP_MIN`] (CAP_SYS_RAWIO).
    pub low: bool,
    /// The main stack.
    pub stack: bool,
    /// The program that execve loads: nobody opens its file to write it (ETXTBSY).
    pub program: bool,
}

impl MapRequest {
    /// Private anonymous memory anywhere, as malloc asks for it.
    pub fn anonymous(length: u64, prot: Access) -> Self {
        MapRequest {
            place: Place::Hint(UserAddr::NULL),
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
        }
    }

    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }
}

/// Sizes in pages (/proc/PID/statm, rusage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub mapped: u64,
    pub resident: u64,
    pub locked: u64,
    pub data: u64,
    pub stack: u64,
    pub text: u64,
}
