//! Urgent data (MSG_OOB; man 7 unix, tcp): one byte of a stream that can be received before those ahead of it. A read stops there, even if
//! more follows (the mark, SIOCATMARK), and the next one passes over it, unless SO_OOBINLINE is set. There is one at a time.
//!
//! ```text
//!            read      at
//!             v         v
//! inbox:      a  b  c   !   d  e      recv: "abc"     recv(MSG_OOB): "!"     then recv: "de"
//! ```
//!
//! Of TCP the byte stays where it is when it was received; of AF_UNIX it goes, and its place remains the mark.

use super::{inbox, Role, Socket, SocketKind, State};
use crate::control::SocketMessage;
use machine::{errno::Result, Errno};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgent {
    /// Its place in the stream, in bytes since that began.
    pub at: u64,
    /// It was received by MSG_OOB.
    pub taken: bool,
    /// It is not in the stream any more.
    pub gone: bool,
}

impl Urgent {
    pub fn at(at: u64) -> Self {
        Urgent { at, taken: false, gone: false }
    }
}

impl State {
    /// POLLPRI.
    pub(super) fn has_urgent(&self) -> bool {
        self.inbox.urgent().is_some_and(|urgent| !urgent.taken)
    }

    /// Bytes that a read of a TCP socket could give (tcp_poll, tcp_inq in Linux): `least` if it does not stop before.
    pub(super) fn tcp_has(&self, least: usize) -> bool {
        let passes = self.inbox.is_at_mark() && !self.settings.inline();
        self.inbox.bytes() >= least + usize::from(passes)
    }
}

impl Socket {
    /// recv(2) with MSG_OOB.
    pub(super) fn receive_urgent(&self, limit: usize, peek: bool) -> Result<SocketMessage> {
        if self.kind != SocketKind::Stream {
            return Err(Errno::EOPNOTSUPP);
        }
        let (message, files, peer, credit) = {
            let mut state = self.state.lock();
            if matches!(state.role, Role::Listening { .. }) && self.inet.is_some() {
                return Err(Errno::ENOTCONN);
            }
            if state.settings.inline() {
                return Err(Errno::EINVAL);
            }
            let before = state.inbox.cost();
            let byte = state.inbox.take_urgent(peek, self.inet.is_some()).ok_or(Errno::EINVAL)?;
            let files = state.inbox.take_lost();
            let part = before - state.inbox.cost();
            let credit = Self::received(&mut state, part, !files.is_empty());
            (inbox::urgent_message(byte, limit), files, state.peer(), credit)
        };
        self.credit(credit);
        // Outside the lock: they may be sockets.
        drop(files);
        if let (false, Some(peer)) = (peek, peer) {
            peer.changes.wake_all();
        }
        Ok(message)
    }
}
