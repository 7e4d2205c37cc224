//! MSI-X: a device's interrupt is a store to the interrupt controller of one CPU (PCI 3.0, 6.8.2).

use super::mmio::Mmio;
use super::pci::{Function, Pci};

const CAPABILITY: u8 = 0x11;
/// In the first word of the capability.
const ENABLE: u32 = 1 << 31;
const MASK_ALL: u32 = 1 << 30;

const ENTRY_BYTES: usize = 16;

/// A function's table of messages.
pub struct Msix {
    table: Mmio,
    entries: u16,
}

impl Msix {
    /// Switches a function's message interrupts on, all of them masked. None: it has none.
    pub fn enable(pci: &Pci, at: Function) -> Option<Self> {
        let (_, capability) = pci.capabilities(at).into_iter().find(|(id, _)| *id == CAPABILITY)?;
        let control = pci.read(at, capability);
        let entries = (control >> 16 & 0x7ff) as u16 + 1;
        let place = pci.read(at, capability + 4);
        let bar = pci.bar(at, place as u8 & 7)?;
        // SAFETY: the capability says that the table lies there.
        let table = unsafe { Mmio::map(bar + u64::from(place & !7), usize::from(entries) * ENTRY_BYTES) }?;
        let msix = Msix { table, entries };
        for entry in 0..entries {
            msix.table.write::<u32>(usize::from(entry) * ENTRY_BYTES + 12, 1);
        }
        pci.write(at, capability, control & !MASK_ALL | ENABLE);
        Some(msix)
    }

    pub fn has(&self, entry: u16) -> bool {
        entry < self.entries
    }

    /// Makes entry `entry` send `data` to `address`, from now on. False: there is no such entry.
    #[must_use]
    pub fn set(&self, entry: u16, address: u64, data: u32) -> bool {
        if !self.has(entry) {
            return false;
        }
        let at = usize::from(entry) * ENTRY_BYTES;
        self.table.write::<u32>(at, address as u32);
        self.table.write::<u32>(at + 4, (address >> 32) as u32);
        self.table.write::<u32>(at + 8, data);
        self.table.write::<u32>(at + 12, 0);
        true
    }
}
