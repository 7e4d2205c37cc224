//! Connections whose ends are on two kernels: their ends, their windows, and many of them.

use super::{
    internet,
    sockets::{self, joined},
    *,
};
use crate::{
    control::{SocketControl, SocketMessage},
    socket::{NetNamespace, Protocol, SocketKind},
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use machine::{
    account::{Accounts, Resource},
    Pid,
};

const PEEK: u32 = 2;

/// By AF_UNIX, streams and packets, and by TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Stream,
    Packets,
    Tcp,
}

pub(super) const FAMILIES: [Family; 3] = [Family::Stream, Family::Packets, Family::Tcp];

impl Family {
    pub(super) fn socket(self, names: &[Arc<NetNamespace>], kernel: usize) -> Arc<dyn File> {
        match self {
            Family::Stream => sockets::new(names, kernel, SocketKind::Stream),
            Family::Packets => sockets::new(names, kernel, SocketKind::SeqPacket),
            Family::Tcp => internet::new(names, kernel, Protocol::Tcp),
        }
    }

    pub(super) fn listen(
        self,
        machine: &Machine,
        names: &[Arc<NetNamespace>],
        kernel: usize,
        backlog: i32,
    ) -> Arc<dyn File> {
        let server = self.socket(names, kernel);
        match self {
            Family::Tcp => {
                machine.socket(&server, SocketControl::Bind { place: internet::at(80), name: Vec::new() }).unwrap()
            }
            _ => machine.bind(&server, b"s").unwrap(),
        };
        machine.socket(&server, SocketControl::Listen { backlog }).unwrap();
        server
    }

    pub(super) fn connecting(self) -> Control {
        Control::Socket(match self {
            Family::Tcp => SocketControl::Connect { place: internet::at(80) },
            _ => SocketControl::Connect { place: sockets::place(b"s") },
        })
    }

    pub(super) fn connect(self, machine: &Machine, client: &Arc<dyn File>) -> Result<()> {
        machine.run(client.control(&caller(1), self.connecting())).map(drop)
    }

    pub(super) fn connect_another(
        self,
        machine: &Machine,
        names: &[Arc<NetNamespace>],
        kernel: usize,
    ) -> Arc<dyn File> {
        let client = self.socket(names, kernel);
        self.connect(machine, &client).unwrap();
        client
    }

    /// A server on kernel 0, the end that it has accepted, and a client on kernel 1.
    pub(super) fn connected(self, machine: &Machine, names: &[Arc<NetNamespace>]) -> [Arc<dyn File>; 3] {
        self.connected_from(machine, names, 0)
    }

    /// The same, but who accepts does so on kernel `accepts`.
    pub(super) fn connected_from(
        self,
        machine: &Machine,
        names: &[Arc<NetNamespace>],
        accepts: usize,
    ) -> [Arc<dyn File>; 3] {
        let (server, client) = (self.listen(machine, names, 0, 0), self.socket(names, 1));
        let server = if accepts == 0 { server } else { machine.pass(0, accepts, &server) };
        self.connect(machine, &client).unwrap();
        let accepted = accept(machine, &server);
        [server, accepted, client]
    }
}

pub(super) fn accept(machine: &Machine, server: &Arc<dyn File>) -> Arc<dyn File> {
    match machine.socket(server, SocketControl::Accept { flags: OpenFlags::empty(), end: None }) {
        Ok(ControlAnswer::File(accepted)) => accepted,
        _ => panic!("nobody there"),
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl alloc::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

pub(super) fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % 251) as u8).collect()
}

pub(super) fn now(machine: &Machine, file: &Arc<dyn File>) {
    machine.run(file.set_flags(OpenFlags::NONBLOCK)).unwrap();
}

