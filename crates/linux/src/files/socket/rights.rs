//! Ancillary data (man 3 cmsg): open files (SCM_RIGHTS), credentials (SCM_CREDENTIALS), pidfds (SCM_PIDFD), and what the socket itself
//! understands or tells.

use crate::{call::Call, process::pidfd};
use abi::capability;
use alloc::{sync::Arc, vec::Vec};
use fs::{
    control::{ControlMessage, SocketMessage, UnixCredentials},
    File, OpenFlags,
};
use machine::{collections::try_with_capacity, errno::Result, Errno, Pid};

const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
const SCM_CREDENTIALS: u32 = 2;
const SCM_PIDFD: u32 = 4;
/// `struct cmsghdr`: length, level, type.
const HEADER: usize = 16;
/// Most files in one message (SCM_MAX_FD).
const MAX_FILES: usize = 253;
/// RLIMIT_NOFILE.
const FILES: usize = 7;

#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    numbers: Vec<i32>,
    credentials: Option<UnixCredentials>,
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or(Errno::EINVAL)?;
    Ok(u32::from_le_bytes(word))
}

/// The control messages in `bytes`. EINVAL: a length leads out of them.
fn split(mut rest: &[u8]) -> Result<Vec<(u32, u32, &[u8])>> {
    let mut messages = Vec::new();
    while rest.len() >= HEADER {
        let (low, high) = (word(rest, 0)?, word(rest, 4)?);
        let len = low as usize;
        if high != 0 || len < HEADER || len > rest.len() {
            return Err(Errno::EINVAL);
        }
        messages.push((word(rest, 8)?, word(rest, 12)?, &rest[HEADER..len]));
        rest = &rest[len.next_multiple_of(8).min(rest.len())..];
    }
    Ok(messages)
}

fn parse(bytes: &[u8]) -> Result<Sent> {
    let mut sent = Sent::default();
    for (level, kind, data) in split(bytes)? {
        match (level, kind) {
            (SOL_SOCKET, SCM_RIGHTS) => {
                for number in data.chunks_exact(4) {
                    sent.numbers.push(word(number, 0)? as i32);
                }
            }
            (SOL_SOCKET, SCM_CREDENTIALS) if data.len() == 12 => {
                let (pid, uid, gid) = (word(data, 0)?, word(data, 4)?, word(data, 8)?);
                sent.credentials = Some(UnixCredentials { pid, uid, gid });
            }
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            // Of other levels: not for this family.
            _ => {}
        }
    }
    if sent.numbers.len() > MAX_FILES {
        Err(Errno::EINVAL)
    } else {
        Ok(sent)
    }
}

/// What is sent to a socket of AF_INET or AF_INET6, which looks at it itself.
pub(super) fn for_internet(bytes: &[u8]) -> Result<Vec<ControlMessage>> {
    let messages = split(bytes)?.into_iter();
    Ok(messages.map(|(level, kind, data)| ControlMessage { level, kind, data: data.to_vec() }).collect())
}

/// How many descriptors the caller's user may have in messages (too_many_unix_fds).
pub(super) fn most_in_flight(call: &Call<'_>) -> u64 {
    let credentials = call.caller().credentials;
    match credentials.can(capability::SYS_RESOURCE) || credentials.can(capability::SYS_ADMIN) {
        true => u64::MAX,
        false => call.process().limit(FILES),
    }
}

/// What a sender's control data says.
pub(super) async fn open(call: &Call<'_>, control: &[u8]) -> Result<(Vec<Arc<dyn File>>, Option<UnixCredentials>)> {
    let sent = parse(control)?;
    let mut files = try_with_capacity(sent.numbers.len())?;
    for number in sent.numbers {
        files.push(call.file_or_name_at(number).await?);
    }
    Ok((files, sent.credentials))
}

/// Control data for a receiver, at most `room` bytes.
struct Received {
    bytes: Vec<u8>,
    room: usize,
    /// Something did not fit (MSG_CTRUNC).
    cut: bool,
}

impl Received {
    /// Room for the data of another message.
    fn left(&self) -> usize {
        self.room.saturating_sub(self.bytes.len() + HEADER)
    }

