//! What the machine says to its devices, once bytes can get there and back.
//!
//! Here live the guest's end of the [`link`] to the host command, the 9P transport ([`ninep`]), and disks ([`block`]). They
//! speak only to the traits [`machine::ByteStream`] and [`machine::Exchange`], which `platform::virtio`
//! implements; so they run on the host against fakes. Upwards they look as crate `fs` wants them ([`streams`]).
//! Queues, interrupts and registers may not be here, and neither may files. Crate `kernel` connects the parts.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod block;
pub mod link;
pub mod ninep;
pub mod streams;
