//! read(2) and write(2) of a stream socket. Bytes go straight from a program's memory into a message, and straight from the inbox to where they are wanted, while
//! the inbox is locked: who reads copies them once, and nothing is lost if the memory is not there.

use super::{credentials_of, inbox, options::Wishes, transfer::limit_between, Role, Socket, SocketKind};
use crate::{
    control::SocketMessage,
    file::{Access, Destination, Source, Transfer, NEEDS_BUFFER},
    waiting::{attempt, Patience},
};
use machine::{collections::try_filled, errno::Result, Errno, PAGE_SIZE};

impl Socket {
    pub(super) fn read_stream<'a>(&'a self, mut to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let patience = self.patience(access.patience);
        attempt(&self.changes, patience, move || self.try_read(&mut to, patience))
    }

    /// Errors: NEEDS_BUFFER, and all stays.
    fn try_read(&self, to: &mut Destination<'_>, patience: Patience) -> Result<usize> {
        if let Some(read) = self.pour(to, patience) {
            return read;
        }
        let Destination::Kernel(buf) = to else { return Err(NEEDS_BUFFER) };
        // Files that come along are closed: read(2) cannot give them.
        let message = self.try_receive(buf.len(), 0, patience)?;
        buf[..message.bytes.len()].copy_from_slice(&message.bytes);
        Ok(message.bytes.len())
    }

    /// What a read gives if it is bytes and nothing else, or has to wait for more. None: [`Socket::try_receive`] has to look.
    fn pour(&self, to: &mut Destination<'_>, patience: Patience) -> Option<Result<usize>> {
        let (count, peer, credit) = {
            let mut state = self.state.lock();
            if !matches!(state.role, Role::Connected(_) | Role::Linked(_)) {
                return None;
            }
            if state.inbox.has_nothing() {
                return (!state.read_shut && state.error.is_none()).then_some(Err(Errno::EAGAIN));
            }
            if patience != Patience::Refuses && self.waits_for_more(&state, to.len(), false) {
                return Some(Err(Errno::EAGAIN));
            }
            let by_sender = state.wants_credentials || state.settings.wishes.contains(Wishes::PIDFD);
            let before = state.inbox.cost();
            let count = match state.inbox.pour(to.len(), by_sender, |bytes| to.put(bytes))? {
                Ok(count) => count,
                Err(error) => return Some(Err(error)),
            };
            let part = before - state.inbox.cost();
            state.awaited = false;
            (count, state.peer(), Self::received(&mut state, part, false))
        };
        self.credit(credit);
        if let Some(peer) = peer {
            // There is room again.
            peer.changes.wake_all();
        }
        Some(Ok(count))
    }

    /// With the caller's credentials, if one is known. Errors: NEEDS_BUFFER, and nothing was sent.
    pub(super) fn write_stream<'a>(&'a self, mut from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        debug_assert!(self.kind == SocketKind::Stream);
        let patience = self.patience(access.patience);
        let sender = move || access.caller().map(credentials_of).unwrap_or_default();
        if !matches!(self.state.lock().role, Role::Connected(_)) {
            return Transfer::later(async move {
                let mut message = take(&mut from, inbox::LIMIT)?;
                self.send_connected(&mut message, sender(), access.shield(), patience).await
            });
        }
        // What does not fit is not copied, unless it is to wait for room.
        let room = if from.len() > PAGE_SIZE { self.room_near() } else { inbox::LIMIT };
        let most = match patience {
            Patience::Waits if room == 0 => inbox::LIMIT,
            _ => room.clamp(PAGE_SIZE, inbox::LIMIT),
        };
        let (sender, mut message) = match take(&mut from, most) {
            Ok(message) => (sender(), message),
            Err(error) => return Transfer::Done(Err(error)),
        };
        match self.try_send_near(&mut message, sender) {
            Ok(Some(sent)) => Transfer::Done(Ok(sent)),
            Err(Errno::EAGAIN) if patience != Patience::Waits => Transfer::Done(Err(patience.answer())),
            Ok(None) | Err(Errno::EAGAIN) => {
                let shield = access.shield();
                Transfer::later(async move { self.send_connected(&mut message, sender, shield, patience).await })
            }
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    /// How many bytes the inbox of the other end takes, which is of this kernel.
    fn room_near(&self) -> usize {
        let (other, buffer) = {
            let state = self.state.lock();
            (state.peer(), state.settings.send_buffer())
        };
        let Some(other) = other else { return inbox::LIMIT };
        let there = other.state.lock();
        there.inbox.room(limit_between(buffer, &there, self.inet.is_some()))
    }
}

