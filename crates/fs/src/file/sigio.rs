//! Signal-driven I/O: an open file description with O_ASYNC signals its owner when it becomes ready (man 2 fcntl).
//!
//! The description keeps its owner beside its flags, on the kernel that has it. O_ASYNC puts a [`Teller`] into the queue that the
//! file wakes; without O_ASYNC nothing is there, and nothing is done. The owner may be anywhere: [`Signaller`] finds it.
//!
//! A task sends the signals, for whoever wakes the file's queue may hold locks that signals need. It begins before the system call returns, so
//! that who writes finds that an owner on the same kernel has been signalled, as on Linux. It waits for owners on other kernels; changes
//! meanwhile are noted for it, in their order, each with who is the owner then:
//!
//! ```text
//! writer                          the description's task            the owner's kernel
//! write: IN, noted
//!                                 signal -------------------------->
//! write: IN, noted                waits for the answer
//!                                       <-------------------------- pending
//!                                 sends the next
//! ```
//!
//! There is one task for a description, and few changes are noted: what comes then is told by a SIGIO that says nothing more, as Linux does
//! when the owner's queue is full.
//!
//! SIGURG is for the owner of a socket without O_ASYNC, too ([`Owned::urgent`]).

use super::{anonymous::StatusFlags, Caller, File};
use abi::{
    signal::{Signal, SignalFields, SignalInfo},
    Events, FileOwner, OpenFlags, OwnerChange, OwnerKind,
};
use alloc::{
    boxed::Box,
    collections::VecDeque,
    sync::{Arc, Weak},
};
use machine::{
    errno::Result,
    sync::{Lock, Subscriber, WaitQueue},
    BoxFuture, Errno, Pid,
};

/// So many changes wait to be told of.
const MOST_WAITING: usize = 32;
/// AF_UNIX.
const UNIX: u16 = 1;

/// How the readiness of a file with O_ASYNC becomes signals. It depends on the kind of file, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fasync {
    /// Each write is told as input, each read as room.
    Pipe {
        /// Counts writes. None: the end gives nothing.
        written: Option<u64>,
        /// Counts reads. None: it takes nothing.
        read: Option<u64>,
    },
    /// What has come to be read, room after there was none, the end and errors are told of.
    Socket {
        /// Counts what comes. None: each change while there is something to be read counts as more.
        arrived: Option<u64>,
    },
    /// What can be read is told of. If nobody has been made the owner before O_ASYNC, this foreground group is, or else who sets it.
    Terminal(Option<Pid>),
    /// What can be read is told of.
    Input,
}

/// What `si_code` says has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Band {
    In = 1,
    Out = 2,
    Error = 4,
    Urgent = 5,
    HangUp = 6,
}

impl Band {
    /// `si_band`.
    fn events(self) -> Events {
        match self {
            Band::In => Events::IN | Events::RDNORM,
            Band::Out => Events::OUT | Events::WRNORM | Events::WRBAND,
            Band::Error => Events::ERR,
            Band::Urgent => Events::PRI | Events::RDBAND,
            Band::HangUp => Events::HUP | Events::ERR,
        }
    }
}

/// Sends signals to owners, wherever they are.
pub trait Signaller: Send + Sync {
    /// Signals `owner`, if who has made it that may. EAGAIN: its queue is full.
    fn signal(&self, owner: FileOwner, info: SignalInfo) -> BoxFuture<'static, Result<()>>;
    /// Starts a task that takes locks which the caller may hold. It begins when the caller's system call has let go of them, before that returns.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// A description's owner. Most have none.
#[derive(Default)]
pub(crate) struct Owned(Lock<Option<Box<Kept>>>);

#[derive(Default)]
struct Kept {
    owner: FileOwner,
    /// With O_ASYNC: who tells the owner, and its place in the file's queue.
    teller: Option<(Arc<Teller>, Option<u64>)>,
    /// Sends SIGURG. None: nobody was ever made the owner.
    signaller: Option<Arc<dyn Signaller>>,
    alarm: Alarm,
}

/// SIGURG on its way to the owner. Those that come meanwhile are one, as all that a process has not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Alarm {
    #[default]
    None,
    /// A task sends it.
    Sending,
    /// And once more, to who was the owner when it came.
    Again(FileOwner),
}

impl Owned {
    fn owner(&self) -> FileOwner {
        self.0.lock().as_ref().map_or_else(FileOwner::default, |kept| kept.owner)
    }

