//! Sockets in messages that hold each other over kernels.

use super::{sockets::joined, *};
use crate::{
    control::{SocketAddress, SocketControl, SocketMessage, UnixPlace},
    socket::{NetNamespace, Socket, SocketKind},
};
use alloc::collections::BTreeSet;
use machine::{
    account::{Accounts, Resource},
    Pid,
};

const MSG_DONTWAIT: u32 = 0x40;

fn pair(names: &[Arc<NetNamespace>], kernel: usize) -> (Arc<dyn File>, Arc<dyn File>) {
    let (a, b) = Socket::pair(&names[kernel], &caller(1), SocketKind::Stream, OpenFlags::empty());
    (a, b)
}

fn send(files: Vec<Arc<dyn File>>) -> SocketControl {
    let message = SocketMessage { bytes: b"x".to_vec(), files, most_in_flight: 1000, ..SocketMessage::default() };
    SocketControl::Send { place: None, message, flags: MSG_DONTWAIT }
}

fn receive() -> SocketControl {
    SocketControl::Receive { bytes: 9, flags: MSG_DONTWAIT }
}

#[test]
fn a_circle_over_kernels_is_collected_when_a_socket_ends_and_what_can_be_received_stays() {
    let (machine, names) = joined(3);
    let ((a, b), (c, d)) = (pair(&names, 1), pair(&names, 2));
    // On kernel 0 there is a message that brings the one, and can be received.
    let (keeps, kept) = pair(&names, 0);
    let (e, f) = pair(&names, 1);
    let (read, write) = ends();
    machine.socket(&a, send(vec![machine.pass(2, 1, &d), machine.pass(0, 1, &write)])).unwrap();
    machine.socket(&c, send(vec![machine.pass(1, 2, &b)])).unwrap();
    machine.socket(&e, send(vec![machine.pass(0, 1, &kept)])).unwrap();
    machine.socket(&keeps, send(vec![machine.pass(1, 0, &f)])).unwrap();
    let seen = [&a, &b, &c, &d, &e, &f].map(Arc::downgrade);
    drop((b, d, f, write));
    machine.settle();
    assert!(machine.poll(&mut read.read(&mut [0; 1])).is_none());
    drop((a, c));
    machine.settle();
    let alive = seen.each_ref().map(|socket| socket.strong_count() > 0);
    assert_eq!(alive, [false, false, false, false, true, true]);
    assert_eq!(machine.run(read.read(&mut [0; 1])), Ok(0), "and the pipe's end has gone with the circle");
    let Ok(ControlAnswer::Message(got)) = machine.socket(&kept, receive()) else { panic!("nothing to receive") };
    let Ok(ControlAnswer::Message(inner)) = machine.socket(&got.files[0], receive()) else { panic!("it was emptied") };
    assert_eq!(inner.files.len(), 1);
    drop((got, inner, keeps, kept, e));
    machine.settle();
    assert!(machine.kernels.iter().all(|kernel| kernel.exported() == 0));
}

#[test]
fn an_ordinary_kernel_asks_no_other_one() {
    let (machine, names) = joined(2);
    let ((a, b), (c, _d)) = (pair(&names, 1), pair(&names, 1));
    let far = machine.pass(1, 0, &b);
    machine.socket(&a, send(vec![c.clone()])).unwrap();
    machine.settle();
    let before = machine.kernels.iter().map(|kernel| kernel.endpoint.stats().bytes_sent).sum::<u64>();
    for _ in 0..100 {
        drop(pair(&names, 1));
    }
    machine.settle();
    assert_eq!(machine.kernels.iter().map(|kernel| kernel.endpoint.stats().bytes_sent).sum::<u64>(), before);
    drop(far);
}

/// A program that anybody may have written: what it holds, and what it has sent.
struct World {
    machine: Machine,
    names: Vec<Arc<NetNamespace>>,
    accounts: Vec<Arc<Accounts>>,
    dice: Dice,
    /// By number.
    sockets: Vec<Model>,
    /// Descriptors: on which kernel, which socket.
    held: Vec<(usize, Arc<dyn File>, usize)>,
    /// In messages between kernels: for which.
    under_way: Vec<(usize, Opened, usize)>,
    collecting: Option<BoxFuture<'static, Result<usize>>>,
    /// A kernel that seldom looks what has come.
    busy: Option<usize>,
}

#[derive(Default)]
struct Model {
    real: Option<std::sync::Weak<dyn File>>,
    path: Vec<u8>,
    peer: Option<usize>,
    /// Messages that were not received.
    inbox: VecDeque<Vec<usize>>,
    /// Connections that were not accepted.
    waiting: VecDeque<usize>,
    listens: bool,
}

pub(super) struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

