//! Connections and epolls that follow the only program that has them.

use super::{
    connections::{now, Family, FAMILIES},
    sockets::joined,
    *,
};
use crate::{
    control::{EpollControl, EpollInterest, SocketControl, SocketMessage},
    epoll::{Epoll, EDGE, ONESHOT},
    socket::{NetNamespace, Protocol, Socket, SocketKind},
    testing::FakeTimers,
    Fetched, LeftFile,
};
use machine::account::Accounts;

pub(super) fn machine(count: usize) -> (Machine, Vec<Arc<NetNamespace>>) {
    let (machine, names) = joined(count);
    for names in &names {
        names.set_accounts(&Accounts::new(64 << 20));
    }
    (machine, names)
}

/// The program on kernel `to` fetches what it has; what has not come is as it was.
fn fetch(machine: &Machine, to: usize, files: &mut [Arc<dyn File>]) -> usize {
    let held: Vec<_> = files.iter().map(|file| LeftFile { file: file.clone(), descriptors: 1 }).collect();
    let fetched = machine.run(machine.kernels[to].fetch(&held, &caller(1)));
    drop(held);
    take(machine, files, fetched)
}

fn take(machine: &Machine, files: &mut [Arc<dyn File>], fetched: Vec<Fetched>) -> usize {
    let count = fetched.len();
    for Fetched { from, to } in fetched {
        *files.iter_mut().find(|file| Arc::ptr_eq(file, &from)).unwrap() = to;
        machine.run(crate::file::close(from));
    }
    machine.settle();
    count
}

/// The program that has `file` moves.
pub(super) fn go(machine: &Machine, from: usize, to: usize, file: Arc<dyn File>) -> Arc<dyn File> {
    let mut there = [machine.pass(from, to, &file)];
    drop(file);
    machine.settle();
    assert_eq!(fetch(machine, to, &mut there), 1);
    assert_eq!(there[0].remote(), None);
    let [there] = there;
    there
}

/// What is sent both ways, numbered, while the ends move.
#[derive(Default)]
struct Stream {
    sent: usize,
    received: usize,
}

impl Stream {
    fn send(&mut self, machine: &Machine, end: &Arc<dyn File>, count: usize) {
        let bytes: Vec<u8> = (self.sent..self.sent + count).map(|index| (index % 251) as u8).collect();
        assert_eq!(machine.run(end.write(&bytes)), Ok(count));
        self.sent += count;
    }

    fn receive(&mut self, machine: &Machine, end: &Arc<dyn File>, count: usize) {
        let mut bytes = vec![0; count];
        let read = machine.run(end.read(&mut bytes)).unwrap();
        assert!(bytes[..read].iter().enumerate().all(|(index, byte)| *byte == ((self.received + index) % 251) as u8));
        self.received += read;
        assert_eq!(read, count);
    }
}

fn nothing_is_left(machine: &Machine) {
    machine.settle();
    assert_eq!(machine.frames(), 0);
    for kernel in &machine.kernels {
        assert_eq!(kernel.exported(), 0);
        assert_eq!(kernel.endpoint.outstanding(), (0, 0));
    }
}

/// From kernel to kernel, also to that of the other end and away from it, with data under way in both directions.
#[test]
fn all_that_was_sent_arrives_once_and_in_order() {
    for family in FAMILIES {
        for tour in [&[2, 3, 0, 2][..], &[1, 0, 1, 2, 1], &[2, 1, 3]] {
            let (machine, names) = machine(4);
            let [server, mut end, client] = family.connected(&machine, &names);
            let inode = machine.run(end.attributes()).unwrap().ino;
            let (mut there, mut back) = (Stream::default(), Stream::default());
            let mut at = 0;
            for (step, &to) in tour.iter().enumerate() {
                // Some of it in frames, which are lent until it was received.
                for count in [10, 3000, 20_000] {
                    there.send(&machine, &client, count);
                    back.send(&machine, &end, count);
                }
                if step % 2 == 0 {
                    there.receive(&machine, &end, 10);
                    back.receive(&machine, &client, 10);
                }
                end = go(&machine, at, to, end);
                at = to;
                if step % 2 == 1 {
                    there.receive(&machine, &end, 10);
                    back.receive(&machine, &client, 10);
                }
                there.receive(&machine, &end, 3000);
                back.receive(&machine, &client, 3000);
                there.receive(&machine, &end, 20_000);
                back.receive(&machine, &client, 20_000);
            }
            assert_eq!(machine.run(end.attributes()).unwrap().ino, inode);
            assert_eq!(machine.run(end.write(b"last")), Ok(4));
            drop(end);
            assert_eq!(machine.run(client.read(&mut [0; 9])), Ok(4), "{family:?} {tour:?}");
            assert_eq!(machine.run(client.read(&mut [0; 9])), Ok(0), "{family:?} {tour:?}");
            drop((server, client));
            nothing_is_left(&machine);
        }
    }
}

