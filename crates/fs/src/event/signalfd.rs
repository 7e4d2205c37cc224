//! signalfd(2): signals read as bytes. A descriptor has a mask and flags; the signals are those of whoever reads, so they are
//! taken where the reader is, by a stand-in (`remote/file/signals.rs`) as by the file itself, through [`SignalSource`].
//!
//! What waits on another kernel (signals for a process wait at its home) is fetched by a task of its own. A read may be
//! interrupted while the answer that brings the signals is on its way: then they are put back, and wait where they waited.

use super::view::{Mask, View};
use crate::{
    anonymous::{Identity, StatusFlags},
    file::{ready, Access, Destination, SignalView, Transfer},
    Attributes, Events, File, OpenFlags,
};
use abi::signal::{SignalFields, SignalInfo, SignalSet, Taken};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, Pid,
};
use messages::fs::WaitPlace;

/// Bytes of `struct signalfd_siginfo`.
const RECORD: usize = 128;

/// The signals pending for one process, as crate `process` keeps them on this kernel.
pub trait SignalSource: Send + Sync {
    /// Takes the first pending signal of `wanted`, of thread `reader` or of the process, that is on this kernel.
    fn take(&self, reader: Option<Pid>, wanted: SignalSet) -> Option<SignalInfo>;
    /// If signals of `wanted` wait on another kernel: begins to take as many as `most` of them, and says so. `then` gets what
    /// came, maybe nothing, in any case.
    fn fetch(&self, wanted: SignalSet, most: usize, then: Fetched) -> bool;
    /// What was fetched for a reader that is gone.
    fn put_back(&self, signals: Vec<Taken>);
    /// Those that `reader` could take, also on other kernels as far as is known here; without a reader, any thread of this kernel.
    fn pending(&self, reader: Option<Pid>) -> SignalSet;
    /// How many have become pending: first counted, then pending, so what is pending may be more, never less.
    fn came(&self) -> u64;
    /// Woken whenever a signal becomes pending.
    fn changes(&self) -> &WaitQueue;
}

pub type Fetched = Box<dyn FnOnce(Vec<Taken>) + Send>;

/// The processes of this kernel. A source does not keep its process: a descriptor is the process's.
pub trait SignalSources: Send + Sync {
    fn of(&self, process: Pid) -> Option<Arc<dyn SignalSource>>;
}

/// A fetch under way. Who drops it gets nothing of what comes.
struct Fetch<'a> {
    source: &'a Arc<dyn SignalSource>,
    slot: Arc<Lock<Slot>>,
}

enum Slot {
    Awaited,
    Here(Vec<Taken>),
    /// Taken out, or nobody waits.
    Over,
}

impl<'a> Fetch<'a> {
    /// None: nothing waits elsewhere.
    fn begin(source: &'a Arc<dyn SignalSource>, wanted: SignalSet, most: usize) -> Option<Self> {
        let slot = Arc::new(Lock::new(Slot::Awaited));
        let (there, back) = (slot.clone(), source.clone());
        let then = move |signals: Vec<Taken>| {
            let late = {
                let mut slot = there.lock();
                match *slot {
                    Slot::Awaited => {
                        *slot = Slot::Here(signals);
                        None
                    }
                    _ => Some(signals),
                }
            };
            match late {
                Some(signals) => put_back(&back, signals),
                None => back.changes().wake_all(),
            }
        };
        source.fetch(wanted, most, Box::new(then)).then_some(Fetch { source, slot })
    }

    async fn signals(self) -> Vec<Taken> {
        let here = || {
            let mut slot = self.slot.lock();
            match core::mem::replace(&mut *slot, Slot::Over) {
                Slot::Here(signals) => Some(signals),
                other => {
                    *slot = other;
                    None
                }
            }
        };
        self.source.changes().wait_until(here).await
    }
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        let slot = core::mem::replace(&mut *self.slot.lock(), Slot::Over);
        if let Slot::Here(signals) = slot {
            put_back(self.source, signals);
        }
    }
}

fn put_back(source: &Arc<dyn SignalSource>, signals: Vec<Taken>) {
    if !signals.is_empty() {
        source.put_back(signals);
    }
}

