//! What only some kinds of files can do ([`Control`]), of a file of another kernel. Many bytes of a socket's message travel in lent frames.

use super::{interrupted, Loan, RemoteFile};
use crate::socket::MSG_OOB;
use crate::File;
use crate::{
    control::{Control, ControlAnswer, SocketControl},
    socket::{credentials_of, Socket},
    waiting::{Patience, MUST_WAIT},
    Caller, OpenFlags,
};
use alloc::sync::Arc;
use machine::{errno::Result, Errno};
use messages::fs::{FileControl, SocketType, INLINE_BYTES};

/// What one try sends.
struct Packed {
    control: Control,
    loan: Loan,
    /// Bytes in the frames.
    sent: u32,
}

impl RemoteFile {
    fn is_stream(&self) -> bool {
        self.socket().is_some_and(SocketType::is_stream)
    }

    /// Puts many bytes of a message into frames, and makes frames for many bytes of an answer.
    fn pack(&self, mut control: Control) -> Result<Packed> {
        let mut sent = 0;
        let loan = match &mut control {
            Control::Socket(SocketControl::Send { message, flags, .. }) => {
                let loan = Loan::for_message(&self.remote.memory, message.bytes.len());
                if message.bytes.len() > INLINE_BYTES {
                    match loan.capacity() {
                        room if room >= message.bytes.len() => {}
                        room if self.is_stream() => {
                            message.bytes.truncate(room);
                            // The last byte of all is the urgent one.
                            *flags &= !MSG_OOB;
                        }
                        _ => return Err(Errno::ENOBUFS),
                    }
                    if !loan.frames().is_empty() {
                        loan.fill(&message.bytes);
                        sent = core::mem::take(&mut message.bytes).len() as u32;
                    }
                }
                loan
            }
            Control::Socket(SocketControl::Receive { bytes, .. }) => {
                let loan = Loan::for_message(&self.remote.memory, *bytes as usize);
                let room = loan.capacity() as u64;
                // What of a packet does not fit is lost.
                if !self.is_stream() && room < (*bytes).min(Loan::LONGEST_MESSAGE as u64) {
                    return Err(Errno::ENOBUFS);
                }
                *bytes = (*bytes).min(room);
                loan
            }
            _ => Loan::for_bytes(&self.remote.memory, 0),
        };
        Ok(Packed { control, loan, sent })
    }

    /// The end of a connection of which this kernel has the only reference, once it is here. `watchers`: see [`SocketControl::Move`].
    pub(in crate::remote) async fn fetch_end(&self, caller: &Caller, watchers: u32) -> Result<Arc<dyn File>> {
        let (end, references) = ((self.remote.me(), 0), self.count());
        let control = Control::Socket(SocketControl::Move { end, references, watchers });
        match self.insist_control(caller, control, Patience::Tries).await? {
            ControlAnswer::File(file) => Ok(file),
            _ => Err(Errno::EIO),
        }
    }

    /// If connections are accepted from such a socket: a new one of this kernel for what is accepted, or moves here, its flags, and its number.
    fn end_for(&self, caller: &Caller, flags: OpenFlags) -> Result<Option<(Arc<Socket>, OpenFlags, u64)>> {
        let names = self.remote.sockets.lock().upgrade();
        match (names, self.socket()) {
            (Some(names), Some(of)) if Socket::is_accepted(of) => {
                let (socket, number) = Socket::accepting(&names, caller, of)?;
                Ok(Some((socket, flags, number)))
            }
            _ => Ok(None),
        }
    }

    async fn try_control(&self, caller: &Caller, control: Control, waits: bool) -> Result<ControlAnswer> {
        let Packed { mut control, loan, sent } = self.pack(control)?;
        let mut made = None;
        match &mut control {
            Control::Socket(SocketControl::Accept { flags, end }) => {
                made = self.end_for(caller, *flags)?;
                *end = made.as_ref().map(|(.., number)| (self.remote.me(), *number));
            }
            Control::Socket(SocketControl::Move { end, .. }) => {
                made = self.end_for(caller, OpenFlags::empty())?;
                let (.., number) = made.as_ref().ok_or(Errno::EBUSY)?;
                end.1 = *number;
            }
            _ => {}
        }
        let cancels = matches!(control, Control::MeetPartner | Control::Socket(SocketControl::AwaitRoom { .. }));
        // The thread stays from here on, since references in the control are counted before it is sent.
        let _held = caller.shield.hold();
        let (control, files) = self.remote.send_control(self.name.owner, control).await?;
        let message = FileControl {
            id: self.name.id,
            caller: caller.clone(),
            control,
            wait: !self.tries() || !waits,
            frames: loan.frames().to_vec(),
            sent,
        };
        // Files in the answer are accepted as it arrives, so that their counts are never lost.
        let remote = self.remote.clone();
        let accept = move |reply: Result<_>| -> Result<ControlAnswer> {
            drop(files);
            let (answer, in_frames): (_, u32) = reply?;
            let mut answer = remote.receive_answer(answer)?;
            if let (ControlAnswer::End(_), Some((socket, flags, _))) = (&answer, made) {
                let ControlAnswer::End(end) = answer else { return Err(Errno::EIO) };
                socket.take_over(*end, flags)?;
                return Ok(ControlAnswer::File(socket));
            }
            if let (ControlAnswer::Message(message), true) = (&mut answer, in_frames > 0) {
                message.bytes = loan.collect(in_frames as usize);
            }
            Ok(answer)
        };
        let to = self.name.owner;
        self.remote.ask_and_stay(to, message, accept, &caller.shield, cancels).await.map_err(interrupted)?
    }

    pub(super) async fn insist_control(
        &self,
        caller: &Caller,
        control: Control,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        // Only these may block, and [`Control::MeetPartner`] and [`SocketControl::AwaitRoom`], which wait at the owner. The owner may have to
        // ask a third kernel for any other, and waits for that.
        let waits = matches!(
            control,
            Control::Socket(
                SocketControl::Accept { .. }
                    | SocketControl::Connect { .. }
                    | SocketControl::Send { .. }
                    | SocketControl::Receive { .. }
            )
        );
        let awaits = self.room_for(caller, &control).filter(|_| patience == Patience::Waits);
        let control = &control;
        let attempt = move || async move { self.try_control(caller, control.clone(), waits).await };
        let Some(awaits) = awaits else { return self.insist(patience, &caller.shield, attempt).await };
        loop {
            match attempt().await {
                Err(MUST_WAIT) if caller.shield.is_leaving() => return Err(Errno::RESTART),
                Err(MUST_WAIT) => self.try_control(caller, Control::Socket(awaits.clone()), false).await.map(drop)?,
                done => return done,
            }
        }
    }

    /// What waits until `control` may succeed, where no change of this socket says so: the room is the receiver's.
    fn room_for(&self, caller: &Caller, control: &Control) -> Option<SocketControl> {
        match control {
            Control::Socket(SocketControl::Send { place, message, .. }) if self.socket()?.is_unix_datagram() => {
                let sender = message.credentials.unwrap_or_else(|| credentials_of(caller));
                Some(SocketControl::AwaitRoom { place: place.clone(), bytes: message.bytes.len() as u64, sender })
            }
            _ => None,
        }
    }
}
