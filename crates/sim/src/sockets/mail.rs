//! Datagrams, of AF_UNIX and UDP: mailboxes, and what was sent to them.
//!
//! A send that has come back has put its datagram into the mailbox (of UDP: or lost it, if there was no room). So each is received once and
//! whole, none is lost, and one that was sent before another was begun is received before it.

use super::{
    kernels::caller,
    program::{Act, Call, Program, What},
    task::{self, Answer, Task},
};
use crate::rng::Rng;
use ::machine::{Errno, KernelId};
use fs::{
    control::{SocketAddress, SocketControl, UnixPlace},
    socket::{Protocol, Socket, SocketKind},
    Control, Events, File, OpenFlags,
};
use std::sync::Arc;

const MOST_BOXES: usize = 4;
const FIRST_PORT: u16 = 3000;
/// Datagrams that an AF_UNIX socket takes; and bytes that a UDP socket surely does, as it counts them.
const MOST_LETTERS: usize = 11;
const SURE_BYTES: usize = 60_000;
const OVERHEAD: usize = 768;

pub struct Mailbox {
    udp: bool,
    kernel: KernelId,
    pub user: KernelId,
    /// None: it is closed.
    pub file: Option<Arc<dyn File>>,
    /// What was sent to it and has not been received.
    letters: Vec<Letter>,
}

struct Letter {
    number: u64,
    bytes: usize,
    /// The step in which the send began, and in which it came back.
    begun: u32,
    sent: u32,
    /// It was not interrupted, and there was room.
    certain: bool,
}

/// A datagram under way.
#[derive(Clone, Copy, Debug)]
pub struct Mail {
    from: usize,
    pub to: usize,
    number: u64,
    bytes: usize,
    begun: u32,
}

fn text(number: u64, bytes: usize) -> Vec<u8> {
    let pattern = (8..bytes as u64).map(|at| (number * 31 + at * 7) as u8);
    number.to_le_bytes().into_iter().chain(pattern).collect()
}

impl Program {
    pub(super) fn draw_mail(&self, rng: &Rng) -> Option<Act> {
        let (chance, waits) = (rng.below(10), rng.one_in(2));
        let numbers = [rng.next() as usize, rng.next() as usize, rng.next() as usize];
        let bytes = *rng.pick(&[8, 100, 3000, 9000]);
        let open: Vec<usize> = (0..self.boxes.len()).filter(|number| self.boxes[*number].file.is_some()).collect();
        let one = |number: usize| (!open.is_empty()).then(|| open[number % open.len()]);
        Some(match chance {
            0..=1 if open.len() < MOST_BOXES => {
                Act::Box { udp: numbers[2].is_multiple_of(2), at: [numbers[0], numbers[1]] }
            }
            0..=4 => {
                let from = one(numbers[0])?;
                // One that was closed refuses.
                let udp = self.boxes[from].udp;
                let to: Vec<usize> = (0..self.boxes.len()).filter(|to| self.boxes[*to].udp == udp).collect();
                let to = to[numbers[1] % to.len()];
                Act::Task(What::Mail { mail: Mail { from, to, number: 0, bytes, begun: 0 }, waits })
            }
            5..=8 => {
                let at = one(numbers[0])?;
                let fetches = |call: &Call| matches!(call.what, What::Fetch { at: of, .. } if of == at);
                (!self.calls.iter().any(fetches)).then_some(Act::Task(What::Fetch { at, waits }))?
            }
            _ => {
                let number = one(numbers[0]).filter(|_| numbers[1].is_multiple_of(4))?;
                let uses = |call: &Call| match &call.what {
                    What::Fetch { at, .. } => *at == number,
                    What::Mail { mail, .. } => mail.from == number,
                    _ => false,
                };
                (!self.calls.iter().any(uses)).then_some(Act::CloseBox(number))?
            }
        })
    }

    fn box_address(&self, number: usize) -> SocketAddress {
        match self.boxes[number].udp {
            true => super::program::port(FIRST_PORT + number as u16),
            false => SocketAddress::Unix(UnixPlace::Abstract(format!("box {number}").into_bytes())),
        }
    }

    pub(super) fn open_box(&mut self, udp: bool, at: [usize; 2]) {
        let (number, [kernel, user]) = (self.boxes.len(), self.places(at));
        let (names, who) = (&self.kernels.of(kernel).names, caller(1));
        let file: Arc<dyn File> = match udp {
            true => Socket::internet(names, &who, Protocol::Udp, false, OpenFlags::empty()),
            false => Socket::new(names, &who, SocketKind::Datagram, OpenFlags::empty()),
        };
        let binding = file.clone();
        self.boxes.push(Mailbox { udp, kernel, user, file: None, letters: Vec::new() });
        let bind = SocketControl::Bind { place: Some(self.box_address(number)), name: Vec::new() };
        let done = self
            .kernels
            .machine
            .start_on(kernel, async move { binding.control(&who, Control::Socket(bind)).await.map(drop) });
        self.kernels.machine.settle();
        assert_eq!(done.take(), Some(Ok(())), "nobody else has the name");
        self.boxes[number].file = Some(self.kernels.hand(kernel, user, file));
    }

    pub(super) fn start_mail(&mut self, mail: &mut Mail, waits: bool) -> (KernelId, Task) {
        self.letters += 1;
        (mail.number, mail.begun) = (self.letters, self.step);
        let (from, place) = (&self.boxes[mail.from], self.box_address(mail.to));
        let (file, who) = (from.file.clone().expect("it is open"), caller(1));
        let work = task::send_to(file, who.clone(), place, text(mail.number, mail.bytes), waits);
        (from.user, Task::start(&self.kernels, from.user, &who, work))
    }

