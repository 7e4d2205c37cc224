//! What random programs do now and then while nothing else is begun, for it changes much at once: a thread executes a program,
//! or a kernel dies. Calls of earlier steps may be waiting.
//!
//! Why execve: a process has memory wherever it or its parents ever ran, and dies with any of those kernels. After execve it has a
//! new space and still its files, so it may outlive the kernel that a file of its is on.
//!
//! Who dies with a kernel, the model does not know; it sees who is gone, and the files that survivors have lost. But
//! some must have died, those with a thread, their home or their descriptor table there; and some must not, those of which
//! the dead kernel had no record.

use super::{
    program::Program,
    search::{Seen, State},
    Id, Lost, Subject,
};
use crate::{
    nodes::{
        machine::PROGRAM,
        user::{call, Arg, Command, Event},
    },
    rng::Rng,
    scenario::Log,
};
use ::machine::{KernelId, Pid};
use fs::File;
use std::collections::{BTreeMap, BTreeSet};

impl<S: Subject> Program<S> {
    pub(super) fn upheaval(&mut self, rng: &Rng, log: &Log) {
        let (dies, dead) = (rng.one_in(3), rng.next() as usize);
        let secondaries: Vec<KernelId> = self.nodes.alive().into_iter().filter(|kernel| kernel.0 != 0).collect();
        match dies {
            true if !secondaries.is_empty() => self.death(secondaries[dead % secondaries.len()], rng, log),
            true => {}
            false => {
                let idle: Vec<Id> = self.nodes.idle().into_iter().collect();
                if let Some(thread) = idle.get(dead % idle.len().max(1)) {
                    self.execute(*thread, log);
                }
            }
        }
    }

    /// What was seen of calls that waited.
    fn seen(&mut self, log: &Log) -> Seen {
        let events = self.nodes.user.events();
        events.iter().for_each(|event| log.line(|| format!("      {event:?}")));
        let returned = |event| match event {
            Event::Returned { number, result, output, .. } => Some((number, (result, output))),
            _ => None,
        };
        Seen { replies: events.into_iter().filter_map(returned).collect(), ended: Vec::new() }
    }

    fn execute(&mut self, thread: Id, log: &Log) {
        log.line(|| format!("  {thread} executes"));
        let program = [PROGRAM, b"\0"].concat();
        self.nodes.user.tell(thread, Command::new(call::EXECVE, &[Arg::Input]).input(program));
        self.nodes.settle();
        let mut states = std::mem::take(&mut self.states);
        let process = states[0].model.processes()[&thread];
        for State { model, pending } in &mut states {
            let others = model.processes();
            pending.retain(|call| others[&call.thread] != process);
            assert_eq!(model.execute(thread), process);
            self.threads.retain(|known| others.get(known) != Some(&process));
        }
        self.threads.insert(process);
        let idle = self.nodes.idle();
        assert!(idle.contains(&process), "{thread} executed a program, and is not there");
        let seen = self.seen(log);
        self.conclude(states, &seen, &idle, &"an execve");
    }