/// read(2): the signals of `reader`, at least one of them.
pub(crate) async fn read(
    source: &Arc<dyn SignalSource>,
    reader: Option<Pid>,
    wanted: impl Fn() -> SignalSet,
    nonblocking: bool,
    buf: &mut [u8],
) -> Result<usize> {
    if buf.len() < RECORD {
        return Err(Errno::EINVAL);
    }
    loop {
        let mut count = 0;
        for record in buf.chunks_exact_mut(RECORD) {
            let Some(info) = source.take(reader, wanted()) else { break };
            record.copy_from_slice(&encode(&info));
            count += RECORD;
        }
        if count > 0 {
            return Ok(count);
        }
        if let Some(fetch) = Fetch::begin(source, wanted(), buf.len() / RECORD) {
            for (record, taken) in buf.chunks_exact_mut(RECORD).zip(fetch.signals().await) {
                record.copy_from_slice(&encode(&taken.info));
                count += RECORD;
            }
            match count {
                0 => continue,
                count => return Ok(count),
            }
        }
        if nonblocking {
            return Err(Errno::EAGAIN);
        }
        let some = || (source.pending(reader).0 & wanted().0 != 0).then_some(());
        source.changes().wait_until(some).await;
    }
}

pub struct SignalFd {
    sources: Arc<dyn SignalSources>,
    wanted: Arc<Lock<SignalSet>>,
    /// Woken when the mask changes.
    changes: WaitQueue,
    flags: StatusFlags,
    inode: Identity,
}

/// signalfd4(2) with fd -1. KILL and STOP are left out silently.
pub fn signalfd(sources: Arc<dyn SignalSources>, wanted: SignalSet, flags: OpenFlags) -> Result<Arc<SignalFd>> {
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    Ok(Arc::new(SignalFd {
        sources,
        wanted: Arc::new(Lock::new(wanted.without(SignalSet::UNBLOCKABLE))),
        changes: WaitQueue::new(),
        flags: StatusFlags::new(flags | OpenFlags::RDWR),
        inode: Identity::untyped(),
    }))
}

/// `struct signalfd_siginfo` (man 2 signalfd).
fn encode(info: &SignalInfo) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &u32::from(info.signal.number()).to_ne_bytes());
    put(4, &info.errno.to_ne_bytes());
    put(8, &info.code.to_ne_bytes());
    match info.fields {
        SignalFields::None => {}
        // What the sender made of it means what its code says (Linux: siginfo_layout).
        SignalFields::Raw { words: [first, second, ..] } => match info.code {
            SignalInfo::SI_TIMER => {
                put(24, &(first as u32).to_ne_bytes());
                put(32, &((first >> 32) as u32).to_ne_bytes());
                put(44, &(second as i32).to_ne_bytes());
                put(48, &second.to_ne_bytes());
            }
            SignalInfo::SI_SIGIO => {
                put(20, &(second as u32).to_ne_bytes());
                put(28, &(first as u32).to_ne_bytes());
            }
            code => {
                put(12, &(first as u32).to_ne_bytes());
                put(16, &((first >> 32) as u32).to_ne_bytes());
                if code < 0 {
                    put(44, &(second as i32).to_ne_bytes());
                    put(48, &second.to_ne_bytes());
                }
            }
        },
        SignalFields::Sender { pid, uid, value } => {
            put(12, &pid.0.to_ne_bytes());
            put(16, &uid.to_ne_bytes());
            put(44, &(value as i32).to_ne_bytes());
            put(48, &value.to_ne_bytes());
        }
        SignalFields::Child { pid, uid, status, utime, stime } => {
            put(12, &pid.0.to_ne_bytes());
            put(16, &uid.to_ne_bytes());
            put(40, &status.to_ne_bytes());
            put(56, &utime.to_ne_bytes());
            put(64, &stime.to_ne_bytes());
        }
        SignalFields::Fault { address } => put(72, &address.to_ne_bytes()),
        SignalFields::Timer { id, overrun, value } => {
            put(24, &id.to_ne_bytes());
            put(32, &overrun.to_ne_bytes());
            put(44, &(value as i32).to_ne_bytes());
            put(48, &value.to_ne_bytes());
        }
        SignalFields::Poll { band, fd } => {
            put(20, &fd.to_ne_bytes());
            put(28, &(band as u32).to_ne_bytes());
        }
    }
    record
}

impl File for SignalFd {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let (buf, caller) = match (to.stream_buffer(&access), access.caller()) {
            (Ok(buf), Some(caller)) => (buf, caller),
            (Ok(_), None) => return Transfer::Done(Err(Errno::EINVAL)),
            (Err(error), _) => return Transfer::Done(Err(error)),
        };
        Transfer::Later(access.patience.limit(Box::pin(async move {
            let source = self.sources.of(caller.process).ok_or(Errno::ESRCH)?;
            read(&source, Some(caller.thread), || *self.wanted.lock(), self.flags.nonblocking(), buf).await
        })))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    /// Nothing: see `seen_by`.
    fn poll(&self) -> Events {
        Events::empty()
    }

    fn waiting(&self) -> WaitPlace {
        WaitPlace::Signals
    }

