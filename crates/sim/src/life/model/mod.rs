//! Processes, threads and signals without kernels: one state, changed by one step at a time.
//!
//! A step is a system call as a whole, or something that happens by itself: a thread takes a signal, a process that
//! is to end is gone, a parent hears of its child. In which order, the model leaves open; `explain.rs` looks for one.
//!
//! Here is the state, and when it is at rest; calls.rs has what calls do to it, families.rs groups and waiting,
//! signals.rs and ends.rs what happens by itself.

mod calls;
mod ends;
mod families;
mod signals;

use super::shared::SharedMap;
use std::collections::{BTreeMap, BTreeSet};

pub type Id = u32;

pub const INIT: Id = 1;

pub const HUP: u8 = 1;
pub const KILL: u8 = 9;
pub const USR1: u8 = 10;
pub const TERM: u8 = 15;
pub const CHLD: u8 = 17;
pub const CONT: u8 = 18;
pub const STOP: u8 = 19;
pub const RT: u8 = 34;

pub const ESRCH: i64 = -3;
pub const EINTR: i64 = -4;
pub const ECHILD: i64 = -10;
pub const EAGAIN: i64 = -11;
pub const ENOMEM: i64 = -12;
pub const EACCES: i64 = -13;
pub const EINVAL: i64 = -22;
pub const EPERM: i64 = -1;
pub const ENXIO: i64 = -6;
pub const EBUSY: i64 = -16;

pub const WNOHANG: u64 = 1;
pub const WUNTRACED: u64 = 2;
pub const WCONTINUED: u64 = 8;

/// What a thread is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Fork,
    /// With the stack in this slot.
    Thread(u64),
    Exit(u8),
    ExitGroup(u8),
    Execute,
    /// wait4 for a process, any (-1) or a group; options.
    Wait(i64, u64),
    /// kill; negative: a group.
    Kill(i64, u8),
    Tgkill(Id, Id, u8),
    /// Blocks (true) or unblocks signals.
    Mask(bool, u64),
    /// 0 default, 1 ignore, 2 handler.
    Action(u8, u8),
    Pending,
    Setpgid(Id, Id),
    Setsid,
    Getppid,
    Getpgid(Id),
    Getsid(Id),
    Getpid,
    /// sched_setaffinity of a thread to one CPU: moves it, and the model sees nothing.
    Move(Id, u32),
    /// umt_enable on a machine of so many CPUs, with flags.
    Enable(u32, u32),
    /// umt_control: the thread is monitored from now on, or no more.
    Monitor(bool),
}

/// How wait4 reports the end of a process.
pub type Status = i32;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signals(BTreeMap<u8, u32>);

impl Signals {
    fn add(&mut self, signal: u8) {
        let count = self.0.entry(signal).or_default();
        // Real-time signals queue up, the others don't.
        *count = if signal >= 32 { *count + 1 } else { 1 };
    }

    fn take(&mut self, signal: u8) -> bool {
        let Some(count) = self.0.get_mut(&signal) else { return false };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&signal);
        }
        true
    }

    fn bits(&self) -> u64 {
        self.0.keys().fold(0, |bits, signal| bits | bit(*signal))
    }
}

pub fn bit(signal: u8) -> u64 {
    1 << (signal - 1)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    pub process: Id,
    pub mask: u64,
    pending: Signals,
    /// The call it was told to make, if that has had no effect yet.
    pub told: Option<(u64, Op)>,
    /// A call that had its effect, whose result is not seen yet: the process is stopped, or will end.
    unseen: Option<(u64, i64, Vec<u8>)>,
    /// Signals it has taken whose handlers are not seen yet, for the same reason.
    frames: Vec<u8>,
    pub waits: Option<Waits>,
    /// Its process hears when it waits.
    pub monitored: bool,
}

/// A wait that a thread is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waits {
    number: u64,
    which: i64,
    options: u64,
    /// It is for the group that the process was in when it began.
    own_group: bool,
    /// A handler has run since.
    interrupted: bool,
}

