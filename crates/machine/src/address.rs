//! Addresses whose type says whose they are.

use crate::USER_END;
use core::ops::Range;
use serde::{Deserialize, Serialize};

/// log2 of [`PAGE_SIZE`].
pub const PAGE_BITS: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: usize = 1 << PAGE_BITS;

/// An address in user space as a program gave it: unchecked, possibly wild. Only a [`PageTable`]
/// (through an address space) turns it into bytes.
///
/// [`PageTable`]: crate::PageTable
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct UserAddr(pub u64);

impl UserAddr {
    /// What programs give for "none".
    pub const NULL: UserAddr = UserAddr(0);

    /// Whether it is 0.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The page that it lies in.
    pub fn page(self) -> Page {
        Page(self.0 >> PAGE_BITS)
    }

    /// Bytes past the start of its page.
    pub fn offset(self) -> usize {
        self.0 as usize % PAGE_SIZE
    }

    /// The address `bytes` further on; wraps around, for programs give any address.
    #[allow(clippy::should_implement_trait)] // Bytes are added, never two addresses.
    pub fn add(self, bytes: usize) -> UserAddr {
        UserAddr(self.0.wrapping_add(bytes as u64))
    }
}

/// A page of a user address space: its address divided by the page size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Page(pub u64);

impl Page {
    /// Its first byte.
    pub fn address(self) -> UserAddr {
        UserAddr(self.0 << PAGE_BITS)
    }

    /// The page `pages` further on.
    #[allow(clippy::should_implement_trait)] // Pages are added, never two page numbers.
    pub fn add(self, pages: u64) -> Page {
        Page(self.0 + pages)
    }
}

/// Half-open range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRange {
    /// The first page.
    pub start: Page,
    /// The page after the last.
    pub end: Page,
}

impl PageRange {
    /// From `start` up to, but without, `end`.
    pub fn new(start: Page, end: Page) -> Self {
        PageRange { start, end }
    }

    /// Only this page.
    pub fn one(page: Page) -> Self {
        PageRange { start: page, end: page.add(1) }
    }

    /// The whole of user space.
    pub fn user() -> Self {
        PageRange { start: Page(0), end: Page(USER_END >> PAGE_BITS) }
    }

    /// The pages of `bytes` bytes at page-aligned `start`; None when it leaves user space or wraps.
    pub fn of(start: UserAddr, bytes: u64) -> Option<Self> {
        let end = start.0.checked_add(bytes)?.checked_next_multiple_of(PAGE_SIZE as u64)?;
        (end <= USER_END).then(|| PageRange { start: start.page(), end: UserAddr(end).page() })
    }

    /// Pages in it.
    pub fn len(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether there is no page in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `page` is in it.
    pub fn contains(&self, page: Page) -> bool {
        self.start <= page && page < self.end
    }

    /// The pages that are in both.
    pub fn intersect(&self, other: PageRange) -> PageRange {
        let start = self.start.max(other.start);
        PageRange { start, end: self.end.min(other.end).max(start) }
    }

    /// Its pages, ascending.
    pub fn pages(self) -> impl Iterator<Item = Page> {
        let Range { start, end } = self.start.0..self.end.0;
        (start..end).map(Page)
    }
}

/// A page frame of physical memory, numbered over the whole machine. Whose partition it lies in is
/// answered by [`Memory::home_of`](crate::Memory::home_of); crate `frames` gives the owning handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame(pub u64);

impl Frame {
    /// Physical address of its first byte.
    pub fn address(self) -> u64 {
        self.0 << PAGE_BITS
    }

    /// The frame `frames` further on.
    #[allow(clippy::should_implement_trait)] // Frames are added, never two frame numbers.
    pub fn add(self, frames: u64) -> Frame {
        Frame(self.0 + frames)
    }

    /// `count` frames in a row, this one first.
    pub fn row(self, count: u64) -> impl DoubleEndedIterator<Item = Frame> {
        (self.0..self.0 + count).map(Frame)
    }
}
