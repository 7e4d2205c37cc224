//! eventfd(2): a 64-bit counter that can be waited for.

use crate::{
    anonymous::{Identity, StatusFlags},
    file::{ready, Access, Destination, Source, Transfer},
    waiting::attempt,
    Attributes, Events, File, MappedWords, Object, OpenFlags,
};
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Lock, LockGuard, WaitQueue},
    BoxFuture, Errno,
};

/// The counter never gets this high by write(2); Cob itself may push it there, then poll says ERR.
const LIMIT: u64 = u64::MAX;

/// Half a counter that has two: 32 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Lower,
    Upper,
}

#[derive(Default)]
struct Count {
    value: u64,
    /// The two sums as far as `value` includes them ([`EventFd::counting`]).
    seen: [u32; 2],
    /// Events that found their half at 2^32-1 and are in no answer.
    lost: u64,
}

impl Count {
    /// Each half has grown since it was `seen`, by less than 2^32; what does not fit is lost.
    fn take_in(&mut self, sums: [u32; 2]) {
        for (half, (sum, seen)) in sums.into_iter().zip(&mut self.seen).enumerate() {
            let (new, shift) = (u64::from(sum.wrapping_sub(*seen)), 32 * half);
            let fits = new.min(u64::from(u32::MAX) - u64::from((self.value >> shift) as u32));
            *seen = sum;
            self.value += fits << shift;
            self.lost += new - fits;
        }
    }
}

pub struct EventFd {
    count: Lock<Count>,
    semaphore: bool,
    flags: StatusFlags,
    inode: Identity,
    changes: WaitQueue,
    /// What can be mapped by it. Nothing of one that a program has made.
    mapped: Option<Mapped>,
}

struct Mapped {
    words: Arc<MappedWords>,
    /// Where in them the sums of what it counts are, the lower half's and behind it the upper's. None: it counts nothing.
    sums: Option<usize>,
}

impl EventFd {
    pub const SEMAPHORE: u32 = 1;

    /// eventfd2(2).
    pub fn new(count: u32, flags: u32) -> Result<Arc<Self>> {
        let open = OpenFlags::from_bits_retain(flags & !Self::SEMAPHORE);
        if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(open) {
            return Err(Errno::EINVAL);
        }
        Ok(Arc::new(Self::with(count, flags & Self::SEMAPHORE != 0, open)))
    }

    /// A non-blocking one at zero, by which `words` can be mapped.
    pub fn mapping(words: &Arc<MappedWords>) -> Arc<Self> {
        Self::of_words(words, None)
    }

    /// The same, and it counts: what [`EventFd::count`] adds to the two sums at byte `at` of the words is in it until it is read.
    pub fn counting(words: &Arc<MappedWords>, at: usize) -> Arc<Self> {
        Self::of_words(words, Some(at))
    }

    fn of_words(words: &Arc<MappedWords>, sums: Option<usize>) -> Arc<Self> {
        let mapped = Some(Mapped { words: words.clone(), sums });
        Arc::new(EventFd { mapped, ..Self::with(0, false, OpenFlags::NONBLOCK) })
    }

    fn with(count: u32, semaphore: bool, open: OpenFlags) -> Self {
        EventFd {
            count: Lock::new(Count { value: u64::from(count), ..Count::default() }),
            semaphore,
            flags: StatusFlags::new(open | OpenFlags::RDWR),
            inode: Identity::untyped(),
            changes: WaitQueue::new(),
            mapped: None,
        }
    }

