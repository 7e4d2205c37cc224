//! TCP and UDP on one kernel; over kernels: remote/tests/internet.rs.

use super::*;
use crate::{control::*, testing::*, Events, File};
use address::mapped;
use alloc::{boxed::Box, vec};
use core::net::Ipv4Addr;

fn names() -> Arc<NetNamespace> {
    Arc::default()
}

fn socket(names: &Arc<NetNamespace>, protocol: Protocol) -> Arc<Socket> {
    Socket::internet(names, &caller(7), protocol, false, OpenFlags::NONBLOCK)
}

fn at(port: u16) -> Option<SocketAddress> {
    let ip = mapped(Ipv4Addr::LOCALHOST);
    Some(SocketAddress::Other(encode(false, InternetAddress { ip, port })))
}

fn control(socket: &Socket, control: SocketControl) -> Result<ControlAnswer> {
    block_on(socket.control(&caller(7), Control::Socket(control)))
}

fn bind(socket: &Socket, port: u16) -> Result<()> {
    control(socket, SocketControl::Bind { place: at(port), name: Vec::new() }).map(drop)
}

fn connect(socket: &Socket, port: u16) -> Result<()> {
    control(socket, SocketControl::Connect { place: at(port) }).map(drop)
}

fn accept(socket: &Socket) -> Result<Arc<dyn File>> {
    match control(socket, SocketControl::Accept { flags: OpenFlags::NONBLOCK, end: None })? {
        ControlAnswer::File(file) => Ok(file),
        _ => unreachable!(),
    }
}

fn port(socket: &Socket) -> u16 {
    let Ok(ControlAnswer::Bytes(name)) = control(socket, SocketControl::Name) else { panic!("no name") };
    parse(false, &name).unwrap().port
}

fn error(socket: &Socket) -> u8 {
    match control(socket, SocketControl::GetOption { level: 1, name: 4 }) {
        Ok(ControlAnswer::Bytes(value)) => value[0],
        _ => panic!("no option"),
    }
}

fn read(file: &dyn File) -> Result<Vec<u8>> {
    let mut buf = vec![0; 100];
    block_on(file.read(&mut buf)).map(|count| buf[..count].to_vec())
}

pub fn pair(names: &Arc<NetNamespace>) -> (Arc<Socket>, Arc<dyn File>, Arc<Socket>) {
    let (server, client) = (socket(names, Protocol::Tcp), socket(names, Protocol::Tcp));
    bind(&server, 0).unwrap();
    control(&server, SocketControl::Listen { backlog: 5 }).unwrap();
    assert_eq!(connect(&client, port(&server)), Err(Errno::EINPROGRESS));
    assert!(client.poll().contains(Events::OUT));
    assert_eq!(connect(&client, port(&server)), Ok(()));
    assert_eq!(connect(&client, port(&server)), Err(Errno::EISCONN));
    let accepted = accept(&server).unwrap();
    (client, accepted, server)
}

#[test]
fn a_connection_ends_in_peace_or_is_broken_off() {
    let names = names();
    let (client, accepted, _server) = pair(&names);
    block_on(client.write(b"hello")).unwrap();
    assert_eq!(read(&*accepted), Ok(b"hello".to_vec()));
    drop(accepted);
    // The other side has closed: the first write is lost, and the second one knows.
    assert_eq!(client.poll() & (Events::RDHUP | Events::HUP | Events::OUT), Events::RDHUP | Events::OUT);
    assert_eq!(read(&*client), Ok(vec![]));
    assert_eq!(block_on(client.write(b"x")), Ok(1));
    assert_eq!(read(&*client), Ok(vec![]));
    assert_eq!(block_on(client.write(b"x")), Err(Errno::EPIPE));
    let (client, accepted, _server) = pair(&names);
    block_on(client.write(b"unread")).unwrap();
    drop(accepted);
    assert!(client.poll().contains(Events::ERR | Events::HUP | Events::IN));
    assert_eq!(read(&*client), Err(Errno::ECONNRESET));
    assert_eq!(read(&*client), Ok(vec![]));
    let (client, accepted, _server) = pair(&names);
    control(&client, SocketControl::Shutdown { how: 1 }).unwrap();
    assert_eq!(block_on(accepted.write(b"still")), Ok(5));
    assert_eq!((read(&*accepted), read(&*client)), (Ok(vec![]), Ok(b"still".to_vec())));
}

