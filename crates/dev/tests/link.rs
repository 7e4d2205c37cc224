//! The guest's end of the link against a host that keeps the rules of crate `link` to the letter: it counts
//! windows with `link::Window`, so a credit too much or a frame too large is an error here as it is there.

mod common;

use std::future::Future;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use common::{taken, Host};
use dev::link::{Event, StdinReady};
use link::{
    charge, Config, ExitStatus, LinkError, Message, Output, Root, ToGuest, ToHost, HEADER, MAX_DATA, MAX_PAYLOAD,
    STREAM_WINDOW,
};
use machine::Errno;
use proptest::prelude::*;

fn config() -> Config {
    Config {
        version: link::VERSION,
        program: b"/bin/true".to_vec(),
        argv: vec![vec![b'x'; 100_000], b"a".to_vec()],
        env: vec![],
        cwd: b"/".to_vec(),
        uid: 1,
        gid: 2,
        groups: vec![],
        umask: 0o22,
        hostname: b"host".to_vec(),
        tty: [false; 3],
        winsize: None,
        termios: None,
        root: Root::NineP { tag: b"root".to_vec() },
        shares: vec![],
        stats: false,
        rlimits: vec![],
        unix_ns: 5,
    }
}

#[test]
fn a_config_in_parts_arrives_whole() {
    let host = Host::new();
    let link = host.link.clone();
    let got = host.tasks.run(async move { link.config().await });
    let parts = config().to_messages().unwrap();
    assert!(parts.len() > 1);
    for part in parts {
        assert_eq!(taken(&got), None);
        host.send(part);
    }
    assert_eq!(taken(&got), Some(Ok(config())));
}

#[test]
fn a_program_that_reads_nothing_leaves_its_stdin_alone() {
    let mut host = Host::new();
    host.link.ready();
    host.tasks.settle();
    assert_eq!(host.received(), [ToHost::Ready]);
    assert_eq!(host.granted, 0);
}

#[test]
fn the_first_read_asks_for_no_more_than_it_wants() {
    let mut host = Host::new();
    let read = host.read(10);
    host.received();
    assert_eq!(host.stdin.room(), 10);
    assert!(host.stdin.take(4));
    host.send(ToGuest::Stdin(b"line".to_vec()));
    assert_eq!(taken(&read), Some(Ok(b"line".to_vec())));
    // It got what there was; nobody asked for more.
    assert_eq!(host.received(), []);
}

#[test]
fn the_end_comes_after_the_bytes_and_stays() {
    let mut host = Host::new();
    let read = host.read(3);
    host.received();
    assert!(host.stdin.take(3));
    host.send(ToGuest::Stdin(b"end".to_vec()));
    host.send(ToGuest::StdinEof);
    assert_eq!(host.link.stdin_ready(), Ok(StdinReady { bytes: 0, end: true }));
    assert_eq!(taken(&read), Some(Ok(b"end".to_vec())));
    for _ in 0..2 {
        assert_eq!(taken(&host.read(3)), Some(Ok(vec![])));
    }
}

#[test]
fn poll_asks_for_one_byte_and_is_woken() {
    let mut host = Host::new();
    assert_eq!(host.link.stdin_ready(), Ok(StdinReady { bytes: 0, end: false }));
    host.tasks.settle();
    host.received();
    assert_eq!(host.stdin.room(), 1);
    let link = host.link.clone();
    let ready = host.tasks.run(async move {
        link.stdin_changes().wait_until(|| link.stdin_ready().ok().filter(|ready| ready.bytes > 0)).await
    });
    assert!(host.stdin.take(1));
    host.send(ToGuest::Stdin(b"x".to_vec()));
    assert_eq!(taken(&ready), Some(StdinReady { bytes: 1, end: false }));
}

#[test]
fn stdin_beyond_the_credit_ends_the_link() {
    let host = Host::new();
    let read = host.read(1);
    host.send(ToGuest::Stdin(vec![0; 2]));
    assert_eq!(taken(&read), Some(Err(Errno::EIO)));
    let link = host.link.clone();
    assert_eq!(taken(&host.tasks.run(async move { link.event().await })), Some(Event::Lost));
}

