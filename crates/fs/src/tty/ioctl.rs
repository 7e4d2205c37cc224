//! ioctls of terminals (man 2 ioctl_tty).

use super::{Termios, Tty, WindowSize};
use crate::{
    anonymous::{answer_int, argument_int},
    Caller,
};
use abi::signal::Signal;
use alloc::vec::Vec;
use linux_raw_sys::{general as raw, ioctl::*};
use machine::{errno::Result, Errno, Pid};

/// From which side an ioctl comes: most mean the terminal either way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Program,
    Master,
}

impl Tty {
    pub(super) async fn ioctl(&self, caller: &Caller, request: u32, data: &mut Vec<u8>, side: Side) -> Result<i64> {
        let changes = matches!(
            request,
            TCSETS
                | TCSETSW
                | TCSETSF
                | TCSETS2
                | TCSETSW2
                | TCSETSF2
                | TCSETA
                | TCSETAW
                | TCSETAF
                | TCFLSH
                | TCSBRK
                | TCSBRKP
                | TIOCSBRK
                | TIOCCBRK
                | TCXONC
                | TIOCSTI
                | TIOCSETD
        );
        if changes && side == Side::Program {
            self.check_foreground(caller, Signal::TTOU).await?;
        }
        match request {
            TCGETS => *data = self.state.lock().line.termios.encode(false),
            TCGETS2 => *data = self.state.lock().line.termios.encode(true),
            TCGETA => *data = self.state.lock().line.termios.encode_short(),
            TCSETS | TCSETSW | TCSETSF | TCSETS2 | TCSETSW2 | TCSETSF2 => {
                self.set_termios(Termios::decode(data)?, request).await?;
            }
            TCSETA | TCSETAW | TCSETAF => {
                let wanted = self.state.lock().line.termios.with_short(data)?;
                self.set_termios(wanted, request).await?;
            }
            TIOCGSOFTCAR => answer_int(data, usize::from(self.state.lock().line.termios.control & raw::CLOCAL != 0)),
            TIOCSSOFTCAR => {
                let clocal = if argument_int(data)? != 0 { raw::CLOCAL } else { 0 };
                let mut wanted = self.state.lock().line.termios.clone();
                wanted.control = wanted.control & !raw::CLOCAL | clocal;
                self.set_termios(wanted, request).await?;
            }
            TIOCGWINSZ => *data = self.state.lock().window.encode(),
            TIOCSWINSZ => self.set_window(WindowSize::decode(data)?),
            TIOCGPGRP => {
                self.check_owner(caller, side)?;
                let group = self.state.lock().foreground;
                answer_int(data, group.map_or(0, |group| group.0 as usize));
            }
            TIOCSPGRP => self.set_foreground(caller, argument_int(data)?).await?,
            TIOCGSID => {
                self.check_owner(caller, side)?;
                let session = self.state.lock().session.ok_or(Errno::ENOTTY)?;
                answer_int(data, session.0 as usize);
            }
            FIONREAD => answer_int(data, self.state.lock().line.readable_bytes()),
            // A pseudoterminal has no transmitter in which bytes could wait.
            TIOCOUTQ if self.driver.is_none() => answer_int(data, 0),
            TIOCOUTQ => answer_int(data, self.state.lock().out.len()),
            TCFLSH => self.flush(value(data)?)?,
            TCXONC => self.flow(value(data)?)?,
            // A break cannot be sent; with an argument it means tcdrain.
            TCSBRK | TCSBRKP | TIOCSBRK => self.drained().await?,
            TIOCCBRK => {}
            TIOCGDEV => {
                let (major, minor) = self.device();
                answer_int(data, (minor & 0xff | major << 8 | (minor & !0xff) << 12) as usize);
            }
            TIOCSTI => {
                let &byte = data.first().ok_or(Errno::EFAULT)?;
                if !self.is_controlling(caller) && !caller.credentials.is_privileged() {
                    return Err(Errno::EPERM);
                }
                self.input(&[byte]);
            }
            TIOCEXCL => self.state.lock().exclusive = true,
            TIOCNXCL => self.state.lock().exclusive = false,
            TIOCGEXCL => answer_int(data, usize::from(self.state.lock().exclusive)),
            TIOCGETD => answer_int(data, 0),
            TIOCSETD if argument_int(data)? != 0 => return Err(Errno::EINVAL),
            TIOCSETD => {}
            TIOCVHANGUP if caller.credentials.is_privileged() => self.hang_up(),
            TIOCVHANGUP => return Err(Errno::EPERM),
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }

    async fn set_termios(&self, wanted: Termios, request: u32) -> Result<()> {
        if !matches!(request, TCSETS | TCSETS2 | TCSETA | TIOCSSOFTCAR) {
            self.drained().await?;
        }
        {
            let mut state = self.state.lock();
            if matches!(request, TCSETSF | TCSETSF2 | TCSETAF) {
                state.pending.clear();
                state.line.clear_input();
            }
            let stopped = state.line.is_stopped();
            let super::State { line, out, .. } = &mut *state;
            line.set(wanted, out);
            if stopped && !state.line.is_stopped() {
                state.packet_flow(true);
            }
        }
        // More of the input may count as readable now.
        self.pump();
        Ok(())
    }

    /// Waits until the driver has all output (tcdrain). A pseudoterminal has none to wait for.
    async fn drained(&self) -> Result<()> {
        if self.driver.is_some() {
            self.changes.wait_until(|| self.state.lock().out.is_empty().then_some(())).await;
        }
        Ok(())
    }

    pub(super) fn set_window(&self, window: WindowSize) {
        let foreground = {
            let mut state = self.state.lock();
            if state.window == window {
                return;
            }
            state.window = window;
            state.foreground
        };
        if let Some(group) = foreground {
            self.jobs.signal_group(group, Signal::WINCH);
        }
    }

    /// The screen has another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let window = self.state.lock().window;
        self.set_window(WindowSize { rows, columns, ..window });
    }

