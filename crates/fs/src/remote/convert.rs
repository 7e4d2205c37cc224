//! Controls and their answers on their way to another kernel: open files become references, and back.

use super::{Counted, Remote};
use crate::{
    control::{Control, ControlAnswer, SocketMessage},
    File,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{collections::try_with_capacity, errno::Result, Errno, KernelId};
use messages::fs::{self, Opened};

/// The files that a value names are replaced, in order.
trait Files<F, G> {
    type With;
    fn files(&self) -> Vec<F>;
    fn replace(self, names: &mut dyn Iterator<Item = G>) -> Option<Self::With>;
}

impl<F: Clone, G> Files<F, G> for fs::SocketMessage<F> {
    type With = fs::SocketMessage<G>;

    fn files(&self) -> Vec<F> {
        self.files.clone()
    }

    fn replace(self, names: &mut dyn Iterator<Item = G>) -> Option<Self::With> {
        let files: Vec<G> = names.take(self.files.len()).collect();
        let fs::SocketMessage { bytes, credentials, name, full_length, most_in_flight, extra, .. } = self;
        Some(fs::SocketMessage { bytes, files, credentials, name, full_length, most_in_flight, extra })
    }
}

impl<F: Clone, G> Files<F, G> for fs::Control<F> {
    type With = fs::Control<G>;

    fn files(&self) -> Vec<F> {
        use fs::{Control::*, EpollControl::*};
        match self {
            Epoll(Add { file, .. } | Modify { file, .. } | Delete { file, .. }) => alloc::vec![file.clone()],
            Socket(fs::SocketControl::Send { message, .. }) => message.files.clone(),
            AttachLoop { file, .. } => alloc::vec![file.clone()],
            _ => Vec::new(),
        }
    }

    fn replace(self, names: &mut dyn Iterator<Item = G>) -> Option<Self::With> {
        use fs::{Control::*, EpollControl as E, SocketControl as S};
        Some(match self {
            MeetPartner => MeetPartner,
            GiveUpPartner => GiveUpPartner,
            PipeSize => PipeSize,
            SetPipeSize(bytes) => SetPipeSize(bytes),
            PtyPeer(flags) => PtyPeer(flags),
            Process => Process,
            ProcessDirectory => ProcessDirectory,
            TimerSet { absolute, value, interval } => TimerSet { absolute, value, interval },
            TimerGet => TimerGet,
            Unwatch(watch) => Unwatch(watch),
            Advise(advice) => Advise(advice),
            AttachLoop { configuration, .. } => AttachLoop { file: names.next()?, configuration },
            EpollTake { most, signals, sure } => EpollTake { most, signals, sure },
            Epoll(E::Add { fd, interest, .. }) => Epoll(E::Add { fd, file: names.next()?, interest }),
            Epoll(E::Modify { fd, interest, .. }) => Epoll(E::Modify { fd, file: names.next()?, interest }),
            Epoll(E::Delete { fd, .. }) => Epoll(E::Delete { fd, file: names.next()? }),
            Socket(socket) => Socket(match socket {
                S::Send { place, message, flags } => S::Send { place, message: message.replace(names)?, flags },
                S::Bind { place, name } => S::Bind { place, name },
                S::Listen { backlog } => S::Listen { backlog },
                S::Accept { flags, end } => S::Accept { flags, end },
                S::Move { end, references, watchers } => S::Move { end, references, watchers },
                S::Connect { place } => S::Connect { place },
                S::Shutdown { how } => S::Shutdown { how },
                S::AwaitRoom { place, bytes, sender } => S::AwaitRoom { place, bytes, sender },
                S::Receive { bytes, flags } => S::Receive { bytes, flags },
                S::Name => S::Name,
                S::ClosedFirst => S::ClosedFirst,
                S::PeerName => S::PeerName,
                S::GetOption { level, name } => S::GetOption { level, name },
                S::SetOption { level, name, value } => S::SetOption { level, name, value },
            }),
        })
    }
}

impl<F: Clone, G> Files<F, G> for fs::ControlAnswer<F> {
    type With = fs::ControlAnswer<G>;

    fn files(&self) -> Vec<F> {
        match self {
            fs::ControlAnswer::File(file) => alloc::vec![file.clone()],
            fs::ControlAnswer::Message(message) => message.files.clone(),
            fs::ControlAnswer::End(end) => {
                let sent = end.unread.iter().flat_map(|message| &message.files);
                end.port.iter().chain(sent).cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    fn replace(self, names: &mut dyn Iterator<Item = G>) -> Option<Self::With> {
        use fs::ControlAnswer::*;
        Some(match self {
            Done => Done,
            Number(number) => Number(number),
            Bytes(bytes) => Bytes(bytes),
            File(_) => File(names.next()?),
            Timer { value, interval } => Timer { value, interval },
            Events { ready, awaited } => Events { ready, awaited },
            Message(message) => Message(message.replace(names)?),
            End(end) => End(Box::new(replace_end(*end, names)?)),
        })
    }
}

fn replace_end<F: Clone, G>(end: fs::MovedEnd<F>, given: &mut dyn Iterator<Item = G>) -> Option<fs::MovedEnd<G>> {
    let fs::MovedEnd { state, unread, port } = end;
    let port = match port {
        Some(_) => Some(given.next()?),
        None => None,
    };
    let unread = unread.into_iter().map(|message| message.replace(given)).collect::<Option<_>>()?;
    Some(fs::MovedEnd { state, unread, port })
}

/// The files of a value, and how it is once they are replaced. Split off, so that no future has to hold
/// the traits above.
type Unpacked<V> = (Vec<Arc<dyn File>>, V);

fn unpack_control(control: Control) -> Unpacked<Control> {
    (Files::<Arc<dyn File>, Opened>::files(&control), control)
}

fn pack_control(control: Control, names: Vec<Counted>) -> Result<fs::Control<Opened>> {
    control.replace(&mut names.into_iter().map(Counted::send)).ok_or(Errno::EBADF)
}

fn unpack_answer(answer: ControlAnswer) -> Unpacked<ControlAnswer> {
    (Files::<Arc<dyn File>, Opened>::files(&answer), answer)
}

fn pack_answer(answer: ControlAnswer, names: Vec<Counted>) -> Result<fs::ControlAnswer<Opened>> {
    answer.replace(&mut names.into_iter().map(Counted::send)).ok_or(Errno::EBADF)
}

impl Remote {
    async fn hand_all(&self, to: KernelId, files: &[Arc<dyn File>]) -> Result<Vec<Counted>> {
        let mut names = try_with_capacity(files.len())?;
        for file in files {
            names.push(self.hand_to(to, file).await?);
        }
        Ok(names)
    }

    fn receive_files<V: Files<Opened, Arc<dyn File>>>(&self, value: V) -> Result<V::With> {
        // All of them, before an error of one is looked at: each holds a count.
        let files: Vec<Result<Arc<dyn File>>> = value.files().into_iter().map(|name| self.accept(name)).collect();
        let files: Vec<Arc<dyn File>> = files.into_iter().collect::<Result<_>>()?;
        value.replace(&mut files.into_iter()).ok_or(Errno::EBADF)
    }

    /// The files are to be kept until the question is answered, even if nobody waits for the answer any more: those of `to` itself are
    /// not counted.
    pub(super) async fn send_control(
        &self,
        to: KernelId,
        control: Control,
    ) -> Result<(fs::Control<Opened>, Vec<Arc<dyn File>>)> {
        let (files, control) = unpack_control(control);
        let names = self.hand_all(to, &files).await?;
        Ok((pack_control(control, names)?, files))
    }

    /// A datagram of its own, without a control around it. Of the files as above.
    pub(super) async fn send_message(
        &self,
        to: KernelId,
        message: SocketMessage,
    ) -> Result<(fs::SocketMessage<Opened>, Vec<Arc<dyn File>>)> {
        let files = message.files.clone();
        let names = self.hand_all(to, &files).await?;
        let message = Files::<Arc<dyn File>, Opened>::replace(message, &mut names.into_iter().map(Counted::send));
        Ok((message.ok_or(Errno::EBADF)?, files))
    }

    /// A message that leaves at once, whose files are settled ([`hand_over`](Self::hand_over) says how they are counted).
    pub(super) fn give_message(&self, to: KernelId, message: SocketMessage) -> Result<fs::SocketMessage<Opened>> {
        let mut names = try_with_capacity(message.files.len())?;
        for file in &message.files {
            names.push(self.count_anywhere(to, file)?);
        }
        let message = Files::<Arc<dyn File>, Opened>::replace(message, &mut names.into_iter().map(Counted::send));
        message.ok_or(Errno::EBADF)
    }

    pub(super) fn receive_message(&self, message: fs::SocketMessage<Opened>) -> Result<SocketMessage> {
        self.receive_files(message)
    }

    pub(super) fn receive_control(&self, control: fs::Control<Opened>) -> Result<Control> {
        self.receive_files(control)
    }

    pub(super) async fn send_answer(&self, to: KernelId, answer: ControlAnswer) -> Result<fs::ControlAnswer<Opened>> {
        let (files, answer) = unpack_answer(answer);
        let mut names = try_with_capacity(files.len())?;
        for file in &files {
            names.push(self.hand_over(to, file).await?);
        }
        pack_answer(answer, names)
    }

    pub(super) fn receive_answer(&self, answer: fs::ControlAnswer<Opened>) -> Result<ControlAnswer> {
        self.receive_files(answer)
    }
}
