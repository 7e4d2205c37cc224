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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control::*, testing::*, Events, File, OpenFlags};
    use alloc::{format, string::String, sync::Arc, vec::Vec};
    use linux_raw_sys::ioctl::{FIONREAD, SIOCATMARK};

    fn control(socket: &dyn File, control: SocketControl) -> Result<ControlAnswer> {
        block_on(socket.control(&caller(7), Control::Socket(control)))
    }

    fn number(socket: &dyn File, request: u32) -> i32 {
        let mut data = Vec::from([0; 4]);
        block_on(socket.ioctl(&caller(7), request, &mut data)).unwrap();
        i32::from_ne_bytes(data[..].try_into().unwrap())
    }

    /// What a program sees: `!x` is sent with its last byte urgent, `+x` without; `r`, `p`, `o` and `q` read, look, and both urgently; `?` is
    /// the state: at the mark or not, FIONREAD, poll; `i` sets SO_OOBINLINE.
    fn story(from: &dyn File, to: &dyn File, steps: &str) -> String {
        let mut told = String::new();
        for step in steps.split(' ') {
            let (what, text) = step.split_at(1);
            match what {
                "!" | "+" => {
                    let message = SocketMessage { bytes: text.as_bytes().to_vec(), ..SocketMessage::default() };
                    let flags = u32::from(what == "!");
                    let send = SocketControl::Send { place: None, message, flags };
                    assert!(
                        matches!(control(from, send), Ok(ControlAnswer::Number(sent)) if sent == text.len() as i64)
                    );
                    continue;
                }
                "i" => {
                    let value = 1i32.to_ne_bytes().to_vec();
                    control(to, SocketControl::SetOption { level: 1, name: 10, value }).unwrap();
                    continue;
                }
                "?" => {
                    let mark = if number(to, SIOCATMARK) != 0 { "^" } else { "" };
                    let poll = to.poll();
                    let (read, urgent) = (poll.contains(Events::IN), poll.contains(Events::PRI));
                    told += &format!(
                        "{mark}{}{}{}",
                        number(to, FIONREAD),
                        if read { "r" } else { "" },
                        if urgent { "u" } else { "" }
                    );
                }
                _ => {
                    let flags = match what {
                        "r" => 0,
                        "p" => 2,
                        "o" => 1,
                        _ => 3,
                    };
                    match control(to, SocketControl::Receive { bytes: 100, flags }) {
                        Ok(ControlAnswer::Message(message)) => told += core::str::from_utf8(&message.bytes).unwrap(),
                        Err(Errno::EAGAIN) => told += "-",
                        Err(Errno::EINVAL) => told += "none",
                        _ => told += "error",
                    }
                }
            }
            told += " ";
        }
        told
    }

    fn unix() -> (Arc<dyn File>, Arc<dyn File>) {
        let (a, b) = Socket::pair(&Arc::default(), &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
        (a, b)
    }

    fn tcp() -> (Arc<dyn File>, Arc<dyn File>) {
        let (client, server, _) = crate::socket::inet::tests::pair(&Arc::default());
        (client, server)
    }

    /// As Linux 6.18 has it; of AF_UNIX, of TCP. (Linux counts a byte that was passed over in FIONREAD of AF_UNIX; Cob does not.)
    const STORIES: &[(&str, &str, &str)] = &[
        (
            "? o !ab! ? q p r ? o o ? r ? +cd ? r ?",
            "0 none 3ru ! ab ab ^1ru ! none ^0r - 0 2r cd 0 ",
            "0 none 2ru ! ab ab ^0u ! none ^0 - 0 2r cd 0 ",
        ),
        ("!ab! +cd ? r ? p ? r ? o", "5ru ab ^3ru cd ^3ru cd 0 none ", "2ru ab ^0ru cd ^0ru cd 0 none "),
        ("!! ? p r ? o +x r", "^1ru - - 0 none x ", "^0u - - 0 none x "),
        ("!a1 !b2 ? r ? o r ?", "4ru a1b ^1ru 2 - 0 ", "3ru a1b ^0u 2 - 0 "),
        ("!1 !2 +x ? r ? o r ?", "3ru 1 ^2ru 2 x 0 ", "^0ru x 0 none - 0 "),
        ("!a1 o !b2 ? r ? r r o r ?", "1 3ru ab ^1ru - - none - 0 ", "1 3ru a1b ^0u - - none - 0 "),
        ("!1 o ? !2 ? r ? o r ?", "1 ^0r ^1ru - 0 none - 0 ", "1 ^0 ^0u - 0 none - 0 "),
        ("i !ab! +cd ? o p r ? p r ? r", "5ru none ab ab ^3ru !cd !cd 0 - ", "5ru none ab ab ^3ru !cd !cd 0 - "),
        ("!a1 +b o i r ? r", "1 a ^1r b ", "1 a ^2r 1b "),
    ];

    #[test]
    fn a_byte_is_ahead_of_its_turn_and_marks_its_place() {
        for (steps, of_unix, of_tcp) in STORIES {
            let (from, to) = unix();
            assert_eq!(story(&*from, &*to, steps), *of_unix, "{steps}");
            let (from, to) = tcp();
            assert_eq!(story(&*from, &*to, steps), *of_tcp, "TCP: {steps}");
        }
    }
}
