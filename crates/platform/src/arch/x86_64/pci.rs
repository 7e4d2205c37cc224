//! PCI configuration space through ports 0xcf8 and 0xcfc, for a machine whose ACPI names no memory window.

use crate::virtio::Function;
use x86_64::instructions::port::Port;

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

/// Reads a register of `at`. One CPU at a time.
pub fn read(at: Function, offset: u8) -> u32 {
    // SAFETY: the configuration ports of every PC; reading configuration space changes nothing that Rust knows of.
    unsafe {
        Port::<u32>::new(ADDRESS).write(address(at, offset));
        Port::<u32>::new(DATA).read()
    }
}

/// Writes a register of `at`. One CPU at a time.
///
/// # Safety
///
/// The function is the caller's, and what it then does leaves memory alone that is not the driver's.
pub unsafe fn write(at: Function, offset: u8, value: u32) {
    // SAFETY: as in `read`; for what the function does, the caller answers.
    unsafe {
        Port::<u32>::new(ADDRESS).write(address(at, offset));
        Port::<u32>::new(DATA).write(value);
    }
}

fn address(at: Function, offset: u8) -> u32 {
    1 << 31
        | u32::from(at.bus) << 16
        | u32::from(at.device) << 11
        | u32::from(at.function) << 8
        | u32::from(offset & !3)
}
