//! The options of `cob fuzz`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct FuzzOptions {
    /// Where the random numbers begin.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Go on for so long.
    #[arg(long, value_name = "M", default_value_t = 1.0)]
    pub minutes: f64,
    /// End after so many calls, if that is sooner.
    #[arg(long, value_name = "N")]
    pub calls: Option<u64>,
    /// Number of kernels.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub kernels: u16,
    /// With fault injection, as `cob run --shake`.
    #[arg(long)]
    pub shake: bool,
    /// List calls that fail otherwise than on this machine's Linux: of programs of one thread, which run on both.
    #[arg(long, conflicts_with_all = ["shake", "replay"])]
    pub errnos: bool,
    /// Run the programs of a file that an earlier finding left, and nothing else.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Machines that are started to make a finding shorter.
    #[arg(long, value_name = "N", default_value_t = 120)]
    pub trials: usize,
}
