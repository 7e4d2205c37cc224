//! What an entry of a page table says (Intel SDM 3A, table 5-20). One of the last level, for user memory:
//!
//! ```text
//!  63  58..54  53..52          51..12  11..9                  6 5 2 1 0
//!  NX  KEPT    BORROWED LOCKED frame   CACHE EXPORTED COW ... D A U W P
//! ```
//!
//! The software bits lie where the hardware ignores them. A page that is kept but may not be touched
//! (`PROT_NONE`) is a non-present entry with KEPT set, of which the hardware looks at nothing but P.
//! The hardware can't express "write only" or "execute only": such access reads back with READ added.

use machine::{Access, Frame, Mapping, Soft};

bitflags::bitflags! {
    /// Bits of an entry (Intel SDM 3A, table 4-20), and those that pages of the kernel have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bits: u64 {
        const PRESENT = 1 << 0;
        const WRITE = 1 << 1;
        const USER = 1 << 2;
        const WRITE_THROUGH = 1 << 3;
        const UNCACHED = 1 << 4;
        const ACCESSED = 1 << 5;
        const DIRTY = 1 << 6;
        /// In a directory entry: this is a 2 MiB page.
        const LARGE = 1 << 7;
        const GLOBAL = 1 << 8;
        const NO_EXECUTE = 1 << 63;

        /// An entry of an upper level that leads to a table of the kernel's half.
        const TABLE = 1 | 1 << 1 | 1 << 5;
        const TEXT = 1 | 1 << 5 | 1 << 8;
        const READ_ONLY = 1 | 1 << 5 | 1 << 8 | 1 << 63;
        const DATA = 1 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 63;
        const DEVICE = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 63;
    }
}

pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

pub const PRESENT: u64 = Bits::PRESENT.bits();
pub const WRITE: u64 = Bits::WRITE.bits();
pub const ACCESSED: u64 = Bits::ACCESSED.bits();
pub const DIRTY: u64 = Bits::DIRTY.bits();
pub const LARGE: u64 = Bits::LARGE.bits();
const USER: u64 = Bits::USER.bits();
const NO_EXECUTE: u64 = Bits::NO_EXECUTE.bits();

const KEPT: u64 = 1 << 54;

/// The bits of [`Soft`] are three groups, each in the same order here and there: where they begin in an entry and in `Soft`.
const SHARING: (u32, u32) = (9, 0);
const MARKS: (u32, u32) = (ACCESSED.trailing_zeros(), 3);
const KEEPING: (u32, u32) = (52, 5);
const _: () = {
    assert!(Soft::COW.bits() | Soft::EXPORTED.bits() | Soft::CACHE.bits() == 0b111 << SHARING.1);
    assert!(Soft::ACCESSED.bits() == 1 << MARKS.1 && Soft::DIRTY.bits() == 0b10 << MARKS.1);
    assert!(Soft::LOCKED.bits() | Soft::BORROWED.bits() == 0b11 << KEEPING.1);
    assert!(DIRTY == ACCESSED << 1);
};

/// An entry of an upper level that leads to the table in `frame`.
pub fn to_table(frame: Frame) -> u64 {
    frame.address() | PRESENT | WRITE | USER
}

pub fn frame(entry: u64) -> Frame {
    Frame((entry & ADDRESS) >> machine::PAGE_BITS)
}

#[inline]
pub fn encode(mapping: Mapping) -> u64 {
    let bits = u64::from(mapping.soft.bits());
    let group = |(there, here): (u32, u32), mask: u64| (bits >> here & mask) << there;
    let soft = group(SHARING, 0b111) | group(MARKS, 0b11) | group(KEEPING, 0b11);
    let access = mapping.access;
    let mut entry = mapping.frame.address() & ADDRESS | soft | USER;
    entry |= if access.is_empty() { KEPT } else { PRESENT };
    if access.contains(Access::WRITE) {
        entry |= WRITE;
    }
    if !access.contains(Access::EXEC) {
        entry |= NO_EXECUTE;
    }
    entry
}

/// What `entry` says of a page, for the frame `number` frames further on.
#[inline]
pub fn nth(entry: u64, number: u64) -> u64 {
    entry + (number << machine::PAGE_BITS)
}

/// Does it map a page of this kernel's own, not one that is borrowed?
#[inline]
pub fn is_owned(entry: u64) -> bool {
    const BORROWED: u64 = (Soft::BORROWED.bits() as u64 >> KEEPING.1) << KEEPING.0;
    entry & (PRESENT | KEPT) != 0 && entry & BORROWED == 0
}

/// None for an empty entry.
#[inline]
pub fn decode(entry: u64) -> Option<Mapping> {
    let mut access = Access::empty();
    if entry & PRESENT != 0 {
        access |= Access::READ;
        access.set(Access::WRITE, entry & WRITE != 0);
        access.set(Access::EXEC, entry & NO_EXECUTE == 0);
    } else if entry & KEPT == 0 {
        return None;
    }
    let group = |(there, here): (u32, u32), mask: u64| (entry >> there & mask) << here;
    let soft = Soft::from_bits_retain((group(SHARING, 0b111) | group(MARKS, 0b11) | group(KEEPING, 0b11)) as u16);
    Some(Mapping { frame: frame(entry), access, soft })
}
