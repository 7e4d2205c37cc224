//! The command line. `bench`, `fuzz`: the options of `cob bench` and `cob fuzz`.

mod bench;
mod disk;
mod fuzz;
mod profile;
mod top;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use bench::{Bench, BenchOptions, Class, Link, Rival};
pub use disk::{CutOptions, Disk, DiskCommand, DiskOptions};
pub use fuzz::FuzzOptions;
pub use profile::{ProfileCommand, ProfileOptions, ProfileOutputs};
pub use top::TopOptions;
pub use trace::{TraceCommand, TraceOptions, TraceOutputs};

/// Boots a machine of many kernels and runs Linux programs across them.
#[derive(Debug, Parser)]
#[command(name = "cob", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program of this machine (or of --root) inside.
    Run(RunOptions),
    /// An interactive busybox shell inside.
    Shell(MachineOptions),
    /// Run a program inside and record what the kernels do.
    Trace(Box<TraceOptions>),
    /// Run a program inside and say where it and the kernels spend their time.
    Profile(Box<ProfileOptions>),
    /// Show what the kernels and threads of a running machine do, as bars.
    Top(TopOptions),
    /// Power cuts of disks: see `cob disk --help`.
    // Without a command of its own, the complaint names those that there are.
    #[command(arg_required_else_help = false)]
    Disk(DiskOptions),
    /// All tests, or some: check, unit, sim, guest.
    Test(TestOptions),
    /// Random programs on simulated kernels, on this machine: see `cob sim --help`.
    Sim(SimOptions),
    /// Random programs of system calls inside, without privileges: nothing may break.
    Fuzz(FuzzOptions),
    /// Measurements.
    Bench(BenchOptions),
}

#[derive(Debug, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub struct MachineOptions {
    /// Number of kernels [default: 4, or the number of CPUs if that is less].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub kernels: Option<u16>,
    /// Number of CPUs [default: 4, or the number of kernels if that is more].
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub cpus: Option<u16>,
    /// Number of NUMA nodes.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Memory of the machine, such as 512M or 4G.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory_size)]
    pub memory: u64,
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    pub accel: Accel,
    /// Another tree in place of this machine's files.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// An initramfs (cpio, newc) in place of this machine's files; the program runs as root in it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "share"])]
    pub initramfs: Option<PathBuf>,
    /// A disk whose file system (ext4) is the root, in place of this machine's files: what is written there stays. It is /dev/vda, and takes the options of --disk; the program runs as root in it.
    #[arg(long, value_name = "FILE[,serial=NAME]", value_parser = disk::disk, conflicts_with_all = ["root", "initramfs"])]
    pub root_disk: Option<Disk>,
    /// Set a variable for the program, beyond those of the caller; may be repeated.
    #[arg(long, value_name = "K=V")]
    pub env: Vec<OsString>,
    /// Make DIR writable for the program; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    #[arg(long, value_name = disk::VALUE, value_parser = disk::disk, help = disk::HELP)]
    pub disk: Vec<Disk>,
    /// End the machine after so many seconds, with status 124.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Print at the end what every kernel did, on stderr.
    #[arg(long)]
    pub stats: bool,
    /// Keep the kernels' log in FILE.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Fault injection: threads move, borrowed pages go, messages come late at random.
    #[arg(long, value_name = "SEED")]
    pub shake: Option<u64>,
    /// Look for leaks and wrong page tables when the program has ended; status 125 if there are any.
    #[arg(long)]
    pub audit: bool,
    /// Spread threads and programs over the kernels (the default), or fill one kernel after the other.
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// Words for the kernel command line, such as cob.partition=node.
    #[arg(long, value_name = "WORDS")]
    pub append: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    Spread,
    Pack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// KVM where the CPU has hardware virtualization and /dev/kvm opens, else TCG.
    Auto,
    Kvm,
    Tcg,
}

#[derive(Debug, Args)]
pub struct TestOptions {
    /// check, unit, sim or guest [default: all].
    #[arg(value_enum)]
    pub stage: Option<TestStage>,
    /// Only tests whose name contains one of these.
    pub names: Vec<String>,
    /// Guest tests at the same time.
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Guest tests only with so many kernels.
    #[arg(long, value_name = "N")]
    pub kernels: Option<u16>,
    /// All of it, guest tests on 2 kernels and with fault injection, and campaigns of seeds and calls: many hours. Started again on the same commit, it
    /// goes on where it was; the report is for CHANGELOG.md.
    #[arg(long, conflicts_with_all = ["stage", "names", "kernels", "shake", "seeds"])]
    pub long: bool,
    /// Guest tests on 4 kernels with the fault injection of `cob run --shake SEED`, and audited.
    #[arg(long, value_name = "SEED")]
    pub shake: Option<u64>,
    /// So many seeds, from --shake's (or 1) on.
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
}