impl World {
    fn with(seed: u64, kernels: usize) -> Self {
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (machine, names) = joined(kernels);
        let accounts: Vec<_> = names.iter().map(|_| Accounts::new(1 << 20)).collect();
        names.iter().zip(&accounts).for_each(|(names, accounts)| names.set_accounts(accounts));
        let (sockets, held, under_way) = (Vec::new(), Vec::new(), Vec::new());
        World { machine, names, accounts, dice, sockets, held, under_way, collecting: None, busy: None }
    }

    fn kernel(&mut self) -> usize {
        self.dice.below(self.names.len())
    }

    /// Something happens somewhere: a message, a task, a collection.
    fn stir(&mut self) {
        match self.dice.below(8) {
            0..3 if !self.machine.tasks.0.lock().unwrap().is_empty() => {
                let mut tasks = self.machine.tasks.0.lock().unwrap();
                let chosen = self.dice.below(tasks.len());
                let mut task = tasks.swap_remove(chosen);
                drop(tasks);
                if once(task.as_mut()).is_none() {
                    self.machine.tasks.0.lock().unwrap().push(task);
                }
            }
            3 | 4 => {
                // It never ends.
                let keeper = self.names[0].clone();
                let mut collecting =
                    self.collecting.take().unwrap_or_else(|| Box::pin(async move { keeper.collect().await }));
                if once(collecting.as_mut()).is_none() {
                    self.collecting = Some(collecting);
                }
            }
            _ => {
                let kernel = self.kernel();
                if self.busy != Some(kernel) || self.dice.below(20) == 0 {
                    self.machine.kernels[kernel].endpoint.drain(1);
                }
            }
        }
    }

    /// Lets little happen beside what it waits for.
    fn run<T>(&mut self, future: impl core::future::Future<Output = T> + Send) -> T {
        let mut future: BoxFuture<'_, T> = Box::pin(future);
        for _ in 0..100_000 {
            if let Some(value) = once(future.as_mut()) {
                return value;
            }
            self.stir();
        }
        panic!("it should not wait");
    }

    fn control(&mut self, file: &Arc<dyn File>, control: SocketControl) -> Result<ControlAnswer> {
        let who = caller(1);
        self.run(file.control(&who, Control::Socket(control)))
    }

    /// A new socket that somebody on `kernel` has.
    fn comes(&mut self, kernel: usize, file: Arc<dyn File>, peer: Option<usize>) -> usize {
        let number = self.sockets.len();
        let path = self.path_of(kernel, &file);
        self.sockets.push(Model { real: Some(Arc::downgrade(&file)), path, peer, ..Model::default() });
        self.held.push((kernel, file, number));
        number
    }

    /// Says which socket it is, machine-wide.
    fn path_of(&mut self, kernel: usize, file: &Arc<dyn File>) -> Vec<u8> {
        let mut path = self.run(file.path());
        path.push(file.remote().map_or(kernel as u8, |there| there.owner.0 as u8));
        path
    }

    fn some_held(&mut self) -> Option<(usize, Arc<dyn File>, usize)> {
        if self.held.is_empty() {
            return None;
        }
        let chosen = self.dice.below(self.held.len());
        Some(self.held[chosen].clone())
    }

    /// What programs can reach, by the model.
    fn reachable(&self) -> BTreeSet<usize> {
        let mut roots: Vec<usize> = self.held.iter().map(|(.., number)| *number).collect();
        roots.extend(self.under_way.iter().map(|(.., number)| *number));
        let mut reached = BTreeSet::new();
        while let Some(number) = roots.pop() {
            if reached.insert(number) {
                roots.extend(self.sockets[number].inbox.iter().flatten());
                roots.extend(&self.sockets[number].waiting);
            }
        }
        reached
    }

    fn peer_of(&self, number: usize) -> Option<usize> {
        self.sockets[number].peer.filter(|peer| self.reachable().contains(peer))
    }

    fn step(&mut self) {
        // Few, so that they meet.
        let few = self.held.len() < 6;
        match self.dice.below(20) {
            0 | 1 if few => {
                let kernel = self.kernel();
                let (a, b) = pair(&self.names, kernel);
                let first = self.comes(kernel, a, None);
                let second = self.comes(kernel, b, Some(first));
                self.sockets[first].peer = Some(second);
            }
            2 if few => self.listens(),
            3 if few => self.connect(),
            4 | 5 => self.passes(),
            6..9 if !self.under_way.is_empty() => {
                let chosen = self.dice.below(self.under_way.len());
                let (to, opened, number) = self.under_way.swap_remove(chosen);
                let file = self.machine.kernels[to].accept(opened).unwrap();
                self.held.push((to, file, number));
            }
            9..13 => self.receives(),
            13..16 if !self.held.is_empty() => {
                let chosen = self.dice.below(self.held.len());
                drop(self.held.swap_remove(chosen));
            }
            _ => self.sends(),
        }
        for _ in 0..self.dice.below(12) {
            self.stir();
        }
    }

