//! Processes, threads and signals without kernels: one state, changed by one step at a time.
//!
//! A step is a system call as a whole, or something that happens by itself: a thread takes a signal, a process that
//! is to end is gone, a parent hears of its child. In which order, the model leaves open; `explain.rs` looks for one.

use std::collections::{BTreeMap, BTreeSet};

pub type Id = u32;

pub const INIT: Id = 1;

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
    /// The wait it is in, and whether a handler has run since.
    pub waits: Option<(u64, Op, bool)>,
}

impl Thread {
    fn new(process: Id, mask: u64) -> Self {
        let (pending, frames) = (Signals::default(), Vec::new());
        Thread { process, mask, pending, told: None, unseen: None, frames, waits: None }
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
    pub threads: BTreeMap<Id, Thread>,
    pub processes: BTreeMap<Id, Process>,
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

    // ---- what a call does, with the result it had

    /// `op` by `thread`, done at once with this result and output: false if that can't be.
    pub fn call(&mut self, thread: Id, op: Op, result: i64, output: &[u8]) -> bool {
        let Some(caller) = self.threads.get(&thread).map(|thread| thread.process) else { return false };
        match op {
            Op::Fork if result > 0 => self.fork(thread, result as Id),
            Op::Thread(_) if result > 0 => self.clone_thread(thread, result as Id),
            Op::Fork | Op::Thread(_) => matches!(result, EAGAIN | ENOMEM),
            Op::Exit(_) | Op::ExitGroup(_) | Op::Execute => false,
            Op::Wait(which, options) => self.wait(caller, which, options, result, output),
            Op::Kill(target, signal) => result == self.kill(target, signal),
            Op::Tgkill(process, target, signal) => self.tgkill(process, target, signal, result),
            Op::Mask(block, set) => {
                let thread = self.threads.get_mut(&thread).expect("looked at above");
                thread.mask = if block { thread.mask | set } else { thread.mask & !set };
                result == 0
            }
            Op::Action(signal, action) => {
                self.processes.get_mut(&caller).expect("a thread has one").actions.insert(signal, action);
                if self.is_ignored(caller, signal) {
                    self.discard(caller, bit(signal));
                }
                result == 0
            }
            Op::Pending => {
                let known = &self.threads[&thread];
                let pending = known.pending.bits() | self.processes[&caller].pending.bits();
                result == 0 && output == (pending & known.mask).to_le_bytes()
            }
            Op::Setpgid(process, group) => result == self.setpgid(caller, process, group),
            Op::Setsid => self.setsid(caller, result),
            Op::Getppid => result == i64::from(self.processes[&caller].parent),
            Op::Getpid => result == i64::from(caller),
            Op::Getpgid(process) => result == self.processes.get(&process).map_or(ESRCH, |of| i64::from(of.group)),
            Op::Getsid(process) => result == self.processes.get(&process).map_or(ESRCH, |of| i64::from(of.session)),
            Op::Move(target, _) => result == 0 || result == ESRCH && !self.threads.contains_key(&target),
        }
    }

    /// What `thread` was told ends it or its process: false if not.
    pub fn leave(&mut self, thread: Id) -> bool {
        let Some((process, Some((_, op)))) = self.threads.get(&thread).map(|known| (known.process, known.told)) else {
            return false;
        };
        let known = self.processes.get_mut(&process).expect("a thread has one");
        match op {
            Op::Exit(code) => {
                known.threads.remove(&thread);
                if known.threads.is_empty() {
                    known.ending.get_or_insert(i32::from(code) << 8);
                }
                self.threads.remove(&thread);
                true
            }
            Op::ExitGroup(code) => {
                known.ending.get_or_insert(i32::from(code) << 8);
                self.threads.get_mut(&thread).expect("seen").told = None;
                true
            }
            _ => false,
        }
    }

    /// States after what `thread` was told, with each result that it could have now, which is not seen yet. `child`:
    /// who was born of it.
    pub fn guesses(&self, thread: Id, child: Option<Id>) -> Vec<Model> {
        let Some((number, op)) = self.threads.get(&thread).and_then(|known| known.told) else { return Vec::new() };
        let caller = self.threads[&thread].process;
        let id_of = |id: Option<Id>| id.map_or(ESRCH, i64::from);
        let results: Vec<(i64, Vec<u8>)> = match op {
            Op::Exit(_) | Op::ExitGroup(_) | Op::Execute => Vec::new(),
            Op::Fork | Op::Thread(_) => child.map(|child| (i64::from(child), Vec::new())).into_iter().collect(),
            Op::Wait(which, _) => {
                let status =
                    |child: &Id| Some((i64::from(*child), self.processes[child].event?.to_le_bytes().to_vec()));
                let children = self.wanted(caller, which);
                children.iter().filter_map(status).chain([(0, Vec::new()), (ECHILD, Vec::new())]).collect()
            }
            Op::Pending => {
                let known = &self.threads[&thread];
                let pending = known.pending.bits() | self.processes[&caller].pending.bits();
                vec![(0, (pending & known.mask).to_le_bytes().to_vec())]
            }
            Op::Setsid => vec![(i64::from(caller), Vec::new()), (EPERM, Vec::new())],
            Op::Getppid => vec![(i64::from(self.processes[&caller].parent), Vec::new())],
            Op::Getpid => vec![(i64::from(caller), Vec::new())],
            Op::Getpgid(id) => vec![(id_of(self.processes.get(&id).map(|process| process.group)), Vec::new())],
            Op::Getsid(id) => vec![(id_of(self.processes.get(&id).map(|process| process.session)), Vec::new())],
            _ => [0, ESRCH, EPERM, EACCES].map(|result| (result, Vec::new())).into(),
        };
        let mut after = Vec::new();
        for (result, output) in results {
            let mut next = self.clone();
            if next.call(thread, op, result, &output) {
                if let Some(known) = next.threads.get_mut(&thread) {
                    known.told = None;
                    known.unseen = Some((number, result, output));
                }
                after.push(next);
            }
        }
        after
    }

    /// The result of a call is seen, and was to be expected.
    pub fn see(&mut self, thread: Id, number: u64, result: i64, output: &[u8]) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        match known.unseen.take() {
            Some((expected, value, bytes)) => {
                expected == number && value == result && (result < 0 || output.starts_with(&bytes))
            }
            None => false,
        }
    }

