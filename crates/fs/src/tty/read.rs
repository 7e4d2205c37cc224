//! Reading from a terminal: lines, or as MIN and TIME say (man 3 termios).

use super::{Tty, TtyFile};
use core::{future::poll_fn, task::Poll};
use linux_raw_sys::general as raw;
use machine::{errno::Result, sync::Registration, BoxFuture, Errno};

/// TIME counts tenths of a second.
const TENTH: u64 = 100_000_000;

/// What a reader may do now.
enum Outlook {
    Done(Result<usize>),
    /// Wait, with so many bytes there, at most until so much time has passed since they came.
    Wait {
        available: usize,
        patience: Option<u64>,
    },
}

impl Tty {
    /// One look; takes the input if it is enough. `patience_over`: the time of TIME has passed.
    fn look(&self, file: &TtyFile, buf: &mut [u8], patience_over: bool) -> Outlook {
        let count = {
            let mut state = self.state.lock();
            if state.hangups != file.hangups {
                return Outlook::Done(Ok(0));
            }
            let available = state.line.available();
            let (enough, patience) = match state.line.canonical() {
                true => (available > 0, None),
                false => {
                    let minimum = usize::from(state.line.termios.char(raw::VMIN));
                    let time = u64::from(state.line.termios.char(raw::VTIME)) * TENTH;
                    let patience = (time > 0 && (minimum == 0 || available > 0)).then_some(time);
                    let at_once = minimum == 0 && time == 0;
                    let wanted = minimum.clamp(1, buf.len().max(1));
                    (available >= wanted || at_once, patience)
                }
            };
            if !enough && !patience_over {
                let nonblocking = file.nonblocking();
                return match () {
                    () if available > 0 && nonblocking => Outlook::Done(Ok(state.line.read(buf))),
                    () if state.master_closed => Outlook::Done(Err(Errno::EIO)),
                    () if nonblocking => Outlook::Done(Err(Errno::EAGAIN)),
                    () => Outlook::Wait { available, patience },
                };
            }
            state.line.read(buf)
        };
        // The discipline has room again for what waits before it, and the master for more.
        self.pump();
        Outlook::Done(Ok(count))
    }

    /// Waits for input. Bytes that are too few for MIN stay where they are until the read is over.
    pub(super) async fn read(&self, file: &TtyFile, buf: &mut [u8]) -> Result<usize> {
        let mut registration = Registration::new(&self.changes);
        let mut timer: Option<BoxFuture<'static, ()>> = None;
        let mut seen = 0;
        poll_fn(|context| {
            registration.register(context.waker());
            let mut over = false;
            loop {
                let (available, patience) = match self.look(file, buf, over) {
                    Outlook::Done(result) => return Poll::Ready(result),
                    Outlook::Wait { available, patience } => (available, patience),
                };
                let Some(patience) = patience else { return Poll::Pending };
                if timer.is_none() || available > seen {
                    seen = available;
                    timer = Some(self.timers.at(self.timers.now() + patience));
                }
                match timer.as_mut().map(|timer| timer.as_mut().poll(context)) {
                    Some(Poll::Ready(())) => over = true,
                    _ => return Poll::Pending,
                }
            }
        })
        .await
    }
}
