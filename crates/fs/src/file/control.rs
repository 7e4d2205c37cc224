//! [`Control`]: operations that only some kinds of files have, as values, so that a stand-in of another
//! kernel's file needs no downcast to pass them on.

use crate::File;
use alloc::sync::Arc;
pub use messages::fs::{
    ControlMessage, DatagramHeader, EpollInterest, InternetAddress, InternetEnds, MessageExtra, PortClaim,
    SocketAddress, SocketType, UnixCredentials, UnixPlace,
};

/// What one file is asked to do, with open files of this kernel.
pub type Control = messages::fs::Control<Arc<dyn File>>;
/// What it answers.
pub type ControlAnswer = messages::fs::ControlAnswer<Arc<dyn File>>;
/// epoll_ctl and what belongs to it.
pub type EpollControl = messages::fs::EpollControl<Arc<dyn File>>;
/// What only sockets do: bind, connect, options, messages.
pub type SocketControl = messages::fs::SocketControl<Arc<dyn File>>;
/// A message with the open files that it brings (SCM_RIGHTS).
pub type SocketMessage = messages::fs::SocketMessage<Arc<dyn File>>;
/// A connection that was accepted on another kernel than its listener's.
pub type MovedEnd = messages::fs::MovedEnd<Arc<dyn File>>;
