//! Signals: sent, pending, taken.

use super::*;

impl Model {
    pub(super) fn kill(&mut self, target: i64, signal: u8) -> i64 {
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

    pub(super) fn tgkill(&mut self, process: Id, target: Id, signal: u8, result: i64) -> bool {
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

    pub(super) fn discard(&mut self, process: Id, signals: u64) {
        let keep = |pending: &mut Signals| pending.0.retain(|signal, _| bit(*signal) & signals == 0);
        keep(&mut self.processes.get_mut(&process).expect("the caller has looked").pending);
        for thread in self.processes[&process].threads.clone() {
            keep(&mut self.threads.get_mut(&thread).expect("it has it").pending);
        }
    }

    pub(super) fn send(&mut self, process: Id, thread: Option<Id>, signal: u8) {
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
        // Who blocks it may have another action by the time it is taken.
        if self.is_ignored(process, signal) && !self.is_blocked(process, thread, signal) {
            return;
        }
        match thread {
            Some(thread) => self.threads.get_mut(&thread).expect("seen").pending.add(signal),
            None => self.processes.get_mut(&process).expect("seen").pending.add(signal),
        }
    }

    /// By the thread it is for, or by any if it is for the process.
    fn is_blocked(&self, process: Id, thread: Option<Id>, signal: u8) -> bool {
        let threads = self.threads.iter().filter(|(id, known)| match thread {
            Some(thread) => **id == thread,
            None => known.process == process,
        });
        threads.into_iter().any(|(_, known)| known.mask & bit(signal) != 0)
    }

    /// Signals that `thread` could take now.
    pub(super) fn deliverable(&self, thread: Id) -> Vec<u8> {
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

    pub(super) fn enter(&mut self, thread: Id, signal: u8) -> bool {
        let Some(process) = self.threads.get(&thread).map(|thread| thread.process) else { return false };
        if self.action(process, signal) != 2 || !self.deliverable(thread).contains(&signal) {
            return false;
        }
        self.take(thread, signal);
        if let Some(waits) = &mut self.threads.get_mut(&thread).expect("seen").waits {
            waits.interrupted = true;
        }
        true
    }

    pub(super) fn take(&mut self, thread: Id, signal: u8) {
        let known = self.threads.get_mut(&thread).expect("the caller has looked");
        if !known.pending.take(signal) {
            self.processes.get_mut(&known.process).expect("a thread has one").pending.take(signal);
        }
    }

    /// States after a thread has taken a signal that stops or ends its process, or does nothing.
    pub fn defaults(&self) -> Vec<Model> {
        let mut after = Vec::new();
        for &thread in self.threads.keys() {
            let process = self.threads[&thread].process;
            if self.processes[&process].ending.is_some() || self.processes[&process].stopped {
                continue;
            }
            for signal in self.deliverable(thread) {
                if self.action(process, signal) == 2 {
                    continue;
                }
                let mut next = self.clone();
                next.take(thread, signal);
                if self.action(process, signal) == 1 {
                    after.push(next);
                    continue;
                }
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
}
