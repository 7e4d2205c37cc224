//! The descriptor: a queue of events, and the watches that fill it.

use super::{
    enter, leave, ALL_EVENTS, EXCLUDE_UNLINKED, IGNORED, MASK_ADD, MASK_CREATE, MAX_INSTANCES, MAX_QUEUED, MAX_WATCHES,
    ONESHOT, OVERFLOW,
};
use crate::{
    anonymous::{answer_int, Identity, StatusFlags},
    control::{Control, ControlAnswer},
    file::{ready, Access, Destination, Fasync, Source, Transfer},
    waiting::attempt,
    Attributes, Caller, Events, File, Inode, OpenFlags,
};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use linux_raw_sys::ioctl::FIONREAD;
use machine::{
    account::{Account, Charge, Resource},
    collections::Queue,
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno,
};

/// `struct inotify_event` without the name, which is padded to a multiple of the same.
const HEADER: usize = 16;

#[derive(PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    fn size(&self) -> usize {
        match self.name.len() {
            0 => HEADER,
            length => HEADER + (length + 1).next_multiple_of(HEADER),
        }
    }

    /// Bytes that it takes here.
    fn memory(&self) -> usize {
        size_of::<Event>() + self.name.capacity()
    }

    fn write(&self, to: &mut [u8]) {
        let length = (self.size() - HEADER) as u32;
        let words = [self.watch as u32, self.mask, self.cookie, length];
        to.fill(0);
        for (slot, word) in to.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        to[HEADER..HEADER + self.name.len()].copy_from_slice(&self.name);
    }
}

struct Watch {
    inode: Arc<dyn Inode>,
    mask: u32,
}

struct State {
    queue: Queue<Event>,
    /// For its bytes, to who has made the descriptor.
    kept: Charge,
    watches: BTreeMap<i32, Watch>,
    last: i32,
}

impl State {
    fn push(&mut self, event: Event) {
        // The same thing twice in a row is one thing (man 7 inotify).
        if event.mask & IGNORED == 0 && self.queue.back() == Some(&event) {
            return;
        }
        if self.queue.len() < MAX_QUEUED && self.kept.grow(event.memory()).is_ok() {
            return self.queue.push_back(event);
        }
        let overflow = Event { watch: -1, mask: OVERFLOW, cookie: 0, name: Vec::new() };
        if self.queue.back() != Some(&overflow) {
            self.kept.grow_anyway(overflow.memory());
            self.queue.push_back(overflow);
        }
    }

    fn pop(&mut self) {
        if let Some(event) = self.queue.pop_front() {
            self.kept.shrink(event.memory());
        }
    }
}

/// Descriptors and watches of each user.
static USERS: Lock<BTreeMap<u32, (usize, usize)>> = Lock::new(BTreeMap::new());

pub struct Inotify {
    state: Lock<State>,
    changes: WaitQueue,
    flags: StatusFlags,
    inode: Identity,
    user: u32,
    this: Weak<Inotify>,
}

