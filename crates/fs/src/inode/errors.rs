//! Failures of writing back, as each open description hears of them: once (Linux's errseq_t, lib/errseq.c).

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use machine::{errno::Result, Errno};

/// Of one file, or one disk.
#[derive(Default)]
pub struct WriteErrors {
    failures: AtomicU64,
    /// Of these, those that somebody has been told.
    told: AtomicU64,
}

impl WriteErrors {
    /// Something could not be written back.
    pub fn note(&self) {
        self.failures.fetch_add(1, SeqCst);
    }

    /// What a description that is opened now need not be told. A failure that nobody has heard of yet is told to those, too, that come later.
    pub fn sample(&self) -> u64 {
        self.told.load(SeqCst)
    }

    /// EIO: something could not be written back that a description which has heard of `heard` has not been told.
    pub fn check(&self, heard: &AtomicU64) -> Result<()> {
        let failures = self.failures.load(SeqCst);
        self.told.fetch_max(failures, SeqCst);
        match heard.swap(failures, SeqCst) == failures {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }
}
