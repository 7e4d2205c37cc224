//! Waiting for any of several files: the engine of poll, ppoll, select and pselect.
//!
//! The one danger is a change that falls between looking and sleeping. So every file's queue gets our
//! waker first, and only then are the files looked at once more:
//!
//! ```text
//! poller                         writer
//! looks: nothing
//!                                puts a byte in, wakes the queue (nobody is there yet)
//! puts its waker into the queue
//! looks again: IN                                        <- without this look it would sleep forever
//! ```

use crate::{Caller, Events, File};
use alloc::{sync::Arc, vec::Vec};
use core::{future::poll_fn, task::Poll};
use machine::{errno::Result, sync::Registration, BoxFuture};

/// Reported whether asked for or not.
pub const ALWAYS: Events = Events::ERR.union(Events::HUP).union(Events::NVAL);

/// What is ready of each file for `caller`, waiting until something is or `timeout` is over (None: forever). All
/// empty after the timeout.
pub async fn wait(
    caller: &Caller,
    files: &[(Arc<dyn File>, Events)],
    timeout: Option<BoxFuture<'_, ()>>,
) -> Result<Vec<Events>> {
    let seen: Vec<Arc<dyn File>> = files.iter().map(|(file, _)| seen(file, caller)).collect();
    let look = || {
        let found: Vec<Events> =
            seen.iter().zip(files).map(|(file, (_, wanted))| file.poll() & (*wanted | ALWAYS)).collect();
        found.iter().any(|events| !events.is_empty()).then_some(found)
    };
    for file in &seen {
        file.watch().await?;
    }
    if let Some(found) = look() {
        return Ok(found);
    }
    let mut timeout = timeout;
    let mut registrations: Vec<Registration> =
        seen.iter().filter_map(|file| file.changes().map(Registration::new)).collect();
    let found = poll_fn(|context| {
        for registration in &mut registrations {
            registration.register(context.waker());
        }
        if let Some(found) = look() {
            return Poll::Ready(Some(found));
        }
        match &mut timeout {
            Some(timeout) => timeout.as_mut().poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await;
    Ok(found.unwrap_or_else(|| files.iter().map(|_| Events::empty()).collect()))
}

fn seen(file: &Arc<dyn File>, caller: &Caller) -> Arc<dyn File> {
    match file.seen_by(caller.process, Some(caller.thread)) {
        Some(seen) => seen,
        None => file.clone(),
    }
}

/// poll with a timeout of zero.
pub async fn now(caller: &Caller, files: &[(Arc<dyn File>, Events)]) -> Result<Vec<Events>> {
    wait(caller, files, Some(crate::file::ready(()))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pipe::pipe, testing::*, OpenFlags};
    use std::{boxed::Box, future::Future};

    #[test]
    fn a_write_between_looking_and_sleeping_is_seen() {
        let (read, write) = pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
        let files: Vec<(Arc<dyn File>, Events)> = vec![(read.clone(), Events::IN)];
        let who = caller(1);
        let mut waiting = Box::pin(wait(&who, &files, None));
        let (waker, woken) = counter();
        let mut context = std::task::Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        block_on(write.write(b"x")).unwrap();
        assert!(woken() > 0);
        let Poll::Ready(found) = waiting.as_mut().poll(&mut context) else { panic!("still waiting") };
        assert_eq!(found.unwrap(), [Events::IN]);
    }

    #[test]
    fn a_timeout_gives_nothing_and_hang_up_is_always_told() {
        let (read, write) = pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
        let mut files: Vec<(Arc<dyn File>, Events)> = vec![(read, Events::IN), (write, Events::empty())];
        assert_eq!(block_on(now(&caller(1), &files)).unwrap(), [Events::empty(), Events::empty()]);
        files.truncate(1);
        assert_eq!(block_on(now(&caller(1), &files)).unwrap(), [Events::HUP]);
    }

    #[test]
    fn dropping_the_wait_leaves_no_waker_behind() {
        let (read, _write) = pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
        let files: Vec<(Arc<dyn File>, Events)> = vec![(read.clone(), Events::IN)];
        {
            let who = caller(1);
            let mut waiting = Box::pin(wait(&who, &files, None));
            assert!(once(waiting.as_mut()).is_none());
            assert!(read.changes().unwrap().has_waiters());
        }
        assert!(!read.changes().unwrap().has_waiters());
    }
}
