//! The run's side of `cob top`: viewers connect to a socket in the run's private directory, ask what the kernels do, and are told.
//!
//! A viewer speaks the frames of the link (crate `link`): it sends `ToGuest::Activity`, and `ToHost::Activity` with the text answers. It may do
//! nothing else. Nobody but the run's own user comes as far as the socket, and a viewer that is slow, sends anything else, or goes away must not
//! disturb the run all the same:
//!
//! - Each viewer has a thread here, and there are at most [`MOST`]. Whoever comes then is hung up on, as is a viewer that sends something else
//!   or does not read its answer.
//! - The machine has one question at a time ([`Event::Viewer`] says that somebody waits); its answer is for all who wait. A viewer that asks without
//!   a pause is answered once in [`PAUSE`].

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{
    io::{Read, Write},
    thread,
};

use link::{Decoder, Message, ToGuest, ToHost};

use crate::session::Event;

/// The name of the socket in the run's private directory.
pub const SOCKET: &str = "top";

/// Viewers at the same time.
const MOST: usize = 4;
/// From an answer to the next question of the same viewer.
const PAUSE: Duration = Duration::from_millis(100);
/// A viewer that takes nothing of its answer for so long is hung up on.
const READS_WITHIN: Duration = Duration::from_secs(5);

/// All viewers of this run.
#[derive(Default)]
pub struct Viewers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Answers so far, and the last one, as a frame.
    answers: u64,
    frame: Arc<Vec<u8>>,
    connected: usize,
    /// The machine is gone.
    ended: bool,
}

impl Viewers {
    /// Begins to listen in `directory`. Without a socket (its path may be too long) the run goes on, and nobody finds it.
    pub fn listen(directory: &Path, events: &Sender<Event>) -> Arc<Viewers> {
        let viewers = Arc::new(Viewers::default());
        if let Ok(listener) = UnixListener::bind(directory.join(SOCKET)) {
            let (viewers, events) = (viewers.clone(), events.clone());
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else { return };
                    viewers.clone().receive(stream, events.clone());
                }
            });
        }
        viewers
    }

    /// The machine's answer, for all who wait.
    pub fn show(&self, text: String) {
        let mut frame = Vec::new();
        ToHost::Activity(text).encode(&mut frame);
        let mut state = self.lock();
        state.frame = Arc::new(frame);
        state.answers += 1;
        self.changed.notify_all();
    }

    /// Nothing will come any more: who waits or asks is hung up on.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(self: Arc<Self>, stream: UnixStream, events: Sender<Event>) {
        {
            let mut state = self.lock();
            if state.connected == MOST {
                return;
            }
            state.connected += 1;
        }
        thread::spawn(move || {
            let _ = self.serve(stream, &events);
            self.lock().connected -= 1;
        });
    }

    /// Answers a viewer until it goes away or is hung up on, which is what None is.
    fn serve(&self, mut stream: UnixStream, events: &Sender<Event>) -> Option<()> {
        stream.set_write_timeout(Some(READS_WITHIN)).ok()?;
        let (mut decoder, mut buffer) = (Decoder::new(), [0; 64]);
        loop {
            let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
            let mut input = &buffer[..length];
            while let Some(message) = decoder.next::<ToGuest>(&mut input).ok()? {
                if message != ToGuest::Activity {
                    return None;
                }
                stream.write_all(&self.next(events)?).ok()?;
                thread::sleep(PAUSE);
            }
        }
    }

    /// The next answer that comes from now on.
    fn next(&self, events: &Sender<Event>) -> Option<Arc<Vec<u8>>> {
        let mut state = self.lock();
        let before = state.answers;
        events.send(Event::Viewer).ok()?;
        while state.answers == before && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.ended).then(|| state.frame.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver};

    struct Run {
        directory: tempfile::TempDir,
        viewers: Arc<Viewers>,
        events: Receiver<Event>,
    }

    fn run() -> Run {
        let directory = tempfile::tempdir().unwrap();
        let (sender, events) = channel();
        let viewers = Viewers::listen(directory.path(), &sender);
        Run { directory, viewers, events }
    }

    impl Run {
        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.directory.path().join(SOCKET)).unwrap()
        }

        /// Answers the next question.
        fn answer(&self, text: &str) {
            assert_eq!(self.events.recv(), Ok(Event::Viewer));
            // The viewer's thread waits by the time the lock is free: it sent the event under it.
            self.viewers.show(text.to_string());
        }
    }

    fn ask(mut stream: &UnixStream) {
        let mut bytes = Vec::new();
        ToGuest::Activity.encode(&mut bytes);
        stream.write_all(&bytes).unwrap();
    }

    /// What comes next; None: it hung up.
    fn told(mut stream: &UnixStream) -> Option<String> {
        let (mut decoder, mut buffer) = (Decoder::new(), [0; 1 << 17]);
        loop {
            let length = stream.read(&mut buffer).unwrap_or(0);
            if length == 0 {
                return None;
            }
            if let Some(message) = decoder.next(&mut &buffer[..length]).unwrap() {
                let ToHost::Activity(text) = message else { panic!("{message:?}") };
                return Some(text);
            }
        }
    }

    #[test]
    fn one_answer_is_for_all_who_wait() {
        let run = run();
        let (one, other) = (run.connect(), run.connect());
        ask(&one);
        ask(&other);
        assert_eq!((run.events.recv(), run.events.recv()), (Ok(Event::Viewer), Ok(Event::Viewer)));
        run.viewers.show("first".to_string());
        assert_eq!((told(&one), told(&other)), (Some("first".to_string()), Some("first".to_string())));
        ask(&one);
        run.answer("second");
        assert_eq!(told(&one), Some("second".to_string()));
    }

    #[test]
    fn whoever_sends_something_else_is_hung_up_on() {
        let run = run();
        let mut stop = Vec::new();
        ToGuest::Signal(9).encode(&mut stop);
        let too_long = [0x09, 0xff, 0xff, 0xff, 0xff];
        for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &stop, &too_long, &[0; 64]] {
            let viewer = run.connect();
            (&viewer).write_all(garbage).unwrap();
            assert_eq!(told(&viewer), None);
        }
        assert!(run.events.try_recv().is_err(), "the run has heard nothing of it");
    }

    #[test]
    fn those_who_do_not_read_or_go_away_hold_up_nobody() {
        let run = run();
        let (slow, gone, good) = (run.connect(), run.connect(), run.connect());
        // Half a question.
        (&slow).write_all(&[0x09, 0]).unwrap();
        ask(&gone);
        assert_eq!(run.events.recv(), Ok(Event::Viewer));
        drop(gone);
        ask(&good);
        run.answer(&"x".repeat(60_000));
        assert_eq!(told(&good).map(|text| text.len()), Some(60_000));
    }

    #[test]
    fn there_are_only_so_many_viewers_and_all_hear_of_the_end() {
        let run = run();
        let viewers: Vec<UnixStream> = (0..MOST).map(|_| run.connect()).collect();
        viewers.iter().for_each(ask);
        (0..MOST).for_each(|_| assert_eq!(run.events.recv(), Ok(Event::Viewer)));
        assert_eq!(told(&run.connect()), None, "one too many");
        run.viewers.end();
        viewers.iter().for_each(|viewer| assert_eq!(told(viewer), None));
    }
}
