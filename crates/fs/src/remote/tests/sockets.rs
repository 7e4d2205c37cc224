//! AF_UNIX between kernels.

use super::{circles::Dice, *};
use crate::{
    control::{SocketAddress, SocketControl, SocketMessage, UnixPlace},
    file::{Access, Source},
    socket::{NetNamespace, Socket, SocketKind},
};

/// Kernels whose sockets find each other; kernel 0 keeps the names.
pub(super) fn joined(count: usize) -> (Machine, Vec<Arc<NetNamespace>>) {
    let machine = Machine::new(count);
    let join = |remote: &Arc<Remote>| {
        let names: Arc<NetNamespace> = Arc::default();
        remote.join_sockets(&names, KernelId(0));
        names
    };
    let names = machine.kernels.iter().map(join).collect();
    (machine, names)
}

pub(super) fn place(name: &[u8]) -> Option<SocketAddress> {
    Some(SocketAddress::Unix(UnixPlace::Abstract(name.to_vec())))
}

impl Machine {
    pub(super) fn socket(&self, socket: &Arc<dyn File>, control: SocketControl) -> Result<ControlAnswer> {
        let who = caller(1);
        self.run(socket.control(&who, Control::Socket(control)))
    }

    pub(super) fn bind(&self, socket: &Arc<dyn File>, name: &[u8]) -> Result<ControlAnswer> {
        self.socket(socket, SocketControl::Bind { place: place(name), name: name.to_vec() })
    }

    pub(super) fn connect(&self, socket: &Arc<dyn File>, name: &[u8]) -> Result<ControlAnswer> {
        self.socket(socket, SocketControl::Connect { place: place(name) })
    }
}

pub(super) fn new(names: &[Arc<NetNamespace>], kernel: usize, kind: SocketKind) -> Arc<dyn File> {
    Socket::new(&names[kernel], &caller(1), kind, OpenFlags::empty())
}

#[test]
fn a_connection_has_an_end_on_each_kernel_and_is_used_from_a_third() {
    let (machine, names) = joined(3);
    let (server, client) = (new(&names, 1, SocketKind::Stream), new(&names, 2, SocketKind::Stream));
    machine.bind(&server, b"s").unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    let far = machine.pass(2, 0, &client);
    machine.connect(&far, b"s").unwrap();
    assert_eq!(machine.connect(&client, b"s").err(), Some(Errno::EISCONN));
    let Ok(ControlAnswer::File(accepted)) =
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None })
    else {
        panic!("nobody there")
    };
    let data: Vec<u8> = (0..20_000u32).map(|index| (index % 251) as u8).collect();
    let who = caller(1);
    assert_eq!(machine.run(far.write_from(Source::Kernel(&data), Access::by(&who))), Ok(data.len()));
    let mut back = vec![0; 30_000];
    assert_eq!(machine.run(accepted.read(&mut back)), Ok(data.len()));
    assert_eq!(back[..data.len()], data);
    // A read that waits on kernel 0, through kernel 2, on kernel 1.
    let mut buf = [0; 8];
    let mut reading = far.read(&mut buf);
    assert!(machine.poll(&mut reading).is_none());
    machine.run(accepted.write(b"back")).unwrap();
    assert_eq!(machine.poll(&mut reading), Some(Ok(4)));
    drop(reading);
    machine.run(client.set_flags(OpenFlags::NONBLOCK)).unwrap();
    assert_eq!(machine.run(far.read(&mut buf)), Err(Errno::EAGAIN));
    drop(accepted);
    machine.settle();
    assert_eq!(machine.run(far.read(&mut buf)), Ok(0));
    drop((far, client, server));
    machine.settle();
    assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
    assert_eq!(machine.frames(), 0);
}

/// A server on kernel 0, its accepted end, and a client on kernel 1.
pub(super) fn connected(machine: &Machine, names: &[Arc<NetNamespace>], kind: SocketKind) -> [Arc<dyn File>; 3] {
    let (server, client) = (new(names, 0, kind), new(names, 1, kind));
    machine.bind(&server, b"s").unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    machine.connect(&client, b"s").unwrap();
    let Ok(ControlAnswer::File(accepted)) =
        machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None })
    else {
        panic!("nobody there")
    };
    [server, accepted, client]
}

