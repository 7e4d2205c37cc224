//! A terminal opened by a program: a pseudoterminal's slave, the console, or /dev/tty.

use super::{ioctl::Side, Terminals, Tty, QUEUE_SIZE};
use crate::{
    anonymous::{argument_int, StatusFlags},
    control::{Control, ControlAnswer},
    file::{ready, Access, Destination, Fasync, Source, Transfer},
    namespace::{nodes, Location},
    waiting::{attempt, Patience},
    Attributes, Caller, Events, File, OpenFlags, SetAttributes,
};
use abi::signal::Signal;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use linux_raw_sys::{general as raw, ioctl};
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};
use messages::fs::WaitPlace;

pub struct TtyFile {
    pub(super) tty: Arc<Tty>,
    terminals: Arc<Terminals>,
    flags: StatusFlags,
    /// Hang-ups before it was opened: one more and it is dead.
    pub(super) hangups: u64,
    /// The node it was opened through.
    at: Option<Location>,
}

impl TtyFile {
    /// Opens the terminal. EIO while it is locked or has no master any more.
    pub(super) fn open(
        terminals: &Arc<Terminals>,
        tty: &Arc<Tty>,
        caller: &Caller,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Result<Arc<Self>> {
        let hangups = {
            let mut state = tty.state.lock();
            if state.locked || state.master_closed {
                return Err(Errno::EIO);
            }
            if state.exclusive && state.opens > 0 && !caller.credentials.is_privileged() {
                return Err(Errno::EBUSY);
            }
            state.opens += 1;
            state.was_open = true;
            state.hangups
        };
        tty.master_changes.wake_all();
        let (tty, terminals) = (tty.clone(), terminals.clone());
        Ok(Arc::new(TtyFile { tty, terminals, flags: StatusFlags::new(flags), hangups, at }))
    }

    pub fn tty(&self) -> &Arc<Tty> {
        &self.tty
    }

    pub(super) fn nonblocking(&self) -> bool {
        self.flags.nonblocking()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.tty.state.lock().hangups != self.hangups
    }
}

impl Drop for TtyFile {
    fn drop(&mut self) {
        self.flags.owned.end(self.changes());
        let mut state = self.tty.state.lock();
        state.opens -= 1;
        if state.opens == 0 {
            state.exclusive = false;
        }
        drop(state);
        self.tty.master_changes.wake_all();
    }
}

impl TtyFile {
    fn put<'a>(&'a self, buf: &'a [u8], patience: Patience) -> Transfer<'a> {
        if !self.flags.get().writable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        let patience = patience.unless(self.nonblocking());
        attempt(&self.tty.changes, patience, move || self.tty.try_write(self.hangups, buf))
    }
}

impl File for TtyFile {
    /// For a program only in the foreground (SIGTTIN).
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::Later(access.patience.limit(Box::pin(async move {
            if let Some(caller) = access.caller().filter(|_| !self.is_dead()) {
                self.tty.check_foreground(caller, Signal::TTIN).await?;
            }
            match self.flags.get().readable() {
                true => self.tty.read(self, buf).await,
                false => Err(Errno::EBADF),
            }
        })))
    }

    /// For a program with TOSTOP only in the foreground (SIGTTOU).
    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        let stops = || self.tty.state.lock().line.termios.local & raw::TOSTOP != 0;
        match access.caller().filter(|_| stops() && !self.is_dead()) {
            None => self.put(buf, access.patience),
            Some(caller) => Transfer::Later(access.patience.limit(Box::pin(async move {
                self.tty.check_foreground(caller, Signal::TTOU).await?;
                self.put(buf, access.patience).await
            }))),
        }
    }

    /// What is read depends on time and job control.
    fn waiting(&self) -> WaitPlace {
        WaitPlace::AtOwner
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        let state = self.tty.state.lock();
        (state.hangups == self.hangups).then_some(Fasync::Terminal(state.foreground))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(nodes::attributes(self.at.as_ref(), &self.tty.inode))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(nodes::set_attributes(self.at.as_ref(), &self.tty.inode, caller, set))
    }

    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        if self.is_dead() {
            return ready(Err(if request == ioctl::TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO }));
        }
        Box::pin(async move {
            match request {
                ioctl::TIOCSCTTY => {
                    let steal = argument_int(data)? == 1;
                    self.terminals.set_controlling(&self.tty, caller, steal).map(|()| 0)
                }
                ioctl::TIOCNOTTY => self.tty.disown(caller).map(|()| 0),
                _ => self.tty.ioctl(caller, request, data, Side::Program).await,
            }
        })
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(Err(match control {
            Control::PtyPeer(_) => Errno::EIO,
            Control::Socket(_) => Errno::ENOTSOCK,
            _ => Errno::EINVAL,
        }))
    }

    /// n_tty_poll.
    fn poll(&self) -> Events {
        let state = self.tty.state.lock();
        let readable = Events::IN | Events::RDNORM;
        let writable = Events::OUT | Events::WRNORM;
        if state.hangups != self.hangups {
            return readable | writable | Events::ERR | Events::HUP;
        }
        let wanted = match (state.line.canonical(), state.line.termios.char(raw::VTIME)) {
            (false, 0) => usize::from(state.line.termios.char(raw::VMIN)).max(1),
            _ => 1,
        };
        let mut events = Events::empty();
        if state.line.available() >= wanted {
            events |= readable;
        }
        if state.master_closed {
            events |= Events::HUP;
        }
        if !state.line.is_stopped() && state.out.len() < QUEUE_SIZE {
            events |= writable;
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.tty.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(self.at.as_ref().map_or_else(|| self.tty.path(), Location::path))
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.at.as_ref().map(|at| at as _)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
