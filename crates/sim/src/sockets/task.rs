//! What a program does to a socket, as a task of its kernel that a signal may interrupt.

use super::kernels::Kernels;
use crate::executor::Handle;
use ::machine::{errno::Result, sync::Lock, Errno, KernelId};
use fs::{
    control::{EpollInterest, SocketAddress, SocketControl, SocketMessage},
    file::{Access, Destination, Patience, Source},
    poll,
    remote::Remote,
    Caller, Control, ControlAnswer, Events, Fetched, File, LeftFile,
};
use std::{
    future::{poll_fn, Future},
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
};

const MSG_PEEK: u32 = 0x2;
const MSG_DONTWAIT: u32 = 0x40;
const SOL_SOCKET: u32 = 1;
const SO_PEERCRED: u32 = 17;

/// What came of it.
pub enum Answer {
    /// Bytes, and the numbers of the files that came along (none if its kernel has died).
    Received(Result<(Vec<u8>, Vec<Option<u64>>)>),
    Sent(Result<usize>),
    Done(Result<()>),
    /// A connection's end, and which connection it is: by its port (TCP; None if it was reset), or by the process that connected.
    Accepted(Result<(Arc<dyn File>, Option<u64>)>),
    Polled(Result<Vec<Events>>),
    Ready(Result<Vec<EpollInterest>>),
    Followed(Vec<Fetched>),
    /// It did nothing.
    Interrupted,
}

impl Answer {
    /// The call is to be made again.
    fn or_interrupted(self) -> Answer {
        match self {
            Answer::Received(Err(Errno::RESTART))
            | Answer::Sent(Err(Errno::RESTART))
            | Answer::Done(Err(Errno::RESTART))
            | Answer::Accepted(Err(Errno::RESTART))
            | Answer::Ready(Err(Errno::RESTART))
            | Answer::Polled(Err(Errno::RESTART)) => Answer::Interrupted,
            answer => answer,
        }
    }
}

/// A signal for one task.
#[derive(Default)]
struct Signal {
    sent: bool,
    waker: Option<Waker>,
}

pub struct Task {
    pub answer: Handle<Answer>,
    signal: Arc<Lock<Signal>>,
}

