//! The options of `cob profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::MachineOptions;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ProfileOptions {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    /// Samples of each CPU in a second.
    #[arg(long, short = 'F', value_name = "HZ", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub frequency: u32,
    /// Where the samples go.
    #[arg(long, short, value_name = "FILE", default_value = "cob.profile")]
    pub output: PathBuf,
    /// How much of a program's stack a sample has: the outermost calls of a deeper one are cut off.
    #[arg(long, value_name = "BYTES", default_value_t = 16384, value_parser = clap::value_parser!(u64).range(64..=32768))]
    pub stack: u64,
    /// Record these events of a trace too, so that the profile shows what that costs (docs/trace.md); they are in the same file, for `cob trace report`.
    #[arg(long, value_name = "LIST", value_parser = super::trace::events)]
    pub trace: Option<String>,
    /// Memory for the samples of a CPU that the host has not read yet.
    #[arg(long, value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub ring: u64,
    /// Largest size of the file; what comes later is lost.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub limit: u64,
    #[command(flatten)]
    pub outputs: ProfileOutputs,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Tables of samples that were taken before, and other tools' formats.
    Report {
        /// The samples.
        #[arg(default_value = "cob.profile")]
        file: PathBuf,
        /// The tree that was --root when they were taken.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        #[command(flatten)]
        outputs: ProfileOutputs,
    },
}

#[derive(Debug, Clone, Args)]
pub struct ProfileOutputs {
    /// Draw a flame graph.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Each kernel has its own part of the flame graph.
    #[arg(long, requires = "svg")]
    pub per_kernel: bool,
    /// Write the text of `perf script`.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Only samples of this process, or of programs of this name.
    #[arg(long, value_name = "PID|NAME")]
    pub process: Option<String>,
    /// Rows of each table.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub lines: usize,
    /// Where programs that make code have left perf-PID.map (with --share /tmp, here).
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub jit_maps: PathBuf,
}
