//! What the machine says to its devices, once bytes can get there and back.
//!
//! Here live the guest's end of the [`link`] to the host command and the 9P transport ([`ninep`]). Both
//! speak only to the traits [`machine::ByteStream`] and [`machine::Exchange`], which `platform::virtio`
//! implements; so they run on the host against fakes. Queues, interrupts and registers may not be here,
//! and neither may files: crate `fs` makes those out of what it finds here. Crate `kernel` connects the two.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod link;
pub mod ninep;
