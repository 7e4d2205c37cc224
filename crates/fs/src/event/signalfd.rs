//! signalfd(2): signals read as bytes. What is pending belongs to whoever reads, not to the file, so every
//! operation asks crate `process` through [`SignalSource`].
//!
//! What waits on another kernel (signals for a process wait at its home) is fetched by a task of its own into the file, where
//! whoever reads next finds it: a read may be interrupted while the answer that brings the signal is on its way.

use crate::{
    anonymous::{Identity, StatusFlags},
    file::ready,
    Attributes, Caller, Events, File, OpenFlags,
};
use abi::signal::{SignalFields, SignalInfo, SignalSet};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno,
};

/// Bytes of `struct signalfd_siginfo`.
const RECORD: usize = 128;
const SI_SIGIO: i32 = -5;

/// The signals pending for one process, as crate `process` keeps them. Linux lets whoever reads take its own signals; a source
/// belongs to the process that made the descriptor, which differs only for one that is inherited over fork.
pub trait SignalSource: Send + Sync {
    /// Takes the first pending signal of `wanted`, of `reader` or of its process, that is on this kernel.
    fn take(&self, reader: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo>;
    /// If signals of `wanted` wait on another kernel: begins to take as many as `most` of them, and says so. `then` gets what
    /// came, maybe nothing, in any case.
    fn fetch(&self, reader: Option<&Caller>, wanted: SignalSet, most: usize, then: Fetched) -> bool;
    /// Those on other kernels too, as far as is known here.
    fn pending(&self) -> SignalSet;
    /// Woken whenever a signal becomes pending.
    fn changes(&self) -> &WaitQueue;
}

pub type Fetched = Box<dyn FnOnce(Vec<SignalInfo>) + Send>;

/// Signals that were fetched from another kernel, and how many fetches have come back.
#[derive(Default)]
struct Brought {
    signals: VecDeque<SignalInfo>,
    answers: u64,
}

pub struct SignalFd {
    source: Arc<dyn SignalSource>,
    brought: Arc<Lock<Brought>>,
    wanted: Lock<SignalSet>,
    flags: StatusFlags,
    inode: Identity,
}

/// signalfd4(2) with fd -1. KILL and STOP are left out silently.
pub fn signalfd(source: Arc<dyn SignalSource>, wanted: SignalSet, flags: OpenFlags) -> Result<Arc<SignalFd>> {
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    Ok(Arc::new(SignalFd {
        source,
        brought: Arc::default(),
        wanted: Lock::new(wanted.without(SignalSet::UNBLOCKABLE)),
        flags: StatusFlags::new(flags | OpenFlags::RDWR),
        inode: Identity::untyped(),
    }))
}

impl SignalFd {
    /// signalfd4(2) with a descriptor that is one already.
    pub fn set_wanted(&self, wanted: SignalSet) {
        *self.wanted.lock() = wanted.without(SignalSet::UNBLOCKABLE);
        self.source.changes().wake_all();
    }

    /// Bytes of the signals that are here.
    fn take(&self, reader: Option<&Caller>, buf: &mut [u8]) -> Option<usize> {
        let wanted = *self.wanted.lock();
        let mut count = 0;
        for record in buf.chunks_exact_mut(RECORD) {
            let brought = self.brought.lock().signals.pop_front();
            let Some(info) = brought.or_else(|| self.source.take(reader, wanted)) else { break };
            record.copy_from_slice(&encode(&info));
            count += RECORD;
        }
        (count > 0).then_some(count)
    }

    /// Brings signals of other kernels here; false if there are none.
    async fn fetch(&self, reader: Option<&Caller>, most: usize) -> bool {
        let wanted = *self.wanted.lock();
        let before = self.brought.lock().answers;
        let (brought, source) = (self.brought.clone(), self.source.clone());
        let then = move |signals: Vec<SignalInfo>| {
            {
                let mut brought = brought.lock();
                brought.signals.extend(signals);
                brought.answers += 1;
            }
            source.changes().wake_all();
        };
        if !self.source.fetch(reader, wanted, most, Box::new(then)) {
            return false;
        }
        let answered = || (self.brought.lock().answers != before).then_some(());
        self.source.changes().wait_until(answered).await;
        true
    }

    async fn read_as(&self, reader: Option<&Caller>, buf: &mut [u8]) -> Result<usize> {
        let most = buf.len() / RECORD;
        if most == 0 {
            return Err(Errno::EINVAL);
        }
        loop {
            if let Some(count) = self.take(reader, buf) {
                return Ok(count);
            }
            if self.fetch(reader, most).await {
                continue;
            }
            if self.flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            self.source.changes().wait_until(|| (!self.poll().is_empty()).then_some(())).await;
        }
    }
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
            SI_SIGIO => {
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
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.read_as(None, buf))
    }

