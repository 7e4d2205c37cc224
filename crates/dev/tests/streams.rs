//! The link under `fs`: streams that are files, and the terminal.

mod common;

use std::sync::Arc;

use abi::signal::Signal;
use common::{taken, Host};
use dev::link::Event;
use dev::streams::{keyboard, Screen, Sink, Stdin};
use fs::event::Timers;
use fs::stream::StreamFile;
use fs::tty::{Background, JobControl, Terminals, Tty};
use fs::{Caller, Credentials, Events, File, OpenFlags};
use link::{charge, Output, ToGuest, ToHost};
use machine::{BoxFuture, Errno, Pid};

struct Nobody;

impl JobControl for Nobody {
    fn signal_group(&self, _: Pid, _: Signal) {}
    fn signal_process(&self, _: Pid, _: Signal) {}
    fn background<'a>(&'a self, _: &'a Caller, _: Signal) -> BoxFuture<'a, Background> {
        Box::pin(async { Background::Ignored })
    }
    fn session_of(&self, _: Pid) -> BoxFuture<'_, Option<Pid>> {
        Box::pin(async { None })
    }
}

impl Timers for Nobody {
    fn now(&self) -> u64 {
        0
    }
    fn at(&self, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn caller() -> Caller {
    let pid = Pid(1);
    Caller {
        credentials: Credentials::default(),
        process: pid,
        thread: pid,
        group: pid,
        session: pid,
        umask: 0o022,
        shield: machine::Shield::NONE,
    }
}

/// Output that came, with its credit given back at once.
fn collect(host: &mut Host, output: Output) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let messages = host.received();
        if messages.is_empty() {
            return all;
        }
        for message in messages {
            if let ToHost::Data(which, bytes) = message {
                assert_eq!(which, output);
                host.send(ToGuest::Credit { output, amount: charge(bytes.len()) });
                all.extend_from_slice(&bytes);
            }
        }
    }
}

fn terminal(host: &Host) -> (Arc<Tty>, Arc<dyn File>) {
    let terminals = Terminals::new(Arc::new(Nobody), Arc::new(Nobody));
    let screen = Screen::new(host.link.clone());
    let tty = terminals.make_console(screen.clone());
    let file = terminals.open_console(&caller(), OpenFlags::RDWR, None).expect("a console");
    host.tasks.run(screen.run(tty.clone()));
    host.tasks.run(keyboard(host.link.clone(), tty.clone()));
    (tty, file)
}

#[test]
fn a_stream_reads_and_writes_what_the_link_carries() {
    let mut host = Host::new();
    let stdin = StreamFile::reader(&caller(), Arc::new(Stdin(host.link.clone())));
    let sink = Sink { link: host.link.clone(), output: Output::Stderr };
    let stderr = StreamFile::writer(&caller(), Arc::new(sink));
    assert_eq!(stdin.poll(), Events::empty());
    let copied = host.tasks.run(async move {
        let mut buffer = [0; 64];
        let length = stdin.read(&mut buffer).await?;
        stderr.write(&buffer[..length]).await
    });
    host.received();
    assert!(host.stdin.take(5));
    host.send(ToGuest::Stdin(b"bytes".to_vec()));
    assert_eq!(taken(&copied), Some(Ok(5)));
    assert_eq!(collect(&mut host, Output::Stderr), b"bytes");
}

#[test]
fn a_closed_stream_is_ready_and_fails() {
    let host = Host::new();
    let sink = Sink { link: host.link.clone(), output: Output::Stdout };
    let stdout = StreamFile::writer(&caller(), Arc::new(sink));
    host.send(ToGuest::Closed(Output::Stdout));
    assert_eq!(stdout.poll(), Events::OUT | Events::WRNORM);
    assert_eq!(taken(&host.tasks.run(async move { stdout.write(b"x").await })), Some(Err(Errno::EPIPE)));
}

