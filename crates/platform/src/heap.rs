//! The kernel heap: talc over runs of frames of the own partition, growing as needed, behind a magazine of small pieces for each
//! CPU. The first piece is in the image, for what boot needs before there are frames.

use crate::magazine::{rounded, Magazine};
use crate::{layout::DIRECT_BASE, pages, percpu};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use machine::PAGE_SIZE;
use talc::base::{binning::Binning, Talc};
use talc::lock_api::{GuardNoSend, RawMutex};
use talc::source::Source;

const FIRST: usize = 128 << 10;
/// Frames are asked for in pieces of 32 KiB, as long as memory is not in pieces itself: what the last one has left is all
/// that an idle kernel wastes.
const USUAL_ORDER: usize = 3;
/// 32 KiB in one piece kept back from the beginning. Programs stop before the last frames
/// ([`frames::Purpose`]), so this is for the case that those are too scattered.
const RESERVE_ORDER: usize = 3;

#[derive(Debug)]
struct Grow {
    first_given: bool,
}

static mut FIRST_PIECE: [u8; FIRST] = [0; FIRST];

/// Physical address of what is kept back; 0: none (left).
static RESERVE: AtomicU64 = AtomicU64::new(0);

/// Frames the heap has taken, the reserve included. They never go back.
static FRAMES: AtomicU64 = AtomicU64::new(0);

pub fn frames() -> u64 {
    FRAMES.load(Relaxed)
}

/// Sets the reserve aside. Once, when there are frames.
pub fn init() {
    let reserve = pages::partition().alloc_run(RESERVE_ORDER);
    FRAMES.fetch_add(reserve.map_or(0, |_| 1 << RESERVE_ORDER), Relaxed);
    RESERVE.store(reserve.map_or(0, |run| run.address()), Relaxed);
}

/// Gives the heap what only the boot needed: its stack and the first page tables.
///
/// # Safety
///
/// Once, when this kernel runs on another stack, and under page tables of its own.
pub unsafe fn adopt_boot_memory() {
    extern "C" {
        static mut boot_tables: u8;
        static mut boot_stack_end: u8;
    }
    let (start, end) = (&raw mut boot_tables, &raw mut boot_stack_end);
    // SAFETY: start.s lays the stack directly behind the tables; the caller says that nobody uses them.
    unsafe { HEAP.0.lock().claim(start, end as usize - start as usize) };
}

// SAFETY: `acquire` takes frames, which never allocate from this heap.
unsafe impl Source for Grow {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        if !talc.source.first_given {
            talc.source.first_given = true;
            // SAFETY: given to the heap once, here.
            unsafe { talc.claim((&raw mut FIRST_PIECE).cast(), FIRST) };
            return Ok(());
        }
        // Room for talc's own words and for aligning.
        let needed = layout.size().checked_add(layout.align() + 256).ok_or(())?;
        let least = needed.div_ceil(PAGE_SIZE).next_power_of_two().trailing_zeros() as usize;
        let (phys, order) = run(least).ok_or(())?;
        let base = (DIRECT_BASE + phys) as *mut u8;
        // SAFETY: a run of frames in the direct map that nobody else has, never given back.
        unsafe { talc.claim(base, PAGE_SIZE << order) }.map(|_| ()).ok_or(())
    }
}

/// A run of at least `1 << least` frames: its address and order.
fn run(least: usize) -> Option<(u64, usize)> {
    let partition = pages::try_partition()?;
    for order in [least.max(USUAL_ORDER), least] {
        if let Some(run) = partition.alloc_run(order) {
            FRAMES.fetch_add(1 << order, Relaxed);
            return Some((run.address(), order));
        }
    }
    let reserve = if least <= RESERVE_ORDER { RESERVE.swap(0, Relaxed) } else { 0 };
    (reserve != 0).then_some((reserve, RESERVE_ORDER))
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