#[test]
fn an_interrupted_receive_brings_what_was_sent_first() {
    let (machine, names) = joined(3);
    let [server, accepted, client] = connected(&machine, &names, SocketKind::Stream);
    let far = machine.pass(1, 2, &client);
    machine.run(accepted.write(b"first")).unwrap();
    machine.settle();
    let who = caller(1);
    let receive = || Control::Socket(SocketControl::Receive { bytes: 5, flags: 0 });
    let mut receiving = far.control(&who, receive());
    assert!(once(receiving.as_mut()).is_none());
    machine.run(accepted.write(b"second")).unwrap();
    assert!(who.shield.must_stay(), "a signal does not make it leave");
    let Ok(ControlAnswer::Message(message)) = machine.run(receiving) else { panic!("it has left") };
    assert_eq!(message.bytes, b"first");
    let mut buf = [0; 9];
    assert_eq!(machine.run(far.read(&mut buf)), Ok(6));
    drop(server);
}

pub(super) fn messages(machine: &Machine) -> u64 {
    let all = machine.kernels.iter().map(|kernel| kernel.endpoint.stats());
    all.map(|stats| stats.replies_sent + stats.types.iter().map(|kind| kind.sent).sum::<u64>()).sum()
}

/// What the two ends say to each other is all that is said.
/// Also if the one who connects has not heard yet that there is a connection.
#[test]
fn who_waits_in_accept_elsewhere_gets_an_end_of_its_own() {
    let (machine, names) = joined(3);
    let server = new(&names, 0, SocketKind::Stream);
    machine.bind(&server, b"s").unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 1 }).unwrap();
    let (far, client, who) = (machine.pass(0, 2, &server), new(&names, 1, SocketKind::Stream), caller(1));
    let accept = Control::Socket(SocketControl::Accept { flags: OpenFlags::empty(), end: None });
    let mut accepting = far.control(&who, accept);
    assert!(machine.poll(&mut accepting).is_none());
    let mut connecting = client.control(&who, Control::Socket(SocketControl::Connect { place: place(b"s") }));
    let mut accepted = None;
    for _ in 0..10 {
        // It asks where the name is, and then for a connection.
        if accepted.is_none() {
            let _ = once(connecting.as_mut());
        }
        for _ in 0..3 {
            machine.settle();
            accepted = accepted.or_else(|| once(accepting.as_mut()));
        }
        if accepted.is_some() {
            break;
        }
    }
    let Some(Ok(ControlAnswer::File(accepted))) = accepted else { panic!("nobody accepted") };
    assert_eq!(accepted.remote(), None);
    machine.run(accepted.write(b"first")).unwrap();
    machine.run(connecting).unwrap();
    assert_eq!(machine.run(client.read(&mut [0; 9])), Ok(5));
    machine.run(client.write(b"second")).unwrap();
    assert_eq!(machine.run(accepted.read(&mut [0; 9])), Ok(6));
    drop(client);
    assert_eq!(machine.run(accepted.read(&mut [0; 9])), Ok(0));
}

#[test]
fn request_and_reply_are_a_message_each() {
    let (machine, names) = joined(2);
    let [_server, accepted, client] = connected(&machine, &names, SocketKind::Stream);
    machine.settle();
    let before = messages(&machine);
    let mut buf = [0; 100];
    for _ in 0..100 {
        for (from, to) in [(&client, &accepted), (&accepted, &client)] {
            assert!(!to.poll().contains(Events::IN));
            machine.run(from.write(&[7; 90])).unwrap();
            machine.settle();
            assert!(to.poll().contains(Events::IN));
            assert_eq!(machine.run(to.read(&mut buf)), Ok(90));
        }
    }
    assert_eq!(messages(&machine) - before, 200);
}

