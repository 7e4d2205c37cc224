//! Sockets: of AF_UNIX (man 7 unix) streams, datagrams and sequenced packets; on the same machinery those of AF_INET and AF_INET6 (inet/).
//!
//! A socket keeps what was sent *to* it; whoever sends puts a message into the receiver's inbox. No code
//! holds the locks of two sockets at once, but for a listener's and one that waits in it. Each waits in its own queue: a reader that makes room wakes
//! its peer.
//!
//! Bound sockets are found in [`NetNamespace`], by inode for a path (the system call makes the node and
//! looks it up) or by abstract name, on every kernel.
//!
//! Sockets in messages (flight.rs) may hold each other in a circle, also over kernels: circles/ finds and ends them.
//!
//! Across kernels each end of a connection is where its programs are (ends.rs): where it was connected from, and where its listener is. Datagrams
//! go straight into the far socket's inbox (far.rs).

mod ancillary;
mod circles;
mod ends;
mod far;
mod file;
mod flight;
mod handover;
mod inbox;
mod inet;
mod known;
mod link;
mod list;
mod moves;
mod names;
mod options;
mod others;
mod stream;
mod transfer;
mod urgent;

pub(crate) use circles::Circles;
pub use ends::Connecting;
pub use inet::Protocol;
pub use link::Lent;
pub use list::AllSockets;
pub use names::NetNamespace;
pub use others::{FarSocket, OtherKernels, SocketLoan};
pub(crate) use transfer::{Datagram, MSG_OOB};
pub use transfer::{MSG_GOES_ON, MSG_PROBES};

use crate::{
    anonymous::{Identity, StatusFlags},
    control::{InternetEnds, SocketAddress, UnixCredentials, UnixPlace},
    file::Gained,
    Caller, File, Kind, OpenFlags,
};
use alloc::{
    boxed::Box,
    collections::VecDeque,
    sync::{Arc, Weak},
    vec::Vec,
};
use inbox::{Inbox, Incoming};
use inet::Internet;
use link::Link;
use machine::{
    account::Account,
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno,
};
use messages::fs::SocketChange;
use options::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    Stream = 1,
    Datagram = 2,
    SeqPacket = 5,
}

impl SocketKind {
    /// The type argument of socket(2), without its flags.
    pub fn new(number: u32) -> Result<Self> {
        match number {
            1 => Ok(SocketKind::Stream),
            // SOCK_RAW is a datagram socket in this family.
            2 | 3 => Ok(SocketKind::Datagram),
            5 => Ok(SocketKind::SeqPacket),
            _ => Err(Errno::ESOCKTNOSUPPORT),
        }
    }

    fn connects(self) -> bool {
        self != SocketKind::Datagram
    }
}

#[derive(Default)]
enum Role {
    #[default]
    Alone,
    Listening {
        backlog: usize,
        waiting: VecDeque<Arc<Socket>>,
    },
    Connected(Weak<Socket>),
    /// Another kernel is asked for the other end of the connection.
    Linking(Box<Link>),
    /// The other end is on another kernel.
    Linked(Box<Link>),
    /// The connection was accepted on another kernel, or who has it is there: so is its end.
    Moved,
    /// A datagram socket whose default destination is on another kernel; its name.
    Far(FarSocket, Vec<u8>),
}

#[derive(Default)]
struct State {
    role: Role,
    inbox: Inbox,
    /// Nothing more comes in, nothing more goes out.
    read_shut: bool,
    write_shut: bool,
    /// Told once by SO_ERROR or a read.
    error: Option<Errno>,
    /// `sun_path` as bound, and the key in the table of names.
    name: Vec<u8>,
    place: Option<(UnixPlace, u64)>,
    /// Of AF_UNIX: `sun_path` of the other side, for when that is closed.
    other_name: Vec<u8>,
    /// In whose queue it waits to be accepted.
    listener: Weak<Socket>,
    /// Of a connection that was accepted here with a listener elsewhere: what keeps the port.
    port: Option<Arc<dyn File>>,
    /// A datagram to another kernel found no room; a task waits for it.
    full: bool,
    /// Our place among those who wait for room at the default destination of datagrams.
    room_there: Option<(Arc<WaitQueue>, u64)>,
    /// SO_PASSCRED: messages come with credentials.
    wants_credentials: bool,
    /// SO_PEERCRED.
    peer_credentials: Option<UnixCredentials>,
    /// SO_PEERGROUPS.
    peer_groups: Arc<[u32]>,
    /// Somebody waits for room in the inbox: what there is may be read even if SO_RCVLOWAT wants more.
    awaited: bool,
    /// IP_RECVERR: what could not be delivered.
    errors: Option<Box<Inbox>>,
    /// Who sent last: whom the next message is charged to, most likely.
    payer: Option<(UnixCredentials, Arc<Account>)>,
    settings: Settings,
}

