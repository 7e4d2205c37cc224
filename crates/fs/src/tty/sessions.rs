//! All terminals of the machine, and whose they are.

use super::{JobControl, Master, Termios, Tty, TtyDriver, TtyFile};
use crate::{
    anonymous::Identity, event::Timers, file::SYSTEM, namespace::Location, Attributes, Caller, File, Kind, OpenFlags,
    SetAttributes,
};
use abi::signal::Signal;
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, sync::Lock, Errno, Pid};

/// All slaves; the minor is the terminal's number.
pub(crate) const PTS_MAJOR: u32 = 136;
/// The device of /dev/pts, the group that owns terminals, and the limit of their number (pty.max).
pub(super) const DEVPTS: (u32, u32) = (0, 0xf_fffd);
const TTY_GROUP: u32 = 5;
const MAX_PTYS: u32 = 4096;

pub struct Terminals {
    pub(super) jobs: Arc<dyn JobControl>,
    pub(super) timers: Arc<dyn Timers>,
    ptys: Lock<BTreeMap<u32, Weak<Tty>>>,
    console: Lock<Option<Arc<Tty>>>,
}

impl Terminals {
    pub fn new(jobs: Arc<dyn JobControl>, timers: Arc<dyn Timers>) -> Arc<Self> {
        Arc::new(Terminals { jobs, timers, ptys: Lock::new(BTreeMap::new()), console: Lock::new(None) })
    }

    /// The terminal that `cob run` is on. There is one at most.
    pub fn make_console(&self, driver: Arc<dyn TtyDriver>) -> Arc<Tty> {
        let mode = Kind::CharDevice as u32 | 0o620;
        let inode = Identity::of(DEVPTS, 2, mode, (0, TTY_GROUP), (5, 1));
        let tty = Tty::new(None, Termios::standard(), Some(driver), self, inode);
        *self.console.lock() = Some(tty.clone());
        tty
    }

    /// /dev/console. ENODEV if standard input is no terminal.
    pub fn open_console(
        self: &Arc<Self>,
        caller: &Caller,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Result<Arc<dyn File>> {
        let tty = self.console.lock().clone().ok_or(Errno::ENODEV)?;
        self.open(&tty, caller, flags, at)
    }

    /// /dev/ptmx.
    pub fn open_ptmx(self: &Arc<Self>, caller: &Caller, flags: OpenFlags) -> Result<Arc<dyn File>> {
        let mut ptys = self.ptys.lock();
        let number = (0..MAX_PTYS).find(|number| !ptys.contains_key(number)).ok_or(Errno::ENOSPC)?;
        let mode = Kind::CharDevice as u32 | 0o620;
        let owner = (caller.credentials.fsuid, TTY_GROUP);
        let inode = Identity::of(DEVPTS, u64::from(number) + 3, mode, owner, (PTS_MAJOR, number));
        let tty = Tty::new(Some(number), Termios::pty(), None, self, inode);
        ptys.insert(number, Arc::downgrade(&tty));
        Ok(Master::new(tty, self.clone(), flags))
    }

    /// /dev/pts/NUMBER.
    pub fn open_pts(
        self: &Arc<Self>,
        number: u32,
        caller: &Caller,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Result<Arc<dyn File>> {
        let tty = self.pts(number)?;
        self.open(&tty, caller, flags, at)
    }

    /// Entries of /dev/pts, without ptmx.
    pub fn numbers(&self) -> Vec<u32> {
        self.ptys.lock().keys().copied().collect()
    }

    pub fn attributes(&self, number: u32) -> Result<Attributes> {
        Ok(self.pts(number)?.inode.attributes())
    }

    /// chmod, chown and utimensat by name; who may was checked there.
    pub(super) fn set_attributes(&self, number: u32, set: SetAttributes) -> Result<()> {
        self.pts(number)?.inode.set(&SYSTEM, set)
    }

    fn pts(&self, number: u32) -> Result<Arc<Tty>> {
        self.ptys.lock().get(&number).and_then(Weak::upgrade).ok_or(Errno::ENOENT)
    }

    /// /dev/tty: the caller's controlling terminal. ENXIO if it has none.
    pub fn open_current(
        self: &Arc<Self>,
        caller: &Caller,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Result<Arc<dyn File>> {
        let tty = self.of_session(caller.session).ok_or(Errno::ENXIO)?;
        Ok(TtyFile::open(self, &tty, caller, flags, at)?)
    }

    fn open(
        self: &Arc<Self>,
        tty: &Arc<Tty>,
        caller: &Caller,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Result<Arc<dyn File>> {
        let file = TtyFile::open(self, tty, caller, flags, at)?;
        let leader = caller.session == caller.process;
        if leader && !flags.contains(OpenFlags::NOCTTY) && flags.readable() && self.of_session(caller.session).is_none()
        {
            tty.claim(caller);
        }
        Ok(file)
    }

    /// The controlling terminal of a session.
    pub fn of_session(&self, session: Pid) -> Option<Arc<Tty>> {
        self.all().into_iter().find(|tty| tty.state.lock().session == Some(session))
    }

    fn all(&self) -> Vec<Arc<Tty>> {
        let mut all: Vec<_> = self.console.lock().iter().cloned().collect();
        all.extend(self.ptys.lock().values().filter_map(Weak::upgrade));
        all
    }

    /// The leader of a session has ended: its terminal hangs up.
    pub fn leader_ended(&self, session: Pid) {
        let Some(tty) = self.of_session(session) else { return };
        let foreground = {
            let mut state = tty.state.lock();
            state.session = None;
            state.foreground.take()
        };
        if let Some(group) = foreground {
            tty.jobs.signal_group(group, Signal::HUP);
            tty.jobs.signal_group(group, Signal::CONT);
        }
        tty.hang_up();
    }

    /// TIOCSCTTY: the leader of a session without a terminal takes this one; with `steal` also from another session.
    pub fn set_controlling(&self, tty: &Arc<Tty>, caller: &Caller, steal: bool) -> Result<()> {
        let current = tty.state.lock().session;
        let leader = caller.session == caller.process;
        if leader && current == Some(caller.session) {
            return Ok(());
        }
        if !leader || self.of_session(caller.session).is_some() {
            return Err(Errno::EPERM);
        }
        if current.is_some() && !(steal && caller.credentials.is_privileged()) {
            return Err(Errno::EPERM);
        }
        tty.claim(caller);
        Ok(())
    }

    pub(super) fn forget(&self, tty: &Arc<Tty>) {
        if let Some(number) = tty.number {
            self.ptys.lock().remove(&number);
        }
    }
}

impl Tty {
    /// Becomes the controlling terminal of the caller's session unless it is another's.
    fn claim(&self, caller: &Caller) {
        let mut state = self.state.lock();
        state.session = Some(caller.session);
        state.foreground = Some(caller.group);
    }

    /// TIOCNOTTY by the leader: the session has no terminal any more.
    pub(super) fn disown(&self, caller: &Caller) -> Result<()> {
        let foreground = {
            let mut state = self.state.lock();
            if state.session != Some(caller.session) || caller.session != caller.process {
                return Err(Errno::ENOTTY);
            }
            state.session = None;
            state.foreground.take()
        };
        if let Some(group) = foreground {
            self.jobs.signal_group(group, Signal::HUP);
            self.jobs.signal_group(group, Signal::CONT);
        }
        Ok(())
    }
}
