//! AF_INET between kernels.

use super::{sockets::joined, *};
use crate::{
    control::{SocketAddress, SocketControl, SocketMessage},
    network::list::{self, SocketList},
    socket::{AllSockets, NetNamespace, Protocol, Socket},
};

pub(super) fn new(names: &[Arc<NetNamespace>], kernel: usize, protocol: Protocol) -> Arc<dyn File> {
    Socket::internet(&names[kernel], &caller(1), protocol, false, OpenFlags::empty())
}

pub(super) fn at(port: u16) -> Option<SocketAddress> {
    let [high, low] = port.to_be_bytes();
    Some(SocketAddress::Other(vec![2, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]))
}

pub(super) fn bind(machine: &Machine, socket: &Arc<dyn File>, port: u16) -> Result<()> {
    machine.socket(socket, SocketControl::Bind { place: at(port), name: Vec::new() }).map(drop)
}

fn name(machine: &Machine, socket: &Arc<dyn File>, whose: SocketControl) -> (u16, u8) {
    match machine.socket(socket, whose) {
        Ok(ControlAnswer::Bytes(name)) => (u16::from_be_bytes([name[2], name[3]]), name[7]),
        _ => panic!("no name"),
    }
}

#[test]
fn a_port_is_the_machines_and_a_connection_goes_over_kernels() {
    let (machine, names) = joined(3);
    let (server, other) = (new(&names, 1, Protocol::Tcp), new(&names, 2, Protocol::Tcp));
    bind(&machine, &server, 80).unwrap();
    assert_eq!(bind(&machine, &other, 80), Err(Errno::EADDRINUSE));
    machine.socket(&server, SocketControl::Listen { backlog: 5 }).unwrap();
    let client = new(&names, 2, Protocol::Tcp);
    machine.socket(&client, SocketControl::Connect { place: at(80) }).unwrap();
    let Ok(ControlAnswer::File(accepted)) =
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None })
    else {
        panic!("nobody there")
    };
    let (ours, theirs) =
        (name(&machine, &client, SocketControl::Name), name(&machine, &accepted, SocketControl::PeerName));
    assert_eq!(ours, theirs);
    assert_eq!(name(&machine, &client, SocketControl::PeerName), (80, 1));
    let mut buf = [0; 9];
    assert_eq!(machine.run(client.write(b"over")), Ok(4));
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(4));
    assert_eq!(machine.run(accepted.write(b"back")), Ok(4));
    assert_eq!(machine.run(client.read(&mut buf)), Ok(4));
    drop(accepted);
    assert_eq!(machine.run(client.read(&mut buf)), Ok(0));
    drop(server);
    // Whether or not the keeper has heard of it yet.
    bind(&machine, &other, 80).unwrap();
}

/// What a listener leaves when it is closed is its connection's, which others may share, whether or not the keeper has heard of it yet.
#[test]
fn who_listens_anew_does_not_wait_for_old_connections() {
    let (machine, names) = joined(3);
    let sharing = |kernel| {
        let socket = new(&names, kernel, Protocol::Tcp);
        let value = 1i32.to_ne_bytes().to_vec();
        machine.socket(&socket, SocketControl::SetOption { level: 1, name: 2, value }).unwrap();
        socket
    };
    let (server, other) = (sharing(1), sharing(2));
    bind(&machine, &server, 80).unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 5 }).unwrap();
    let client = new(&names, 2, Protocol::Tcp);
    machine.socket(&client, SocketControl::Connect { place: at(80) }).unwrap();
    let accept = SocketControl::Accept { flags: OpenFlags::empty(), end: None };
    let Ok(ControlAnswer::File(accepted)) = machine.socket(&server, accept) else { panic!("nobody there") };
    assert_eq!(bind(&machine, &other, 80), Err(Errno::EADDRINUSE));
    drop(server);
    bind(&machine, &other, 80).unwrap();
    machine.socket(&other, SocketControl::Listen { backlog: 5 }).unwrap();
    assert_eq!(bind(&machine, &new(&names, 0, Protocol::Tcp), 80), Err(Errno::EADDRINUSE));
    assert_eq!(machine.run(accepted.write(b"still")), Ok(5));
    drop((other, accepted));
    machine.settle();
    bind(&machine, &new(&names, 0, Protocol::Tcp), 80).unwrap();
}

