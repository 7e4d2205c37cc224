//! Asks all CPUs of a machine for samples, so many times a second: counts up a word that the kernels see, and has QEMU interrupt every CPU, also where it takes no other interrupt.

use std::sync::{
    atomic::{AtomicBool, Ordering::Relaxed},
    Arc,
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use trace::{ASKED_PHYS, DIRECTORIES_PHYS};

use super::GuestMemory;
use crate::qmp::Qmp;

/// How often it looks whether a kernel is there.
const LOOK: Duration = Duration::from_millis(1);

/// Asks until it is dropped.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins when the first of so many kernels is ready to answer: firmware must not be interrupted. Kernels that are not ready yet do not mind.
    pub fn start(memory: GuestMemory, kernels: u16, mut qmp: Qmp, hertz: u32) -> Result<Sampler> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let is_ready = move |memory: &GuestMemory| {
            (0..u64::from(kernels)).any(|kernel| {
                let mut word = [0];
                memory.read(DIRECTORIES_PHYS + kernel * 8, &mut word).is_some() && word[0] != 0
            })
        };
        let ask = move || {
            while !is_ready(&memory) && !told.load(Relaxed) {
                thread::sleep(LOOK);
            }
            let period = Duration::from_secs(1) / hertz;
            let (mut asked, mut next) = (0u64, Instant::now());
            while !told.load(Relaxed) {
                let now = Instant::now();
                if now < next {
                    thread::sleep(next - now);
                }
                // Late: the next sample counts for all that should have been.
                while next <= Instant::now() {
                    next += period;
                    asked += 1;
                }
                let _ = memory.write(ASKED_PHYS, asked);
                // QEMU may be behind.
                if qmp.unanswered() < 16 {
                    qmp.inject_nmi();
                }
            }
        };
        let thread = thread::Builder::new().name("sampler".into()).spawn(ask)?;
        Ok(Sampler { stop, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
