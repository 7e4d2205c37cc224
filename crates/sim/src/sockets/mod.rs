//! Connections of programs on several kernels: streams and packets of AF_UNIX, and TCP.
//!
//! Programs connect, accept, send numbered bytes and packets with and without files, receive and peek, shut and close, poll,
//! wait or not, are interrupted, have sockets of other kernels, and die with kernels. Nothing that was sent may be lost, doubled or
//! come in another order, and at rest nobody may wait without a reason. A message goes one way, so that who looks at the other end in the same moment may
//! see it before or after (order/ asks for one order that explains everything, and there is none): model.rs says what may be seen.
//!
//! | file | subject |
//! |---|---|
//! | kernels.rs | kernels with sockets; how they die |
//! | task.rs | what programs do, as tasks |
//! | model.rs | connections, and what may be seen of them |
//! | program.rs | random programs |
//! | verdict.rs | what came of a step, held against the model |

mod backlog;
mod kernels;
mod model;
mod program;
mod task;
mod verdict;

pub use program::Program;
