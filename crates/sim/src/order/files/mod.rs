//! Descriptor tables, which threads share and forked processes copy, and the open files behind them.
//!
//! A call on a descriptor does two things: it finds the open file, and it does something to it. Between the two the
//! descriptor may be closed, or be another's; the file is kept until the call is over. Both are steps here too: a call
//! that has begun holds its file.

mod locks;
mod lost;
mod splice;

use super::{
    channel::{Description, Ends, Kind, Store, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT},
    Id, Lost, Outcome, Reply, Subject, EBADF, EEXIST, EINVAL, EIO, ENOENT, EPERM,
};
use crate::{
    nodes::user::{call, Arg, Command},
    rng::Rng,
};
use locks::{LockKind, Locks};
use machine::KernelId;
use splice::Moving;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PATHS: [&[u8]; 2] = [b"/one\0", b"/two\0"];
/// Numbers that calls name.
const MOST_FDS: usize = 12;
/// The epoll, which nobody closes, and the eventfds that it watches.
const POLL: i32 = 100;
const WATCHED: [i32; 3] = [20, 21, 22];
const FD_CLOEXEC: i64 = 1;
const O_RDWR: u64 = 2;
const O_CREAT: u64 = 0o100;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;
const O_NONBLOCK: u64 = 0o4000;
const O_CLOEXEC: u64 = 0o2000000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    Open {
        file: usize,
        append: bool,
        truncate: bool,
        cloexec: bool,
    },
    Pipe {
        nonblocking: bool,
        cloexec: bool,
    },
    Event {
        count: u32,
        semaphore: bool,
        nonblocking: bool,
    },
    Dup(i32),
    /// dup3, or (no flag) dup2.
    DupTo {
        from: i32,
        to: i32,
        cloexec: bool,
    },
    /// F_DUPFD.
    DupFrom {
        from: i32,
        least: i32,
    },
    Close(i32),
    GetFlags(i32),
    SetFlags(i32, bool),
    Read {
        fd: i32,
        bytes: usize,
    },
    Write {
        fd: i32,
        bytes: usize,
        value: u8,
    },
    Seek {
        fd: i32,
        to: Option<usize>,
    },
    /// splice, or (copies) tee.
    Splice {
        from: i32,
        to: i32,
        bytes: usize,
        copies: bool,
    },
    /// epoll_ctl: add (1), delete (2), modify (3).
    Watch {
        kind: u8,
        fd: i32,
        events: u32,
    },
    /// epoll_wait for one event, which does not wait or waits for ever.
    Poll {
        waits: bool,
    },
    /// F_SETLK: a shared lock, an exclusive one, none.
    Lock {
        fd: i32,
        kind: LockKind,
        bytes: (u8, u8),
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry {
    description: usize,
    cloexec: bool,
}

/// pipe2 takes its two numbers, and then puts the two ends there; as in Linux, others see each of these steps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Making {
    ends: [usize; 2],
    numbers: Vec<i32>,
    first_is_there: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Files {
    process: BTreeMap<Id, Id>,
    tables: BTreeMap<Id, BTreeMap<i32, Entry>>,
    descriptions: BTreeMap<usize, Description>,
    store: Store,
    /// Pipes that are being made.
    making: BTreeMap<Id, Making>,
    /// Open files of calls under way: that they found, or took a number from.
    held: BTreeMap<Id, usize>,
    /// Those of splices under way.
    moving: BTreeMap<Id, Moving>,
    /// By descriptor and open file, as epoll knows them.
    interests: BTreeMap<(i32, usize), u32>,
    locks: Locks,
}

fn done(result: i64) -> Outcome {
    Outcome::Reply((result, Vec::new()))
}

impl Files {
    fn table(&mut self, thread: Id) -> &mut BTreeMap<i32, Entry> {
        self.tables.get_mut(&self.process[&thread]).expect("a process has a table")
    }

    fn description(&mut self, thread: Id, fd: i32) -> Option<usize> {
        self.table(thread).get(&fd).map(|entry| entry.description)
    }

    fn open(&mut self, kind: Kind, nonblocking: bool) -> usize {
        let number = (0..).find(|number| !self.descriptions.contains_key(number)).expect("there are few");
        self.descriptions.insert(number, Description { kind, nonblocking });
        number
    }

    /// The lowest free number that is at least `least`.
    fn enter(&mut self, thread: Id, least: i32, description: usize, cloexec: bool) -> i64 {
        let fd = self.lowest(thread, least);
        self.table(thread).insert(fd, Entry { description, cloexec });
        fd.into()
    }

    fn lowest(&self, thread: Id, least: i32) -> i32 {
        let process = self.process[&thread];
        let table = &self.tables[&process];
        let taken =
            |fd: i32| self.making.iter().any(|(by, of)| of.numbers.contains(&fd) && self.process[by] == process);
        (least..).find(|fd| !table.contains_key(fd) && !taken(*fd)).expect("there are few")
    }

    fn is_open(&self, description: usize) -> bool {
        self.tables.values().flat_map(BTreeMap::values).any(|entry| entry.description == description)
            || self
                .held
                .values()
                .chain(self.making.values().flat_map(|making| &making.ends))
                .chain(self.moving.values().flat_map(|moving| &moving.files))
                .any(|it| *it == description)
    }

    /// Closes open files that nobody has any more.
    fn collect(&mut self) {
        let gone: Vec<usize> = self.descriptions.keys().copied().filter(|number| !self.is_open(*number)).collect();
        for number in gone {
            self.descriptions.remove(&number);
            self.interests.retain(|(_, description), _| *description != number);
        }
        for pipe in 0..self.store.pipes.len() {
            let Ends { readers, writers } = self.ends(pipe);
            if !readers && !writers {
                self.store.pipes[pipe] = None;
            }
        }
        self.renumber();
    }

    /// Open files and pipes in the order in which descriptors lead to them: so states that mean the same are equal,
    /// whatever order of calls led to them.
    fn renumber(&mut self) {
        let entries = self.tables.values().flat_map(BTreeMap::values).map(|entry| entry.description);
        let (mut numbers, mut pipes) = (BTreeMap::new(), BTreeMap::new());
        let made = self.making.values().flat_map(|making| making.ends);
        let moving = self.moving.values().flat_map(|moving| &moving.files).copied();
        for description in entries.chain(self.held.values().copied()).chain(made).chain(moving) {
            let next = numbers.len();
            numbers.entry(description).or_insert(next);
            if let Kind::ReadEnd(pipe) | Kind::WriteEnd(pipe) = self.descriptions[&description].kind {
                let next = pipes.len();
                pipes.entry(pipe).or_insert(next);
            }
        }
        let mut store = vec![None; pipes.len()];
        pipes.iter().for_each(|(old, new)| store[*new] = self.store.pipes[*old].take());
        self.store.pipes = store;
        for description in self.descriptions.values_mut() {
            if let Kind::ReadEnd(pipe) | Kind::WriteEnd(pipe) = &mut description.kind {
                *pipe = pipes[pipe];
            }
        }
        let descriptions = std::mem::take(&mut self.descriptions);
        self.descriptions = descriptions.into_iter().map(|(old, known)| (numbers[&old], known)).collect();
        let interests = std::mem::take(&mut self.interests);
        self.interests = interests.into_iter().map(|((fd, old), events)| ((fd, numbers[&old]), events)).collect();
        let entries = self.tables.values_mut().flat_map(BTreeMap::values_mut).map(|entry| &mut entry.description);
        let made = self.making.values_mut().flat_map(|making| &mut making.ends);
        let moving = self.moving.values_mut().flat_map(|moving| &mut moving.files);
        entries.chain(self.held.values_mut()).chain(made).chain(moving).for_each(|number| *number = numbers[number]);
    }

    fn ends(&self, pipe: usize) -> Ends {
        let has = |kind: Kind| self.descriptions.values().any(|known| known.kind == kind);
        Ends { readers: has(Kind::ReadEnd(pipe)), writers: has(Kind::WriteEnd(pipe)) }
    }

    fn ends_of(&self, description: usize) -> Ends {
        match self.descriptions[&description].kind {
            Kind::ReadEnd(pipe) | Kind::WriteEnd(pipe) => self.ends(pipe),
            _ => Ends { readers: false, writers: false },
        }
    }

    fn watch(&mut self, thread: Id, kind: u8, fd: i32, events: u32) -> i64 {
        let Some(description) = self.description(thread, fd) else { return EBADF };
        let known = (fd, description);
        // Which is seen before anybody asks the epoll.
        if matches!(self.descriptions[&description].kind, Kind::File { .. }) {
            return EPERM;
        }
        if self.is_dead(thread, POLL) {
            return EIO;
        }
        match (self.descriptions[&description].kind.clone(), kind, self.interests.contains_key(&known)) {
            (Kind::Dead { .. }, 1, _) => return EIO,
            (Kind::Poll, ..) => return EINVAL,
            (_, 1, true) => return EEXIST,
            (_, 2 | 3, false) => return ENOENT,
            (_, 2, true) => drop(self.interests.remove(&known)),
            _ => drop(self.interests.insert(known, events)),
        }
        0
    }

    fn is_dead(&mut self, thread: Id, fd: i32) -> bool {
        self.description(thread, fd)
            .is_some_and(|description| matches!(self.descriptions[&description].kind, Kind::Dead { .. }))
    }

    /// How many open files that are watched are ready: whose turn it is to be reported, epoll decides.
    fn ready(&self) -> bool {
        self.interests.iter().any(|((_, description), events)| {
            let ready = self.descriptions[description].ready(&self.store, self.ends_of(*description));
            ready & (events | EPOLLERR | EPOLLHUP) != 0
        })
    }
}

impl Subject for Files {
    const NAME: &'static str = "files";
    const STEPS: u32 = 80;
    const THREADS: usize = 7;
    const FORKS: bool = true;
    type Op = Op;

    fn new(first: Id, call: &mut dyn FnMut(Command) -> (i64, KernelId)) -> Self {
        const F_DUPFD: u64 = 0;
        let mut place = |make: Command, to: i32| {
            let (fd, _) = call(make);
            call(Command::plain(call::FCNTL, &[fd as u64, F_DUPFD, to as u64]));
            call(Command::plain(call::CLOSE, &[fd as u64]));
        };
        place(Command::plain(call::EPOLL_CREATE1, &[0]), POLL);
        let mut table = BTreeMap::from([(POLL, Entry { description: 0, cloexec: false })]);
        let mut descriptions = BTreeMap::from([(0, Description { kind: Kind::Poll, nonblocking: false })]);
        for (number, fd) in (1..).zip(WATCHED) {
            place(Command::plain(call::EVENTFD2, &[0, 0]), fd);
            table.insert(fd, Entry { description: number, cloexec: false });
            let kind = Kind::Event { count: 0, semaphore: false };
            descriptions.insert(number, Description { kind, nonblocking: false });
        }
        Files {
            process: [(first, first)].into(),
            tables: [(first, table)].into(),
            descriptions,
            store: Store::default(),
            making: BTreeMap::new(),
            held: BTreeMap::new(),
            moving: BTreeMap::new(),
            interests: BTreeMap::new(),
            locks: Locks::default(),
        }
    }

    fn draw(&self, thread: Id, patient: bool, rng: &Rng) -> Op {
        let open: Vec<i32> = self.tables[&self.process[&thread]].keys().copied().filter(|fd| *fd != POLL).collect();
        let any = rng.below(MOST_FDS) as i32;
        let fd = if open.is_empty() || rng.one_in(10) { any } else { *rng.pick(&open) };
        let (cloexec, nonblocking) = (rng.one_in(2), rng.one_in(3));
        let (bytes, value) = (1 + rng.below(9), rng.next() as u8);
        let events = *rng.pick(&[EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT]);
        let (file, flag, seek) = (rng.below(2), rng.one_in(4), rng.below(20));
        // Who must not wait does not read what may be empty.
        let never_waits = |fd: i32| {
            let entry = self.tables[&self.process[&thread]].get(&fd);
            let found = entry.and_then(|entry| self.descriptions.get(&entry.description));
            found.is_some_and(|known| known.nonblocking || matches!(known.kind, Kind::File { .. } | Kind::WriteEnd(_)))
        };
        let from = self.likely(thread, |kind| matches!(kind, Kind::ReadEnd(_) | Kind::File { .. }), fd, rng);
        let to = self.likely(thread, |kind| matches!(kind, Kind::WriteEnd(_) | Kind::File { .. }), any, rng);
        match rng.below(100) {
            0..=7 => Op::Open { file, append: nonblocking, truncate: flag, cloexec },
            8..=14 => Op::Pipe { nonblocking, cloexec },
            15..=18 => Op::Event { count: seek as u32 % 3, semaphore: flag, nonblocking },
            19..=23 => Op::Dup(fd),
            24..=30 => Op::DupTo { from: fd, to: any, cloexec },
            31..=33 => Op::DupFrom { from: fd, least: any },
            34..=43 if open.len() > 6 && fd < MOST_FDS as i32 => Op::Close(fd),
            34..=46 => Op::GetFlags(fd),
            47..=49 => Op::SetFlags(fd, cloexec),
            80..=86 if patient || never_waits(from) && self.process.len() == 1 => {
                Op::Splice { from, to, bytes, copies: flag }
            }
            50..=68 if patient => Op::Read { fd, bytes },
            50..=58 if never_waits(fd) && self.process.len() == 1 => Op::Read { fd, bytes },
            70..=79 => {
                let fd = self.likely(thread, |kind| matches!(kind, Kind::File { .. }), fd, rng);
                Op::Lock { fd, kind: *rng.pick(&LockKind::ALL), bytes: locks::range(rng) }
            }
            50..=86 => Op::Write { fd, bytes: if flag { 8 } else { bytes }, value },
            87..=90 => Op::Seek { fd, to: (!flag).then_some(seek) },
            91..=95 => Op::Watch { kind: 1 + rng.below(3) as u8, fd: WATCHED[file], events },
            _ => Op::Poll { waits: patient && flag },
        }
    }

    fn command(&self, op: Op) -> Command {
        const F_DUPFD: u64 = 0;
        const F_GETFD: u64 = 1;
        const F_SETFD: u64 = 2;
        const AT_FDCWD: u64 = -100i64 as u64;
        let flag = |flag, set| if set { flag } else { 0 };
        let number = |fd: i32| fd as u64;
        match op {
            Op::Open { file, append, truncate, cloexec } => {
                let flags = O_RDWR | O_CREAT | flag(O_APPEND, append) | flag(O_TRUNC, truncate);
                let flags = Arg::Value(flags | flag(O_CLOEXEC, cloexec));
                Command::new(call::OPENAT, &[Arg::Value(AT_FDCWD), Arg::Input, flags, Arg::Value(0o644)])
                    .input(PATHS[file])
            }
            Op::Pipe { nonblocking, cloexec } => {
                let flags = flag(O_NONBLOCK, nonblocking) | flag(O_CLOEXEC, cloexec);
                Command::new(call::PIPE2, &[Arg::Output, Arg::Value(flags)]).output(8)
            }
            Op::Event { count, semaphore, nonblocking } => {
                let flags = flag(1, semaphore) | flag(O_NONBLOCK, nonblocking);
                Command::plain(call::EVENTFD2, &[count.into(), flags])
            }
            Op::Dup(fd) => Command::plain(call::DUP, &[number(fd)]),
            Op::DupTo { from, to, cloexec: false } => Command::plain(call::DUP2, &[number(from), number(to)]),
            Op::DupTo { from, to, .. } => Command::plain(call::DUP3, &[number(from), number(to), O_CLOEXEC]),
            Op::DupFrom { from, least } => Command::plain(call::FCNTL, &[number(from), F_DUPFD, number(least)]),
            Op::Close(fd) => Command::plain(call::CLOSE, &[number(fd)]),
            Op::GetFlags(fd) => Command::plain(call::FCNTL, &[number(fd), F_GETFD]),
            Op::SetFlags(fd, cloexec) => Command::plain(call::FCNTL, &[number(fd), F_SETFD, cloexec.into()]),
            Op::Read { fd, bytes } => {
                let arguments = [Arg::Value(number(fd)), Arg::Output, Arg::Value(bytes as u64)];
                Command::new(call::READ, &arguments).output(bytes.max(8))
            }
            Op::Write { fd, bytes, value } => {
                let arguments = [Arg::Value(number(fd)), Arg::Input, Arg::Value(bytes as u64)];
                Command::new(call::WRITE, &arguments).input(written(bytes, value))
            }
            Op::Seek { fd, to } => {
                let whence = if to.is_some() { 0 } else { 2 };
                Command::plain(call::LSEEK, &[number(fd), to.unwrap_or(0) as u64, whence])
            }
            Op::Splice { from, to, bytes, copies: false } => {
                Command::plain(call::SPLICE, &[number(from), 0, number(to), 0, bytes as u64, 0])
            }
            Op::Splice { from, to, bytes, .. } => {
                Command::plain(call::TEE, &[number(from), number(to), bytes as u64, 0])
            }
            Op::Watch { kind, fd, events } => {
                let event = [&events.to_le_bytes()[..], &u64::from(events).to_le_bytes()].concat();
                let [poll, kind, fd] = [number(POLL), kind.into(), number(fd)].map(Arg::Value);
                Command::new(call::EPOLL_CTL, &[poll, kind, fd, Arg::Input]).input(event)
            }
            Op::Lock { fd, kind, bytes } => {
                let arguments = [Arg::Value(number(fd)), Arg::Value(locks::F_SETLK), Arg::Input];
                Command::new(call::FCNTL, &arguments).input(locks::argument(kind, bytes))
            }
            Op::Poll { waits } => {
                let timeout = Arg::Value(if waits { u64::MAX } else { 0 });
                Command::new(call::EPOLL_WAIT, &[Arg::Value(number(POLL)), Arg::Output, Arg::Value(1), timeout])
            }
        }
    }

    fn born(&mut self, parent: Id, child: Id, process: bool) {
        let of = self.process[&parent];
        self.process.insert(child, if process { child } else { of });
        if process {
            self.tables.insert(child, self.tables[&of].clone());
        }
    }

    fn processes(&self) -> BTreeMap<Id, Id> {
        self.process.clone()
    }

    fn execute(&mut self, thread: Id) -> Id {
        let process = self.process[&thread];
        let others: BTreeSet<Id> = self.process.iter().filter(|(_, of)| **of == process).map(|(id, _)| *id).collect();
        self.end(&others);
        self.process.insert(process, process);
        let closed: Vec<Entry> =
            self.table(process).extract_if(.., |_, entry| entry.cloexec).map(|(_, entry)| entry).collect();
        closed.iter().for_each(|entry| self.unlock(process, entry.description));
        self.collect();
        process
    }

    fn lose(mut self, ended: &BTreeSet<Id>, lost: &Lost) -> Vec<Self> {
        // Before tables go: those of who has ended say where files were, too.
        let Some(fates) = self.fates(lost) else { return Vec::new() };
        self.end(ended);
        self.tables.retain(|process, _| !ended.contains(process));
        self.locks.end(ended);
        self.collect_after(fates)
    }

    fn begin(&mut self, thread: Id, op: Op) -> Outcome {
        let outcome = self.at_once(thread, op);
        self.collect();
        outcome
    }

    fn go_on(&mut self, thread: Id, op: Op) -> Option<Outcome> {
        let outcome = match op {
            Op::Pipe { cloexec, .. } => self.pipe(thread, cloexec),
            Op::Close(_) => self.closed(thread, 0),
            Op::DupTo { to, .. } => self.closed(thread, to.into()),
            Op::Lock { kind, bytes, .. } => done(self.lock(thread, kind, bytes)),
            Op::Dup(_) => done(self.enter(thread, 0, self.held[&thread], false)),
            Op::DupFrom { least, .. } => done(self.enter(thread, least, self.held[&thread], false)),
            Op::Poll { .. } if self.is_dead(thread, POLL) => done(EIO),
            Op::Poll { .. } if self.ready() => done(1),
            Op::Poll { waits } => (!waits).then(|| done(0))?,
            Op::Splice { to, bytes, copies, .. } => self.splice(thread, to, bytes, copies)?,
            _ => Outcome::Reply(self.on_file(thread, op)?),
        };
        if outcome != Outcome::Waits {
            self.held.remove(&thread);
            self.moving.remove(&thread);
            self.collect();
        }
        Some(outcome)
    }
}

/// What a call writes: an eventfd takes the first eight bytes as a number.
fn written(bytes: usize, value: u8) -> Vec<u8> {
    (0..bytes).map(|index| if bytes >= 8 && index > 0 { 0 } else { value & 0x7f }).collect()
}

impl Files {
    fn find(&mut self, thread: Id, fd: i32) -> Outcome {
        let Some(description) = self.description(thread, fd) else { return done(EBADF) };
        self.held.insert(thread, description);
        Outcome::Waits
    }

    /// Calls on tables; those on open files find their file.
    fn at_once(&mut self, thread: Id, op: Op) -> Outcome {
        match op {
            Op::Open { file, append, truncate, cloexec } => {
                if truncate {
                    self.store.files[file].clear();
                }
                let description = self.open(Kind::File { file, offset: 0, append }, false);
                done(self.enter(thread, 0, description, cloexec))
            }
            Op::Pipe { nonblocking, .. } => {
                let pipe = self.store.pipes.len();
                self.store.pipes.push(Some(VecDeque::new()));
                let ends = [Kind::ReadEnd(pipe), Kind::WriteEnd(pipe)].map(|kind| self.open(kind, nonblocking));
                let numbers = vec![self.lowest(thread, 0)];
                self.making.insert(thread, Making { ends, numbers, first_is_there: false });
                Outcome::Waits
            }
            Op::Event { count, semaphore, nonblocking } => {
                let description = self.open(Kind::Event { count: count.into(), semaphore }, nonblocking);
                done(self.enter(thread, 0, description, false))
            }
            Op::DupTo { from, to, cloexec } => match self.description(thread, from) {
                _ if cloexec && from == to => done(EINVAL),
                None => done(EBADF),
                Some(description) => {
                    // dup2 of a number to itself changes nothing.
                    let replaced = match from == to {
                        true => None,
                        false => self.table(thread).insert(to, Entry { description, cloexec }),
                    };
                    self.let_go(thread, replaced, to.into())
                }
            },
            Op::Close(fd) => match self.table(thread).remove(&fd) {
                Some(closed) => self.let_go(thread, Some(closed), 0),
                None => done(EBADF),
            },
            Op::GetFlags(fd) => {
                let flags = |entry: &Entry| if entry.cloexec { FD_CLOEXEC } else { 0 };
                done(self.table(thread).get(&fd).map_or(EBADF, flags))
            }
            Op::SetFlags(fd, cloexec) => match self.table(thread).get_mut(&fd) {
                Some(entry) => {
                    entry.cloexec = cloexec;
                    done(0)
                }
                None => done(EBADF),
            },
            Op::Watch { kind, fd, events } => done(self.watch(thread, kind, fd, events)),
            Op::Read { fd, .. } | Op::Write { fd, .. } | Op::Seek { fd, .. } | Op::Lock { fd, .. } => {
                self.find(thread, fd)
            }
            // Of the dups, dup2 alone finds the file and gives it its number in one step; so it is in Linux.
            Op::Dup(fd) | Op::DupFrom { from: fd, .. } => self.find(thread, fd),
            Op::Poll { .. } => Outcome::Waits,
            Op::Splice { from, .. } => self.begin_splice(thread, from),
        }
    }

    /// Others see the new table before what was in it is closed, if nobody else has it, and before the process has lost its locks on it.
    fn let_go(&mut self, thread: Id, gone: Option<Entry>, result: i64) -> Outcome {
        let file = |entry: &Entry| matches!(self.descriptions[&entry.description].kind, Kind::File { .. });
        let told = |entry: &Entry| file(entry) || !self.is_open(entry.description);
        let Some(entry) = gone.filter(told) else { return done(result) };
        self.held.insert(thread, entry.description);
        Outcome::Waits
    }

    fn pipe(&mut self, thread: Id, cloexec: bool) -> Outcome {
        let mut making = self.making[&thread].clone();
        let (next, last) = (self.lowest(thread, 0), making.first_is_there);
        match making.numbers[..] {
            [first, second] => {
                let (fd, description) = if last { (second, making.ends[1]) } else { (first, making.ends[0]) };
                self.table(thread).insert(fd, Entry { description, cloexec });
                making.first_is_there = true;
            }
            _ => making.numbers.push(next),
        }
        let numbers = making.numbers.iter().flat_map(|fd| fd.to_le_bytes()).collect();
        self.making.insert(thread, making);
        match last {
            true => {
                self.making.remove(&thread);
                Outcome::Reply((0, numbers))
            }
            false => Outcome::Waits,
        }
    }

    /// What a call does to the open file that it has found; none: it must wait.
    fn on_file(&mut self, thread: Id, op: Op) -> Option<Reply> {
        let number = self.held[&thread];
        let ends = self.ends_of(number);
        let Files { descriptions, store, .. } = self;
        let description = descriptions.get_mut(&number).expect("it is held");
        match op {
            Op::Read { bytes, .. } => description.read(store, ends, bytes),
            Op::Write { bytes, value, .. } => Some(description.write(store, ends, &written(bytes, value))),
            Op::Seek { to, .. } => Some((description.seek(store, to), Vec::new())),
            _ => None,
        }
    }
}