impl State {
    /// Connections that nobody has accepted.
    fn waiting(&self) -> impl Iterator<Item = &Arc<Socket>> {
        match &self.role {
            Role::Listening { waiting, .. } => Some(waiting),
            _ => None,
        }
        .into_iter()
        .flatten()
    }

    /// Of sockets of datagrams and packets: nobody sends to it but the one that it is connected with.
    fn has_one_sender(&self) -> bool {
        matches!(self.role, Role::Connected(_) | Role::Far(..))
    }

    /// The other side on this kernel, if it is open.
    fn peer(&self) -> Option<Arc<Socket>> {
        match &self.role {
            Role::Connected(peer) => peer.upgrade(),
            _ => None,
        }
    }

    /// What was sent to it and not read, and connections that nobody has accepted: all that it holds of others.
    fn take_messages(&mut self) -> State {
        let inbox = core::mem::take(&mut self.inbox);
        let waiting = match &mut self.role {
            Role::Listening { waiting, .. } => core::mem::take(waiting),
            _ => VecDeque::new(),
        };
        State { inbox, role: Role::Listening { backlog: 0, waiting }, ..State::default() }
    }
}

pub struct Socket {
    kind: SocketKind,
    /// Of AF_INET and AF_INET6.
    inet: Option<Internet>,
    state: Lock<State>,
    changes: WaitQueue,
    /// For those on other kernels who wait for room here and must not keep this socket: woken when a listener
    /// accepts, when a datagram is read, and at the end.
    room: Arc<WaitQueue>,
    flags: StatusFlags,
    inode: Identity,
    /// Its place in the list of this kernel's sockets: the inode's number, unless that has come from another kernel.
    listed_as: u64,
    gained: Gained,
    names: Arc<NetNamespace>,
    this: Weak<Socket>,
}

pub(crate) fn credentials_of(caller: &Caller) -> UnixCredentials {
    UnixCredentials { pid: caller.process.0, uid: caller.credentials.euid, gid: caller.credentials.egid }
}

fn groups_of(caller: &Caller) -> Arc<[u32]> {
    caller.credentials.groups.as_slice().into()
}

impl Socket {
    /// Puts into the inbox what has come. How much of what was there is passed over for it (as [`Inbox::cost`] counts).
    fn take_in(&self, state: &mut State, incoming: Incoming) -> usize {
        let (urgent, passes) = (incoming.urgent, self.inet.is_some() && !state.settings.inline());
        let time = state.wants_time().then(|| self.names.realtime());
        state.inbox.push(incoming, time);
        let before = state.inbox.cost();
        if urgent {
            state.inbox.mark_urgent(passes);
            self.flags.owned.urgent(self.this.clone());
        }
        before - state.inbox.cost()
    }

    /// socket(2).
    pub fn new(names: &Arc<NetNamespace>, caller: &Caller, kind: SocketKind, flags: OpenFlags) -> Arc<Self> {
        Self::of_family(names, caller, kind, flags, None)
    }

    fn of_family(
        names: &Arc<NetNamespace>,
        caller: &Caller,
        kind: SocketKind,
        flags: OpenFlags,
        inet: Option<Internet>,
    ) -> Arc<Self> {
        let inode = Identity::new(Kind::Socket, 0o777, caller);
        let socket = Arc::new_cyclic(|this| Socket {
            kind,
            inet,
            state: Lock::default(),
            changes: WaitQueue::new(),
            room: Arc::default(),
            flags: StatusFlags::new(flags | OpenFlags::RDWR),
            listed_as: inode.number(),
            inode,
            gained: Gained::default(),
            names: names.clone(),
            this: this.clone(),
        });
        names.opened(&socket);
        socket
    }

    /// socketpair(2).
    pub fn pair(
        names: &Arc<NetNamespace>,
        caller: &Caller,
        kind: SocketKind,
        flags: OpenFlags,
    ) -> (Arc<Self>, Arc<Self>) {
        let (a, b) = (Self::new(names, caller, kind, flags), Self::new(names, caller, kind, flags));
        for (one, other) in [(&a, &b), (&b, &a)] {
            let mut state = one.state.lock();
            state.role = Role::Connected(Arc::downgrade(other));
            state.peer_credentials = Some(credentials_of(caller));
            state.peer_groups = groups_of(caller);
        }
        (a, b)
    }

