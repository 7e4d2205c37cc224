use super::*;
use crate::{
    control::*,
    file::{Access, Source},
    pipe::pipe,
    testing::*,
    Events,
};
use alloc::vec::Vec;
use core::task::Context;
use machine::BoxFuture;

fn names() -> Arc<NetNamespace> {
    Arc::default()
}

fn pair(kind: SocketKind) -> (Arc<Socket>, Arc<Socket>) {
    Socket::pair(&names(), &caller(7), kind, OpenFlags::NONBLOCK)
}

fn read(socket: &Socket, bytes: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; bytes];
    block_on(socket.read(&mut buf)).map(|count| buf[..count].to_vec())
}

fn write(socket: &Socket, bytes: &[u8]) -> Result<usize> {
    block_on(socket.write(bytes))
}

fn control(socket: &Socket, control: SocketControl) -> Result<ControlAnswer> {
    block_on(socket.control(&caller(7), Control::Socket(control)))
}

fn done(socket: &Socket, what: SocketControl) -> Result<()> {
    control(socket, what).map(|_| ())
}

fn receive(socket: &Socket, bytes: u64) -> Result<SocketMessage> {
    match control(socket, SocketControl::Receive { bytes, flags: 0 })? {
        ControlAnswer::Message(message) => Ok(message),
        _ => unreachable!(),
    }
}

fn message(bytes: &[u8], files: Vec<Arc<dyn File>>) -> SocketMessage {
    SocketMessage { bytes: bytes.to_vec(), files, ..SocketMessage::default() }
}

fn place(name: &[u8]) -> Option<SocketAddress> {
    Some(SocketAddress::Unix(UnixPlace::Abstract(name.to_vec())))
}

#[test]
fn streams_join_messages_and_packets_keep_them_apart() {
    for (kind, joined) in [(SocketKind::Stream, true), (SocketKind::SeqPacket, false), (SocketKind::Datagram, false)] {
        let (a, b) = pair(kind);
        write(&a, b"one").unwrap();
        write(&a, b"two").unwrap();
        let first = read(&b, 5).unwrap();
        assert_eq!(first, if joined { b"onetw".to_vec() } else { b"one".to_vec() });
        assert_eq!(read(&b, 2).unwrap(), if joined { b"o".to_vec() } else { b"tw".to_vec() });
        assert_eq!(read(&b, 9), Err(Errno::EAGAIN));
    }
}

#[test]
fn closing_ends_the_other_side() {
    let (a, b) = pair(SocketKind::Stream);
    write(&a, b"last").unwrap();
    drop(a);
    assert!(b.poll().contains(Events::IN | Events::HUP | Events::RDHUP));
    assert_eq!(read(&b, 9), Ok(b"last".to_vec()));
    assert_eq!(read(&b, 9), Ok(vec![]));
    assert_eq!(write(&b, b"x"), Err(Errno::EPIPE));
    let (a, b) = pair(SocketKind::Stream);
    write(&b, b"unread").unwrap();
    drop(a);
    assert_eq!(read(&b, 9), Err(Errno::ECONNRESET));
    assert_eq!(read(&b, 9), Ok(vec![]));
}

#[test]
fn half_a_shutdown() {
    let (a, b) = pair(SocketKind::Stream);
    done(&a, SocketControl::Shutdown { how: 1 }).unwrap();
    assert_eq!(write(&a, b"x"), Err(Errno::EPIPE));
    assert_eq!(read(&b, 9), Ok(vec![]));
    assert_eq!(write(&b, b"y"), Ok(1));
    assert_eq!(read(&a, 9), Ok(b"y".to_vec()));
    assert_eq!(b.poll() & (Events::RDHUP | Events::HUP), Events::RDHUP);
}

#[test]
fn a_full_stream_waits_for_its_reader() {
    let (a, b) = pair(SocketKind::Stream);
    block_on(a.set_flags(OpenFlags::empty())).unwrap();
    let lots = vec![1; inbox::LIMIT + 5];
    assert_eq!(write(&a, &lots), Ok(inbox::LIMIT));
    assert!(!a.poll().contains(Events::OUT));
    let mut waiting = a.write(b"more");
    assert!(once(waiting.as_mut()).is_none());
    read(&b, 10).unwrap();
    assert_eq!(once(waiting.as_mut()), Some(Ok(4)));
    let (a, _b) = pair(SocketKind::Datagram);
    assert_eq!(write(&a, &lots), Err(Errno::EMSGSIZE));
}

