//! PCI configuration space: finding functions, their capabilities and where their registers are.
//!
//! Access goes through the memory window that ACPI's MCFG table names (ECAM; a megabyte for each bus): one load or store, so two kernels can
//! look at once. Without one, as the architecture has it (x86: two ports), which is a pair of steps that other kernels know
//! nothing of; such a machine has all its devices on the kernel that does this.
//!
//! BARs were assigned by the firmware; they are read, never sized, because sizing switches the function off for a
//! moment and it may belong to another kernel.

use alloc::vec::Vec;

use machine::sync::Lock;

use super::mmio::Mmio;
use crate::arch;
use crate::plan::Ecam;

const BUS_BYTES: usize = 1 << 20;

/// One function of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl core::fmt::Display for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.device, self.function)
    }
}

pub mod register {
    pub const ID: u8 = 0x00;
    pub const COMMAND: u8 = 0x04;
    pub const HEADER_TYPE: u8 = 0x0c;
    pub const BAR: u8 = 0x10;
    pub const SECONDARY_BUS: u8 = 0x18;
    pub const CAPABILITIES: u8 = 0x34;
}

const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_MASTER: u32 = 1 << 2;
const COMMAND_NO_INTX: u32 = 1 << 10;
/// In the status half of the command word.
const STATUS_CAPABILITIES: u32 = 1 << 20;

enum Access {
    /// Buses that have been looked at, mapped.
    Ecam(Ecam, Lock<Vec<(u8, Mmio)>>),
    Steps(Lock<()>),
}

/// The machine's PCI configuration space (segment 0).
pub struct Pci(Access);

impl Pci {
    pub fn new(ecam: Option<Ecam>) -> Self {
        match ecam {
            Some(ecam) => Pci(Access::Ecam(ecam, Lock::new(Vec::new()))),
            None => Pci(Access::Steps(Lock::new(()))),
        }
    }

    /// Every function on every bus that can be reached.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        let mut buses = Vec::from([0u8]);
        while let Some(bus) = buses.pop() {
            for device in 0..32 {
                self.look_at(bus, device, &mut found, &mut buses);
            }
        }
        found
    }

    fn look_at(&self, bus: u8, device: u8, found: &mut Vec<Function>, buses: &mut Vec<u8>) {
        for function in 0..8 {
            let at = Function { bus, device, function };
            if self.read(at, register::ID) & 0xffff == 0xffff {
                if function == 0 {
                    return;
                }
                continue;
            }
            found.push(at);
            let header = (self.read(at, register::HEADER_TYPE) >> 16) as u8;
            let secondary = (self.read(at, register::SECONDARY_BUS) >> 8) as u8;
            // Buses behind a bridge have higher numbers; one that has not is unconfigured, or a loop.
            if header & 0x7f == 1 && secondary > bus {
                buses.push(secondary);
            }
            if function == 0 && header & 0x80 == 0 {
                return;
            }
        }
    }

    /// Vendor and device id.
    pub fn id(&self, at: Function) -> (u16, u16) {
        let id = self.read(at, register::ID);
        (id as u16, (id >> 16) as u16)
    }

    /// Capabilities in the order of their list: id and offset.
    pub fn capabilities(&self, at: Function) -> Vec<(u8, u8)> {
        let mut list = Vec::new();
        if self.read(at, register::COMMAND) & STATUS_CAPABILITIES == 0 {
            return list;
        }
        let mut offset = self.read(at, register::CAPABILITIES) as u8 & !3;
        // 48 fit; a longer list is a loop.
        while offset >= 0x40 && list.len() < 48 {
            let header = self.read(at, offset);
            list.push((header as u8, offset));
            offset = (header >> 8) as u8 & !3;
        }
        list
    }

    /// Physical address of memory BAR `index`; None: ports, or not assigned.
    pub fn bar(&self, at: Function, index: u8) -> Option<u64> {
        if index > 5 {
            return None;
        }
        let low = self.read(at, register::BAR + 4 * index);
        let high = match low & 0b111 {
            0b000 => 0,
            0b100 if index < 5 => self.read(at, register::BAR + 4 * (index + 1)),
            _ => return None,
        };
        let address = u64::from(high) << 32 | u64::from(low & !0xf);
        (address != 0).then_some(address)
    }

    /// Lets the function answer to its registers and read and write memory; without wired interrupts.
    pub fn enable(&self, at: Function) {
        let command = self.read(at, register::COMMAND) & 0xffff;
        self.write(at, register::COMMAND, command | COMMAND_MEMORY | COMMAND_MASTER | COMMAND_NO_INTX);
    }

    pub fn read(&self, at: Function, offset: u8) -> u32 {
        match &self.0 {
            Access::Ecam(ecam, buses) => {
                with_bus(ecam, buses, at.bus, |bus| bus.read::<u32>(ecam_offset(at, offset))).unwrap_or(u32::MAX)
            }
            Access::Steps(lock) => {
                let _pair = lock.lock();
                arch::pci::read(at, offset)
            }
        }
    }

    pub fn write(&self, at: Function, offset: u8, value: u32) {
        match &self.0 {
            Access::Ecam(ecam, buses) => {
                with_bus(ecam, buses, at.bus, |bus| bus.write::<u32>(ecam_offset(at, offset), value));
            }
            Access::Steps(lock) => {
                let _pair = lock.lock();
                // SAFETY: what is written are commands and message addresses, by this module and `msix`, for functions that this
                // kernel owns.
                unsafe { arch::pci::write(at, offset, value) }
            }
        }
    }
}

/// Runs `access` on the registers of `bus`, mapped at the first use; None: the window does not have it. The window's
/// base is bus 0's place even if its first bus is another (PCI Firmware Specification 3.3, 4.1.2).
fn with_bus<R>(ecam: &Ecam, buses: &Lock<Vec<(u8, Mmio)>>, bus: u8, access: impl FnOnce(&Mmio) -> R) -> Option<R> {
    if !(ecam.first_bus..=ecam.last_bus).contains(&bus) {
        return None;
    }
    let mut buses = buses.lock();
    let at = match buses.iter().position(|(mapped, _)| *mapped == bus) {
        Some(at) => at,
        None => {
            let phys = ecam.base + u64::from(bus) * BUS_BYTES as u64;
            // SAFETY: ACPI says that the configuration space of this bus is there.
            buses.push((bus, unsafe { Mmio::map(phys, BUS_BYTES) }?));
            buses.len() - 1
        }
    };
    Some(access(&buses[at].1))
}

fn ecam_offset(at: Function, offset: u8) -> usize {
    usize::from(at.device) << 15 | usize::from(at.function) << 12 | usize::from(offset & !3)
}
