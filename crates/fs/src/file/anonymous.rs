//! What every object without a name in the file system shares: a number, an owner, status flags.

use super::sigio::Owned;
use crate::{Attributes, Caller, ControlAnswer, FileAdvice, Kind, Object, OpenFlags, ReadAhead, SetAttributes};
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::{
    future::Future,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};
use machine::{errno::Result, sync::Lock, Errno, KernelId, Spawner, PAGE_SIZE};

/// Device number of pipes, sockets and other objects that have no path (Linux's pipefs and its kin).
const DEVICE: (u32, u32) = (0, 0xf_ffff);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Inode numbers count from a range of this kernel's own, so that two pipes of different kernels never
/// look like the same file. Called once, before the first object is made.
pub fn number_from(kernel: KernelId) {
    NEXT.store((u64::from(kernel.0) << 32) | 1, Relaxed);
}

pub(crate) fn next_number() -> u64 {
    NEXT.fetch_add(1, Relaxed)
}

/// The inode of an object without a path.
pub(crate) struct Identity(Lock<Attributes>);

impl Identity {
    pub fn new(kind: Kind, permissions: u32, caller: &Caller) -> Self {
        let owner = (caller.credentials.fsuid, caller.credentials.fsgid);
        Self::of(DEVICE, next_number(), kind as u32 | permissions, owner, (0, 0))
    }

    /// eventfd and its kin: one inode for all of them on Linux too, with no file type.
    pub fn untyped() -> Self {
        Self::of(DEVICE, next_number(), 0o600, (0, 0), (0, 0))
    }

    pub fn of(dev: (u32, u32), ino: u64, mode: u32, owner: (u32, u32), rdev: (u32, u32)) -> Self {
        let (uid, gid) = owner;
        Identity(Lock::new(Attributes {
            dev,
            ino,
            mode,
            nlink: 1,
            uid,
            gid,
            rdev,
            size: 0,
            block_size: PAGE_SIZE as u32,
            blocks: 0,
            accessed: Default::default(),
            modified: Default::default(),
            changed: Default::default(),
        }))
    }

    pub fn attributes(&self) -> Attributes {
        self.0.lock().clone()
    }

    pub fn number(&self) -> u64 {
        self.0.lock().ino
    }

    /// The object comes from another kernel, where it had these.
    pub fn take_over(&self, attributes: Attributes) {
        *self.0.lock() = attributes;
    }

    /// fchmod, fchown and futimens on the descriptor (man 2 chmod says who may).
    pub fn set(&self, caller: &Caller, set: SetAttributes) -> Result<()> {
        let mut now = self.0.lock();
        let owns = caller.credentials.fsuid == now.uid;
        if !owns && !caller.credentials.can(abi::capability::FOWNER) {
            return Err(Errno::EPERM);
        }
        if set.size.is_some() {
            return Err(Errno::EINVAL);
        }
        if let Some(mode) = set.mode {
            now.mode = now.mode & !0o7777 | mode & 0o7777;
        }
        now.uid = set.uid.unwrap_or(now.uid);
        now.gid = set.gid.unwrap_or(now.gid);
        now.accessed = set.accessed.unwrap_or(now.accessed);
        now.modified = set.modified.unwrap_or(now.modified);
        Ok(())
    }

    /// `pipe:[12]`.
    pub fn path(&self, kind: &str) -> Vec<u8> {
        format!("{kind}:[{}]", self.number()).into_bytes()
    }
}

static OPEN: AtomicU64 = AtomicU64::new(0);

/// Part of everything that keeps a file open on this kernel: of open descriptions, of stand-ins for those of others, and of what
/// gives another one its name.
pub(crate) struct Open(());

