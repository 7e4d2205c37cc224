//! Message queues (man 2 msgsnd, msgrcv, msgctl).

use crate::{
    names::{check, check_owner, permissions_of, set, READ, WRITE},
    Ipc, NO_WAIT,
};
use alloc::{collections::VecDeque, vec::Vec};
use fs::remote::loan;
use machine::{
    account::{Charge, OverLimit, Resource},
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, Pid,
};
use messages::{fs::ReadReply, ipc::*};

/// MSGMAX, MSGMNB.
pub const MESSAGE_MAX: u64 = 8192;
pub const QUEUE_MAX: u64 = 16384;

pub const NO_ERROR: u32 = 0o10000;
pub const EXCEPT: u32 = 0o20000;
pub const COPY: u32 = 0o40000;

pub(crate) struct Queue {
    state: Lock<State>,
    changed: WaitQueue,
}

struct Message {
    kind: i64,
    bytes: Vec<u8>,
    /// To who has sent it.
    _charge: Charge,
}

struct State {
    permissions: Permissions,
    messages: VecDeque<Message>,
    bytes: u64,
    limit: u64,
    created: i64,
    sent: i64,
    received: i64,
    sender: Pid,
    receiver: Pid,
    removed: bool,
}

impl State {
    /// Which message a receiver gets.
    fn find(&self, kind: i64, flags: u32) -> Option<usize> {
        let mut messages = self.messages.iter().map(|message| message.kind);
        if flags & COPY != 0 {
            return usize::try_from(kind).ok().filter(|index| *index < self.messages.len());
        }
        match kind {
            0 => (!self.messages.is_empty()).then_some(0),
            1.. if flags & EXCEPT != 0 => messages.position(|known| known != kind),
            1.. => messages.position(|known| known == kind),
            // The lowest type up to the absolute value; of these the oldest.
            _ => {
                let most = kind.checked_neg().unwrap_or(i64::MAX);
                let lowest = messages.clone().filter(|known| *known <= most).min()?;
                messages.position(|known| known == lowest)
            }
        }
    }

    fn fits(&self, bytes: u64) -> bool {
        bytes + self.bytes <= self.limit && (self.messages.len() as u64) < self.limit
    }
}

impl Queue {
    pub fn new(wanted: &Wanted, now: i64) -> Queue {
        let state = State {
            permissions: permissions_of(wanted),
            messages: VecDeque::new(),
            bytes: 0,
            limit: QUEUE_MAX,
            created: now,
            sent: 0,
            received: 0,
            sender: Pid(0),
            receiver: Pid(0),
            removed: false,
        };
        Queue { state: Lock::new(state), changed: WaitQueue::new() }
    }

    pub fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }

    pub fn status(&self, id: i32) -> Status {
        let state = self.state.lock();
        let details = Details::Messages {
            bytes: state.bytes,
            count: state.messages.len() as u64,
            limit: state.limit,
            sent: state.sent,
            received: state.received,
            sender: state.sender,
            receiver: state.receiver,
        };
        Status { id, permissions: state.permissions, changed: state.created, details }
    }
}

impl Ipc {
    pub(crate) async fn send(&self, ask: MessageSend) -> Result<()> {
        let MessageSend { id, kind, data, poll, asker } = ask;
        let bytes = loan::received(&*self.system().memory, data)?;
        let queue = self.queues.get(id)?;
        check(&queue.permissions(), &asker.who, WRITE)?;
        let size = size_of::<Message>() + bytes.capacity();
        let charge = self.account_of(&asker).charge(Resource::Memory, size).map_err(|OverLimit| Errno::ENOMEM)?;
        let mut message = Some(Message { kind, bytes, _charge: charge });
        let sent = queue.changed.wait_until(|| {
            let mut state = queue.state.lock();
            if state.removed {
                return Some(Err(Errno::EIDRM));
            }
            let length = message.as_ref().map_or(0, |message| message.bytes.len()) as u64;
            if !state.fits(length) {
                return poll.then_some(Err(Errno::EAGAIN));
            }
            if state.messages.try_reserve(1).is_err() {
                return Some(Err(Errno::ENOMEM));
            }
            state.messages.push_back(message.take()?);
            state.bytes += length;
            state.sender = asker.process;
            state.sent = self.seconds();
            Some(Ok(()))
        });
        sent.await?;
        queue.changed.wake_all();
        Ok(())
    }