impl Inotify {
    /// inotify_init1(2) by who has this account.
    pub fn new(caller: &Caller, account: &Arc<Account>, flags: OpenFlags) -> Result<Arc<Self>> {
        if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
            return Err(Errno::EINVAL);
        }
        let user = caller.credentials.uid;
        {
            let mut users = USERS.lock();
            let (instances, _) = users.entry(user).or_default();
            if *instances >= MAX_INSTANCES {
                return Err(Errno::EMFILE);
            }
            *instances += 1;
        }
        Ok(Arc::new_cyclic(|this| Inotify {
            state: Lock::new(State {
                queue: Queue::new(),
                kept: account.nothing(Resource::Memory),
                watches: BTreeMap::new(),
                last: 0,
            }),
            changes: WaitQueue::new(),
            flags: StatusFlags::new(flags),
            inode: Identity::untyped(),
            user,
            this: this.clone(),
        }))
    }

    /// inotify_add_watch(2), once the file is found and may be read: the watch's number.
    pub fn add(&self, inode: &Arc<dyn Inode>, mask: u32) -> Result<i32> {
        let wanted = mask & (ALL_EVENTS | EXCLUDE_UNLINKED | ONESHOT);
        let mut state = self.state.lock();
        let known = state.watches.iter_mut().find(|(_, watch)| crate::inode::same(&watch.inode, inode));
        if let Some((&number, watch)) = known {
            if mask & MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            watch.mask = if mask & MASK_ADD != 0 { watch.mask | wanted } else { wanted };
            return Ok(number);
        }
        {
            let mut users = USERS.lock();
            let (_, watches) = users.entry(self.user).or_default();
            if *watches >= MAX_WATCHES {
                return Err(Errno::ENOSPC);
            }
            *watches += 1;
        }
        state.last = state.last.checked_add(1).unwrap_or(1);
        while state.watches.contains_key(&state.last) {
            state.last = state.last.checked_add(1).unwrap_or(1);
        }
        let number = state.last;
        state.watches.insert(number, Watch { inode: inode.clone(), mask: wanted });
        drop(state);
        enter(inode, self.this.clone(), number);
        Ok(number)
    }

    /// inotify_rm_watch(2).
    pub fn remove(&self, number: i32) -> Result<()> {
        let watch = {
            let mut state = self.state.lock();
            let watch = state.watches.remove(&number).ok_or(Errno::EINVAL)?;
            state.push(Event { watch: number, mask: IGNORED, cookie: 0, name: Vec::new() });
            watch
        };
        self.changes.wake_all();
        self.unwatch(number, &watch);
        Ok(())
    }

    fn unwatch(&self, number: i32, watch: &Watch) {
        leave(&watch.inode, &self.this, number);
        if let Some((_, watches)) = USERS.lock().get_mut(&self.user) {
            *watches -= 1;
        }
    }

    /// Something that watch `number` may want to hear of.
    pub(super) fn event(&self, number: i32, mask: u32, cookie: u32, name: &[u8], unlinked: bool) {
        let once = {
            let mut state = self.state.lock();
            let Some(wanted) = state.watches.get(&number).map(|watch| watch.mask) else { return };
            if wanted & mask & ALL_EVENTS == 0 || unlinked && wanted & EXCLUDE_UNLINKED != 0 {
                return;
            }
            state.push(Event { watch: number, mask, cookie, name: name.to_vec() });
            wanted & ONESHOT != 0
        };
        self.changes.wake_all();
        if once {
            // Somebody else may have removed it by now.
            let _ = self.remove(number);
        }
    }

    fn take(&self, buf: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock();
        let mut used = 0;
        while let Some(event) = state.queue.front() {
            let size = event.size();
            if used + size > buf.len() {
                break;
            }
            event.write(&mut buf[used..used + size]);
            used += size;
            state.pop();
        }
        match used {
            0 if state.queue.is_empty() => Err(Errno::EAGAIN),
            // Not even the first fits.
            0 => Err(Errno::EINVAL),
            used => Ok(used),
        }
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        let watches = core::mem::take(&mut self.state.get_mut().watches);
        for (number, watch) in &watches {
            self.unwatch(*number, watch);
        }
        if let Some((instances, _)) = USERS.lock().get_mut(&self.user) {
            *instances -= 1;
        }
    }
}

impl File for Inotify {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        attempt(&self.changes, access.patience.unless(self.flags.nonblocking()), move || self.take(buf))
    }

    fn write_from<'a>(&'a self, _from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(access.check_stream().and(Err(Errno::EBADF)))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        Some(Fasync::Input)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn ioctl<'a>(&'a self, _caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        if request != FIONREAD {
            return ready(Err(Errno::ENOTTY));
        }
        answer_int(data, self.state.lock().queue.iter().map(Event::size).sum());
        ready(Ok(0))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(match control {
            Control::Unwatch(number) => self.remove(number).map(|()| ControlAnswer::Done),
            _ => Err(Errno::EINVAL),
        })
    }

    fn poll(&self) -> Events {
        match self.state.lock().queue.is_empty() {
            true => Events::empty(),
            false => Events::IN | Events::RDNORM,
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(super::PATH.to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn event(number: i32, name: &[u8]) -> Event {
        Event { watch: number, mask: 2, cookie: 0, name: name.to_vec() }
    }

    #[test]
    fn what_nobody_pays_for_is_an_overflow() {
        let one = event(1, &[7; 200]).memory();
        let account = Account::new(None, &[(Resource::Memory, 3 * one)]);
        let inotify = Inotify::new(&caller(1), &account, OpenFlags::NONBLOCK).unwrap();
        {
            let mut state = inotify.state.lock();
            (0..9).for_each(|number| state.push(event(number, &[7; 200])));
            assert_eq!(state.queue.iter().map(|event| event.watch).collect::<Vec<_>>(), [0, 1, 2, -1]);
        }
        let mut room = [0; 2 * 224];
        assert_eq!(block_on(inotify.read(&mut room)), Ok(2 * 224));
        inotify.state.lock().push(event(9, &[7; 200]));
        assert_eq!(inotify.state.lock().queue.iter().map(|event| event.watch).collect::<Vec<_>>(), [2, -1, 9]);
        drop(inotify);
        assert_eq!(account.used(Resource::Memory), 0);
    }
}
