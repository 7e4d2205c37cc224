//! What Roca Nonell 2017 has measured, on 56 CPUs and a solid-state disk: 4.2, table 4.1 and 4.3.3.

/// NaN: the thesis does not say. Parts of 1; without and with user-monitored threads.
pub struct Paper {
    pub faster: f64,
    pub idle: [f64; 2],
    pub jam: [f64; 2],
    pub threads: [f64; 2],
    /// In words, where there is no number.
    pub says: &'static str,
}

const UNKNOWN: Paper =
    Paper { faster: f64::NAN, idle: [f64::NAN; 2], jam: [f64::NAN; 2], threads: [f64::NAN; 2], says: "" };

pub fn paper(row: &str) -> Paper {
    match row.trim_end_matches("-group") {
        "S1" => Paper { faster: 8.0, idle: [0.95, 0.88], jam: [0.00002, 0.0158], threads: [59.0, 507.0], says: "" },
        "S2" => Paper { faster: 3.35, idle: [0.77, 0.37], jam: [0.00003, 0.29], ..UNKNOWN },
        "S3-2000" => Paper { faster: 10.0, says: "the peak, near 2000 blocks", ..UNKNOWN },
        "fwi-none" => Paper {
            idle: [0.487, 0.359],
            jam: [0.00014, 0.024],
            threads: [61.0, 2621.0],
            says: "between 1.06 and 1.10",
            ..UNKNOWN
        },
        "fwi-fdatasync" => Paper {
            idle: [0.568, f64::NAN],
            jam: [0.000_006, f64::NAN],
            threads: [60.0, f64::NAN],
            says: "between 1.06 and 1.10",
            ..UNKNOWN
        },
        "fwi-multifile" => {
            Paper { faster: 1.06, idle: [0.54, 0.451], jam: [0.00008, 0.033], threads: [60.0, 2952.0], ..UNKNOWN }
        }
        "fwi-mmap" => {
            Paper { faster: 1.10, idle: [0.57, 0.459], jam: [0.00007, 0.062], threads: [60.0, 3002.0], ..UNKNOWN }
        }
        "fwi-nocache" => {
            Paper { faster: 1.0, idle: [0.524, 0.434], jam: [0.00018, 0.023], threads: [60.0, 2955.0], says: "no gain" }
        }
        "fwi-none-sequential" | "fwi-mmap-sequential" => {
            Paper { says: "parallel I/O is 1.16 to 2 times faster than sequential", ..UNKNOWN }
        }
        _ => UNKNOWN,
    }
}
