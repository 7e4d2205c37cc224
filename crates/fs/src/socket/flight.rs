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
//! **Sockets that hold each other in a circle** never end by themselves. [`Flight::collect`] looks for them, as Linux's unix_gc
//! did up to 6.8: a socket that only messages hold is a candidate. Of the candidates those stay that a message holds which is
//! not in the inbox of a candidate, and those in the inboxes of sockets that stay. Nobody can ever receive the rest, so
//! their inboxes are emptied. Dangerous is a message that is received meanwhile:
//!
//! ```text
//! collect                                     recvmsg
//! counts: b has one holder, a message
//!                                             takes that message out of a's inbox: b is a descriptor now
//! looks into a's inbox: b is not there
//! ```
//!
//! So a message's sockets are counted under the lock that `collect` holds from beginning to end, and taken off the count only
//! after the message has left the inbox: then b is counted once more than inboxes of candidates hold it, and stays. Whoever takes a
//! message out holds the lock of an inbox, and `collect` takes those locks under its own; so the count is changed after the
//! inbox is unlocked.
//!
//! Sockets of several kernels that hold each other across kernels are not found.

use super::{Socket, State};
use crate::File;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use machine::{account::Charge, collections::Queue, sync::Lock, HashMap};

/// Fewer sockets in messages are not looked at as they come.
const FEW: usize = 64;

#[derive(Default)]
pub struct Flight {
    /// Sockets that messages hold, by their address, and how many messages do.
    sockets: Lock<HashMap<usize, (Weak<Socket>, usize)>>,
    /// So many in `sockets` are a reason to collect.
    collect_at: AtomicUsize,
    /// Ends of sockets since the last collection.
    ends: AtomicUsize,
    graves: Lock<Graves>,
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
    flight: Weak<Flight>,
    _charge: Charge,
}

fn address(socket: &Socket) -> usize {
    core::ptr::from_ref(socket).addr()
}

fn as_socket(file: &Arc<dyn File>) -> Option<&Socket> {
    file.as_any().downcast_ref()
}

impl Parcel {
    pub fn empty() -> Self {
        Parcel { files: Vec::new(), flight: Weak::new(), _charge: Charge::FREE }
    }

    pub fn new(flight: &Arc<Flight>, files: Vec<Arc<dyn File>>, charge: Charge) -> Self {
        if files.iter().any(|file| as_socket(file).is_some()) {
            let mut sockets = flight.sockets.lock();
            for socket in files.iter().filter_map(as_socket) {
                sockets.entry(address(socket)).or_insert_with(|| (socket.this.clone(), 0)).1 += 1;
            }
        }
        Parcel { files, flight: Arc::downgrade(flight), _charge: charge }
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn File>> {
        self.files.iter()
    }

    /// For who only looks.
    pub fn peek(&self) -> Vec<Arc<dyn File>> {
        self.files.clone()
    }

    /// For who receives them. Not under the lock of an inbox.
    pub fn open(mut self) -> Vec<Arc<dyn File>> {
        self.uncount();
        core::mem::take(&mut self.files)
    }

    fn uncount(&self) {
        let Some(flight) = self.flight.upgrade() else { return };
        if self.files.iter().all(|file| as_socket(file).is_none()) {
            return;
        }
        let mut sockets = flight.sockets.lock();
        for socket in self.files.iter().filter_map(as_socket) {
            let Some((_, count)) = sockets.get_mut(&address(socket)) else { continue };
            *count -= 1;
            if *count == 0 {
                sockets.remove(&address(socket));
            }
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// A socket that a collection looks at.
struct Suspect {
    socket: Arc<Socket>,
    /// Messages that hold it and are in no candidate's inbox.
    outside: usize,
    /// Somebody can still receive it, or has it.
    stays: bool,
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

    /// A socket has ended: others may have been held by its inbox alone. (A look costs what is in flight, so it must not come
    /// with each end.)
    pub(super) fn socket_ended(&self) {
        let in_flight = match self.sockets.try_lock() {
            Some(sockets) => sockets.len(),
            // A collection is under way.
            None => return,
        };
        if in_flight > 0 && self.ends.fetch_add(1, Relaxed) * 2 >= in_flight {
            self.collect();
        }
    }

    /// Descriptors were sent.
    pub(super) fn sent(&self) {
        let in_flight = self.sockets.lock().len();
        if in_flight > FEW.max(self.collect_at.load(Relaxed)) {
            self.collect();
            self.collect_at.store(2 * self.sockets.lock().len(), Relaxed);
        }
    }

    /// Ends the sockets that nobody can receive any more.
    pub fn collect(&self) {
        self.ends.store(0, Relaxed);
        // Each may be the last reference by now, and its end takes the lock of `sockets`: dropped after that is released.
        let mut suspects = Vec::new();
        self.mark(&self.sockets.lock(), &mut suspects);
        for Suspect { socket, .. } in suspects.iter().filter(|suspect| !suspect.stays) {
            let messages = socket.state.lock().take_messages();
            drop(messages);
        }
    }

    /// Finds out which of `sockets` stay. None in `suspects` if there is no memory to look.
    fn mark(&self, sockets: &HashMap<usize, (Weak<Socket>, usize)>, suspects: &mut Vec<Suspect>) {
        let (mut index, mut reached) = (HashMap::<usize, usize>::default(), Vec::<usize>::new());
        let room = suspects.try_reserve_exact(sockets.len()).is_ok()
            && index.try_reserve(sockets.len()).is_ok()
            && reached.try_reserve_exact(sockets.len()).is_ok();
        if !room {
            return;
        }
        for (address, (socket, count)) in sockets {
            let Some(socket) = socket.upgrade() else { continue };
            // Ours, and those of the messages.
            let candidate = Arc::strong_count(&socket) == count + 1;
            if candidate {
                index.insert(*address, suspects.len());
            }
            suspects.push(Suspect { socket, outside: *count, stays: !candidate });
        }
        for at in 0..suspects.len() {
            if suspects[at].stays {
                continue;
            }
            let socket = suspects[at].socket.clone();
            socket.for_each_held(&mut |child| {
                if let Some(child) = index.get(&address(child)) {
                    suspects[*child].outside = suspects[*child].outside.saturating_sub(1);
                }
            });
        }
        let reach = |at: usize, suspects: &mut Vec<Suspect>, reached: &mut Vec<usize>| {
            if !core::mem::replace(&mut suspects[at].stays, true) {
                reached.push(at);
            }
        };
        for at in 0..suspects.len() {
            if suspects[at].outside > 0 {
                reach(at, suspects, &mut reached);
            }
        }
        while let Some(at) = reached.pop() {
            let socket = suspects[at].socket.clone();
            socket.for_each_held(&mut |child| {
                if let Some(child) = index.get(&address(child)) {
                    reach(*child, suspects, &mut reached);
                }
            });
        }
    }
}

impl Socket {
    /// Calls `visit` with each socket in the messages here, and in those of connections that nobody has accepted: they wait in a
    /// listener, and their locks are taken under the listener's, as by who connects.
    fn for_each_held(&self, visit: &mut dyn FnMut(&Socket)) {
        let state = self.state.lock();
        let mut look = |state: &State| state.inbox.files().filter_map(as_socket).for_each(&mut *visit);
        look(&state);
        for waiting in state.waiting() {
            look(&waiting.state.lock());
        }
    }
}