    /// Somebody was made the owner, or O_ASYNC set.
    pub fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }

    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(self.0.lock().get_or_insert_default())
    }

    fn change_owner(&self, change: impl FnOnce(&mut FileOwner)) {
        self.with(|kept| {
            change(&mut kept.owner);
            if let Some((teller, _)) = &kept.teller {
                *teller.owner.lock() = kept.owner;
            }
        });
    }

    /// A write has found no room: when there is some the owner is told.
    pub fn no_room(&self) {
        if let Some((teller, _)) = self.0.lock().as_ref().and_then(|kept| kept.teller.as_ref()) {
            teller.seen.lock().0.remove(Events::OUT);
        }
    }

    /// Urgent data has come for the socket `file`, whose locks may be held: its owner gets SIGURG and, with O_ASYNC, the signal that F_SETSIG has
    /// set (sk_send_sigurg in Linux). Called before the file's queue is woken.
    pub fn urgent(&self, file: Weak<dyn File>) {
        let (teller, signaller) = {
            let mut kept = self.0.lock();
            let Some(kept) = kept.as_mut().filter(|kept| kept.owner.id.is_some()) else { return };
            let teller = kept.teller.as_ref().filter(|_| kept.owner.signal.is_some()).map(|(teller, _)| teller.clone());
            let before = core::mem::replace(&mut kept.alarm, Alarm::Again(kept.owner));
            (teller, kept.signaller.clone().filter(|_| before == Alarm::None))
        };
        if let Some(signaller) = signaller {
            let sends = signaller.clone();
            signaller.spawn(Box::pin(async move {
                while let Some(owner) = file.upgrade().and_then(|file| file.status()?.owned.alarmed()) {
                    let _ = sends.signal(owner, SignalInfo::kernel(Signal::URG)).await;
                }
            }));
        }
        if let Some(teller) = teller {
            teller.tells(Band::Urgent);
        }
    }

    /// Who is to get SIGURG next. None: nobody, and no task sends it any more.
    fn alarmed(&self) -> Option<FileOwner> {
        self.with(|kept| match core::mem::take(&mut kept.alarm) {
            Alarm::Again(owner) => {
                kept.alarm = Alarm::Sending;
                Some(owner)
            }
            Alarm::None | Alarm::Sending => None,
        })
    }

    /// Nobody is told any more. Called before the description goes, if `queue` may live on.
    pub fn end(&self, queue: Option<&WaitQueue>) -> bool {
        let teller = self.0.lock().as_mut().and_then(|kept| kept.teller.take());
        if let (Some((_, Some(key))), Some(queue)) = (&teller, queue) {
            queue.unsubscribe(*key);
        }
        teller.is_some()
    }
}

/// Does to a description of this kernel what a system call asks, and answers with the owner as it is then.
pub(crate) async fn change(
    file: &Arc<dyn File>,
    caller: &Caller,
    change: OwnerChange,
    signaller: &Arc<dyn Signaller>,
) -> Result<FileOwner> {
    let status = file.status().ok_or(Errno::EBADF)?;
    match change {
        OwnerChange::Ask => {}
        OwnerChange::Owner { kind, id, uid, euid } => {
            status.owned.change_owner(|owner| *owner = FileOwner { kind, id, uid, euid, signal: owner.signal });
            status.owned.with(|kept| kept.signaller = Some(signaller.clone()));
        }
        OwnerChange::Signal(signal) => status.owned.change_owner(|owner| owner.signal = signal),
        OwnerChange::Begin(fd) => {
            begin(file, status, caller, fd, signaller)?;
            // What another kernel has of it is told from now on.
            file.watch().await?;
        }
        OwnerChange::End => {
            file.fasync().ok_or(Errno::ENOTTY)?;
            // One that was opened with O_ASYNC keeps the flag, and tells nobody, on Linux too.
            if status.owned.end(file.changes()) {
                status.show_async(false);
            }
        }
    }
    Ok(status.owned.owner())
}

