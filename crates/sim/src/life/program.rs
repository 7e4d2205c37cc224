//! Random programs: in each round a few threads make a call each, all at once, and the machine comes to rest.

use super::{
    explain::{explain, States},
    model::{bit, Id, Model, Op, CHLD, CONT, KILL, RT, STOP, TERM, USR1, WCONTINUED, WNOHANG, WUNTRACED},
};
use crate::{
    machine::Machine,
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{action, call, clone_thread, Arg, Command, Event},
    },
    rng::Rng,
    scenario::{Log, Scenario, Step},
    shape::Shape,
};
use ::machine::{CpuId, Pid};
use std::collections::{BTreeMap, BTreeSet};

/// Threads and processes that a program has at most.
const MOST_THREADS: usize = 14;
/// man 7 umt.
const UMT_SET: u64 = 2;
/// Calls of a step.
const MOST_ACTS: usize = 3;

pub struct Program {
    nodes: Nodes,
    states: States,
    stacks: u64,
    /// Ids that were handed out once, dead ones too.
    ids: Vec<Id>,
    operations: u64,
}

impl Scenario for Program {
    const NAME: &'static str = "life";
    const STEPS: u32 = 60;

    fn new(shape: Shape) -> Self {
        // Scarce memory is the other scenario's subject.
        let nodes = Nodes::new(Shape { scarce: false, frames: 1 << 13, ..shape });
        let first = nodes.boot(nodes.world.rng.below(shape.kernels));
        nodes.user.events();
        let mut program =
            Program { nodes, states: States::one(Model::new(first)), stacks: 0, ids: vec![first], operations: 0 };
        for signal in [USR1, RT, RT + 1] {
            program.perform(&[(first, Op::Action(signal, 2))], &Log::Nothing);
        }
        program
    }

    fn machine(&self) -> &Machine {
        &self.nodes
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        let idle = self.nodes.idle().into_iter().collect();
        let mut acts = step.draw(MOST_ACTS, idle, rng, |thread| self.random_op(*thread, rng));
        // Who is stopped or ended with its group before its parent has seen it was never seen at all.
        let harsh = |op: &Op| matches!(op, Op::Kill(group, STOP | KILL | TERM) if *group < 0);
        if let Some(index) = acts.iter().position(|(_, op)| harsh(op)) {
            acts = vec![acts[index]];
        }
        if !acts.is_empty() {
            log.line(|| format!("step {}", step.number));
            self.operations += acts.len() as u64;
            self.perform(&acts, log);
        }
    }

    /// Ends everything; then no kernel knows any process any more.
    fn finish(&mut self, log: &Log) {
        log.line(|| "all are killed");
        self.nodes.end_all();
    }

    fn operations(&self) -> u64 {
        self.operations
    }
}

impl Program {
    fn perform(&mut self, acts: &[(Id, Op)], log: &Log) {
        let mut calls = BTreeMap::new();
        for &(thread, op) in acts {
            let number = self.nodes.user.tell(thread, self.command(op));
            log.line(|| format!("  {number}: {thread} {op:?}"));
            calls.insert(number, (thread, op));
        }
        self.nodes.settle();
        let (events, idle) = (self.nodes.user.events(), self.nodes.idle());
        events.iter().for_each(|event| log.line(|| format!("      {event:?}")));
        log.line(|| format!("      idle: {idle:?}"));
        let born = |event: &Event| match event {
            Event::Born { thread, .. } => Some(*thread),
            _ => None,
        };
        self.ids.extend(events.iter().filter_map(born));
        self.states = match explain(&self.states, &calls, &events, &idle) {
            Ok(states) => states,
            Err(complaint) => panic!("{complaint}; told {calls:?}, seen {events:?}"),
        };
        let complaints: Vec<String> =
            self.states.possible.iter().filter_map(|model| self.counters_differ(model, &idle)).collect();
        assert!(complaints.len() < self.states.possible.len(), "counters of monitored threads: {complaints:?}");
    }

