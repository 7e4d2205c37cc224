//! Load averages (man 5 proc, loadavg), as kernel/sched/loadavg.c has them: threads that run, wait for a CPU, or wait so that no signal
//! ends it. An average of a sum is the sum of the averages, so each kernel has those of its own threads, which cost no message;
//! who asks adds them up.

use crate::{System, Thread};
use alloc::sync::Arc;
use machine::sync::Lock;
use messages::inspect::RunState;

/// Time between two samples.
pub const SAMPLE_NS: u64 = 5_000_000_000;
/// A load of one thread, in fixed point with eleven bits.
pub const ONE: u64 = 1 << 11;
/// The factors that a load decays by between two samples, for the averages over 1, 5 and 15 minutes.
const DECAY: [u64; 3] = [1884, 2014, 2037];

/// The load averages of one kernel.
#[derive(Default)]
pub(crate) struct LoadAverage(Lock<[u64; 3]>);

impl LoadAverage {
    pub fn get(&self) -> [u64; 3] {
        *self.0.lock()
    }

    fn sample(&self, active: u64) {
        for (average, decay) in self.0.lock().iter_mut().zip(DECAY) {
            let load = active * ONE;
            let next = *average * decay + load * (ONE - decay);
            // Upwards it is rounded up, so that a load that lasts is reached.
            *average = (next + if load >= *average { ONE - 1 } else { 0 }) / ONE;
        }
    }
}

impl System {
    /// Samples the load for ever: a task of each kernel.
    pub async fn sample_load(&self) {
        let mut due = self.now();
        loop {
            due += SAMPLE_NS;
            self.scheduler.sleep_until(due).await;
            let is_active = |thread: &&Arc<Thread>| !thread.is_away() && thread.run_state() != RunState::Interruptible;
            let active = self.threads.lock().values().filter(is_active).count() as u64;
            // More than once if this CPU was held up.
            while due <= self.now() {
                self.load_average.sample(active);
                due += SAMPLE_NS;
            }
            due -= SAMPLE_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_reaches_a_load_that_lasts_and_then_decays() {
        let average = LoadAverage::default();
        average.sample(3);
        assert_eq!(average.get(), [3 * (2048 - 1884), 3 * (2048 - 2014), 3 * (2048 - 2037)]);
        for _ in 0..4000 {
            average.sample(3);
        }
        assert_eq!(average.get(), [3 * ONE; 3]);
        for _ in 0..12 {
            average.sample(0);
        }
        // After a minute 1/e is left.
        assert!((average.get()[0] as f64 / (3 * ONE) as f64 - (-1f64).exp()).abs() < 0.01);
        for _ in 0..4000 {
            average.sample(0);
        }
        assert_eq!(average.get(), [0; 3]);
    }
}
