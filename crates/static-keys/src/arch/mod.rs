//! The two instructions of each architecture: one that does nothing, and a jump of the same length.
//!
//! The number of the key is in the one that does nothing. Otherwise functions that differ in their keys only would be the same code, and the linker may keep one copy of such (`--icf`).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use core::arch::asm;

/// Keys are below this.
const MOST: u32 = 128;

#[cfg(target_arch = "x86_64")]
use self::x86_64 as this;
#[cfg(target_arch = "aarch64")]
use aarch64 as this;

pub use this::LENGTH;
pub(crate) use this::{jump, nothing};

/// Whether key number `KEY` is on.
#[inline(always)]
pub fn is_on<const KEY: u32>() -> bool {
    const { assert!(KEY < MOST) };
    // SAFETY: it does nothing, or goes to the label. What comes after it goes into a section of data.
    unsafe {
        asm!(
            "2:",
            this::nothing_of_key!(),
            ".pushsection static_keys, \"aR\", %progbits",
            ".balign 4",
            ".long 2b - ., {on} - ., {key}",
            ".popsection",
            on = label { return true },
            key = const KEY,
            options(nomem, nostack, preserves_flags),
        );
    }
    false
}