#[test]
fn who_is_refused_hears_of_it_once() {
    let names = names();
    let client = socket(&names, Protocol::Tcp);
    assert_eq!(read(&*client), Err(Errno::ENOTCONN));
    assert_eq!(block_on(client.write(b"x")), Err(Errno::EPIPE));
    assert_eq!(connect(&client, 9), Err(Errno::EINPROGRESS));
    assert!(client.poll().contains(Events::ERR | Events::HUP));
    assert_eq!((error(&client), error(&client)), (111, 0));
    let (client, _accepted, server) = pair(&names);
    let late = socket(&names, Protocol::Tcp);
    assert_eq!(connect(&late, port(&server)), Err(Errno::EINPROGRESS));
    drop(server);
    assert_eq!(read(&*late), Err(Errno::ECONNRESET), "nobody has accepted it");
    assert_eq!(read(&*client), Err(Errno::EAGAIN));
}

#[test]
fn datagrams_come_whole_or_not_at_all() {
    let names = names();
    let (a, b) = (socket(&names, Protocol::Udp), socket(&names, Protocol::Udp));
    bind(&a, 0).unwrap();
    let place = at(port(&a));
    let message = SocketMessage { bytes: b"to a".to_vec(), ..SocketMessage::default() };
    control(&b, SocketControl::Send { place, message, flags: 0 }).unwrap();
    let Ok(ControlAnswer::Message(message)) = control(&a, SocketControl::Receive { bytes: 2, flags: 0 }) else {
        panic!("nothing came")
    };
    assert_eq!((&message.bytes[..], message.full_length), (&b"to"[..], 4));
    assert_eq!(parse(false, &message.name).unwrap().port, port(&b));
    connect(&b, 9).unwrap();
    assert_eq!(block_on(b.write(b"lost")), Ok(4));
    assert_eq!(block_on(b.write(b"lost")), Err(Errno::ECONNREFUSED));
    for _ in 0..2000 {
        let message = SocketMessage { bytes: vec![0; 1000], ..SocketMessage::default() };
        control(&b, SocketControl::Send { place: at(port(&a)), message, flags: 0 }).unwrap();
    }
    assert_eq!(bind(&socket(&names, Protocol::Udp), port(&a)), Err(Errno::EADDRINUSE));
}

fn set(socket: &Socket, level: u32, name: u32, value: i32) -> Result<()> {
    let value = value.to_ne_bytes().to_vec();
    control(socket, SocketControl::SetOption { level, name, value }).map(drop)
}

fn receive(socket: &Socket, flags: u32) -> Result<SocketMessage> {
    match control(socket, SocketControl::Receive { bytes: 100, flags })? {
        ControlAnswer::Message(message) => Ok(message),
        _ => unreachable!(),
    }
}

fn send(socket: &Socket, to: u16, bytes: &[u8], given: Vec<ControlMessage>) -> Result<()> {
    let extra = Some(alloc::boxed::Box::new(MessageExtra { control: given, ..MessageExtra::default() }));
    let message = SocketMessage { bytes: bytes.to_vec(), extra, ..SocketMessage::default() };
    control(socket, SocketControl::Send { place: at(to), message, flags: 0 }).map(drop)
}

fn kinds(message: &SocketMessage) -> Vec<(u32, u32)> {
    message.control().iter().map(|message| (message.level, message.kind)).collect()
}

