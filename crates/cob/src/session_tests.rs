//! The session against a guest made of a thread: no QEMU, no kernel.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use link::{FRAME_COST, STDIN_WINDOW};

use super::*;

/// The guest's side of the link.
struct Guest {
    stream: UnixStream,
    decoder: Decoder,
    pending: Vec<u8>,
}

impl Guest {
    fn send(&mut self, message: ToHost) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> ToGuest {
        loop {
            let mut input = &self.pending[..];
            let message = self.decoder.next(&mut input).unwrap();
            self.pending = input.to_vec();
            if let Some(message) = message {
                return message;
            }
            let mut buffer = vec![0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the host closed the link");
            self.pending.extend_from_slice(&buffer[..length]);
        }
    }
}

struct Host {
    link: Link,
    events: Receiver<Event>,
    stdin: Option<File>,
    stdout: File,
    stderr: File,
}

fn pipe() -> (File, File) {
    let (a, b) = UnixStream::pair().unwrap();
    (File::from(OwnedFd::from(a)), File::from(OwnedFd::from(b)))
}

fn connect() -> (Host, Guest) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let ((stdin, stdin_end), (stdout, stdout_end), (stderr, stderr_end)) = (pipe(), pipe(), pipe());
    let (sender, events) = channel();
    let streams = Streams { stdin: stdin_end, stdout: stdout_end, stderr: stderr_end, tty: None };
    let link = start(ours, streams, &sender).unwrap();
    let guest = Guest { stream: theirs, decoder: Decoder::new(), pending: Vec::new() };
    (Host { link, events, stdin: Some(stdin), stdout, stderr }, guest)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 256) as u8).collect()
}

/// A cat inside: every byte of stdin comes back on stdout, within the windows.
fn cat(mut guest: Guest) {
    guest.send(ToHost::Ready);
    guest.send(ToHost::Credit(STDIN_WINDOW));
    let (mut window, mut waiting, mut ended) = (Window::output(), VecDeque::<Vec<u8>>::new(), false);
    while !ended || !waiting.is_empty() {
        match guest.receive() {
            ToGuest::Stdin(bytes) => waiting.push_back(bytes),
            ToGuest::Credit { amount, .. } => window.give(amount).unwrap(),
            ToGuest::StdinEof => ended = true,
            other => panic!("{other:?}"),
        }
        while waiting.front().is_some_and(|bytes| window.take(bytes.len())) {
            let bytes = waiting.pop_front().unwrap();
            guest.send(ToHost::Credit(charge(bytes.len())));
            guest.send(ToHost::Data(Output::Stdout, bytes));
        }
    }
    guest.send(ToHost::Exit(ExitStatus::Exited(3)));
}

#[test]
fn a_cat_gives_back_every_byte_and_its_status() {
    let (mut host, guest) = connect();
    let inside = thread::spawn(move || cat(guest));
    let sent = pattern(3_000_000);
    let mut stdin = host.stdin.take().unwrap();
    let feeder = thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent).unwrap()
    });
    let mut received = vec![0; sent.len()];
    host.stdout.read_exact(&mut received).unwrap();
    assert!(received == sent);
    feeder.join().unwrap();
    inside.join().unwrap();
    assert_eq!(host.events.recv().unwrap(), Event::Ready);
    assert_eq!(end_of(&host.events), Ending::Exit(ExitStatus::Exited(3)));
}

fn end_of(events: &Receiver<Event>) -> Ending {
    loop {
        if let Event::End(ending) = events.recv().unwrap() {
            return ending;
        }
    }
}

#[test]
fn stdin_is_left_alone_until_the_program_wants_it() {
    let (mut host, mut guest) = connect();
    host.stdin.as_mut().unwrap().write_all(b"for the next program").unwrap();
    host.link.send(&ToGuest::Signal(15));
    assert_eq!(guest.receive(), ToGuest::Signal(15));
    // Room for four bytes and no more.
    guest.send(ToHost::Credit(FRAME_COST + 4));
    assert_eq!(guest.receive(), ToGuest::Stdin(b"for ".to_vec()));
    host.link.send(&ToGuest::Resize { rows: 1, cols: 2 });
    assert_eq!(guest.receive(), ToGuest::Resize { rows: 1, cols: 2 });
}

#[test]
fn outputs_do_not_wait_for_each_other_and_all_is_written_before_the_end() {
    let (mut host, mut guest) = connect();
    // Nobody reads stdout yet; stderr must come through.
    let long = pattern(MAX_DATA);
    for _ in 0..5 {
        guest.send(ToHost::Data(Output::Stdout, long.clone()));
    }
    guest.send(ToHost::Data(Output::Stderr, b"oops\n".to_vec()));
    let mut line = [0; 5];
    host.stderr.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"oops\n");
    guest.send(ToHost::Stats("1 kernel\n".to_string()));
    guest.send(ToHost::Exit(ExitStatus::Signaled(9)));
    assert_eq!(host.events.recv().unwrap(), Event::Stats("1 kernel\n".to_string()));
    assert_eq!(end_of(&host.events), Ending::Exit(ExitStatus::Signaled(9)));
    let mut received = vec![0; 5 * MAX_DATA];
    host.stdout.read_exact(&mut received).unwrap();
    assert!(received.chunks(MAX_DATA).all(|chunk| chunk == long));
    let drained: Vec<Event> = host.events.iter().take(3).collect();
    for output in Output::ALL {
        assert!(drained.contains(&Event::Drained(output)));
    }
}

#[test]
fn a_reader_that_went_away_is_told_to_the_program_and_holds_nothing_up() {
    let (host, mut guest) = connect();
    drop(host.stdout);
    let mut window = Window::output();
    let (mut closed, mut sent) = (false, 0);
    while !closed || sent < 40 {
        if window.take(MAX_DATA) {
            guest.send(ToHost::Data(Output::Stdout, pattern(MAX_DATA)));
            sent += 1;
            continue;
        }
        match guest.receive() {
            ToGuest::Closed(Output::Stdout) => closed = true,
            ToGuest::Credit { output: Output::Stdout, amount } => window.give(amount).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    guest.send(ToHost::Exit(ExitStatus::Signaled(13)));
    assert_eq!(end_of(&host.events), Ending::Exit(ExitStatus::Signaled(13)));
}

#[test]
fn end_of_stdin_is_passed_on() {
    let (mut host, mut guest) = connect();
    host.stdin = None;
    guest.send(ToHost::Credit(STDIN_WINDOW));
    assert_eq!(guest.receive(), ToGuest::StdinEof);
}

#[test]
fn a_machine_that_vanishes_or_talks_nonsense_ends_the_session() {
    let (host, guest) = connect();
    drop(guest);
    assert!(matches!(end_of(&host.events), Ending::Lost(_)));

    let (host, mut guest) = connect();
    guest.stream.write_all(&[0xff; 16]).unwrap();
    assert!(matches!(end_of(&host.events), Ending::Lost(text) if text.contains("nonsense")));

    let (host, mut guest) = connect();
    guest.send(ToHost::Credit(STDIN_WINDOW + 1));
    assert!(matches!(end_of(&host.events), Ending::Lost(text) if text.contains("nonsense")));

    let (host, mut guest) = connect();
    guest.send(ToHost::Panic("kernel 2: out of frames".to_string()));
    assert_eq!(end_of(&host.events), Ending::Panic("kernel 2: out of frames".to_string()));
}
