//! What an end of a connection knows of the other, which is on another kernel.
//!
//! Each end keeps what was sent *to* it, and grants the other end a window: so much may be sent that no program has received yet. The window is
//! charged before it is granted, to who connected, so that what arrives always has a place. It begins small and grows when the
//! sender wants more.
//!
//! ```text
//! K1                                               K2
//! write: the window is enough -- SocketSend -----> into the inbox, wakes who reads
//!                                                  read, write
//! into the inbox <----- SocketSend with a credit --
//! write: it is too small ------- SocketWant -----> the window grows
//!                  <------------ the credit -------
//! write: it is at its most ----- SocketWant -----> notes that somebody waits
//!                  <------------ the same credit --
//! waits                                            a program reads
//!                  <------------ SocketCredited ---
//! ```
//!
//! A credit is sent by itself only when a quarter of the window was read or somebody waits; else it travels with what is sent back. Both
//! numbers in it only grow, so that it does not matter in which order credits arrive.

use super::{inbox, FarSocket, NetNamespace, Socket};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    account::{Account, Charge, Resource},
    collections::Queue,
    errno::Result,
    Errno, KernelId, PAGE_SIZE,
};
use messages::fs::{EndProgress, SocketCredit};

/// What a window begins with.
const LEAST: usize = PAGE_SIZE;
/// The longest packet fits, and as much of a stream as an inbox takes otherwise, unless SO_SNDBUF or SO_RCVBUF say something else.
pub(super) const MOST: usize = inbox::LIMIT + PAGE_SIZE;

/// So many messages of the size that did not fit are to fit.
const SPARE: usize = 8;

/// How much of a window a message takes.
pub(super) fn cost(bytes: usize) -> u64 {
    (bytes + inbox::MESSAGE_BYTES) as u64
}

/// Frames that are lent for a message, until it was received (or, if this end goes, copied).
pub type Lent = Box<dyn Send + Sync>;

/// What is kept until the other side has received a message.
struct Kept {
    /// All that was sent up to its end.
    end: u64,
    _frames: Option<Lent>,
    /// For its descriptors.
    _charge: Charge,
}

/// The number by which the other kernel knows this end.
struct Number {
    names: Arc<NetNamespace>,
    number: u64,
}

impl Drop for Number {
    fn drop(&mut self) {
        self.names.forget(self.number);
    }
}

pub(super) struct Link {
    here: Number,
    /// Of an end that is for a connection accepted elsewhere (handover.rs): the other end, which is of this kernel, and the link it had.
    pub pair: Option<(Weak<Socket>, Box<Link>)>,
    /// The listener's kernel, if the other end has moved and has not been heard of since.
    pub mover: Option<KernelId>,
    /// Messages that were sent to where the other end is, and have come from there, credits not among them.
    told_count: u64,
    heard_count: u64,
    /// The other end; None until the listener's kernel has made it.
    pub there: Option<FarSocket>,
    /// `sun_path` of the other end.
    pub name: Vec<u8>,
    /// The other end is closed.
    pub closed: bool,
    /// connect(2) waits for the answer of the listener's kernel.
    pub connects: bool,
    /// This end is about to move to another kernel: the other one can't meanwhile.
    pub leaves: bool,
    sent: u64,
    credit: SocketCredit,
    kept: Queue<Kept>,
    /// So much room was wanted and is not there yet.
    wanted: u64,
    arrived: u64,
    /// Of what has arrived a program has received so much, and the other side knows of so much.
    taken: u64,
    told: u64,
    /// What the other side waits for; 0: it does not.
    awaited: u64,
    window: Charge,
    payer: Option<Arc<Account>>,
}

impl Drop for Link {
    /// What was sent may be on its way in frames, or unread with descriptors, which are charged until then.
    fn drop(&mut self) {
        let kept = core::mem::take(&mut self.kept);
        let (Some(there), Ok(others), false) = (self.there, self.here.names.others(), kept.is_empty()) else { return };
        let (asks, mover) = (others.clone(), self.mover);
        others.run(Box::pin(async move {
            if let Some(mover) = mover {
                // What was sent there may not have been copied.
                let _ = asks.flush(mover).await;
            }
            asks.received(there).await;
            drop(kept);
        }));
    }
}

impl Link {
    /// For `socket`, at the expense of who connects. ENOBUFS.
    pub fn new(names: &Arc<NetNamespace>, socket: &Weak<Socket>, payer: Option<Arc<Account>>) -> Result<Box<Self>> {
        let mut window = payer.as_ref().map_or(Charge::FREE, |payer| payer.nothing(Resource::Memory));
        window.grow(LEAST).map_err(|_| Errno::ENOBUFS)?;
        Ok(Box::new(Link {
            here: Number { names: names.clone(), number: names.register(socket) },
            pair: None,
            mover: None,
            told_count: 0,
            heard_count: 0,
            there: None,
            name: Vec::new(),
            closed: false,
            connects: false,
            leaves: false,
            sent: 0,
            credit: SocketCredit { taken: 0, granted: LEAST as u64 },
            kept: Queue::default(),
            wanted: 0,
            arrived: 0,
            taken: 0,
            told: 0,
            awaited: 0,
            window,
            payer,
        }))
    }