/// Frames that carry data are lent until it was copied, though the socket that sent it is closed at once.
#[test]
fn what_was_sent_before_a_close_arrives() {
    for family in FAMILIES {
        let (machine, names) = joined(2);
        let [server, accepted, client] = family.connected(&machine, &names);
        machine.settle();
        // After this there is room for as much again, and nothing is asked.
        let sent = data(50_000);
        assert_eq!(machine.run(client.write(&sent)), Ok(sent.len()));
        let mut back = vec![0; 60_000];
        assert_eq!(machine.run(accepted.read(&mut back)), Ok(sent.len()));
        machine.settle();
        let mut writing = client.write(&sent);
        assert_eq!(once(core::pin::Pin::new(&mut writing)), Some(Ok(sent.len())));
        drop(writing);
        drop(client);
        // The frames are given to others meanwhile.
        let memory = TestMemory(KernelId(1), machine.ram.clone());
        let others: Vec<Frame> = (0..20).map(|_| memory.alloc().unwrap()).collect();
        assert_eq!(machine.run(accepted.read(&mut back)), Ok(sent.len()), "{family:?}");
        assert_eq!(back[..sent.len()], sent);
        assert_eq!(machine.run(accepted.read(&mut back)), Ok(0));
        others.into_iter().for_each(|frame| memory.release(frame));
        drop((server, accepted));
        machine.settle();
        assert_eq!(machine.frames(), 0);
    }
}

/// Descriptors in messages that nobody has received stay charged when their sender has gone.
#[test]
fn descriptors_in_flight_are_charged_until_they_are_received() {
    let (machine, names) = joined(2);
    let accounts = Accounts::new(64 << 20);
    names[1].set_accounts(&accounts);
    let payer = accounts.of(Pid(1), 0);
    let server = Family::Stream.listen(&machine, &names, 0, 5);
    let mut accepted = Vec::new();
    for _ in 0..3 {
        let client = Family::Stream.socket(&names, 1);
        Family::Stream.connect(&machine, &client).unwrap();
        accepted.push(accept(&machine, &server));
        let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
        let message =
            SocketMessage { bytes: vec![1], files: vec![file], most_in_flight: 3, ..SocketMessage::default() };
        machine.socket(&client, SocketControl::Send { place: None, message, flags: 0 }).unwrap();
        machine.settle();
    }
    assert_eq!(payer.used(Resource::DescriptorsInFlight), 3);
    let receive = SocketControl::Receive { bytes: 1, flags: 0 };
    machine.socket(&accepted[0], receive).unwrap();
    machine.settle();
    assert_eq!(payer.used(Resource::DescriptorsInFlight), 2);
    // Lost unread.
    accepted.clear();
    machine.settle();
    assert_eq!(payer.used(Resource::DescriptorsInFlight), 0);
    assert_eq!(machine.kernels[1].exported(), 0);
}

/// A sender found no room before its connection was accepted, on another kernel: it hears when all is received there.
#[test]
fn who_waits_for_room_hears_of_it_from_where_the_connection_was_accepted() {
    for family in FAMILIES {
        let (machine, names) = joined(3);
        let server = family.listen(&machine, &names, 0, 5);
        let (server, client) = (machine.pass(0, 2, &server), family.socket(&names, 1));
        family.connect(&machine, &client).unwrap();
        now(&machine, &client);
        machine.run(client.write(&data(5000))).unwrap();
        let longest = data(212_900);
        while machine.run(client.write(&longest)).is_ok() {}
        assert!(!client.poll().contains(Events::OUT), "{family:?}");
        let accepted = accept(&machine, &server);
        now(&machine, &accepted);
        let mut buffer = vec![0; 300_000];
        while machine.run(accepted.read(&mut buffer)).is_ok() {}
        machine.settle();
        assert!(client.poll().contains(Events::OUT), "{family:?}");
    }
}