/// Who waits for room hears of it wherever that is made.
#[test]
fn who_waits_for_room_goes_on() {
    for family in FAMILIES {
        for to in [1, 2] {
            let (machine, names) = machine(3);
            let [server, end, client] = family.connected(&machine, &names);
            machine.run(client.set_flags(OpenFlags::NONBLOCK)).unwrap();
            let (mut sent, mut received) = (0, 0);
            while let Ok(count) = machine.run(client.write(&[1; 30_000])) {
                sent += count;
            }
            machine.run(client.set_flags(OpenFlags::empty())).unwrap();
            let mut writing = client.write(&[1; 30_000]);
            assert_eq!(machine.poll(&mut writing), None);
            let end = go(&machine, 0, to, end);
            while received < sent {
                received += machine.run(end.read(&mut [0; 30_000])).unwrap();
            }
            sent += machine.poll(&mut writing).unwrap().unwrap();
            drop(writing);
            while received < sent {
                received += machine.run(end.read(&mut [0; 30_000])).unwrap();
            }
            drop((server, end, client));
            nothing_is_left(&machine);
        }
    }
}

#[test]
fn an_end_of_a_pair_leaves_its_kernel() {
    let (machine, names) = machine(2);
    let (one, other) = Socket::pair(&names[0], &caller(1), SocketKind::Stream, OpenFlags::empty());
    let (one, other): (Arc<dyn File>, Arc<dyn File>) = (one, other);
    let (mut there, mut back) = (Stream::default(), Stream::default());
    there.send(&machine, &other, 60_000);
    back.send(&machine, &one, 60_000);
    let one = go(&machine, 0, 1, one);
    for _ in 0..20 {
        there.receive(&machine, &one, 60_000);
        back.receive(&machine, &other, 60_000);
        there.send(&machine, &other, 60_000);
        back.send(&machine, &one, 60_000);
    }
    // Nobody asks for room when a reader keeps up.
    let one = go(&machine, 1, 0, one);
    there.receive(&machine, &one, 60_000);
    back.receive(&machine, &other, 60_000);
    drop((one, other));
    nothing_is_left(&machine);
}

/// The port that a program has chosen is in TIME_WAIT where it is kept, wherever the end that closes first is.
#[test]
fn an_end_that_has_moved_leaves_its_port_in_time_wait() {
    const MINUTE: u64 = 60_000_000_000;
    for (first, to, accepts) in [("end", 1, 0), ("end", 2, 0), ("client", 2, 0), ("end", 2, 2), ("client", 2, 2)] {
        let (machine, names) = machine(3);
        let timers: Arc<FakeTimers> = Arc::default();
        timers.advance(MINUTE);
        names.iter().for_each(|names| names.set_timers(Arc::new(timers.clone())));
        let [server, end, client] = Family::Tcp.connected_from(&machine, &names, accepts);
        let end = if accepts == 0 { go(&machine, 0, to, end) } else { end };
        assert_eq!(end.remote(), None);
        drop(server);
        let (one, other) = if first == "end" { (end, client) } else { (client, end) };
        drop(one);
        machine.settle();
        drop(other);
        machine.settle();
        let bind = || internet::bind(&machine, &internet::new(&names, 0, Protocol::Tcp), 80);
        let waits = if first == "end" { Err(Errno::EADDRINUSE) } else { Ok(()) };
        assert_eq!(bind(), waits, "{first} {to} {accepts}");
        timers.advance(MINUTE + 1);
        assert_eq!(bind(), Ok(()), "{first} {to} {accepts}");
        nothing_is_left(&machine);
    }
}

