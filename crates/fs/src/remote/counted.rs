//! References that are counted but not sent yet.
//!
//! A count goes up before the message with the reference leaves. The future that puts the message together may be dropped before
//! (a signal, a death): between two counts, or while the message waits for a credit of the lane. Then the counts go down again.

use super::Remote;
use alloc::sync::Arc;
use machine::KernelId;
use messages::fs::{FileUnsent, Opened};

/// A reference for another kernel, which has been counted for it. Dropping it unsent takes the count back.
#[must_use = "dropping it takes the count back"]
pub struct Counted {
    remote: Arc<Remote>,
    holder: KernelId,
    opened: Option<Opened>,
}

impl Counted {
    pub(super) fn new(remote: &Remote, holder: KernelId, opened: Opened) -> Self {
        Counted { remote: remote.shared(), holder, opened: Some(opened) }
    }

    /// The reference, to be put into a message that may not leave. Call [`Self::send`] when it has left.
    pub(super) fn opened(&self) -> Opened {
        self.opened.clone().expect("not sent yet")
    }

    /// The reference, to be put into a message that leaves at once. The count stays.
    pub fn send(mut self) -> Opened {
        self.opened.take().expect("not sent yet")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.remote.uncount(self.holder, opened);
        }
    }
}

impl Remote {
    /// Undoes `hand_to` or `hand_over`.
    fn uncount(&self, holder: KernelId, opened: Opened) {
        let Opened { file, giver, .. } = opened;
        match giver == Some(self.me()) {
            true if file.owner == self.me() => drop(self.take_aside(file.id)),
            // Fails if the owner is dead.
            true => drop(self.endpoint.send(file.owner, FileUnsent { id: file.id, holder })),
            false if file.owner == self.me() => drop(self.exports.release(file.id, holder, 1)),
            // The receiver's own: nobody has counted it.
            false => {}
        }
    }
}