/// Who looks at how much is unread hears of the room that there is, too.
#[test]
fn who_asks_what_is_unread_loses_no_room() {
    use linux_raw_sys::ioctl::TIOCOUTQ;
    let (machine, names) = joined(2);
    let [_server, accepted, client] = Family::Stream.connected(&machine, &names);
    now(&machine, &client);
    now(&machine, &accepted);
    let sent = data(250_000);
    while machine.run(client.write(&sent)).is_ok() {}
    // A write that takes all the room there is: nobody waits for more.
    machine.run(accepted.read(&mut vec![0; 60_000])).unwrap();
    machine.settle();
    let count = machine.run(client.write(&sent)).unwrap();
    assert!(count < sent.len() && !client.poll().contains(Events::OUT));
    let mut left = 1;
    while left > 0 {
        let _ = machine.run(accepted.read(&mut [0; 20_000]));
        let mut number = vec![0; 4];
        machine.run(client.ioctl(&caller(1), TIOCOUTQ, &mut number)).unwrap();
        left = u32::from_le_bytes(number[..4].try_into().unwrap());
        machine.settle();
    }
    assert!(client.poll().contains(Events::OUT));
}

/// The answer to who wants room may come before the word that the other end has closed in peace.
#[test]
fn a_close_in_peace_stays_one_for_who_wants_room() {
    for family in FAMILIES {
        let (machine, names) = joined(2);
        let [_server, accepted, client] = family.connected(&machine, &names);
        machine.settle();
        let sent = data(50_000);
        let mut writing = client.write(&sent);
        assert!(once(core::pin::Pin::new(&mut writing)).is_none(), "it asks for room");
        drop(accepted);
        let written = machine.poll(&mut writing).expect("it hears of the end");
        drop(writing);
        match family {
            // A first write is taken, and answered with a reset.
            Family::Tcp => assert_eq!(written, Ok(sent.len())),
            _ => {
                assert_eq!(written, Err(Errno::EPIPE), "{family:?}");
                assert_eq!(machine.run(client.read(&mut [0; 4])), Ok(0), "{family:?}");
            }
        }
    }
}

/// A first write to an end that has closed is an event for who polls.
#[test]
fn who_polls_hears_what_a_write_into_nowhere_brings() {
    let (machine, names) = joined(2);
    let [_server, accepted, client] = Family::Tcp.connected(&machine, &names);
    drop(accepted);
    machine.settle();
    let (files, who) = ([(client.clone(), Events::empty())], caller(1));
    let mut polling: BoxFuture<'_, _> = Box::pin(poll::wait(&who, &files, None));
    let woken = Arc::new(Woken::default());
    let waker = core::task::Waker::from(woken.clone());
    assert!(polling.as_mut().poll(&mut core::task::Context::from_waker(&waker)).is_pending());
    assert_eq!(machine.run(client.write(b"x")), Ok(1));
    assert!(woken.0.load(Relaxed));
    assert_eq!(machine.poll(&mut polling), Some(Ok(vec![Events::ERR | Events::HUP])));
}

/// What one end sends before it knows that the other is shut was sent before: it is there, as on one kernel.
#[test]
fn shut_in_every_way() {
    const IN: u32 = 0;
    const OUT: u32 = 1;
    const BOTH: u32 = 2;
    for family in FAMILIES {
        for how in [IN, OUT, BOTH] {
            for by_server in [false, true] {
                let (machine, names) = joined(2);
                let [_server, accepted, client] = family.connected(&machine, &names);
                let (one, other) = if by_server { (accepted, client) } else { (client, accepted) };
                let what = format!("{family:?}, {how}, {by_server}");
                machine.run(one.write(b"before")).unwrap();
                machine.run(other.write(b"crosses")).unwrap();
                machine.socket(&one, SocketControl::Shutdown { how }).unwrap();
                machine.settle();
                now(&machine, &one);
                now(&machine, &other);
                let mut buf = [0; 20];
                // Nothing is lost.
                assert_eq!(machine.run(other.read(&mut buf)), Ok(6), "{what}");
                assert_eq!(machine.run(one.read(&mut buf)), Ok(7), "{what}");
                let (no_more_in, no_more_out) = (how != OUT, how != IN);
                let end = |shut| if shut { Ok(0) } else { Err(Errno::EAGAIN) };
                assert_eq!(machine.run(one.read(&mut buf)), end(no_more_in), "{what}");
                assert_eq!(machine.run(other.read(&mut buf)), end(no_more_out), "{what}");
                let sent = |shut| if shut { Err(Errno::EPIPE) } else { Ok(1) };
                assert_eq!(machine.run(one.write(b"x")), sent(no_more_out), "{what}");
                // By TCP nobody is told that nobody reads.
                let told = no_more_in && family != Family::Tcp;
                assert_eq!(machine.run(other.write(b"x")), sent(told), "{what}");
                machine.settle();
                assert_eq!(one.poll().contains(Events::RDHUP), no_more_in, "{what}");
                assert_eq!(one.poll().contains(Events::HUP), how == BOTH, "{what}");
                assert_eq!(other.poll().contains(Events::RDHUP), no_more_out, "{what}");
                assert_eq!(other.poll().contains(Events::HUP), how == BOTH && family != Family::Tcp, "{what}");
            }
        }
    }
}

