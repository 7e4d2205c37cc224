//! The registers of a virtio 1.x device on PCI (virtio 1.2, 4.1.4).
//!
//! Not `virtio_drivers::transport::pci::PciTransport`: that one leaves `queue_msix_vector` unset, so
//! its queues never interrupt, and looks the doorbell up anew at each notification. What it gives to the queue is
//! the trait `Transport`, and that is implemented here.

use alloc::{boxed::Box, vec::Vec};

use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{Error, PhysAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::device::DeviceError;
use super::mmio::Mmio;
use super::pci::{Function, Pci};
use super::ring::Doorbell;

/// PCI's id of vendor-specific capabilities.
const VENDOR_CAPABILITY: u8 = 0x09;

/// `cfg_type` of the capabilities.
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

/// Offsets in `virtio_pci_common_cfg`.
mod common {
    pub const DEVICE_FEATURE_SELECT: usize = 0;
    pub const DEVICE_FEATURE: usize = 4;
    pub const DRIVER_FEATURE_SELECT: usize = 8;
    pub const DRIVER_FEATURE: usize = 12;
    pub const CHANGE_VECTOR: usize = 16;
    pub const STATUS: usize = 20;
    pub const GENERATION: usize = 21;
    pub const QUEUE_SELECT: usize = 22;
    pub const QUEUE_SIZE: usize = 24;
    pub const QUEUE_VECTOR: usize = 26;
    pub const QUEUE_ENABLE: usize = 28;
    pub const QUEUE_NOTIFY_OFF: usize = 30;
    pub const QUEUE_DESCRIPTORS: usize = 32;
    pub const QUEUE_DRIVER: usize = 40;
    pub const QUEUE_DEVICE: usize = 48;
    pub const BYTES: usize = 56;
}

/// Accepting this is what makes a device a 1.x device.
pub const VERSION_1: u64 = 1 << 32;

pub struct Registers {
    kind: DeviceType,
    common: Mmio,
    notify: Mmio,
    notify_multiplier: usize,
    configuration: Option<(Mmio, usize)>,
    /// The MSI-X entry that the next queue's interrupts go to.
    vector: u16,
    started: bool,
}

impl Registers {
    pub fn find(pci: &Pci, at: Function, kind: DeviceType) -> Result<Self, DeviceError> {
        let (mut common, mut notify, mut configuration) = (None, None, None);
        for (_, capability) in pci.capabilities(at).into_iter().filter(|(id, _)| *id == VENDOR_CAPABILITY) {
            let cfg_type = (pci.read(at, capability) >> 24) as u8;
            let bar = pci.bar(at, pci.read(at, capability + 4) as u8);
            let offset = pci.read(at, capability + 8);
            let bytes = pci.read(at, capability + 12) as usize;
            let Some(phys) = bar.and_then(|bar| bar.checked_add(u64::from(offset))) else {
                continue;
            };
            // The first of a kind is the preferred one (4.1.4.1).
            // SAFETY: the capability says that these registers are there.
            let map = || unsafe { Mmio::map(phys, bytes) };
            match cfg_type {
                COMMON if common.is_none() && bytes >= common::BYTES => common = map(),
                NOTIFY if notify.is_none() => {
                    let multiplier = pci.read(at, capability + 16) as usize;
                    notify = map().map(|mmio| (mmio, multiplier));
                }
                DEVICE if configuration.is_none() => configuration = map().map(|mmio| (mmio, bytes)),
                _ => {}
            }
        }
        let (notify, notify_multiplier) = notify.ok_or(DeviceError::NotModern)?;
        let common = common.ok_or(DeviceError::NotModern)?;
        Ok(Registers { kind, common, notify, notify_multiplier, configuration, vector: 0, started: false })
    }

    /// Resets the device and accepts of `wanted` what it offers (3.1.1, steps 1 to 6); says what that is.
    pub fn negotiate(&mut self, wanted: u64) -> Result<u64, DeviceError> {
        self.reset()?;
        let mut status = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
        self.set_status(status);
        let accepted = self.read_device_features() & (wanted | VERSION_1);
        if accepted & VERSION_1 == 0 {
            return Err(DeviceError::NotModern);
        }
        self.write_driver_features(accepted);
        status |= DeviceStatus::FEATURES_OK;
        self.set_status(status);
        if !self.get_status().contains(DeviceStatus::FEATURES_OK) {
            return Err(DeviceError::Refused);
        }
        Ok(accepted)
    }

    /// The device ends what it does, and forgets its queues.
    pub fn reset(&mut self) -> Result<(), DeviceError> {
        self.set_status(DeviceStatus::empty());
        // The device may take its time to reset (4.1.4.3.2), but a device that takes a million reads is dead.
        let is_reset = (0..1_000_000).any(|_| self.get_status() == DeviceStatus::empty());
        is_reset.then_some(()).ok_or(DeviceError::Refused)
    }

    /// Step 8: from now on the device works.
    pub fn start(&mut self) {
        self.set_status(self.get_status() | DeviceStatus::DRIVER_OK);
        self.started = true;
    }

    /// Queues set up from now on interrupt through MSI-X entry `vector`.
    pub fn set_vector(&mut self, vector: u16) {
        self.vector = vector;
    }

    /// Changes of the configuration interrupt through MSI-X entry `vector`; false if the device could not take it.
    #[must_use]
    pub fn set_change_vector(&self, vector: u16) -> bool {
        self.common.write(common::CHANGE_VECTOR, vector);
        self.common.read::<u16>(common::CHANGE_VECTOR) == vector
    }

    /// Whether the device took the vector for `queue`: it says 0xffff if it could not (4.1.5.1.3).
    pub fn has_vector(&self, queue: u16) -> bool {
        self.select(queue);
        self.common.read::<u16>(common::QUEUE_VECTOR) == self.vector
    }

    /// The register that `queue` is notified through.
    pub fn doorbell(&self, queue: u16) -> Box<dyn Doorbell> {
        self.select(queue);
        let offset = usize::from(self.common.read::<u16>(common::QUEUE_NOTIFY_OFF)) * self.notify_multiplier;
        Box::new(NotifyRegister { register: self.notify.part(offset, 2), queue })
    }

    /// All of the device's configuration, as it was at one moment (4.1.4.3.1).
    pub fn configuration(&self) -> Vec<u8> {
        let Some((mmio, bytes)) = &self.configuration else {
            return Vec::new();
        };
        loop {
            let before = self.read_config_generation();
            let value = (0..*bytes).map(|at| mmio.read::<u8>(at)).collect();
            if self.read_config_generation() == before {
                return value;
            }
        }
    }

    fn select(&self, queue: u16) {
        self.common.write(common::QUEUE_SELECT, queue);
    }

    /// As two halves: devices need not take eight bytes at once (4.1.3.1).
    fn write_address(&self, offset: usize, address: PhysAddr) {
        self.common.write(offset, address as u32);
        self.common.write(offset + 4, (address >> 32) as u32);
    }
}

impl Drop for Registers {
    /// A device whose setup failed must not touch the memory it was told of (2.1.1).
    fn drop(&mut self) {
        if !self.started {
            self.set_status(DeviceStatus::FAILED);
        }
    }
}

struct NotifyRegister {
    register: Mmio,
    queue: u16,
}

impl Doorbell for NotifyRegister {
    fn ring(&self) {
        self.register.write(0, self.queue);
    }
}

impl Transport for Registers {
    fn device_type(&self) -> DeviceType {
        self.kind
    }

    fn read_device_features(&mut self) -> u64 {
        let half = |which: u32| {
            self.common.write(common::DEVICE_FEATURE_SELECT, which);
            u64::from(self.common.read::<u32>(common::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn write_driver_features(&mut self, features: u64) {
        for (which, half) in [(0u32, features as u32), (1, (features >> 32) as u32)] {
            self.common.write(common::DRIVER_FEATURE_SELECT, which);
            self.common.write(common::DRIVER_FEATURE, half);
        }
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.select(queue);
        self.common.read::<u16>(common::QUEUE_SIZE).into()
    }

    fn notify(&mut self, queue: u16) {
        self.doorbell(queue).ring();
    }

    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::from_bits_truncate(self.common.read::<u8>(common::STATUS).into())
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.common.write(common::STATUS, status.bits() as u8);
    }

    fn set_guest_page_size(&mut self, _: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(&mut self, queue: u16, size: u32, descriptors: PhysAddr, driver: PhysAddr, device: PhysAddr) {
        self.select(queue);
        self.common.write(common::QUEUE_SIZE, size as u16);
        self.write_address(common::QUEUE_DESCRIPTORS, descriptors);
        self.write_address(common::QUEUE_DRIVER, driver);
        self.write_address(common::QUEUE_DEVICE, device);
        self.common.write(common::QUEUE_VECTOR, self.vector);
        self.common.write(common::QUEUE_ENABLE, 1u16);
    }

    /// A 1.x device's queue can't be taken back; the device is reset as a whole.
    fn queue_unset(&mut self, _: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.select(queue);
        self.common.read::<u16>(common::QUEUE_ENABLE) == 1
    }

    /// With MSI-X there is nothing to acknowledge.
    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }

    fn read_config_generation(&self) -> u32 {
        self.common.read::<u8>(common::GENERATION).into()
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> virtio_drivers::Result<T> {
        let (mmio, bytes) = self.configuration.as_ref().ok_or(Error::ConfigSpaceMissing)?;
        if offset + size_of::<T>() > *bytes {
            return Err(Error::ConfigSpaceTooSmall);
        }
        let mut value = T::new_zeroed();
        for (at, byte) in value.as_mut_bytes().iter_mut().enumerate() {
            *byte = mmio.read::<u8>(offset + at);
        }
        Ok(value)
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, offset: usize, value: T) -> virtio_drivers::Result<()> {
        let (mmio, bytes) = self.configuration.as_ref().ok_or(Error::ConfigSpaceMissing)?;
        if offset + size_of::<T>() > *bytes {
            return Err(Error::ConfigSpaceTooSmall);
        }
        for (at, byte) in value.as_bytes().iter().enumerate() {
            mmio.write(offset + at, *byte);
        }
        Ok(())
    }
}