    fn death(&mut self, dead: KernelId, rng: &Rng, log: &Log) {
        log.line(|| format!("  kernel {} dies", dead.0));
        let processes = self.states[0].model.processes();
        let (doomed, safe) = self.fates(dead, &processes);
        let lost = self.lost(dead, &processes);
        self.nodes.kill(dead);
        let mut mourners = self.nodes.alive();
        let mut mourning = Vec::new();
        while !mourners.is_empty() {
            self.nodes.steps(rng.below(60));
            mourning.push(self.nodes.mourn(mourners.swap_remove(rng.below(mourners.len())), dead));
        }
        self.nodes.settle();
        assert!(mourning.iter().all(|done| done.take().is_some()), "a survivor is not through with {dead:?}");
        if let Some(mapping) = self.nodes.world.haunted(dead) {
            panic!("{mapping}, though {dead:?} is dead");
        }
        let ended: BTreeSet<Id> = processes.keys().copied().filter(|thread| self.nodes.is_gone(*thread)).collect();
        log.line(|| format!("      ended: {ended:?}"));
        for (thread, process) in &processes {
            assert_eq!(ended.contains(thread), self.nodes.is_gone(*process), "half of {process} has ended");
        }
        let gone: BTreeSet<Id> = processes.values().copied().filter(|process| ended.contains(process)).collect();
        assert!(doomed.is_subset(&gone), "of {doomed:?}, which had something on {dead:?}, only {gone:?} ended");
        assert!(gone.is_disjoint(&safe), "{gone:?} ended, though {dead:?} had nothing of {safe:?}");
        let mut states = Vec::new();
        for State { model, mut pending } in std::mem::take(&mut self.states) {
            pending.retain(|call| !ended.contains(&call.thread));
            let left = model.lose(&ended, &lost).into_iter();
            states.extend(left.map(|model| State { model, pending: pending.clone() }));
        }
        assert!(!states.is_empty(), "no state of the model fits {lost:?}");
        self.threads.retain(|thread| !ended.contains(thread));
        let (seen, idle) = (self.seen(log), self.nodes.idle());
        self.conclude(states, &seen, &idle, &format_args!("the death of {dead:?}, with {ended:?}"));
    }

    /// Processes that must end with `dead`, and those that must not.
    fn fates(&self, dead: KernelId, processes: &BTreeMap<Id, Id>) -> (BTreeSet<Id>, BTreeSet<Id>) {
        let (mut doomed, mut safe) = (BTreeSet::new(), BTreeSet::new());
        for (thread, process) in processes {
            let there = &self.nodes.nodes[dead.index()].node.system;
            let runs_there = there.thread(Pid(*thread)).is_some_and(|thread| !thread.is_away());
            let all = self.nodes.nodes.iter().filter_map(|node| node.node.system.process(Pid(*process)));
            let held: Vec<_> = all.collect();
            let is_at = held.iter().any(|process| process.home == dead || process.files().id().home == dead);
            if runs_there || is_at {
                doomed.insert(*process);
            }
            let spaces: BTreeSet<_> = held.iter().map(|process| process.space().id()).collect();
            let known = there.process(Pid(*process)).is_some()
                || there.thread(Pid(*thread)).is_some()
                || spaces.iter().any(|space| there.vm.find(*space).is_some());
            let leads = |space| self.nodes.nodes.iter().filter_map(move |node| node.node.system.vm.find(space));
            let haunted = spaces.iter().flat_map(|space| leads(*space)).any(|space| space.had_something_on(dead));
            if !known && !haunted && !is_at {
                safe.insert(*process);
            }
        }
        let unsafe_too = |process: &Id| processes.iter().any(|(thread, of)| of == process && doomed.contains(thread));
        safe.retain(|process| !doomed.contains(process) && !unsafe_too(process));
        (doomed, safe)
    }

    /// For each descriptor of each process: is its file on `dead`?
    fn lost(&self, dead: KernelId, processes: &BTreeMap<Id, Id>) -> Lost {
        let mut lost = Lost::new();
        for process in processes.values().copied().collect::<BTreeSet<Id>>() {
            let node =
                self.nodes.nodes.iter().find_map(|node| Some((node.id, node.node.system.process(Pid(process))?)));
            let (at, process_there) = node.expect("a process has a home");
            // Of the task: the kernel drops what it was shown of the table.
            let owners = self.nodes.run(at, async move {
                let list = process_there.files().list().await.expect("all kernels of the table live");
                let owner = |file: &dyn File| file.remote().map_or(at, |file| file.owner);
                list.iter().map(|(fd, descriptor)| (*fd as i32, owner(&*descriptor.file))).collect::<Vec<_>>()
            });
            lost.extend(owners.into_iter().map(|(fd, owner)| ((process, fd), owner == dead)));
        }
        lost
    }
}