    /// Its number on this kernel.
    pub fn number(&self) -> u64 {
        self.here.number
    }

    /// A change was sent, too.
    pub fn told(&mut self) {
        self.told_count += 1;
    }

    /// The other end moves: so many messages were sent to where it was. All that it has sent from there has come.
    pub fn begin_counting(&mut self) -> u64 {
        self.heard_count = 0;
        core::mem::take(&mut self.told_count)
    }

    /// A message that is no credit has come.
    pub fn hears(&mut self) {
        self.heard_count += 1;
        self.mover = None;
    }

    /// How many have.
    pub fn heard(&self) -> u64 {
        self.heard_count
    }

    /// As it is taken over by an end on another kernel.
    pub fn progress(&self) -> EndProgress {
        let granted = self.told + self.window.amount() as u64;
        EndProgress { granted, arrived: self.arrived, awaited: self.awaited, sent: self.sent, credit: self.credit }
    }

    /// For an end whose other end was of this kernel, and moves to `there` with so much that is unread there.
    pub fn begin_at(&mut self, there: FarSocket, name: Vec<u8>, unread: u64) -> EndProgress {
        (self.there, self.name, self.sent) = (Some(there), name, unread);
        self.credit.granted = unread + LEAST as u64;
        EndProgress { granted: self.credit.granted, arrived: unread, ..EndProgress::default() }
    }

    /// The same, of what is unread here: so much the end that moves has sent by that, and may have sent.
    pub fn keep_unread(&mut self, unread: u64) -> (u64, SocketCredit) {
        self.arrived = unread;
        self.widen(unread + LEAST as u64);
        (unread, SocketCredit { taken: 0, granted: self.window.amount() as u64 })
    }

    /// For an end that has come from another kernel, with so much that is unread.
    pub fn take_over(&mut self, progress: EndProgress, unread: u64) {
        let EndProgress { granted, arrived, awaited, sent, credit } = progress;
        // What has been sent here meanwhile is counted already.
        self.arrived += arrived;
        self.taken = arrived.saturating_sub(unread);
        self.told = self.taken;
        self.widen(granted.saturating_sub(self.told));
        (self.awaited, self.sent) = (awaited, sent);
        self.hear(credit);
    }

    /// What was granted is granted, whatever the limits say now.
    fn widen(&mut self, to: u64) {
        self.window.grow_anyway((to as usize).saturating_sub(self.window.amount()));
    }

    /// What may be sent now, with what each message takes beside its bytes.
    pub fn room(&self) -> u64 {
        self.credit.granted - self.sent
    }

    /// Whether a send is worth another try.
    pub fn has_room(&self) -> bool {
        let room = self.room();
        room > cost(0) && room >= self.wanted || self.credit.taken == self.sent
    }

    /// A send needs so much room: until that is there, there is none.
    pub fn want(&mut self, room: u64) {
        self.wanted = room;
    }

    /// A message of so many bytes was sent.
    pub fn sent(&mut self, bytes: usize, frames: Option<Lent>, charge: Charge) {
        self.sent += cost(bytes);
        self.told_count += 1;
        self.wanted = 0;
        if frames.is_some() || charge.is_charged() {
            self.kept.push_back(Kept { end: self.sent, _frames: frames, _charge: charge });
        }
    }

    /// Whether that is news.
    pub fn hear(&mut self, credit: SocketCredit) -> bool {
        let before = self.credit;
        self.credit.taken = before.taken.max(credit.taken);
        self.credit.granted = before.granted.max(credit.granted);
        while self.kept.front().is_some_and(|kept| kept.end <= self.credit.taken) {
            self.kept.pop_front();
        }
        self.credit != before
    }

    /// A message of so many bytes has come into the inbox.
    pub fn arrived(&mut self, bytes: usize) {
        self.arrived += cost(bytes);
        self.hears();
    }

    /// So much of the window was received; `at_once`: the sender is to hear of it now. The credit that is to be sent.
    pub fn take(&mut self, part: u64, at_once: bool) -> Option<SocketCredit> {
        self.taken += part;
        let empty = self.taken == self.arrived;
        let waits = self.awaited > 0 && (self.free() >= self.awaited || empty);
        let much = (self.taken - self.told) as usize >= self.window.amount() / 4;
        (part > 0 && (at_once || waits || much) && !self.closed).then(|| self.credit())
    }

    /// The other side waits for room.
    pub fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// What travels with something that is sent anyway.
    pub fn credit(&mut self) -> SocketCredit {
        if self.free() >= self.awaited || self.taken == self.arrived {
            self.awaited = 0;
        }
        self.told = self.taken;
        SocketCredit { taken: self.taken, granted: self.taken + self.window.amount() as u64 }
    }

    /// Of the window.
    fn free(&self) -> u64 {
        (self.window.amount() as u64 + self.taken).saturating_sub(self.arrived)
    }

