//! [`Shield`]: a thread that is interrupted stays until it knows what became of what it began elsewhere.
//!
//! Who waits has done nothing, and may leave at once. Who has sent a message can't know whether it was done:
//!
//! ```text
//! thread                                    another kernel
//! write "x" ------------------------------> "x" is in the pipe; "1 byte" --.
//! a signal: leaves, and restarts the call                                   '-> nobody is there
//! write "x" ------------------------------> "xx"
//! ```
//!
//! So whoever does such a thing on behalf of a thread holds its shield until the answer has come, and the thread
//! leaves only when nobody holds it. What the other kernel does at once is soon answered. What may wait there hears
//! that the thread wants to leave ([`HeldShield::is_leaving`]), cancels, and goes on waiting for the answer: it says whether
//! it was done or cancelled, never both.
//!
//! There are no races to think of: all of it happens in polls of the thread's own task. The answer wakes the task as
//! the signal does, so whichever comes second finds both.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

#[derive(Debug, Default)]
struct State {
    held: AtomicU32,
    leaving: AtomicBool,
}

/// A thread's, or nobody's: of who is never interrupted, or waits on another kernel.
#[derive(Clone, Debug, Default)]
pub struct Shield(Option<Arc<State>>);

/// As long as it exists, the thread stays.
pub struct HeldShield<'a>(&'a Shield);

impl Shield {
    /// Nobody's: it is never held.
    pub const NONE: Shield = Shield(None);

    /// A thread's.
    pub fn new() -> Self {
        Shield(Some(Arc::default()))
    }

    /// The thread stays until the answer is dropped.
    pub fn hold(&self) -> HeldShield<'_> {
        if let Some(state) = &self.0 {
            if state.held.fetch_add(1, Relaxed) == 0 {
                state.leaving.store(false, Relaxed);
            }
        }
        HeldShield(self)
    }

    /// The thread wants to leave. False if it may; else it polls once more, so that who holds it hears of it.
    pub fn must_stay(&self) -> bool {
        let Some(state) = self.0.as_ref().filter(|state| state.held.load(Relaxed) > 0) else { return false };
        state.leaving.store(true, Relaxed);
        true
    }

    /// Did the thread want to leave while it was last held?
    pub fn is_leaving(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.leaving.load(Relaxed))
    }
}

/// It says nothing about whose it is.
impl PartialEq for Shield {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Shield {}

impl HeldShield<'_> {
    /// Whether the thread wants to leave: what may wait is to be cancelled.
    pub fn is_leaving(&self) -> bool {
        self.0.is_leaving()
    }
}

impl Drop for HeldShield<'_> {
    fn drop(&mut self) {
        if let Some(state) = &self.0 .0 {
            state.held.fetch_sub(1, Relaxed);
        }
    }
}