    /// The process group that gets the terminal's signals.
    pub fn foreground(&self) -> Option<Pid> {
        self.state.lock().foreground
    }

    /// Its device number, as /proc/PID/stat tells it.
    pub fn device(&self) -> (u32, u32) {
        self.inode.attributes().rdev
    }

    /// Only processes whose terminal it is may ask; the master may.
    fn check_owner(&self, caller: &Caller, side: Side) -> Result<()> {
        match side == Side::Master || self.is_controlling(caller) {
            true => Ok(()),
            false => Err(Errno::ENOTTY),
        }
    }

    async fn set_foreground(&self, caller: &Caller, group: i32) -> Result<()> {
        match self.check_foreground(caller, Signal::TTOU).await {
            Err(Errno::EIO) => return Err(Errno::ENOTTY),
            other => other?,
        }
        if group < 0 {
            return Err(Errno::EINVAL);
        }
        let group = Pid(group as u32);
        if !self.is_controlling(caller) {
            return Err(Errno::ENOTTY);
        }
        match self.jobs.session_of(group).await {
            None => Err(Errno::ESRCH),
            Some(session) if session != caller.session => Err(Errno::EPERM),
            Some(_) => {
                self.state.lock().foreground = Some(group);
                Ok(())
            }
        }
    }

    fn flush(&self, which: u32) -> Result<()> {
        {
            let mut state = self.state.lock();
            if which > raw::TCIOFLUSH {
                return Err(Errno::EINVAL);
            }
            if which != raw::TCOFLUSH {
                state.pending.clear();
                state.line.clear_input();
                state.tell_master(raw::TIOCPKT_FLUSHREAD);
            }
            if which != raw::TCIFLUSH {
                state.out.truncate(super::DELIVERED);
                state.tell_master(raw::TIOCPKT_FLUSHWRITE);
            }
        }
        self.changed();
        Ok(())
    }

    fn flow(&self, action: u32) -> Result<()> {
        let mut state = self.state.lock();
        match action {
            raw::TCOOFF | raw::TCOON => {
                let stopped = state.line.is_stopped();
                let super::State { line, out, .. } = &mut *state;
                line.stop_by_program(action == raw::TCOOFF, out);
                if stopped != state.line.is_stopped() {
                    state.packet_flow(stopped);
                }
            }
            raw::TCIOFF | raw::TCION => {
                let index = if action == raw::TCIOFF { raw::VSTOP } else { raw::VSTART };
                let byte = state.line.termios.char(index);
                if byte != 0 {
                    state.out.push_back(byte);
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        drop(state);
        self.changed();
        Ok(())
    }
}

/// A small number given by value; none is so large.
fn value(data: &[u8]) -> Result<u32> {
    let value = data.try_into().ok().map(u64::from_ne_bytes).and_then(|value| u32::try_from(value).ok());
    value.ok_or(Errno::EINVAL)
}

impl WindowSize {
    fn encode(self) -> Vec<u8> {
        [self.rows, self.columns, self.x_pixels, self.y_pixels].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let word = |at: usize| -> Result<u16> {
            let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok());
            word.map(u16::from_ne_bytes).ok_or(Errno::EFAULT)
        };
        Ok(WindowSize { rows: word(0)?, columns: word(2)?, x_pixels: word(4)?, y_pixels: word(6)? })
    }
}
