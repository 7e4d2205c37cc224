//! Descriptors that stand for an event: eventfd, timerfd, signalfd, pidfd.

mod eventfd;
mod pidfd;
mod signalfd;
mod timerfd;

pub use eventfd::EventFd;
pub use pidfd::PidFd;
pub(crate) use signalfd::read as read_signals;
pub use signalfd::{set_signals, signalfd, Fetched, Seen, SignalFd, SignalSource, SignalSources};
pub use timerfd::{TimerFd, Timers};