#[test]
fn a_stream_that_nobody_reads_is_full_and_goes_on() {
    for bytes in [1, 1000, 50_000, 300_000] {
        let (machine, names) = joined(2);
        let [_server, accepted, client] = connected(&machine, &names, SocketKind::Stream);
        machine.run(client.set_flags(OpenFlags::NONBLOCK)).unwrap();
        let (data, mut sent) = (vec![7; bytes], 0);
        let full = loop {
            match machine.run(client.write(&data)) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Errno::EAGAIN);
        assert!(bytes < 1000 || sent > 150_000, "{sent} at {bytes} a write");
        machine.settle();
        assert!(!client.poll().contains(Events::OUT));
        machine.run(client.set_flags(OpenFlags::empty())).unwrap();
        let mut waiting = client.write(b"more");
        assert!(machine.poll(&mut waiting).is_none());
        let (mut buf, mut got) = (vec![0; 10_000], 0);
        let written = loop {
            got += machine.run(accepted.read(&mut buf)).unwrap();
            if let Some(written) = machine.poll(&mut waiting) {
                break written;
            }
        };
        assert_eq!(written, Ok(4));
        drop(waiting);
        machine.run(accepted.set_flags(OpenFlags::NONBLOCK)).unwrap();
        machine.settle();
        while let Ok(count) = machine.run(accepted.read(&mut buf)) {
            got += count;
        }
        assert_eq!(got, sent + 4);
        machine.settle();
        assert!(client.poll().contains(Events::OUT));
        drop((accepted, client));
        machine.settle();
        assert_eq!(machine.frames(), 0);
    }
}

#[test]
fn the_longest_packet_goes_whole_and_ends_say_how_they_end() {
    let (machine, names) = joined(2);
    let [_server, accepted, client] = connected(&machine, &names, SocketKind::SeqPacket);
    let data: Vec<u8> = (0..212_000u32).map(|index| (index % 251) as u8).collect();
    assert_eq!(machine.run(client.write(&data)), Ok(data.len()));
    machine.run(client.set_flags(OpenFlags::NONBLOCK)).unwrap();
    assert_eq!(machine.run(client.write(&data)), Err(Errno::EAGAIN));
    assert_eq!(machine.run(client.write(&[0; 213_000])), Err(Errno::EMSGSIZE));
    let mut back = vec![0; 300_000];
    assert_eq!(machine.run(accepted.read(&mut back)), Ok(data.len()));
    assert_eq!(back[..data.len()], data);
    assert_eq!(machine.run(client.write(b"unread")), Ok(6));
    machine.settle();
    drop(accepted);
    machine.settle();
    assert_eq!(machine.run(client.write(b"x")), Err(Errno::EPIPE));
    assert_eq!(machine.run(client.read(&mut back)), Err(Errno::ECONNRESET));
    assert_eq!(machine.run(client.read(&mut back)), Ok(0));
}

/// What an end sent before the other's kernel died is read, and then there is a reset.
#[test]
fn an_end_outlives_the_kernel_of_the_other() {
    let (machine, names) = joined(2);
    let [_server, accepted, client] = connected(&machine, &names, SocketKind::Stream);
    machine.run(client.write(b"last words")).unwrap();
    machine.run(accepted.set_flags(OpenFlags::NONBLOCK)).unwrap();
    machine.settle();
    machine.kernels[0].endpoint.declare_dead(KernelId(1));
    names[0].kernel_died(KernelId(1));
    let mut buf = [0; 20];
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(10));
    assert_eq!(machine.run(accepted.read(&mut buf)), Err(Errno::ECONNRESET));
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(0));
    assert_eq!(machine.run(accepted.write(b"x")), Err(Errno::EPIPE));
    assert!(accepted.poll().contains(Events::HUP | Events::IN));
}

#[test]
fn names_are_the_machines_and_end_with_their_socket() {
    let (machine, names) = joined(3);
    let (a, b) = (new(&names, 1, SocketKind::Stream), new(&names, 2, SocketKind::Stream));
    machine.bind(&a, b"n").unwrap();
    assert_eq!(machine.bind(&b, b"n").err(), Some(Errno::EADDRINUSE));
    assert_eq!(machine.connect(&b, b"n").err(), Some(Errno::ECONNREFUSED), "it does not listen");
    // The message that it is gone is still on its way.
    drop(a);
    machine.bind(&b, b"n").unwrap();
    machine.settle();
    let c = new(&names, 0, SocketKind::Stream);
    assert_eq!(machine.bind(&c, b"n").err(), Some(Errno::EADDRINUSE));
    drop(b);
    machine.bind(&c, b"n").unwrap();
}

