//! The kernel heap: talc over runs of frames of the own partition, growing as needed, behind a magazine of small pieces for each
//! CPU. The first piece is in the image, for what boot needs before there are frames. Where programs have left no run of frames
//! that is long enough, scattered ones are mapped in a row (an area of its own): what a call needs in one piece, such as a list of
//! a process's regions, must not depend on that. A run of which nothing is used any more goes back, so that what programs made the
//! kernel keep for them is programs' memory again when they have ended.

use crate::layout::{DIRECT_BASE, SHARED_BASE};
use crate::magazine::{rounded, Magazine};
use crate::{kmap, pages, percpu};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use machine::{Frame, PAGE_SIZE};
use talc::base::{binning::Binning, Talc};
use talc::lock_api::{GuardNoSend, RawMutex};
use talc::source::Source;

const FIRST: usize = 128 << 10;
/// Frames are asked for in pieces of 32 KiB, as long as memory is not in pieces itself: what the last one has left is all
/// that an idle kernel wastes.
const USUAL_ORDER: usize = 3;

#[derive(Debug)]
struct Grow {
    first_given: bool,
}

static mut FIRST_PIECE: [u8; FIRST] = [0; FIRST];

/// Frames the heap has taken as runs.
static IN_RUNS: AtomicU64 = AtomicU64::new(0);

/// Frames the heap has.
pub fn frames() -> u64 {
    IN_RUNS.load(Relaxed) + kmap::scattered_frames()
}

/// Gives the heap what only the boot needed: its stack and the first page tables.
///
/// # Safety
///
/// Once, when this kernel runs on another stack, and under page tables of its own.
pub unsafe fn adopt_boot_memory() {
    // SAFETY: start.s of the architecture defines these so.
    unsafe extern "C" {
        static mut boot_tables: u8;
        static mut boot_stack_end: u8;
    }
    let (start, end) = (&raw mut boot_tables, &raw mut boot_stack_end);
    // SAFETY: start.s of the architecture lays the stack directly behind the tables; the caller says that nobody uses them.
    unsafe { HEAP.0.lock().claim(start, end as usize - start as usize) };
}

// SAFETY: `acquire` and `resize` take and give frames, which never allocate from this heap.
unsafe impl Source for Grow {
    const TRACK_HEAP_END: bool = true;

    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        if !talc.source.first_given {
            talc.source.first_given = true;
            // SAFETY: given to the heap once, here.
            unsafe { talc.claim((&raw mut FIRST_PIECE).cast(), FIRST) };
            return Ok(());
        }
        // Room for talc's own words and for aligning.
        let needed = layout.size().checked_add(layout.align() + 256).ok_or(())?;
        let (base, pages) = piece(needed.div_ceil(PAGE_SIZE)).ok_or(())?;
        // SAFETY: frames that nobody else has, mapped in a row until `resize` gives them back.
        unsafe { talc.claim(base.as_ptr(), pages * PAGE_SIZE) }.map(|_| ()).ok_or(())
    }

    /// Talc has found the end of what `acquire` claimed free from `chunk_base` on.
    unsafe fn resize(&mut self, chunk_base: *mut u8, end: *mut u8, is_all: bool) -> *mut u8 {
        // Talc's first words of a piece lie before `chunk_base`, within one unit.
        let base = (chunk_base as usize - 1) & !(PAGE_SIZE - 1);
        let run =
            is_all.then(|| (base as u64).checked_sub(DIRECT_BASE)).flatten().filter(|_| (base as u64) < SHARED_BASE);
        let (Some(phys), Some(partition)) = (run, pages::try_partition()) else { return end };
        let pages = (end as usize - base) / PAGE_SIZE;
        partition.free_run(Frame(phys / PAGE_SIZE as u64), pages.trailing_zeros() as usize);
        IN_RUNS.fetch_sub(pages as u64, Relaxed);
        chunk_base
    }
}

/// Memory in one piece, of at least `least` pages: its address and its pages.
fn piece(least: usize) -> Option<(NonNull<u8>, usize)> {
    let partition = pages::try_partition()?;
    let order = least.next_power_of_two().trailing_zeros() as usize;
    for order in [order.max(USUAL_ORDER), order] {
        if let Some(run) = partition.alloc_run(order) {
            IN_RUNS.fetch_add(1 << order, Relaxed);
            let base = NonNull::new((DIRECT_BASE + run.address()) as *mut u8)?;
            return Some((base, 1 << order));
        }
    }
    kmap::new_heap_piece(least).ok().map(|base| (base, least))
}

#[global_allocator]
static HEAP: Heap = Heap(talc::TalcLock::new(Grow { first_given: false }));

struct Heap(talc::TalcLock<RawSpin, Grow>);

fn magazine() -> *mut Magazine {
    percpu::current().magazine.get()
}

// SAFETY: what is not small goes to talc; a small piece is one of talc's of the rounded layout, which has room for the one asked
// for and is used in its place everywhere. A magazine is its CPU's alone: the kernel is not preempted, and what interrupts
// it (a flag set, a probe) allocates nothing.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let small = rounded(layout);
        // SAFETY: see above.
        let kept = small.and_then(|small| unsafe { (*magazine()).take(small) });
        // SAFETY: the caller says that `layout` is not empty.
        kept.map_or_else(|| unsafe { self.0.alloc(small.unwrap_or(layout)) }, NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let small = rounded(layout);
        // SAFETY: see above; the caller says that `piece` came from `alloc` with this layout.
        let kept = small.is_some_and(|small| unsafe { (*magazine()).put(NonNull::new_unchecked(piece), small) });
        if !kept {
            // SAFETY: the same.
            unsafe { self.0.dealloc(piece, small.unwrap_or(layout)) }
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for size and alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (rounded(layout), rounded(wanted)) {
            // SAFETY: as in `dealloc`.
            (None, None) => unsafe { self.0.realloc(piece, layout, size) },
            (had, needs) if had == needs => piece,
            // SAFETY: both pieces hold the smaller of the two sizes, and are different ones.
            _ => unsafe {
                let new = self.alloc(wanted);
                if !new.is_null() {
                    core::ptr::copy_nonoverlapping(piece, new, size.min(layout.size()));
                    self.dealloc(piece, layout);
                }
                new
            },
        }
    }
}

/// What talc wants of a lock. The heap's is never held across anything that could wait.
struct RawSpin(AtomicBool);

// SAFETY: one holder at a time: only who turns false into true has it.
unsafe impl RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api wants an initializer that way")]
    const INIT: RawSpin = RawSpin(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            core::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        !self.0.load(Relaxed) && !self.0.swap(true, Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}
