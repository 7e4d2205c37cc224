//! The server of one disk. It has one client, QEMU, and ends with it.
//!
//! Threads: one accepts the client and then reads its requests, each of which goes into the [`Schedule`]; [`WORKERS`] take out what is due, carry it out and
//! answer it. A request is carried out when it is due, not when it comes, so a change that was not answered has mostly not happened when the client
//! is killed.
//!
//! Of the workers that have nothing to do one is on watch: it sleeps until the next request is due. The others sleep until they are needed. Whoever takes a
//! request out wakes another worker if there are more, which goes on watch or finds one due.
//!
//! A client that says that it has ended (NBD_CMD_DISC) gets its answers first. When a client is gone without a word, what waits is dropped, as a disk
//! drops what it has not answered when the power fails.

use std::io::{self, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result};

use super::faults::Faults;
use super::protocol::{self, negotiate, Error, Request};
use super::schedule::{Next, Schedule};
use super::store::Store;
use super::Behaviour;
use crate::cli::Disk;

/// Threads that carry out requests. A flush of the host's disk may take one of them for long.
const WORKERS: usize = 4;

/// A disk that is served. When it is dropped its client must be gone.
pub struct Server {
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the disk on a socket that it makes there.
    pub fn start(disk: &Disk, behaviour: &Behaviour, socket: &Path) -> Result<Server> {
        let store = Store::open(&disk.file, disk.read_only, behaviour.log.as_deref())?;
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        let (name, behaviour) = (disk.file.display().to_string(), behaviour.clone());
        let thread = thread::spawn(move || {
            let client = listener.accept();
            drop(listener);
            let served = client.and_then(|(stream, _)| serve(stream, &store, &behaviour, &name));
            if let Err(error) = served.or_else(gone) {
                eprintln!("cob: {name}: {error}");
            }
        });
        Ok(Server { socket: socket.into(), thread: Some(thread) })
    }
}

/// A client may go without a word: QEMU is killed at the end of a run.
fn gone(error: io::Error) -> io::Result<()> {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
        Ok(())
    } else {
        Err(error)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Should QEMU not have come, this is the client that the thread waits for.
        drop(UnixStream::connect(&self.socket));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one client until it has ended.
///
/// # Errors
///
/// What the client sends is not the protocol, or it has gone without a word.
pub fn serve(stream: UnixStream, store: &Store, behaviour: &Behaviour, name: &str) -> io::Result<()> {
    let mut handshake = stream.try_clone()?;
    if !negotiate(&mut handshake, &store.export)? {
        return Ok(());
    }
    let state = State {
        schedule: Schedule::new(behaviour.delay, behaviour.depth),
        faults: Faults::new(behaviour.errors.clone()),
        on_watch: false,
        ended: false,
        complaint: None,
    };
    let replies = Mutex::new(stream.try_clone()?);
    let connection = Connection { store, name, replies, state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| connection.work());
        }
        let received = connection.receive(&mut BufReader::with_capacity(1 << 16, stream));
        let mut state = connection.lock();
        state.ended = true;
        if received.is_err() {
            state.schedule.clear();
        }
        drop(state);
        connection.changed.notify_all();
        received
    })
}

/// A request, the position of the log when it came, and whether it is to fail.
struct Job {
    request: Request,
    came: u64,
    fails: bool,
}

struct Connection<'a> {
    store: &'a Store,
    /// Of the disk, for complaints.
    name: &'a str,
    replies: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    schedule: Schedule<Job>,
    faults: Faults,
    /// A worker sleeps until the next request is due.
    on_watch: bool,
    /// No more requests will come.
    ended: bool,
    /// The last complaint: a full disk says the same of each write.
    complaint: Option<String>,
}

impl Connection<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, stream: &mut impl Read) -> io::Result<()> {
        while let Some(request) = protocol::receive(stream, &self.store.export)? {
            let came = self.store.position();
            let mut state = self.lock();
            let fails = request.op.is_ok_and(|op| state.faults.fails(op, request.offset, request.length));
            state.schedule.arrive(Instant::now(), Job { request, came, fails });
            drop(state);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// A worker's life.
    fn work(&self) {
        while let Some((due, job)) = self.next() {
            let result = self.carry_out(&job);
            let reply = protocol::reply(job.request.cookie, result.as_deref().map_err(|error| *error));
            // A client that is gone is noticed where requests are read.
            let _ = self.replies.lock().unwrap_or_else(PoisonError::into_inner).write_all(&reply);
            let mut state = self.lock();
            state.schedule.answered(due);
            self.wake(&state);
        }
    }

    /// Waits for a request that is due. None: there will be no more.
    fn next(&self) -> Option<(Instant, Job)> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            match state.schedule.next(now) {
                Next::Answer(due, job) => {
                    self.wake(&state);
                    return Some((due, job));
                }
                Next::Nothing if state.ended && state.schedule.is_empty() => return None,
                Next::Wait(due) if !state.on_watch => {
                    state.on_watch = true;
                    let woken = self.changed.wait_timeout(state, due.saturating_duration_since(now));
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                    state.on_watch = false;
                }
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Wakes a worker for what the schedule still has, or all of them to end.
    fn wake(&self, state: &State) {
        match state.ended {
            true => self.changed.notify_all(),
            false if !state.schedule.is_empty() => self.changed.notify_one(),
            false => (),
        }
    }

    fn carry_out(&self, job: &Job) -> Result<Vec<u8>, Error> {
        let op = job.request.op?;
        if job.fails {
            return Err(Error::Io);
        }
        self.store.carry_out(op, &job.request, job.came).map_err(|error| {
            self.complain(&error.to_string());
            Error::Io
        })
    }

    /// One line on stderr, unless it would be the same again.
    fn complain(&self, complaint: &str) {
        let mut state = self.lock();
        if state.complaint.as_deref() != Some(complaint) {
            // A terminal may be raw.
            let end = if io::stderr().is_terminal() { "\r\n" } else { "\n" };
            eprint!("cob: {}: {complaint}; the disk answers EIO{end}", self.name);
            state.complaint = Some(complaint.to_string());
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
