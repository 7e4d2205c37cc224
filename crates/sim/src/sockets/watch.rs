//! An epoll on each kernel, which watches ends that programs there have.
//!
//! A level-triggered entry is told of as poll tells of its end. An edge-triggered one is told of if bytes have come since it was last.

use super::{
    kernels::caller,
    model::End,
    program::{Before, Call, Program, What},
    task::{self, Task},
};
use ::machine::{account::Account, Errno, KernelId};
use fs::{
    control::{Control, EpollControl, EpollInterest},
    epoll::{Epoll, EDGE},
    Events, File, OpenFlags,
};
use std::sync::Arc;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    end: End,
    wanted: Events,
    edge: bool,
    /// So much had been sent to the end when its epoll last told of it.
    told: u64,
    /// The step in which it was entered.
    since: u32,
    /// The program that has entered it has it still.
    held: bool,
}

pub struct Watcher {
    file: Arc<dyn File>,
    entries: Vec<Watched>,
}

impl Watcher {
    fn new() -> Self {
        let file = Epoll::new(Account::new(None, &[]), OpenFlags::empty()).expect("these are no flags");
        Watcher { file, entries: Vec::new() }
    }
}

fn number(end: End) -> u64 {
    (end.0 * 2 + end.1) as u64
}

/// What an epoll tells: of which end.
pub fn told(ready: &[EpollInterest]) -> impl Iterator<Item = (End, Events)> + '_ {
    ready.iter().map(|it| ((it.data as usize / 2, it.data as usize % 2), Events::from_bits_truncate(it.events)))
}

impl Program {
    /// Enters an end into the epoll of its program's kernel.
    pub(super) fn watch(&mut self, end: End, edge: bool, wanted: Events) {
        let (kernel, who, file) = (self.user(end), caller(1), self.file(end));
        let Watcher { file: epoll, entries } = self.watchers.entry(kernel).or_insert_with(Watcher::new);
        if entries.iter().any(|entry| entry.end == end) {
            return;
        }
        let epoll = epoll.clone();
        let events = wanted.bits() | if edge { EDGE } else { 0 };
        let interest = EpollInterest { events, data: number(end) };
        let add = EpollControl::Add { fd: number(end) as i32, file, interest };
        let done = self
            .kernels
            .machine
            .start_on(kernel, async move { epoll.control(&who, Control::Epoll(add)).await.map(drop) });
        self.kernels.machine.settle();
        let done = done.take().expect("epoll_ctl does not wait");
        assert!(done.is_ok() || self.is_free(end), "an end can't be watched: {done:?}");
        if let (Ok(()), Some(watcher)) = (done, self.watchers.get_mut(&kernel)) {
            watcher.entries.push(Watched { end, wanted, edge, told: 0, since: self.step, held: true });
        }
    }

    /// The program has it no more, or others have it, too.
    pub(super) fn unwatch(&mut self, end: End) {
        let entries = self.watchers.values_mut().flat_map(|watcher| &mut watcher.entries);
        entries.filter(|entry| entry.end == end).for_each(|entry| entry.held = false);
    }

    /// The epoll of its program's kernel, if that watches it.
    pub(super) fn watcher_of(&self, end: End) -> Option<Arc<dyn File>> {
        let watcher = self.watchers.get(&self.user(end))?;
        watcher.entries.iter().any(|entry| entry.end == end).then(|| watcher.file.clone())
    }

    pub(super) fn epoll_of(&self, end: End) -> Option<KernelId> {
        let kernel = self.user(end);
        let waits = |call: &Call| match &call.what {
            What::Epoll { on, .. } => *on == kernel,
            What::Follow { .. } => call.on == kernel,
            _ => false,
        };
        let entered = self.watchers.get(&kernel).is_some_and(|watcher| !watcher.entries.is_empty());
        (entered && !self.calls.iter().any(waits)).then_some(kernel)
    }

    pub(super) fn start_epoll(&self, on: KernelId, waits: bool) -> Task {
        let (who, epoll) = (caller(1), self.watchers[&on].file.clone());
        Task::start(&self.kernels, on, &who, task::epoll(epoll, who.clone(), waits))
    }

    fn has_entered(&self, on: KernelId) -> impl Iterator<Item = &Watched> {
        let entries = self.watchers.get(&on).into_iter().flat_map(|watcher| &watcher.entries);
        let has = |end: End| self.connections[end.0].sides[end.1].file.is_some();
        entries.filter(move |entry| entry.held && has(entry.end) && !self.is_free(entry.end))
    }

    /// What an epoll must tell of an entry, if that was so at some time and is still.
    fn must_tell(&self, entry: &Watched, must: Events, sent: u64, received: u64) -> bool {
        match entry.edge {
            true => sent > entry.told && sent > received && must.contains(Events::IN),
            false => !(must & entry.wanted).is_empty(),
        }
    }

    pub(super) fn may_tell(
        &self,
        on: KernelId,
        before: &Before,
        ready: &[EpollInterest],
        waits: bool,
        busy: &[(End, bool)],
    ) -> bool {
        let so =
            told(ready).all(|(end, events)| self.is_free(end) || self.view(before, end.0).may_be_told(end.1, events));
        let all = self.has_entered(on).filter(|entry| entry.since < self.step).all(|entry| {
            let (end, side) = (entry.end, entry.end.1);
            let Some(both) = before.both.get(end.0) else { return true };
            let (receives, sends) = (busy.contains(&(end, true)), busy.contains(&(end, false)));
            let must = self.view(before, end.0).must_before(side, receives, sends);
            let must = self.must_tell(entry, must, both[1 - side].sent, both[side].received);
            !must || told(ready).any(|(other, _)| other == end)
        });
        so && all && !(waits && ready.is_empty())
    }

    pub(super) fn may_wait_in_epoll(&self, on: KernelId) -> bool {
        self.has_entered(on).all(|entry| {
            let (number, side) = entry.end;
            let both = self.connections[number].both();
            let must = self.now(number).must_after(side);
            !self.must_tell(entry, must, both[1 - side].sent, both[side].received)
        })
    }

    pub(super) fn note_told(&mut self, on: KernelId, ready: &[EpollInterest]) {
        let Some(watcher) = self.watchers.get_mut(&on) else { return };
        for (end, _) in told(ready).filter(|(_, events)| events.contains(Events::IN)) {
            let sent = self.connections[end.0].sides[1 - end.1].facts.sent;
            watcher.entries.iter_mut().filter(|entry| entry.end == end).for_each(|entry| entry.told = sent);
        }
    }
}

/// What an epoll has answered, for who reads it.
pub fn shown(ready: &Result<Vec<EpollInterest>, Errno>) -> String {
    match ready {
        Ok(ready) => format!("{:?}", told(ready).collect::<Vec<_>>()),
        Err(error) => format!("{error:?}"),
    }
}
