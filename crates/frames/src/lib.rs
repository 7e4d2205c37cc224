//! Physical memory of one partition.
//!
//! Here live the allocator of the partition's own frames ([`Partition`]: a binary buddy behind per-CPU
//! caches, with a reference count per frame), the side table of frames that lie in other partitions
//! but are held by this kernel ([`Foreign`]), that of own frames which others use too ([`Pins`]), and
//! the few raw operations on a frame's bytes ([`bytes`]). Nothing here knows page tables, CPUs or messages: crate `platform` makes these
//! types into `machine::Memory`, and the kernel sends home what [`Foreign::drain_returns`] yields.
//!
//! Life of an own frame, as its state word tells it:
//!
//! ```text
//!             alloc               lend
//!   free (0) -------> counted (n) -----> lent --- take_home ---> free
//!      ^  \             | retain/release
//!      |   \            v
//!      |    `--> run   last release
//!      |  alloc_run |       |
//!      `------------+-------'
//! ```
//!
//! A transition that is not an arrow here (a double free, say) is a bug of this kernel and panics;
//! the only exception is `take_home`, whose argument comes from another kernel.
//!
//! Cost: 4 bytes of state, 2 of who pays and 0.26 of bitmaps per frame, taken from the partition itself.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bit_tree;
mod buddy;
pub mod bytes;
mod cache;
mod carve;
mod foreign;
mod handle;
mod partition;
mod pins;
mod zone;

#[cfg(test)]
mod tests;

pub use buddy::MAX_ORDER;
pub use foreign::Foreign;
pub use handle::{BorrowedFrame, OwnFrame, OwnWords};
pub use partition::{Config, NotLent, Partition, Purpose, TooSmall};
pub use pins::Pins;