    fn seen_by(&self, process: Pid, thread: Option<Pid>) -> Option<Arc<dyn SignalView>> {
        Some(View::new(self.sources.clone(), process, thread, Mask::here(self.wanted.clone())))
    }

    fn signals(&self, wanted: Option<SignalSet>) -> BoxFuture<'_, Result<(SignalSet, OpenFlags)>> {
        if let Some(wanted) = wanted {
            *self.wanted.lock() = wanted.without(SignalSet::UNBLOCKABLE);
            self.changes.wake_all();
        }
        ready(Ok((*self.wanted.lock(), self.flags.get())))
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[signalfd]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing::*, Caller};
    use abi::signal::Signal;

    fn make(source: &Arc<Signals>, wanted: SignalSet, flags: OpenFlags) -> Arc<SignalFd> {
        signalfd(Arc::new(OfAll(source.clone())), wanted, flags).unwrap()
    }

    #[test]
    fn only_wanted_signals_are_read_and_unblockable_ones_never() {
        let source = Arc::new(Signals::default());
        let all = SignalSet(u64::MAX).without(SignalSet::only(Signal::INT));
        let file = make(&source, all, OpenFlags::NONBLOCK);
        for signal in [Signal::INT, Signal::KILL] {
            source.pending.lock().push(SignalInfo::user(signal, 0, Pid(7), 9));
        }
        let mut buf = [0; 300];
        assert_eq!(poll(&*file), Events::empty());
        assert_eq!(block_on(file.read_into(Destination::Kernel(&mut buf), Access::by(&caller(7)))), Err(Errno::EAGAIN));
        source.pending.lock().push(SignalInfo::user(Signal::TERM, 0, Pid(7), 9));
        assert_eq!(block_on(file.read_into(Destination::Kernel(&mut buf), Access::by(&caller(7)))), Ok(RECORD));
        assert_eq!((buf[0], buf[12], buf[16]), (Signal::TERM.number(), 7, 9));
        assert_eq!(
            block_on(file.read_into(Destination::Kernel(&mut buf[..127]), Access::by(&caller(7)))),
            Err(Errno::EINVAL)
        );
        let file: Arc<dyn File> = file;
        block_on(file.signals(Some(SignalSet::only(Signal::INT)))).unwrap();
        assert_eq!(poll(&*file), Events::IN);
    }

    fn poll(file: &dyn File) -> Events {
        file.seen_by(Pid(7), Some(Pid(7))).unwrap().poll()
    }

    /// Begins to read, and has the signals on their way.
    fn begin<'a>(source: &Signals, file: &'a SignalFd, reader: &'a Caller, buf: &'a mut [u8]) -> Transfer<'a> {
        let mut reading = file.read_into(Destination::Kernel(buf), Access::by(reader));
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        assert!(reading.as_mut().poll(&mut context).is_pending());
        for signal in [Signal::CHLD, Signal::TERM, Signal::USR1] {
            source.away.lock().push(SignalInfo::user(signal, 0, Pid(7), 9));
        }
        source.changes.wake_all();
        assert_eq!(poll(file), Events::IN);
        assert!(reading.as_mut().poll(&mut context).is_pending());
        reading
    }

    #[test]
    fn a_signal_that_waits_elsewhere_is_seen_and_fetched() {
        let source = Arc::new(Signals::default());
        let file = make(&source, SignalSet(u64::MAX), OpenFlags::empty());
        let mut buf = [0; 300];
        let reader = caller(7);
        let reading = begin(&source, &file, &reader, &mut buf);
        source.answer();
        assert_eq!(block_on(reading), Ok(2 * RECORD));
        assert_eq!((buf[0], buf[RECORD]), (Signal::USR1.number(), Signal::TERM.number()));
        assert_eq!(source.away.lock().set(), SignalSet::only(Signal::CHLD));
    }

    #[test]
    fn what_comes_for_a_read_that_was_interrupted_waits_again() {
        let all = [Signal::CHLD, Signal::TERM, Signal::USR1].into_iter();
        let all = all.fold(SignalSet::default(), |all, signal| all.union(SignalSet::only(signal)));
        for answered_first in [false, true] {
            let source = Arc::new(Signals::default());
            let file = make(&source, SignalSet(u64::MAX), OpenFlags::empty());
            let mut buf = [0; 300];
            let reader = caller(7);
            let reading = begin(&source, &file, &reader, &mut buf);
            if answered_first {
                source.answer();
                drop(reading);
            } else {
                drop(reading);
                source.answer();
            }
            assert_eq!(source.away.lock().set(), all);
            assert_eq!(source.away.lock().take(all).unwrap().info.signal, Signal::USR1);
        }
    }
}
