//! TCP and UDP on one kernel; over kernels: remote/tests/internet.rs.

use super::*;
use crate::{control::*, testing::*, Events, File};
use address::mapped;
use alloc::vec;
use core::net::Ipv4Addr;

fn names() -> Arc<UnixNames> {
    Arc::default()
}

fn socket(names: &Arc<UnixNames>, protocol: Protocol) -> Arc<Socket> {
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

fn pair(names: &Arc<UnixNames>) -> (Arc<Socket>, Arc<dyn File>, Arc<Socket>) {
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