impl Thread {
    fn new(process: Id, mask: u64) -> Self {
        let (pending, frames) = (Signals::default(), Vec::new());
        Thread { process, mask, pending, told: None, unseen: None, frames, waits: None, monitored: false }
    }

    pub fn executes(&self) -> bool {
        matches!(self.told, Some((_, Op::Execute)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub parent: Id,
    pub group: Id,
    pub session: Id,
    pub threads: BTreeSet<Id>,
    actions: BTreeMap<u8, u8>,
    pending: Signals,
    pub stopped: bool,
    pub ending: Option<Status>,
    pub zombie: Option<Status>,
    executed: bool,
    /// It has counters for its monitored threads.
    pub counted: bool,
    /// What its parent is still to hear.
    reports: Vec<Status>,
    /// What its parent can wait for.
    event: Option<Status>,
}

/// In place of a result: the beginning of a new program.
const EXECUTED: (u64, i64, Vec<u8>) = (0, 0, Vec::new());

/// `wstatus` of a continued child.
const CONTINUED: Status = 0xffff;

fn stopped_by(signal: u8) -> Status {
    i32::from(signal) << 8 | 0x7f
}

fn is_exit(status: Status) -> bool {
    status != CONTINUED && status & 0xff != 0x7f
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Model {
    pub threads: SharedMap<Thread>,
    pub processes: SharedMap<Process>,
}

impl Model {
    /// One process of one thread, a child of init.
    pub fn new(first: Id) -> Self {
        let mut model = Model::default();
        model.threads.insert(first, Thread::new(first, 0));
        let process = Process {
            parent: INIT,
            group: first,
            session: first,
            threads: [first].into(),
            actions: BTreeMap::new(),
            pending: Signals::default(),
            stopped: false,
            ending: None,
            zombie: None,
            executed: true,
            counted: false,
            reports: Vec::new(),
            event: None,
        };
        model.processes.insert(first, process);
        model
    }

    fn action(&self, process: Id, signal: u8) -> u8 {
        self.processes[&process].actions.get(&signal).copied().unwrap_or(0)
    }

    fn is_ignored(&self, process: Id, signal: u8) -> bool {
        match self.action(process, signal) {
            0 => matches!(signal, CHLD | CONT),
            action => action == 1,
        }
    }

    // ---- at rest

    /// Threads that have nothing to do but what they are told.
    pub fn idle(&self) -> BTreeSet<Id> {
        let idle = |(id, thread): (&Id, &Thread)| {
            (thread.waits.is_none() && !self.processes[&thread.process].stopped).then_some(*id)
        };
        self.threads.iter().filter_map(idle).collect()
    }

    /// Why the machine can't be at rest in this state.
    pub fn unrest(&self) -> Option<String> {
        for (id, process) in self.processes.iter() {
            if process.ending.is_some() && process.zombie.is_none() {
                return Some(format!("process {id} has not ended"));
            }
            if !process.reports.is_empty() {
                return Some(format!("the parent of {id} has not heard {:x?}", process.reports));
            }
        }
        for (id, thread) in self.threads.iter() {
            if self.processes[&thread.process].stopped {
                continue;
            }
            if let Some(told) = thread.told {
                return Some(format!("{id} has not done {told:?}"));
            }
            if thread.unseen.is_some() || !thread.frames.is_empty() {
                return Some(format!("{id} should be seen to do more"));
            }
            let signals = self.deliverable(*id);
            if !signals.is_empty() {
                return Some(format!("thread {id} has not taken {signals:?}"));
            }
            if let Some(waits) = &thread.waits {
                let children = self.wanted(thread.process, waits.which);
                let ready = children.iter().any(|child| self.taken(*child, waits.options));
                // Nobody tells a wait for a group that the last member has left it.
                let hopeless = children.is_empty() && waits.which >= -1;
                if waits.interrupted || hopeless || ready {
                    return Some(format!("the wait of {id} has not ended"));
                }
            }
        }
        None
    }

    pub fn process(&self, thread: Id) -> Option<Id> {
        Some(self.threads.get(&thread)?.process)
    }

    pub fn lives(&self, thread: Id) -> bool {
        self.threads.contains_key(&thread)
    }
}