/// The end is on kernel 0, what keeps the port on kernel 1.
#[test]
fn a_connection_that_was_accepted_elsewhere_has_its_port() {
    let (machine, names) = joined(3);
    let (server, other) = (new(&names, 1, Protocol::Tcp), new(&names, 2, Protocol::Tcp));
    bind(&machine, &server, 80).unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 5 }).unwrap();
    let client = new(&names, 2, Protocol::Tcp);
    machine.socket(&client, SocketControl::Connect { place: at(80) }).unwrap();
    assert_eq!(machine.run(client.write(b"early")), Ok(5));
    let there = machine.pass(1, 0, &server);
    let Ok(ControlAnswer::File(accepted)) =
        machine.socket(&there, SocketControl::Accept { flags: OpenFlags::empty(), end: None })
    else {
        panic!("nobody there")
    };
    assert!(accepted.remote().is_none());
    assert_eq!(name(&machine, &accepted, SocketControl::Name), (80, 1));
    let ours = name(&machine, &client, SocketControl::Name);
    assert_eq!(name(&machine, &accepted, SocketControl::PeerName), ours);
    let mut buf = [0; 9];
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(5));
    assert_eq!(machine.run(accepted.write(b"back")), Ok(4));
    machine.settle();
    assert_eq!(machine.run(client.read(&mut buf)), Ok(4));
    drop((there, server));
    machine.settle();
    assert_eq!(bind(&machine, &other, 80), Err(Errno::EADDRINUSE));
    drop(client);
    machine.settle();
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(0));
    drop(accepted);
    machine.settle();
    bind(&machine, &other, 80).unwrap();
    assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
}

#[test]
fn every_kernel_gives_ports_of_its_own() {
    let (machine, names) = joined(3);
    let mut given = Vec::new();
    for kernel in 0..3 {
        let socket = new(&names, kernel, Protocol::Udp);
        bind(&machine, &socket, 0).unwrap();
        let (port, _) = name(&machine, &socket, SocketControl::Name);
        // Anybody may want it, from anywhere.
        for other in 0..3 {
            assert_eq!(bind(&machine, &new(&names, other, Protocol::Udp), port), Err(Errno::EADDRINUSE));
        }
        given.push((port, socket));
    }
    for (port, socket) in &given {
        for kernel in 0..3 {
            let from = new(&names, kernel, Protocol::Udp);
            machine.socket(&from, SocketControl::Connect { place: at(*port) }).unwrap();
            assert_eq!(machine.run(from.write(b"data")), Ok(4));
            assert_eq!(machine.run(socket.read(&mut [0; 9])), Ok(4));
        }
    }
    let from = new(&names, 0, Protocol::Udp);
    machine.socket(&from, SocketControl::Connect { place: at(given[2].0) }).unwrap();
    given.clear();
    machine.settle();
    assert_eq!(machine.run(from.write(b"lost")), Ok(4));
    assert_eq!(machine.run(from.write(b"lost")), Err(Errno::ECONNREFUSED));
}

/// A connect that finds no room goes on by itself, and keeps nothing of a socket that is closed meanwhile.
#[test]
fn who_waits_for_room_keeps_no_closed_socket() {
    for there in [0, 1] {
        let (machine, names) = joined(2);
        let server = new(&names, there, Protocol::Tcp);
        bind(&machine, &server, 80).unwrap();
        machine.socket(&server, SocketControl::Listen { backlog: 0 }).unwrap();
        let first = new(&names, 0, Protocol::Tcp);
        machine.socket(&first, SocketControl::Connect { place: at(80) }).unwrap();
        let hurried = || {
            let client: Arc<dyn File> =
                Socket::internet(&names[0], &caller(1), Protocol::Tcp, false, OpenFlags::NONBLOCK);
            let tried = machine.socket(&client, SocketControl::Connect { place: at(80) });
            assert_eq!(tried.err(), Some(Errno::EINPROGRESS));
            client
        };
        let (closed, waits) = (hurried(), hurried());
        let gone = Arc::downgrade(&closed);
        drop(closed);
        machine.settle();
        assert!(gone.upgrade().is_none());
        assert!(waits.poll().is_empty());
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None }).unwrap();
        machine.settle();
        assert!(waits.poll().contains(crate::Events::OUT));
        assert!(machine.socket(&waits, SocketControl::Connect { place: at(80) }).is_ok());
    }
}