    fn listens(&mut self) {
        let (kernel, number) = (self.kernel(), self.sockets.len());
        let listener: Arc<dyn File> =
            Socket::new(&self.names[kernel], &caller(1), SocketKind::Stream, OpenFlags::NONBLOCK);
        let place = Some(SocketAddress::Unix(UnixPlace::Abstract(number.to_le_bytes().to_vec())));
        self.control(&listener, SocketControl::Bind { place, name: Vec::new() }).unwrap();
        self.control(&listener, SocketControl::Listen { backlog: 9 }).unwrap();
        self.comes(kernel, listener, None);
        self.sockets[number].listens = true;
    }

    fn connect(&mut self) {
        let reachable = self.reachable();
        let listeners: Vec<usize> = reachable.into_iter().filter(|number| self.sockets[*number].listens).collect();
        if listeners.is_empty() {
            return;
        }
        let listener = listeners[self.dice.below(listeners.len())];
        let kernel = self.kernel();
        let client: Arc<dyn File> =
            Socket::new(&self.names[kernel], &caller(1), SocketKind::Stream, OpenFlags::NONBLOCK);
        let place = Some(SocketAddress::Unix(UnixPlace::Abstract(listener.to_le_bytes().to_vec())));
        if self.control(&client, SocketControl::Connect { place }).is_ok() {
            let client = self.comes(kernel, client, None);
            let server = self.sockets.len();
            self.sockets.push(Model { peer: Some(client), ..Model::default() });
            self.sockets[client].peer = Some(server);
            self.sockets[listener].waiting.push_back(server);
        }
    }

    fn passes(&mut self) {
        let Some((from, file, number)) = self.some_held() else { return };
        let to = self.kernel();
        if from != to {
            let giver = self.machine.kernels[from].clone();
            let opened = self.run(giver.hand_over(KernelId(to as u16), &file)).unwrap().send();
            self.under_way.push((to, opened, number));
        }
    }

    fn sends(&mut self) {
        let Some((kernel, file, number)) = self.some_held() else { return };
        if self.sockets[number].listens {
            return;
        }
        let here: Vec<_> = self.held.iter().filter(|held| held.0 == kernel).cloned().collect();
        let sent: Vec<_> = (0..1 + self.dice.below(2)).map(|_| here[self.dice.below(here.len())].clone()).collect();
        let to = self.peer_of(number);
        let done = self.control(&file, send(sent.iter().map(|(_, file, _)| file.clone()).collect()));
        if let Some(to) = to {
            done.unwrap();
            self.sockets[to].inbox.push_back(sent.into_iter().map(|(.., number)| number).collect());
        }
    }

    fn receives(&mut self) {
        let Some((kernel, file, number)) = self.some_held() else { return };
        self.receive_from(kernel, &file, number);
    }

    fn receive_from(&mut self, kernel: usize, file: &Arc<dyn File>, number: usize) {
        if self.sockets[number].listens {
            let accepted = self.control(file, SocketControl::Accept { flags: OpenFlags::NONBLOCK, end: None });
            let server = self.sockets[number].waiting.pop_front();
            match (accepted, server) {
                (Ok(ControlAnswer::File(file)), Some(server)) => self.held.push((kernel, file, server)),
                (accepted, None) => assert!(accepted.is_err()),
                _ => panic!("nobody waits in {number}"),
            }
            return;
        }
        let Some(wanted) = self.sockets[number].inbox.pop_front() else { return };
        // It may be on its way.
        let mut answer = self.control(file, receive());
        for _ in 0..10_000 {
            if answer.as_ref().err() != Some(&Errno::EAGAIN) {
                break;
            }
            self.stir();
            answer = self.control(file, receive());
        }
        let Ok(ControlAnswer::Message(got)) = answer else { panic!("nothing in {number}") };
        assert_eq!(got.files.len(), wanted.len(), "in {number}");
        for (file, number) in got.files.into_iter().zip(wanted) {
            let path = self.path_of(kernel, &file);
            match &mut self.sockets[number].path {
                // It was accepted.
                known if known.is_empty() => *known = path,
                known => assert_eq!(*known, path, "in place of {number}"),
            }
            self.held.push((kernel, file, number));
        }
    }

    fn alive(&self) -> BTreeSet<usize> {
        let real = |model: &Model| model.real.as_ref().map(|real| real.strong_count() > 0);
        (0..self.sockets.len()).filter(|number| real(&self.sockets[*number]) == Some(true)).collect()
    }