#[test]
fn ends_that_move_at_the_same_moment() {
    for family in FAMILIES {
        for head_start in 0..40 {
            let (machine, names) = machine(4);
            let [server, end, client] = family.connected(&machine, &names);
            let (mut there, mut back) = (Stream::default(), Stream::default());
            there.send(&machine, &client, 5000);
            back.send(&machine, &end, 5000);
            let mut ends = [[machine.pass(0, 2, &end)], [machine.pass(1, 3, &client)]];
            drop((end, client));
            machine.settle();
            let held = ends.each_ref().map(|[file]| [LeftFile { file: file.clone(), descriptors: 1 }]);
            let who = caller(1);
            let mut moves: Vec<BoxFuture<'_, Vec<Fetched>>> = vec![
                Box::pin(machine.kernels[2].fetch(&held[0], &who)),
                Box::pin(machine.kernels[3].fetch(&held[1], &who)),
            ];
            let mut done = [None, None];
            for step in 0..1000 {
                for (index, moving) in moves.iter_mut().enumerate() {
                    if done[index].is_none() && (index == 0 || step >= head_start) {
                        done[index] = once(moving.as_mut());
                    }
                }
                let kernel = &machine.kernels[step % 4];
                kernel.endpoint.drain(1);
                machine.run_tasks();
            }
            drop(moves);
            drop(held);
            let mut count = 0;
            for (files, fetched) in ends.iter_mut().zip(done) {
                count += take(&machine, files, fetched.unwrap_or_else(|| panic!("{family:?} {head_start} {count}")));
            }
            let [[end], [client]] = ends;
            there.receive(&machine, &end, 5000);
            back.receive(&machine, &client, 5000);
            there.send(&machine, &client, 5000);
            there.receive(&machine, &end, 5000);
            back.send(&machine, &end, 5000);
            back.receive(&machine, &client, 5000);
            assert!(count > 0 || head_start < 20, "{family:?} {head_start}");
            drop((server, end, client));
            nothing_is_left(&machine);
        }
    }
}

fn add(machine: &Machine, epoll: &Arc<dyn File>, fd: i32, file: &Arc<dyn File>, events: u32) {
    let interest = EpollInterest { events, data: fd as u64 };
    let add = EpollControl::Add { fd, file: file.clone(), interest };
    machine.run(epoll.control(&caller(1), Control::Epoll(add))).unwrap();
}

fn taken(machine: &Machine, epoll: &Arc<dyn File>) -> Vec<u64> {
    let take = Control::EpollTake { most: 8, signals: None, sure: true };
    match machine.run(epoll.control(&caller(1), take)).unwrap() {
        ControlAnswer::Events { ready, .. } => ready.into_iter().map(|event| event.data).collect(),
        _ => panic!("no events"),
    }
}

/// An epoll comes with what it watches, and watches what stays.
#[test]
fn an_epoll_comes_with_its_connections() {
    const IN: u32 = 1;
    let (machine, names) = machine(3);
    let [server, end, client] = Family::Tcp.connected(&machine, &names);
    let event: Arc<dyn File> = EventFd::new(0, 0).unwrap();
    let epoll: Arc<dyn File> = Epoll::new(free(), OpenFlags::empty()).unwrap();
    add(&machine, &epoll, 3, &server, IN);
    add(&machine, &epoll, 4, &end, IN | ONESHOT);
    add(&machine, &epoll, 5, &event, IN | EDGE);
    machine.run(client.write(b"one")).unwrap();
    machine.settle();
    assert_eq!(taken(&machine, &epoll), [4]);
    let mut there: Vec<_> = [&server, &end, &event, &epoll].map(|file| machine.pass(0, 2, file)).into();
    drop((server, end, event, epoll));
    machine.settle();
    // A listener and an eventfd stay.
    assert_eq!(fetch(&machine, 2, &mut there), 2);
    let elsewhere: Vec<bool> = there.iter().map(|file| file.is_elsewhere()).collect();
    assert_eq!(elsewhere, [true, false, true, false]);
    // It was reported, once.
    assert_eq!(taken(&machine, &there[3]), []);
    machine.run(there[2].write(&1u64.to_ne_bytes())).unwrap();
    assert_eq!(taken(&machine, &there[3]), [5]);
    let interest = EpollInterest { events: IN, data: 6 };
    let modify = EpollControl::Modify { fd: 4, file: there[1].clone(), interest };
    machine.run(there[3].control(&caller(1), Control::Epoll(modify))).unwrap();
    assert_eq!(taken(&machine, &there[3]), [6]);
    machine.run(there[1].read(&mut [0; 9])).unwrap();
    assert_eq!(taken(&machine, &there[3]), []);
    let another = Family::Tcp.connect_another(&machine, &names, 1);
    assert_eq!(taken(&machine, &there[3]), [3]);
    drop((another, client, there));
    nothing_is_left(&machine);
}

