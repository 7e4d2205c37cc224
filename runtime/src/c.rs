//! The interface for C (include/cob/tasks.h).

use crate::{worker, Access, Mode, Region, Runtime, TaskBuilder};
use std::{
    ffi::{c_int, c_void},
    panic::{catch_unwind, AssertUnwindSafe},
    sync::OnceLock,
};

type Function = extern "C" fn(*mut c_void);

/// struct cob_access.
#[repr(C)]
pub struct CobAccess {
    start: *const c_void,
    bytes: usize,
    kind: c_int,
}

/// A function and its argument, which goes to another thread: the caller has said that it may.
struct Call(Function, *mut c_void);

// SAFETY: cob/tasks.h demands that the argument may be used by any thread.
unsafe impl Send for Call {}

impl Call {
    fn call(self) {
        let Call(function, argument) = self;
        function(argument);
    }
}

fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let made = || match Runtime::new() {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            eprintln!("cob-tasks: {error}");
            None
        }
    };
    RUNTIME.get_or_init(made).as_ref()
}

/// Runs `main` as a task, and returns 0 when that and all its children have ended; -1 if there is no runtime.
#[unsafe(no_mangle)]
pub extern "C" fn cob_tasks_run(main: Function, argument: *mut c_void) -> c_int {
    let Some(runtime) = runtime() else { return -1 };
    let call = Call(main, argument);
    let run = || runtime.run(move || call.call());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => 0,
        Err(_) => -1,
    }
}

/// Makes a task. -1: the caller is no task, or `kind` is none of those in cob/tasks.h.
///
/// # Safety
/// `uses` has `count` elements, and `argument` may be used by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cob_task(
    body: Function,
    argument: *mut c_void,
    uses: *const CobAccess,
    count: usize,
    priority: c_int,
) -> c_int {
    if worker::current().is_none() {
        return -1;
    }
    let mut builder = TaskBuilder::default().priority(priority);
    for index in 0..count {
        // SAFETY: the caller says that there are so many.
        let CobAccess { start, bytes, kind } = unsafe { uses.add(index).read() };
        let access = match kind {
            1 => Access::In,
            2 => Access::Out,
            3 => Access::InOut,
            _ => return -1,
        };
        builder = builder.uses(Region::new(start as usize, bytes), access);
    }
    let call = Call(body, argument);
    builder.spawn(move || call.call());
    0
}

/// Waits until all children of the calling task have ended.
#[unsafe(no_mangle)]
pub extern "C" fn cob_taskwait() {
    crate::taskwait();
}

/// Whether the kernel tells the runtime of threads that wait: 1 or 0; -1: there is no runtime.
#[unsafe(no_mangle)]
pub extern "C" fn cob_tasks_monitored() -> c_int {
    match runtime() {
        Some(runtime) => c_int::from(runtime.mode() == Mode::Umt),
        None => -1,
    }
}
