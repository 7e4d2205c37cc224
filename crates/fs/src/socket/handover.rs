//! An end of a connection moves to another kernel, and the other end is told where it is: at accept(2) on another kernel than the
//! listener's, and when the only program that has the end has gone to another kernel (moves.rs).
//!
//! ```text
//! K1: accept                          K2: the listener                    K3: connects
//!                                     an end waits in the backlog <------ write: SocketSend
//! makes an end -- Accept, its number -> takes the one out of the backlog
//!                                     -- SocketMove --------------------> sends to K1 from now on
//!                                     <- how much was sent here --------
//!                                     waits until it has come
//!              <- all that has come ---
//! puts it in front of what has come from K3 meanwhile
//! ```
//!
//! Where K3 is K2 the other end is at hand; where it is K1 the two become a pair of one kernel. What this end has sent before is at K3 when K3
//! answers, and so before what it will send from K1. A connection that nobody can move (its other end is closed, or moves itself just now) stays
//! where it is, and K1 gets a reference, as to any file.

use super::{
    flight::Parcel,
    inbox::{Inbox, Incoming, Taken},
    inet::Protocol,
    link::{Link, MOST},
    options::Settings,
    FarSocket, NetNamespace, Role, Socket, SocketKind, State,
};
use crate::{
    control::{ControlAnswer, MovedEnd, SocketMessage, UnixCredentials},
    waiting::{attempt, Patience},
    Caller, File, OpenFlags,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    account::{Charge, Resource},
    errno::Result,
    Errno, KernelId,
};
use messages::fs::{EndProgress, EndState, SocketChange, SocketType};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The other end of a connection that is to move.
enum Other {
    Near(Arc<Socket>),
    Far(FarSocket),
}

impl Socket {
    /// `end`: of the other kernel that asks.
    pub(super) async fn accept(
        &self,
        flags: OpenFlags,
        end: Option<(KernelId, u64)>,
        caller: &Caller,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        let accepted = attempt(&self.changes, patience, || self.try_accept(flags)).await?;
        if let Some((kernel, serial)) = end {
            if let Some(end) = accepted.hand_over(FarSocket { kernel, serial }, caller).await {
                return Ok(ControlAnswer::End(Box::new(end)));
            }
        }
        Ok(ControlAnswer::File(accepted))
    }

    /// None: it stays here.
    pub(super) async fn hand_over(self: &Arc<Self>, to: FarSocket, caller: &Caller) -> Option<MovedEnd> {
        let others = self.names.others().ok()?;
        let other = match &mut self.state.lock().role {
            Role::Linked(link) if !link.closed && !link.leaves => {
                link.leaves = true;
                Other::Far(link.there?)
            }
            Role::Connected(other) => Other::Near(other.upgrade()?),
            _ => return None,
        };
        match other {
            Other::Near(other) => self.leave_near(&other, to, caller),
            Other::Far(there) => {
                let Ok(sent) = others.moves(there, to).await else {
                    if let Some((_, link)) = self.state.lock().link() {
                        link.leaves = false;
                    }
                    return None;
                };
                self.changes.wait_until(|| self.has_heard(sent).then_some(())).await;
                self.leave_far(there)
            }
        }
    }

    /// All that the other end has sent, or that its kernel has died.
    fn has_heard(&self, sent: u64) -> bool {
        self.state.lock().link().is_none_or(|(_, link)| link.closed || link.heard() == sent)
    }

    fn leave_far(self: &Arc<Self>, there: FarSocket) -> Option<MovedEnd> {
        let (taken, end, link) = {
            let mut state = self.state.lock();
            let Role::Linked(link) = &state.role else { return None };
            if link.closed {
                return None;
            }
            let end = self.end_of(&state, (there.kernel, there.serial), link.name.clone(), link.progress());
            let Ok(taken) = state.inbox.take_all() else {
                drop(state);
                // The other end sends elsewhere by now: without memory for what has come the connection is over.
                self.tell(SocketChange::reset());
                self.changed_there(SocketChange::reset());
                return None;
            };
            (taken, end, core::mem::replace(&mut state.role, Role::Moved))
        };
        drop(link);
        Some(self.moved(taken, end))
    }

