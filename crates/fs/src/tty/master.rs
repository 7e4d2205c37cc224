//! The master side of a pseudoterminal: what a program gets from /dev/ptmx (man 7 pty).

use super::{ioctl::Side, Terminals, Tty, TtyFile, QUEUE_SIZE};
use crate::{
    anonymous::{answer_int, argument_int, next_number, Identity, StatusFlags},
    control::{Control, ControlAnswer},
    file::{ready, Access, Destination, Fasync, Source, Transfer},
    waiting::attempt,
    Attributes, Caller, Events, File, Kind, OpenFlags,
};
use abi::signal::Signal;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use linux_raw_sys::ioctl::*;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};

pub struct Master {
    tty: Arc<Tty>,
    terminals: Arc<Terminals>,
    flags: StatusFlags,
    inode: Identity,
}

impl Master {
    pub(super) fn new(tty: Arc<Tty>, terminals: Arc<Terminals>, flags: OpenFlags) -> Arc<Self> {
        let mode = Kind::CharDevice as u32 | 0o666;
        let inode = Identity::of((0, 0xf_fffe), next_number(), mode, (0, 5), (5, 2));
        Arc::new(Master { tty, terminals, flags: StatusFlags::new(flags), inode })
    }

    /// The terminal on the other side.
    pub fn tty(&self) -> &Arc<Tty> {
        &self.tty
    }

    fn try_read(&self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let count = {
            let mut state = self.tty.state.lock();
            let room = match (state.packet, core::mem::take(&mut state.packet_status)) {
                (false, _) => &mut buf[..],
                (true, 0) => {
                    buf[0] = 0;
                    &mut buf[1..]
                }
                (true, status) => {
                    buf[0] = status;
                    return Ok(1);
                }
            };
            if state.out.is_empty() {
                // Closed by the last program that had it open, not just never opened yet.
                let closed = state.opens == 0 && state.was_open;
                return Err(if closed { Errno::EIO } else { Errno::EAGAIN });
            }
            let count = room.len().min(state.out.len());
            for (slot, byte) in room.iter_mut().zip(state.out.drain(..count)) {
                *slot = byte;
            }
            count + usize::from(state.packet)
        };
        self.tty.changes.wake_all();
        Ok(count)
    }

    fn try_write(&self, bytes: &[u8]) -> Result<usize> {
        let count = bytes.len().min(self.tty.input_room());
        if count == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        self.tty.input(&bytes[..count]);
        Ok(count)
    }

    async fn ioctl_here(&self, caller: &Caller, request: u32, data: &mut Vec<u8>) -> Result<i64> {
        let number = self.tty.number.unwrap_or_default();
        match request {
            TIOCGPTN => answer_int(data, number as usize),
            TIOCSPTLCK => self.tty.state.lock().locked = argument_int(data)? != 0,
            TIOCGPTLCK => answer_int(data, usize::from(self.tty.state.lock().locked)),
            TIOCPKT => {
                let mut state = self.tty.state.lock();
                state.packet = argument_int(data)? != 0;
                state.packet_status = 0;
            }
            TIOCGPKT => answer_int(data, usize::from(self.tty.state.lock().packet)),
            FIONREAD => answer_int(data, self.tty.state.lock().out.len()),
            TIOCSIG => {
                let signal = [Signal::INT, Signal::QUIT, Signal::TSTP].into_iter();
                let wanted = argument_int(data)?;
                let signal = signal.into_iter().find(|signal| signal.number() as i32 == wanted).ok_or(Errno::EINVAL)?;
                if let Some(group) = self.tty.foreground() {
                    self.tty.jobs.signal_group(group, signal);
                }
            }
            // Asked of the master it means the slave.
            TIOCSCTTY => self.terminals.set_controlling(&self.tty, caller, argument_int(data)? == 1)?,
            TIOCNOTTY => return Err(Errno::ENOTTY),
            _ => return self.tty.ioctl(caller, request, data, Side::Master).await,
        }
        Ok(0)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.flags.owned.end(self.changes());
        self.tty.state.lock().master_closed = true;
        self.terminals.forget(&self.tty);
        self.tty.hang_up();
    }
}

impl File for Master {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        attempt(&self.tty.master_changes, access.patience.unless(self.flags.nonblocking()), move || self.try_read(buf))
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        attempt(&self.tty.master_changes, access.patience.unless(self.flags.nonblocking()), move || self.try_write(buf))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        Some(Fasync::Terminal(None))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        Box::pin(self.ioctl_here(caller, request, data))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        let Control::PtyPeer(flags) = control else { return ready(Err(Errno::EINVAL)) };
        let peer = TtyFile::open(&self.terminals, &self.tty, caller, flags, None);
        ready(peer.map(|file| ControlAnswer::File(file as Arc<dyn File>)))
    }

    fn poll(&self) -> Events {
        let state = self.tty.state.lock();
        let mut events = Events::empty();
        if !state.out.is_empty() {
            events |= Events::IN | Events::RDNORM;
        }
        if state.packet && state.packet_status != 0 {
            events |= Events::PRI | Events::IN | Events::RDNORM;
        }
        if state.opens == 0 && state.was_open {
            events |= Events::HUP;
        }
        if state.pending.len() < QUEUE_SIZE {
            events |= Events::OUT | Events::WRNORM;
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.tty.master_changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"/dev/ptmx".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