/// Data that is on its way to an end that closes is answered with a reset, as is what that has not read.
#[test]
fn a_close_with_data_under_way_is_a_reset() {
    for family in FAMILIES {
        for arrived in [false, true] {
            let (machine, names) = joined(2);
            let [_server, accepted, client] = family.connected(&machine, &names);
            machine.run(accepted.write(b"answer")).unwrap();
            machine.settle();
            assert_eq!(machine.run(client.write(b"unread")), Ok(6));
            if arrived {
                machine.settle();
            }
            drop(accepted);
            machine.settle();
            let mut buf = [0; 20];
            assert_eq!(machine.run(client.read(&mut buf)), Ok(6), "what it had sent");
            let reset = match (family, arrived) {
                // After it had closed in peace (tcp_reset).
                (Family::Tcp, false) => Ok(0),
                _ => Err(Errno::ECONNRESET),
            };
            assert_eq!(machine.run(client.read(&mut buf)), reset, "{family:?} {arrived}");
            assert_eq!(machine.run(client.read(&mut buf)), Ok(0));
            assert_eq!(machine.run(client.write(b"x")), Err(Errno::EPIPE));
        }
    }
}

#[test]
fn more_than_a_page_is_looked_at_and_counted_before_it_is_read() {
    use linux_raw_sys::ioctl::FIONREAD;
    for family in [Family::Stream, Family::Tcp] {
        let (machine, names) = joined(2);
        let [_server, accepted, client] = family.connected(&machine, &names);
        let sent = data(100_000);
        let mut done = 0;
        while done < sent.len() {
            done += machine.run(client.write(&sent[done..])).unwrap();
        }
        machine.settle();
        let mut number = vec![0; 4];
        machine.run(accepted.ioctl(&caller(1), FIONREAD, &mut number)).unwrap();
        assert_eq!(u32::from_le_bytes(number[..4].try_into().unwrap()) as usize, sent.len());
        for flags in [PEEK, PEEK, 0] {
            let receive = SocketControl::Receive { bytes: 200_000, flags };
            let Ok(ControlAnswer::Message(message)) = machine.socket(&accepted, receive) else { panic!("nothing") };
            assert_eq!(message.bytes, sent);
        }
    }
}

/// Half of the user's memory is windows; the rest is used up otherwise. Whoever reads lets whoever sends go on.
#[test]
fn a_window_that_can_not_grow_lets_all_through() {
    for family in FAMILIES {
        for user in [1, 2] {
            let (machine, names) = joined(2);
            let accounts = Accounts::new(8 * 40_000);
            names[0].set_accounts(&accounts);
            let (server, client) = (family.listen(&machine, &names, 0, 0), family.socket(&names, 1));
            let who = crate::testing::user(user, 1000);
            machine.run(client.control(&who, family.connecting())).unwrap();
            let accepted = accept(&machine, &server);
            let payer = accounts.of(Pid(user), 1000);
            let others = payer.charge(Resource::Memory, payer.room(Resource::Memory)).unwrap();
            now(&machine, &accepted);
            let sent = data(if family == Family::Packets { 3000 } else { 10_000 });
            let (mut done, mut got) = (0, 0);
            let mut buf = vec![0; 700];
            for _ in 0..4 {
                let mut from = 0;
                while from < sent.len() {
                    let mut writing = client.write(&sent[from..]);
                    loop {
                        if let Some(count) = machine.poll(&mut writing) {
                            from += count.unwrap();
                            break;
                        }
                        got += machine.run(accepted.read(&mut buf)).expect("something to be read, while one waits");
                    }
                }
                done += from;
            }
            machine.settle();
            while let Ok(count) = machine.run(accepted.read(&mut buf)) {
                got += count;
                machine.settle();
            }
            match family {
                // The rest of each is lost.
                Family::Packets => assert_eq!(got, 4 * buf.len()),
                _ => assert_eq!(got, done),
            }
            drop(others);
            drop((client, accepted));
            machine.settle();
            assert_eq!(payer.used(Resource::Memory), 0);
        }
    }
}

