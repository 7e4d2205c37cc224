//! What came of a step, held against the model.

use super::{
    kernels::Kernels,
    model::{Both, Connection, End, Phase, View},
    program::{Before, Call, Program, What},
    task::Answer,
    watch,
};
use crate::scenario::Log;
use ::machine::{Errno, KernelId};
use fs::{Events, Fetched};
use std::sync::Arc;

impl Program {
    /// The machine rests.
    pub(super) fn judge(&mut self, before: &Before, log: &Log) {
        let busy: Vec<(End, bool)> = self.calls.iter().filter_map(|call| moving(&call.what)).collect();
        let mut ended: Vec<(What, KernelId, Answer)> = Vec::new();
        for Call { what, on, task } in std::mem::take(&mut self.calls) {
            match task.answer.take() {
                Some(answer) => ended.push((what, on, answer)),
                None => self.calls.push(Call { what, on, task }),
            }
        }
        ended.iter().for_each(|(what, _, answer)| log.line(|| format!("          {what:?}: {}", said(answer))));
        ended.iter_mut().for_each(|(what, on, answer)| self.note_followed(what, *on, answer));
        for side in self.connections.iter_mut().flat_map(|it| &mut it.sides) {
            // An end may move.
            if let Some(file) = &side.file {
                side.kernel = file.remote().map_or(side.user, |there| there.owner);
            }
        }
        // Who sent, who has connected, who was accepted, who received, in this order: each may be due to those before.
        ended.iter().for_each(|(what, _, answer)| self.note_sent(what, answer));
        ended.iter().for_each(|(what, _, answer)| self.note_post(what, answer));
        ended.iter().for_each(|(what, _, answer)| self.note_connected(what, answer));
        for (what, _, answer) in &mut ended {
            self.note_accepted(what, answer);
        }
        ended.iter().for_each(|(what, _, answer)| self.note_received(what, answer));
        for connection in &mut self.connections {
            connection.conclude();
        }
        for (what, _, answer) in &ended {
            self.check(before, what, answer, &busy, &ended);
        }
        for (what, _, answer) in &ended {
            if let (What::Epoll { on, .. }, Answer::Ready(Ok(ready))) = (what, answer) {
                self.note_told(*on, ready);
            }
        }
        for call in &self.calls {
            assert!(self.may_wait(&call.what), "{:?} on {:?} waits for ever", call.what, call.on);
        }
        self.cut_off.clear();
        self.look();
        self.look_at_backlogs();
        self.look_into_boxes();
    }

    /// The end is another file now, unless it was closed meanwhile.
    fn note_followed(&mut self, what: &What, on: KernelId, answer: &mut Answer) {
        let (What::Follow { end }, Answer::Followed(fetched)) = (what, answer) else { return };
        let file = &mut self.connections[end.0].sides[end.1].file;
        for Fetched { from, to } in fetched.drain(..) {
            if file.as_ref().is_some_and(|file| Arc::ptr_eq(file, &from)) {
                *file = Some(to);
            }
            self.kernels.machine.start_on(on, fs::file::close(from));
        }
        self.kernels.machine.settle();
    }

    fn note_sent(&mut self, what: &What, answer: &Answer) {
        match (what, answer) {
            (What::Send { end, files, .. }, Answer::Sent(Ok(count))) => {
                self.connections[end.0].has_sent(*end, *count, files);
            }
            (What::Shut { end, how }, Answer::Done(Ok(()))) => {
                let facts = &mut self.connections[end.0].sides[end.1].facts;
                facts.shut_read |= *how != 1;
                facts.shut_write |= *how != 0;
            }
            _ => {}
        }
    }

    fn note_connected(&mut self, what: &What, answer: &Answer) {
        let What::Connect { connection, .. } = what else { return };
        let it = &mut self.connections[*connection];
        it.queued = self.step;
        it.phase = match answer {
            Answer::Done(Ok(())) => Phase::Queued,
            Answer::Done(Err(Errno::EAGAIN | Errno::ECONNREFUSED | Errno::ENOBUFS)) => Phase::Failed,
            // Interrupted, or something has died.
            _ => Phase::Unknown,
        };
        if it.phase != Phase::Queued {
            let client = &mut it.sides[0];
            (client.facts.gone, client.facts.torn, client.facts.hard) = (true, true, true);
            client.file = None;
            // Later, so that no step ends with something under way.
            self.kernels.machine.settle();
        }
    }

    fn note_accepted(&mut self, what: &What, answer: &mut Answer) {
        let (What::Accept { listener, .. }, Answer::Accepted(Ok((file, which)))) = (what, answer) else { return };
        self.was_accepted(*listener, *which, file);
    }

    fn note_received(&mut self, what: &What, answer: &Answer) {
        if let (What::Fetch { at, .. }, Answer::Received(Ok((bytes, _)))) = (what, answer) {
            self.note_fetched(*at, bytes);
        }
        let (What::Receive { end, limit, peek, by_read, .. }, Answer::Received(Ok((bytes, files)))) = (what, answer)
        else {
            return;
        };
        let (peek, files) = match *by_read && !*peek {
            true => (false, None),
            false => (*peek, Some(&files[..])),
        };
        if !bytes.is_empty() {
            self.connections[end.0].has_received(*end, bytes, *limit, peek, files);
        }
    }

