//! What could not be delivered (man 7 ip, IP_RECVERR): a sender who wants to know receives it by MSG_ERRQUEUE, with the reason.

use super::{
    address::{encode, is_v4},
    udp::is_full,
    Internet,
};
use crate::{
    control::{DatagramHeader, InternetAddress, SocketMessage, UnixCredentials},
    socket::{flight::Parcel, inbox::Incoming, options::Wishes, transfer::pay, Socket, State},
};
use machine::{errno::Result, Errno};

/// Of ICMP errors: network control.
const ERROR_TOS: u8 = 0xc0;
const ERROR_TTL: u8 = 64;

impl Socket {
    /// Nobody has the port that a datagram went to. Who is not connected hears of it only if it has asked for that.
    pub(super) fn is_refused(
        &self,
        inet: &Internet,
        to: InternetAddress,
        connected: bool,
        message: &mut SocketMessage,
        sender: UnixCredentials,
    ) {
        let account = self.names.account(sender);
        let wish = if is_v4(to.ip) { Wishes::ERRORS } else { Wishes::ERRORS_6 };
        {
            let mut state = self.state.lock();
            let wants = state.settings.wishes.contains(wish);
            if !connected && !wants {
                return;
            }
            state.error = Some(Errno::ECONNREFUSED);
            let charge = pay(account.as_ref(), message.bytes.len(), &Parcel::empty());
            let (time, limit) = (state.wants_time().then(|| self.names.realtime()), state.settings.receive_buffer());
            let full = state.errors.as_ref().is_some_and(|errors| is_full(errors, limit));
            if let (true, false, Ok(charge)) = (wants, full, charge) {
                let header = DatagramHeader { to: to.ip, port: 0, ttl: ERROR_TTL, tos: ERROR_TOS };
                let (bytes, name) = (core::mem::take(&mut message.bytes), encode(inet.six, to));
                let incoming = Incoming { bytes, name, charge, datagram: Some(header), ..Incoming::default() };
                state.errors.get_or_insert_default().push(incoming, time);
            }
        }
        self.changes.wake_all();
    }

    /// recvmsg(2) with MSG_ERRQUEUE, which never waits.
    pub(in crate::socket) fn receive_error(&self, inet: &Internet, limit: usize) -> Result<SocketMessage> {
        let mut state = self.state.lock();
        let State { errors, error, .. } = &mut *state;
        let taken = errors.as_mut().and_then(|errors| errors.take_datagram(limit, false)).ok_or(Errno::EAGAIN)?;
        *errors = errors.take().filter(|errors| !errors.is_empty());
        // What a call would be told is the next one.
        *error = errors.as_ref().map(|_| Errno::ECONNREFUSED);
        Ok(self.error_message(inet, &state, taken))
    }
}
