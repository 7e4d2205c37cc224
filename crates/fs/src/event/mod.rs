//! Descriptors that stand for an event: eventfd, timerfd, signalfd, pidfd.

mod eventfd;
mod pidfd;
mod signalfd;
mod timerfd;

pub use eventfd::EventFd;
pub use pidfd::PidFd;
pub use signalfd::{signalfd, Fetched, SignalFd, SignalSource};
pub use timerfd::{TimerFd, Timers};