    /// The count, with all that was counted up to now.
    fn counted(&self) -> LockGuard<'_, Count> {
        let mut count = self.count.lock();
        if let Some(Mapped { words, sums: Some(at) }) = &self.mapped {
            let at = *at;
            // Both of one moment: they only grow, so the first was the same when the second was looked at.
            let mut lower = words.get(at);
            let upper = loop {
                let upper = words.get(at + 4);
                let after = words.get(at);
                if after == lower {
                    break upper;
                }
                lower = after;
            };
            count.take_in([lower, upper]);
        }
        count
    }

    /// Adds one to a half, and wakes nobody. True: somebody waits for that, and is to be [told](EventFd::tell). (A half that is full stays so.)
    #[inline]
    pub fn count(&self, half: Half) -> bool {
        let Some(Mapped { words, sums: Some(at) }) = &self.mapped else { return false };
        let sum = words.count(at + 4 * half as usize);
        // The count must take it in before it has grown by 2^32.
        if sum << 1 == 0 {
            drop(self.counted());
        }
        // Pairs with `WaitUntil::poll` and `poll::wait`: they register, under the queue's lock, before they look at the sums.
        self.changes.has_waiters()
    }

    /// What was counted and is in no answer, because half the counter was full.
    pub fn lost(&self) -> u64 {
        self.counted().lost
    }

    /// It is one from now on, until it is read or [withdrawn](EventFd::withdraw). Wakes who waits for that.
    pub fn post(&self) {
        self.counted().value = 1;
        self.changes.wake_all();
    }

    /// It is zero from now on: what was posted is not true any more.
    pub fn withdraw(&self) {
        self.counted().value = 0;
    }

    /// Wakes who waits for the counter to change.
    pub fn tell(&self) {
        self.changes.wake_all();
    }

    fn take(&self) -> Result<u64> {
        let taken = {
            let mut count = self.counted();
            let taken = match (count.value, self.semaphore) {
                (0, _) => return Err(Errno::EAGAIN),
                (_, true) => 1,
                (all, false) => all,
            };
            count.value -= taken;
            taken
        };
        self.changes.wake_all();
        Ok(taken)
    }

    fn add(&self, value: u64) -> Result<usize> {
        {
            let mut count = self.counted();
            match count.value.checked_add(value) {
                Some(sum) if sum < LIMIT => count.value = sum,
                _ => return Err(Errno::EAGAIN),
            }
        }
        self.changes.wake_all();
        Ok(8)
    }
}

