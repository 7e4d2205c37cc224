//! Takes the allocator's own tables out of the memory it is to manage: there is no heap yet.

use core::{mem, ptr::NonNull, slice};

pub struct Carve {
    next: NonNull<u8>,
    left: usize,
}

impl Carve {
    /// # Safety
    /// `bytes` bytes from `start`, which is page-aligned, are mapped, writable, used by nobody else,
    /// and stay so for ever.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        // SAFETY: the caller gives us these bytes.
        unsafe { start.write_bytes(0, bytes) };
        Carve { next: start, left: bytes }
    }

    /// The first `bytes` bytes (a [`Carve::cost`]) as a carve of their own.
    pub fn split(&mut self, bytes: usize) -> Carve {
        assert!(bytes <= self.left && bytes.is_multiple_of(64), "the tables' size was computed wrong");
        let front = Carve { next: self.next, left: bytes };
        // SAFETY: inside the bytes that are ours.
        self.next = unsafe { self.next.add(bytes) };
        self.left -= bytes;
        front
    }

    /// Bytes that `len` values of `T` cost, padding included.
    pub const fn cost<T>(len: usize) -> usize {
        (len * mem::size_of::<T>()).next_multiple_of(64)
    }

    pub fn words(&mut self, len: usize) -> &'static mut [u64] {
        self.fill(len, |_| 0)
    }

    /// `len` values made by `make`, on cache lines of their own.
    pub fn fill<T>(&mut self, len: usize, mut make: impl FnMut(usize) -> T) -> &'static mut [T] {
        let bytes = Self::cost::<T>(len);
        assert!(bytes <= self.left && mem::align_of::<T>() <= 64, "the tables' size was computed wrong");
        let start = self.next.cast::<T>();
        // SAFETY: `bytes` of the `left` bytes that are ours alone; everything costs a multiple of 64
        // from a page-aligned start, so `start` is aligned. Each element is written before the slice
        // over all of them is made, and `next` moves past them, so nothing aliases.
        unsafe {
            self.next = self.next.add(bytes);
            self.left -= bytes;
            for index in 0..len {
                start.add(index).write(make(index));
            }
            slice::from_raw_parts_mut(start.as_ptr(), len)
        }
    }
}
