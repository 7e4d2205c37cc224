//! Device registers in memory.

use core::mem::size_of;

/// A mapped range of device registers. Every access is checked against its length.
pub struct Mmio {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: device registers may be accessed from any CPU; which accesses may overlap is the driver's affair (each
// owner of an `Mmio` takes a lock or `&mut self` where order matters).
unsafe impl Send for Mmio {}
// SAFETY: as above.
unsafe impl Sync for Mmio {}

impl Mmio {
    /// Maps `bytes` bytes of registers at physical address `phys`, for good. None: the range is memory, or no
    /// memory is left for page tables.
    ///
    /// # Safety
    ///
    /// The range must be registers of a device that this kernel owns.
    pub unsafe fn map(phys: u64, bytes: usize) -> Option<Self> {
        let base = crate::kmap::map_mmio(phys, bytes as u64).ok()?;
        Some(Mmio { base: base.as_ptr(), bytes })
    }

    /// Reads the register at `offset`, of the width of `T` (u8, u16 or u32).
    pub fn read<T: Register>(&self, offset: usize) -> T {
        // SAFETY: mapped by `map`, and checked to lie within.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    pub fn write<T: Register>(&self, offset: usize, value: T) {
        // SAFETY: as in `read`.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }

    fn at<T: Register>(&self, offset: usize) -> *mut T {
        assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.bytes, "register {offset:#x}");
        self.base.wrapping_add(offset).cast()
    }

    /// A part of the range; the mapping is permanent, so the part may outlive the whole.
    pub fn part(&self, offset: usize, bytes: usize) -> Mmio {
        assert!(offset + bytes <= self.bytes, "registers {offset:#x}+{bytes:#x}");
        Mmio { base: self.base.wrapping_add(offset), bytes }
    }
}

/// Widths that devices understand.
pub trait Register: Copy {}
impl Register for u8 {}
impl Register for u16 {}
impl Register for u32 {}
