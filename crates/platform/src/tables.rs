//! Four-level page tables of a kernel half, as data: how to fill and to read them, wherever they lie.
//! The primary builds its own through the identity map, a booting kernel builds another's through a
//! window, a running one changes its own through its direct map; all with this code.

use crate::arch::entry::{Bits, ADDRESS};
use machine::{NoMemory, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;
pub const LARGE_PAGE: u64 = 512 * PAGE;

/// Where table pages come from and how their words are reached. Tables are named by physical address.
pub trait TableMemory {
    /// A zeroed page.
    fn allocate(&mut self) -> Result<u64, NoMemory>;
    fn load(&self, table: u64, index: usize) -> u64;
    fn store(&mut self, table: u64, index: usize, value: u64);
}

pub fn is_present(entry: u64) -> bool {
    entry & Bits::PRESENT.bits() != 0
}

/// Index of `virt` in a table of `level` (4 is the top).
pub fn index(virt: u64, level: u32) -> usize {
    (virt >> (12 + 9 * (level - 1)) & 511) as usize
}

/// The table at `level` below `root` on the way to `virt`, made if missing.
pub fn descend(memory: &mut impl TableMemory, root: u64, virt: u64, level: u32) -> Result<u64, NoMemory> {
    let mut table = root;
    for upper in (level + 1..=4).rev() {
        let at = index(virt, upper);
        let entry = memory.load(table, at);
        table = if is_present(entry) {
            entry & ADDRESS
        } else {
            let new = memory.allocate()?;
            // Leaves decide; upper levels allow everything but user mode.
            memory.store(table, at, new | Bits::TABLE.bits());
            new
        };
    }
    Ok(table)
}

/// Maps `bytes` bytes from `phys` at `virt`, with large pages where both are aligned and `large` allows.
pub fn map(
    memory: &mut impl TableMemory,
    root: u64,
    virt: u64,
    phys: u64,
    bytes: u64,
    bits: Bits,
    large: bool,
) -> Result<(), NoMemory> {
    let mut done = 0;
    // The table the last entry went into, and its level: the next one is mostly in the same.
    let mut last = (0, 0);
    while done < bytes {
        let (v, p, left) = (virt + done, phys + done, bytes - done);
        let whole = large && (v | p).is_multiple_of(LARGE_PAGE) && left >= LARGE_PAGE;
        let (level, size, bits) = if whole { (2, LARGE_PAGE, bits | Bits::LARGE) } else { (1, PAGE, bits) };
        if last.1 != level || index(v, level) == 0 {
            last = (descend(memory, root, v, level)?, level);
        }
        memory.store(last.0, index(v, level), p | bits.bits());
        done += size;
    }
    Ok(())
}

/// A run of the kernel half that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub virt: u64,
    pub phys: u64,
    pub bytes: u64,
    pub bits: u64,
}

/// Everything mapped in the upper half, in order of virtual addresses.
pub fn visit(memory: &impl TableMemory, root: u64, each: &mut dyn FnMut(Mapped)) {
    for top in 256..512 {
        let entry = memory.load(root, top);
        if is_present(entry) {
            visit_level(memory, entry & ADDRESS, 3, 0xffff << 48 | (top as u64) << 39, each);
        }
    }
}

fn visit_level(memory: &impl TableMemory, table: u64, level: u32, base: u64, each: &mut dyn FnMut(Mapped)) {
    let span = PAGE << (9 * (level - 1));
    for at in 0..512 {
        let entry = memory.load(table, at);
        let virt = base + at as u64 * span;
        if !is_present(entry) {
            continue;
        }
        if level == 1 || entry & Bits::LARGE.bits() != 0 {
            let bits = entry & !ADDRESS;
            each(Mapped { virt, phys: entry & ADDRESS & !(span - 1), bytes: span, bits });
        } else {
            visit_level(memory, entry & ADDRESS, level - 1, virt, each);
        }
    }
}

/// Where the parts of an image lie, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub struct ImageShape {
    pub text_end: u64,
    pub rodata_end: u64,
    pub end: u64,
}

