//! N kernels in one process, without hardware, under a seeded scheduler.
//!
//! The services that speak between kernels run here unchanged. What is simulated is below them: physical memory
//! with an owner for every frame, page tables with TLBs that really keep stale entries until they are flushed,
//! lanes with delays and little room, and a scheduler that picks the next step by a seed. A seed determines the
//! whole run, so a failure can be replayed, and shrunk to a short one.
//!
//! | file | subject |
//! |---|---|
//! | rng.rs | random numbers from a seed |
//! | world.rs | physical memory of all kernels; who holds which frame |
//! | table.rs | page tables with a TLB per CPU |
//! | port.rs | lanes with delays, reordering and little room |
//! | executor.rs | tasks of all kernels |
//! | shape.rs | what machine a seed makes |
//! | recorder.rs | what the kernels trace, and whether that can be |
//! | machine.rs | kernels put together; what happens next; kernels that die |
//! | scenario.rs | a kind of random program, and one run of it |
//! | seeds.rs, shrink.rs | many runs; the shortest run that fails |
//! | main.rs | the command |
//!
//! The programs on memory, the first scenario:
//!
//! | file | subject |
//! |---|---|
//! | cluster.rs | a machine with the memory service |
//! | object.rs | mapped objects |
//! | model.rs | what a process's memory is, sequentially |
//! | acts.rs | random operations, drawn and done |
//! | memory.rs | programs of them, compared with the model |
//! | audit.rs | the invariants of the design, checked over all replicas |
//!
//! | popcorn/ | the protocol of Popcorn Linux, a second scenario |
//! | baseline.rs | messages per operation of both, on the same traces |
//!
//! Programs of system calls, on whole kernels:
//!
//! | folder | subject |
//! |---|---|
//! | nodes | kernels with all services and the Linux ABI on top; programs that run on them |
//! | life | processes, threads, signals and waits, compared with a model |
//! | order | futexes; descriptors and the files behind them: is there an order of the calls that explains the answers? |
//! | sockets | connections over kernels: nothing is lost, and nobody waits for ever |
//! | calls | any calls with any arguments (crate `fuzz`): nothing breaks, and nothing is left |
//!
//! Another scenario builds its services on `Machine` as cluster.rs does, implements [`scenario::Scenario`], and is
//! entered in [`KINDS`], and in [`USUAL`] once 10,000 seeds of it pass in a minute.
#![forbid(unsafe_code)]

pub mod acts;
pub mod audit;
pub mod baseline;
pub mod calls;
pub mod cluster;
pub mod executor;
pub mod life;
pub mod machine;
pub mod memory;
pub mod model;
pub mod nodes;
pub mod object;
pub mod order;
pub mod popcorn;
pub mod port;
pub mod recorder;
pub mod rng;
pub mod scenario;
pub mod seeds;
pub mod shape;
pub mod shrink;
pub mod sockets;
pub mod table;
pub mod world;

/// All kinds of programs, for the command and for `cob test`.
pub const KINDS: &[scenario::Kind] = &[
    scenario::Kind::of::<memory::Program>(),
    scenario::Kind::of::<popcorn::Program>(),
    scenario::Kind::of::<life::Program>(),
    scenario::Kind::of::<order::Program<order::Futex>>(),
    scenario::Kind::of::<order::Program<order::Files>>(),
    scenario::Kind::of::<sockets::Program>(),
    scenario::Kind::of::<calls::Program>(),
];

/// Those that run when none is named.
pub const USUAL: &[scenario::Kind] = KINDS.split_at(1).0;
