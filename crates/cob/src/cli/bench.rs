//! What `cob bench` takes, and where it writes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::Accel;

#[derive(Debug, Args)]
pub struct BenchOptions {
    /// [default: all]
    #[arg(value_enum)]
    pub what: Option<Bench>,
    /// Runs of each, in turns; medians count. scale: always one.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub runs: u16,
    /// streams, disk, umt: machines of each system, in turns; the median of the pairs of Cob and Linux counts.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub pairs: u16,
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    pub accel: Accel,
    /// micro, npb, scale, streams, disk, umt: what Cob is held against beside itself.
    #[arg(long, value_enum)]
    pub against: Option<Rival>,
    /// micro, npb: Linux with its mitigations too; without, it is started with mitigations=off.
    #[arg(long, requires = "against")]
    pub mitigations: bool,
    /// micro, npb, streams, disk, umt: numbers of kernels on the same CPUs [default: 1 and the number of CPUs].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=255))]
    pub kernels: Vec<u16>,
    /// CPUs of every machine [default: 2; scale: 1,2,4,8,16].
    #[arg(long, value_name = "M,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=255))]
    pub cpus: Vec<u16>,
    /// npb: IS, FT and CG with Open MPI and MPICH too, with as many ranks as threads (MPICH: at most as CPUs).
    #[arg(long, conflicts_with = "link")]
    pub mpi: bool,
    /// npb: numbers of threads.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub threads: Vec<u16>,
    /// npb: sizes of the problems.
    #[arg(
        long,
        value_enum,
        value_name = "CLASS,...",
        value_delimiter = ',',
        default_value = "s,w",
        ignore_case = true
    )]
    pub class: Vec<Class>,
    /// npb: no times, but how often threads fault and move and how many messages that takes: machines of as many CPUs and threads as kernels [default: 1,2,4], once.
    #[arg(long, conflicts_with_all = ["against", "cpus", "threads", "svg"])]
    pub counts: bool,
    /// npb: how the program is linked with libgomp and libc.
    #[arg(long, value_enum, default_value_t = Link::Static)]
    pub link: Link,
    /// disk: counts instructions, too, on one more machine of each system, which a plugin makes slow.
    #[arg(long)]
    pub instructions: bool,
    /// umt: microseconds that the disk takes for a request of S1 and S3; for others less.
    #[arg(long, value_name = "US", default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(..=60_000_000))]
    pub delay: u64,
    /// umt: what a task costs on this machine itself, beside rayon and libgomp; no machines.
    #[arg(long, conflicts_with_all = ["against", "kernels", "cpus", "svg"])]
    pub tasks: bool,
    /// micro: shows for each row the functions of Cob's kernels in which most instructions are.
    #[arg(long)]
    pub profile: bool,
    /// micro: Cob once more, recording these events (docs/trace.md), and what one costs.
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = super::trace::events)]
    pub traced: Option<String>,
    /// micro, streams, disk, umt: only rows, npb: only workloads, scale: only loops whose name contains one of these.
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Write the measured values to FILE; of several benches to DIR/BENCH.json.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the tables to FILE; of several benches to DIR/BENCH.md.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// npb, scale, umt: draw plots into FILE; of several benches to DIR/BENCH.svg.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl BenchOptions {
    /// Whether something of this name was asked for.
    pub fn picks(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The CPUs of a bench that needs one number.
    pub fn one_cpus(&self) -> u16 {
        self.cpus.iter().copied().max().unwrap_or(2)
    }

    /// Writes a bench's results where an option wants them, if it does.
    pub fn write(&self, place: &Option<PathBuf>, bench: &str, ending: &str, text: &str) -> Result<()> {
        let Some(place) = place else { return Ok(()) };
        if self.several() {
            fs::create_dir_all(place)?;
            return Ok(fs::write(place.join(format!("{bench}.{ending}")), text)?);
        }
        Ok(fs::write(place, text)?)
    }

    /// Whether results can be written where they are wanted, before hours of measuring.
    pub fn check_places(&self) -> Result<()> {
        for place in [&self.json, &self.markdown, &self.svg].into_iter().flatten() {
            let tried = match self.several() {
                true => fs::create_dir_all(place),
                false => fs::OpenOptions::new().append(true).create(true).open(place).map(drop),
            };
            tried.with_context(|| place.display().to_string())?;
        }
        Ok(())
    }

    pub fn several(&self) -> bool {
        matches!(self.what, None | Some(Bench::All))
    }
}

/// Sizes of the NAS Parallel Benchmarks; of BFS and LUD those of Rodinia that are like them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Class {
    S,
    W,
    A,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Link {
    Static,
    Dynamic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// From the start of QEMU to the first user program; against Debian's cloud kernel unless apt has none.
    Boot,
    /// Memory and host CPU of an idle machine of 4 kernels.
    Idle,
    /// The lanes between kernels, as two threads of this machine, beside rtrb and crossbeam-channel.
    Fabric,
    /// What single operations cost.
    Micro,
    /// The papers' workloads: NPB IS, FT, CG, BFS, LU decomposition, with OpenMP; with --mpi the first three with MPI too.
    Npb,
    /// What talks through pipes and sockets: round trips, bandwidth, redis, PostgreSQL, hackbench, make.
    Streams,
    /// Programs that read and write files on a disk, and what reaches it: fio, many small files, tar, sqlite, PostgreSQL, git.
    Disk,
    /// Programs whose threads wait for a slow disk: with user-monitored threads, without, and on Linux with several numbers of threads.
    Umt,
    /// What makes a kernel stop scaling: cache lines that travel between CPUs, counted, and the time that would take.
    Scale,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    /// Debian's linux-image-cloud-amd64, fetched through apt.
    Linux,
}
