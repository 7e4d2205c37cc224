//! The rows in groups that share a disk; the programs, which are built here, and the images.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::bench::content::{installed, Content};
use crate::bench::disk;
use crate::bench::machines::{outcome, sources, Setup, LINUX};
use crate::cli::{BenchOptions, Disk};
use crate::disk::Behaviour;
use crate::test::cargo::cargo;
use crate::vm;

#[derive(Clone, Copy, Debug)]
pub enum Group {
    /// The synthetic benchmark with little to compute.
    Synthetic,
    /// The same with much.
    Computing,
    Fwi,
    Keys,
}

const PROGRAMS: [&str; 3] = ["synthetic", "fwi", "kvserver"];

/// So many requests does the disk serve at the same time. QEMU, which is its client, sends no more before one is answered (MAX_NBD_REQUESTS of its block/nbd.c).
pub const DEPTH: NonZeroUsize = NonZeroUsize::new(16).unwrap();

impl Group {
    pub const ALL: [Group; 4] = [Group::Synthetic, Group::Computing, Group::Fwi, Group::Keys];

    pub fn rows(self) -> &'static [&'static str] {
        match self {
            Group::Synthetic => &["S1", "S3-60", "S3-240", "S3-720", "S3-2000", "S3-6000"],
            Group::Computing => &["S2"],
            Group::Fwi => &[
                "fwi-none",
                "fwi-fdatasync",
                "fwi-multifile",
                "fwi-mmap",
                "fwi-nocache",
                "fwi-none-sequential",
                "fwi-mmap-sequential",
                "fwi-none-group",
                "fwi-fdatasync-group",
                "fwi-multifile-group",
                "fwi-mmap-group",
            ],
            Group::Keys => &["kvserver"],
        }
    }

    /// Of the machine. The server's file must not fit into it.
    pub fn memory(self) -> u64 {
        match self {
            Group::Synthetic | Group::Computing | Group::Fwi => 1 << 30,
            Group::Keys => 352 << 20,
        }
    }

    /// What a request takes, if the slowest take so long: with one worker a CPU the CPUs shall idle as in the thesis. The seismic code computes more, and waits for one thing after the
    /// other.
    pub fn delay(self, slowest: Duration) -> Duration {
        match self {
            Group::Synthetic => slowest,
            Group::Keys => slowest * 6 / 10,
            Group::Computing => slowest * 45 / 100,
            Group::Fwi => slowest / 8,
        }
    }

    /// Whose row that is.
    pub fn of(row: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.rows().contains(&row))
    }

    fn image_bytes(self) -> &'static str {
        match self {
            Group::Synthetic | Group::Computing | Group::Fwi => "192M",
            Group::Keys => "512M",
        }
    }

    /// What is on the disk before the first row: made by the programs, on this machine.
    fn fill(self, programs: &Path, tree: &Path) -> Result<()> {
        let make = |program: &str, name: &str, words: &[&str]| {
            let mut command = Command::new(programs.join(program));
            outcome(command.arg(tree.join(name)).args(words).env("COB_TASKS", "baseline")).map(drop)
        };
        match self {
            Group::Synthetic | Group::Computing => make("synthetic", "file", &["S1", "tasks=1", "bytes=33554432"]),
            Group::Fwi => Ok(()),
            // 384 MiB, as tests/bench/umt/umt.c says.
            Group::Keys => make("kvserver", "keys", &["keys=98304", "connections=1", "requests=1"]),
        }
    }
}

/// Builds the programs. Where they are.
pub fn build(project: &Path) -> Result<PathBuf> {
    let mut build = cargo(project);
    build.args(["build", "--quiet", "--release", "-p", "cob-tasks", "--examples"]);
    outcome(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    Ok(target.join("release/examples"))
}

pub fn setup(project: &Path, programs: &Path, cpus: u16, options: &BenchOptions) -> Result<Setup> {
    let bench = project.join("tests/bench");
    let sources = [sources(&bench.join("umt"))?, sources(&bench.join("common"))?].concat();
    let mut content = Content::default();
    disk::modules(&project.join(LINUX), &mut content)?;
    for program in PROGRAMS {
        content.copy(&programs.join(program), &format!("/umt/{program}"))?;
        content.libraries_of(&programs.join(program))?;
    }
    Setup::with_init(&sources, &["-std=gnu11"], cpus, options.accel)?.with_content(content)
}

/// An image with ext4 that is the same each time, and of which no inode table is left for the kernel to zero.
pub struct Image {
    file: PathBuf,
    _files: TempDir,
}

impl Image {
    pub fn make(group: Group, programs: &Path) -> Result<Image> {
        installed(&["/usr/sbin/mkfs.ext4"], "e2fsprogs")?;
        let files = vm::private_directory()?;
        let (file, tree) = (files.path().join("disk.img"), files.path().join("tree"));
        fs::create_dir(&tree)?;
        group.fill(programs, &tree)?;
        disk::make_ext4(&tree, &file, group.image_bytes())?;
        fs::remove_dir_all(&tree)?;
        Ok(Image { file, _files: files })
    }

    /// A fresh copy in that directory.
    pub fn copy(&self, place: &Path) -> Result<PathBuf> {
        let copy = place.join("disk.img");
        outcome(Command::new("cp").arg("--sparse=always").arg(&self.file).arg(&copy))?;
        Ok(copy)
    }
}

/// A file as a disk that answers so late, and serves [`DEPTH`] requests at the same time.
pub fn disk(file: &Path, delay: Duration) -> Disk {
    let behaviour = Behaviour { delay, depth: Some(DEPTH), ..Behaviour::default() };
    Disk { behaviour: Some(behaviour), ..disk::plain(file) }
}