/// The first page table of a kernel: its image, its partition, the board, the trampoline, the CPU's
/// registers, and an (empty) table under each area's top entry. `memory` allocates from the same partition.
pub fn build_kernel(
    memory: &mut impl TableMemory,
    image_phys: u64,
    shape: ImageShape,
    partition: &[crate::plan::MemoryRange],
) -> Result<u64, NoMemory> {
    use crate::layout::*;
    let root = memory.allocate()?;
    let image = [
        (0, shape.text_end, Bits::TEXT),
        (shape.text_end, shape.rodata_end, Bits::READ_ONLY),
        (shape.rodata_end, shape.end, Bits::DATA),
    ];
    for (start, end, bits) in image {
        map(memory, root, IMAGE_BASE + start, image_phys + start, end - start, bits, false)?;
    }
    for range in partition {
        // No writable alias of what the image maps read-only.
        let fixed = image_phys..image_phys + shape.rodata_end;
        let start = if range.start == fixed.start { fixed.end } else { range.start };
        map(memory, root, DIRECT_BASE + start, start, range.end - start, Bits::DATA, true)?;
    }
    map(memory, root, BOARD_VIRT, BOARD_PHYS, BOARD_BYTES, Bits::DATA, false)?;
    map(memory, root, TRAMPOLINE_VIRT, TRAMPOLINE_PHYS, TRAMPOLINE_BYTES, Bits::DATA, false)?;
    map(memory, root, CPU_REGISTERS_VIRT, CPU_REGISTERS_PHYS, CPU_REGISTERS_BYTES, Bits::DEVICE, false)?;
    for area in [HEAP_BASE, WINDOW_BASE, STACKS_BASE] {
        descend(memory, root, area, 3)?;
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::*;
    use crate::plan::MemoryRange;
    use alloc::{collections::BTreeMap, vec, vec::Vec};

    struct Fake {
        next: u64,
        words: BTreeMap<(u64, usize), u64>,
    }

    impl TableMemory for Fake {
        fn allocate(&mut self) -> Result<u64, NoMemory> {
            self.next += PAGE;
            Ok(self.next)
        }
        fn load(&self, table: u64, index: usize) -> u64 {
            self.words.get(&(table, index)).copied().unwrap_or(0)
        }
        fn store(&mut self, table: u64, index: usize, value: u64) {
            self.words.insert((table, index), value);
        }
    }

    #[test]
    fn a_kernel_maps_its_partition_and_nothing_writable_is_executable() {
        let mut memory = Fake { next: 0x4100_0000, words: BTreeMap::new() };
        let shape = ImageShape { text_end: 0x5000, rodata_end: 0x8000, end: 0x30_0000 };
        let partition = [
            MemoryRange { start: 0x4000_0000, end: 0x4200_0000, node: 0 },
            MemoryRange { start: 0x1_0000_0000, end: 0x1_0040_0000, node: 0 },
        ];
        let root = build_kernel(&mut memory, 0x4000_0000, shape, &partition).unwrap();
        let mut all: Vec<Mapped> = vec![];
        visit(&memory, root, &mut |mapped| all.push(mapped));
        for m in &all {
            let writable = m.bits & Bits::WRITE.bits() != 0;
            let executable = m.bits & Bits::NO_EXECUTE.bits() == 0;
            assert!(!(writable && executable), "{m:x?}");
            match area_of(m.virt).unwrap() {
                Area::Direct => {
                    assert_eq!(m.virt - DIRECT_BASE, m.phys);
                    assert!(partition.iter().any(|p| p.start <= m.phys && m.phys + m.bytes <= p.end));
                    assert!(m.phys >= 0x4000_8000, "read-only parts of the image have no alias");
                }
                Area::Image => assert_eq!(m.virt - IMAGE_BASE, m.phys - 0x4000_0000),
                Area::Shared => assert!(m.phys < COMMON_END),
                Area::Mmio => assert_eq!(m.phys, CPU_REGISTERS_PHYS),
                area => panic!("{area:?} is empty at first"),
            }
        }
        let direct = |m: &&Mapped| area_of(m.virt) == Some(Area::Direct);
        let bytes: u64 = all.iter().filter(direct).map(|m| m.bytes).sum();
        assert_eq!(bytes, 0x200_0000 + 0x40_0000 - 0x8000);
        assert!(all.iter().filter(direct).any(|m| m.bytes == LARGE_PAGE));
    }
}