#[test]
fn a_terminal_prints_everything_however_slowly_the_host_reads() {
    let mut host = Host::new();
    let (_tty, file) = terminal(&host);
    let text: Vec<u8> = (0..600_000).map(|at| b'a' + (at % 26) as u8).collect();
    let written = text.clone();
    let done = host.tasks.run(async move {
        let mut rest = &written[..];
        while !rest.is_empty() {
            let length = file.write(rest).await.expect("a write");
            rest = &rest[length..];
        }
    });
    assert_eq!(taken(&done), None, "more than all windows");
    assert!(collect(&mut host, Output::Tty) == text);
    assert_eq!(taken(&done), Some(()));
}

#[test]
fn a_typed_line_is_echoed_and_read() {
    let mut host = Host::new();
    let (_tty, file) = terminal(&host);
    let line = host.tasks.run(async move {
        let mut buffer = [0; 64];
        let length = file.read(&mut buffer).await.expect("a read");
        buffer[..length].to_vec()
    });
    host.received();
    assert!(host.stdin.take(3));
    host.send(ToGuest::Stdin(b"ls\r".to_vec()));
    assert_eq!(taken(&line), Some(b"ls\n".to_vec()));
    assert_eq!(collect(&mut host, Output::Tty), b"ls\r\n");
}

#[test]
fn a_paste_that_nobody_reads_stops_at_the_terminal() {
    let mut host = Host::new();
    let (tty, _file) = terminal(&host);
    let mut pasted = 0;
    loop {
        host.received();
        let length = host.stdin.room().min(link::MAX_DATA);
        if length == 0 || pasted > 1_000_000 {
            break;
        }
        assert!(host.stdin.take(length));
        host.send(ToGuest::Stdin(vec![b'\n'; length]));
        collect(&mut host, Output::Tty);
        pasted += length;
    }
    assert!(pasted < 300_000, "{pasted} bytes taken that nobody reads");
    assert_eq!(tty.input_room(), 0);
}

#[test]
fn ctrl_t_asks_where_lines_are_edited_and_is_a_key_elsewhere() {
    let mut host = Host::new();
    let (_tty, file) = terminal(&host);
    let (link, reader) = (host.link.clone(), file.clone());
    let event = host.tasks.run(async move { link.event().await });
    let read = |file: Arc<dyn File>| async move {
        let mut buffer = [0; 64];
        let length = file.read(&mut buffer).await.expect("a read");
        buffer[..length].to_vec()
    };
    let line = host.tasks.run(read(reader));
    host.received();
    assert!(host.stdin.take(4));
    host.send(ToGuest::Stdin(b"l\x14s\r".to_vec()));
    assert_eq!(taken(&event), Some(Event::Inspect));
    assert_eq!(taken(&line), Some(b"ls\n".to_vec()));

    // TCSETS of zeroes but for VMIN: a program takes single keys.
    let (raw, mut modes) = (file.clone(), vec![0; 36]);
    modes[17 + 6] = 1;
    host.tasks.run(async move { raw.ioctl(&caller(), 0x5402, &mut modes).await.expect("modes") });
    let link = host.link.clone();
    let event = host.tasks.run(async move { link.event().await });
    let key = host.tasks.run(read(file));
    host.received();
    assert!(host.stdin.take(1));
    host.send(ToGuest::Stdin(b"\x14".to_vec()));
    assert_eq!((taken(&key), taken(&event)), (Some(b"\x14".to_vec()), None));
}

#[test]
fn heartbeats_do_not_pile_up_for_a_host_that_does_not_listen() {
    let mut host = Host::new();
    host.wire.stuck.store(true, std::sync::atomic::Ordering::SeqCst);
    for cpu in 0..1000 {
        host.link.beat(cpu);
        host.tasks.settle();
    }
    host.wire.stuck.store(false, std::sync::atomic::Ordering::SeqCst);
    host.wire.unstuck.wake_all();
    host.tasks.settle();
    assert_eq!(host.received(), [ToHost::Beat { next: 0 }]);
    host.link.beat(7);
    host.tasks.settle();
    assert_eq!(host.received(), [ToHost::Beat { next: 7 }]);
}
