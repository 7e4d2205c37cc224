//! Branches on what almost never changes, for one instruction that does nothing: static keys, as Linux calls them (its
//! Documentation/staging/static-keys.rst).
//!
//! A key is a number below 128. `if static_keys::is_on::<7>() { ... }` compiles to an instruction that does nothing, and what is in braces lies elsewhere. Each such place has an entry in a
//! table of the image, [`sites`]. Whoever switches the key on writes the instruction that [`Site::instruction`] gives to [`Site::address`] of all its sites: a jump
//! to what is in braces. Whether a program may write to its code, and what it must do about other CPUs that execute it, is none of this crate's business (Cob: platform/src/patching.rs).
//!
//! Here is the one piece of unsafe code that such a branch needs, so that those who use it need none.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

mod arch;
#[cfg(test)]
mod tests;

pub use arch::{is_on, LENGTH};

/// A place where a key is asked for, as the assembler writes it. Two fields say how far from themselves something lies, so that the table is right wherever the image lies.
#[repr(C)]
pub struct Site {
    at: i32,
    to: i32,
    key: u32,
}

impl Site {
    /// Where its instruction is.
    pub fn address(&self) -> usize {
        near(&self.at)
    }

    /// Of the key that it asks for.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// What stands there while the key is on, or off.
    pub fn instruction(&self, is_on: bool) -> [u8; LENGTH] {
        match is_on {
            true => arch::jump(near(&self.to).wrapping_sub(self.address()) as i32),
            false => arch::nothing(self.key),
        }
    }
}

/// `copy` is a copy of this image's code from address `from` on, made while keys may have been on: in it, all are off.
pub fn switch_off_copy(from: usize, copy: &mut [u8]) {
    for site in sites() {
        for (at, byte) in (site.address()..).zip(site.instruction(false)) {
            if let Some(place) = at.checked_sub(from).and_then(|offset| copy.get_mut(offset)) {
                *place = byte;
            }
        }
    }
}

fn near(distance: &i32) -> usize {
    (&raw const *distance as usize).wrapping_add_signed(*distance as isize)
}

// SAFETY: the linker defines them so (of the section's name, or as the kernel's script says).
unsafe extern "C" {
    static __start_static_keys: Site;
    static __stop_static_keys: Site;
}

/// All sites of this image, which must have one at least.
pub fn sites() -> &'static [Site] {
    let (start, end) = (&raw const __start_static_keys, &raw const __stop_static_keys);
    // SAFETY: between the two lies what `is_on` has put there, which is entries only, one after the other; nobody writes to them.
    unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}