#[test]
fn a_receiver_is_told_what_it_has_asked_for() {
    let names = names();
    let (a, b) = (socket(&names, Protocol::Udp), socket(&names, Protocol::Udp));
    bind(&a, 0).unwrap();
    send(&b, port(&a), b"plain", Vec::new()).unwrap();
    assert_eq!(receive(&a, 0).unwrap().extra, None);
    for name in [8, 12, 13, 20] {
        set(&a, 0, name, 1).unwrap();
    }
    set(&a, 1, 35, 1).unwrap();
    set(&b, 0, 2, 33).unwrap();
    let tos = ControlMessage { level: 0, kind: 1, data: vec![9] };
    send(&b, port(&a), b"all", vec![tos]).unwrap();
    let message = receive(&a, 0).unwrap();
    assert_eq!(kinds(&message), [(1, 35), (0, 8), (0, 2), (0, 1), (0, 20)]);
    assert_eq!(message.control()[1].data, [1, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    assert_eq!((&message.control()[2].data[..], &message.control()[3].data[..]), (&[33, 0, 0, 0][..], &[9][..]));
}

#[test]
fn errors_wait_in_a_queue_for_who_wants_them() {
    let names = names();
    let a = socket(&names, Protocol::Udp);
    assert_eq!(receive(&a, 0x2000).err(), Some(Errno::EAGAIN));
    send(&a, 9, b"lost", Vec::new()).unwrap();
    assert!(!a.poll().contains(Events::ERR));
    set(&a, 0, 11, 1).unwrap();
    send(&a, 9, b"payload", Vec::new()).unwrap();
    assert!(a.poll().contains(Events::ERR));
    let message = receive(&a, 0x2000).unwrap();
    assert_eq!((&message.bytes[..], parse(false, &message.name).unwrap().port), (&b"payload"[..], 9));
    assert_eq!(kinds(&message), [(0, 11)]);
    assert_eq!(receive(&a, 0).err(), Some(Errno::EAGAIN));
    assert!(!a.poll().contains(Events::ERR));
    send(&a, 9, b"one", Vec::new()).unwrap();
    assert_eq!(send(&a, 9, b"two", Vec::new()), Err(Errno::ECONNREFUSED));
    assert_eq!((error(&a), a.poll().contains(Events::ERR)), (0, true));
    set(&a, 0, 11, 0).unwrap();
    assert!(!a.poll().contains(Events::ERR));
}

#[test]
fn an_echo_request_is_answered() {
    let names = names();
    assert_eq!(block_on(Socket::may_echo(&names, &caller(7))), Err(Errno::EACCES));
    names.set_ping_groups(0, u32::MAX - 1);
    assert_eq!(block_on(Socket::may_echo(&names, &caller(7))), Ok(()));
    let echo = socket(&names, Protocol::Icmp);
    let request = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 3, b'h', b'i'];
    send(&echo, 0, &request(8), Vec::new()).unwrap();
    let answer = receive(&echo, 0).unwrap();
    assert_eq!((answer.bytes[0], &answer.bytes[6..]), (0, &[0, 3, b'h', b'i'][..]));
    assert_eq!(answer.bytes[4..6], port(&echo).to_be_bytes());
    assert_eq!(parse(false, &answer.name).unwrap().port, 0);
    assert_eq!(send(&echo, 0, &request(13), Vec::new()), Err(Errno::EINVAL));
    assert_eq!(send(&echo, 0, &[8, 0, 0], Vec::new()), Err(Errno::EINVAL));
    assert_eq!(receive(&echo, 0).err(), Some(Errno::EAGAIN));
}

#[test]
fn a_read_waits_for_as_much_as_it_wants_and_tells_what_is_left() {
    let names = names();
    let (client, server, _) = pair(&names);
    let server = server.as_any().downcast_ref::<Socket>().unwrap();
    set(server, 1, 18, 5).unwrap();
    set(server, 6, 36, 1).unwrap();
    block_on(client.write(b"abc")).unwrap();
    assert!(!server.poll().contains(Events::IN));
    // Who does not wait takes what there is.
    block_on(client.write(b"def")).unwrap();
    assert!(server.poll().contains(Events::IN));
    let Ok(ControlAnswer::Message(message)) = control(server, SocketControl::Receive { bytes: 2, flags: 0 }) else {
        panic!("nothing came")
    };
    assert_eq!((kinds(&message), &message.control()[0].data[..]), (vec![(6, 36)], &[4, 0, 0, 0][..]));
    set(server, 1, 42, 1).unwrap();
    assert_eq!(receive(server, 2).unwrap().bytes, b"def");
    assert_eq!(receive(server, 2).err(), Some(Errno::EAGAIN));
    assert_eq!(receive(server, 0).unwrap().bytes, b"cdef");
}

#[test]
fn buffers_decide_how_much_a_sender_may_send() {
    let names = names();
    let sent = |wanted: i32| {
        let (client, server, _listener) = pair(&names);
        let server = server.as_any().downcast_ref::<Socket>().unwrap();
        set(&client, 1, 7, wanted).unwrap();
        set(server, 1, 8, wanted).unwrap();
        let mut sent = 0;
        while let Ok(count) = block_on(client.write(&[0; 1000])) {
            sent += count;
        }
        sent
    };
    assert!(sent(1) < 8192);
    assert!(sent(1 << 20) > 400_000);
}

#[test]
fn who_waits_to_connect_does_not_keep_the_listener_open() {
    let names = names();
    let server = socket(&names, Protocol::Tcp);
    bind(&server, 0).unwrap();
    control(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    let (place, waits) =
        (at(port(&server)), || Socket::internet(&names, &caller(7), Protocol::Tcp, false, OpenFlags::empty()));
    let connect = |socket: Arc<Socket>| {
        let connect = Control::Socket(SocketControl::Connect { place: place.clone() });
        async move { socket.control(&caller(7), connect).await.map(drop) }
    };
    block_on(connect(waits())).unwrap();
    let mut second = Box::pin(connect(waits()));
    assert_eq!(once(second.as_mut()), None, "the backlog is full");
    drop(server);
    assert_eq!(once(second.as_mut()), Some(Err(Errno::ECONNREFUSED)));
}