#[test]
fn datagrams_wait_for_room_far_away_and_for_the_end() {
    let (machine, names) = joined(2);
    let (from, to) = (new(&names, 0, SocketKind::Datagram), new(&names, 1, SocketKind::Datagram));
    machine.bind(&to, b"d").unwrap();
    machine.connect(&from, b"d").unwrap();
    let (read, write) = ends();
    let message = SocketMessage { bytes: vec![7; 10_000], files: vec![write], ..SocketMessage::default() };
    machine.socket(&from, SocketControl::Send { place: None, message, flags: 0 }).unwrap();
    let receive = SocketControl::Receive { bytes: 20_000, flags: 0 };
    let Ok(ControlAnswer::Message(got)) = machine.socket(&to, receive) else { panic!("nothing came") };
    assert_eq!((got.bytes.len(), got.files.len()), (10_000, 1));
    machine.run(got.files[0].write(b"x")).unwrap();
    assert_eq!(machine.run(read.read(&mut [0; 4])), Ok(1));
    drop((got, read));
    let mut blocked = loop {
        let mut writing = from.write(b"x");
        match machine.poll(&mut writing) {
            None => break writing,
            done => assert_eq!(done, Some(Ok(1))),
        }
    };
    machine.run(to.read(&mut [0; 4])).unwrap();
    assert_eq!(machine.poll(&mut blocked), Some(Ok(1)));
    drop(blocked);
    let mut blocked = from.write(b"x");
    assert!(machine.poll(&mut blocked).is_none());
    machine.run(from.set_flags(OpenFlags::NONBLOCK)).unwrap();
    assert_eq!(machine.run(from.write(b"x")), Err(Errno::EAGAIN));
    assert!(!from.poll().contains(Events::OUT));
    drop(to);
    assert_eq!(machine.poll(&mut blocked), Some(Err(Errno::ECONNREFUSED)));
    assert!(from.poll().contains(Events::OUT));
    drop(blocked);
    drop(from);
    machine.settle();
    assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
    assert_eq!(machine.frames(), 0);
}

#[test]
fn a_datagram_longer_than_a_transfer_goes_whole_by_read_and_write_too() {
    let (machine, names) = joined(2);
    let (one, other) = Socket::pair(&names[0], &caller(1), SocketKind::Datagram, OpenFlags::empty());
    let (one, other): (Arc<dyn File>, Arc<dyn File>) = (one, other);
    let (far, far_other) = (machine.pass(0, 1, &one), machine.pass(0, 1, &other));
    let data: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
    assert_eq!(machine.run(far.write(&data)), Ok(data.len()));
    let mut back = vec![0; 200_000];
    assert_eq!(machine.run(far_other.read(&mut back)), Ok(data.len()));
    assert_eq!(back[..data.len()], data);
    drop((one, other, far, far_other));
    machine.settle();
    assert_eq!(machine.frames(), 0);
}

/// A listener on kernel 0, who accepts on any, and a client on any that writes all the time: nothing is lost or comes out of order.
#[test]
fn the_accepted_end_is_made_where_it_is_accepted() {
    for kind in [SocketKind::Stream, SocketKind::SeqPacket] {
        for (acceptor, client) in (0..9).map(|pair| (pair / 3, pair % 3)) {
            (0..30).for_each(|seed| accepted_elsewhere(kind, acceptor, client, seed));
        }
    }
}

