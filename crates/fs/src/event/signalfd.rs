//! signalfd(2): signals read as bytes. What is pending belongs to whoever reads, not to the file, so every
//! operation asks crate `process` through [`SignalSource`].

use crate::{
    anonymous::{Identity, StatusFlags},
    file::ready,
    waiting::attempt,
    Attributes, Caller, Events, File, OpenFlags,
};
use abi::signal::{SignalFields, SignalInfo, SignalSet};
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno,
};

/// Bytes of `struct signalfd_siginfo`.
const RECORD: usize = 128;

/// The signals pending for one process, as crate `process` keeps them. Linux lets whoever reads take its own signals; a source
/// belongs to the process that made the descriptor, which differs only for one that is inherited over fork.
pub trait SignalSource: Send + Sync {
    /// Takes the first pending signal of `wanted`, of `reader` or of its process.
    fn take(&self, reader: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo>;
    fn pending(&self) -> SignalSet;
    /// Woken whenever a signal becomes pending.
    fn changes(&self) -> &WaitQueue;
}

pub struct SignalFd {
    source: Arc<dyn SignalSource>,
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

    fn take(&self, reader: Option<&Caller>, buf: &mut [u8]) -> Result<usize> {
        let wanted = *self.wanted.lock();
        let mut count = 0;
        for record in buf.chunks_exact_mut(RECORD) {
            let Some(info) = self.source.take(reader, wanted) else { break };
            record.copy_from_slice(&encode(&info));
            count += RECORD;
        }
        if count == 0 {
            Err(Errno::EAGAIN)
        } else {
            Ok(count)
        }
    }

    fn read_as<'a>(&'a self, reader: Option<&'a Caller>, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        if buf.len() < RECORD {
            return ready(Err(Errno::EINVAL));
        }
        attempt(self.source.changes(), self.flags.nonblocking(), move || self.take(reader, buf))
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
        SignalFields::None | SignalFields::Raw { .. } => {}
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
        self.read_as(None, buf)
    }

    fn read_for<'a>(&'a self, caller: &'a Caller, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        self.read_as(Some(caller), buf)
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
        match SignalSet(pending.0 & wanted.0).is_empty() {
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
        changes: WaitQueue,
    }

    impl SignalSource for Fake {
        fn take(&self, _: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo> {
            self.pending.lock().take(wanted)
        }
        fn pending(&self) -> SignalSet {
            self.pending.lock().set()
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
}
