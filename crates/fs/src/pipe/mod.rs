//! Pipes and named pipes (man 7 pipe, man 7 fifo).
//!
//! A pipe is a byte queue between two ends. A write of at most PIPE_BUF bytes goes in whole or waits; a
//! longer one puts in what fits and says how much that was, so that a signal in the middle of a long
//! write loses no count: whoever calls goes on with the rest as long as the description may block.
//!
//! Readers and writers wait in queues of their own: a read wakes writers only, so an edge-triggered
//! epoll on the read end does not see its own reading as news. Who moves bytes on instead of reading them holds the pipe
//! (pipe/hold.rs).

mod hold;
mod ring;

use crate::{
    anonymous::{answer_int, Identity, StatusFlags},
    control::{Control, ControlAnswer},
    file::{ready, Access, Destination, Fasync, HeldBytes, Source, Transfer},
    namespace::{
        nodes,
        permission::{may, READ, WRITE},
        Location, Opening,
    },
    waiting::{attempt, Patience},
    Attributes, Caller, Events, File, Kind, OpenFlags, SetAttributes,
};
use abi::capability;
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use linux_raw_sys::ioctl::FIONREAD;
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, Shield, PAGE_SIZE,
};

use hold::HELD;
use ring::Ring;

pub use hold::{hold, offer, HeldPipe};

/// Writes up to this many bytes are atomic.
pub const PIPE_BUF: usize = 4096;
const DEFAULT_CAPACITY: usize = 65536;
/// Of a pipe of who has more than [`SOFT_PAGES`] (PIPE_MIN_DEF_BUFFERS).
const LEAST_CAPACITY: usize = 2 * PAGE_SIZE;
/// /proc/sys/fs/pipe-user-pages-soft: for so many pages the pipes of a user have room, and then the least that they may have.
pub const SOFT_PAGES: usize = 16384;
/// /proc/sys/fs/pipe-max-size.
pub const MAX_CAPACITY: usize = 1 << 20;

struct State {
    bytes: Ring,
    capacity: usize,
    /// For that in pages, to who has made the pipe.
    room: Charge,
    /// For the bytes of memory that `bytes` has.
    kept: Charge,
    /// Somebody holds the first bytes: nobody else reads.
    held: bool,
    /// A reader has met the one who holds it, and waits.
    refused: bool,
    readers: usize,
    writers: usize,
    /// Writes and reads of bytes so far, for those whom O_ASYNC tells of each.
    written: u64,
    read: u64,
    /// What they were when they last heard of a write that found no room.
    refused_at: (u64, u64),
    /// Opens so far, for those who wait for a partner that may be gone again when they look.
    reader_opens: u64,
    writer_opens: u64,
}

/// The limit for all pipes of a user is not for them.
fn is_unlimited(caller: &Caller) -> bool {
    [capability::SYS_RESOURCE, capability::SYS_ADMIN].into_iter().any(|one| caller.credentials.can(one))
}

impl State {
    /// For the memory that there is now.
    fn pay(&mut self) {
        let memory = self.bytes.memory();
        if memory != self.kept.amount() {
            // Refused to nobody: the capacity is what is limited.
            let _ = self.kept.set_within(memory, usize::MAX);
        }
    }
}

/// What the two ends share. A fifo's inode leads to one as long as it is open anywhere.
pub struct Pipe {
    state: Lock<State>,
    /// Woken when there may be more to read.
    readable: WaitQueue,
    /// Woken when there may be more room.
    writable: WaitQueue,
    /// Woken in both cases, for an end that is open both ways.
    either: WaitQueue,
}

impl Pipe {
    /// Of `caller`, who has this account.
    fn new(caller: &Caller, account: &Arc<Account>) -> Self {
        let pages = |capacity: usize, most| account.charge_within(Resource::PipePages, capacity / PAGE_SIZE, most);
        let usual = if is_unlimited(caller) { usize::MAX } else { SOFT_PAGES };
        let (capacity, room) = match pages(DEFAULT_CAPACITY, usual) {
            Ok(room) => (DEFAULT_CAPACITY, room),
            Err(OverLimit) => (LEAST_CAPACITY, pages(LEAST_CAPACITY, usize::MAX).unwrap_or_default()),
        };
        Pipe {
            state: Lock::new(State {
                bytes: Ring::default(),
                capacity,
                room,
                kept: account.nothing(Resource::PipeBytes),
                held: false,
                refused: false,
                readers: 0,
                writers: 0,
                written: 0,
                read: 0,
                refused_at: (0, 0),
                reader_opens: 0,
                writer_opens: 0,
            }),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            either: WaitQueue::new(),
        }
    }