    /// Unblocks less blocks of a CPU are the monitored threads on it that can go on, on whichever kernels they have been; where there are no counters nothing
    /// is left of them. The machine is at rest, so every thread that can go on is in user mode.
    fn counters_differ(&self, model: &Model, idle: &BTreeSet<Id>) -> Option<String> {
        for (&id, process) in model.processes.iter() {
            let ready = model
                .threads
                .iter()
                .filter(|(thread, known)| known.process == id && known.monitored && idle.contains(thread));
            let mut expected: BTreeMap<CpuId, i64> = BTreeMap::new();
            for (&thread, _) in ready {
                *expected.entry(self.nodes.cpu_of(thread)?).or_default() += 1;
            }
            for node in &self.nodes.nodes {
                let counted = node.node.system.counted(Pid(id));
                if counted.is_some() != process.counted {
                    return Some(format!("process {id}: {:?} has {counted:?}, model {process:?}", node.id));
                }
                for (cpu, [blocks, unblocks]) in counted.into_iter().flatten() {
                    let ready = i64::from(unblocks) - i64::from(blocks);
                    if ready != expected.get(&cpu).copied().unwrap_or(0) {
                        return Some(format!(
                            "process {id}: {cpu:?} counts {blocks} and {unblocks}, expected {expected:?}"
                        ));
                    }
                }
            }
        }
        None
    }

