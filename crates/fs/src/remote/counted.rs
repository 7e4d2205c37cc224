//! References that are counted and not sent yet.
//!
//! A count goes up before the message with the reference leaves. Until then whoever puts the message together may be dropped
//! (a signal, a death): between two counts, or while the message waits for a credit. Then the counts go down again.

use super::Remote;
use alloc::sync::Arc;
use machine::KernelId;
use messages::fs::{FileUnsent, Opened};

/// A reference for another kernel, which owns one count as soon as it is sent. Dropped unsent, it is not counted any more.
#[must_use = "what is not sent is not counted any more"]
pub struct Counted {
    remote: Arc<Remote>,
    holder: KernelId,
    opened: Option<Opened>,
}

impl Counted {
    pub(super) fn new(remote: &Remote, holder: KernelId, opened: Opened) -> Self {
        Counted { remote: remote.shared(), holder, opened: Some(opened) }
    }

    /// What to put into a message that can be taken back: `self` is to be [sent](Self::send) when it has left.
    pub(super) fn opened(&self) -> Opened {
        self.opened.clone().expect("not sent yet")
    }

    /// To be put into a message that leaves at once.
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
            // A dead owner counts nothing.
            true => drop(self.endpoint.send(file.owner, FileUnsent { id: file.id, holder })),
            false if file.owner == self.me() => drop(self.exports.release(file.id, holder, 1)),
            // The receiver's own: nobody has counted it.
            false => {}
        }
    }
}
