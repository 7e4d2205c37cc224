//! The kernel heap: talc over runs of frames of the own partition, growing as needed. The first piece is
//! in the image, for what boot needs before there are frames.

use crate::{layout::DIRECT_BASE, pages};
use core::alloc::Layout;
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
    unsafe { HEAP.lock().claim(start, end as usize - start as usize) };
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
static HEAP: talc::TalcLock<RawSpin, Grow> = talc::TalcLock::new(Grow { first_given: false });

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
