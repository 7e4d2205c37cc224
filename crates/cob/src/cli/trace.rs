//! The options of `cob trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::MachineOptions;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct TraceOptions {
    #[command(subcommand)]
    pub command: Option<TraceCommand>,
    /// What to record: names of events and groups (docs/trace.md), `-NAME` for all but that, `none` until the program asks (cobctl trace on).
    #[arg(long, value_name = "LIST", default_value = "all", allow_hyphen_values = true, value_parser = events)]
    pub events: String,
    /// Record on these kernels only, such as 0,2-3.
    #[arg(long, value_name = "LIST", value_parser = kernels)]
    pub on: Option<Kernels>,
    /// Where the trace goes.
    #[arg(long, short, value_name = "FILE", default_value = "cob.trace")]
    pub output: PathBuf,
    /// Memory for the events of a CPU that the host has not read yet.
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    pub ring: u64,
    /// When that is full, lose the oldest events and not the newest.
    #[arg(long)]
    pub overwrite: bool,
    /// Largest size of the file; what comes later is lost.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub limit: u64,
    /// Print the events on stderr while they come.
    #[arg(long)]
    pub follow: bool,
    #[command(flatten)]
    pub outputs: TraceOutputs,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Figures of a trace, a line for each CPU, and other tools' formats.
    Report {
        /// The trace.
        #[arg(default_value = "cob.trace")]
        file: PathBuf,
        /// Print the events, a line each, instead of the figures.
        #[arg(long)]
        list: bool,
        /// Look for what can't be, such as a thread on two CPUs at once; status 1 if there is any.
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        outputs: TraceOutputs,
    },
}

#[derive(Debug, Clone, Args)]
pub struct TraceOutputs {
    /// Only events of this process, or of programs of this name.
    #[arg(long, value_name = "PID|NAME")]
    pub process: Option<String>,
    /// Write Common Trace Format 1.8 with LTTng's names into DIR (babeltrace2, Trace Compass).
    #[arg(long, value_name = "DIR")]
    pub ctf: Option<PathBuf>,
    /// Write FILE for https://ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Draw threads and CPUs over time.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Kernels, and the list as it was written.
#[derive(Debug, Clone)]
pub struct Kernels {
    pub list: String,
    pub largest: u16,
}

fn kernels(list: &str) -> Result<Kernels, String> {
    let range = |part: &str| -> Option<u16> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(last)
    };
    let lasts: Option<Vec<u16>> = list.split(',').map(range).collect();
    let largest = lasts.and_then(|lasts| lasts.into_iter().max()).ok_or("not a list of kernels, such as 0,2-3")?;
    Ok(Kernels { list: list.to_string(), largest })
}

pub fn events(list: &str) -> Result<String, String> {
    match trace::select(list) {
        Ok(_) => Ok(list.to_string()),
        Err(trace::UnknownEvent(name)) => Err(format!("there is no event or group {name} (docs/trace.md lists them)")),
    }
}
