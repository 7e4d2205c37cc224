//! Frames that this kernel holds, and goes on using, while another kernel uses them, too.
//!
//! Such a *pin* is one of the frame's users, and comes back like a frame that was lent. The frame need not lie here: pages of a
//! file may be borrowed. The count alone does not tell whose it
//! is: so that the pins of a kernel that dies can be taken back, they are written down by kernel. They are few: pages
//! of files that are mapped where neither the file nor a copy will do.

use alloc::{collections::BTreeMap, vec::Vec};
use machine::{sync::Lock, Frame, KernelId};

#[derive(Default)]
pub struct Pins(Lock<BTreeMap<(KernelId, Frame), u32>>);

impl Pins {
    /// One user of `frame` is `kernel` from now on.
    pub fn give(&self, frame: Frame, kernel: KernelId) {
        *self.0.lock().entry((kernel, frame)).or_default() += 1;
    }

    /// `kernel` gives one back. False if it has none.
    pub fn come_home(&self, frame: Frame, kernel: KernelId) -> bool {
        let mut pins = self.0.lock();
        let Some(count) = pins.get_mut(&(kernel, frame)) else { return false };
        *count -= 1;
        if *count == 0 {
            pins.remove(&(kernel, frame));
        }
        true
    }

    /// All that `kernel` had, each as often as it had it.
    pub fn take(&self, kernel: KernelId) -> Vec<(Frame, u32)> {
        let mut pins = self.0.lock();
        let frames: Vec<Frame> =
            pins.range((kernel, Frame(0))..=(kernel, Frame(u64::MAX))).map(|((_, frame), _)| *frame).collect();
        frames.into_iter().map(|frame| (frame, pins.remove(&(kernel, frame)).unwrap_or(0))).collect()
    }
}
