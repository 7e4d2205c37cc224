//! Sockets of programs on several kernels: connections (streams and packets of AF_UNIX, TCP) and datagrams (AF_UNIX, UDP).
//!
//! Programs connect, accept, send numbered bytes and packets with and without files, receive and peek, shut and close, poll,
//! wait in epolls or not, are interrupted, have sockets of other kernels or take them along, give them to each other, and die with kernels.
//!
//! What is right? In a step several calls begin at the same time, and it ends when the machine rests. Between two steps the model knows what was
//! sent and received at each end, what is shut or closed, and how many wait in each backlog. In a step nobody knows the order. So
//!
//! 1. bytes, packets and datagrams come whole and in the order in which they were sent, none twice and none left out;
//! 2. what a call answers was right before the step, or is after it, or at some point between: an end of file or an error needs its cause
//!    by the end of the step, an EAGAIN that there was nothing at its beginning, or that another call of the step may have taken it;
//! 3. at rest no call waits for what is there, and poll and epoll tell of it;
//! 4. whoever has lost its peer or its kernel hears that it has, and nobody else does;
//! 5. in the end nothing is left: no frames, files, calls or charges.
//!
//! | file | subject |
//! |---|---|
//! | kernels.rs | kernels with sockets, and who hears of their death |
//! | task.rs | what programs do, as tasks |
//! | model.rs | connections, and what may be seen of them |
//! | backlog.rs | listeners, and what waits to be accepted |
//! | mail.rs | datagrams |
//! | watch.rs | epolls |
//! | program.rs | random programs |
//! | death.rs | kernels that die |
//! | verdict.rs | what came of a step, held against the model |

mod backlog;
mod death;
mod kernels;
mod mail;
mod model;
mod program;
mod task;
mod verdict;
mod watch;

pub use program::Program;