    /// The other side wants to send so much at once, or, if it can be sent in `parts`, as much of it as possible; of what it sends an inbox takes
    /// so many bytes, and the window grows no larger than that. ENOBUFS: never.
    pub fn make_room(&mut self, room: u64, parts: bool, limit: usize) -> Result<SocketCredit> {
        let most = limit + PAGE_SIZE;
        let missing = room.saturating_sub(self.free()) as usize;
        if missing > 0 {
            let window = self.window.amount();
            // Larger than what was asked for: credits then travel with answers.
            let wanted = (window + missing).max(SPARE.saturating_mul(room as usize)).min(most);
            let more = |wanted: usize| wanted.saturating_sub(window);
            let _ = self.grow(more(wanted)).or_else(|_| self.grow(missing.min(more(most))));
        }
        let least = if parts { room.min(cost(PAGE_SIZE)).min(self.window.amount() as u64 / 4) } else { room };
        if self.free() < least {
            if self.taken == self.arrived {
                return Err(Errno::ENOBUFS);
            }
            self.awaited = least;
            return Ok(SocketCredit { taken: self.taken, granted: self.taken + self.window.amount() as u64 });
        }
        Ok(self.credit())
    }

    /// Half of what the payer may have is for other things than windows.
    fn grow(&mut self, by: usize) -> Result<()> {
        let room = self.payer.as_ref().map_or(usize::MAX, |payer| payer.room(Resource::Memory));
        if by > room / 2 {
            return Err(Errno::ENOBUFS);
        }
        self.window.grow(by).map_err(|_| Errno::ENOBUFS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Box<Link> {
        Link::new(&Arc::default(), &Weak::new(), None).unwrap()
    }

    /// What is sent without another word, and what is asked for, always fits.
    #[test]
    fn credits_are_sent_for_a_quarter_and_for_who_waits() {
        let (mut from, mut to) = (link(), link());
        assert_eq!(from.room(), LEAST as u64);
        for _ in 0..5 {
            from.sent(8, None, Charge::FREE);
            to.arrived(8);
        }
        // Read one after the other: the sixth part is a quarter.
        let credits: Vec<_> = (0..5).filter_map(|_| to.take(cost(8), false)).collect();
        assert_eq!(credits.len(), 0);
        from.sent(100, None, Charge::FREE);
        to.arrived(100);
        from.hear(to.take(cost(100), false).unwrap());
        assert_eq!(from.room(), LEAST as u64);

        from.hear(to.make_room(cost(60_000), true, inbox::LIMIT).unwrap());
        assert!(from.room() >= cost(60_000));
        let room = from.room() as usize;
        assert_eq!(room, MOST);
        from.sent(room - inbox::MESSAGE_BYTES, None, Charge::FREE);
        to.arrived(room - inbox::MESSAGE_BYTES);
        // No more, and one waits.
        from.hear(to.make_room(cost(1), true, inbox::LIMIT).unwrap());
        from.want(cost(1));
        assert!(!from.has_room());
        assert_eq!(to.take(1, false), None);
        from.hear(to.take(cost(0), false).unwrap());
        assert!(from.has_room());
    }

    #[test]
    fn the_longest_packet_fits_into_an_empty_inbox() {
        let mut to = link();
        let longest = cost(inbox::LIMIT - 32);
        assert!(to.make_room(longest, false, inbox::LIMIT).unwrap().granted >= longest);
        to.arrived(9000);
        let full = to.make_room(longest, false, inbox::LIMIT).unwrap();
        assert!(full.granted < longest + cost(9000), "it does not fit behind another");
        assert!(to.take(cost(9000), false).unwrap().granted >= longest + cost(9000));
    }

    #[test]
    fn a_window_is_no_larger_than_the_buffer() {
        let (mut from, mut to) = (link(), link());
        from.hear(to.make_room(cost(60_000), true, 20_000).unwrap());
        assert_eq!(from.room() as usize, 20_000 + PAGE_SIZE);
        // What was granted stays.
        from.hear(to.make_room(cost(60_000), true, 5_000).unwrap());
        assert_eq!(from.room() as usize, 20_000 + PAGE_SIZE);
    }

    #[test]
    fn who_connects_pays() {
        let payer = Account::new(None, &[(Resource::Memory, 5 * LEAST)]);
        let new = || Link::new(&Arc::default(), &Weak::new(), Some(payer.clone()));
        let mut links: Vec<_> = (0..3).map(|_| new().unwrap()).collect();
        // Half of what is left may be had, and a stream goes in parts.
        assert_eq!(links[0].make_room(cost(50_000), false, inbox::LIMIT).err(), Some(Errno::ENOBUFS));
        assert!(links[0].make_room(cost(50_000), true, inbox::LIMIT).is_ok());
        links.extend((0..2).map(|_| new().unwrap()));
        assert_eq!(new().err(), Some(Errno::ENOBUFS));
        drop(links);
        assert_eq!(payer.used(Resource::Memory), 0);
    }
}