    pub(super) fn view(&self, before: &Before, connection: usize) -> View {
        let it = &self.connections[connection];
        let both: Both = before.both.get(connection).copied().unwrap_or_default();
        self.explain(it, both)
    }

    fn explain(&self, it: &Connection, before: Both) -> View {
        let Kernels { tight, scarce, .. } = self.kernels;
        View { family: it.family, before, after: it.both(), tight, scarce }
    }

    pub(super) fn now(&self, connection: usize) -> View {
        let it = &self.connections[connection];
        self.explain(it, it.both())
    }

    /// Its kernel, or its program's, has died.
    pub(super) fn is_lost(&self, end: End) -> bool {
        let side = &self.connections[end.0].sides[end.1];
        self.is_dead(side.kernel) || self.is_dead(side.user)
    }

    /// It may answer anything.
    pub(super) fn is_free(&self, end: End) -> bool {
        self.is_lost(end) || self.connections[end.0].shaken
    }

    fn check(
        &self,
        before: &Before,
        what: &What,
        answer: &Answer,
        busy: &[(End, bool)],
        ended: &[(What, KernelId, Answer)],
    ) {
        let fine = match (what, answer) {
            (_, Answer::Interrupted) => true,
            (What::Receive { end, .. } | What::Send { end, .. } | What::Shut { end, .. }, _) if self.is_free(*end) => {
                true
            }
            (What::Receive { end, waits, .. }, Answer::Received(got)) => {
                let view = self.view(before, end.0);
                match got {
                    Ok((bytes, _)) if bytes.is_empty() => view.may_end(end.1, None),
                    Ok(_) => true,
                    Err(Errno::EAGAIN) => !waits && view.may_be_empty(end.1),
                    Err(Errno::ENOBUFS) => self.kernels.scarce,
                    Err(error) => view.may_end(end.1, Some(*error)),
                }
            }
            (What::Send { end, bytes, waits, .. }, Answer::Sent(sent)) => {
                let view = self.view(before, end.0);
                match sent {
                    Ok(count) => *count > 0 && view.may_send(end.1),
                    Err(Errno::EAGAIN) if *waits => false,
                    Err(error) => view.may_fail_to_send(end.1, *bytes, *error),
                }
            }
            (What::Shut { end, .. }, Answer::Done(done)) => match done {
                Err(Errno::ENOTCONN) => self.view(before, end.0).may_be_unconnected(end.1),
                done => done.is_ok(),
            },
            (What::Connect { connection, waits }, Answer::Done(done)) => {
                let listener = self.listener_of(*connection);
                let connects = |what: &What| self.concerns(what, listener, false);
                let others = self.calls.iter().filter(|call| connects(&call.what)).count()
                    + self.cut_off.iter().filter(|what| connects(what)).count()
                    + ended.iter().filter(|(what, ..)| connects(what)).count()
                    - 1;
                self.may_connect(*connection, &before.backlog(listener), others, *waits, *done)
            }
            (What::Accept { listener, waits }, Answer::Accepted(accepted)) => match accepted {
                Ok(_) => true,
                Err(error) => {
                    let took = |(what, _, answer): &&(What, KernelId, Answer)| {
                        self.concerns(what, *listener, true) && matches!(answer, Answer::Accepted(Ok(_)))
                    };
                    let perhaps = self.cut_off.iter().filter(|what| self.concerns(what, *listener, true)).count();
                    let took = ended.iter().filter(took).count() + perhaps;
                    self.may_not_accept(*listener, &before.backlog(*listener), took, *waits, *error)
                }
            },
            (What::Epoll { on, waits }, Answer::Ready(Ok(ready))) => self.may_tell(*on, before, ready, *waits, busy),
            (What::Mail { mail, waits }, Answer::Sent(sent)) => {
                let to = |what: &What| matches!(what, What::Mail { mail: other, .. } if other.to == mail.to);
                let others = self.calls.iter().filter(|call| to(&call.what)).count()
                    + self.cut_off.iter().filter(|what| to(what)).count()
                    + ended.iter().filter(|(what, ..)| to(what)).count()
                    - 1;
                let waited = before.mail.get(mail.to).copied().unwrap_or_default();
                self.may_mail(mail, waited, others, *waits, *sent)
            }
            (What::Fetch { at, waits }, Answer::Received(got)) => match got {
                Ok(_) => true,
                Err(error) => self.may_fetch(*at, before.mail.get(*at).copied().unwrap_or_default(), *waits, *error),
            },
            (What::Follow { .. }, Answer::Followed(_)) => true,
            (What::Poll { ends, .. }, _) if ends.iter().any(|(end, _)| self.is_free(*end)) => true,
            (What::Poll { ends, waits }, Answer::Polled(Ok(told))) => {
                self.may_be_told(before, ends, told, *waits, busy)
            }
            _ => false,
        };
        assert!(
            fine,
            "{what:?} was answered {}; before: {:?}, after: {:?}",
            said(answer),
            shown(before, what),
            self.shown(what)
        );
    }

