//! Descriptors that stand for an event: eventfd, timerfd, signalfd.

mod eventfd;
mod signalfd;
mod timerfd;

pub use eventfd::EventFd;
pub use signalfd::{signalfd, SignalFd, SignalSource};
pub use timerfd::{TimerFd, Timers};