#[test]
fn files_travel_and_stop_a_stream_read() {
    let (a, b) = pair(SocketKind::Stream);
    let (pipe_end, pipe_writer) = pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
    write(&a, b"plain").unwrap();
    let send = SocketControl::Send { place: None, message: message(b"with", vec![pipe_writer]), flags: 0 };
    control(&a, send).unwrap();
    write(&a, b"after").unwrap();
    assert_eq!(receive(&b, 99).unwrap().bytes, b"plain");
    let got = receive(&b, 99).unwrap();
    assert_eq!((got.bytes.as_slice(), got.files.len()), (&b"with"[..], 1));
    assert_eq!(receive(&b, 99).unwrap().bytes, b"after");
    block_on(got.files[0].write(b"through")).unwrap();
    drop(got);
    let mut buf = [0; 9];
    assert_eq!(block_on(pipe_end.read(&mut buf)), Ok(7));
    assert_eq!(block_on(pipe_end.read(&mut buf)), Ok(0));
}

#[test]
fn credentials_come_when_asked_for_and_cannot_be_forged() {
    let (a, b) = pair(SocketKind::Datagram);
    control(&b, SocketControl::SetOption { level: 1, name: 16, value: 1i32.to_ne_bytes().to_vec() }).unwrap();
    let who = user(9, 5);
    block_on(a.write_from(Source::Kernel(b"x"), Access::by(&who))).unwrap();
    let got = receive(&b, 9).unwrap();
    assert_eq!(got.credentials, Some(UnixCredentials { pid: 9, uid: 5, gid: 0 }));
    let mut forged = message(b"x", Vec::new());
    forged.credentials = Some(UnixCredentials { pid: 1, uid: 0, gid: 0 });
    let send = Control::Socket(SocketControl::Send { place: None, message: forged, flags: 0 });
    assert_eq!(block_on(a.control(&who, send)).err(), Some(Errno::EPERM));
}