    /// The other side. ENOTCONN if there never was one; None if it is closed.
    fn peer(&self) -> Result<Option<Arc<Socket>>> {
        match &self.state.lock().role {
            Role::Connected(peer) => Ok(peer.upgrade()),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Abstract names of different kinds of sockets are different names.
    fn keyed(&self, place: SocketAddress) -> Result<UnixPlace> {
        Ok(match place {
            SocketAddress::Unix(UnixPlace::Abstract(name)) => UnixPlace::Abstract(names::of_kind(self.kind, &name)),
            SocketAddress::Unix(place) => place,
            SocketAddress::Other(_) => return Err(Errno::EINVAL),
        })
    }

    async fn bind(&self, place: Option<SocketAddress>, name: Vec<u8>) -> Result<()> {
        if self.state.lock().place.is_some() {
            // It need not be given a name once more.
            return if place.is_some() { Err(Errno::EINVAL) } else { Ok(()) };
        }
        let (place, name, serial) = match place.map(|place| self.keyed(place)).transpose()? {
            Some(place) => {
                let serial = self.names.bind(place.clone(), &self.this).await?;
                (place, name, serial)
            }
            None => self.names.autobind(&self.this, self.kind).await?,
        };
        let given_up = {
            let mut state = self.state.lock();
            match state.place {
                // Another thread was faster.
                Some(_) => Some(place),
                None => {
                    state.place = Some((place, serial));
                    state.name = name.clone();
                    None
                }
            }
        };
        match given_up {
            None => {
                self.tell(SocketChange { name: Some(name), ..SocketChange::default() });
                Ok(())
            }
            Some(place) => {
                self.names.unbind(&place, serial);
                Err(Errno::EINVAL)
            }
        }
    }

    fn listen(&self, backlog: i32, caller: &Caller) -> Result<()> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.place.is_none() {
            return Err(Errno::EINVAL);
        }
        let wanted = backlog.clamp(0, 4096) as usize;
        match &mut state.role {
            Role::Connected(_) | Role::Linking(_) | Role::Linked(_) | Role::Moved | Role::Far(..) => {
                return Err(Errno::EINVAL)
            }
            Role::Listening { backlog, .. } => *backlog = wanted,
            role => *role = Role::Listening { backlog: wanted, waiting: VecDeque::new() },
        }
        state.peer_credentials = Some(credentials_of(caller));
        state.peer_groups = groups_of(caller);
        Ok(())
    }

    fn try_accept(&self, flags: OpenFlags) -> Result<Arc<Socket>> {
        let accepted = match &mut self.state.lock().role {
            Role::Listening { waiting, .. } => {
                let accepted = waiting.pop_front().ok_or(Errno::EAGAIN)?;
                accepted.gained.count_one();
                accepted
            }
            _ if !self.kind.connects() => return Err(Errno::EOPNOTSUPP),
            _ => return Err(Errno::EINVAL),
        };
        accepted.state.lock().listener = Weak::new();
        accepted.flags.set(flags);
        if let Some(inet) = &accepted.inet {
            inet.was_accepted();
        }
        // Whoever waits in connect has room in the backlog now.
        self.changes.wake_all();
        self.room.wake_all();
        Ok(accepted)
    }

    /// May this socket connect at all?
    fn check_unconnected(&self) -> Result<()> {
        match self.state.lock().role {
            Role::Connected(_) | Role::Linked(_) | Role::Moved | Role::Far(..) => Err(Errno::EISCONN),
            Role::Linking(_) => Err(Errno::EALREADY),
            Role::Listening { .. } => Err(Errno::EINVAL),
            Role::Alone => Ok(()),
        }
    }

    /// EAGAIN: the backlog is full.
    fn try_connect(&self, listener: &Arc<Socket>, caller: &Caller) -> Result<()> {
        if listener.kind != self.kind {
            return Err(Errno::EPROTOTYPE);
        }
        // What is wrong there comes before what is wrong here, as in Linux.
        listener.check_backlog()?;
        self.check_unconnected()?;
        let ends = self.inet.as_ref().and_then(|inet| inet.connection());
        let mut other = Weak::new();
        let (credentials, groups) = listener.admit(ends, caller, |server| {
            other = Arc::downgrade(server);
            Ok(Role::Connected(self.this.clone()))
        })?;
        {
            let mut state = self.state.lock();
            state.role = Role::Connected(other);
            (state.peer_credentials, state.peer_groups) = (credentials, groups);
        }
        self.changes.wake_all();
        Ok(())
    }

    /// At the listener: makes the end that will be accepted, with the role that `role` says; who listens. EAGAIN: the backlog is full.
    fn admit(
        &self,
        ends: Option<InternetEnds>,
        caller: &Caller,
        role: impl FnOnce(&Arc<Socket>) -> Result<Role>,
    ) -> Result<(Option<UnixCredentials>, Arc<[u32]>)> {
        self.check_backlog()?;
        let server = match self.inet {
            Some(_) => self.internet_server(ends, caller).ok_or(Errno::EPROTOTYPE)?,
            None => Self::new(&self.names, caller, self.kind, OpenFlags::empty()),
        };
        let role = role(&server)?;
        let credentials = {
            let mut state = self.state.lock();
            let State { role: listening, name, peer_credentials, peer_groups, settings, .. } = &mut *state;
            let Role::Listening { backlog, waiting } = listening else { return Err(Errno::ECONNREFUSED) };
            if waiting.len() > *backlog {
                return Err(Errno::EAGAIN);
            }
            {
                let mut there = server.state.lock();
                there.role = role;
                there.name = name.clone();
                there.listener = self.this.clone();
                there.peer_credentials = server.tells_credentials(caller);
                there.peer_groups = groups_of(caller);
                there.settings = settings.clone();
            }
            waiting.push_back(server);
            (*peer_credentials, peer_groups.clone())
        };
        self.changes.wake_all();
        Ok(credentials)
    }

    fn check_backlog(&self) -> Result<()> {
        match &self.state.lock().role {
            Role::Listening { backlog, waiting } if waiting.len() > *backlog => Err(Errno::EAGAIN),
            Role::Listening { .. } => Ok(()),
            _ => Err(Errno::ECONNREFUSED),
        }
    }

    /// Of AF_UNIX: the other side, of that name, has closed; `lost`: without having received all that it was sent.
    fn has_lost_other(&self, name: Vec<u8>, lost: bool) {
        {
            let mut state = self.state.lock();
            state.other_name = name;
            (state.read_shut, state.write_shut) = (true, true);
            if lost {
                state.error = Some(Errno::ECONNRESET);
            }
        }
        self.changes.wake_all();
    }

    fn shutdown(&self, how: u32) -> Result<()> {
        if how > 2 {
            return Err(Errno::EINVAL);
        }
        let (read, write) = (how != 1, how != 0);
        let far = matches!(self.state.lock().role, Role::Far(..));
        // Also a socket that is not connected can be shut.
        let peer = if far { None } else { self.peer().ok().flatten() };
        {
            let mut state = self.state.lock();
            state.read_shut |= read;
            state.write_shut |= write;
        }
        if let Some(peer) = peer.filter(|_| self.kind.connects()) {
            let mut state = peer.state.lock();
            state.read_shut |= write;
            // By TCP the other side is not told that nobody reads.
            state.write_shut |= read && self.inet.is_none();
            drop(state);
            peer.changes.wake_all();
        }
        // By TCP the other side is not told that nobody reads.
        let (read_shut, write_shut) = (write, read && self.inet.is_none());
        if self.kind.connects() && (read_shut || write_shut) {
            self.tell(SocketChange { read_shut, write_shut, ..SocketChange::default() });
        }
        self.changes.wake_all();
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.names.closed(self.listed_as);
        let mut state = core::mem::take(self.state.get_mut());
        if let Some((place, serial)) = &state.place {
            self.names.unbind(place, *serial);
        }
        self.room.wake_all();
        if let Some((room, key)) = &state.room_there {
            room.unsubscribe(*key);
        }
        let unread = !state.inbox.is_empty();
        let unaccepted = !state.listener.ptr_eq(&Weak::new());
        let reset =
            unread || state.settings.breaks_off() || self.inet.as_ref().is_some_and(|inet| inet.is_unaccepted());
        if self.inet.is_some() {
            self.leave_internet(reset, state.port.take());
        }
        match &state.role {
            Role::Connected(peer) => {
                if let Some(peer) = peer.upgrade().filter(|peer| peer.kind.connects()) {
                    match (&self.inet, reset) {
                        (Some(_), true) => peer.was_reset(),
                        (Some(_), false) => peer.was_closed(),
                        (None, _) => peer.has_lost_other(state.name.clone(), unread || unaccepted),
                    }
                }
            }
            Role::Linked(link) if !link.closed => {
                if let (Some(there), Ok(others)) = (link.there, self.names.others()) {
                    let hard = if self.inet.is_some() { reset } else { unread || unaccepted };
                    others.tell(there, ends::end(self.inet.is_some(), hard));
                }
            }
            Role::Linking(link) => Self::give_up_pair(link),
            _ => {}
        }
        // Connections that nobody accepted, and files in messages that nobody read, are closed here.
        if state.inbox.brings_files() || state.waiting().next().is_some() {
            self.names.flight.bury(state);
        }
        circles::socket_ended(&self.names);
    }
}

#[cfg(test)]
mod tests;
