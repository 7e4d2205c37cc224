//! Who owns which pages of an address space, as kernels tell each other.

use alloc::vec::Vec;
use machine::{KernelId, PageRange};
use serde::{Deserialize, Serialize};

/// Consecutive slices of one owner; numbers are addresses divided by the slice size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRun {
    /// First slice.
    pub start: u32,
    /// The slice after the last.
    pub end: u32,
    /// The kernel that owns them for the life of the space.
    pub owner: KernelId,
}

/// Pages that the owner of their slice has handed over to another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The pages.
    pub range: PageRange,
    /// The kernel that they were handed over to.
    pub owner: KernelId,
}

/// What a kernel that was asked for pages it does not own knows of their owners: the slice table, and the parts of
/// slices that were handed over in a range around these pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    /// The pages for which `parts` is complete, as far as the kernel knows.
    pub about: PageRange,
    /// All slices of which the kernel knows an owner.
    pub slices: Vec<SliceRun>,
    /// Parts of them that were handed over, within `about`.
    pub parts: Vec<Part>,
}
