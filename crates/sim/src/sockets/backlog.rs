//! Who listens, and what waits to be accepted.
//!
//! A connection waits from some moment of its connect(2) to some moment of an accept(2). So between steps the length of a backlog is known,
//! but for connects that were interrupted or died; and within a step it is at most what waited before with all who connect, and at least what
//! waited before without those who accept.

use super::{
    model::{Connection, Family, Phase},
    program::{Program, What},
};
use ::machine::{Errno, KernelId};
use fs::{Events, File};
use std::sync::Arc;

pub struct Listener {
    pub family: Family,
    pub kernel: KernelId,
    pub user: KernelId,
    pub backlog: usize,
    /// None: it is closed.
    pub file: Option<Arc<dyn File>>,
    /// Connections by TCP that were accepted when they had been reset: nothing says any more who had connected.
    pub nameless: usize,
}

/// How many wait to be accepted, at least and at most.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    pub least: usize,
    pub most: usize,
    /// The listener is.
    pub open: bool,
}

impl Backlog {
    /// Of a listener that was not there.
    pub const NEW: Backlog = Backlog { least: 0, most: 0, open: true };
}

impl Program {
    pub(super) fn backlog(&self, listener: usize) -> Backlog {
        let count = |phase, gone| {
            let of = |it: &&Connection| {
                let [client, server] = &it.sides;
                it.listener == Some(listener) && it.phase == phase && client.facts.gone == gone && !server.facts.gone
            };
            self.connections.iter().filter(of).count()
        };
        let Listener { nameless, file, .. } = &self.listeners[listener];
        let (there, reset) = (count(Phase::Queued, false), count(Phase::Queued, true));
        let perhaps = count(Phase::Unknown, true);
        Backlog {
            least: there + reset.saturating_sub(*nameless),
            most: (there + reset + perhaps).saturating_sub(*nameless),
            open: file.is_some(),
        }
    }

    /// Whether `what` is an accept from `listener`, or a connect to it.
    pub(super) fn concerns(&self, what: &What, listener: usize, accepts: bool) -> bool {
        match what {
            What::Accept { listener: of, .. } => accepts && *of == listener,
            What::Connect { connection, .. } => !accepts && self.connections[*connection].listener == Some(listener),
            _ => false,
        }
    }

    /// `others`: connects that went on at the same time.
    pub(super) fn may_connect(
        &self,
        connection: usize,
        before: &Backlog,
        others: usize,
        waits: bool,
        done: Result<(), Errno>,
    ) -> bool {
        let listener = &self.listeners[self.listener_of(connection)];
        match done {
            Ok(()) => before.open,
            Err(Errno::EAGAIN) => !waits && before.most + others > listener.backlog,
            Err(Errno::ECONNREFUSED) => listener.file.is_none(),
            Err(Errno::ENOBUFS) => self.kernels.tight || self.kernels.scarce,
            Err(_) => self.is_lost((connection, 0)) || self.is_dead(listener.kernel),
        }
    }

    pub(super) fn listener_of(&self, connection: usize) -> usize {
        self.connections[connection].listener.expect("it connects to one")
    }

    pub(super) fn may_wait_to_connect(&self, connection: usize) -> bool {
        let number = self.listener_of(connection);
        let now = self.backlog(number);
        now.open && now.most > self.listeners[number].backlog && !self.is_lost((connection, 0))
    }

    /// `took`: how many others accepted at the same time.
    pub(super) fn may_not_accept(
        &self,
        listener: usize,
        before: &Backlog,
        took: usize,
        waits: bool,
        error: Errno,
    ) -> bool {
        match error {
            _ if self.is_dead(self.listeners[listener].kernel) => true,
            Errno::EAGAIN => !waits && before.least <= took,
            Errno::ENOBUFS => self.kernels.tight || self.kernels.scarce,
            _ => false,
        }
    }

    pub(super) fn may_wait_to_accept(&self, listener: usize) -> bool {
        self.backlog(listener).least == 0 && !self.is_dead(self.listeners[listener].kernel)
    }

    /// An accepted end, and who connected (None: it was reset, and nobody knows).
    pub(super) fn was_accepted(&mut self, listener: usize, which: Option<u64>, file: &Arc<dyn File>) {
        let Listener { family, kernel, user, .. } = self.listeners[listener];
        let Some(which) = which else {
            let may = family == Family::Tcp && self.backlog(listener).most > 0;
            assert!(may || self.is_dead(kernel), "it was accepted, and nobody has connected");
            self.listeners[listener].nameless += 1;
            return;
        };
        let number = self.accepted(family, which);
        let it = &self.connections[number];
        let waited = it.listener == Some(listener) && matches!(it.phase, Phase::Queued | Phase::Unknown);
        assert!(waited, "connection {number} was accepted, and is {:?}", it.phase);
        let (step, begun) = (self.step, it.begun);
        let earlier = self.connections.iter().position(|other| {
            let waits = other.listener == Some(listener) && other.phase == Phase::Queued && !other.sides[0].facts.gone;
            waits && other.queued < begun && step > other.queued
        });
        // Another accept of this step may have it.
        self.overtaken.extend(earlier.map(|earlier| (earlier, number)));
        // With its listener's kernel all may be lost of a connection that moves from there.
        let shaken = self.is_dead(kernel) && user != kernel;
        let it = &mut self.connections[number];
        it.phase = Phase::Accepted;
        it.mover = Some(kernel).filter(|kernel| *kernel != user);
        it.shaken |= shaken;
        let server = &mut it.sides[1];
        server.file = Some(file.clone());
        if file.remote().is_none() {
            // The end is made where it is accepted, whatever became of the listener's kernel.
            server.kernel = user;
            (server.facts.gone, server.facts.hard) = (false, false);
        }
        server.user = user;
    }

    /// At rest.
    pub(super) fn look_at_backlogs(&mut self) {
        for (earlier, later) in std::mem::take(&mut self.overtaken) {
            let waits = self.connections[earlier].phase == Phase::Queued;
            assert!(!waits, "{later} was accepted, and {earlier}, which had connected before it began, waits");
        }
        for (number, listener) in self.listeners.iter().enumerate() {
            let Backlog { least, most, .. } = self.backlog(number);
            assert!(
                least <= listener.backlog + 1,
                "{least} wait in the backlog of {number}, which takes {}",
                listener.backlog
            );
            let Some(file) = listener.file.as_ref().filter(|file| file.remote().is_none()) else { continue };
            let told = file.poll().contains(Events::IN);
            assert!(
                if told { most > 0 } else { least == 0 },
                "poll of listener {number} is {told}: {least} to {most} wait"
            );
        }
    }
}
