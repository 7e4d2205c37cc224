//! AF_INET between kernels.

use super::{sockets::joined, *};
use crate::{
    control::{SocketAddress, SocketControl},
    socket::{Protocol, Socket, UnixNames},
};

pub(super) fn new(names: &[Arc<UnixNames>], kernel: usize, protocol: Protocol) -> Arc<dyn File> {
    Socket::internet(&names[kernel], &caller(1), protocol, false, OpenFlags::empty())
}

pub(super) fn at(port: u16) -> Option<SocketAddress> {
    let [high, low] = port.to_be_bytes();
    Some(SocketAddress::Other(vec![2, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]))
}

fn bind(machine: &Machine, socket: &Arc<dyn File>, port: u16) -> Result<()> {
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
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty() })
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
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty() }).unwrap();
        machine.settle();
        assert!(waits.poll().contains(crate::Events::OUT));
        assert!(machine.socket(&waits, SocketControl::Connect { place: at(80) }).is_ok());
    }
}
