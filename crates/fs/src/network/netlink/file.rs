//! A netlink socket as an open file.

use super::{address, NetlinkSocket, AF_NETLINK};
use crate::{
    anonymous::StatusFlags,
    control::{Control, ControlAnswer, SocketAddress, SocketControl, SocketMessage, UnixCredentials},
    file::{lacks, ready, Access, Destination, Fasync, Source, Transfer},
    waiting::{attempt, Patience},
    Attributes, Caller, Events, File, SetAttributes,
};
use alloc::{boxed::Box, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};
use messages::fs::{SocketType, WaitPlace};

const MSG_OOB: u32 = 0x1;
const MSG_PEEK: u32 = 0x2;
const MSG_DONTWAIT: u32 = 0x40;

impl NetlinkSocket {
    fn try_receive(&self, limit: usize, peek: bool) -> Result<SocketMessage> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let length = state.inbox.front().ok_or(Errno::EAGAIN)?.bytes.len();
        let bytes = match peek {
            true => state.inbox.front().map(|first| first.bytes[..length.min(limit)].to_vec()),
            false => state.inbox.pop_front().map(|mut first| {
                first.bytes.truncate(limit);
                first.bytes
            }),
        };
        let bytes = bytes.unwrap_or_default();
        if !peek {
            state.bytes -= length;
        }
        // The kernel is who sends.
        let credentials = state.options.wants_credentials.then(UnixCredentials::default);
        let (name, full_length) = (address(0, 0), length as u64);
        Ok(SocketMessage { bytes, credentials, name, full_length, ..SocketMessage::default() })
    }

    async fn receive(&self, limit: usize, peek: bool, patience: Patience) -> Result<SocketMessage> {
        self.fill().await;
        let patience = patience.unless(self.flags.nonblocking());
        attempt(&self.changes, patience, || self.try_receive(limit, peek)).await
    }

    async fn socket_control(
        &self,
        caller: &Caller,
        control: SocketControl,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        use messages::fs::SocketControl::*;
        let done = |result: Result<()>| result.map(|()| ControlAnswer::Done);
        match control {
            Bind { place: Some(SocketAddress::Other(address)), .. } => done(self.bind(caller, &address)),
            Connect { place: Some(SocketAddress::Other(address)) } => done(self.connect(caller, &address)),
            Bind { .. } | Connect { .. } => Err(Errno::EINVAL),
            Listen { .. } | AwaitRoom { .. } | Accept { .. } | Shutdown { .. } => Err(Errno::EOPNOTSUPP),
            Move { .. } => Err(Errno::EBUSY),
            ClosedFirst => Err(Errno::EINVAL),
            Send { flags, .. } | Receive { flags, .. } if flags & MSG_OOB != 0 => Err(Errno::EOPNOTSUPP),
            Send { place, message, .. } => {
                self.send(caller, place, &message.bytes).await.map(|sent| ControlAnswer::Number(sent as i64))
            }
            Receive { bytes, flags } => {
                let patience = patience.unless(flags & MSG_DONTWAIT != 0);
                let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.receive(limit, flags & MSG_PEEK != 0, patience).await.map(ControlAnswer::Message)
            }
            Name => Ok(ControlAnswer::Bytes(self.name(false))),
            PeerName => Ok(ControlAnswer::Bytes(self.name(true))),
            GetOption { level, name } => self.option(level, name).map(ControlAnswer::Bytes),
            SetOption { level, name, value } => done(self.set_option(level, name, &value)),
        }
    }
}

impl File for NetlinkSocket {
    fn timeouts(&self) -> Option<[u64; 2]> {
        Some(self.state.lock().options.timeouts)
    }

    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            let message = self.receive(buf.len(), false, access.patience).await?;
            buf[..message.bytes.len()].copy_from_slice(&message.bytes);
            Ok(message.bytes.len())
        })
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            let caller = access.caller().ok_or(Errno::EIO)?;
            self.send(caller, None, buf).await
        })
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        Some(Fasync::Socket { arrived: None })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(self.inode.set(caller, set))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        self.control_with(caller, control, Patience::Waits)
    }

    fn control_with<'a>(
        &'a self,
        caller: &'a Caller,
        control: Control,
        patience: Patience,
    ) -> BoxFuture<'a, Result<ControlAnswer>> {
        match control {
            Control::Socket(control) => Box::pin(self.socket_control(caller, control, patience)),
            other => ready(Err(lacks(&other))),
        }
    }

    fn waiting(&self) -> WaitPlace {
        WaitPlace::Socket(SocketType { family: AF_NETLINK, kind: self.kind })
    }

    fn poll(&self) -> Events {
        let state = self.state.lock();
        let mut events = Events::OUT | Events::WRNORM | Events::WRBAND;
        if !state.inbox.is_empty() || state.list.is_some() {
            events |= Events::IN | Events::RDNORM;
        }
        if state.error.is_some() {
            events |= Events::ERR;
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(self.inode.path("socket"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
