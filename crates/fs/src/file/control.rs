//! [`Control`]: operations that only some kinds of files have, as values, so that a stand-in of another
//! kernel's file needs no downcast to pass them on.

use crate::File;
use alloc::sync::Arc;
pub use messages::fs::{EpollInterest, UnixCredentials, UnixPlace};

pub type Control = messages::fs::Control<Arc<dyn File>>;
pub type ControlAnswer = messages::fs::ControlAnswer<Arc<dyn File>>;
pub type EpollControl = messages::fs::EpollControl<Arc<dyn File>>;
pub type SocketControl = messages::fs::SocketControl<Arc<dyn File>>;
pub type SocketMessage = messages::fs::SocketMessage<Arc<dyn File>>;
