//! Small pieces of the heap that one CPU has freed and will want again.
//!
//! Problem: nearly all that a system call or a message allocates is small and freed soon after, and the heap's allocator, which
//! keeps free memory in one piece, takes a lock and some hundred instructions each way.
//!
//! Idea: a CPU keeps the last few pieces of every small size that it has freed, linked through themselves, and gives
//! them out again (Bonwick and Adams 2001 call that a magazine). Sizes are rounded up to what talc's chunks hold, multiples of 32
//! bytes less a word, so nothing is wasted. What is kept is bounded: 8 pieces of each size, 34 KiB if all are full.

use core::alloc::Layout;
use core::ptr::{null_mut, NonNull};

/// A chunk of talc's is a multiple of this, and has a word of its own at its end (`talc::base::chunk`).
const CHUNK: usize = 32;
const TAIL: usize = size_of::<usize>();
const SIZES: usize = 16;
const ALIGNMENT: usize = 16;
const MOST: u32 = 8;

pub struct Magazine {
    sizes: [Stack; SIZES],
}

#[derive(Clone, Copy)]
struct Stack {
    /// The piece put in last; its first word leads to the one before.
    top: *mut *mut u8,
    count: u32,
}

/// What is to be asked of the allocator for `layout`, if magazines take such pieces: all of one size are alike.
pub fn rounded(layout: Layout) -> Option<Layout> {
    let fits = layout.align() <= ALIGNMENT && (1..=SIZES * CHUNK - TAIL).contains(&layout.size());
    // SAFETY: the alignment is a power of two, and the size far from overflowing.
    fits.then(|| unsafe {
        Layout::from_size_align_unchecked((layout.size() + TAIL).next_multiple_of(CHUNK) - TAIL, ALIGNMENT)
    })
}

impl Magazine {
    pub const fn new() -> Self {
        Magazine { sizes: [Stack { top: null_mut(), count: 0 }; SIZES] }
    }

    fn of(&mut self, rounded: Layout) -> &mut Stack {
        &mut self.sizes[rounded.size() / CHUNK]
    }

    /// A piece for a layout that [`rounded`] gave; None: the allocator has to make one.
    pub fn take(&mut self, rounded: Layout) -> Option<NonNull<u8>> {
        let stack = self.of(rounded);
        let piece = NonNull::new(stack.top)?;
        // SAFETY: `put` wrote the word, and nobody else has had the piece since.
        stack.top = unsafe { piece.read() }.cast();
        stack.count -= 1;
        Some(piece.cast())
    }

    /// Keeps a free piece; false: it is to go back to the allocator.
    ///
    /// # Safety
    ///
    /// The allocator made it for this layout, which [`rounded`] gave, and nobody uses it.
    pub unsafe fn put(&mut self, piece: NonNull<u8>, rounded: Layout) -> bool {
        let stack = self.of(rounded);
        if stack.count == MOST {
            return false;
        }
        let word = piece.cast::<*mut u8>();
        // SAFETY: room for a word, aligned to it, and ours as the caller says.
        unsafe { word.write(stack.top.cast()) };
        stack.top = word.as_ptr();
        stack.count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        rounded(Layout::from_size_align(size, 8).unwrap()).unwrap()
    }

    #[test]
    fn only_small_and_ordinary_pieces_are_kept() {
        let wanted = |size, align| rounded(Layout::from_size_align(size, align).unwrap()).map(|layout| layout.size());
        assert_eq!([wanted(0, 1), wanted(505, 8), wanted(64, 64)], [None; 3]);
        assert_eq!(
            [wanted(1, 1), wanted(24, 16), wanted(25, 8), wanted(504, 8)],
            [Some(24), Some(24), Some(56), Some(504)]
        );
    }

    #[test]
    fn the_last_piece_of_a_size_comes_out_first_and_no_more_than_were_put_in() {
        let mut magazine = Magazine::new();
        let mut memory = [[0u128; 6]; 10];
        let pieces: Vec<_> = memory.iter_mut().map(|piece| NonNull::from(piece).cast::<u8>()).collect();
        // SAFETY: 96 bytes each, aligned to 16, nobody else's.
        let kept = pieces.iter().filter(|piece| unsafe { magazine.put(**piece, layout(60)) }).count();
        assert_eq!(kept, MOST as usize);
        assert_eq!(magazine.take(layout(100)), None);
        let taken: Vec<_> = std::iter::from_fn(|| magazine.take(layout(80))).collect();
        assert!(taken.iter().eq(pieces[..kept].iter().rev()));
    }
}
