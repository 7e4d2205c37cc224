//! The host's end of the link: the guest's streams go to the caller's descriptors and back.
//!
//! Threads: one reads the link; one per output writes to a descriptor, so that a full pipe on stdout does not
//! hold up stderr; one reads stdin. All of them report to one channel of [`Event`]s, which `run` acts on.
//! How much lies in between is bounded by the windows of the link (`link::Window`).

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use link::{charge, Decoder, ExitStatus, Message, Output, ToGuest, ToHost, Window, MAX_DATA, STREAM_WINDOW};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// The descriptors a program is connected with.
pub struct Streams {
    pub stdin: File,
    pub stdout: File,
    pub stderr: File,
    /// Where the guest's tty writes; without a terminal nothing should come.
    pub tty: Option<File>,
}

impl Streams {
    /// The caller's own.
    pub fn of_caller(tty: Option<File>) -> io::Result<Self> {
        let own = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        Ok(Self { stdin: own(&io::stdin())?, stdout: own(&io::stdout())?, stderr: own(&io::stderr())?, tty })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Ready,
    Stats(String),
    End(Ending),
    /// All that the program wrote to this output is where it belongs.
    Drained(Output),
    /// The caller got a signal.
    Signal(u8),
    /// The primary makes progress; the next time this CPU says so.
    Beat(u32),
    /// What each kernel does, for a person.
    Report(String),
    /// A viewer (`cob top`) wants to know what the kernels do.
    Viewer,
    /// The machine's answer to that.
    Activity(String),
    /// Ctrl-T was typed.
    StatusKey,
    /// QEMU has stopped the machine, and calls its state that.
    Stopped(String),
}

/// How a machine can end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Exit(ExitStatus),
    CannotRun {
        errno: u16,
        what: String,
    },
    Panic(String),
    /// The link broke off: QEMU ended, or the guest sends nonsense.
    Lost(String),
}

/// The sending side. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    stream: Arc<Mutex<UnixStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No thread leaves anything half done under these locks, so a panic elsewhere doesn't matter.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub fn over(stream: UnixStream) -> Self {
        Self { stream: Arc::new(Mutex::new(stream)) }
    }

    /// An error means that the machine is gone; the reading side tells that, with better words.
    pub fn send(&self, message: &ToGuest) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let _ = lock(&self.stream).write_all(&bytes);
    }
}

/// Connects `streams` through `stream`. Events come until [`Event::End`] and then one [`Event::Drained`] per output.
pub fn start(stream: UnixStream, streams: Streams, events: &Sender<Event>) -> io::Result<Link> {
    let link = Link::over(stream.try_clone()?);
    let stdin_window = Arc::new((Mutex::new(Window::stdin()), Condvar::new()));

    let sinks = [Some(streams.stdout), Some(streams.stderr), streams.tty];
    let mut outputs = Vec::new();
    for (output, sink) in Output::ALL.into_iter().zip(sinks) {
        let (sender, receiver) = channel();
        let (link, events) = (link.clone(), events.clone());
        thread::spawn(move || {
            write_out(output, sink, receiver, &link);
            let _ = events.send(Event::Drained(output));
        });
        outputs.push(sender);
    }
    let (reader_window, reader_events) = (stdin_window.clone(), events.clone());
    thread::spawn(move || {
        let ending = receive(stream, &outputs, &reader_window, &reader_events);
        let _ = reader_events.send(Event::End(ending));
    });
    let stdin_link = link.clone();
    let key_events = events.clone();
    thread::spawn(move || read_in(streams.stdin, &stdin_window, &stdin_link, &key_events));
    Ok(link)
}

type SharedWindow = (Mutex<Window>, Condvar);

/// Reads the link until the machine has ended.
fn receive(
    mut stream: UnixStream,
    outputs: &[Sender<Vec<u8>>],
    stdin: &SharedWindow,
    events: &Sender<Event>,
) -> Ending {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Ending::Lost("the machine ended without a word".to_string()),
            // What was on the way to a QEMU that is gone now.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Ending::Lost("the machine ended without a word".to_string());
            }
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Ending::Lost(format!("the link broke: {error}")),
        };
        let mut input = &buffer[..length];
        loop {
            let message = match decoder.next::<ToHost>(&mut input) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => return Ending::Lost(format!("the guest sends nonsense: {error}")),
            };
            match message {
                ToHost::Ready => drop(events.send(Event::Ready)),
                ToHost::Stats(text) => drop(events.send(Event::Stats(text))),
                ToHost::Beat { next } => drop(events.send(Event::Beat(next))),
                ToHost::Report(text) => drop(events.send(Event::Report(text))),
                ToHost::Activity(text) => drop(events.send(Event::Activity(text))),
                ToHost::Data(output, bytes) => drop(outputs[output as usize].send(bytes)),
                ToHost::Credit(amount) => {
                    if let Err(error) = lock(&stdin.0).give(amount) {
                        return Ending::Lost(format!("the guest sends nonsense: {error}"));
                    }
                    stdin.1.notify_one();
                }
                ToHost::Exit(status) => return Ending::Exit(status),
                ToHost::CannotRun { errno, what } => return Ending::CannotRun { errno, what },
                ToHost::Panic(text) => return Ending::Panic(text),
            }
        }
    }
}

/// Writes what comes, and gives the credit back. When the descriptor is closed on the other side the program
/// is told, and what still comes is dropped, so that the guest never waits for a reader that went away.
fn write_out(output: Output, mut sink: Option<File>, data: Receiver<Vec<u8>>, link: &Link) {
    let mut owed = 0;
    let mut next = data.recv().ok();
    while let Some(bytes) = next {
        if let Some(file) = &mut sink {
            if write_all(file, &bytes).is_err() {
                sink = None;
                link.send(&ToGuest::Closed(output));
            }
        }
        owed += charge(bytes.len());
        next = data.try_recv().ok();
        // One credit for many small frames, but never so late that the sender stands still.
        if next.is_none() || owed >= STREAM_WINDOW / 4 {
            link.send(&ToGuest::Credit { output, amount: owed });
            owed = 0;
        }
        next = next.or_else(|| data.recv().ok());
    }
}

/// Like `Write::write_all`, also where the caller's descriptor happens to be non-blocking.
fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for(file, PollFlags::POLLOUT)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_for(file: &File, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(file.as_fd(), what)], PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ctrl-T. The guest's terminal decides what it is there; here it says that an answer may be expected.
const STATUS_KEY: u8 = 0x14;

/// Reads stdin only as far as the guest wants it.
fn read_in(mut stdin: File, window: &SharedWindow, link: &Link, events: &Sender<Event>) {
    let is_terminal = stdin.is_terminal();
    let mut buffer = vec![0; MAX_DATA];
    loop {
        let room = {
            let mut open = lock(&window.0);
            while open.room() == 0 {
                open = window.1.wait(open).unwrap_or_else(PoisonError::into_inner);
            }
            open.room().min(MAX_DATA)
        };
        match stdin.read(&mut buffer[..room]) {
            Ok(length) if length > 0 => {
                // Only this thread takes from the window, so the room is still there.
                let taken = lock(&window.0).take(length);
                debug_assert!(taken);
                link.send(&ToGuest::Stdin(buffer[..length].to_vec()));
                if is_terminal && buffer[..length].contains(&STATUS_KEY) {
                    let _ = events.send(Event::StatusKey);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if wait_for(&stdin, PollFlags::POLLIN).is_err() {
                    return link.send(&ToGuest::StdinEof);
                }
            }
            _ => return link.send(&ToGuest::StdinEof),
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
