//! A child of fork has the memory of a runtime and one thread. If that was a worker in a task it is no worker in the child: it may execute a program or end, and what it
//! asks of the runtime is refused. It must not return from its task, for the rest of that is its parent's to do.

use crate::sys;
use std::{
    io,
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        OnceLock,
    },
};

/// How many forks lie between this process and the first one. Cheaper to read than the process's id.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, SeqCst);
}

/// Forks are counted from now on, in the child. How many there were.
pub(crate) fn watch() -> io::Result<u32> {
    static WATCHED: OnceLock<i32> = OnceLock::new();
    match *WATCHED.get_or_init(|| sys::call_in_children(in_child)) {
        0 => Ok(count()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub(crate) fn count() -> u32 {
    FORKS.load(SeqCst)
}
