//! The system call table: number, name, function. Dispatch, names and the list in `docs/` come from here.
//!
//! A number that is not in the table answers ENOSYS, and is named in the log once per program.

use crate::call::Call;
use alloc::string::String;
use core::fmt::Write;
use machine::{errno::Result, Errno};

macro_rules! system_calls {
    ($($number:literal $name:ident => $function:path;)*) => {
        /// Runs the call; None if there is no such call.
        pub(crate) async fn dispatch(number: u64, call: &mut Call<'_>) -> Option<Result<u64>> {
            Some(match number {
                $($number => $function(call).await,)*
                _ => return None,
            })
        }

        const IMPLEMENTED: &[(u64, &str)] = &[$(($number, stringify!($name)),)*];
    };
}

system_calls! {
    39 getpid => getpid;
}

async fn getpid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(call.process().id.0))
}

/// The name of an implemented call.
pub fn name_of(number: u64) -> Option<&'static str> {
    IMPLEMENTED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The list for `docs/syscalls.md`.
pub fn table_markdown() -> String {
    let mut text = String::from("| number | call |\n|---|---|\n");
    for (number, name) in IMPLEMENTED {
        writeln!(text, "| {number} | {name} |").expect("a String takes everything");
    }
    text
}

/// For calls that exist but lack a part: named in the log, answered as Linux answers without the feature.
pub(crate) fn unsupported(call: &Call<'_>, what: &str, errno: Errno) -> Errno {
    let name = String::from_utf8_lossy(&call.thread.state.lock().name).into_owned();
    log::warn!("{name}: {what} is not supported: {errno:?}");
    errno
}
