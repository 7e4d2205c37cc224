//! The kernel heap: talc over runs of frames of the own partition, growing as needed. The first piece is
//! in the image, for what boot needs before there are frames.

use crate::{layout::DIRECT_BASE, pages};
use core::alloc::Layout;
use machine::PAGE_SIZE;
use talc::base::{binning::Binning, Talc};
use talc::lock_api::{GuardNoSend, RawMutex};
use talc::source::Source;
use core::sync::atomic::{AtomicBool, Ordering::*};

const FIRST: usize = 128 << 10;
/// Frames are asked for in pieces of at least 256 KiB.
const LEAST_ORDER: usize = 6;

#[derive(Debug)]
struct Grow {
    first_given: bool,
}

static mut FIRST_PIECE: [u8; FIRST] = [0; FIRST];

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
        let order = (needed.div_ceil(PAGE_SIZE).next_power_of_two().trailing_zeros() as usize).max(LEAST_ORDER);
        let run = pages::try_partition().and_then(|partition| partition.alloc_run(order)).ok_or(())?;
        let base = (DIRECT_BASE + run.address()) as *mut u8;
        // SAFETY: a fresh run of frames in the direct map, never given back.
        unsafe { talc.claim(base, PAGE_SIZE << order) }.map(|_| ()).ok_or(())
    }
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
