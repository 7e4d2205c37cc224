//! Random programs: what they do in a step.

use super::{
    backlog::{Backlog, Listener},
    kernels::{at_once, caller, Kernels},
    mail::{Mail, Mailbox},
    model::{Both, Connection, End, Family, Phase, Side},
    task::{self, Task},
    watch::Watcher,
};
use crate::{
    machine::Machine,
    rng::Rng,
    scenario::{Log, Scenario, Step},
    shape::Shape,
};
use ::machine::{account::Account, KernelId};
use fs::{
    control::{SocketAddress, SocketControl, UnixPlace},
    event::EventFd,
    pipe::pipe,
    socket::{Protocol, Socket, SocketKind},
    Control, Events, File, LeftFile, OpenFlags,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const MOST_ACTS: usize = 5;
const MOST_CONNECTIONS: usize = 8;
const LISTENERS: usize = 3;
/// Numbers of the processes that connect, and of the ports that they connect from, begin here.
const FIRST_PROCESS: u32 = 1000;
const FIRST_PORT: u16 = 10_000;
const SERVER_PORT: u16 = 2000;

/// What a task does. `Follow`: the end's program, which alone has it, has come to another kernel, and the end follows it there.
#[derive(Clone, Debug)]
pub enum What {
    Receive { end: End, limit: usize, peek: bool, by_read: bool, waits: bool },
    Send { end: End, bytes: usize, files: Vec<u64>, waits: bool },
    Shut { end: End, how: u32 },
    Connect { connection: usize, waits: bool },
    Accept { listener: usize, waits: bool },
    Poll { ends: Vec<(End, Events)>, waits: bool },
    Epoll { on: KernelId, waits: bool },
    Mail { mail: Mail, waits: bool },
    Fetch { at: usize, waits: bool },
    Follow { end: End },
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub enum Act {
    Task(What),
    /// A new connection through a listener, or a pair; the numbers choose kernels.
    Connect {
        listener: usize,
        at: [usize; 2],
        waits: bool,
    },
    Pair {
        family: Family,
        at: [usize; 3],
    },
    Close(End),
    Hang(usize),
    Listen {
        family: Family,
        at: [usize; 2],
        backlog: usize,
    },
    /// An end gets into the epoll of its program's kernel.
    Watch {
        end: End,
        edge: bool,
        wanted: Events,
    },
    /// A mailbox of UDP or AF_UNIX.
    Box {
        udp: bool,
        at: [usize; 2],
    },
    CloseBox(usize),
    /// The end's program goes on on another kernel, as its child may.
    Pass(End, KernelId),
    /// A program on another kernel has the end, too.
    Share(End, KernelId),
    Interrupt(usize),
    Die(KernelId),
}

/// A call that has not ended.
pub struct Call {
    pub what: What,
    pub on: KernelId,
    pub task: Task,
}

pub struct Program {
    pub(super) kernels: Kernels,
    pub(super) listeners: Vec<Listener>,
    pub(super) connections: Vec<Connection>,
    pub(super) calls: Vec<Call>,
    /// Of this step: calls of programs whose kernel has died. They may have been carried out before.
    pub(super) cut_off: Vec<What>,
    /// Of this step: what was accepted although another connection had come before.
    pub(super) overtaken: Vec<(usize, usize)>,
    pub(super) watchers: BTreeMap<KernelId, Watcher>,
    pub(super) boxes: Vec<Mailbox>,
    /// Datagrams have numbers, and so do files that were sent.
    pub(super) letters: u64,
    files: u64,
    pub(super) dead: BTreeSet<KernelId>,
    longest: usize,
    /// Of the step that goes on.
    pub(super) step: u32,
    operations: u64,
}

/// What was so before a step.
pub struct Before {
    pub both: Vec<Both>,
    /// By listener.
    pub backlogs: Vec<Backlog>,
    /// Datagrams by mailbox: for certain, and perhaps.
    pub mail: Vec<[usize; 2]>,
}

impl Before {
    pub fn backlog(&self, listener: usize) -> Backlog {
        self.backlogs.get(listener).copied().unwrap_or(Backlog::NEW)
    }
}

impl Scenario for Program {
    const NAME: &'static str = "sockets";
    const STEPS: u32 = 80;

    fn new(shape: Shape) -> Self {
        let shape = Shape { kernels: shape.kernels.min(8), ..shape };
        // In many small messages, much takes long.
        let longest = if shape.weather.longest < 1000 { 6000 } else { 212_900 };
        Program {
            kernels: Kernels::new(shape),
            listeners: Vec::new(),
            connections: Vec::new(),
            calls: Vec::new(),
            cut_off: Vec::new(),
            overtaken: Vec::new(),
            watchers: BTreeMap::new(),
            boxes: Vec::new(),
            letters: 0,
            files: 0,
            dead: BTreeSet::new(),
            longest,
            step: 0,
            operations: 0,
        }
    }

    fn machine(&self) -> &Machine {
        &self.kernels.machine
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        self.step = step.number;
        let before = self.before();
        let mut dies = None;
        for number in 0..1 + rng.below(MOST_ACTS) {
            let act = if rng.one_in(6) { self.draw_mail(rng) } else { self.draw(rng) };
            let Some(act) = act else { continue };
            if !step.acts.contains(number) {
                continue;
            }
            log.line(|| format!("{:>4}  {act:?}", step.number));
            self.operations += 1;
            match act {
                Act::Die(kernel) => dies = Some(kernel),
                act => self.act(act),
            }
        }
        if let Some(kernel) = dies {
            self.kernels.some_steps(40);
            self.die(kernel);
        }
        self.kernels.machine.settle();
        self.judge(&before, log);
    }

    fn finish(&mut self, log: &Log) {
        log.line(|| " end  all is interrupted and closed");
        let before = self.before();
        self.calls.iter().for_each(|call| call.task.interrupt());
        self.kernels.machine.settle();
        self.judge(&before, log);
        assert!(self.calls.is_empty(), "not interrupted: {:?}", self.calls[0].what);
        self.connections.clear();
        self.listeners.clear();
        self.watchers.clear();
        self.boxes.clear();
        self.kernels.machine.settle();
        self.kernels.check_empty();
    }

    fn operations(&self) -> u64 {
        self.operations
    }
}

impl Program {
    pub(super) fn before(&self) -> Before {
        let backlogs = (0..self.listeners.len()).map(|listener| self.backlog(listener)).collect();
        Before { both: self.connections.iter().map(Connection::both).collect(), backlogs, mail: self.mail() }
    }

    pub(super) fn is_dead(&self, kernel: KernelId) -> bool {
        self.dead.contains(&kernel)
    }

    /// Ends that programs have and can use.
    fn ends(&self) -> Vec<End> {
        let ends = (0..self.connections.len()).flat_map(|number| [(number, 0), (number, 1)]);
        ends.filter(|(number, side)| {
            let connection = &self.connections[*number];
            let used = matches!(connection.phase, Phase::Queued | Phase::Accepted);
            used && connection.sides[*side].file.is_some() && !self.follows((*number, *side))
        })
        .collect()
    }

    pub(super) fn receives(&self, end: End) -> bool {
        self.calls.iter().any(|call| matches!(&call.what, What::Receive { end: of, .. } if *of == end))
    }

    pub(super) fn sends(&self, end: End) -> bool {
        self.calls.iter().any(|call| matches!(&call.what, What::Send { end: of, .. } if *of == end))
    }

    fn follows(&self, end: End) -> bool {
        self.calls.iter().any(|call| matches!(&call.what, What::Follow { end: of } if *of == end))
    }

    /// Whether the end is on another kernel than the only program that has it, which does nothing else just now.
    fn may_follow(&self, end: End) -> bool {
        let side = &self.connections[end.0].sides[end.1];
        let waits = |call: &Call| matches!(call.what, What::Epoll { on, .. } if on == side.user);
        let alone = side.twin.is_none() && !self.is_in_use(end) && !self.calls.iter().any(waits);
        side.kernel != side.user && alone && !self.is_lost(end)
    }

    fn is_in_use(&self, end: End) -> bool {
        self.calls.iter().any(|call| match &call.what {
            What::Receive { end: of, .. } | What::Send { end: of, .. } => *of == end,
            What::Shut { end: of, .. } | What::Follow { end: of } => *of == end,
            What::Poll { ends, .. } => ends.iter().any(|(of, _)| *of == end),
            What::Connect { .. }
            | What::Accept { .. }
            | What::Epoll { .. }
            | What::Mail { .. }
            | What::Fetch { .. } => false,
        })
    }

    fn draw(&self, rng: &Rng) -> Option<Act> {
        let ends = self.ends();
        let (which, chance) = (rng.next() as usize, rng.below(100));
        let (waits, flag, rare) = (rng.one_in(2), rng.one_in(2), rng.one_in(12));
        let numbers = [rng.next() as usize, rng.next() as usize, rng.next() as usize];
        let size = *rng.pick(&[1, 8, 90, 1000, 3000, 5000, 20_000, 60_000, 212_900]);
        let (files, how) = (1 + rng.below(3), rng.below(3) as u32);
        let families = [Family::Stream, Family::Packets, Family::Tcp];
        let family = families[numbers[2] % 3];
        let open = self.listeners.iter().filter(|listener| listener.file.is_some()).count();
        let listener = (!self.listeners.is_empty()).then(|| which % self.listeners.len());
        let listener = listener.filter(|listener| self.listeners[*listener].file.is_some());
        let end = (!ends.is_empty()).then(|| ends[which % ends.len()]);
        let size = size.min(self.longest);
        Some(match chance {
            0..=5 if open < LISTENERS => Act::Listen { family, at: [numbers[0], numbers[1]], backlog: how as usize },
            0..=15 if ends.len() < 2 * MOST_CONNECTIONS => {
                Act::Connect { listener: listener?, at: [numbers[0], numbers[1]], waits }
            }
            16..=25 => {
                let accepts =
                    |call: &Call| matches!(call.what, What::Accept { listener: of, .. } if Some(of) == listener);
                let listener = listener.filter(|_| self.calls.iter().filter(|call| accepts(call)).count() < 2)?;
                Act::Task(What::Accept { listener, waits })
            }
            26..=28 if ends.len() < 2 * MOST_CONNECTIONS && family != Family::Tcp => Act::Pair { family, at: numbers },
            29..=52 => {
                let end = end.filter(|end| !self.sends(*end))?;
                let by_unix = self.connections[end.0].family != Family::Tcp;
                let files = if flag && by_unix && rare { files } else { 0 };
                let files = (1..=files as u64).map(|number| self.files + number).collect();
                Act::Task(What::Send { end, bytes: size, files, waits })
            }
            53..=76 => {
                let end = end.filter(|end| !self.receives(*end))?;
                let (peek, by_read) = (how == 0 && flag, how == 1);
                Act::Task(What::Receive { end, limit: size.max(90), peek, by_read, waits })
            }
            77 => {
                let wanted = if how == 0 { Events::IN | Events::OUT } else { Events::IN };
                Act::Watch { end: end?, edge: flag, wanted }
            }
            78..=80 => Act::Task(What::Epoll { on: self.epoll_of(end?)?, waits }),
            81 => Act::Task(What::Follow { end: end.filter(|end| self.may_follow(*end))? }),
            82..=83 => {
                let mut polled: Vec<(End, Events)> = Vec::new();
                let user = self.user(end?);
                for number in numbers {
                    let end = ends[number % ends.len()];
                    let wanted = if number & 1024 == 0 { Events::IN } else { Events::IN | Events::OUT };
                    if self.user(end) == user && polled.iter().all(|(other, _)| *other != end) {
                        polled.push((end, wanted));
                    }
                }
                (!polled.is_empty()).then_some(Act::Task(What::Poll { ends: polled, waits }))?
            }
            84 => {
                let (end, alive) = (end?, self.alive());
                let to = alive[numbers[0] % alive.len()];
                let shared = self.connections[end.0].sides[end.1].twin.is_some();
                let act = if flag { Act::Share } else { Act::Pass };
                (to != self.user(end) && !shared && !self.is_in_use(end)).then(|| act(end, to))?
            }
            85..=87 => Act::Task(What::Shut { end: end?, how }),
            88..=92 => Act::Close(end.filter(|end| !self.is_in_use(*end))?),
            93..=97 => Act::Interrupt((!self.calls.is_empty()).then(|| which % self.calls.len())?),
            98 => {
                let listener = listener?;
                let accepts = |call: &Call| matches!(call.what, What::Accept { listener: of, .. } if of == listener);
                (!self.calls.iter().any(accepts)).then_some(Act::Hang(listener))?
            }
            99 => {
                let others: Vec<KernelId> = self.alive().into_iter().filter(|kernel| kernel.0 != 0).collect();
                (flag && !others.is_empty()).then(|| Act::Die(others[which % others.len()]))?
            }
            _ => return None,
        })
    }

    fn alive(&self) -> Vec<KernelId> {
        self.kernels.machine.alive()
    }

    pub(super) fn user(&self, end: End) -> KernelId {
        self.connections[end.0].sides[end.1].user
    }

    pub(super) fn file(&self, end: End) -> Arc<dyn File> {
        self.connections[end.0].sides[end.1].file.clone().expect("somebody has it")
    }

    /// A kernel for a socket and one for its program, mostly the same.
    pub(super) fn places(&self, at: [usize; 2]) -> [KernelId; 2] {
        let alive = self.alive();
        let kernel = alive[at[0] % alive.len()];
        let other = alive[at[1] % alive.len()];
        [kernel, if at[1] & 0x3000 == 0 { other } else { kernel }]
    }

    fn socket(&self, kernel: KernelId, process: u32, family: Family) -> Arc<dyn File> {
        let (names, who, flags) = (&self.kernels.of(kernel).names, caller(process), OpenFlags::empty());
        match family {
            Family::Stream => Socket::new(names, &who, SocketKind::Stream, flags),
            Family::Packets => Socket::new(names, &who, SocketKind::SeqPacket, flags),
            Family::Tcp => Socket::internet(names, &who, Protocol::Tcp, false, flags),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Task(what) => self.start(what),
            Act::Connect { listener, at, waits } => {
                let family = self.listeners[listener].family;
                let [kernel, user] = self.places(at);
                let file = self.socket(kernel, 1, family);
                let file = self.kernels.hand(kernel, user, file);
                let server = &self.listeners[listener];
                let sides = [Side::new(kernel, user, Some(file)), Side::new(server.kernel, server.user, None)];
                let connection = self.connections.len();
                self.connections.push(Connection {
                    family,
                    phase: Phase::Connecting,
                    listener: Some(listener),
                    begun: self.step,
                    queued: u32::MAX,
                    mover: None,
                    shaken: false,
                    sides,
                });
                self.start(What::Connect { connection, waits });
            }
            Act::Pair { family, at } => {
                let [kernel, user] = self.places([at[0], at[1]]);
                let kind = if family == Family::Stream { SocketKind::Stream } else { SocketKind::SeqPacket };
                let names = &self.kernels.of(kernel).names;
                let (one, other) = Socket::pair(names, &caller(1), kind, OpenFlags::empty());
                let other = self.kernels.hand(kernel, user, other);
                let sides = [Side::new(kernel, kernel, Some(one)), Side::new(kernel, user, Some(other))];
                self.connections.push(Connection {
                    family,
                    phase: Phase::Accepted,
                    listener: None,
                    begun: self.step,
                    queued: self.step,
                    mover: None,
                    shaken: false,
                    sides,
                });
            }
            Act::Watch { end, edge, wanted } => self.watch(end, edge, wanted),
            Act::Close(end) => {
                self.unwatch(end);
                self.connections[end.0].sides[end.1].close();
            }
            Act::Pass(end, to) => {
                self.unwatch(end);
                let file = self.kernels.hand(self.user(end), to, self.file(end));
                let side = &mut self.connections[end.0].sides[end.1];
                (side.user, side.file) = (to, Some(file));
            }
            Act::Share(end, to) => {
                self.unwatch(end);
                let file = self.kernels.hand(self.user(end), to, self.file(end));
                self.connections[end.0].sides[end.1].twin = Some((to, file));
            }
            Act::Box { udp, at } => self.open_box(udp, at),
            Act::CloseBox(number) => self.boxes[number].file = None,
            Act::Hang(listener) => {
                self.listeners[listener].file = None;
                self.lose_unaccepted(listener);
            }
            Act::Listen { family, at, backlog } => self.listen(family, at, backlog),
            Act::Interrupt(call) => self.calls[call].task.interrupt(),
            Act::Die(_) => unreachable!("kernels die after all has begun"),
        }
    }

    /// The ends that wait to be accepted are closed with their listener.
    pub(super) fn lose_unaccepted(&mut self, listener: usize) {
        for connection in self.connections.iter_mut().filter(|it| it.listener == Some(listener)) {
            let server = &mut connection.sides[1];
            if !matches!(connection.phase, Phase::Accepted | Phase::Failed) {
                (server.facts.gone, server.facts.hard) = (true, true);
            }
        }
    }

    fn listen(&mut self, family: Family, at: [usize; 2], backlog: usize) {
        let number = self.listeners.len();
        let [kernel, user] = self.places(at);
        let (file, who) = (self.socket(kernel, 1, family), caller(1));
        let (place, listening) = (address(family, number), file.clone());
        let done = self.kernels.machine.start_on(kernel, async move {
            let bind = SocketControl::Bind { place: Some(place), name: Vec::new() };
            listening.control(&who, Control::Socket(bind)).await.map(drop)?;
            let listen = SocketControl::Listen { backlog: backlog as i32 };
            listening.control(&who, Control::Socket(listen)).await.map(drop)
        });
        self.kernels.machine.settle();
        assert_eq!(done.take(), Some(Ok(())), "nobody else has the name");
        let file = Some(self.kernels.hand(kernel, user, file));
        self.listeners.push(Listener { family, kernel, user, backlog, file, nameless: 0 });
    }

    fn start(&mut self, mut what: What) {
        let who = caller(1);
        let (on, task) = match &mut what {
            What::Receive { end, limit, by_read: true, peek: false, waits } => {
                let work = task::read(self.file(*end), who.clone(), *limit, *waits);
                (self.user(*end), Task::start(&self.kernels, self.user(*end), &who, work))
            }
            What::Receive { end, limit, peek, waits, .. } => {
                let work = task::receive(self.file(*end), who.clone(), *limit, *peek, *waits);
                (self.user(*end), Task::start(&self.kernels, self.user(*end), &who, work))
            }
            What::Send { end, bytes, files, waits } => {
                let (end, user) = (*end, self.user(*end));
                let bytes = self.connections[end.0].next(end, *bytes);
                let files: Vec<Arc<dyn File>> = files.iter().map(|number| self.telling(*number, user)).collect();
                self.files += files.len() as u64;
                let work = task::send(self.file(end), who.clone(), bytes, files, *waits);
                (user, Task::start(&self.kernels, user, &who, work))
            }
            What::Shut { end, how } => {
                let work = task::shut(self.file(*end), who.clone(), *how);
                (self.user(*end), Task::start(&self.kernels, self.user(*end), &who, work))
            }
            What::Connect { connection, waits } => {
                let who = caller(FIRST_PROCESS + *connection as u32);
                let listener = self.connections[*connection].listener.expect("it connects to one");
                let family = self.listeners[listener].family;
                let bound = (family == Family::Tcp).then(|| port(FIRST_PORT + *connection as u16));
                let (file, user) = (self.file((*connection, 0)), self.user((*connection, 0)));
                let work = task::connect(file, who.clone(), bound, address(family, listener), *waits);
                (user, Task::start(&self.kernels, user, &who, work))
            }
            What::Accept { listener, waits } => {
                let Listener { family, user, file, .. } = &self.listeners[*listener];
                let file = file.clone().expect("it is open");
                let work = task::accept(file, who.clone(), *family == Family::Tcp, *waits);
                (*user, Task::start(&self.kernels, *user, &who, work))
            }
            What::Poll { ends, waits } => {
                let files = ends.iter().map(|(end, wanted)| (self.file(*end), *wanted)).collect();
                let user = self.user(ends[0].0);
                (user, Task::start(&self.kernels, user, &who, task::poll(files, who.clone(), *waits)))
            }
            What::Epoll { on, waits } => (*on, self.start_epoll(*on, *waits)),
            What::Mail { mail, waits } => self.start_mail(mail, *waits),
            What::Fetch { at, waits } => self.start_fetch(*at, *waits),
            What::Follow { end } => {
                let (user, remote) = (self.user(*end), self.kernels.of(self.user(*end)).remote.clone());
                let held = [self.file(*end)].into_iter().chain(self.watcher_of(*end));
                let held = held.map(|file| LeftFile { file, descriptors: 1 }).collect();
                (user, Task::start(&self.kernels, user, &who, task::follow(remote, who.clone(), held)))
            }
        };
        self.calls.push(Call { what, on, task });
    }

    /// A file of any kernel from which its number can be read: an eventfd, a pipe or a socket whose other end is closed.
    fn telling(&self, number: u64, user: KernelId) -> Arc<dyn File> {
        let (alive, who, flags) = (self.alive(), caller(1), OpenFlags::empty());
        let kernel = alive[number as usize % alive.len()];
        let (file, tells): (Arc<dyn File>, Arc<dyn File>) = match number % 3 {
            0 => {
                let event = EventFd::new(0, 0).expect("these are no flags");
                (event.clone(), event)
            }
            1 => {
                let (reads, writes) = pipe(&who, &Account::new(None, &[]), flags).expect("there is memory");
                (reads, writes)
            }
            _ => {
                let (one, other) = Socket::pair(&self.kernels.of(kernel).names, &who, SocketKind::Stream, flags);
                (one, other)
            }
        };
        let told = at_once(tells.write(&number.to_le_bytes()));
        // Of a user who has no memory left it tells nothing.
        assert!(told.is_ok() || self.kernels.tight || self.kernels.scarce);
        drop(tells);
        self.kernels.hand(kernel, user, file)
    }

    /// Which connection an accepted end is of, by what it says of who connected.
    pub(super) fn accepted(&self, family: Family, which: u64) -> usize {
        let first = if family == Family::Tcp { u64::from(FIRST_PORT) } else { u64::from(FIRST_PROCESS) };
        let number = which.checked_sub(first).expect("one of ours has connected") as usize;
        assert!(number < self.connections.len(), "nobody has connected as {which}");
        number
    }
}

pub(super) fn port(number: u16) -> SocketAddress {
    let [high, low] = number.to_be_bytes();
    SocketAddress::Other(vec![2, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn address(family: Family, listener: usize) -> SocketAddress {
    match family {
        Family::Tcp => port(SERVER_PORT + listener as u16),
        _ => SocketAddress::Unix(UnixPlace::Abstract(format!("listener {listener}").into_bytes())),
    }
}
