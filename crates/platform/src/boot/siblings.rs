//! The other CPUs of a cluster, started by its boot CPU.

use crate::arch::{self, launch, Launch};
use crate::layout::IMAGE_BASE;
use crate::percpu::{self, PerCpu};
use crate::{kmap, patching};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use machine::{CpuId, Errno};

static ENTRY: AtomicUsize = AtomicUsize::new(0);

/// Starts all CPUs of this kernel but the current one; each calls `entry` on a stack of its own. The
/// ones that did not answer are in the result.
pub fn start_siblings(entry: fn(CpuId) -> !) -> Result<(), (CpuId, Errno)> {
    ENTRY.store(entry as usize, Release);
    for area in percpu::all().iter().skip(1) {
        let begin = Launch {
            hardware_id: area.hardware_id,
            root: kmap::root(),
            image_entry: kmap::top_entry(IMAGE_BASE),
            stack: area.stack,
            function: sibling_start as *const () as u64,
            argument: *area as *const PerCpu as u64,
        };
        launch(&begin, || area.online.load(Acquire)).map_err(|error| (area.cpu, error))?;
    }
    Ok(())
}

extern "C" fn sibling_start(area: &'static PerCpu) -> ! {
    arch::init_cpu(area);
    patching::come_online(area);
    // SAFETY: `start_siblings` stored a function of this type before it launched anything.
    let entry = unsafe { core::mem::transmute::<usize, fn(CpuId) -> !>(ENTRY.load(Acquire)) };
    entry(area.cpu)
}
