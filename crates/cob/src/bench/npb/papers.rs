//! What the Popcorn papers count of the same workloads: Katz's thesis of 2014 (tables 6.2, 6.6, 6.10, 6.14, 6.18: faults that all
//! kernels together processed on 16 kernels, with one prefetch slot, which brings the contiguous pages around a fault; sections 6.2 to
//! 6.6: migrations). A fault cost about 5(N-1) messages there.

pub struct Figures {
    pub workload: &'static str,
    /// With 16 kernels.
    pub faults: u32,
    pub migrations: u32,
}

pub const KERNELS: u32 = 16;
pub const MESSAGES_A_FAULT: u32 = 5 * (KERNELS - 1);

pub const FIGURES: [Figures; 5] = [
    Figures { workload: "is", faults: 25306, migrations: 2 * 15 },
    Figures { workload: "ft", faults: 263_035, migrations: 2 * 15 },
    Figures { workload: "cg", faults: 20967, migrations: 5 * 15 },
    Figures { workload: "bfs", faults: 9862, migrations: 12 * 15 },
    Figures { workload: "lud", faults: 7673, migrations: 15 },
];