    /// `other` is of this kernel: it gets a link.
    fn leave_near(self: &Arc<Self>, other: &Arc<Socket>, to: FarSocket, caller: &Caller) -> Option<MovedEnd> {
        let payer = self.names.account(super::credentials_of(caller));
        let mut link = Link::new(&self.names, &other.this, payer).ok()?;
        let me = self.names.others().ok()?.me();
        // Two ends that left at the same moment would each leave the other a link.
        let _leaves = self.names.leaves.lock();
        let name = {
            let there = other.state.lock();
            // It may be just about to come here itself.
            let is_mine = matches!(&there.role, Role::Connected(here) if here.ptr_eq(&self.this));
            is_mine.then(|| there.name.clone())?
        };
        let (taken, mut end) = {
            let mut state = self.state.lock();
            // Who pays for descriptors would not know when they are received.
            let stays = state.inbox.brings_files() || state.inbox.cost() > MOST;
            if stays || !matches!(state.role, Role::Connected(_)) {
                return None;
            }
            let progress = link.begin_at(to, state.name.clone(), state.inbox.cost() as u64);
            let end = self.end_of(&state, (me, link.number()), name, progress);
            let taken = state.inbox.take_all().ok()?;
            state.role = Role::Moved;
            (taken, end)
        };
        {
            let mut there = other.state.lock();
            match &there.role {
                Role::Connected(here) if here.ptr_eq(&self.this) => {
                    let progress = &mut end.progress;
                    (progress.sent, progress.credit) = link.keep_unread(there.inbox.cost() as u64);
                    there.role = Role::Linked(link);
                }
                // It was disconnected meanwhile: who has the end finds a connection that was reset.
                _ => drop(there),
            }
        }
        other.changes.wake_all();
        Some(self.moved(taken, end))
    }

    fn end_of(&self, state: &State, other: (KernelId, u64), name: Vec<u8>, progress: EndProgress) -> EndState {
        EndState {
            other,
            names: [state.name.clone(), name],
            ends: self.inet.as_ref().and_then(|inet| inet.connection()),
            credentials: state.peer_credentials,
            groups: state.peer_groups.to_vec(),
            settings: state.settings.give(),
            read_shut: state.read_shut,
            write_shut: state.write_shut,
            progress,
            file: None,
        }
    }

    /// Outside the lock: the files of messages are opened.
    fn moved(self: &Arc<Self>, taken: Vec<Taken>, state: EndState) -> MovedEnd {
        let open = |Taken { message, files, .. }: Taken| match files.is_empty() {
            true => message,
            false => SocketMessage { files: files.open(), ..message },
        };
        let unread = taken.into_iter().map(open).collect();
        let port: Option<Arc<dyn File>> = match &self.inet {
            Some(inet) => {
                // The end that has moved tells it to be in TIME_WAIT (`ClosedFirst`).
                inet.has_been_ended();
                // One that has come from elsewhere has what keeps it there.
                self.state.lock().port.take().or_else(|| Some(self.clone()))
            }
            None => None,
        };
        MovedEnd { state, unread, port }
    }

    /// Whether connections of such a socket's kind are accepted.
    pub(crate) fn is_accepted(of: SocketType) -> bool {
        matches!(of.family, AF_UNIX | AF_INET | AF_INET6) && matches!(of.kind, 1 | 5)
    }

    /// An end for whatever will be accepted from a listener on another kernel, and its number here.
    pub(crate) fn accepting(names: &Arc<NetNamespace>, caller: &Caller, of: SocketType) -> Result<(Arc<Self>, u64)> {
        let (kind, flags) = (SocketKind::new(u32::from(of.kind))?, OpenFlags::empty());
        let socket = match of.family {
            AF_UNIX => Self::new(names, caller, kind, flags),
            family => Self::internet(names, caller, Protocol::Tcp, family == AF_INET6, flags),
        };
        let link = Link::new(names, &socket.this, names.account(super::credentials_of(caller)))?;
        let number = link.number();
        socket.state.lock().role = Role::Linking(link);
        Ok((socket, number))
    }

