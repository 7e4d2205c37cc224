//! Controls of a file of another kernel ([`RemoteFile`]'s other half). The bytes of a socket's message travel in
//! lent frames if they are many.

use super::{Loan, RemoteFile};
use crate::{
    control::{Control, ControlAnswer, SocketControl, SocketMessage},
    waiting::Patience,
    Caller,
};
use alloc::{boxed::Box, vec::Vec};
use machine::{errno::Result, BoxFuture, Errno};
use messages::fs::{FileControl, Waiting, INLINE_BYTES};

const MSG_PEEK: u32 = 0x2;

/// Of one try.
struct Packed {
    control: Control,
    loan: Loan,
    /// Bytes in the frames.
    sent: u32,
    peeks: Option<bool>,
}

impl RemoteFile {
    fn is_stream(&self) -> bool {
        matches!(self.waiting, Waiting::Socket { stream: true })
    }

    /// What a dropped read left: a whole datagram, or as much of a stream as is wanted.
    pub(super) fn stray_message(&self, limit: usize, peek: bool) -> Option<SocketMessage> {
        let mut strays = self.news.stray_messages.lock();
        let first = strays.front_mut()?;
        let mut given = first.clone();
        given.bytes.truncate(limit);
        let whole = !self.is_stream() || first.bytes.len() <= limit;
        match () {
            () if peek => {}
            () if whole => drop(strays.pop_front()),
            () => {
                first.bytes.drain(..limit);
                first.files = Vec::new();
            }
        }
        Some(given)
    }

    /// Many bytes go into frames; for an answer there is room in them.
    fn pack(&self, mut control: Control) -> Result<Packed> {
        let (mut sent, mut peeks) = (0, None);
        let loan = match &mut control {
            Control::Socket(SocketControl::Send { message, .. }) => {
                let loan = Loan::for_message(&self.remote.memory, message.bytes.len());
                if message.bytes.len() > INLINE_BYTES {
                    match loan.capacity() {
                        room if room >= message.bytes.len() => {}
                        room if self.is_stream() => message.bytes.truncate(room),
                        _ => return Err(Errno::ENOBUFS),
                    }
                    if !loan.frames().is_empty() {
                        loan.fill(&message.bytes);
                        sent = core::mem::take(&mut message.bytes).len() as u32;
                    }
                }
                loan
            }
            Control::Socket(SocketControl::Receive { bytes, flags }) => {
                peeks = Some(*flags & MSG_PEEK != 0);
                let loan = Loan::for_message(&self.remote.memory, *bytes as usize);
                let room = loan.capacity() as u64;
                if *bytes > room && !self.is_stream() && room <= INLINE_BYTES as u64 {
                    return Err(Errno::ENOBUFS);
                }
                *bytes = (*bytes).min(room);
                loan
            }
            _ => Loan::for_bytes(&self.remote.memory, 0),
        };
        Ok(Packed { control, loan, sent, peeks })
    }

    async fn try_control(&self, caller: &Caller, control: Control, waits: bool) -> Result<ControlAnswer> {
        let Packed { control, loan, sent, peeks } = self.pack(control)?;
        let message = FileControl {
            id: self.name.id,
            caller: caller.clone(),
            control: self.remote.send_control(self.name.owner, control).await?,
            wait: !self.tries() || !waits,
            frames: loan.frames().to_vec(),
            sent,
        };
        // Files in the answer are taken in as it arrives, so that their counts are never lost.
        let remote = self.remote.clone();
        let accept = move |reply: Result<_>| -> Result<ControlAnswer> {
            let (answer, in_frames): (_, u32) = reply?;
            let mut answer = remote.receive_answer(answer)?;
            if let (ControlAnswer::Message(message), true) = (&mut answer, in_frames > 0) {
                message.bytes = loan.collect(in_frames as usize);
            }
            Ok(answer)
        };
        let Some(peeks) = peeks else {
            return self.remote.ask(self.name.owner, message, accept, drop).await?;
        };
        let (_reader, answered) = self.news.reading();
        let stray = move |answer: Result<ControlAnswer>| match answer {
            Ok(ControlAnswer::Message(message)) if !peeks => {
                answered.0.stray(|news| news.stray_messages.lock().push_back(message));
            }
            _ => {}
        };
        self.remote.ask(self.name.owner, message, accept, stray).await?
    }

    pub(crate) async fn control_with(
        &self,
        caller: &Caller,
        control: Control,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        if let (Control::Socket(SocketControl::Receive { bytes, flags }), true) = (&control, self.tries()) {
            self.collect_strays().await;
            if let Some(message) = self.stray_message(*bytes as usize, flags & MSG_PEEK != 0) {
                return Ok(ControlAnswer::Message(message));
            }
        }
        // Only these wait for somebody else; the others may have to ask a third kernel meanwhile.
        let waits = matches!(
            control,
            Control::Socket(
                SocketControl::Accept { .. }
                    | SocketControl::Connect { .. }
                    | SocketControl::Send { .. }
                    | SocketControl::Receive { .. }
            )
        );
        let control = &control;
        self.insist(patience, move || async move { self.try_control(caller, control.clone(), waits).await }).await
    }

    pub(crate) fn read_with<'a>(&'a self, buf: &'a mut [u8], patience: Patience) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.read_all(buf, None, None, patience))
    }

    pub(crate) fn write_with<'a>(
        &'a self,
        caller: Option<&'a Caller>,
        buf: &'a [u8],
        patience: Patience,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.write_all(buf, None, caller, patience))
    }
}
