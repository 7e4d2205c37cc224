//! TCP: how connections begin and end.

use super::{
    address::{family_of, parse, reachable, source_for, AF_UNSPEC},
    Internet, Progress,
};
use crate::{
    control::{InternetAddress, UnixCredentials},
    file::Patience,
    socket::{credentials_of, names::Found, transfer::Datagram, FarSocket, Role, Socket},
    Caller,
};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc};
use core::{
    future::{poll_fn, Future},
    pin::pin,
    task::Poll,
};
use machine::{errno::Result, Errno};
use messages::fs::SocketChange;

/// How long a port stays taken by a connection that this side has closed first, in ns.
pub(super) const TIME_WAIT: u64 = 60_000_000_000;

/// Returns when one of the two is done.
pub(in crate::socket) async fn first<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match (one.as_mut().poll(context), other.as_mut().poll(context)) {
        (Poll::Pending, Poll::Pending) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}

impl Socket {
    pub(super) async fn listen_on_port(&self, inet: &Internet, backlog: i32, caller: &Caller) -> Result<()> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        // A negative backlog is as many as possible.
        let wanted = (backlog as u32).min(4096) as usize;
        let first = match &mut self.state.lock().role {
            Role::Listening { backlog, .. } => {
                *backlog = wanted;
                false
            }
            Role::Alone => true,
            _ => return Err(Errno::EINVAL),
        };
        if !first {
            return Ok(());
        }
        if inet.ends.lock().progress != Progress::None {
            return Err(Errno::EINVAL);
        }
        let _held = caller.shield.hold();
        let port = self.ensure_port(inet, caller.credentials.euid).await.map_err(|_| Errno::EADDRINUSE)?;
        {
            let mut state = self.state.lock();
            match &state.role {
                Role::Alone => state.role = Role::Listening { backlog: wanted, waiting: VecDeque::new() },
                Role::Listening { .. } => return Ok(()),
                _ => return Err(Errno::EINVAL),
            }
            state.peer_credentials = None;
        }
        // From now on connections may come.
        let claimed = port.change(|claim| claim.listening = true).await;
        if claimed.is_err() {
            self.state.lock().role = Role::Alone;
        }
        self.changes.wake_all();
        claimed
    }

    /// shutdown(2) of a listener: whoever waits in accept(2) gets EINVAL, whoever waits to be accepted a reset.
    pub(super) fn stop_listening(&self, inet: &Internet) {
        let (waiting, port) = {
            let mut state = self.state.lock();
            let role = core::mem::take(&mut state.role);
            (role, inet.ends.lock().port.clone())
        };
        drop(waiting);
        if let Some(port) = port {
            port.reduce(|claim| claim.listening = false);
        }
        self.changes.wake_all();
        self.room.wake_all();
    }

    pub(super) async fn connect_stream(
        &self,
        inet: &Internet,
        bytes: &[u8],
        caller: &Caller,
        patience: Patience,
    ) -> Result<()> {
        if family_of(bytes)? == AF_UNSPEC {
            self.disconnect(inet);
            return Ok(());
        }
        if let Some(told) = self.earlier_attempt(inet) {
            return told;
        }
        let to = parse(inet.six, bytes)?;
        let to = InternetAddress { ip: reachable(to.ip)?, ..to };
        self.state.lock().error = None;
        {
            let _held = caller.shield.hold();
            self.ensure_port(inet, caller.credentials.euid).await.map_err(|error| match error {
                Errno::EAGAIN => Errno::EADDRNOTAVAIL,
                error => error,
            })?;
        }
        {
            let mut ends = inet.ends.lock();
            if super::scope_of(ends.local.ip) == super::Scope::Any {
                ends.local.ip = source_for(to.ip);
            }
            ends.peer = Some(to);
        }
        let waits = !self.flags.nonblocking();
        match self.reach(inet, caller, if waits { patience } else { Patience::Refuses }).await {
            Ok(()) => {
                inet.stays_at_address();
                if waits {
                    return Ok(());
                }
                inet.ends.lock().progress = Progress::Connected;
                Err(Errno::EINPROGRESS)
            }
            Err(Errno::EAGAIN) if !waits => {
                inet.ends.lock().progress = Progress::Trying;
                self.go_on_trying(caller);
                Err(Errno::EINPROGRESS)
            }
            Err(error) if !waits && error == Errno::ECONNREFUSED => {
                self.fail(inet, error);
                Err(Errno::EINPROGRESS)
            }
            Err(error) => {
                if !matches!(self.state.lock().role, Role::Connected(_) | Role::Linked(_)) {
                    inet.forget_peer();
                }
                Err(error)
            }
        }
    }

    /// What connect(2) says of one that has begun before.
    fn earlier_attempt(&self, inet: &Internet) -> Option<Result<()>> {
        let mut state = self.state.lock();
        let mut ends = inet.ends.lock();
        match (&state.role, ends.progress) {
            (_, Progress::Trying) => Some(Err(Errno::EALREADY)),
            (_, Progress::Connected) => {
                ends.progress = Progress::None;
                Some(Ok(()))
            }
            (_, Progress::Failed) => {
                ends.progress = Progress::None;
                (state.read_shut, state.write_shut) = (false, false);
                Some(Err(state.error.take().unwrap_or(Errno::ECONNABORTED)))
            }
            (Role::Alone, Progress::None) => None,
            _ => Some(Err(Errno::EISCONN)),
        }
    }

    /// A connect that did not wait is refused.
    fn fail(&self, inet: &Internet, error: Errno) {
        {
            let mut state = self.state.lock();
            state.error = Some(error);
            (state.read_shut, state.write_shut) = (true, true);
            inet.ends.lock().progress = Progress::Failed;
        }
        inet.forget_peer();
        self.changes.wake_all();
    }

    /// Waits for room in the backlog of who listens there, as patience has it. EAGAIN: there is none.
    async fn reach(&self, inet: &Internet, caller: &Caller, patience: Patience) -> Result<()> {
        let ends = inet.connection().ok_or(Errno::EINVAL)?;
        loop {
            // To look for a port is not to wait.
            let held = caller.shield.hold();
            let found = self.names.find_port(inet.protocol as u8, ends.peer, ends.local).await?;
            let room = match found {
                Found::Here(listener) => {
                    drop(held);
                    let (room, weak) = (listener.room.clone(), Arc::downgrade(&listener));
                    // Whoever waits does not keep the listener open: its end is what may end the wait.
                    drop(listener);
                    return self.connect_near(weak, room, caller, patience).await;
                }
                Found::There(there) => there,
            };
            match self.attach(room, caller).await {
                Err(Errno::EAGAIN) if patience == Patience::Waits => {
                    drop(held);
                    self.names.others()?.room(room, Datagram::default()).await?;
                }
                Err(Errno::EAGAIN) => {
                    if patience == Patience::Tries {
                        self.hear_of_room(room, Datagram::default());
                    }
                    return Err(patience.answer());
                }
                done => return done,
            }
        }
    }

    /// Of a connect that does not wait: a task does. It ends with the socket, which it does not keep.
    fn go_on_trying(&self, caller: &Caller) {
        let Ok(others) = self.names.others() else { return };
        let (this, ended, names, mut caller) =
            (self.this.clone(), self.room.clone(), self.names.clone(), caller.clone());
        caller.shield = Default::default();
        others.run(Box::pin(async move {
            loop {
                let Some(socket) = this.upgrade() else { return };
                let full = socket.try_again(&caller).await;
                drop(socket);
                let Some(listener) = full else { return };
                let gone = ended.wait_until(|| (this.strong_count() == 0).then_some(()));
                first(names.room_of(listener, Datagram::default()), gone).await;
            }
        }));
    }

    /// Who has no room for this socket; None: it has come to an end, good or bad.
    async fn try_again(&self, caller: &Caller) -> Option<FarSocket> {
        let inet = self.inet.as_ref()?;
        let ends = inet.connection()?;
        let found = match self.names.find_port(inet.protocol as u8, ends.peer, ends.local).await {
            Ok(found) => found,
            Err(error) => {
                self.fail(inet, error);
                return None;
            }
        };
        let (tried, listener) = match found {
            Found::Here(listener) => {
                let serial = listener.inet.as_ref().map_or(0, |inet| inet.ends.lock().serial);
                (self.try_connect(&listener, caller), self.names.here(serial))
            }
            Found::There(there) => {
                let _held = caller.shield.hold();
                (self.attach(there, caller).await, there)
            }
        };
        match tried {
            Ok(()) => {
                inet.stays_at_address();
                inet.ends.lock().progress = Progress::Connected;
                self.changes.wake_all();
            }
            Err(Errno::EAGAIN) => return Some(listener),
            Err(error) => self.fail(inet, error),
        }
        None
    }

    /// connect(2) to AF_UNSPEC: as a new socket, but for the port that a program has chosen.
    fn disconnect(&self, inet: &Internet) {
        if matches!(self.state.lock().role, Role::Listening { .. }) {
            return self.stop_listening(inet);
        }
        let (role, inbox) = {
            let mut state = self.state.lock();
            (state.read_shut, state.write_shut) = (false, false);
            let role = core::mem::take(&mut state.role);
            if matches!(role, Role::Connected(_) | Role::Linked(_)) {
                // So says Linux, though it was asked for (tcp_disconnect).
                state.error = Some(Errno::ECONNRESET);
            }
            (role, core::mem::take(&mut state.inbox))
        };
        match &role {
            Role::Connected(peer) => {
                if let Some(peer) = peer.upgrade() {
                    peer.was_reset();
                }
            }
            Role::Linked(link) if !link.closed => {
                if let (Some(there), Ok(others)) = (link.there, self.names.others()) {
                    others.tell(there, SocketChange::reset());
                }
            }
            _ => {}
        }
        drop((role, inbox));
        {
            let mut ends = inet.ends.lock();
            (ends.progress, ends.ended) = (Progress::None, false);
        }
        inet.forget_peer();
        self.changes.wake_all();
    }

    /// The other side has broken the connection off (RST).
    pub(in crate::socket) fn was_reset(&self) {
        {
            let mut state = self.state.lock();
            (state.read_shut, state.write_shut) = (true, true);
            state.error = Some(Errno::ECONNRESET);
        }
        self.changes.wake_all();
    }

    /// The other side has closed, and has read all it was sent (FIN).
    pub(in crate::socket) fn was_closed(&self) {
        self.state.lock().read_shut = true;
        if let Some(inet) = &self.inet {
            inet.has_been_ended();
        }
        self.changes.wake_all();
    }

    /// The other side has closed. What is sent is answered with a reset, which is too late for this call.
    pub(in crate::socket) fn send_into_nowhere(&self, bytes: usize) -> Result<usize> {
        {
            let mut state = self.state.lock();
            if state.write_shut {
                return Err(state.error.take().unwrap_or(Errno::EPIPE));
            }
            if bytes == 0 {
                return Ok(0);
            }
            (state.read_shut, state.write_shut) = (true, true);
            state.error = Some(Errno::EPIPE);
        }
        self.changes.wake_all();
        Ok(bytes)
    }

    /// What SO_PEERCRED of the accepted end tells of who connects: nothing by TCP.
    pub(in crate::socket) fn tells_credentials(&self, caller: &Caller) -> Option<UnixCredentials> {
        self.inet.is_none().then(|| credentials_of(caller))
    }
}
