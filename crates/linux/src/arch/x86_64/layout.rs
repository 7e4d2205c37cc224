//! Structures and constants of x86-64 that other architectures have otherwise.

use crate::files::encode_device;
use fs::{Attributes, Timestamp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What uname(2) names the machine, and to a program with PER_LINUX32.
pub(crate) const MACHINE: &[u8] = b"x86_64";
pub(crate) const MACHINE_32: &[u8] = b"i686";

pub(crate) const MAP_32BIT: u64 = 0x40;

/// `struct stat`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Stat {
    dev: u64,
    ino: u64,
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    padding: u32,
    rdev: u64,
    size: u64,
    block_size: u64,
    blocks: u64,
    accessed: [u64; 2],
    modified: [u64; 2],
    changed: [u64; 2],
    unused: [u64; 3],
}

impl Stat {
    pub(crate) fn of(a: &Attributes) -> Self {
        let time = |at: Timestamp| [at.seconds as u64, u64::from(at.nanoseconds)];
        Stat {
            dev: encode_device(a.dev),
            ino: a.ino,
            nlink: u64::from(a.nlink),
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            padding: 0,
            rdev: encode_device(a.rdev),
            size: a.size,
            block_size: u64::from(a.block_size),
            blocks: a.blocks,
            accessed: time(a.accessed),
            modified: time(a.modified),
            changed: time(a.changed),
            unused: [0; 3],
        }
    }
}

/// `struct epoll_event`, packed here.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C, packed)]
pub(crate) struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

/// A time in `struct semid64_ds`, with what follows it.
pub(crate) fn with_time(seconds: i64) -> [u64; 2] {
    [seconds as u64, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use linux_raw_sys::general as raw;

    #[test]
    fn structures_have_linux_layout() {
        assert_eq!(size_of::<Stat>(), size_of::<raw::stat>());
        assert_eq!(offset_of!(Stat, mode), offset_of!(raw::stat, st_mode));
        assert_eq!(offset_of!(Stat, accessed), offset_of!(raw::stat, st_atime));
        assert_eq!(size_of::<EpollEvent>(), size_of::<raw::epoll_event>());
        assert_eq!(offset_of!(EpollEvent, data), offset_of!(raw::epoll_event, data));
    }
}