#[test]
fn a_slow_reader_of_stdout_stops_the_writer_and_not_the_signals() {
    let mut host = Host::new();
    let mut written = 0;
    let waiting = loop {
        let write = host.write(vec![b'y'; 100_000]);
        match taken(&write) {
            Some(result) => written += result.unwrap(),
            None => break write,
        }
    };
    let charged: u32 = host
        .received()
        .iter()
        .map(|message| match message {
            ToHost::Data(Output::Stdout, bytes) => {
                assert!(bytes.len() <= MAX_DATA);
                charge(bytes.len())
            }
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(charged <= STREAM_WINDOW && written > STREAM_WINDOW as usize / 2);

    // Stderr has a window of its own, and what the host says still gets through.
    let link = host.link.clone();
    assert_eq!(taken(&host.tasks.run(async move { link.stderr_write(b"e").await })), Some(Ok(1)));
    host.send(ToGuest::Signal(2));
    let link = host.link.clone();
    assert_eq!(taken(&host.tasks.run(async move { link.event().await })), Some(Event::Signal(2)));

    host.send(ToGuest::Credit { output: Output::Stdout, amount: charged });
    assert!(matches!(taken(&waiting), Some(Ok(n)) if n > 0));
}

#[test]
fn a_short_write_is_never_split() {
    let mut host = Host::new();
    loop {
        let write = host.write(vec![0; 4096]);
        match taken(&write) {
            Some(result) => assert_eq!(result, Ok(4096)),
            None => break,
        }
    }
    assert!(host.received().iter().all(|message| matches!(message, ToHost::Data(_, bytes) if bytes.len() == 4096)));
}

#[test]
fn a_closed_output_answers_epipe_also_to_who_waits() {
    let host = Host::new();
    let waiting = loop {
        let write = host.write(vec![0; 50_000]);
        if write.lock().unwrap().is_none() {
            break write;
        }
    };
    host.send(ToGuest::Closed(Output::Stdout));
    assert_eq!(taken(&waiting), Some(Err(Errno::EPIPE)));
    assert_eq!(host.link.output_ready(Output::Stdout), Err(Errno::EPIPE));
    assert_eq!(host.link.output_ready(Output::Stderr), Ok(true));
}

#[test]
fn too_much_credit_ends_the_link() {
    let host = Host::new();
    host.send(ToGuest::Credit { output: Output::Tty, amount: 1 });
    assert_eq!(taken(&host.write(vec![1])), Some(Err(Errno::EIO)));
}

#[test]
fn signals_coalesce_and_only_the_last_size_counts() {
    let host = Host::new();
    for message in [
        ToGuest::Resize { rows: 1, cols: 1 },
        ToGuest::Signal(15),
        ToGuest::Signal(2),
        ToGuest::Signal(15),
        ToGuest::Resize { rows: 40, cols: 120 },
    ] {
        host.send(message);
    }
    let link = host.link.clone();
    let events = host.tasks.run(async move { [link.event().await, link.event().await, link.event().await] });
    assert_eq!(taken(&events), Some([Event::Signal(2), Event::Signal(15), Event::Resize { rows: 40, cols: 120 }]));
}

#[test]
fn exit_returns_only_after_the_device_has_all_before_it() {
    let mut host = Host::new();
    host.wire.stuck.store(true, Ordering::SeqCst);
    assert_eq!(taken(&host.write(b"last words".to_vec())), Some(Ok(10)));
    host.link.stats("numbers");
    let link = host.link.clone();
    let done = host.tasks.run(async move { link.exit(ExitStatus::Signaled(9)).await });
    assert_eq!(taken(&done), None);
    host.wire.stuck.store(false, Ordering::SeqCst);
    host.wire.unstuck.wake_all();
    host.tasks.settle();
    assert_eq!(taken(&done), Some(()));
    assert_eq!(
        host.received(),
        [
            ToHost::Data(Output::Stdout, b"last words".to_vec()),
            ToHost::Stats("numbers".into()),
            ToHost::Exit(ExitStatus::Signaled(9)),
        ]
    );
}

#[test]
fn long_texts_are_cut_at_characters() {
    let mut host = Host::new();
    let text = "ü".repeat(50_000);
    host.link.stats(&text);
    host.tasks.settle();
    let joined: String = host
        .received()
        .into_iter()
        .map(|message| match message {
            ToHost::Stats(part) => part,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(joined == text);
}

#[test]
fn activity_is_asked_for_and_told_in_whole_lines() {
    let mut host = Host::new();
    host.send(ToGuest::Activity);
    let link = host.link.clone();
    assert_eq!(taken(&host.tasks.run(async move { link.event().await })), Some(Event::Activity));

    host.link.activity("kernel 0 running\n");
    let line = "thread \u{e9}\n";
    host.link.activity(&line.repeat(10_000));
    host.tasks.settle();
    let texts: Vec<String> = host
        .received()
        .into_iter()
        .map(|message| match message {
            ToHost::Activity(text) => text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts[0], "kernel 0 running\n");
    assert_eq!(texts[1], line.repeat((MAX_PAYLOAD - HEADER) / line.len()));
}

#[test]
fn a_lost_device_leaves_nobody_waiting() {
    let host = Host::new();
    let read = host.read(1);
    let link = host.link.clone();
    let config = host.tasks.run(async move { link.config().await });
    host.wire.broken.store(true, Ordering::SeqCst);
    host.wire.arrived.wake_all();
    host.tasks.settle();
    assert_eq!(taken(&read), Some(Err(Errno::EIO)));
    assert!(matches!(taken(&config), Some(Err(LinkError::Malformed(_)))));
    let link = host.link.clone();
    assert_eq!(taken(&host.tasks.run(async move { link.exit(ExitStatus::Exited(0)).await })), Some(()));
}

#[test]
fn a_dropped_reader_loses_nothing() {
    let mut host = Host::new();
    {
        let mut buffer = [0; 5];
        let mut read = Box::pin(host.link.stdin_read(&mut buffer));
        assert!(matches!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }
    host.tasks.settle();
    host.received();
    assert!(host.stdin.take(5));
    host.send(ToGuest::Stdin(b"hello".to_vec()));
    assert_eq!(taken(&host.read(64)), Some(Ok(b"hello".to_vec())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the sizes of reads, frames and pieces: every byte arrives in order, the host's window never
    /// overflows, and a waiting reader is always answered in the end.
    #[test]
    fn stdin_arrives_whole(
        total in 0usize..400_000,
        reads in prop::collection::vec(1usize..200_000, 1..20),
        frames in prop::collection::vec(1usize..MAX_DATA, 1..20),
        pieces in prop::collection::vec(1usize..8192, 1..20),
    ) {
        let source: Vec<u8> = (0..total).map(|at| (at * 7 % 251) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        let (mut reads, mut frames, mut pieces) = (reads.iter().cycle(), frames.iter().cycle(), pieces.iter().cycle());
        let mut host = Host::new();
        let mut ended = false;
        'program: loop {
            let read = host.read(*reads.next().unwrap());
            loop {
                if let Some(bytes) = taken(&read) {
                    let bytes = bytes.unwrap();
                    if bytes.is_empty() {
                        break 'program;
                    }
                    got.extend_from_slice(&bytes);
                    break;
                }
                host.received();
                prop_assert!(!ended, "a reader waits after the end");
                let length = host.stdin.room().min(*frames.next().unwrap()).min(total - sent);
                if sent == total {
                    host.send(ToGuest::StdinEof);
                    ended = true;
                    continue;
                }
                prop_assert!(length > 0, "a reader waits and the host may not send");
                prop_assert!(host.stdin.take(length));
                let mut bytes = Vec::new();
                ToGuest::Stdin(source[sent..sent + length].to_vec()).encode(&mut bytes);
                sent += length;
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
                    host.send_bytes(piece);
                    rest = after;
                }
            }
        }
        prop_assert!(got == source);
    }
}