#[test]
fn a_server_accepts_what_connects() {
    let names = names();
    let new = || Socket::new(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
    let (server, client) = (new(), new());
    assert_eq!(done(&server, SocketControl::Listen { backlog: 0 }), Err(Errno::EINVAL));
    assert_eq!(done(&client, SocketControl::Connect { place: place(b"s") }), Err(Errno::ECONNREFUSED));
    done(&server, SocketControl::Bind { place: place(b"s"), name: b"\0s".to_vec() }).unwrap();
    let second = done(&new(), SocketControl::Bind { place: place(b"s"), name: Vec::new() });
    assert_eq!(second, Err(Errno::EADDRINUSE));
    assert_eq!(done(&client, SocketControl::Connect { place: place(b"s") }), Err(Errno::ECONNREFUSED));
    done(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    let accept = || control(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None });
    assert_eq!(accept().err(), Some(Errno::EAGAIN));
    done(&client, SocketControl::Connect { place: place(b"s") }).unwrap();
    // Room there is looked for before what the client is.
    assert_eq!(done(&client, SocketControl::Connect { place: place(b"s") }), Err(Errno::EAGAIN));
    let hurried = new();
    assert_eq!(done(&hurried, SocketControl::Connect { place: place(b"s") }), Err(Errno::EAGAIN));
    block_on(hurried.set_flags(OpenFlags::empty())).unwrap();
    let who = caller(7);
    let connect = Control::Socket(SocketControl::Connect { place: place(b"s") });
    let mut waiting: BoxFuture<'_, _> = hurried.control(&who, connect);
    assert!(once(waiting.as_mut()).is_none());
    write(&client, b"early").unwrap();
    assert!(server.poll().contains(Events::IN));
    let Ok(ControlAnswer::File(accepted)) = accept() else { panic!("nobody there") };
    assert!(matches!(once(waiting.as_mut()), Some(Ok(_))), "the backlog has room");
    let mut buf = [0; 9];
    assert_eq!(block_on(accepted.read(&mut buf)), Ok(5));
    assert!(matches!(control(&client, SocketControl::PeerName), Ok(ControlAnswer::Bytes(name)) if name == b"\0s"));
    drop(accepted);
    assert_eq!(read(&client, 9), Ok(vec![]));
    drop(waiting);
    drop(server);
    assert_eq!(done(&new(), SocketControl::Connect { place: place(b"s") }), Err(Errno::ECONNREFUSED));
    assert_eq!(read(&hurried, 9), Err(Errno::ECONNRESET), "never accepted, closed with the server");
    assert_eq!(read(&hurried, 9), Ok(vec![]));
}

#[test]
fn datagrams_find_their_way_by_name_and_tell_it() {
    let names = names();
    let new = || Socket::new(&names, &caller(7), SocketKind::Datagram, OpenFlags::NONBLOCK);
    let (a, b) = (new(), new());
    assert_eq!(write(&a, b"x"), Err(Errno::ENOTCONN));
    done(&a, SocketControl::Bind { place: None, name: Vec::new() }).unwrap();
    done(&b, SocketControl::Bind { place: place(b"b"), name: b"\0b".to_vec() }).unwrap();
    let send = SocketControl::Send { place: place(b"b"), message: message(b"hello", Vec::new()), flags: 0 };
    control(&a, send).unwrap();
    let got = receive(&b, 3).unwrap();
    assert_eq!((got.bytes.as_slice(), got.full_length), (&b"hel"[..], 5));
    assert_eq!(got.name, b"\x0000000");
    done(&a, SocketControl::Connect { place: place(b"b") }).unwrap();
    write(&a, b"again").unwrap();
    assert_eq!(read(&b, 9), Ok(b"again".to_vec()));
    drop(b);
    assert_eq!(write(&a, b"x"), Err(Errno::ECONNREFUSED));
}

#[test]
fn who_waits_for_room_does_not_keep_the_other_side_open() {
    let names = names();
    let new = |kind| Socket::new(&names, &caller(7), kind, OpenFlags::empty());
    let (a, b) = Socket::pair(&names, &caller(7), SocketKind::Stream, OpenFlags::empty());
    while a.poll().contains(Events::OUT) {
        write(&a, &[0; 8192]).unwrap();
    }
    let mut writing = a.write(b"x");
    assert!(once(writing.as_mut()).is_none());
    drop(b);
    assert_eq!(once(writing.as_mut()), Some(Err(Errno::EPIPE)));
    let (who, server) = (caller(7), new(SocketKind::Stream));
    done(&server, SocketControl::Bind { place: place(b"s"), name: b"\0s".to_vec() }).unwrap();
    done(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    let (first, second) = (new(SocketKind::Stream), new(SocketKind::Stream));
    let connect = || Control::Socket(SocketControl::Connect { place: place(b"s") });
    done(&first, SocketControl::Connect { place: place(b"s") }).unwrap();
    let mut waiting = second.control(&who, connect());
    assert!(once(waiting.as_mut()).is_none());
    drop(server);
    assert!(matches!(once(waiting.as_mut()), Some(Err(Errno::ECONNREFUSED))));
    let (from, to) = (new(SocketKind::Datagram), new(SocketKind::Datagram));
    done(&to, SocketControl::Bind { place: place(b"d"), name: b"\0d".to_vec() }).unwrap();
    done(&from, SocketControl::Connect { place: place(b"d") }).unwrap();
    while from.poll().contains(Events::OUT) {
        write(&from, b"x").unwrap();
    }
    let mut writing = from.write(b"x");
    assert!(once(writing.as_mut()).is_none());
    drop(to);
    assert_eq!(once(writing.as_mut()), Some(Err(Errno::ECONNREFUSED)));
}

/// What a kernel's stack has.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(96 << 10).spawn(test).unwrap().join().unwrap();
}

fn send(through: &Socket, files: Vec<Arc<dyn File>>) {
    done(through, SocketControl::Send { place: None, message: message(b"x", files), flags: 0 }).unwrap();
}

#[test]
fn sockets_in_sockets_end_one_after_the_other() {
    on_a_small_stack(|| {
        let names = names();
        let pair = || Socket::pair(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
        let (mut inner, _) = pair();
        for _ in 0..20_000 {
            let (a, b) = pair();
            send(&a, vec![inner]);
            inner = b;
        }
        let last = Arc::downgrade(&inner);
        drop(inner);
        assert!(last.upgrade().is_none());
    });
}

#[test]
fn connections_nobody_accepted_end_with_what_is_in_them() {
    on_a_small_stack(|| {
        let names = names();
        let new = || Socket::new(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
        let mut inner: Arc<dyn File> = new();
        for number in 0..20_000u32 {
            let listener = new();
            done(&listener, SocketControl::Bind { place: place(&number.to_le_bytes()), name: Vec::new() }).unwrap();
            done(&listener, SocketControl::Listen { backlog: 1 }).unwrap();
            let client = new();
            done(&client, SocketControl::Connect { place: place(&number.to_le_bytes()) }).unwrap();
            send(&client, vec![inner]);
            inner = listener;
        }
        drop(inner);
    });
}

#[test]
fn sockets_that_hold_each_other_are_collected_and_no_others() {
    let names = names();
    let pair = || Socket::pair(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
    let (read, write) = pipe(&caller(7), &free(), OpenFlags::NONBLOCK).unwrap();
    let (a, b) = pair();
    // Each is in its own inbox's peer: a circle of two, which also holds the writing end of a pipe.
    send(&a, vec![a.clone(), write]);
    send(&b, vec![b.clone()]);
    // Held by a message that can be received.
    let (c, d) = pair();
    let (e, f) = pair();
    send(&c, vec![e.clone()]);
    send(&f, vec![f.clone()]);
    drop((a, b, e, f));
    assert_eq!(block_on(read.read(&mut [0; 1])), Err(Errno::EAGAIN));
    block_on(names.collect()).unwrap();
    assert_eq!(block_on(read.read(&mut [0; 1])), Ok(0), "the circle is gone, and the pipe's end with it");
    let mut got = receive(&d, 9).unwrap();
    assert_eq!(got.files.len(), 1);
    let back = got.files.pop().unwrap();
    let inner = back.as_any().downcast_ref::<Socket>().unwrap();
    assert_eq!(receive(inner, 9).unwrap().files.len(), 1, "what could still be received is as it was");
}

#[test]
fn the_end_of_any_socket_finds_circles() {
    let names = names();
    let pair = || Socket::pair(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
    let (a, b) = pair();
    let seen = Arc::downgrade(&a);
    send(&a, vec![a.clone()]);
    send(&b, vec![b.clone()]);
    drop((a, b));
    assert!(seen.upgrade().is_some());
    drop(pair());
    assert!(seen.upgrade().is_none());
}

#[test]
fn a_user_has_so_many_descriptors_in_messages() {
    let names = names();
    names.set_accounts(&machine::account::Accounts::new(1 << 20));
    let (a, b) = Socket::pair(&names, &caller(7), SocketKind::Stream, OpenFlags::NONBLOCK);
    let send = |count: usize| {
        let files =
            (0..count).map(|_| pipe(&caller(7), &free(), OpenFlags::empty()).unwrap().0 as Arc<dyn File>).collect();
        let message = SocketMessage { most_in_flight: 10, ..message(b"x", files) };
        done(&a, SocketControl::Send { place: None, message, flags: 0 })
    };
    send(6).unwrap();
    assert_eq!(send(5), Err(Errno::ETOOMANYREFS));
    send(4).unwrap();
    assert_eq!(receive(&b, 9).unwrap().files.len(), 6);
    send(6).unwrap();
    drop(b);
}

#[test]
fn who_may_have_no_more_waits_for_its_own_to_be_read() {
    for kind in [SocketKind::Stream, SocketKind::SeqPacket, SocketKind::Datagram] {
        let names = names();
        // 64 KiB for a user.
        names.set_accounts(&machine::account::Accounts::new(512 << 10));
        let who = user(7, 1000);
        let pair = |flags| Socket::pair(&names, &who, kind, flags);
        let (a, b) = pair(OpenFlags::NONBLOCK);
        let (c, d) = pair(OpenFlags::NONBLOCK);
        let send = |socket: &Socket, bytes: usize| {
            block_on(socket.write_from(Source::Kernel(&vec![1; bytes]), Access::by(&who)))
        };
        assert_eq!((send(&a, 40_000), send(&c, 20_000)), (Ok(40_000), Ok(20_000)));
        let can_write = |socket: &Socket| socket.poll().contains(Events::OUT);
        assert_eq!((can_write(&a), can_write(&c)), (kind == SocketKind::Stream, kind == SocketKind::Stream));
        let more = send(&a, 20_000);
        match kind {
            // What there is room for, and then a few bytes.
            SocketKind::Stream => assert!(more.is_ok_and(|count| count > 4096)),
            _ => assert_eq!((more, send(&a, 4900)), (Err(Errno::EAGAIN), Ok(4900))),
        }
        assert_eq!((send(&a, 1000), send(&c, 1000)), (Err(Errno::EAGAIN), Err(Errno::EAGAIN)));
        assert!(!can_write(&a) && !can_write(&c));
        // Nobody would be told of room.
        let (empty, _other) = pair(OpenFlags::NONBLOCK);
        assert_eq!(send(&empty, 5000), Err(Errno::ENOBUFS));
        // Each waits for its own, whoever else makes room.
        let (waiting, far_end) = pair(OpenFlags::empty());
        assert_eq!(read(&d, 30_000).map(|bytes| bytes.len()), Ok(20_000));
        assert_eq!((send(&waiting, 10_000), send(&c, 9_000)), (Ok(10_000), Ok(9_000)));
        let data = vec![1; 8000];
        let mut write = waiting.write_from(Source::Kernel(&data), Access::by(&who));
        let (waker, woken) = counter();
        assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(read(&far_end, 10_000).map(|bytes| bytes.len()), Ok(10_000));
        assert!(woken() > 0);
        assert_eq!(once(write.as_mut()), Some(Ok(8000)));
        drop((b, write));
    }
}

fn set(socket: &Socket, name: u32, value: i32) {
    done(socket, SocketControl::SetOption { level: 1, name, value: value.to_ne_bytes().to_vec() }).unwrap();
}

fn peek(socket: &Socket) -> Result<Vec<u8>> {
    match control(socket, SocketControl::Receive { bytes: 100, flags: 2 })? {
        ControlAnswer::Message(message) => Ok(message.bytes),
        _ => unreachable!(),
    }
}

#[test]
fn who_looks_goes_on_from_where_it_looked_before() {
    let (a, b) = pair(SocketKind::Stream);
    set(&b, 42, 1);
    write(&a, b"abc").unwrap();
    write(&a, b"def").unwrap();
    assert_eq!((peek(&b), peek(&b)), (Ok(b"bcdef".to_vec()), Err(Errno::EAGAIN)));
    assert_eq!(read(&b, 2), Ok(b"ab".to_vec()));
    write(&a, b"g").unwrap();
    assert_eq!(peek(&b), Ok(b"g".to_vec()));
    let (a, b) = pair(SocketKind::Datagram);
    set(&b, 42, 0);
    for part in [&b"one"[..], b"twoo", b"", b"three"] {
        let send = SocketControl::Send { place: None, message: message(part, Vec::new()), flags: 0 };
        done(&a, send).unwrap();
    }
    for part in [&b"one"[..], b"twoo", b"", b"three"] {
        assert_eq!(peek(&b), Ok(part.to_vec()));
    }
    assert_eq!(peek(&b), Err(Errno::EAGAIN));
    set(&b, 42, 2);
    assert_eq!((peek(&b), read(&b, 9)), (Ok(b"e".to_vec()), Ok(b"one".to_vec())));
    set(&b, 42, 4);
    assert_eq!(peek(&b), Ok(b"three".to_vec()));
}

#[test]
fn a_socket_sends_as_much_as_its_buffer_takes() {
    let sent = |wanted: i32| {
        let (a, b) = pair(SocketKind::Stream);
        set(&a, 7, wanted);
        set(&b, 8, 1);
        core::iter::from_fn(|| write(&a, &[0; 1000]).ok()).sum::<usize>()
    };
    assert_eq!((sent(1), sent(1 << 20)), (4608, 425_984));
    let (a, _b) = pair(SocketKind::SeqPacket);
    set(&a, 7, 5000);
    assert_eq!((write(&a, &[0; 9969]), write(&a, &[0; 9968])), (Err(Errno::EMSGSIZE), Ok(9968)));
}

#[test]
fn who_wants_more_than_the_sender_may_send_takes_what_there_is() {
    let (a, b) = pair(SocketKind::Stream);
    b.flags.set(OpenFlags::empty());
    set(&b, 18, 1 << 20);
    set(&a, 7, 1);
    let mut buf = vec![0; 10_000];
    let mut reading = b.read(&mut buf);
    let mut context = Context::from_waker(core::task::Waker::noop());
    assert!(reading.as_mut().poll(&mut context).is_pending());
    let sent = core::iter::from_fn(|| write(&a, &[0; 1000]).ok()).sum::<usize>();
    assert_eq!(block_on(reading), Ok(sent));
}
