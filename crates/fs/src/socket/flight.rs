//! Descriptors in messages that nobody has received.
//!
//! A file stays open while a message holds it, and a message lives in the inbox of a socket, which may itself be in a message.
//! Three things follow.
//!
//! **Somebody pays.** Each such descriptor is charged to the sender's user, who may have RLIMIT_NOFILE of them (ETOOMANYREFS).
//!
//! **The end of one socket may be the end of any number**, each in the inbox of the one before. [`Flight::bury`] drops the
//! inboxes one after the other: the drop of a socket inside another's drop only adds its inbox to the queue.
//!
//! **Sockets that hold each other in a circle** never end by themselves. `circles` finds them. It needs to know two things, which
//! are kept here: which sockets hold others ([`Flight::holders`]), and of each socket whether somebody may have got a reference to it
//! since it was looked at ([`Gained`](crate::file::Gained)).

use super::{Socket, State};
use crate::{file, File};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::ops::Bound;
use machine::{account::Charge, collections::Queue, sync::Lock};

#[derive(Default)]
pub struct Flight {
    holders: Lock<Holders>,
    graves: Lock<Graves>,
}

/// Sockets that hold others in messages.
#[derive(Default)]
struct Holders {
    /// By their address; how often.
    sockets: BTreeMap<usize, (Weak<Socket>, usize)>,
    /// Messages with sockets.
    messages: usize,
}

#[derive(Default)]
struct Graves {
    queue: Queue<State>,
    /// Somebody drops what is in the queue.
    digging: bool,
}

/// The files of a message, counted and paid for.
pub struct Parcel {
    files: Vec<Arc<dyn File>>,
    /// If there are sockets among them: where it is noted that the receiver holds them.
    noted: Option<(Weak<Flight>, usize)>,
    _charge: Charge,
}

fn address(socket: &Socket) -> usize {
    core::ptr::from_ref(socket).addr()
}

impl Default for Parcel {
    fn default() -> Self {
        Parcel::empty()
    }
}

impl Parcel {
    pub fn empty() -> Self {
        Parcel { files: Vec::new(), noted: None, _charge: Charge::FREE }
    }

    /// For the inbox of `receiver`, which must not be locked.
    pub fn new(receiver: &Socket, files: Vec<Arc<dyn File>>, charge: Charge) -> Self {
        let mut parcel = Parcel { files, noted: None, _charge: charge };
        if parcel.files.iter().any(|file| file.gained().is_some()) {
            parcel.count();
            let flight = &receiver.names.flight;
            flight.note(receiver, 1);
            parcel.noted = Some((Arc::downgrade(flight), address(receiver)));
        }
        parcel
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The sockets among them, and stand-ins of sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<dyn File>> {
        let files: &[_] = if self.noted.is_some() { &self.files } else { &[] };
        files.iter().filter(|file| file.gained().is_some())
    }

    fn count(&self) {
        self.files.iter().for_each(|file| file::count_gained(&**file));
    }

    /// For who only looks. Under the lock of the inbox.
    pub fn peek(&self) -> Vec<Arc<dyn File>> {
        self.count();
        self.files.clone()
    }

    /// Takes it out of its message. Under the lock of the inbox.
    pub fn leave(&mut self) -> Parcel {
        self.count();
        core::mem::take(self)
    }

    /// For who receives them. Not under the lock of an inbox.
    pub fn open(mut self) -> Vec<Arc<dyn File>> {
        core::mem::take(&mut self.files)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.count();
        let Some((flight, receiver)) = self.noted.take() else { return };
        if let Some(flight) = flight.upgrade() {
            flight.forget(receiver, 1);
        }
    }
}

impl Flight {
    /// Drops what a socket that has ended held: files in messages that nobody read, connections that nobody accepted.
    pub(super) fn bury(&self, dead: State) {
        {
            let mut graves = self.graves.lock();
            graves.queue.push_back(dead);
            if core::mem::replace(&mut graves.digging, true) {
                return;
            }
        }
        loop {
            let next = {
                let mut graves = self.graves.lock();
                let next = graves.queue.pop_front();
                graves.digging = next.is_some();
                next
            };
            match next {
                Some(dead) => drop(dead),
                None => return,
            }
        }
    }

    /// `socket` holds another one, in one of so many messages.
    fn note(&self, socket: &Socket, messages: usize) {
        let mut holders = self.holders.lock();
        holders.messages += messages;
        holders.sockets.entry(address(socket)).or_insert_with(|| (socket.this.clone(), 0)).1 += 1;
    }

    fn forget(&self, socket: usize, messages: usize) {
        let mut holders = self.holders.lock();
        holders.messages -= messages;
        let Some((_, count)) = holders.sockets.get_mut(&socket) else { return };
        *count -= 1;
        if *count == 0 {
            holders.sockets.remove(&socket);
        }
    }

    /// How many sockets hold others. None if no message does, so that there can't be a circle.
    pub(super) fn holders(&self) -> Option<usize> {
        let holders = self.holders.lock();
        (holders.messages > 0).then_some(holders.sockets.len())
    }

    /// At most `most` of the sockets that hold others, with addresses above that.
    pub(super) fn some_holders(&self, above: usize, most: usize) -> Vec<(usize, Weak<Socket>)> {
        let holders = self.holders.lock();
        let range = (Bound::Excluded(above), Bound::Unbounded);
        holders.sockets.range(range).take(most).map(|(address, (socket, _))| (*address, socket.clone())).collect()
    }
}