#[test]
fn lists_name_the_sockets_of_all_kernels() {
    let (machine, names) = joined(3);
    let mut open = Vec::new();
    for kernel in 0..3 {
        for port in 0..40 {
            let socket = new(&names, kernel, Protocol::Tcp);
            bind(&machine, &socket, 4000 + kernel as u16 * 100 + port).unwrap();
            machine.socket(&socket, SocketControl::Listen { backlog: 7 }).unwrap();
            open.push(socket);
        }
        open.push(new(&names, kernel, Protocol::Tcp));
        open.push(new(&names, kernel, Protocol::Udp));
    }
    let client = new(&names, 2, Protocol::Tcp);
    machine.socket(&client, SocketControl::Connect { place: at(4000) }).unwrap();
    let list = AllSockets(names[1].clone());
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let tcp = list::Protocol { number: 6, six: false };
        let page = machine.run(list.internet(tcp, at)).unwrap();
        all.extend(page.sockets.into_iter().map(|socket| (socket.local.port(), socket.info)));
        from = page.next;
    }
    let mut listening: Vec<u16> =
        all.iter().filter(|(_, info)| info.state == list::state::LISTEN).map(|(port, _)| *port).collect();
    // In tests inode numbers do not say the kernel: each is asked for all, so only the one asked first is seen whole.
    listening.sort_unstable();
    listening.dedup();
    assert!(listening.len() >= 40, "{listening:?}");
    let waits = all.iter().find(|(port, info)| *port == 4000 && info.state == list::state::LISTEN).unwrap();
    assert_eq!((waits.1.receive_queue, waits.1.send_queue), (1, 7));
    assert!(all.iter().any(|(_, info)| info.state == list::state::ESTABLISHED));
}

fn send(machine: &Machine, socket: &Arc<dyn File>, place: Option<SocketAddress>, bytes: &[u8], flags: u32) {
    let message = SocketMessage { bytes: bytes.to_vec(), ..SocketMessage::default() };
    machine.socket(socket, SocketControl::Send { place, message, flags }).unwrap();
    machine.settle();
}

fn receive(machine: &Machine, socket: &Arc<dyn File>, flags: u32) -> Result<SocketMessage> {
    match machine.socket(socket, SocketControl::Receive { bytes: 100, flags })? {
        ControlAnswer::Message(message) => Ok(message),
        _ => unreachable!(),
    }
}

fn set(machine: &Machine, socket: &Arc<dyn File>, level: u32, name: u32, value: i32) {
    let value = value.to_ne_bytes().to_vec();
    machine.socket(socket, SocketControl::SetOption { level, name, value }).unwrap();
}

/// Sent before it was accepted, on a third kernel, and afterwards.
#[test]
fn urgent_bytes_go_over_kernels() {
    const MSG_OOB: u32 = 1;
    let (machine, names) = joined(3);
    let server = new(&names, 1, Protocol::Tcp);
    bind(&machine, &server, 80).unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 5 }).unwrap();
    let client = new(&names, 2, Protocol::Tcp);
    machine.socket(&client, SocketControl::Connect { place: at(80) }).unwrap();
    send(&machine, &client, None, b"ab!", MSG_OOB);
    send(&machine, &client, None, b"cd", 0);
    let there = machine.pass(1, 0, &server);
    let accept = SocketControl::Accept { flags: OpenFlags::empty(), end: None };
    let Ok(ControlAnswer::File(accepted)) = machine.socket(&there, accept) else { panic!("nobody there") };
    let received = |flags| receive(&machine, &accepted, flags).map(|message| message.bytes);
    assert_eq!(received(0), Ok(b"ab".to_vec()));
    assert_eq!((received(MSG_OOB), received(MSG_OOB)), (Ok(b"!".to_vec()), Err(Errno::EINVAL)));
    assert_eq!(received(0), Ok(b"cd".to_vec()));
    send(&machine, &client, None, b"ef?", MSG_OOB);
    assert_eq!((received(0), received(MSG_OOB)), (Ok(b"ef".to_vec()), Ok(b"?".to_vec())));
    send(&machine, &accepted, None, b"!", MSG_OOB);
    assert_eq!(receive(&machine, &client, MSG_OOB).map(|message| message.bytes), Ok(b"!".to_vec()));
}

#[test]
fn a_datagram_brings_its_header_over_kernels() {
    let (machine, names) = joined(3);
    let (from, to) = (new(&names, 1, Protocol::Udp), new(&names, 2, Protocol::Udp));
    bind(&machine, &to, 80).unwrap();
    for name in [8, 12] {
        set(&machine, &to, 0, name, 1);
    }
    set(&machine, &from, 0, 2, 33);
    send(&machine, &from, at(80), b"data", 0);
    let message = receive(&machine, &to, 0).unwrap();
    let control: Vec<_> = message.control().iter().map(|control| (control.kind, control.data.clone())).collect();
    assert_eq!(control, [(8, vec![1, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]), (2, vec![33, 0, 0, 0])]);
    // Of nobody's port the sender hears, whichever kernel has looked for it.
    set(&machine, &from, 0, 11, 1);
    send(&machine, &from, at(81), b"lost", 0);
    assert_eq!(receive(&machine, &from, 0x2000).unwrap().bytes, b"lost");
    names[0].set_ping_groups(5, 7);
    assert_eq!(machine.run(names[2].ping_groups_of_all()), Ok((5, 7)));
}
