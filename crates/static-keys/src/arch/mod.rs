//! The two instructions of each architecture: one that does nothing, and a jump of the same length.
//!
//! The number of the key is in the one that does nothing. Otherwise functions that differ in their keys only would be the same code, and the linker may keep one copy of such (`--icf`).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Keys are below this.
pub(crate) const MOST: u32 = 128;

#[cfg(target_arch = "x86_64")]
pub use self::x86_64::*;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