    /// Adds a message, or as much of it as fits (put_cmsg in Linux).
    fn push(&mut self, level: u32, kind: u32, data: &[u8]) {
        if self.room < self.bytes.len() + HEADER {
            self.cut = true;
            return;
        }
        let fits = data.len().min(self.left());
        self.cut |= fits < data.len();
        self.bytes.extend(((HEADER + fits) as u64).to_le_bytes());
        self.bytes.extend(level.to_le_bytes());
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(&data[..fits]);
        let end = self.bytes.len().next_multiple_of(8).min(self.room);
        self.bytes.extend(&[0; 8][..end - self.bytes.len()]);
    }

    /// Adds a message with descriptors of as many files as fit; the others are closed.
    async fn push_files(&mut self, call: &Call<'_>, files: &[Arc<dyn File>], close_on_exec: bool) {
        let fits = self.left() / 4;
        self.cut |= fits < files.len();
        let mut numbers = Vec::new();
        for file in files.iter().take(fits) {
            match call.install(file.clone(), close_on_exec).await {
                Ok(number) => numbers.extend((number as i32).to_le_bytes()),
                Err(_) => {
                    self.cut = true;
                    break;
                }
            }
        }
        if !numbers.is_empty() {
            self.push(SOL_SOCKET, SCM_RIGHTS, &numbers);
        }
    }

    /// A pidfd of the sender, who may have ended (scm_pidfd_recv).
    async fn push_process(&mut self, call: &Call<'_>, process: u32) {
        if self.left() < 4 {
            self.cut = true;
            return;
        }
        let file = pidfd::make(call.system(), Pid(process), OpenFlags::empty());
        let number = match call.install(file, true).await {
            Ok(number) => number as i32,
            Err(error) => -i32::from(error.0),
        };
        self.push(SOL_SOCKET, SCM_PIDFD, &number.to_le_bytes());
    }
}

/// A receiver's control data, at most `room` bytes. The flag says whether something did not fit (MSG_CTRUNC).
pub(super) async fn install(
    call: &Call<'_>,
    message: &SocketMessage,
    room: usize,
    close_on_exec: bool,
) -> Result<(Vec<u8>, bool)> {
    let mut received = Received { bytes: Vec::new(), room, cut: false };
    for ControlMessage { level, kind, data } in message.control() {
        received.push(*level, *kind, data);
    }
    if let Some(who) = message.credentials {
        let data: Vec<u8> = [who.pid, who.uid, who.gid].iter().flat_map(|word| word.to_le_bytes()).collect();
        received.push(SOL_SOCKET, SCM_CREDENTIALS, &data);
    }
    if !message.files.is_empty() {
        received.push_files(call, &message.files, close_on_exec).await;
    }
    if let Some(process) = message.extra.as_ref().and_then(|extra| extra.process) {
        received.push_process(call, process).await;
    }
    Ok((received.bytes, received.cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(room: usize) -> Received {
        Received { bytes: Vec::new(), room, cut: false }
    }

    #[test]
    fn several_control_messages_are_found() {
        let mut given = received(1000);
        given.push(SOL_SOCKET, SCM_RIGHTS, &7i32.to_le_bytes());
        given.push(SOL_SOCKET, SCM_CREDENTIALS, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        let credentials = Some(UnixCredentials { pid: 1, uid: 2, gid: 3 });
        assert_eq!(parse(&given.bytes), Ok(Sent { numbers: [7].into(), credentials }));
        assert_eq!(for_internet(&given.bytes).map(|messages| messages.len()), Ok(2));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut given = received(1000);
        given.push(SOL_SOCKET, SCM_RIGHTS, &[0; 4]);
        given.bytes[0] = 200;
        assert_eq!(parse(&given.bytes), Err(Errno::EINVAL));
        given.bytes[0] = 3;
        assert_eq!(parse(&given.bytes), Err(Errno::EINVAL));
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let mut given = received(50);
        given.push(SOL_SOCKET, 29, &[1; 16]);
        assert_eq!((given.bytes.len(), given.cut), (32, false));
        given.push(0, 8, &[2; 12]);
        assert_eq!((given.bytes.len(), given.bytes[32], given.cut), (50, 18, true));
        given.push(0, 8, &[2; 12]);
        assert_eq!(given.bytes.len(), 50);
    }
}
