//! What this copy of the image is: its id, the plan, its memory. Statics, since each kernel has its own
//! copy of them.

use crate::arch::{self, Signal, ThisCpu};
use crate::board;
use crate::plan::Plan;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use machine::KernelId;
use spin::Once;

static KERNEL: AtomicU16 = AtomicU16::new(0);
static HAS_BOARD: AtomicBool = AtomicBool::new(false);
static PLAN: Once<Plan> = Once::new();

/// This kernel.
pub fn kernel() -> KernelId {
    KernelId(KERNEL.load(Relaxed))
}

pub(crate) fn set_kernel(kernel: KernelId) {
    KERNEL.store(kernel.0, Relaxed);
}

pub(crate) fn has_board() -> bool {
    HAS_BOARD.load(Relaxed)
}

pub(crate) fn set_has_board() {
    HAS_BOARD.store(true, Relaxed);
}

/// The whole machine, cut up.
pub fn plan() -> &'static Plan {
    PLAN.get().expect("read before anything asks")
}

pub(crate) fn set_plan(plan: Plan) -> &'static Plan {
    PLAN.call_once(|| plan)
}

/// The CPU that runs this, and its siblings.
pub fn cpu() -> &'static dyn machine::Cpu {
    &ThisCpu
}

/// The same for services that share ownership with what they are given.
pub fn shared_cpu() -> alloc::sync::Arc<dyn machine::Cpu> {
    alloc::sync::Arc::new(ThisCpu)
}

/// Interrupts the CPU that takes doorbells for `kernel`. Whether it needs one is the caller's question.
pub fn ring_doorbell(kernel: KernelId) {
    let entry = board::entry(kernel);
    if matches!(entry.state(), board::State::Up | board::State::Running) {
        entry.doorbell.rings(crate::clock::now());
        arch::send(entry.lifecycle().doorbell.load(Relaxed), Signal::Doorbell);
    }
}

/// When another kernel rang this one's doorbell last, in ns of the machine's clock; 0: never.
pub fn rung_at() -> u64 {
    board::entry(kernel()).doorbell.rung_at()
}

pub(crate) fn image_end() -> u64 {
    crate::layout::IMAGE_BASE + crate::boot::image_shape().end
}
