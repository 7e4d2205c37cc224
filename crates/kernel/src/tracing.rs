//! The trace of this kernel: which events are recorded from the beginning, and from when somebody asks.
//!
//! - `cob.trace=LIST`: the kernel has rings, and records these events (docs/trace.md); `none`: it has rings and waits to be told.
//! - `cob.trace-ring=KIB`: size of a CPU's ring. Default: 1024.
//! - `cob.trace-full=overwrite`: a full ring loses the oldest events, not the newest.
//! - `cob.trace-kernels=0,2-3`: only these kernels record.
//! - `cob.sample-stack=BYTES`: how much of a program's stack a sample of `cob profile` has (the group `profile` of events). Default: 16384, at most 32768.

use crate::services::Kernel;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::KernelId;
use messages::control::{Trace, Traced};
use platform::plan::{numbers, option};

const RING_KIB: u64 = 1024;
const MOST_RING_KIB: u64 = 1 << 20;
const SAMPLE_STACK: u64 = 16384;

/// What was recorded last, other than nothing.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Makes the rings and begins to record, if the command line wants that.
pub fn start(command_line: &str, kernel: KernelId) {
    let Some(list) = option(command_line, "cob.trace") else { return };
    let points = trace::select(list).unwrap_or_else(|trace::UnknownEvent(name)| {
        log::error!("cob.trace: there is no event {name}");
        0
    });
    if let Some(list) = option(command_line, "cob.trace-kernels") {
        match numbers(list) {
            Some(kernels) if kernels.contains(&kernel.0.into()) => {}
            Some(_) => return,
            None => return log::error!("cob.trace-kernels={list}: not a list of kernels; this one records nothing"),
        }
    }
    let size = option(command_line, "cob.trace-ring").and_then(|size| size.parse().ok());
    let bytes = size.unwrap_or(RING_KIB).min(MOST_RING_KIB) * 1024;
    let overwrite = option(command_line, "cob.trace-full") == Some("overwrite");
    let stack = option(command_line, "cob.sample-stack").and_then(|bytes| bytes.parse().ok());
    let samples = (points & trace::Point::Sample.bit() != 0).then(|| stack.unwrap_or(SAMPLE_STACK));
    if platform::tracing::create_rings(bytes, overwrite, samples).is_err() {
        return log::error!("no memory for trace rings of {bytes} bytes: this kernel records nothing");
    }
    let all = trace::select("all").unwrap_or(0);
    CHOSEN.store(if points == 0 { all } else { points }, Relaxed);
    trace::enable(points);
}

/// Serves [`Trace`].
pub fn serve(kernel: &'static Kernel) {
    kernel.endpoint.on_sync::<Trace, _>(move |_, ask: Trace| {
        let points = match ask.events {
            Traced::Nothing | Traced::Points(0) => 0,
            Traced::Again => CHOSEN.load(Relaxed),
            Traced::Points(points) => points,
        };
        if points != 0 {
            CHOSEN.store(points, Relaxed);
        }
        // A kernel that was left out by its number stays so.
        let chosen = option(&kernel.plan.command_line, "cob.trace").is_some();
        let began = trace::enabled() == 0 && points != 0;
        if trace::change(points) && began {
            kernel.system.trace_names();
        }
        chosen
    });
}