fn accepted_elsewhere(kind: SocketKind, on: usize, from: usize, seed: u64) {
    let (machine, names) = joined(3);
    let mut dice = Dice((seed * 9 + on as u64 * 3 + from as u64 + 1) * 0x9e37_79b9);
    let (server, client) = (new(&names, 0, kind), new(&names, from, kind));
    machine.bind(&server, b"s").unwrap();
    machine.bind(&client, b"c").unwrap();
    machine.socket(&server, SocketControl::Listen { backlog: 0 }).unwrap();
    machine.connect(&client, b"s").unwrap();
    let there = if on == 0 { server.clone() } else { machine.pass(0, on, &server) };
    // Numbers, a few or many at a time.
    let packets: Vec<Vec<u8>> = (0..30u32)
        .map(|packet| {
            let count = if dice.below(4) == 0 { 1000 } else { 3 };
            (0..count).flat_map(|number| (packet * 1000 + number).to_le_bytes()).collect()
        })
        .collect();
    let all: Vec<u8> = packets.concat();
    let early = dice.below(4);
    packets[..early].iter().for_each(|packet| assert_eq!(machine.run(client.write(packet)), Ok(packet.len())));
    let (client_there, packets, total) = (client.clone(), packets[early..].to_vec(), all.len());
    let mut writer: BoxFuture<'static, ()> = Box::pin(async move {
        for packet in packets {
            let mut done = 0;
            while done < packet.len() {
                done += client_there.write(&packet[done..]).await.unwrap();
            }
        }
    });
    let mut reader: BoxFuture<'static, (Arc<dyn File>, Vec<u8>)> = Box::pin(async move {
        let (who, accept) = (caller(1), SocketControl::Accept { flags: OpenFlags::empty(), end: None });
        let Ok(ControlAnswer::File(accepted)) = there.control(&who, Control::Socket(accept)).await else {
            panic!("nobody there")
        };
        let (mut got, mut buf) = (Vec::new(), [0; 5000]);
        while got.len() < total {
            let count = accepted.read(&mut buf).await.unwrap();
            got.extend_from_slice(&buf[..count]);
        }
        (accepted, got)
    });
    let (mut written, mut read) = (false, None);
    for step in 0.. {
        assert!(step < 100_000, "{kind:?} on {on} from {from}, seed {seed}: it waits for ever");
        match dice.below(6) {
            0 if !written => written = once(writer.as_mut()).is_some(),
            1 if read.is_none() => read = once(reader.as_mut()),
            2 => machine.run_tasks(),
            kernel => drop(machine.kernels[kernel % 3].endpoint.drain(1)),
        }
        if written && read.is_some() {
            break;
        }
    }
    drop((writer, reader));
    let (accepted, got) = read.unwrap();
    assert!(got == all, "{kind:?} on {on} from {from}, seed {seed}");
    machine.settle();
    assert!(accepted.remote().is_none(), "it is here");
    let name = |socket, whose| match machine.socket(socket, whose) {
        Ok(ControlAnswer::Bytes(name)) => name,
        _ => panic!("no name"),
    };
    assert_eq!(
        (name(&accepted, SocketControl::Name), name(&accepted, SocketControl::PeerName)),
        (b"s".to_vec(), b"c".to_vec())
    );
    // Both ways, and each hears of the other's end.
    let mut buf = [0; 10];
    machine.run(accepted.write(b"back")).unwrap();
    assert_eq!(machine.run(client.read(&mut buf)), Ok(4));
    let before = messages(&machine);
    machine.run(client.write(b"and there")).unwrap();
    machine.settle();
    assert_eq!(messages(&machine) - before, u64::from(on != from), "{on} {from}");
    assert_eq!(machine.run(accepted.read(&mut buf)), Ok(9));
    match seed % 2 {
        0 => {
            drop(accepted);
            machine.settle();
            assert_eq!(machine.run(client.read(&mut buf)), Ok(0));
        }
        _ => {
            drop(client);
            machine.settle();
            assert_eq!(machine.run(accepted.read(&mut buf)), Ok(0));
            drop(accepted);
        }
    }
    drop(server);
    machine.settle();
    assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
    assert_eq!(machine.frames(), 0);
}

/// The sender's socket is used from kernel 1: no change of that socket says that the receiver has room again.
#[test]
fn a_stand_ins_datagram_waits_for_the_room_of_its_receiver() {
    for receiver in 0..3 {
        let (machine, names) = joined(3);
        let (from, to) = (new(&names, 0, SocketKind::Datagram), new(&names, receiver, SocketKind::Datagram));
        machine.bind(&to, b"d").unwrap();
        let (through, who) = (machine.pass(0, 1, &from), caller(1));
        let send = || {
            let message = SocketMessage { bytes: vec![7; 10], ..SocketMessage::default() };
            let place = place(b"d");
            through.control(&who, Control::Socket(SocketControl::Send { place, message, flags: 0 }))
        };
        let mut blocked = loop {
            let mut sending = send();
            match machine.poll(&mut sending) {
                None => break sending,
                done => assert!(matches!(done, Some(Ok(ControlAnswer::Number(10))))),
            }
        };
        let mut given_up = send();
        assert!(machine.poll(&mut given_up).is_none());
        drop(given_up);
        machine.run(to.read(&mut [0; 10])).unwrap();
        assert!(matches!(machine.poll(&mut blocked), Some(Ok(ControlAnswer::Number(10)))));
        blocked = send();
        assert!(machine.poll(&mut blocked).is_none());
        drop(to);
        assert_eq!(machine.poll(&mut blocked).unwrap().err(), Some(Errno::ECONNREFUSED));
        drop(blocked);
        drop((through, from));
        machine.settle();
        assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
        assert_eq!(machine.frames(), 0);
    }
}