/// Whoever has the socket through another kernel waits as quietly as others do.
#[test]
fn who_waits_for_room_from_a_third_kernel_asks_no_more_than_it_hears() {
    for family in FAMILIES {
        let (machine, names) = joined(3);
        let [_server, accepted, client] = family.connected(&machine, &names);
        let far = machine.pass(1, 2, &client);
        now(&machine, &far);
        let sent = data(50_000);
        while machine.run(far.write(&sent)).is_ok() {}
        machine.run(far.set_flags(OpenFlags::empty())).unwrap();
        let mut writing = far.write(&sent);
        assert!(machine.poll(&mut writing).is_none());
        let before = sockets::messages(&machine);
        assert!(machine.poll(&mut writing).is_none());
        assert_eq!(sockets::messages(&machine), before, "{family:?}");
        let mut back = vec![0; 300_000];
        while machine.poll(&mut writing).is_none() {
            machine.run(accepted.read(&mut back)).unwrap();
        }
    }
}

#[test]
fn who_waits_to_connect_from_a_third_kernel_hears_of_room() {
    for family in FAMILIES {
        for kernel in [0, 1] {
            let (machine, names) = joined(3);
            let server = family.listen(&machine, &names, 0, 0);
            let first = family.socket(&names, 1);
            family.connect(&machine, &first).unwrap();
            let client = family.socket(&names, kernel);
            let (far, who) = (machine.pass(kernel, 2, &client), caller(1));
            let mut connecting = far.control(&who, family.connecting());
            assert!(machine.poll(&mut connecting).is_none());
            accept(&machine, &server);
            let connected = machine.poll(&mut connecting).map(|done| done.map(drop));
            assert_eq!(connected, Some(Ok(())), "{family:?} from {kernel}");
        }
    }
}

/// Many connects to a listener that never accepts: who does not wait is refused, and what is kept ends with who waits.
#[test]
fn a_listener_that_never_accepts_is_no_burden() {
    for family in [Family::Stream, Family::Packets, Family::Tcp] {
        let (machine, names) = joined(2);
        let server = family.listen(&machine, &names, 0, 3);
        let admitted: Vec<_> = (0..4)
            .map(|_| {
                let client = family.socket(&names, 1);
                family.connect(&machine, &client).unwrap();
                client
            })
            .collect();
        machine.settle();
        let (tasks, calls) = (machine.tasks.0.lock().unwrap().len(), machine.kernels[1].endpoint.outstanding());
        for _ in 0..500 {
            let client = family.socket(&names, 1);
            now(&machine, &client);
            let refused = if family == Family::Tcp { Errno::EINPROGRESS } else { Errno::EAGAIN };
            assert_eq!(family.connect(&machine, &client), Err(refused));
        }
        machine.settle();
        assert_eq!(machine.tasks.0.lock().unwrap().len(), tasks, "{family:?}");
        assert_eq!(machine.kernels[1].endpoint.outstanding(), calls);
        let (who, waits) = (caller(1), family.socket(&names, 1));
        let mut waiting = waits.control(&who, family.connecting());
        assert!(machine.poll(&mut waiting).is_none());
        drop(server);
        assert_eq!(machine.poll(&mut waiting).map(|done| done.err()), Some(Some(Errno::ECONNREFUSED)));
        machine.settle();
        for client in admitted {
            assert_eq!(machine.run(client.read(&mut [0; 1])), Err(Errno::ECONNRESET), "never accepted");
        }
    }
}