/// A message of the first bytes, at most `most`.
fn take(from: &mut Source<'_>, most: usize) -> Result<SocketMessage> {
    let mut bytes = try_filled(from.len().min(most), 0).map_err(|_| Errno::ENOBUFS)?;
    from.take(&mut bytes)?;
    Ok(SocketMessage { bytes, ..SocketMessage::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing::*, File, OpenFlags};
    use alloc::{sync::Arc, vec, vec::Vec};

    fn pairs() -> Vec<(Arc<dyn File>, Arc<dyn File>)> {
        let (a, b) = Socket::pair(&Arc::default(), &caller(7), SocketKind::Stream, OpenFlags::empty());
        let (client, server, _) = crate::socket::inet::tests::pair(&Arc::default());
        let ends: [Arc<dyn File>; 2] = [client, server];
        ends.iter().for_each(|end| block_on(end.set_flags(OpenFlags::empty())).unwrap());
        let [client, server] = ends;
        vec![(a, b), (client, server)]
    }

    /// Reads into memory of which so many bytes are there; None: it waits.
    fn read(from: &dyn File, wanted: usize, there: usize) -> Option<Result<Vec<u8>>> {
        let mut program = Program(Vec::new(), there);
        let read =
            from.read_into(Destination::User(&mut program, wanted), Access::KERNEL.with(Patience::Tries)).done()?;
        Some(read.map(|count| {
            assert_eq!(count, program.0.len());
            program.0
        }))
    }

    fn write(to: &dyn File, bytes: &[u8], there: usize) -> Option<Result<usize>> {
        let mut program = Program(bytes.to_vec(), there);
        to.write_from(Source::User(&mut program, bytes.len()), Access::KERNEL.with(Patience::Tries)).done()
    }

    #[test]
    fn bytes_go_at_once_between_the_inbox_and_memory_that_is_there_and_none_are_lost() {
        for (from, to) in pairs() {
            let must_wait = Some(Err(crate::waiting::MUST_WAIT));
            assert_eq!(read(&*to, 9, 9), must_wait);
            assert_eq!(write(&*from, b"hello", 4), Some(Err(NEEDS_BUFFER)));
            assert_eq!(read(&*to, 9, 9), must_wait);
            for part in [&b"hello"[..], b" you", b" there"] {
                assert_eq!(write(&*from, part, 99), Some(Ok(part.len())));
            }
            // All of the first message and some of the next would be wanted; the memory ends in each of them.
            for there in [0, 4, 5, 6] {
                assert_eq!(read(&*to, 7, there), Some(Err(NEEDS_BUFFER)), "{there}");
            }
            assert_eq!(read(&*to, 7, 7), Some(Ok(b"hello y".to_vec())));
            assert_eq!(read(&*to, 99, 99), Some(Ok(b"ou there".to_vec())));
            assert_eq!(read(&*to, 9, 9), must_wait);
        }
    }

    #[test]
    fn of_a_long_write_goes_at_once_what_fits() {
        for (from, to) in pairs() {
            let (bytes, mut sent) = (vec![7; 100_000], 0);
            let last = loop {
                match write(&*from, &bytes, bytes.len()) {
                    Some(Ok(count)) => sent += count,
                    other => break other,
                }
            };
            assert_eq!(last, Some(Err(crate::waiting::MUST_WAIT)));
            assert_eq!(read(&*to, 1 << 20, 1 << 20), Some(Ok(vec![7; sent])));
            assert!(sent > 200_000 && !sent.is_multiple_of(100_000), "{sent}");
        }
    }
}