    fn wake_readers(&self) {
        self.readable.wake_all();
        self.either.wake_all();
    }

    fn wake_writers(&self) {
        self.writable.wake_all();
        self.either.wake_all();
    }

    /// The first bytes, as many as `to` wants. Errors: EAGAIN, HELD; NEEDS_BUFFER: all stay.
    fn try_read(&self, to: &mut Destination<'_>) -> Result<usize> {
        let wanted = to.len();
        let mut state = self.state.lock();
        if wanted > 0 && state.held {
            state.refused = true;
            return Err(HELD);
        }
        let count = wanted.min(state.bytes.len());
        if count == 0 {
            return if wanted == 0 || state.writers == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let [front, back] = state.bytes.front(count);
        to.put(front)?;
        if !back.is_empty() {
            to.put(back)?;
        }
        state.bytes.pop(count, DEFAULT_CAPACITY);
        state.read += 1;
        state.pay();
        drop(state);
        self.wake_writers();
        Ok(count)
    }

    /// Puts in as many bytes of `from` as fit. Errors: EAGAIN, EPIPE, ENOMEM; NEEDS_BUFFER: none are there.
    fn try_write(&self, from: &mut Source<'_>) -> Result<usize> {
        let wanted = from.len();
        let mut state = self.state.lock();
        if state.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let room = state.capacity.saturating_sub(state.bytes.len());
        let count = match wanted <= PIPE_BUF {
            true if room < wanted => 0,
            _ => room.min(wanted),
        };
        if count == 0 {
            return if wanted == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let [front, back] = state.bytes.room(count)?;
        let filled = from.take(front).and_then(|()| if back.is_empty() { Ok(()) } else { from.take(back) });
        state.pay();
        filled?;
        state.bytes.push(count);
        state.written += 1;
        drop(state);
        self.wake_readers();
        Ok(count)
    }

    /// A reader that O_ASYNC tells of writes hears also of those that found no room, as on Linux (pipe_write).
    /// Who waits tries more than once, and is told of once.
    fn refuse_write(&self, patience: Patience) {
        let known = {
            let mut state = self.state.lock();
            let now = (state.written, state.read);
            core::mem::replace(&mut state.refused_at, now) == now
        };
        if known && patience != Patience::Refuses {
            return;
        }
        self.readable.refuse();
        self.either.refuse();
    }

    fn set_capacity(&self, bytes: usize, caller: &Caller) -> Result<usize> {
        if bytes > i32::MAX as usize {
            return Err(Errno::EINVAL);
        }
        let wanted = bytes.max(PAGE_SIZE).next_power_of_two();
        {
            let mut state = self.state.lock();
            if wanted > state.capacity && wanted > MAX_CAPACITY && !caller.credentials.can(capability::SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            if wanted < state.bytes.len() {
                return Err(Errno::EBUSY);
            }
            let most = if is_unlimited(caller) { usize::MAX } else { SOFT_PAGES };
            state.room.set_within(wanted / PAGE_SIZE, most).map_err(|OverLimit| Errno::EPERM)?;
            state.capacity = wanted;
        }
        self.wake_writers();
        Ok(wanted)
    }
}

/// An end of a pipe, or an open fifo.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    flags: StatusFlags,
    inode: Arc<Identity>,
    /// A fifo answers stat and /proc/PID/fd through the file that names it.
    named: Option<Location>,
    /// Writers that had opened before this end: no hang-up before the first new one.
    writers_before: u64,
    /// Readers that had come and gone before this end.
    readers_before: u64,
    /// It counts no more ([`Control::GiveUpPartner`]). Changes with the pipe locked.
    given_up: AtomicBool,
}

/// pipe2(2) by who has this account: the read end and the write end. O_DIRECT (packets) answers EINVAL, as Linux did before 3.4.
pub fn pipe(caller: &Caller, account: &Arc<Account>, flags: OpenFlags) -> Result<(Arc<PipeEnd>, Arc<PipeEnd>)> {
    let allowed = OpenFlags::CLOEXEC | OpenFlags::NONBLOCK;
    if !allowed.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let pipe = Arc::new(Pipe::new(caller, account));
    let inode = Arc::new(Identity::new(Kind::Fifo, 0o600, caller));
    let read = PipeEnd::new(&pipe, flags, inode.clone(), None);
    let write = PipeEnd::new(&pipe, flags | OpenFlags::WRONLY, inode, None);
    Ok((Arc::new(read), Arc::new(write)))
}

/// The opener of fifos: the pipe hangs on the inode, so that every name leads to the same one.
pub async fn open_node(opening: Opening<'_>) -> Result<Arc<dyn File>> {
    let pipe = {
        let mut attached = opening.at.inode().attachment().ok_or(Errno::EOPNOTSUPP)?.lock();
        // Weak: it is charged to who has made it, as long as somebody has it open.
        let known = attached.clone().and_then(|there| there.downcast::<Weak<Pipe>>().ok()?.upgrade());
        known.unwrap_or_else(|| {
            let account = opening.accounts.of(opening.caller.process, opening.caller.credentials.uid);
            let pipe = Arc::new(Pipe::new(opening.caller, &account));
            *attached = Some(Arc::new(Arc::downgrade(&pipe)));
            pipe
        })
    };
    Ok(open_fifo(&pipe, opening.flags, Some(opening.at.clone()))?)
}

/// Opens the fifo whose inode holds `pipe`; whoever opens then waits for [`Control::MeetPartner`], which a signal may
/// interrupt, unlike the open itself. `named` is where it was found, asked for attributes and the path.
fn open_fifo(pipe: &Arc<Pipe>, flags: OpenFlags, named: Option<Location>) -> Result<Arc<PipeEnd>> {
    if flags.writable() && !flags.readable() && flags.contains(OpenFlags::NONBLOCK) {
        let state = pipe.state.lock();
        if state.readers == 0 {
            return Err(Errno::ENXIO);
        }
    }
    Ok(Arc::new(PipeEnd::new(pipe, flags, Arc::new(Identity::untyped()), named)))
}

impl PipeEnd {
    fn new(pipe: &Arc<Pipe>, flags: OpenFlags, inode: Arc<Identity>, named: Option<Location>) -> Self {
        let (readers_before, writers_before) = {
            let mut state = pipe.state.lock();
            let before = (state.reader_opens - state.readers as u64, state.writer_opens - state.writers as u64);
            if flags.readable() {
                state.readers += 1;
                state.reader_opens += 1;
            }
            if flags.writable() {
                state.writers += 1;
                state.writer_opens += 1;
            }
            before
        };
        pipe.wake_readers();
        pipe.wake_writers();
        PipeEnd {
            pipe: pipe.clone(),
            flags: StatusFlags::new(flags),
            inode,
            named,
            readers_before,
            writers_before,
            given_up: AtomicBool::new(false),
        }
    }

    /// Waits for a partner, as man 7 fifo says.
    async fn meet_partner(&self) {
        let flags = self.flags.get();
        if flags.contains(OpenFlags::NONBLOCK) || flags.readable() && flags.writable() {
            return;
        }
        // A partner that was there when we came, or came since, counts even if it has gone again: it met us, did its
        // work and left, perhaps before this line.
        let queue = if flags.readable() { &self.pipe.readable } else { &self.pipe.writable };
        queue.wait_until(|| self.has_met(&self.pipe.state.lock()).then_some(())).await
    }

    fn has_met(&self, state: &State) -> bool {
        match self.flags.get().readable() {
            true => state.writer_opens > self.writers_before,
            false => state.reader_opens > self.readers_before,
        }
    }

    /// After a signal: EAGAIN if no partner has come, and none will meet this end any more.
    fn give_up_partner(&self) -> Result<()> {
        let mut state = self.pipe.state.lock();
        if self.has_met(&state) {
            return Ok(());
        }
        self.uncount(&mut state);
        drop(state);
        self.pipe.wake_readers();
        self.pipe.wake_writers();
        Err(Errno::EAGAIN)
    }

    fn uncount(&self, state: &mut State) {
        if self.given_up.swap(true, Relaxed) {
            return;
        }
        let flags = self.flags.get();
        state.readers -= usize::from(flags.readable());
        state.writers -= usize::from(flags.writable());
        if state.readers + state.writers == 0 {
            state.bytes = Ring::default();
            state.pay();
        }
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.flags.owned.end(self.changes());
        self.uncount(&mut self.pipe.state.lock());
        self.pipe.wake_readers();
        self.pipe.wake_writers();
    }
}

impl File for PipeEnd {
    fn read_into<'a>(&'a self, mut to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        if let Err(error) = access.check_stream() {
            return Transfer::Done(Err(error));
        }
        let flags = self.flags.get();
        if !flags.readable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        let patience = access.patience.unless(flags.contains(OpenFlags::NONBLOCK));
        match self.pipe.try_read(&mut to) {
            Err(HELD) => {}
            Err(Errno::EAGAIN) if patience == Patience::Waits => {}
            Err(Errno::EAGAIN) => {
                if patience == Patience::Refuses {
                    self.pipe.writable.refuse();
                }
                return Transfer::Done(Err(patience.answer()));
            }
            done => return Transfer::Done(done),
        }
        // Even who does not wait for bytes waits until the pipe is held no more, but for a stand-in, which waits where it is.
        let reading = self.pipe.readable.wait_until(move || match self.pipe.try_read(&mut to) {
            Err(HELD) => None,
            Err(Errno::EAGAIN) if patience == Patience::Waits => None,
            Err(Errno::EAGAIN) => Some(Err(patience.answer())),
            done => Some(done),
        });
        match access.patience {
            Patience::Waits => Transfer::later(reading),
            patience => Transfer::Later(patience.limit(Box::pin(reading))),
        }
    }

    fn write_from<'a>(&'a self, mut from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        if let Err(error) = access.check_stream() {
            return Transfer::Done(Err(error));
        }
        let flags = self.flags.get();
        if !flags.writable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        let patience = access.patience.unless(flags.contains(OpenFlags::NONBLOCK));
        let mut told = false;
        attempt(&self.pipe.writable, patience, move || {
            let tried = self.pipe.try_write(&mut from);
            if tried == Err(Errno::EAGAIN) && !core::mem::replace(&mut told, true) {
                self.pipe.refuse_write(patience);
            }
            tried
        })
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        let (flags, state) = (self.flags.get(), self.pipe.state.lock());
        let counts = |counts: bool, count| counts.then_some(count);
        Some(Fasync::Pipe {
            written: counts(flags.readable(), state.written),
            read: counts(flags.writable(), state.read),
        })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(nodes::attributes(self.named.as_ref(), &self.inode))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(nodes::set_attributes(self.named.as_ref(), &self.inode, caller, set))
    }

