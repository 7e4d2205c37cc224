//! PCI and virtio: queues that other crates can use without knowing that a device reads their memory.
//!
//! Here live finding PCI functions ([`pci`]), their message interrupts ([`msix`]), the virtio 1.x registers
//! ([`registers`]), and on top two kinds of queue that own every buffer the device may touch:
//! [`RequestQueue`] (a request and its reply, many under way; its data are bytes, or frames that the device reads and writes where they are) and [`ReceiveQueue`] (bytes that come
//! uninvited). What is said through them is not known here: that is crate `dev`.
//!
//! Crate `kernel` calls [`find`], opens each device that its kernel owns with [`Found::console`] or
//! [`Found::exchange`], and hands the result to `dev` as `machine::ByteStream`, `machine::Exchange` or `machine::PageQueue`.
//!
//! Everything is driven by interrupts; a device with nothing to say costs nothing. Nothing here is needed
//! for the log or for a panic.

#[cfg(target_os = "none")]
mod device;
#[cfg(target_os = "none")]
mod dma;
#[cfg(target_os = "none")]
mod mmio;
#[cfg(target_os = "none")]
mod msix;
#[cfg(target_os = "none")]
mod pci;
#[cfg(any(target_os = "none", test))]
mod receive;
#[cfg(target_os = "none")]
mod registers;
#[cfg(any(target_os = "none", test))]
mod request;
#[cfg(any(target_os = "none", test))]
mod ring;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

#[cfg(any(target_os = "none", test))]
pub use receive::ReceiveQueue;
#[cfg(any(target_os = "none", test))]
pub use request::RequestQueue;

#[cfg(target_os = "none")]
pub use device::{find, Console, DeviceError, DiskQueues, Found, OpenedDisk, Queue};
#[cfg(target_os = "none")]
pub(crate) use pci::Function;