fn begin(
    file: &Arc<dyn File>,
    status: &StatusFlags,
    caller: &Caller,
    fd: i32,
    signaller: &Arc<dyn Signaller>,
) -> Result<()> {
    let style = file.fasync().ok_or(Errno::ENOTTY)?;
    let seen = file.poll();
    status.owned.with(|kept| {
        if kept.teller.is_some() || status.get().contains(OpenFlags::ASYNC) {
            return;
        }
        if let (Fasync::Terminal(foreground), None) = (style, kept.owner.id) {
            let (kind, id) = foreground.map_or((OwnerKind::Process, caller.process), |group| (OwnerKind::Group, group));
            let (uid, euid) = (caller.credentials.uid, caller.credentials.euid);
            kept.owner = FileOwner { kind, id: Some(id), uid, euid, signal: kept.owner.signal };
        }
        let teller = Arc::new_cyclic(|this| Teller {
            file: Arc::downgrade(file),
            fd,
            seen: Lock::new((seen, style)),
            owner: Lock::new(kept.owner),
            untold: Lock::default(),
            signaller: signaller.clone(),
            this: this.clone(),
        });
        let key = file.changes().map(|queue| queue.subscribe(teller.clone(), false));
        kept.teller = Some((teller, key));
        status.show_async(true);
    });
    Ok(())
}

/// Tells a description's owner of changes.
struct Teller {
    file: Weak<dyn File>,
    /// The descriptor by which O_ASYNC was set: `si_fd`, even after it is closed.
    fd: i32,
    /// What was ready when it last looked, and how that was told.
    seen: Lock<(Events, Fasync)>,
    /// The description's owner, here too: who wakes the file's queue must not wait for the description's lock.
    owner: Lock<FileOwner>,
    untold: Lock<Untold>,
    signaller: Arc<dyn Signaller>,
    this: Weak<Teller>,
}

/// Changes that are to be told of.
#[derive(Default)]
struct Untold {
    /// Each with who was the owner when it came.
    bands: VecDeque<(Band, FileOwner)>,
    /// There were more; the last was this owner's.
    lost: Option<FileOwner>,
    /// Somebody tells them.
    busy: bool,
}

impl Subscriber for Teller {
    fn changed(&self) -> bool {
        let Some(file) = self.file.upgrade() else { return false };
        let (now, Some(style)) = (file.poll(), file.fasync()) else { return false };
        let (before, styled) = core::mem::replace(&mut *self.seen.lock(), (now, style));
        let connects = file.socket().is_some_and(|socket| socket.family != UNIX);
        if let Some(band) = style.band(styled, before, now, connects) {
            self.tells(band);
        }
        false
    }

    /// A pipe tells its reader also of a write that found no room, and its writer of a read that found nothing.
    fn refused(&self) {
        let style = self.file.upgrade().and_then(|file| file.fasync());
        match style {
            Some(Fasync::Pipe { written: Some(_), .. }) => self.tells(Band::In),
            Some(Fasync::Pipe { .. }) => self.tells(Band::Out),
            _ => {}
        }
    }
}

impl Fasync {
    /// What the owner is told, if anything, when the file woke its queue, and `styled` and `before` is what it was at the last time.
    /// `connects`: it has just been connected if it was hung up before.
    fn band(self, styled: Fasync, before: Events, now: Events, connects: bool) -> Option<Band> {
        let has = |events: Events| now.intersects(events);
        let rises = |events: Events| has(events.difference(before));
        let came = match (self, styled) {
            (Fasync::Socket { arrived: Some(_) }, _) => self != styled || rises(Events::IN | Events::RDHUP),
            (Fasync::Pipe { written, .. }, Fasync::Pipe { written: told, .. }) => written != told || rises(Events::HUP),
            _ => has(Events::IN),
        };
        Some(match self {
            Fasync::Socket { .. } if rises(Events::ERR) => Band::Error,
            Fasync::Socket { .. } if rises(Events::HUP) => Band::HangUp,
            _ if came => Band::In,
            Fasync::Pipe { .. } if self != styled || rises(Events::ERR) => Band::Out,
            Fasync::Socket { .. } if connects && before.contains(Events::HUP) && !has(Events::HUP) => Band::Out,
            Fasync::Socket { .. } | Fasync::Terminal(_) if rises(Events::OUT) => Band::Out,
            _ => return None,
        })
    }
}

impl Teller {
    fn tells(&self, band: Band) {
        if let (true, Some(this)) = (self.note(band), self.this.upgrade()) {
            self.signaller.spawn(Box::pin(async move { this.tell().await }));
        }
    }

