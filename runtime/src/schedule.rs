//! Which ready task is next: behind a trait, so that a program can have its own.

use crate::task::Task;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A task that can begin.
pub struct Ready(pub(crate) Arc<Task>);

impl Ready {
    /// As the program has given it; 0 if it has not.
    pub fn priority(&self) -> i32 {
        self.0.priority
    }
}

/// Keeps ready tasks. The runtime calls it under one lock.
pub trait Schedule: Send {
    /// A task can begin. `cpu`: the index of the CPU of who made it so.
    fn push(&mut self, task: Ready, cpu: usize);
    /// The next one for a worker on this CPU.
    fn pop(&mut self, cpu: usize) -> Option<Ready>;
    /// The next one that `wanted` accepts.
    fn take(&mut self, wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready>;
    fn is_empty(&self) -> bool;
}

/// The first come the first served, among those of the highest priority.
#[derive(Default)]
pub struct Fifo(Levels);

/// The last come the first served, among those of the highest priority.
#[derive(Default)]
pub struct Lifo(Levels);

/// Tasks by priority, the highest last.
#[derive(Default)]
struct Levels(BTreeMap<i32, VecDeque<Ready>>);

impl Levels {
    fn push(&mut self, task: Ready) {
        self.0.entry(task.priority()).or_default().push_back(task);
    }

    fn pop(&mut self, last: bool) -> Option<Ready> {
        let mut level = self.0.last_entry()?;
        let task = if last { level.get_mut().pop_back() } else { level.get_mut().pop_front() };
        if level.get().is_empty() {
            level.remove();
        }
        task
    }

    fn take(&mut self, wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready> {
        let (priority, place) = self
            .0
            .iter()
            .rev()
            .find_map(|(priority, tasks)| tasks.iter().position(&mut *wanted).map(|place| (*priority, place)))?;
        let tasks = self.0.get_mut(&priority)?;
        let task = tasks.remove(place);
        if tasks.is_empty() {
            self.0.remove(&priority);
        }
        task
    }
}

impl Schedule for Fifo {
    fn push(&mut self, task: Ready, _cpu: usize) {
        self.0.push(task);
    }
    fn pop(&mut self, _cpu: usize) -> Option<Ready> {
        self.0.pop(false)
    }
    fn take(&mut self, wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready> {
        self.0.take(wanted)
    }
    fn is_empty(&self) -> bool {
        self.0 .0.is_empty()
    }
}

impl Schedule for Lifo {
    fn push(&mut self, task: Ready, _cpu: usize) {
        self.0.push(task);
    }
    fn pop(&mut self, _cpu: usize) -> Option<Ready> {
        self.0.pop(true)
    }
    fn take(&mut self, wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready> {
        self.0.take(wanted)
    }
    fn is_empty(&self) -> bool {
        self.0 .0.is_empty()
    }
}

/// Tasks stay with the group of CPUs (a kernel, a node) that made them ready, unless another has none of its own.
pub struct Locality {
    /// The group of each CPU.
    group_of: Vec<usize>,
    groups: Vec<Levels>,
}

impl Locality {
    /// `group_of`: the group of each CPU, by its index.
    pub fn new(group_of: Vec<usize>) -> Locality {
        let groups = group_of.iter().max().map_or(1, |most| most + 1);
        Locality { group_of, groups: (0..groups).map(|_| Levels::default()).collect() }
    }

    fn group(&self, cpu: usize) -> usize {
        self.group_of.get(cpu).copied().unwrap_or(0)
    }
}

impl Schedule for Locality {
    fn push(&mut self, task: Ready, cpu: usize) {
        let group = self.group(cpu);
        self.groups[group].push(task);
    }
    fn pop(&mut self, cpu: usize) -> Option<Ready> {
        let (own, count) = (self.group(cpu), self.groups.len());
        (0..count).find_map(|further| self.groups[(own + further) % count].pop(false))
    }
    fn take(&mut self, wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready> {
        self.groups.iter_mut().find_map(|group| group.take(wanted))
    }
    fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(priority: i32) -> Ready {
        Ready(Task::new(None, priority, None))
    }

    fn order(mut schedule: impl Schedule, cpu: usize) -> Vec<i32> {
        [3, 1, 4, 1, 5].into_iter().enumerate().for_each(|(at, priority)| schedule.push(ready(priority), at));
        std::iter::from_fn(|| schedule.pop(cpu)).map(|task| task.priority()).collect()
    }

    #[test]
    fn priorities_go_first_and_groups_keep_theirs() {
        assert_eq!(order(Fifo::default(), 0), [5, 4, 3, 1, 1]);
        assert_eq!(order(Lifo::default(), 0), [5, 4, 3, 1, 1]);
        assert_eq!(order(Locality::new(vec![0, 0, 0, 1, 1]), 4), [5, 1, 4, 3, 1]);
        let mut lifo = Lifo::default();
        let (first, last) = (ready(0), ready(0));
        let is_last = last.0.clone();
        lifo.push(first, 0);
        lifo.push(last, 0);
        assert!(Arc::ptr_eq(&lifo.take(&mut |task| Arc::ptr_eq(&task.0, &is_last)).unwrap().0, &is_last));
        assert!(!lifo.is_empty() && lifo.pop(0).is_some() && lifo.is_empty());
    }
}