/// An epoll that was here before its connection came hears of it as before.
#[test]
fn an_epoll_that_is_here_follows_what_comes() {
    let (machine, names) = machine(3);
    let [server, end, client] = Family::Stream.connected(&machine, &names);
    let epoll: Arc<dyn File> = Epoll::new(free(), OpenFlags::empty()).unwrap();
    let mut there = [machine.pass(0, 2, &end), epoll];
    drop(end);
    add(&machine, &there[1], 4, &there[0], 1);
    machine.settle();
    assert_eq!(fetch(&machine, 2, &mut there), 1);
    assert_eq!(taken(&machine, &there[1]), []);
    machine.run(client.write(b"one")).unwrap();
    machine.settle();
    assert_eq!(taken(&machine, &there[1]), [4]);
    let delete = EpollControl::Delete { fd: 4, file: there[0].clone() };
    machine.run(there[1].control(&caller(1), Control::Epoll(delete))).unwrap();
    drop((server, client, there));
    nothing_is_left(&machine);
}

/// What others have, watch or look for by name stays, and works.
#[test]
fn what_others_have_stays() {
    let (machine, names) = machine(3);
    let stays = |file: Arc<dyn File>, keeps: Vec<Arc<dyn File>>| {
        let mut there = [machine.pass(0, 2, &file)];
        drop(file);
        machine.settle();
        assert_eq!(fetch(&machine, 2, &mut there), 0);
        assert!(there[0].is_elsewhere());
        drop(keeps);
        there
    };
    let [server, end, client] = Family::Stream.connected(&machine, &names);
    // Another program.
    stays(end.clone(), vec![end.clone()]);
    // On a third kernel.
    stays(end.clone(), vec![machine.pass(0, 1, &end)]);
    // An epoll that nobody brings along.
    let epoll: Arc<dyn File> = Epoll::new(free(), OpenFlags::empty()).unwrap();
    add(&machine, &epoll, 4, &end, 1);
    let there = stays(end, Vec::new());
    machine.run(client.write(b"one")).unwrap();
    machine.settle();
    assert_eq!(taken(&machine, &epoll), [4]);
    stays(server, Vec::new());
    drop((there, client, epoll));
    nothing_is_left(&machine);
}

/// Descriptors that wait in the end go with it.
#[test]
fn descriptors_that_nobody_has_received_come_along() {
    let (machine, names) = machine(3);
    let [server, end, client] = Family::Stream.connected(&machine, &names);
    let file: Arc<dyn File> = EventFd::new(7, 0).unwrap();
    let message = SocketMessage { bytes: vec![1], files: vec![file], most_in_flight: 9, ..SocketMessage::default() };
    machine.socket(&client, SocketControl::Send { place: None, message, flags: 0 }).unwrap();
    machine.settle();
    let end = go(&machine, 0, 2, end);
    let receive = SocketControl::Receive { bytes: 9, flags: 0 };
    let Ok(ControlAnswer::Message(message)) = machine.socket(&end, receive) else { panic!("no message") };
    let mut value = [0; 8];
    assert_eq!(machine.run(message.files[0].read(&mut value)), Ok(8));
    assert_eq!(u64::from_ne_bytes(value), 7);
    drop((server, end, client, message));
    nothing_is_left(&machine);
}

/// Once they are together nothing is sent between kernels.
#[test]
fn who_has_come_together_sends_no_messages() {
    let (machine, names) = machine(3);
    for family in FAMILIES {
        let [server, end, client] = family.connected(&machine, &names);
        let end = go(&machine, 0, 1, end);
        for _ in 0..100 {
            assert_eq!(once(client.write(b"request").as_mut()), Some(Ok(7)));
            assert_eq!(once(end.read(&mut [0; 9]).as_mut()), Some(Ok(7)));
            assert_eq!(once(end.write(b"reply").as_mut()), Some(Ok(5)));
            assert_eq!(once(client.read(&mut [0; 9]).as_mut()), Some(Ok(5)));
        }
        drop((server, end, client));
    }
    nothing_is_left(&machine);
}

/// A program on its way to another kernel; it comes with its end, and whether that has come along.
type Going = BoxFuture<'static, (Arc<dyn File>, bool)>;

/// A program with one end: it sends and receives numbered bytes, and goes from kernel to kernel meanwhile.
struct Program {
    kernel: usize,
    end: Arc<dyn File>,
    stream: Stream,
    going: Option<(usize, Going)>,
}

impl Program {
    fn new(kernel: usize, end: Arc<dyn File>) -> Self {
        Program { kernel, end, stream: Stream::default(), going: None }
    }