    /// Whether the caller is to tell it: nobody is about to.
    fn note(&self, band: Band) -> bool {
        let owner = *self.owner.lock();
        let mut untold = self.untold.lock();
        match untold.bands.len() {
            MOST_WAITING => untold.lost = Some(owner),
            _ => untold.bands.push_back((band, owner)),
        }
        !core::mem::replace(&mut untold.busy, true)
    }

    /// Who is to be told next, and what. None: nobody, and nobody tells any more.
    fn next(&self) -> Option<(FileOwner, SignalInfo)> {
        let mut untold = self.untold.lock();
        if let Some((band, owner)) = untold.bands.pop_front() {
            let info = owner.signal.map_or(SignalInfo::kernel(Signal::IO), |signal| self.info(band, signal));
            return Some((owner, info));
        }
        let lost = untold.lost.take();
        untold.busy = lost.is_some();
        lost.map(|owner| (owner, SignalInfo::kernel(Signal::IO)))
    }

    async fn tell(&self) {
        let mut told = 0;
        while let Some((owner, info)) = self.next() {
            told += 1;
            if told > MOST_WAITING {
                // Others write all the time.
                machine::yield_now().await;
            }
            if let (Err(Errno::EAGAIN), Some(_)) = (self.signaller.signal(owner, info).await, owner.signal) {
                // It hears at least of something.
                let _ = self.signaller.signal(owner, SignalInfo::kernel(Signal::IO)).await;
            }
        }
    }

    /// Linux: send_sigio_to_task.
    fn info(&self, band: Band, signal: Signal) -> SignalInfo {
        /// POLL_IN is also ILL_ILLOPC, and so on.
        const HAVE_CODES: [Signal; 7] =
            [Signal::ILL, Signal::FPE, Signal::SEGV, Signal::BUS, Signal::TRAP, Signal::CHLD, Signal::SYS];
        let code = if HAVE_CODES.contains(&signal) { SignalInfo::SI_SIGIO } else { band as i32 };
        let fields = SignalFields::Poll { band: i64::from(band.events().bits()), fd: self.fd };
        SignalInfo { signal, code, errno: 0, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_tell_of_what_comes_and_of_room_once() {
        let (quiet, full, more) = (Events::OUT, Events::empty(), Events::OUT | Events::IN);
        let socket = |arrived| Fasync::Socket { arrived: Some(arrived) };
        let same = |before, now| socket(1).band(socket(1), before, now, true);
        assert_eq!(socket(2).band(socket(1), more, more, true), Some(Band::In));
        assert_eq!(same(more, more), None);
        assert_eq!(same(more, more | Events::RDHUP), Some(Band::In));
        assert_eq!(same(quiet, quiet), None);
        assert_eq!(same(full, quiet), Some(Band::Out));
        assert_eq!(same(quiet, more | Events::HUP), Some(Band::HangUp));
        assert_eq!(same(quiet | Events::HUP, quiet), Some(Band::Out));
        assert_eq!(same(quiet, more | Events::ERR), Some(Band::Error));
        let listener = Fasync::Socket { arrived: None };
        assert_eq!(listener.band(listener, more, more, true), Some(Band::In));
        assert_eq!(listener.band(listener, quiet | Events::HUP, quiet, false), None);
    }

    #[test]
    fn an_end_of_a_pipe_is_told_of_its_own_direction() {
        let pipe = |told: (Option<u64>, Option<u64>), is: (Option<u64>, Option<u64>), before, now| {
            let style = |(written, read)| Fasync::Pipe { written, read };
            style(is).band(style(told), before, now, false)
        };
        let (quiet, reader, writer, both) = (Events::empty(), (Some(3), None), (None, Some(3)), (Some(3), Some(3)));
        assert_eq!(pipe(reader, reader, Events::IN, Events::IN | Events::HUP), Some(Band::In));
        assert_eq!(pipe(reader, (Some(4), None), Events::IN, Events::IN), Some(Band::In));
        assert_eq!(pipe(reader, reader, Events::IN, Events::IN), None);
        // Also if there is less room than poll wants.
        assert_eq!(pipe(writer, (None, Some(4)), quiet, quiet), Some(Band::Out));
        assert_eq!(pipe(writer, writer, Events::OUT, Events::OUT | Events::ERR), Some(Band::Out));
        assert_eq!(pipe(writer, writer, quiet, quiet), None);
        assert_eq!(pipe(both, (Some(3), Some(4)), Events::IN, Events::IN), Some(Band::Out));
    }
}