    /// Until nothing happens any more and what is left is what can be reached.
    fn comes_to_rest(&mut self) {
        if let Some(mut collecting) = self.collecting.take() {
            let _ = self.machine.poll(&mut collecting).expect("it should not wait");
        }
        self.machine.settle();
        self.machine.run(self.names[0].collect()).unwrap();
        self.machine.settle();
        let known = |number: &usize| self.sockets[*number].real.is_some();
        assert_eq!(self.alive(), self.reachable().into_iter().filter(known).collect(), "alive, and reachable");
    }

    fn finish(mut self) {
        while let Some((to, opened, number)) = self.under_way.pop() {
            let file = self.machine.kernels[to].accept(opened).unwrap();
            self.held.push((to, file, number));
        }
        self.comes_to_rest();
        // All that can be received, some of it twice passed on.
        for _ in 0..3 {
            let held = self.held.clone();
            for (kernel, file, number) in &held {
                while !self.sockets[*number].inbox.is_empty() || !self.sockets[*number].waiting.is_empty() {
                    self.receive_from(*kernel, file, *number);
                }
            }
        }
        while !self.held.is_empty() {
            let chosen = self.dice.below(self.held.len());
            drop(self.held.swap_remove(chosen));
            if self.dice.below(10) == 0 {
                self.comes_to_rest();
            }
        }
        self.comes_to_rest();
        for (kernel, accounts) in self.machine.kernels.iter().zip(&self.accounts) {
            assert_eq!((kernel.exported(), kernel.under_way()), (0, 0), "of {:?}", kernel.me());
            assert_eq!(accounts.of(Pid(1), 0).used_at_top(Resource::DescriptorsInFlight), 0);
        }
    }
}

/// Where what meets is.
#[derive(Clone, Copy)]
struct Meeting {
    /// Of the two sockets that hold each other.
    owner: usize,
    other: usize,
    /// Which hands a reference to the owner's to which, while circles are looked for.
    from: usize,
    to: usize,
}

fn hands_on_what_is_in_a_circle(seed: u64, meeting: Meeting) {
    let Meeting { owner, other, from, to } = meeting;
    let mut world = World::with(seed, 3);
    let (a, b) = pair(&world.names, owner);
    let (c, d) = pair(&world.names, other);
    let machine = &world.machine;
    machine.socket(&a, send(vec![machine.pass(other, owner, &d)])).unwrap();
    machine.socket(&c, send(vec![machine.pass(owner, other, &b)])).unwrap();
    let given = if from == owner { b.clone() } else { machine.pass(owner, from, &b) };
    machine.settle();
    let seen = [&a, &b, &c, &d].map(Arc::downgrade);
    drop((a, b, c, d));
    let giver = world.machine.kernels[from].clone();
    // What is told to the owner waits there; answers go first.
    world.busy = Some(owner);
    (0..world.dice.below(400)).for_each(|_| world.stir());
    let opened = world.run(giver.hand_over(KernelId(to as u16), &given)).unwrap().send();
    (0..world.dice.below(4)).for_each(|_| world.stir());
    drop(given);
    (0..world.dice.below(1500)).for_each(|_| world.stir());
    let back = world.machine.kernels[to].accept(opened).unwrap();
    (0..world.dice.below(30)).for_each(|_| world.stir());
    let Ok(ControlAnswer::Message(got)) = world.control(&back, receive()) else { panic!("it does not answer") };
    assert_eq!(got.files.len(), 1, "it was emptied");
    let inner = world.control(&got.files[0], receive());
    assert!(matches!(inner, Ok(ControlAnswer::Message(inner)) if inner.files.len() == 1), "the other one was");
    drop((back, got));
    world.comes_to_rest();
    assert!(seen.iter().all(|socket| socket.strong_count() == 0));
    assert!(world.machine.kernels.iter().all(|kernel| kernel.exported() == 0));
}

fn seeds(count: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in 1..=count {
        let told = std::panic::catch_unwind(|| run(seed));
        assert!(told.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_reference_is_handed_on_while_circles_are_looked_for() {
    for (owner, other) in [(0, 2), (1, 2), (2, 0), (1, 0)] {
        let third = 3 - owner - other;
        for (from, to) in [(owner, other), (owner, third), (other, third), (third, other), (other, owner)] {
            seeds(40, |seed| hands_on_what_is_in_a_circle(seed, Meeting { owner, other, from, to }));
        }
    }
}

#[test]
fn what_programs_reach_stays_and_all_else_goes() {
    seeds(200, |seed| {
        let count = 2 + (seed % 3) as usize;
        let mut world = World::with(seed, count);
        for _ in 0..200 {
            world.step();
        }
        world.finish();
    });
}
