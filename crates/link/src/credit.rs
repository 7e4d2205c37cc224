//! Credits: a slow reader stops the writer, not the link.
//!
//! Problem. Stream data and control frames share one byte stream. If stdin filled it, a Ctrl-C would wait
//! behind it; if a slow `less` on the host let stdout pile up, either memory would grow without bound or the
//! guest's Exit would never arrive. And QEMU's virtconsole does not wait for its socket: what does not fit
//! into the socket buffer of the host is *dropped* (hw/char/virtio-console.c, flush_buf).
//!
//! Idea. Each stream has a window. A sender charges every data frame to the window and waits when there is no
//! room; the receiver gives the charge back when the frame's last byte is consumed (written to the host's
//! descriptor, read by the program), not when it arrives. So at any moment at most a window of each stream
//! lies in buffers, and the host makes its socket buffer larger than all windows together: nothing is
//! dropped, control frames always get through.
//!
//! The charge of a frame is its payload plus [`FRAME_COST`], because Linux charges a socket buffer for its
//! bookkeeping too: 400 frames of one byte fill a 400 KiB socket. For the same reason the guest gives a frame to
//! the device in one piece, and returns stdin's credit in portions rather than byte by byte.
//!
//! The dangerous moment is a sender that waits for credit while it holds something the receiver needs to give
//! it; therefore credit frames themselves are never charged, and each side handles them before anything else.

use crate::LinkError;

/// What a frame costs beyond its payload.
pub const FRAME_COST: u32 = 1024;

/// The window of each output stream (stdout, stderr, tty) at the start.
pub const STREAM_WINDOW: u32 = 96 * 1024;

/// The most stdin that may be on the way. The window starts empty: see [`crate::ToHost::Credit`].
pub const STDIN_WINDOW: u32 = 96 * 1024;

/// What a data frame with `length` bytes of payload takes from its window.
pub fn charge(length: usize) -> u32 {
    length as u32 + FRAME_COST
}

/// The sender's side of one stream's window.
#[derive(Debug)]
pub struct Window {
    limit: u32,
    free: u32,
}

impl Window {
    /// The window of an output stream: wholly free.
    pub fn output() -> Self {
        Self { limit: STREAM_WINDOW, free: STREAM_WINDOW }
    }

    /// The window of stdin: opened by the guest.
    pub fn stdin() -> Self {
        Self { limit: STDIN_WINDOW, free: 0 }
    }

    /// How many bytes a frame sent now may carry. Zero: wait for credit.
    pub fn room(&self) -> usize {
        self.free.saturating_sub(FRAME_COST) as usize
    }

    /// Charges a frame of `length` bytes; false if it does not fit, and then nothing is charged.
    #[must_use]
    pub fn take(&mut self, length: usize) -> bool {
        let left = self.free.checked_sub(charge(length));
        self.free = left.unwrap_or(self.free);
        left.is_some()
    }

    /// Credit came back.
    pub fn give(&mut self, amount: u32) -> Result<(), LinkError> {
        match self.free.checked_add(amount) {
            Some(free) if free <= self.limit => {
                self.free = free;
                Ok(())
            }
            _ => Err(LinkError::CreditOverflow),
        }
    }
}