    /// The connection that was accepted for this end.
    pub(crate) fn take_over(&self, end: MovedEnd, flags: OpenFlags) -> Result<()> {
        let MovedEnd { state: end, unread, port } = end;
        let EndState { other: (kernel, serial), names: [name, other_name], .. } = end;
        let mut earlier = Inbox::default();
        for message in unread {
            let urgent = message.is_urgent();
            let SocketMessage { bytes, files, credentials, name, .. } = message;
            let files = match files.is_empty() {
                true => Parcel::empty(),
                false => {
                    let charge = self.charge_for(&files, credentials.unwrap_or_default());
                    Parcel::new(self, files, charge)
                }
            };
            let (sender, charge) = (credentials.unwrap_or_default(), Charge::FREE);
            earlier.push(Incoming { bytes, files, sender, name, charge, urgent, datagram: None }, None);
            if urgent {
                earlier.mark_urgent(false);
            }
        }
        let former = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let Role::Linking(mut link) = core::mem::take(&mut state.role) else { return Err(Errno::ECONNABORTED) };
            link.take_over(end.progress, earlier.cost() as u64);
            state.inbox.prepend(earlier);
            (state.name, state.port) = (name, port);
            (state.peer_credentials, state.peer_groups) = (end.credentials, end.groups.into());
            state.settings = Settings::take(end.settings);
            state.read_shut |= end.read_shut;
            state.write_shut |= end.write_shut;
            if let Some(file) = &end.file {
                state.error = state.error.or(file.error);
                state.wants_credentials = file.wants_credentials;
            }
            match link.pair.take() {
                Some((other, former)) => {
                    state.role = Role::Connected(other);
                    // What was lent by it has come, and pays no more for a window.
                    Some((former, link))
                }
                None => {
                    (link.there, link.name) = (Some(FarSocket { kernel, serial }), other_name);
                    state.role = Role::Linked(link);
                    None
                }
            }
        };
        drop(former);
        self.flags.set(flags);
        if let (Some(inet), Some(ends)) = (&self.inet, end.ends) {
            inet.take_over(ends, end.file.as_ref().is_some_and(|file| file.untold));
        }
        if let Some(file) = end.file {
            self.flags.learn(file.flags);
            self.inode.take_over(file.attributes);
            // The other end need not fear any more that all was lost with the kernel that this one comes from.
            self.tell(SocketChange::default());
        }
        self.changes.wake_all();
        Ok(())
    }

    /// What has been sent is charged whatever the limits say.
    fn charge_for(&self, files: &[Arc<dyn File>], sender: UnixCredentials) -> Charge {
        let Some(payer) = self.names.account(sender) else { return Charge::FREE };
        let mut charge = payer.nothing(Resource::DescriptorsInFlight);
        charge.grow_anyway(files.len());
        charge
    }

    /// At the kernel of the end that stays: the other one is there from now on. How many messages were sent to it before.
    fn other_moves(self: &Arc<Self>, to: FarSocket, from: KernelId) -> Result<u64> {
        let mut state = self.state.lock();
        if let Role::Linking(link) = &mut state.role
            && link.connects
            && self.names.here(to.serial) != to
        {
            (link.there, link.mover) = (Some(to), Some(from));
            return Ok(link.begin_counting());
        }
        let (_, link) = state.link().filter(|(_, link)| !link.closed && !link.leaves).ok_or(Errno::ECONNRESET)?;
        if self.names.here(to.serial) != to {
            link.there = Some(to);
            link.mover = Some(from);
            return Ok(link.begin_counting());
        }
        // It comes to this kernel: they become a pair.
        let end = self.names.by_serial(to.serial)?;
        let Role::Linked(mut link) = core::mem::replace(&mut state.role, Role::Connected(Arc::downgrade(&end))) else {
            return Err(Errno::ECONNRESET);
        };
        drop(state);
        let sent = link.begin_counting();
        let unused = match &mut end.state.lock().role {
            Role::Linking(there) => there.pair.replace((self.this.clone(), link)),
            _ => Some((Weak::new(), link)),
        };
        drop(unused);
        self.changes.wake_all();
        Ok(sent)
    }

    /// This end was closed before it took over what was accepted for it.
    pub(super) fn give_up_pair(link: &Link) {
        if let Some(other) = link.pair.as_ref().and_then(|(other, _)| other.upgrade()) {
            let SocketChange { error, .. } = SocketChange::reset();
            {
                let mut state = other.state.lock();
                (state.read_shut, state.write_shut, state.error) = (true, true, error);
            }
            other.changes.wake_all();
        }
    }
}

impl NetNamespace {
    /// A listener's kernel says that the other end of a connection is accepted elsewhere.
    pub(crate) fn end_moves(&self, number: u64, to: FarSocket, from: KernelId) -> Result<u64> {
        let end = self.by_serial(number)?;
        let sent = end.other_moves(to, from)?;
        end.check_alive(to.kernel);
        Ok(sent)
    }
}