impl File for EventFd {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        if buf.len() < 8 {
            return Transfer::Done(Err(Errno::EINVAL));
        }
        attempt(&self.changes, access.patience.unless(self.flags.nonblocking()), move || {
            buf[..8].copy_from_slice(&self.take()?.to_ne_bytes());
            Ok(8)
        })
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        // Neither less nor more (Linux 6.13).
        let Ok(bytes) = buf.try_into() else {
            return Transfer::Done(Err(Errno::EINVAL));
        };
        let value = u64::from_ne_bytes(bytes);
        if value == LIMIT {
            return Transfer::Done(Err(Errno::EINVAL));
        }
        attempt(&self.changes, access.patience.unless(self.flags.nonblocking()), move || self.add(value))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn poll(&self) -> Events {
        let count = self.counted().value;
        let mut events = Events::empty();
        if count > 0 {
            events |= Events::IN;
        }
        if count < LIMIT - 1 {
            events |= Events::OUT;
        }
        if count == LIMIT {
            events |= Events::ERR;
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(self.mapped.as_ref().map(|mapped| mapped.words.object()).ok_or(Errno::ENODEV))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[eventfd]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{remote::tests::services, testing::*};
    use machine::{account::Resource, PAGE_SIZE};

    /// Where the sums are in the words.
    const AT: usize = 128;

    fn counting() -> (Arc<MappedWords>, Arc<EventFd>) {
        let charge = free().charge(Resource::Memory, PAGE_SIZE).unwrap();
        let words = MappedWords::new(&services(), 1, charge).unwrap();
        let file = EventFd::counting(&words, AT);
        (words, file)
    }

    fn read(file: &EventFd) -> Result<u64> {
        let mut bytes = [0; 8];
        block_on(file.read(&mut bytes)).map(|_| u64::from_ne_bytes(bytes))
    }

    fn write(file: &EventFd, value: u64) -> Result<usize> {
        block_on(file.write(&value.to_ne_bytes()))
    }

    #[test]
    fn a_read_takes_all_or_one() {
        let nonblock = OpenFlags::NONBLOCK.bits();
        let counter = EventFd::new(3, nonblock).unwrap();
        assert_eq!(read(&counter), Ok(3));
        assert_eq!(read(&counter), Err(Errno::EAGAIN));
        let semaphore = EventFd::new(2, nonblock | EventFd::SEMAPHORE).unwrap();
        assert_eq!((read(&semaphore), read(&semaphore)), (Ok(1), Ok(1)));
        assert_eq!(read(&semaphore), Err(Errno::EAGAIN));
        assert_eq!(EventFd::new(0, 2).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn the_counter_stops_one_below_the_top() {
        let counter = EventFd::new(0, OpenFlags::NONBLOCK.bits()).unwrap();
        assert_eq!(write(&counter, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(write(&counter, u64::MAX - 1), Ok(8));
        assert_eq!(counter.poll(), Events::IN);
        assert_eq!(write(&counter, 1), Err(Errno::EAGAIN));
        assert_eq!(write(&counter, 0), Ok(8));
        counter.counted().take_in([1, 0]);
        assert_eq!(counter.poll(), Events::IN | Events::ERR);
        assert_eq!(read(&counter), Ok(u64::MAX));
        assert_eq!(block_on(counter.read(&mut [0; 7])), Err(Errno::EINVAL));
        assert_eq!(block_on(counter.write(&[0; 7])), Err(Errno::EINVAL));
    }

    #[test]
    fn halves_are_counted_apart_and_stop_when_they_are_full() {
        let counter = EventFd::new(u32::MAX - 1, OpenFlags::NONBLOCK.bits()).unwrap();
        let grow = |lower: u32, upper: u32| {
            let mut count = counter.counted();
            let [a, b] = count.seen;
            count.take_in([a.wrapping_add(lower), b.wrapping_add(upper)]);
        };
        grow(2, 2);
        assert_eq!(counter.lost(), 1);
        assert_eq!(read(&counter), Ok(2 << 32 | u64::from(u32::MAX)));
        assert_eq!(write(&counter, u64::from(u32::MAX - 1) << 32), Ok(8));
        grow(1, 3);
        assert_eq!(counter.lost(), 3);
        assert_eq!(read(&counter), Ok(u64::from(u32::MAX) << 32 | 1));
        // Sums begin anew.
        grow(u32::MAX, 0);
        assert_eq!(read(&counter), Ok(u64::from(u32::MAX)));
        grow(5, 0);
        assert_eq!((read(&counter), counter.lost()), (Ok(5), 3));
    }

    #[test]
    fn what_is_counted_is_read_once_and_stays_in_the_sums() {
        let (words, file) = counting();
        assert!(!file.count(Half::Upper) && !file.count(Half::Lower) && !file.count(Half::Upper));
        assert_eq!(file.poll(), Events::IN | Events::OUT);
        assert_eq!(read(&file), Ok(2 << 32 | 1));
        assert_eq!((read(&file), file.poll()), (Err(Errno::EAGAIN), Events::OUT));
        assert_eq!([words.get(AT), words.get(AT + 4), words.get(0)], [1, 2, 0]);
    }

    #[test]
    fn what_is_counted_between_a_look_and_the_registration_is_seen() {
        let (_words, file) = counting();
        file.flags.set(OpenFlags::empty());
        let mut bytes = [0; 8];
        {
            // It has looked, and waits when it is polled.
            let mut reading = file.read(&mut bytes);
            assert!(!file.count(Half::Lower), "nobody is registered");
            assert_eq!(once(reading.as_mut()), Some(Ok(8)));
        }
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        let mut reading = file.read(&mut bytes);
        assert!(once(reading.as_mut()).is_none());
        assert!(file.count(Half::Upper), "somebody is to be told");
        file.tell();
        assert_eq!(once(reading.as_mut()), Some(Ok(8)));
    }

    #[test]
    fn sums_that_nobody_looks_at_are_taken_in_before_they_begin_anew() {
        let (words, file) = counting();
        for sum in [(1 << 31) - 1, u32::MAX] {
            words.set(AT, sum);
            file.count(Half::Lower);
        }
        // 2^32 events: one more than a half has room for.
        assert_eq!(words.get(AT), 0);
        file.count(Half::Upper);
        assert_eq!(file.lost(), 1);
        assert_eq!(read(&file), Ok(1 << 32 | u64::from(u32::MAX)));
    }

    #[test]
    fn a_blocked_writer_goes_on_after_a_read() {
        let counter = EventFd::new(0, 0).unwrap();
        write(&counter, u64::MAX - 1).unwrap();
        let value = 5u64.to_ne_bytes();
        let mut blocked = counter.write(&value);
        assert!(once(blocked.as_mut()).is_none());
        assert_eq!(read(&counter), Ok(u64::MAX - 1));
        assert_eq!(once(blocked.as_mut()), Some(Ok(8)));
        assert_eq!(read(&counter), Ok(5));
    }
}
