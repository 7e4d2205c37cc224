//! A kernel dies that has, or had, an end of a connection.

use super::{
    connections::{accept, data, FAMILIES},
    moves,
    sockets::joined,
    *,
};
use crate::{control::SocketControl, socket::NetNamespace};

/// Kernel `survivor` hears that `dead` has died.
fn hears_of_death(machine: &Machine, names: &[Arc<NetNamespace>], survivor: usize, dead: u16) {
    machine.kernels[survivor].endpoint.declare_dead(KernelId(dead));
    machine.kernels[survivor].kernel_died(KernelId(dead));
    names[survivor].kernel_died(KernelId(dead));
}

/// The kernel of the listener dies when its answer has come, and before who connects has looked at it.
#[test]
fn a_connection_that_begins_as_the_other_kernel_dies_is_reset() {
    for family in FAMILIES {
        let (machine, names) = joined(2);
        let server = family.listen(&machine, &names, 0, 5);
        let client = family.socket(&names, 1);
        let who = caller(1);
        let mut connecting = client.control(&who, family.connecting());
        while !server.poll().contains(Events::IN) {
            assert!(once(connecting.as_mut()).is_none());
            machine.settle();
        }
        hears_of_death(&machine, &names, 1, 0);
        assert!(machine.poll(&mut connecting).expect("it has begun").is_ok());
        drop(connecting);
        assert_eq!(machine.run(client.read(&mut [0; 4])), Err(Errno::ECONNRESET), "{family:?}");
        assert_eq!(machine.run(client.read(&mut [0; 4])), Ok(0));
    }
}

/// The listener's kernel dies, and what was sent there may never have come to who has accepted: both ends hear of it.
#[test]
fn an_accepted_end_hears_that_its_connection_died_with_the_listener() {
    for family in FAMILIES {
        let (machine, names) = joined(3);
        let server = family.listen(&machine, &names, 0, 5);
        let (server, client) = (machine.pass(0, 2, &server), family.socket(&names, 1));
        family.connect(&machine, &client).unwrap();
        let accepted = accept(&machine, &server);
        [1, 2].into_iter().for_each(|survivor| hears_of_death(&machine, &names, survivor, 0));
        assert_eq!(machine.run(client.read(&mut [0; 4])), Err(Errno::ECONNRESET), "{family:?}");
        assert_eq!(machine.run(accepted.read(&mut [0; 4])), Err(Errno::ECONNRESET), "{family:?}");
    }
}

/// The kernel that accepts dies, and the other end's kernel knows it before it is asked to send there.
#[test]
fn an_end_that_moves_to_a_dead_kernel_is_lost() {
    for family in FAMILIES {
        let (machine, names) = joined(3);
        let server = family.listen(&machine, &names, 0, 5);
        let (server, client) = (machine.pass(0, 2, &server), family.socket(&names, 1));
        family.connect(&machine, &client).unwrap();
        hears_of_death(&machine, &names, 1, 2);
        let (accept, who) = (SocketControl::Accept { flags: OpenFlags::empty(), end: None }, caller(1));
        let mut accepting = server.control(&who, Control::Socket(accept));
        assert!(once(accepting.as_mut()).is_none());
        machine.settle();
        assert_eq!(machine.run(client.read(&mut [0; 4])), Err(Errno::ECONNRESET), "{family:?}");
    }
}

/// The listener's kernel dies before its answer has come to who accepts, where the other end has sent already.
#[test]
fn an_end_that_was_never_taken_over_is_lost() {
    for family in FAMILIES {
        let (machine, names) = joined(3);
        let server = family.listen(&machine, &names, 0, 5);
        let (server, client) = (machine.pass(0, 2, &server), family.socket(&names, 1));
        family.connect(&machine, &client).unwrap();
        let (accept, who) = (SocketControl::Accept { flags: OpenFlags::empty(), end: None }, caller(1));
        let mut accepting = server.control(&who, Control::Socket(accept));
        assert!(once(accepting.as_mut()).is_none());
        let hear = |kernel: usize| {
            machine.kernels[kernel].endpoint.drain(1000);
            machine.run_tasks();
        };
        // Now the other end sends to kernel 2, and asks for room there.
        [0, 1].into_iter().for_each(hear);
        let sent = data(20_000);
        let mut writing = client.write(&sent);
        assert!(once(core::pin::Pin::new(&mut writing)).is_none());
        [2, 1].into_iter().for_each(hear);
        assert_eq!(once(core::pin::Pin::new(&mut writing)), Some(Ok(sent.len())), "{family:?}");
        drop(writing);
        [1, 2].into_iter().for_each(|survivor| hears_of_death(&machine, &names, survivor, 0));
        assert!(machine.poll(&mut accepting).expect("nobody answers").is_err());
        drop(accepting);
        assert_eq!(machine.run(client.read(&mut [0; 4])), Err(Errno::ECONNRESET), "{family:?}");
    }
}

#[test]
fn the_kernel_that_an_end_comes_from_may_die() {
    for family in FAMILIES {
        let (machine, names) = moves::machine(4);
        let [server, end, client] = family.connected(&machine, &names);
        let client = moves::go(&machine, 1, 2, client);
        [0, 2, 3].into_iter().for_each(|survivor| hears_of_death(&machine, &names, survivor, 1));
        machine.settle();
        assert_eq!(machine.run(end.write(b"lives")), Ok(5), "{family:?}");
        assert_eq!(machine.run(client.read(&mut [0; 9])), Ok(5), "{family:?}");
        drop((server, end, client));
    }
}
