//! What a call does, with the result it had; calls whose results are not seen, or not yet.

use super::*;

impl Model {
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
            Op::Move(target, _) => {
                // A main thread that has ended is there until its process is waited for.
                let gone = !self.threads.contains_key(&target) && !self.processes.contains_key(&target);
                result == 0 || result == ESRCH && gone
            }
            Op::Enable(cpus, _) => {
                let known = self.processes.get_mut(&caller).expect("a thread has one");
                match std::mem::replace(&mut known.counted, true) {
                    true => result == EBUSY,
                    false => result == i64::from(cpus),
                }
            }
            Op::Monitor(on) => {
                let counted = self.processes[&caller].counted;
                self.threads.get_mut(&thread).expect("looked at above").monitored = counted && on;
                result == if counted { 0 } else { ENXIO }
            }
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
            Op::Enable(cpus, _) => vec![(i64::from(cpus), Vec::new()), (EBUSY, Vec::new())],
            Op::Monitor(_) => vec![(0, Vec::new()), (ENXIO, Vec::new())],
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

    /// The call has had its effect, and is still to be seen to return.
    pub fn expects(&self, thread: Id, number: u64) -> bool {
        let unseen = self.threads.get(&thread).and_then(|known| known.unseen.as_ref());
        unseen.is_some_and(|(expected, ..)| *expected == number)
    }

    /// A call whose answer nobody else can change, and which changes nothing that others see.
    pub fn ask_about_itself(&mut self, thread: Id, number: u64, result: i64, output: &[u8]) -> bool {
        let told = self.threads.get(&thread).and_then(|known| known.told);
        let private = match told {
            Some((told, op)) => told == number && (op == Op::Getpid || matches!(op, Op::Move(..)) && result == 0),
            None => false,
        };
        private && self.act(thread, number, result, output)
    }

    /// The effect of what `thread` was told, with the result that will be seen.
    pub fn act(&mut self, thread: Id, number: u64, result: i64, output: &[u8]) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        let explained = match (known.told, &known.waits) {
            (Some((told, op)), _) if told == number => {
                known.told = None;
                self.call(thread, op, result, output)
            }
            (_, Some(waits)) if waits.number == number => self.end_wait(thread, result, output),
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
                let own_group = which == 0;
                let which = if own_group { -i64::from(group) } else { which };
                known.told = None;
                known.waits = Some(Waits { number, which, options, own_group, interrupted: false });
                true
            }
            _ => false,
        }
    }

    /// The wait of `thread` is interrupted by a signal that another thread takes, and begins again (man 7 signal, "Interruption of system
    /// calls"): false if that makes no difference.
    pub fn wait_again(&mut self, thread: Id) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        let group = -i64::from(self.processes[&known.process].group);
        match &mut known.waits {
            Some(waits) if waits.own_group && waits.which != group => {
                waits.which = group;
                true
            }
            _ => false,
        }
    }

    /// The wait of `thread` ends.
    pub(super) fn end_wait(&mut self, thread: Id, result: i64, output: &[u8]) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else { return false };
        let Some(waits) = known.waits.take() else { return false };
        (result == EINTR && waits.interrupted)
            || self.call(thread, Op::Wait(waits.which, waits.options), result, output)
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
        process.counted = false;
        (survivor.waits, survivor.told, survivor.unseen, survivor.monitored) = (None, None, None, false);
        self.threads.insert(id, survivor);
        true
    }

    pub(super) fn fork(&mut self, thread: Id, child: Id) -> bool {
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
            counted: false,
            reports: Vec::new(),
            event: None,
            ..self.processes[&parent].clone()
        };
        self.processes.insert(child, process);
        let mask = self.threads[&thread].mask;
        self.threads.insert(child, Thread::new(child, mask));
        true
    }

    pub(super) fn clone_thread(&mut self, thread: Id, child: Id) -> bool {
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
}
