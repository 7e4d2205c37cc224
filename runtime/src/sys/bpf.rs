//! bpf(2) and perf_event_open(2), as far as bpf.rs needs them.

use super::{check, Sums};
use std::{
    io::{Error, Result},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering::*},
};

const PAGE: usize = 4096;
const MAP_CREATE: u32 = 0;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const PROG_LOAD: u32 = 5;
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const RINGBUF: u32 = 27;
const MMAPABLE: u32 = 1 << 10;
const TRACEPOINT: u32 = 5;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// Two 32-bit numbers of an attribute.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// # Safety
/// Addresses among the attributes are of memory that lives longer than the call, and has as many bytes as the kernel reads or writes there for this command.
unsafe fn bpf(command: u32, attributes: &[u64]) -> Result<libc::c_long> {
    // SAFETY: the attributes are as long as is said; the rest is the caller's.
    check(unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), std::mem::size_of_val(attributes) as u32)
    })
}

/// # Safety
/// The descriptor is new, and nobody else's.
unsafe fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: as the caller says.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn map(kind: u32, (key, value): (u32, u32), entries: u32, flags: u32) -> Result<OwnedFd> {
    // SAFETY: there are no addresses, and a map that is made has a new descriptor.
    unsafe { bpf(MAP_CREATE, &[pair(kind, key), pair(value, entries), pair(flags, 0)]).map(|fd| owned(fd)) }
}

/// 64 bits for each thread, by its id.
pub struct Threads(OwnedFd);

impl Threads {
    pub fn new(most: u32) -> Result<Threads> {
        map(HASH, (4, 8), most, 0).map(Threads)
    }

    /// What a program knows it by.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn insert(&self, thread: u32, value: u64) -> Result<()> {
        let (key, value) = (&raw const thread as u64, &raw const value as u64);
        // SAFETY: keys have 4 bytes and values 8, and both live until the call is over.
        unsafe { bpf(MAP_UPDATE, &[self.0.as_raw_fd() as u64, key, value, 0]).map(drop) }
    }

    pub fn remove(&self, thread: u32) -> Result<()> {
        // SAFETY: keys have 4 bytes, and this one lives until the call is over.
        unsafe { bpf(MAP_DELETE, &[self.0.as_raw_fd() as u64, &raw const thread as u64]).map(drop) }
    }
}

/// The sums of each CPU, 64 bytes apart, which can be mapped.
pub struct SumsArray {
    fd: OwnedFd,
    entries: usize,
}

impl SumsArray {
    pub fn new(entries: usize) -> Result<SumsArray> {
        Ok(SumsArray { fd: map(ARRAY, (4, 64), entries as u32, MMAPABLE)?, entries })
    }

    /// What a program knows it by.
    pub fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The entries, for as long as the process lives.
    pub fn map(&self) -> Result<Vec<Sums>> {
        let start = map_memory(&self.fd, self.entries * 64, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        // SAFETY: within the mapping, which nobody takes away; everybody changes the words as atomics.
        Ok((0..self.entries).map(|entry| Sums(unsafe { &*start.add(entry * 64).cast::<AtomicU64>() })).collect())
    }
}

/// A ring buffer, which an epoll can wait for. Nobody reads its records.
pub struct RingBuffer(OwnedFd);

impl RingBuffer {
    pub fn new(bytes: u32) -> Result<RingBuffer> {
        map(RINGBUF, (0, 0), bytes, 0).map(RingBuffer)
    }

    /// What a program knows it by.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Both ends, for as long as the process lives.
    pub fn map(&self) -> Result<Ring> {
        let taken = map_memory(&self.0, PAGE, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let put = map_memory(&self.0, PAGE, libc::PROT_READ, PAGE)?;
        // SAFETY: the first word of each page, which stays mapped; the kernel changes them as whole words.
        unsafe { Ok(Ring { taken: &*taken.cast(), put: &*put.cast() }) }
    }
}

/// A program for a tracepoint. An error has what the verifier says.
pub fn load(code: &[u64]) -> Result<OwnedFd> {
    let (licence, mut said) = (c"Dual MIT/GPL", vec![0u8; 1 << 16]);
    let (code_at, licence_at) = (code.as_ptr() as u64, licence.as_ptr() as u64);
    let attributes = [pair(TRACEPOINT, code.len() as u32), code_at, licence_at];
    // SAFETY: the code is as long as is said, the licence ends with a zero, and a program that is loaded has a new descriptor.
    unsafe { bpf(PROG_LOAD, &attributes).map(|fd| owned(fd)) }.map_err(|error| {
        let log = [pair(1, said.len() as u32), said.as_mut_ptr() as u64];
        // SAFETY: the same, and there is as much room for what the verifier says.
        let _ = unsafe { bpf(PROG_LOAD, &[&attributes[..], &log].concat()) };
        let text = String::from_utf8_lossy(&said);
        Error::other(format!("{error}: {}", text.trim_end_matches('\0')))
    })
}

/// The program runs at this tracepoint as long as the descriptor is open, on all CPUs.
pub fn attach(program: &OwnedFd, tracepoint: u32) -> Result<OwnedFd> {
    const TYPE_TRACEPOINT: u32 = 2;
    const CLOEXEC: libc::c_ulong = 8;
    let mut attributes = [0u64; 8];
    let bytes = std::mem::size_of_val(&attributes) as u32;
    (attributes[0], attributes[1], attributes[2]) = (pair(TYPE_TRACEPOINT, bytes), tracepoint.into(), 1);
    // SAFETY: the kernel reads as many bytes as the attributes say; the event has a new descriptor.
    let event =
        unsafe { owned(check(libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), -1, 0, -1, CLOEXEC))?) };
    // SAFETY: both take a number.
    unsafe {
        check(libc::ioctl(event.as_raw_fd(), IOC_SET_BPF, program.as_raw_fd()).into())?;
        check(libc::ioctl(event.as_raw_fd(), IOC_ENABLE, 0).into())?;
    }
    Ok(event)
}

fn map_memory(fd: &OwnedFd, bytes: usize, protection: libc::c_int, offset: usize) -> Result<*mut u8> {
    // SAFETY: a new mapping, where the system wants it.
    let place = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset as libc::off_t)
    };
    match place {
        libc::MAP_FAILED => Err(Error::last_os_error()),
        place => Ok(place.cast()),
    }
}

/// Both ends of a [`RingBuffer`].
#[derive(Clone, Copy)]
pub struct Ring {
    taken: &'static AtomicU64,
    put: &'static AtomicU64,
}

impl Ring {
    /// All records that are there are over.
    pub fn take_all(&self) {
        self.taken.store(self.put.load(Acquire), SeqCst);
    }
}