    /// The effect of what `thread` was told, with the result that will be seen.
    pub fn act(&mut self, thread: Id, number: u64, result: i64, output: &[u8]) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        let explained = match (known.told, known.waits) {
            (Some((told, op)), _) if told == number => {
                known.told = None;
                self.call(thread, op, result, output)
            }
            (_, Some((waits, ..))) if waits == number => self.end_wait(thread, result, output),
            _ => false,
        };
        if let Some(known) = self.threads.get_mut(&thread).filter(|_| explained) {
            known.unseen = Some((number, result, output.to_vec()));
        }
        explained
    }

    /// `thread` executes, and is stopped or ended before it is seen to.
    pub fn execute_unseen(&mut self, thread: Id) -> bool {
        let process = self.process(thread);
        let executed = self.execute(thread);
        let survivor = process.and_then(|id| self.threads.get_mut(&id)).filter(|_| executed);
        survivor.map(|survivor| survivor.unseen = Some(EXECUTED)).is_some()
    }

    /// The program of main thread `id` begins.
    pub fn see_executed(&mut self, id: Id) -> bool {
        self.see(id, EXECUTED.0, EXECUTED.1, &[])
    }

    /// `thread` was told to wait, and begins to.
    pub fn begin_wait(&mut self, thread: Id) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        match known.told {
            Some((number, Op::Wait(which, options))) if options & WNOHANG == 0 => {
                // Which group is meant is decided when the call is made.
                let group = self.processes[&known.process].group;
                let which = if which == 0 { -i64::from(group) } else { which };
                (known.told, known.waits) = (None, Some((number, Op::Wait(which, options), false)));
                true
            }
            _ => false,
        }
    }

    /// The wait of `thread` ends.
    fn end_wait(&mut self, thread: Id, result: i64, output: &[u8]) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        let Some((_, op, interrupted)) = known.waits.take() else { return false };
        (result == EINTR && interrupted) || self.call(thread, op, result, output)
    }

    /// execve of `thread`: it goes on alone, as the main thread.
    pub fn execute(&mut self, thread: Id) -> bool {
        let Some(mut survivor) = self.threads.remove(&thread) else { return false };
        let id = survivor.process;
        let process = self.processes.get_mut(&id).expect("a thread has one");
        for other in std::mem::replace(&mut process.threads, [id].into()) {
            self.threads.remove(&other);
        }
        process.actions.retain(|_, action| *action == 1);
        process.executed = true;
        (survivor.waits, survivor.told, survivor.unseen) = (None, None, None);
        self.threads.insert(id, survivor);
        true
    }

    fn fork(&mut self, thread: Id, child: Id) -> bool {
        if self.processes.contains_key(&child) || self.threads.contains_key(&child) {
            return false;
        }
        let parent = self.threads[&thread].process;
        let process = Process {
            parent,
            threads: [child].into(),
            pending: Signals::default(),
            stopped: false,
            ending: None,
            zombie: None,
            executed: false,
            reports: Vec::new(),
            event: None,
            ..self.processes[&parent].clone()
        };
        self.processes.insert(child, process);
        let mask = self.threads[&thread].mask;
        self.threads.insert(child, Thread::new(child, mask));
        true
    }

    fn clone_thread(&mut self, thread: Id, child: Id) -> bool {
        if self.processes.contains_key(&child) || self.threads.contains_key(&child) {
            return false;
        }
        let process = self.threads[&thread].process;
        let known = self.processes.get_mut(&process).expect("a thread has one");
        known.threads.insert(child);
        let mask = self.threads[&thread].mask;
        self.threads.insert(child, Thread::new(process, mask));
        true
    }

    // ---- groups and sessions

    /// man 2 setpgid; group 0 is the process's own id.
    fn setpgid(&mut self, caller: Id, target: Id, group: Id) -> i64 {
        let group = if group == 0 { target } else { group };
        let Some(process) = self.processes.get(&target) else { return ESRCH };
        let session = self.processes[&caller].session;
        if target != caller {
            if process.parent != caller {
                return ESRCH;
            }
            if process.session != session {
                return EPERM;
            }
            if process.executed {
                return EACCES;
            }
        }
        let known = self.processes.values().any(|other| other.group == group && other.session == session);
        if process.session == target || group != target && !known {
            return EPERM;
        }
        self.processes.get_mut(&target).expect("seen").group = group;
        0
    }

    fn setsid(&mut self, caller: Id, result: i64) -> bool {
        if self.processes.values().any(|other| other.group == caller) {
            return result == EPERM;
        }
        let process = self.processes.get_mut(&caller).expect("a thread has one");
        (process.group, process.session) = (caller, caller);
        result == i64::from(caller)
    }

    // ---- waiting

    fn wanted(&self, parent: Id, which: i64) -> Vec<Id> {
        let meant = |id: &Id, process: &Process| {
            process.parent == parent
                && match which {
                    -1 => true,
                    0 => process.group == self.processes[&parent].group,
                    which if which < 0 => i64::from(process.group) == -which,
                    which => which == i64::from(*id),
                }
        };
        self.processes.iter().filter(|(id, process)| meant(id, process)).map(|(id, _)| *id).collect()
    }

    fn taken(&self, child: Id, options: u64) -> bool {
        match self.processes[&child].event {
            None => false,
            Some(CONTINUED) => options & WCONTINUED != 0,
            Some(status) => is_exit(status) || options & WUNTRACED != 0,
        }
    }

    fn wait(&mut self, parent: Id, which: i64, options: u64, result: i64, output: &[u8]) -> bool {
        let children = self.wanted(parent, which);
        let ready = children.iter().any(|child| self.taken(*child, options));
        match result {
            ECHILD => children.is_empty(),
            0 => options & WNOHANG != 0 && !children.is_empty() && !ready,
            child if child > 0 && children.contains(&(child as Id)) && self.taken(child as Id, options) => {
                let child = child as Id;
                let process = self.processes.get_mut(&child).expect("one of the children");
                let status = process.event.take().expect("it is taken");
                if is_exit(status) {
                    self.processes.remove(&child);
                }
                output == status.to_le_bytes()
            }
            _ => false,
        }
    }

    // ---- signals

    fn kill(&mut self, target: i64, signal: u8) -> i64 {
        let targets: Vec<Id> = match target {
            target if target > 0 => {
                let id = target as Id;
                let process = self.threads.get(&id).map_or(id, |thread| thread.process);
                self.processes.contains_key(&process).then_some(process).into_iter().collect()
            }
            group => {
                let of = |process: &Process| i64::from(process.group) == -group;
                self.processes.iter().filter(|(_, process)| of(process)).map(|(id, _)| *id).collect()
            }
        };
        for &process in &targets {
            self.send(process, None, signal);
        }
        if targets.is_empty() {
            ESRCH
        } else {
            0
        }
    }

    fn tgkill(&mut self, process: Id, target: Id, signal: u8, result: i64) -> bool {
        match self.threads.get(&target) {
            Some(thread) if thread.process == process => {
                self.send(process, Some(target), signal);
                result == 0
            }
            // A main thread that has ended is there until its process is waited for.
            _ if target == process && self.processes.contains_key(&process) => result == 0,
            _ => result == ESRCH,
        }
    }

    fn discard(&mut self, process: Id, signals: u64) {
        let keep = |pending: &mut Signals| pending.0.retain(|signal, _| bit(*signal) & signals == 0);
        keep(&mut self.processes.get_mut(&process).expect("the caller has looked").pending);
        self.threads.values_mut().filter(|thread| thread.process == process).for_each(|t| keep(&mut t.pending));
    }

    fn send(&mut self, process: Id, thread: Option<Id>, signal: u8) {
        if self.processes[&process].zombie.is_some() {
            return;
        }
        match signal {
            KILL => {
                self.processes.get_mut(&process).expect("seen").ending.get_or_insert(i32::from(KILL));
                return;
            }
            CONT => {
                self.discard(process, bit(STOP));
                let known = self.processes.get_mut(&process).expect("seen");
                if std::mem::take(&mut known.stopped) {
                    known.reports.push(CONTINUED);
                }
            }
            STOP => self.discard(process, bit(CONT)),
            _ => {}
        }
        if self.is_ignored(process, signal) {
            return;
        }
        match thread {
            Some(thread) => self.threads.get_mut(&thread).expect("seen").pending.add(signal),
            None => self.processes.get_mut(&process).expect("seen").pending.add(signal),
        }
    }

    /// Signals that `thread` could take now.
    fn deliverable(&self, thread: Id) -> Vec<u8> {
        let known = &self.threads[&thread];
        let process = &self.processes[&known.process];
        let pending = known.pending.bits() | process.pending.bits();
        (1..=64).filter(|signal| pending & !known.mask & bit(*signal) != 0).collect()
    }

    /// Signals with a handler that `thread` could take.
    pub fn handleable(&self, thread: Id) -> Vec<u8> {
        let process = self.threads[&thread].process;
        self.deliverable(thread).into_iter().filter(|signal| self.action(process, *signal) == 2).collect()
    }

    /// The handler of `signal` runs in `thread`.
    pub fn handle(&mut self, thread: Id, signal: u8) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        if let Some(index) = known.frames.iter().position(|frame| *frame == signal) {
            known.frames.remove(index);
            return true;
        }
        self.enter(thread, signal)
    }

    /// `thread` takes `signal`, and is to run the handler.
    pub fn prepare(&mut self, thread: Id, signal: u8) -> bool {
        let entered = self.enter(thread, signal);
        self.threads.get_mut(&thread).filter(|_| entered).map(|known| known.frames.push(signal)).is_some()
    }

    fn enter(&mut self, thread: Id, signal: u8) -> bool {
        let Some(process) = self.threads.get(&thread).map(|thread| thread.process) else { return false };
        if self.action(process, signal) != 2 || !self.deliverable(thread).contains(&signal) {
            return false;
        }
        self.take(thread, signal);
        if let Some((_, _, interrupted)) = &mut self.threads.get_mut(&thread).expect("seen").waits {
            *interrupted = true;
        }
        true
    }

    fn take(&mut self, thread: Id, signal: u8) {
        let known = self.threads.get_mut(&thread).expect("the caller has looked");
        if !known.pending.take(signal) {
            self.processes.get_mut(&known.process).expect("a thread has one").pending.take(signal);
        }
    }

    /// States after a thread has taken a signal that stops or ends its process.
    pub fn defaults(&self) -> Vec<Model> {
        let mut after = Vec::new();
        for &thread in self.threads.keys() {
            let process = self.threads[&thread].process;
            if self.processes[&process].ending.is_some() || self.processes[&process].stopped {
                continue;
            }
            for signal in self.deliverable(thread) {
                if self.action(process, signal) != 0 {
                    continue;
                }
                let mut next = self.clone();
                next.take(thread, signal);
                let known = next.processes.get_mut(&process).expect("seen");
                if signal == STOP {
                    known.stopped = true;
                    known.reports.push(stopped_by(STOP));
                } else {
                    known.ending = Some(i32::from(signal));
                }
                if !after.contains(&next) {
                    after.push(next);
                }
            }
        }
        after
    }

    // ---- ends and news

    /// States after one process that is to end is gone, or one parent has heard news. `busy`: threads that will
    /// still be seen to do something.
    pub fn news(&self, busy: &BTreeSet<Id>) -> Vec<Model> {
        let mut after = Vec::new();
        for (&id, process) in &self.processes {
            if process.ending.is_some() && process.zombie.is_none() && process.threads.is_disjoint(busy) {
                let mut next = self.clone();
                next.finish(id);
                after.push(next);
            }
            if !process.reports.is_empty() {
                let mut next = self.clone();
                let status = next.processes.get_mut(&id).expect("seen").reports.remove(0);
                next.report(id, status);
                after.push(next);
            }
        }
        after
    }

    fn finish(&mut self, id: Id) {
        let process = self.processes.get_mut(&id).expect("seen");
        process.zombie = process.ending;
        process.reports.clear();
        process.pending = Signals::default();
        let status = process.ending.expect("it is to end");
        for thread in std::mem::take(&mut process.threads) {
            self.threads.remove(&thread);
        }
        let orphans: Vec<Id> = self.processes.iter().filter(|(_, p)| p.parent == id).map(|(id, _)| *id).collect();
        for orphan in orphans {
            let process = self.processes.get_mut(&orphan).expect("one of them");
            process.parent = INIT;
            if process.zombie.is_some() {
                self.processes.remove(&orphan);
            }
        }
        self.report(id, status);
    }

    fn report(&mut self, id: Id, status: Status) {
        let parent = self.processes[&id].parent;
        let alive = self.processes.get(&parent).is_some_and(|parent| parent.zombie.is_none());
        let unwanted = parent == INIT || !alive || self.action(parent, CHLD) == 1;
        if is_exit(status) && unwanted {
            self.processes.remove(&id);
        } else {
            self.processes.get_mut(&id).expect("the caller has looked").event = Some(status);
        }
        if alive {
            self.send(parent, None, CHLD);
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
        for (id, process) in &self.processes {
            if process.ending.is_some() && process.zombie.is_none() {
                return Some(format!("process {id} has not ended"));
            }
            if !process.reports.is_empty() {
                return Some(format!("the parent of {id} has not heard {:x?}", process.reports));
            }
        }
        for (id, thread) in &self.threads {
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
            if let Some((_, Op::Wait(which, options), interrupted)) = thread.waits {
                let children = self.wanted(thread.process, which);
                let ready = children.iter().any(|child| self.taken(*child, options));
                // Nobody tells a wait for a group that the last member has left it.
                let hopeless = children.is_empty() && which >= -1;
                if interrupted || hopeless || ready {
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