    fn read_for<'a>(&'a self, caller: &'a Caller, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.read_as(Some(caller), buf))
    }

    fn flags(&self) -> OpenFlags {
        self.flags.get()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.flags.set(flags);
        ready(Ok(()))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn poll(&self) -> Events {
        let wanted = *self.wanted.lock();
        let pending = self.source.pending();
        match SignalSet(pending.0 & wanted.0).is_empty() && self.brought.lock().signals.is_empty() {
            true => Events::empty(),
            false => Events::IN,
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(self.source.changes())
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
    use crate::testing::*;
    use abi::signal::{Pending, Signal};
    use machine::Pid;

    #[derive(Default)]
    struct Fake {
        pending: Lock<Pending>,
        /// At the home.
        away: Lock<Pending>,
        asked: Lock<Vec<(SignalSet, usize, Fetched)>>,
        changes: WaitQueue,
    }

    impl Fake {
        /// The home's answer.
        fn answer(&self) {
            let (wanted, most, then) = self.asked.lock().pop().expect("a read asks");
            let taken = core::iter::from_fn(|| self.away.lock().take(wanted)).take(most).map(|taken| taken.info);
            then(taken.collect());
        }
    }

    impl SignalSource for Fake {
        fn take(&self, _: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo> {
            self.pending.lock().take(wanted).map(|taken| taken.info)
        }
        fn fetch(&self, _: Option<&Caller>, wanted: SignalSet, most: usize, then: Fetched) -> bool {
            let there = self.away.lock().set().0 & wanted.0 != 0;
            if there {
                self.asked.lock().push((wanted, most, then));
            }
            there
        }
        fn pending(&self) -> SignalSet {
            self.pending.lock().set().union(self.away.lock().set())
        }
        fn changes(&self) -> &WaitQueue {
            &self.changes
        }
    }

    #[test]
    fn only_wanted_signals_are_read_and_unblockable_ones_never() {
        let source = Arc::new(Fake::default());
        let all = SignalSet(u64::MAX).without(SignalSet::only(Signal::INT));
        let file = signalfd(source.clone(), all, OpenFlags::NONBLOCK).unwrap();
        for signal in [Signal::INT, Signal::KILL] {
            source.pending.lock().push(SignalInfo::user(signal, 0, Pid(7), 9));
        }
        let mut buf = [0; 300];
        assert_eq!(file.poll(), Events::empty());
        assert_eq!(block_on(file.read(&mut buf)), Err(Errno::EAGAIN));
        source.pending.lock().push(SignalInfo::user(Signal::TERM, 0, Pid(7), 9));
        assert_eq!(block_on(file.read(&mut buf)), Ok(RECORD));
        assert_eq!((buf[0], buf[12], buf[16]), (Signal::TERM.number(), 7, 9));
        assert_eq!(block_on(file.read(&mut buf[..127])), Err(Errno::EINVAL));
    }

    #[test]
    fn a_signal_that_waits_elsewhere_is_seen_and_an_interrupted_read_leaves_it_for_the_next() {
        let source = Arc::new(Fake::default());
        let file = signalfd(source.clone(), SignalSet(u64::MAX), OpenFlags::empty()).unwrap();
        let mut buf = [0; 300];
        let mut reading = file.read(&mut buf);
        let waker = core::task::Waker::noop();
        let mut context = core::task::Context::from_waker(waker);
        assert!(reading.as_mut().poll(&mut context).is_pending());
        for signal in [Signal::CHLD, Signal::TERM, Signal::USR1] {
            source.away.lock().push(SignalInfo::user(signal, 0, Pid(7), 9));
        }
        source.changes.wake_all();
        assert_eq!(file.poll(), Events::IN);
        assert!(reading.as_mut().poll(&mut context).is_pending());
        // A signal interrupts the read before the answer comes, which brings as many as the read had room for.
        drop(reading);
        source.answer();
        assert_eq!(file.poll(), Events::IN);
        assert_eq!(block_on(file.read(&mut buf)), Ok(2 * RECORD));
        assert_eq!((buf[0], buf[RECORD]), (Signal::USR1.number(), Signal::TERM.number()));
        assert_eq!(source.away.lock().set(), SignalSet::only(Signal::CHLD));
    }
}