/// At every moment of a connect the listener goes.
#[test]
fn a_connect_that_races_with_the_listeners_close_is_refused_or_reset() {
    for family in FAMILIES {
        for steps in 0..12 {
            let (machine, names) = joined(3);
            let server = family.listen(&machine, &names, 2, 3);
            let (who, client) = (caller(1), family.socket(&names, 1));
            let mut connecting = client.control(&who, family.connecting());
            let mut done = None;
            for step in 0..steps {
                match step % 4 {
                    0 => done = done.or_else(|| once(connecting.as_mut())),
                    kernel => {
                        machine.kernels[kernel - 1].endpoint.drain(1);
                    }
                }
            }
            drop(server);
            let done = done.or_else(|| machine.poll(&mut connecting)).expect("it ends").map(drop);
            drop(connecting);
            machine.settle();
            match done {
                Ok(()) => assert_eq!(machine.run(client.read(&mut [0; 1])), Err(Errno::ECONNRESET)),
                refused => assert_eq!(refused, Err(Errno::ECONNREFUSED), "{family:?} after {steps}"),
            }
            drop(client);
            machine.settle();
            assert!(machine.kernels.iter().all(|kernel| kernel.endpoint.outstanding() == (0, 0)));
        }
    }
}

fn pass_on(machine: &Machine) {
    for kernel in &machine.kernels {
        kernel.endpoint.drain(8);
    }
}

/// From all kernels to all others: who connects pays, and nothing is left.
#[test]
fn ten_thousand_connections() {
    const EACH: usize = 2500;
    let (machine, names) = joined(4);
    let accounts: Vec<_> = names
        .iter()
        .map(|names| {
            let accounts = Accounts::new(8 * EACH * 3 * 4096);
            names.set_accounts(&accounts);
            accounts
        })
        .collect();
    let payers: Vec<_> = accounts.iter().map(|accounts| accounts.of(Pid(1), 1000)).collect();
    let who = crate::testing::user(1, 1000);
    let place = |kernel: usize| sockets::place(&[kernel as u8]);
    let run = |file: &Arc<dyn File>, control| machine.run(file.control(&who, Control::Socket(control)));
    let servers: Vec<_> = (0..4)
        .map(|kernel| {
            let server = sockets::new(&names, kernel, SocketKind::Stream);
            run(&server, SocketControl::Bind { place: place(kernel), name: vec![1] }).unwrap();
            run(&server, SocketControl::Listen { backlog: 4 }).unwrap();
            server
        })
        .collect();
    let mut ends = Vec::new();
    for number in 0..4 * EACH {
        let (from, to) = (number % 4, (number + 1 + number / 4 % 3) % 4);
        let client = sockets::new(&names, from, SocketKind::Stream);
        let mut connecting = client.control(&who, Control::Socket(SocketControl::Connect { place: place(to) }));
        while once(connecting.as_mut()).map(|done| done.map(drop).unwrap()).is_none() {
            pass_on(&machine);
        }
        drop(connecting);
        ends.push((client, accept(&machine, &servers[to])));
    }
    for (client, accepted) in &ends {
        assert_eq!(once(client.write(b"there").as_mut()), Some(Ok(5)));
        pass_on(&machine);
        assert_eq!(once(accepted.read(&mut [0; 9]).as_mut()), Some(Ok(5)));
        assert_eq!(once(accepted.write(b"back").as_mut()), Some(Ok(4)));
        pass_on(&machine);
        assert_eq!(once(client.read(&mut [0; 9]).as_mut()), Some(Ok(4)));
    }
    assert_eq!(machine.frames(), 0);
    for payer in &payers {
        assert_eq!(payer.used_at_top(Resource::Memory), 2 * EACH * 4096, "a window for each end");
    }
    ends.clear();
    machine.settle();
    assert!(payers.iter().all(|payer| payer.used_at_top(Resource::Memory) == 0));
}