    fn may_be_told(
        &self,
        before: &Before,
        ends: &[(End, Events)],
        told: &[Events],
        waits: bool,
        busy: &[(End, bool)],
    ) -> bool {
        let nothing = told.iter().all(|told| told.is_empty());
        let so = |((end, wanted), told): (&(End, Events), &Events)| {
            let view = self.view(before, end.0);
            let (receives, sends) = (busy.contains(&(*end, true)), busy.contains(&(*end, false)));
            let must = view.must_before(end.1, receives, sends) & *wanted;
            view.may_be_told(end.1, *told) && (!nothing || must.is_empty())
        };
        !(nothing && waits) && ends.iter().zip(told).all(so)
    }

    fn may_wait(&self, what: &What) -> bool {
        match what {
            What::Receive { end, waits, .. } => {
                *waits && !self.is_lost(*end) && self.now(end.0).may_wait_to_read(end.1)
            }
            What::Send { end, bytes, waits, .. } => {
                *waits && !self.is_lost(*end) && self.now(end.0).may_wait_to_send(end.1, *bytes)
            }
            What::Shut { .. } | What::Follow { .. } => false,
            What::Connect { connection, waits } => *waits && self.may_wait_to_connect(*connection),
            What::Accept { listener, waits } => *waits && self.may_wait_to_accept(*listener),
            What::Epoll { on, waits } => *waits && self.may_wait_in_epoll(*on),
            What::Mail { mail, waits } => *waits && self.may_wait_to_mail(mail),
            What::Fetch { at, waits } => *waits && self.may_wait_to_fetch(*at),
            What::Poll { ends, waits } => {
                let quiet = |(end, wanted): &(End, Events)| {
                    !self.is_lost(*end) && (self.now(end.0).must_after(end.1) & *wanted).is_empty()
                };
                *waits && ends.iter().all(quiet)
            }
        }
    }

    /// What poll tells at rest of those who are on the kernel of their sockets.
    fn look(&self) {
        for (number, connection) in self.connections.iter().enumerate() {
            for (side, it) in connection.sides.iter().enumerate() {
                let Some(file) = it.file.as_ref().filter(|_| it.kernel == it.user) else { continue };
                if connection.shaken || !matches!(connection.phase, Phase::Queued | Phase::Accepted) {
                    continue;
                }
                let (told, view) = (file.poll(), self.now(number));
                let both = connection.both();
                assert!(view.may_be_told(side, told), "({number}, {side}) is {told:?}: {both:?}");
                assert!(told.contains(view.must_after(side)), "({number}, {side}) is only {told:?}: {both:?}");
            }
        }
    }

    fn shown(&self, what: &What) -> Vec<Both> {
        ends(what).into_iter().map(|end| self.connections[end.0].both()).collect()
    }
}

impl Connection {
    /// A side that has gone went hard if it has not received all.
    fn conclude(&mut self) {
        for side in 0..2 {
            let sent = self.sides[1 - side].facts.sent;
            let facts = &mut self.sides[side].facts;
            facts.hard |= facts.gone && facts.received < sent;
        }
    }
}

/// The end that a call moves data at, and whether it receives.
pub fn moving(what: &What) -> Option<(End, bool)> {
    match what {
        What::Receive { end, .. } => Some((*end, true)),
        What::Send { end, .. } => Some((*end, false)),
        _ => None,
    }
}

fn ends(what: &What) -> Vec<End> {
    match what {
        What::Receive { end, .. } | What::Send { end, .. } | What::Shut { end, .. } | What::Follow { end } => {
            vec![*end]
        }
        What::Connect { connection, .. } => vec![(*connection, 0)],
        What::Accept { .. } | What::Epoll { .. } | What::Mail { .. } | What::Fetch { .. } => Vec::new(),
        What::Poll { ends, .. } => ends.iter().map(|(end, _)| *end).collect(),
    }
}

fn shown(before: &Before, what: &What) -> Vec<Both> {
    ends(what).into_iter().filter_map(|end| before.both.get(end.0).copied()).collect()
}

fn said(answer: &Answer) -> String {
    match answer {
        Answer::Received(got) => format!("{:?}", got.as_ref().map(|(bytes, files)| (bytes.len(), files))),
        Answer::Sent(sent) => format!("{sent:?}"),
        Answer::Done(done) => format!("{done:?}"),
        Answer::Accepted(accepted) => format!("accepted {:?}", accepted.as_ref().map(|(_, which)| which)),
        Answer::Polled(told) => format!("{told:?}"),
        Answer::Ready(ready) => watch::shown(ready),
        Answer::Followed(fetched) => format!("{} came along", fetched.len()),
        Answer::Interrupted => "interrupted".into(),
    }
}
