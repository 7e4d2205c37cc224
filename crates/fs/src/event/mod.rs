//! Descriptors that stand for an event: eventfd, timerfd, signalfd, pidfd.

mod eventfd;
mod pidfd;
mod signalfd;
mod timerfd;
mod view;

pub use eventfd::{EventFd, Half};
pub use pidfd::PidFd;
pub(crate) use signalfd::read as read_signals;
pub use signalfd::{signalfd, Fetched, SignalFd, SignalSource, SignalSources};
pub use timerfd::{TimerFd, Timers};
pub(crate) use view::{Mask, MaskElsewhere, View};
