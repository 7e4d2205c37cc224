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
/// Levels of tables, and bits of an address that each looks at.
const LEVELS: u32 = 4;
const INDEX_BITS: u32 = 9;

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

/// Physical address of what the table at `root` has at `address`, read entry by entry by its physical address with `read`. None: there is nothing, or `read` refuses an entry's.
pub fn translate(root: u64, address: u64, read: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut table = root;
    for level in (0..LEVELS).rev() {
        let bits = machine::PAGE_BITS + level * INDEX_BITS;
        let entry = read((table & ADDRESS) + (address >> bits & ((1 << INDEX_BITS) - 1)) * 8)?;
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 0 || entry & LARGE != 0 {
            let inside = (1 << bits) - 1;
            return Some(entry & ADDRESS & !inside | address & inside);
        }
        table = entry;
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_table_is_followed_as_the_processor_does() {
        // Tables at 1, 2, 3 and 4 pages; a small page at page 9, a large one at 4 MiB, and a table that is none of this kernel's.
        let at = |table: u64, index: u64| table * 4096 + index * 8;
        let memory = HashMap::from([
            (at(1, 5), 2 << 12 | PRESENT),
            (at(2, 6), 3 << 12 | PRESENT),
            (at(3, 7), 4 << 12 | PRESENT | WRITE),
            (at(4, 8), 9 << 12 | PRESENT | NO_EXECUTE),
            (at(4, 9), 9 << 12 | KEPT),
            (at(3, 8), 4 << 20 | PRESENT | LARGE),
            (at(3, 9), 99 << 12 | PRESENT),
        ]);
        let read = |phys: u64| (phys < 10 << 12).then(|| memory.get(&phys).copied().unwrap_or(0));
        let address = |indices: [u64; 4]| indices.iter().fold(0, |sum, index| sum << 9 | index) << 12;
        // What stands in the lower bits of CR3 is no address.
        let found = |at: u64| translate(1 << 12 | 0x18, at, &read);
        assert_eq!(found(address([5, 6, 7, 8]) + 0x123), Some(9 << 12 | 0x123));
        assert_eq!(found(address([5, 6, 8, 3]) + 0x123), Some((4 << 20) + (3 << 12) + 0x123));
        assert_eq!(found(address([5, 6, 7, 9])), None);
        assert_eq!(found(address([5, 6, 9, 0])), None);
        assert_eq!(found(address([4, 0, 0, 0])), None);
    }
}
