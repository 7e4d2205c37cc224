//! What the Popcorn papers say of the same workloads: Katz's thesis of 2014 (tables 6.2, 6.6, 6.10, 6.14, 6.18: faults that all
//! kernels together processed on 16 kernels, a page for each; sections 6.2 to 6.6: migrations), and Barbalace and others' comparison
//! with Linux on the same 64 cores. NAS classes and inputs of the thesis are not stated; a fault cost about 5(N-1) messages there.

pub struct Figures {
    pub workload: &'static str,
    /// With 16 kernels.
    pub faults: u32,
    pub migrations: u32,
    /// Time, held against Linux.
    pub time: &'static str,
}

pub const KERNELS: u32 = 16;
pub const MESSAGES_A_FAULT: u32 = 5 * (KERNELS - 1);

pub const FIGURES: [Figures; 5] = [
    Figures { workload: "is", faults: 25306, migrations: 2 * 15, time: "0.60 at best (8 threads), near 1 at 32" },
    Figures { workload: "ft", faults: 263_035, migrations: 2 * 15, time: "0.91 (8), 1.3 (28)" },
    Figures { workload: "cg", faults: 20967, migrations: 5 * 15, time: "up to 25 (28)" },
    Figures { workload: "bfs", faults: 9862, migrations: 12 * 15, time: "up to 15" },
    Figures { workload: "lud", faults: 7673, migrations: 15, time: "0.73 (12), 1.63 (32)" },
];