impl TestOptions {
    /// The seeds to shake with; none: the usual run.
    pub fn seeds(&self) -> Vec<u64> {
        let first = self.shake.unwrap_or(1);
        match (self.shake, self.seeds) {
            (None, None) => Vec::new(),
            (_, count) => (first..first.saturating_add(count.unwrap_or(1))).collect(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TestStage {
    /// Formatting, lints, where unsafe code may be.
    Check,
    /// Tests of the crates on this machine.
    Unit,
    /// The simulator.
    Sim,
    /// Linux programs in the virtual machine, compared with this machine's Linux.
    Guest,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SimOptions {
    /// What crates/sim/src/main.rs takes, such as --seeds N.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// The commands and their options, as clap describes them.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Why there is no command: help was asked for, or something is wrong.
pub struct Stop(clap::Error);

impl Stop {
    pub fn show(self) -> ExitCode {
        if !self.0.use_stderr() {
            let _ = self.0.print();
            return ExitCode::SUCCESS;
        }
        eprintln!("cob: {}", self.line());
        ExitCode::from(crate::status::USAGE)
    }

    /// Clap explains itself in several lines; the first paragraph is what went wrong.
    fn line(&self) -> String {
        let text = self.0.to_string();
        let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let line = paragraph.join(" ");
        match line.strip_prefix("error: ") {
            Some(message) => message.to_string(),
            None => "a command is missing: run, shell, trace, profile, top, disk, test, sim, fuzz or bench (--help explains)"
                .to_string(),
        }
    }
}

pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, Stop> {
    Cli::try_parse_from(args).map(|cli| cli.command).map_err(Stop)
}

/// `512M`, `4G`, `1GiB`; a bare number is MiB as in QEMU. At least 64 MiB.
fn memory_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if bytes < 64 << 20 {
        return Err("a machine needs at least 64M".to_string());
    }
    Ok(bytes)
}

/// The same without a least size.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| "expected a size such as 512M or 4G".to_string())?;
    let shift = match text[digits..].to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" | "m" => 20,
        "k" => 10,
        "g" => 30,
        "t" => 40,
        unit => return Err(format!("unknown unit {unit:?}")),
    };
    Ok(number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 46).ok_or("too large")?)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(seconds),
        _ => Err("expected a number of seconds".to_string()),
    }
}

impl MachineOptions {
    /// Kernels and CPUs, each in the light of the other.
    pub fn shape(&self) -> Result<(u16, u16), String> {
        let cpus =
            self.cpus.unwrap_or(self.kernels.unwrap_or(4).max(4)).max(if self.cpus.is_none() { self.nodes } else { 1 });
        let kernels = self.kernels.unwrap_or(4.min(cpus));
        if kernels > cpus {
            return Err(format!("--kernels {kernels} needs at least as many CPUs, not {cpus}"));
        }
        if self.nodes > cpus {
            return Err(format!("--nodes {} needs at least as many CPUs, not {cpus}", self.nodes));
        }
        Ok((kernels, cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Stop> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn machine(line: &str) -> MachineOptions {
        match parsed(line) {
            Ok(Command::Run(options)) => options.machine,
            other => panic!("{line}: {:?}", other.err().map(|stop| stop.line())),
        }
    }

    fn complaint(line: &str) -> String {
        parsed(line).err().unwrap_or_else(|| panic!("{line} parsed")).line()
    }

    #[test]
    fn options_of_the_program_are_not_ours() {
        for line in ["cob run --kernels 2 -- sort -n --stats", "cob run --kernels 2 sort -n --stats"] {
            let Ok(Command::Run(options)) = parsed(line) else { panic!("{line}") };
            assert_eq!(options.program, ["sort", "-n", "--stats"]);
            assert!(!options.machine.stats);
            assert_eq!(options.machine.kernels, Some(2));
        }
    }

    #[test]
    fn kernels_and_cpus_follow_each_other() {
        assert_eq!(machine("cob run true").shape(), Ok((4, 4)));
        assert_eq!(machine("cob run --kernels 16 true").shape(), Ok((16, 16)));
        assert_eq!(machine("cob run --cpus 2 true").shape(), Ok((2, 2)));
        assert_eq!(machine("cob run --kernels 2 --cpus 8 true").shape(), Ok((2, 8)));
        assert_eq!(machine("cob run --nodes 8 true").shape(), Ok((4, 8)));
        assert!(machine("cob run --kernels 3 --cpus 2 true").shape().is_err());
        assert!(machine("cob run --cpus 2 --nodes 4 true").shape().is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(memory_size("512M"), Ok(512 << 20));
        assert_eq!(memory_size("2GiB"), Ok(2 << 30));
        assert_eq!(memory_size("256"), Ok(256 << 20));
        for bad in ["", "M", "1X", "16M", "-1G", "99999999999999999999G", "9999999T"] {
            assert!(memory_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_complaint_is_one_clear_line() {
        for line in [
            "cob",
            "cob run",
            "cob fly",
            "cob run --kernels 0 true",
            "cob run --memory 1X true",
            "cob run --accel hvf true",
            "cob run --bogus true",
            "cob run --timeout -1 true",
            "cob top --interval 0",
            "cob top --machine me",
            "cob run --disk d,errors=often true",
            "cob disk",
            "cob disk cut --log l --image i --output o --tear 1000",
        ] {
            let complaint = complaint(line);
            assert!(!complaint.is_empty() && !complaint.contains('\n'), "{line}: {complaint}");
        }
        assert!(complaint("cob run --bogus true").contains("--bogus"));
        assert!(complaint("cob run").contains("PROGRAM"));
        assert!(complaint("cob disk").contains("cut, log"));
    }
}
