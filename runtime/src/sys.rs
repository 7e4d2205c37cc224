//! System calls. All `unsafe` of the library but for the C interface and the lifetimes of scopes is here.

pub mod bpf;

use std::{
    io::{Error, Result},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, SeqCst},
    },
    time::Duration,
};

const UMT_ENABLE: libc::c_long = 0xc0b0;
const UMT_CONTROL: libc::c_long = 0xc0b1;
const UMT_SET: u32 = 2;
const UMT_IDLE: u32 = 1;
/// CPUs that a mask has room for.
pub const MOST_CPUS: usize = libc::CPU_SETSIZE as usize;

fn check(result: libc::c_long) -> Result<libc::c_long> {
    match result {
        -1 => Err(Error::last_os_error()),
        value => Ok(value),
    }
}

/// umt_enable (include/cob/umt.h): the counters of this process, by CPU; `idle_only`: they tell only of CPUs that have nothing to run. ENOSYS on Linux.
pub fn umt_enable(idle_only: bool) -> Result<Vec<OwnedFd>> {
    let mut fds = [-1 as RawFd; MOST_CPUS];
    let flags = if idle_only { UMT_IDLE } else { 0 };
    // SAFETY: the kernel writes at most as many descriptors as the array has room for.
    let count = check(unsafe { libc::syscall(UMT_ENABLE, fds.as_mut_ptr(), fds.len(), flags) })?;
    // SAFETY: these descriptors are new, and nobody else's.
    Ok(fds[..count as usize].iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect())
}

/// What the kernel counts on a CPU (`struct umt_sums` of include/cob/umt.h), mapped for as long as the process lives: blocks in the lower half, unblocks in the upper,
/// each modulo 2^32.
#[derive(Clone, Copy)]
pub struct Sums(pub(super) &'static AtomicU64);

impl Sums {
    /// By the descriptor of the CPU's counter.
    pub fn map(counter: &OwnedFd, cpu: usize) -> Result<Sums> {
        const ENTRY: usize = 64;
        let (bytes, fd) = ((cpu + 1) * ENTRY, counter.as_raw_fd());
        // SAFETY: a new mapping, where the system wants it.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: the entry is in the mapping, which nobody takes away, and a u64 that the kernel changes in whole words; it is only read here.
        Ok(Sums(unsafe { &*map.cast::<u8>().add(cpu * ENTRY).cast::<AtomicU64>() }))
    }

    /// Those of a test, which counts itself.
    #[cfg(test)]
    pub fn new() -> Sums {
        Sums(Box::leak(Box::default()))
    }

    /// Counts where not only the kernel does.
    pub fn add(&self, what: u64) {
        self.0.fetch_add(what, SeqCst);
    }

    /// Blocks and unblocks so far.
    pub fn look(&self) -> (u32, u32) {
        let sums = self.0.load(Acquire);
        (sums as u32, (sums >> 32) as u32)
    }
}

/// umt_control(UMT_SET) for this thread.
pub fn umt_monitor(active: bool) -> Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::syscall(UMT_CONTROL, UMT_SET, u32::from(active), std::ptr::null_mut::<u8>()) })?;
    Ok(())
}

/// An eventfd that does not block, with 0 in it.
pub fn event_fd() -> Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).into())? as RawFd))
    }
}

/// Takes what is in an eventfd; 0 if there is nothing.
pub fn take(fd: &OwnedFd) -> u64 {
    let mut value = 0u64;
    // SAFETY: the buffer has 8 bytes.
    match unsafe { libc::read(fd.as_raw_fd(), (&raw mut value).cast(), 8) } {
        8 => value,
        _ => 0,
    }
}

/// Adds to an eventfd.
pub fn add(fd: &OwnedFd, value: u64) {
    // SAFETY: the buffer has 8 bytes. It fails if the counter is full, and then who reads it is told anyway.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const value).cast(), 8) };
}

/// The id of this thread.
pub fn thread_id() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// CPUs that there can be.
pub fn most_cpus() -> usize {
    // SAFETY: no memory is passed.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize
}

/// CPUs that this thread may use.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is a mask of bits, of which all values are valid, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set).into())?;
        Ok((0..MOST_CPUS).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect())
    }
}

/// Restricts a thread (0: this one) to these CPUs.
pub fn set_cpus(thread: i32, cpus: &[usize]) -> Result<()> {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().filter(|&&cpu| cpu < MOST_CPUS).for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        check(libc::sched_setaffinity(thread, size_of_val(&set), &raw const set).into())?;
    }
    Ok(())
}

/// Makes the calling thread SCHED_BATCH, so that waking it takes the CPU from nobody that computes; threads and processes that it makes are ordinary. Leaves any class that the
/// program has chosen.
pub fn use_batch_class() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one structure. Nobody is refused that, and if so, nothing is lost but time.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK, &raw const parameters);
        }
    }
}

/// Has `called` called in each child that this process forks. 0, or the number of the error.
pub fn call_in_children(called: extern "C" fn()) -> i32 {
    // SAFETY: a function of this library, which stays as long as the process; it changes an atomic number.
    unsafe { libc::pthread_atfork(None, None, Some(called)) }
}

/// A set of descriptors that can be waited for together.
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> Result<Epoll> {
        // SAFETY: no memory is passed; the descriptor is new.
        unsafe { Ok(Epoll(OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())? as RawFd))) }
    }

    /// Waits for `fd` as well, and names it `name`.
    pub fn add(&self, fd: &OwnedFd, name: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: name };
        let (set, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the kernel reads one event.
        let result = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        check(result.into())?;
        Ok(())
    }

    /// Waits until one of them can be read, or so long. The names of those that can.
    pub fn wait(&self, longest: Option<Duration>) -> Vec<u64> {
        const MOST: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let milliseconds = longest.map_or(-1, |time| time.as_millis().min(1 << 30) as i32);
        // SAFETY: the kernel writes at most as many events as the array has room for.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), MOST as i32, milliseconds) };
        events.iter().take(count.max(0) as usize).map(|event| event.u64).collect()
    }
}