    pub(crate) async fn receive(&self, ask: MessageReceive) -> Result<(i64, ReadReply)> {
        let MessageReceive { id, kind, size, flags, frames, asker } = ask;
        let memory = self.system().memory.clone();
        loan::check(&*memory, &frames, 0)?;
        let queue = self.queues.get(id)?;
        check(&queue.permissions(), &asker.who, READ)?;
        let received = queue.changed.wait_until(|| {
            let mut state = queue.state.lock();
            if state.removed {
                return Some(Err(Errno::EIDRM));
            }
            let Some(index) = state.find(kind, flags) else {
                return (flags & NO_WAIT != 0).then_some(Err(Errno::ENOMSG));
            };
            let length = state.messages.get(index).map_or(0, |message| message.bytes.len() as u64);
            if length > size && flags & NO_ERROR == 0 {
                return Some(Err(Errno::E2BIG));
            }
            if flags & COPY != 0 {
                let message = state.messages.get(index)?;
                let (kind, mut bytes) = (message.kind, message.bytes.clone());
                bytes.truncate(size as usize);
                return Some(Ok((kind, bytes)));
            }
            let Message { kind, mut bytes, .. } = state.messages.remove(index)?;
            state.bytes -= length;
            state.receiver = asker.process;
            state.received = self.seconds();
            bytes.truncate(size as usize);
            Some(Ok((kind, bytes)))
        });
        let (kind, bytes) = received.await?;
        queue.changed.wake_all();
        Ok((kind, loan::answer(&*memory, &frames, bytes)))
    }

    pub(crate) async fn control_queue(&self, id: i32, command: Command, asker: &Asker) -> Result<Answer> {
        let queue = self.queues.get(id)?;
        let now = self.seconds();
        match command {
            Command::Status { check: checked } => {
                if checked {
                    check(&queue.permissions(), &asker.who, READ)?;
                }
                return Ok(Answer::Status(queue.status(id)));
            }
            Command::Set { uid, gid, mode, limit } => {
                let mut state = queue.state.lock();
                check_owner(&state.permissions, &asker.who)?;
                let limit = limit.unwrap_or(state.limit);
                if limit > QUEUE_MAX && !asker.who.can(abi::capability::SYS_RESOURCE) {
                    return Err(Errno::EPERM);
                }
                set(&mut state.permissions, uid, gid, mode)?;
                state.limit = limit;
                state.created = now;
            }
            Command::Remove => {
                let key = {
                    let mut state = queue.state.lock();
                    check_owner(&state.permissions, &asker.who)?;
                    state.removed = true;
                    state.permissions.key
                };
                self.queues.remove(id);
                self.forget_key(IpcKind::Messages, key, id).await;
            }
            _ => return Err(Errno::EINVAL),
        }
        queue.changed.wake_all();
        Ok(Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Credentials;

    #[test]
    fn a_type_picks_its_message() {
        let asker = Asker { who: Credentials::default(), process: Pid(1) };
        let queue = Queue::new(&Wanted { kind: IpcKind::Messages, key: 0, flags: 0o600, size: 0, asker }, 0);
        let mut state = queue.state.lock();
        assert_eq!(state.find(0, 0), None);
        let message = |kind| Message { kind, bytes: Vec::new(), _charge: Charge::FREE };
        state.messages.extend([5, 3, 9, 3].map(message));
        assert_eq!([state.find(0, 0), state.find(3, 0), state.find(4, 0)], [Some(0), Some(1), None]);
        assert_eq!([state.find(5, EXCEPT), state.find(-4, 0), state.find(-2, 0)], [Some(1), Some(1), None]);
        assert_eq!([state.find(i64::MIN, 0), state.find(2, COPY), state.find(4, COPY)], [Some(1), Some(2), None]);
    }
}