impl Open {
    pub fn new() -> Self {
        OPEN.fetch_add(1, Relaxed);
        Open(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}

/// How many of them there are (`cob run --audit`).
pub fn open_files() -> u64 {
    OPEN.load(Relaxed)
}

/// Access mode, status flags and owner of an open file description.
pub struct StatusFlags {
    bits: AtomicU32,
    /// Whom it signals with O_ASYNC.
    pub(crate) owned: Owned,
    _open: Open,
}

/// What F_SETFL may change, but for O_ASYNC ([`sigio`](super::sigio)).
pub(crate) const SETTABLE: OpenFlags =
    OpenFlags::APPEND.union(OpenFlags::NONBLOCK).union(OpenFlags::DIRECT).union(OpenFlags::NOATIME);

/// What concerns opening only and is not reported by F_GETFL.
pub(crate) const TRANSIENT: OpenFlags = OpenFlags::CREAT
    .union(OpenFlags::EXCL)
    .union(OpenFlags::NOCTTY)
    .union(OpenFlags::TRUNC)
    .union(OpenFlags::CLOEXEC)
    .union(OpenFlags::EXEC);

impl StatusFlags {
    /// Of a new description.
    pub fn new(flags: OpenFlags) -> Self {
        let bits = AtomicU32::new(flags.difference(TRANSIENT).bits());
        StatusFlags { bits, owned: Owned::default(), _open: Open::new() }
    }

    /// F_GETFL.
    pub fn get(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.bits.load(Relaxed))
    }

    /// F_SETFL.
    pub fn set(&self, flags: OpenFlags) {
        let (keep, new) = (!SETTABLE.bits(), flags.intersection(SETTABLE).bits());
        let _ = self.bits.fetch_update(Relaxed, Relaxed, |bits| Some(bits & keep | new));
    }

    /// All flags are what the file's own kernel says.
    pub fn learn(&self, flags: OpenFlags) {
        self.bits.store(flags.bits(), Relaxed);
    }

    /// Whether O_ASYNC is among the flags.
    pub(crate) fn show_async(&self, on: bool) {
        let bit = OpenFlags::ASYNC.bits();
        match on {
            true => self.bits.fetch_or(bit, Relaxed),
            false => self.bits.fetch_and(!bit, Relaxed),
        };
    }

    /// Somebody is to be signalled, or was told to be.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned.is_known()
    }

    /// posix_fadvise(2), for a file with such pages.
    pub(crate) async fn advise(
        &self,
        advice: FileAdvice,
        object: impl Future<Output = Result<Arc<dyn Object>>>,
        spawner: &dyn Spawner,
    ) -> Result<ControlAnswer> {
        match advice {
            FileAdvice::Reads(how) => {
                let bits = match how {
                    ReadAhead::Normal => OpenFlags::empty(),
                    ReadAhead::Random => OpenFlags::RANDOM,
                    ReadAhead::Sequential => OpenFlags::SEQUENTIAL,
                };
                let others = !(OpenFlags::RANDOM | OpenFlags::SEQUENTIAL).bits();
                let _ = self.bits.fetch_update(Relaxed, Relaxed, |old| Some(old & others | bits.bits()));
            }
            FileAdvice::WillNeed { first, end } => {
                // Nobody waits for it, and whether it can be had nobody is told. The caller's control group pays.
                let object = object.await?;
                let work = Box::pin(async move { object.read_ahead(first, end).await });
                spawner.spawn_for(spawner.actor(), spawner.payer(), work);
            }
            FileAdvice::DontNeed { start, end } => object.await?.not_needed(start, end).await,
        }
        Ok(ControlAnswer::Done)
    }

    /// O_NONBLOCK.
    pub fn nonblocking(&self) -> bool {
        self.get().contains(OpenFlags::NONBLOCK)
    }
}

/// The answer of an ioctl that gives an int.
pub(crate) fn answer_int(data: &mut Vec<u8>, value: usize) {
    data.clear();
    data.extend_from_slice(&(value.min(i32::MAX as usize) as i32).to_ne_bytes());
}

/// A time as SO_RCVTIMEO answers it.
pub fn timeval(ns: u64) -> Vec<u8> {
    let (seconds, micros) = (ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
    [seconds, micros].iter().flat_map(|part| part.to_ne_bytes()).collect()
}

/// The time that SO_RCVTIMEO is given, in ns. EDOM: no such number of microseconds.
pub fn argument_ns(value: &[u8]) -> Result<u64> {
    let part = |at: usize| Some(i64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let (seconds, micros) = (part(0).ok_or(Errno::EINVAL)?, part(8).ok_or(Errno::EINVAL)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    // Linux takes a time before now as one that is over soon.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000))
}

/// The int that an ioctl was given, by value or by pointer.
pub(crate) fn argument_int(data: &[u8]) -> Result<i32> {
    let bytes = data.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::EFAULT)?;
    Ok(i32::from_ne_bytes(bytes))
}