    fn command(&self, op: Op) -> Command {
        let value = |value: i64| Arg::Value(value as u64);
        match op {
            Op::Fork => Command::plain(call::FORK, &[]),
            Op::Thread(slot) => clone_thread(slot),
            Op::Exit(code) => Command::plain(call::EXIT, &[code.into()]),
            Op::ExitGroup(code) => Command::plain(call::EXIT_GROUP, &[code.into()]),
            Op::Execute => Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat()),
            Op::Wait(which, options) => {
                Command::new(call::WAIT4, &[value(which), Arg::Output, Arg::Value(options)]).output(4)
            }
            Op::Kill(target, signal) => Command::new(call::KILL, &[value(target), value(signal.into())]),
            Op::Tgkill(process, thread, signal) => {
                Command::plain(call::TGKILL, &[process.into(), thread.into(), signal.into()])
            }
            Op::Mask(block, set) => {
                let how = Arg::Value(u64::from(!block));
                Command::new(call::SIGPROCMASK, &[how, Arg::Input, Arg::Value(0), Arg::Value(8)])
                    .input(set.to_le_bytes())
            }
            Op::Action(signal, handler) => {
                let arguments = [Arg::Value(signal.into()), Arg::Input, Arg::Value(0), Arg::Value(8)];
                Command::new(call::SIGACTION, &arguments).input(action(handler.into()))
            }
            Op::Pending => Command::new(call::SIGPENDING, &[Arg::Output, Arg::Value(8)]).output(8),
            Op::Setpgid(process, group) => Command::plain(call::SETPGID, &[process.into(), group.into()]),
            Op::Setsid => Command::plain(call::SETSID, &[]),
            Op::Getppid => Command::plain(call::GETPPID, &[]),
            Op::Getpid => Command::plain(call::GETPID, &[]),
            Op::Getpgid(process) => Command::plain(call::GETPGID, &[process.into()]),
            Op::Getsid(process) => Command::plain(call::GETSID, &[process.into()]),
            Op::Enable(cpus, flags) => {
                let arguments = [Arg::Output, Arg::Value(cpus.into()), Arg::Value(flags.into())];
                Command::new(call::UMT_ENABLE, &arguments).output(4 * cpus as usize)
            }
            Op::Monitor(on) => Command::plain(call::UMT_CONTROL, &[UMT_SET, on.into()]),
            Op::Move(thread, cpu) => {
                let mask: Vec<u8> = (0..16).map(|byte| if byte == cpu / 8 { 1 << (cpu % 8) } else { 0 }).collect();
                Command::new(call::SETAFFINITY, &[Arg::Value(thread.into()), Arg::Value(16), Arg::Input]).input(mask)
            }
        }
    }

    fn random_op(&mut self, thread: Id, rng: &Rng) -> Op {
        let model = &self.states.possible[0];
        let process = model.process(thread).expect("an idle thread lives");
        let small = model.threads.len() < MOST_THREADS && model.processes.len() < MOST_THREADS;
        let processes: Vec<Id> = model.processes.keys().copied().collect();
        let threads: Vec<Id> = model.threads.keys().copied().collect();
        let some_process = *rng.pick(&processes);
        // A dead one now and then.
        let some_thread = if rng.one_in(12) { *rng.pick(&self.ids) } else { *rng.pick(&threads) };
        let children: Vec<Id> =
            model.processes.iter().filter(|(_, child)| child.parent == process).map(|(id, _)| *id).collect();
        let some_child = if children.is_empty() { some_process } else { *rng.pick(&children) };
        let group = model.processes[&some_process].group;
        let signal = *rng.pick(&[USR1, USR1, RT, RT, RT + 1, STOP, STOP, CONT, CONT, CONT, TERM, KILL]);
        let mild = *rng.pick(&[USR1, RT, RT, RT + 1]);
        match rng.below(100) {
            0..=9 if small => Op::Fork,
            10..=19 if small => {
                self.stacks += 1;
                Op::Thread(self.stacks)
            }
            20..=22 if !small || rng.one_in(3) => Op::Exit(rng.below(200) as u8),
            23..=24 if !small || rng.one_in(4) => Op::ExitGroup(rng.below(200) as u8),
            25..=26 => Op::Execute,
            27..=40 => {
                let which = match rng.below(5) {
                    0 => i64::from(some_child),
                    1 => -i64::from(group),
                    2 => 0,
                    _ => -1,
                };
                let mut options = *rng.pick(&[0, WUNTRACED, WCONTINUED, WUNTRACED | WCONTINUED]);
                if rng.below(3) > 0 {
                    options |= WNOHANG;
                }
                Op::Wait(which, options)
            }
            41..=48 => Op::Kill(some_process.into(), mild),
            49..=54 => Op::Kill(some_process.into(), signal),
            55..=56 => Op::Kill(-i64::from(group), signal),
            57..=62 => Op::Tgkill(model.process(some_thread).unwrap_or(some_process), some_thread, mild),
            63..=64 => Op::Tgkill(model.process(some_thread).unwrap_or(some_process), some_thread, signal),
            65..=70 => Op::Mask(rng.one_in(2), *rng.pick(&[bit(USR1), bit(RT), bit(RT) | bit(RT + 1), bit(TERM)])),
            71..=72 => Op::Action(*rng.pick(&[USR1, RT]), *rng.pick(&[1, 2, 2, 2])),
            73..=74 => Op::Action(CHLD, rng.below(3) as u8),
            75..=76 => Op::Pending,
            77..=78 => {
                Op::Setpgid(if rng.one_in(2) { process } else { some_child }, if rng.one_in(2) { 0 } else { group })
            }
            79 => Op::Setsid,
            80..=81 => Op::Getppid,
            82 => Op::Getpgid(some_process),
            83 => Op::Getsid(some_process),
            84 => Op::Getpid,
            85 if !model.processes[&process].counted || rng.one_in(8) => {
                Op::Enable(self.nodes.cpus(), rng.below(2) as u32)
            }
            85..=87 => Op::Monitor(rng.below(4) > 0),
            88..=91 => Op::Move(thread, rng.below(self.nodes.cpus() as usize) as u32),
            _ => Op::Move(some_thread, rng.below(self.nodes.cpus() as usize) as u32),
        }
    }
}