    pub(super) fn start_fetch(&self, at: usize, waits: bool) -> (KernelId, Task) {
        let (from, who) = (&self.boxes[at], caller(1));
        let file = from.file.clone().expect("it is open");
        let work = task::receive(file, who.clone(), 100_000, false, waits);
        (from.user, Task::start(&self.kernels, from.user, &who, work))
    }

    pub(super) fn boxes_died(&mut self, dead: KernelId) {
        for mailbox in self.boxes.iter_mut().filter(|it| it.kernel == dead || it.user == dead) {
            mailbox.file = None;
        }
    }

    fn is_lost_box(&self, number: usize) -> bool {
        self.is_dead(self.boxes[number].kernel) || self.is_dead(self.boxes[number].user)
    }

    /// `sent`: it came back so; None: it was interrupted, or its program died.
    pub(super) fn note_mail(&mut self, mail: &Mail, sent: Option<bool>) {
        let (from_lost, scarce) = (self.is_lost_box(mail.from), self.kernels.tight || self.kernels.scarce);
        let Mailbox { udp, letters, .. } = &mut self.boxes[mail.to];
        let certain = match sent {
            // Its socket's kernel may have died after it had sent it.
            Some(false) if from_lost => false,
            Some(false) => return,
            Some(true) => !(from_lost || *udp && scarce),
            None => false,
        };
        let Mail { number, bytes, begun, .. } = *mail;
        letters.push(Letter { number, bytes, begun, sent: self.step, certain });
        let full = letters.iter().map(|letter| letter.bytes + OVERHEAD).sum::<usize>() > SURE_BYTES;
        if *udp && full {
            letters.iter_mut().for_each(|letter| letter.certain = false);
        }
    }

    pub(super) fn note_fetched(&mut self, at: usize, bytes: &[u8]) {
        let letters = &mut self.boxes[at].letters;
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("it is long enough"));
        let place = letters.iter().position(|letter| letter.number == number);
        let place = place.unwrap_or_else(|| panic!("datagram {number} in {at} was never sent, or received before"));
        let letter = letters.remove(place);
        assert!(bytes == text(number, letter.bytes), "datagram {number} in {at} is not what was sent");
        let before = letters.iter().find(|other| other.certain && other.sent < letter.begun);
        let before = before.map(|letter| letter.number);
        assert_eq!(before, None, "in {at}, which was sent before {number} was begun, and comes after it");
    }

    /// How many datagrams wait for certain, and how many perhaps.
    pub(super) fn mail(&self) -> Vec<[usize; 2]> {
        let count = |it: &Mailbox| [it.letters.iter().filter(|letter| letter.certain).count(), it.letters.len()];
        self.boxes.iter().map(count).collect()
    }

    /// `before`: what waited. `others`: datagrams that were sent at the same time.
    pub(super) fn may_mail(
        &self,
        mail: &Mail,
        before: [usize; 2],
        others: usize,
        waits: bool,
        sent: Result<usize, Errno>,
    ) -> bool {
        let Mailbox { udp, file, .. } = &self.boxes[mail.to];
        let tight = self.kernels.tight || self.kernels.scarce;
        match sent {
            _ if self.is_lost_box(mail.from) || self.is_lost_box(mail.to) => true,
            Ok(count) => count == mail.bytes,
            Err(Errno::EAGAIN) => !waits && !udp && (before[1] + others >= MOST_LETTERS || tight),
            Err(Errno::ENOBUFS) => tight,
            Err(Errno::ECONNREFUSED) => !udp && file.is_none(),
            Err(_) => false,
        }
    }

    pub(super) fn may_fetch(&self, at: usize, before: [usize; 2], waits: bool, error: Errno) -> bool {
        match error {
            _ if self.is_lost_box(at) => true,
            Errno::EAGAIN => !waits && before[0] == 0,
            Errno::ENOBUFS => self.kernels.scarce,
            _ => false,
        }
    }

    pub(super) fn may_wait_to_mail(&self, mail: &Mail) -> bool {
        let to = &self.boxes[mail.to];
        let full = to.letters.len() >= MOST_LETTERS || self.kernels.tight && !to.letters.is_empty();
        !to.udp && to.file.is_some() && full && !self.is_lost_box(mail.from)
    }

    pub(super) fn may_wait_to_fetch(&self, at: usize) -> bool {
        self.mail()[at][0] == 0 && !self.is_lost_box(at)
    }

    /// At rest.
    pub(super) fn look_into_boxes(&self) {
        for (number, (it, [certain, all])) in self.boxes.iter().zip(self.mail()).enumerate() {
            let Some(file) = it.file.as_ref().filter(|file| file.remote().is_none()) else { continue };
            let told = file.poll().contains(Events::IN);
            assert!(if told { all > 0 } else { certain == 0 }, "poll of {number} is {told}: {certain} to {all} there");
        }
    }

    pub(super) fn note_post(&mut self, what: &What, answer: &Answer) {
        match (what, answer) {
            (What::Mail { mail, .. }, Answer::Sent(sent)) => self.note_mail(mail, Some(sent.is_ok())),
            (What::Mail { mail, .. }, _) => self.note_mail(mail, None),
            _ => {}
        }
    }
}
