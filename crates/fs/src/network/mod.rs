//! The network as programs see it without sending anything: interfaces, addresses, routes, and lists of sockets. Sockets that talk are in
//! [`crate::socket`].
//!
//! There is one interface, [`lo`], which is up from the start and which nobody can change, and there are no routes but its own. So
//! all of this but the lists is constant and the same on every kernel.

pub mod list;
pub mod lo;
pub mod netlink;