    /// Sends, or receives what the other one, whose `stream` that is, has sent. An end that has stayed behind is used only if it is `waited` for the
    /// answer: what is abandoned may be done.
    fn step(&mut self, machine: &Machine, stream: &mut Stream, sends: bool, amount: usize, waits: bool) {
        if self.going.is_some() || self.end.is_elsewhere() && !waits {
            return;
        }
        if sends {
            let bytes: Vec<u8> = (0..amount).map(|index| ((self.stream.sent + index) % 251) as u8).collect();
            let mut sending = self.end.write(&bytes);
            if let Some(Ok(count)) = once(sending.as_mut()) {
                self.stream.sent += count;
            }
            return;
        }
        let mut bytes = vec![0; amount];
        let mut reading = self.end.read(&mut bytes);
        let read = if waits { machine.poll(&mut reading) } else { once(reading.as_mut()) };
        drop(reading);
        assert!(!matches!(read, Some(Err(error)) if error != Errno::EAGAIN), "{read:?}");
        if let Some(Ok(count)) = read {
            let right = |(index, byte): (usize, &u8)| usize::from(*byte) == (stream.received + index) % 251;
            assert!(bytes[..count].iter().enumerate().all(right));
            stream.received += count;
        }
    }

    fn go(&mut self, machine: &Machine, to: usize) {
        let (here, there) = (machine.kernels[self.kernel].clone(), machine.kernels[to].clone());
        let nobody: Arc<dyn File> = EventFd::new(0, 0).unwrap();
        let end = core::mem::replace(&mut self.end, nobody);
        self.going = Some((
            to,
            Box::pin(async move {
                let given = here.hand_over(there.me(), &end).await.unwrap().send();
                let stand_in = there.accept(given).unwrap();
                crate::file::close(end).await;
                let held = [LeftFile { file: stand_in.clone(), descriptors: 1 }];
                match there.fetch(&held, &caller(1)).await.pop() {
                    Some(Fetched { to, .. }) => (to, true),
                    None => (stand_in, false),
                }
            }),
        ));
    }

    /// Whether it has come with its end.
    fn poll(&mut self) -> bool {
        let Some((to, going)) = &mut self.going else { return false };
        let Some((end, moved)) = once(going.as_mut()) else { return false };
        (self.kernel, self.end, self.going) = (*to, end, None);
        moved
    }
}

/// Nothing is lost, and nobody waits for ever, whatever moves when.
#[test]
fn two_programs_that_talk_and_move_at_random() {
    let mut moves = 0;
    for seed in 0..300u64 {
        let (machine, names) = machine(4);
        let (server, ends) = match FAMILIES.get(seed as usize % 4) {
            Some(family) => {
                let [server, end, client] = family.connected(&machine, &names);
                (Some(server), [Program::new(0, end), Program::new(1, client)])
            }
            None => {
                let (one, other) = Socket::pair(&names[0], &caller(1), SocketKind::Stream, OpenFlags::empty());
                (None, [Program::new(0, one), Program::new(0, other)])
            }
        };
        let packets = seed % 4 == 1;
        let [mut one, mut other] = ends;
        for program in [&one, &other] {
            now(&machine, &program.end);
        }
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for _ in 0..3000 {
            let (program, stream) = match draw(2) {
                0 => (&mut one, &mut other.stream),
                _ => (&mut other, &mut one.stream),
            };
            moves += usize::from(program.poll());
            match draw(10) {
                0 if program.going.is_none() => {
                    let to = draw(4) as usize;
                    if to != program.kernel {
                        program.go(&machine, to);
                    }
                }
                1..4 if program.going.is_none() => {
                    let amount = [1, 100, 3000, 30_000][draw(4) as usize];
                    program.step(&machine, stream, draw(2) == 0, if packets { 100 } else { amount }, false);
                }
                _ => {
                    let kernel = draw(4) as usize;
                    machine.kernels[kernel].endpoint.drain(1 + draw(3) as usize);
                    if draw(2) == 0 {
                        machine.run_tasks();
                    }
                }
            }
        }
        for _ in 0..200 {
            machine.settle();
            moves += usize::from(one.poll()) + usize::from(other.poll());
            one.step(&machine, &mut other.stream, false, 30_000, true);
            other.step(&machine, &mut one.stream, false, 30_000, true);
        }
        assert!(one.going.is_none() && other.going.is_none(), "seed {seed}: a move does not end");
        for stream in [&one.stream, &other.stream] {
            assert_eq!(
                stream.sent,
                stream.received,
                "seed {seed} {:?}",
                [&one, &other].map(|p| (p.kernel, p.end.remote(), p.end.poll()))
            );
        }
        drop((server, one, other));
        nothing_is_left(&machine);
    }
    assert!(moves > 3000, "{moves}");
}
