//! Ancillary data (man 3 cmsg): open files (SCM_RIGHTS) and credentials (SCM_CREDENTIALS).

use crate::call::Call;
use abi::capability;
use alloc::{sync::Arc, vec::Vec};
use fs::{
    control::{SocketMessage, UnixCredentials},
    File,
};
use machine::{collections::try_with_capacity, errno::Result, Errno};

const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
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

fn parse(mut rest: &[u8]) -> Result<Sent> {
    let mut sent = Sent::default();
    while rest.len() >= HEADER {
        let (low, high) = (word(rest, 0)?, word(rest, 4)?);
        let len = low as usize;
        if high != 0 || len < HEADER || len > rest.len() {
            return Err(Errno::EINVAL);
        }
        let (level, kind, data) = (word(rest, 8)? as i32, word(rest, 12)? as i32, &rest[HEADER..len]);
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
        rest = &rest[len.next_multiple_of(8).min(rest.len())..];
    }
    if sent.numbers.len() > MAX_FILES {
        Err(Errno::EINVAL)
    } else {
        Ok(sent)
    }
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

fn push(out: &mut Vec<u8>, kind: i32, data: &[u8], room: usize) {
    out.extend(((HEADER + data.len()) as u64).to_le_bytes());
    out.extend(SOL_SOCKET.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(data);
    let end = out.len().next_multiple_of(8).min(room);
    out.extend(core::iter::repeat_n(0, end.saturating_sub(out.len())));
}

/// A receiver's control data, at most `room` bytes. The flag says whether something did not fit (MSG_CTRUNC);
/// files that do not fit are closed.
pub(super) async fn install(
    call: &Call<'_>,
    message: &SocketMessage,
    room: usize,
    close_on_exec: bool,
) -> Result<(Vec<u8>, bool)> {
    let mut out = Vec::new();
    let mut cut = false;
    if let Some(who) = message.credentials {
        let data: Vec<u8> = [who.pid, who.uid, who.gid].iter().flat_map(|word| word.to_le_bytes()).collect();
        match HEADER + data.len() <= room {
            true => push(&mut out, SCM_CREDENTIALS, &data, room),
            false => cut = true,
        }
    }
    if !message.files.is_empty() {
        let fits = room.saturating_sub(out.len() + HEADER) / 4;
        cut |= fits < message.files.len();
        let mut numbers = Vec::new();
        for file in message.files.iter().take(fits) {
            match call.install(file.clone(), close_on_exec).await {
                Ok(number) => numbers.extend((number as i32).to_le_bytes()),
                Err(_) => {
                    cut = true;
                    break;
                }
            }
        }
        if !numbers.is_empty() {
            push(&mut out, SCM_RIGHTS, &numbers, room);
        }
    }
    Ok((out, cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_control_messages_are_found() {
        let mut bytes = Vec::new();
        push(&mut bytes, SCM_RIGHTS, &7i32.to_le_bytes(), 1000);
        push(&mut bytes, SCM_CREDENTIALS, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0], 1000);
        let credentials = Some(UnixCredentials { pid: 1, uid: 2, gid: 3 });
        assert_eq!(parse(&bytes), Ok(Sent { numbers: [7].into(), credentials }));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut bytes = Vec::new();
        push(&mut bytes, SCM_RIGHTS, &[0; 4], 1000);
        bytes[0] = 200;
        assert_eq!(parse(&bytes), Err(Errno::EINVAL));
        bytes[0] = 3;
        assert_eq!(parse(&bytes), Err(Errno::EINVAL));
    }
}