    fn ioctl<'a>(&'a self, _caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        if request != FIONREAD {
            return ready(Err(Errno::ENOTTY));
        }
        answer_int(data, self.pipe.state.lock().bytes.len());
        ready(Ok(0))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(match control {
            // A pipe without a name had both ends from the start.
            Control::MeetPartner if self.named.is_some() => {
                return Box::pin(async move {
                    self.meet_partner().await;
                    Ok(ControlAnswer::Done)
                })
            }
            Control::GiveUpPartner if self.named.is_some() => self.give_up_partner().map(|()| ControlAnswer::Done),
            Control::PipeSize => Ok(ControlAnswer::Number(self.pipe.state.lock().capacity as i64)),
            Control::SetPipeSize(bytes) => {
                self.pipe.set_capacity(bytes as usize, caller).map(|size| ControlAnswer::Number(size as i64))
            }
            _ => Err(Errno::EINVAL),
        })
    }

    fn poll(&self) -> Events {
        let state = self.pipe.state.lock();
        let flags = self.flags.get();
        let mut events = Events::empty();
        if flags.readable() {
            if !state.bytes.is_empty() {
                events |= Events::IN | Events::RDNORM;
            }
            if state.writers == 0 && state.writer_opens > self.writers_before {
                events |= Events::HUP;
            }
        }
        if flags.writable() {
            if state.capacity.saturating_sub(state.bytes.len()) >= PIPE_BUF {
                events |= Events::OUT | Events::WRNORM;
            }
            if state.readers == 0 {
                events |= Events::ERR;
            }
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        let flags = self.flags.get();
        Some(match (flags.readable(), flags.writable()) {
            (true, false) => &self.pipe.readable,
            (false, _) => &self.pipe.writable,
            (true, true) => &self.pipe.either,
        })
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        match &self.named {
            Some(at) => at.whole_path(),
            None => ready(self.inode.path("pipe")),
        }
    }

    /// Like a fifo, but both ends have been there: nothing waits for a partner.
    fn reopen<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let wanted = (u32::from(flags.readable()) * READ) | (u32::from(flags.writable()) * WRITE);
            may(&caller.credentials, &self.attributes().await?, wanted)?;
            let mut end = PipeEnd::new(&self.pipe, flags, self.inode.clone(), self.named.clone());
            // The writers that this end has seen go are news to the new one too: it must not wait for others.
            end.writers_before = self.writers_before;
            Ok(Arc::new(end) as Arc<dyn File>)
        })
    }

    fn hold<'a>(
        &'a self,
        _shield: &'a Shield,
        most: usize,
        wait: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldBytes>>>> {
        Box::pin(async move { Ok(self.hold_first(most, wait).await?.map(|hold| Box::new(hold) as Box<dyn HeldBytes>)) })
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.named.as_ref().map(|at| at as _)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