impl Task {
    /// Starts `work` of a thread.
    pub fn start(
        kernels: &Kernels,
        on: KernelId,
        who: &Caller,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Task {
        let signal: Arc<Lock<Signal>> = Arc::default();
        let (its, shield) = (signal.clone(), who.shield.clone());
        let mut work: Pin<Box<dyn Future<Output = Answer> + Send>> = Box::pin(work);
        let answer = kernels.machine.start_on(on, async move {
            poll_fn(move |context| {
                if let Poll::Ready(answer) = work.as_mut().poll(context) {
                    return Poll::Ready(answer.or_interrupted());
                }
                {
                    let mut signal = its.lock();
                    signal.waker = Some(context.waker().clone());
                    if !signal.sent {
                        return Poll::Pending;
                    }
                }
                // As a thread does that a signal interrupts.
                match shield.must_stay() {
                    true => work.as_mut().poll(context).map(Answer::or_interrupted),
                    false => Poll::Ready(Answer::Interrupted),
                }
            })
            .await
        });
        Task { answer, signal }
    }

    pub fn interrupt(&self) {
        let waker = {
            let mut signal = self.signal.lock();
            signal.sent = true;
            signal.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

async fn control(
    file: &Arc<dyn File>,
    who: &Caller,
    control: SocketControl,
    patience: Patience,
) -> Result<ControlAnswer> {
    file.control_with(who, Control::Socket(control), patience).await
}

fn patience(waits: bool) -> Patience {
    if waits {
        Patience::Waits
    } else {
        Patience::Refuses
    }
}

fn dont_wait(waits: bool) -> u32 {
    if waits {
        0
    } else {
        MSG_DONTWAIT
    }
}

/// read(2).
pub async fn read(file: Arc<dyn File>, who: Caller, bytes: usize, waits: bool) -> Answer {
    let mut buffer = vec![0; bytes];
    let read = file.read_into(Destination::Kernel(&mut buffer), Access::by(&who).with(patience(waits))).await;
    Answer::Received(read.map(|count| {
        buffer.truncate(count);
        (buffer, Vec::new())
    }))
}

/// recvmsg(2). What is read from a file that comes along is the number it is known by.
pub async fn receive(file: Arc<dyn File>, who: Caller, bytes: usize, peek: bool, waits: bool) -> Answer {
    let flags = dont_wait(waits) | if peek { MSG_PEEK } else { 0 };
    let got = control(&file, &who, SocketControl::Receive { bytes: bytes as u64, flags }, Patience::Waits).await;
    Answer::Received(match got {
        Ok(ControlAnswer::Message(message)) => {
            // What was received is not to be lost.
            let _held = who.shield.hold();
            let mut numbers = Vec::new();
            for file in &message.files {
                let mut count = [0; 8];
                // What is only looked at may be read but once.
                let told = !peek && file.read(&mut count).await == Ok(8);
                numbers.push(told.then_some(u64::from_le_bytes(count)));
            }
            Ok((message.bytes, numbers))
        }
        Ok(_) => Err(Errno::EINVAL),
        Err(error) => Err(error),
    })
}

/// sendmsg(2), or write(2) if there are no files.
pub async fn send(file: Arc<dyn File>, who: Caller, bytes: Vec<u8>, files: Vec<Arc<dyn File>>, waits: bool) -> Answer {
    if files.is_empty() {
        let access = Access::by(&who).with(patience(waits));
        return Answer::Sent(file.write_from(Source::Kernel(&bytes), access).await);
    }
    let message = SocketMessage { bytes, files, most_in_flight: 10_000, ..SocketMessage::default() };
    let send = SocketControl::Send { place: None, message, flags: dont_wait(waits) };
    Answer::Sent(match control(&file, &who, send, Patience::Waits).await {
        Ok(ControlAnswer::Number(count)) => Ok(count as usize),
        Ok(_) => Err(Errno::EINVAL),
        Err(error) => Err(error),
    })
}

/// sendto(2).
pub async fn send_to(file: Arc<dyn File>, who: Caller, to: SocketAddress, bytes: Vec<u8>, waits: bool) -> Answer {
    let message = SocketMessage { bytes, ..SocketMessage::default() };
    let send = SocketControl::Send { place: Some(to), message, flags: dont_wait(waits) };
    Answer::Sent(match control(&file, &who, send, Patience::Waits).await {
        Ok(ControlAnswer::Number(count)) => Ok(count as usize),
        Ok(_) => Err(Errno::EINVAL),
        Err(error) => Err(error),
    })
}

pub async fn shut(file: Arc<dyn File>, who: Caller, how: u32) -> Answer {
    Answer::Done(control(&file, &who, SocketControl::Shutdown { how }, Patience::Waits).await.map(drop))
}

/// connect(2); from `bound`, if that is said.
pub async fn connect(
    file: Arc<dyn File>,
    who: Caller,
    bound: Option<SocketAddress>,
    place: SocketAddress,
    waits: bool,
) -> Answer {
    if bound.is_some() {
        let bind = SocketControl::Bind { place: bound, name: Vec::new() };
        if let Err(error) = control(&file, &who, bind, Patience::Waits).await {
            return Answer::Done(Err(error));
        }
    }
    let connect = SocketControl::Connect { place: Some(place) };
    Answer::Done(control(&file, &who, connect, patience(waits)).await.map(drop))
}

pub async fn accept(file: Arc<dyn File>, who: Caller, tcp: bool, waits: bool) -> Answer {
    let accept = SocketControl::Accept { flags: fs::OpenFlags::empty(), end: None };
    let accepted = match control(&file, &who, accept, patience(waits)).await {
        Ok(ControlAnswer::File(accepted)) => accepted,
        Ok(_) => return Answer::Accepted(Err(Errno::EINVAL)),
        Err(error) => return Answer::Accepted(Err(error)),
    };
    // What was accepted is not to be lost.
    let _held = who.shield.hold();
    let ask = match tcp {
        true => SocketControl::PeerName,
        false => SocketControl::GetOption { level: SOL_SOCKET, name: SO_PEERCRED },
    };
    let which = match control(&accepted, &who, ask, Patience::Waits).await {
        Ok(ControlAnswer::Bytes(bytes)) if tcp => Some(u16::from_be_bytes([bytes[2], bytes[3]]).into()),
        Ok(ControlAnswer::Bytes(bytes)) => Some(u32::from_le_bytes(bytes[..4].try_into().expect("credentials")).into()),
        _ => None,
    };
    Answer::Accepted(Ok((accepted, which)))
}

pub async fn poll(files: Vec<(Arc<dyn File>, Events)>, who: Caller, waits: bool) -> Answer {
    let timeout: Option<::machine::BoxFuture<'_, ()>> = if waits { None } else { Some(Box::pin(async {})) };
    Answer::Polled(poll::wait(&who, &files, timeout).await)
}

/// epoll_wait(2).
pub async fn epoll(epoll: Arc<dyn File>, who: Caller, waits: bool) -> Answer {
    let wait = if waits { fs::epoll::Wait::ForEver } else { fs::epoll::Wait::No };
    Answer::Ready(fs::epoll::wait(&epoll, &who, 64, wait).await)
}

/// What a thread does first that has come to another kernel.
pub async fn follow(remote: Arc<Remote>, who: Caller, held: Vec<LeftFile>) -> Answer {
    // It is not in a system call, so no signal interrupts it.
    let _held = who.shield.hold();
    Answer::Followed(remote.fetch(&held, &who).await)
}
