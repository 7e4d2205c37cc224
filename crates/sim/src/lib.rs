//! N kernels in one process, without hardware, under a seeded scheduler.
//!
//! The services that speak between kernels run here unchanged. What is simulated is below them: physical memory
//! with an owner for every frame, page tables with TLBs that really keep stale entries until they are flushed,
//! lanes with delays and little room, and a scheduler that picks the next step by a seed. A seed determines the
//! whole run, so a failure can be replayed.
//!
//! | file | subject |
//! |---|---|
//! | rng.rs | random numbers from a seed |
//! | world.rs | physical memory of all kernels; who holds which frame |
//! | table.rs | page tables with a TLB per CPU |
//! | port.rs | lanes with delays, reordering and little room |
//! | executor.rs | tasks of all kernels; which step is next; the clock |
//! | cluster.rs | kernels put together: endpoint and services |
//! | object.rs | mapped objects |
//! | model.rs | what a process's memory is, sequentially |
//! | memory.rs | random programs on memory, compared with the model |
//! | audit.rs | the invariants of the design, checked over all replicas |
//!
//! Everything but the last three serves other services' simulations as well.
#![forbid(unsafe_code)]

pub mod audit;
pub mod cluster;
pub mod executor;
pub mod memory;
pub mod model;
pub mod object;
pub mod port;
pub mod rng;
pub mod table;
pub mod world;
