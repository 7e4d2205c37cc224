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

fn bpf(command: u32, attributes: &[u64]) -> Result<libc::c_long> {
    // SAFETY: the attributes are at most as long as is said; where they have addresses, their callers' memory lives longer than the call.
    check(unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), std::mem::size_of_val(attributes) as u32)
    })
}

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the descriptor is new, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn map(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> Result<OwnedFd> {
    bpf(MAP_CREATE, &[pair(kind, key), pair(value, entries), pair(flags, 0)]).map(owned)
}

/// An array that can be mapped.
pub fn array(value: u32, entries: u32) -> Result<OwnedFd> {
    map(ARRAY, 4, value, entries, MMAPABLE)
}

pub fn hash(key: u32, value: u32, entries: u32) -> Result<OwnedFd> {
    map(HASH, key, value, entries, 0)
}

pub fn ring(bytes: u32) -> Result<OwnedFd> {
    map(RINGBUF, 0, 0, bytes, 0)
}

pub fn insert(map: &OwnedFd, key: u32, value: u64) -> Result<()> {
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    bpf(MAP_UPDATE, &[map.as_raw_fd() as u64, key, value, 0]).map(drop)
}

pub fn remove(map: &OwnedFd, key: u32) -> Result<()> {
    bpf(MAP_DELETE, &[map.as_raw_fd() as u64, &raw const key as u64]).map(drop)
}

/// A program for a tracepoint. An error has what the verifier says.
pub fn load(code: &[u64]) -> Result<OwnedFd> {
    let (licence, mut said) = (c"Dual MIT/GPL", vec![0u8; 1 << 16]);
    let (code_at, licence_at) = (code.as_ptr() as u64, licence.as_ptr() as u64);
    let attributes = [pair(TRACEPOINT, code.len() as u32), code_at, licence_at];
    bpf(PROG_LOAD, &attributes).map(owned).map_err(|error| {
        let log = [pair(1, said.len() as u32), said.as_mut_ptr() as u64];
        let _ = bpf(PROG_LOAD, &[&attributes[..], &log].concat());
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
    // SAFETY: the kernel reads as many bytes as they say.
    let event =
        owned(check(unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), -1, 0, -1, CLOEXEC) })?);
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

/// The entries of an array of 64-byte values, for as long as the process lives.
pub fn map_sums(array: &OwnedFd, entries: usize) -> Result<Vec<Sums>> {
    let start = map_memory(array, entries * 64, libc::PROT_READ | libc::PROT_WRITE, 0)?;
    // SAFETY: within the mapping, which nobody takes away; everybody changes the words as atomics.
    Ok((0..entries).map(|entry| Sums(unsafe { &*start.add(entry * 64).cast::<AtomicU64>() })).collect())
}

/// Both ends of a ring buffer, of which nobody reads the records.
#[derive(Clone, Copy)]
pub struct Ring {
    taken: &'static AtomicU64,
    put: &'static AtomicU64,
}

impl Ring {
    pub fn map(ring: &OwnedFd) -> Result<Ring> {
        let taken = map_memory(ring, PAGE, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let put = map_memory(ring, PAGE, libc::PROT_READ, PAGE)?;
        // SAFETY: the first word of each page, which stays mapped; the kernel changes them as whole words.
        unsafe { Ok(Ring { taken: &*taken.cast(), put: &*put.cast() }) }
    }

    /// All records that are there are over.
    pub fn take_all(&self) {
        self.taken.store(self.put.load(Acquire), SeqCst);
    }
}
