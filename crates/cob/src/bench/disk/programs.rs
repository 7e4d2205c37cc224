//! The rows in groups that need the same programs; those programs, and the images that they work on, from this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::bench::content::{installed, Content};
use crate::bench::machines::outcome;
use crate::bench::postgres;
use crate::cli::Disk;
use crate::vm;

#[derive(Clone, Copy, Debug)]
pub enum Group {
    Fio,
    Files,
    Sqlite,
    Postgres,
    Git,
}

/// Debian's kernel has the driver of the disk as modules.
const MODULES: [&str; 6] =
    ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"];
const SIZE: &str = "1G";
const UUID: &str = "5eed5eed-5eed-4eed-8eed-5eed5eed5eed";
/// What git collects: so many commits, each of which changes a third of the files.
const COMMITS: u64 = 25;
const FILES: u64 = 60;
const LINES: u64 = 150;

impl Group {
    pub const ALL: [Group; 5] = [Group::Fio, Group::Files, Group::Sqlite, Group::Postgres, Group::Git];

    pub fn rows(self) -> &'static [&'static str] {
        match self {
            Group::Fio => &[
                "read-1",
                "read-32",
                "write-1",
                "write-32",
                "random-read-1",
                "random-read-32",
                "random-write-1",
                "random-write-32",
                "direct-read-1",
                "direct-read-32",
                "direct-write-1",
                "direct-write-32",
                "direct-random-read-1",
                "direct-random-read-32",
                "direct-random-write-1",
                "direct-random-write-32",
                "fsync-4k",
                "mapped-read-64",
            ],
            Group::Files => &["tree-create", "tree-read", "tar-create", "tar-extract", "tree-delete", "rewrite"],
            Group::Sqlite => &["sqlite-delete", "sqlite-wal"],
            Group::Postgres => &["pgbench"],
            Group::Git => &["git-gc"],
        }
    }

    /// What the machines have beside the program. An error says what is missing here.
    pub fn content(self, linux: &Path) -> Result<Content> {
        let mut content = Content::default();
        modules(linux, &mut content)?;
        let (programs, package): (&[&str], &str) = match self {
            Group::Fio => (&["/usr/bin/fio"], "fio"),
            Group::Files => (&["/usr/bin/tar", "/usr/bin/rm"], "tar"),
            Group::Sqlite => (&["/usr/bin/sqlite3"], "sqlite3"),
            Group::Postgres => (&[], ""),
            Group::Git => (&["/usr/bin/git"], "git"),
        };
        installed(programs, package)?;
        programs.iter().try_for_each(|program| content.program(program))?;
        if matches!(self, Group::Postgres) {
            postgres::programs(&mut content)?;
        }
        Ok(content)
    }

    /// What is on the disk before the first row.
    fn fill(self, tree: &Path) -> Result<()> {
        match self {
            Group::Fio | Group::Files | Group::Sqlite => Ok(()),
            Group::Postgres => postgres::cluster(&tree.join("pgdata")),
            Group::Git => repository(&tree.join("repo")),
        }
    }
}

/// None if Debian's kernel is not there, because nobody compares with it.
pub fn modules(linux: &Path, content: &mut Content) -> Result<()> {
    let Ok(mut versions) = fs::read_dir(linux.join("lib/modules")) else { return Ok(()) };
    let Some(version) = versions.next() else { return Ok(()) };
    let all = outcome(Command::new("find").arg(version?.path()).args(["-name", "*.ko"]))?;
    for name in MODULES {
        let file = format!("{name}.ko");
        let path = all.lines().find(|path| path.ends_with(&format!("/{file}")));
        let path = path.with_context(|| format!("Debian's kernel has no {file}"))?;
        content.copy(Path::new(path), &format!("/modules/{file}"))?;
    }
    Ok(())
}

/// An image with ext4 as Debian's mke2fs makes it, but that it is the same each time, and that no inode table is left for the kernel to zero while something
/// is measured.
pub struct Image {
    file: PathBuf,
    _files: TempDir,
}

impl Image {
    pub fn make(group: Group) -> Result<Image> {
        installed(&["/usr/sbin/mkfs.ext4"], "e2fsprogs")?;
        let files = vm::private_directory()?;
        let (file, tree) = (files.path().join("disk.img"), files.path().join("tree"));
        fs::create_dir(&tree)?;
        // Who runs initdb must get there.
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o711))?;
        group.fill(&tree)?;
        make_ext4(&tree, &file, SIZE)?;
        Ok(Image { file, _files: files })
    }

    /// A fresh copy in that directory.
    pub fn copy(&self, place: &Path) -> Result<PathBuf> {
        let copy = place.join("disk.img");
        outcome(Command::new("cp").arg("--sparse=always").arg(&self.file).arg(&copy))?;
        Ok(copy)
    }
}

/// ext4 with what is in a directory. No inode table is left to be zeroed later, and the same directory gives the same image.
pub fn make_ext4(tree: &Path, file: &Path, size: &str) -> Result<()> {
    let mut mkfs = Command::new("/usr/sbin/mkfs.ext4");
    mkfs.args(["-q", "-F", "-U", UUID, "-E"]);
    mkfs.arg(format!("lazy_itable_init=0,lazy_journal_init=0,hash_seed={UUID}"));
    outcome(mkfs.arg("-d").arg(tree).arg(file).arg(size)).map(drop)
}

/// A file as a disk of the machine.
pub fn disk(file: &Path) -> Disk {
    Disk { file: file.into(), read_only: false, serial: String::new(), size: None, behaviour: None }
}

/// Commits whose objects are all loose, the same each time.
fn repository(place: &Path) -> Result<()> {
    fs::create_dir(place)?;
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "gc.auto=0", "-c", "user.name=b", "-c", "user.email=b@localhost"]).args(arguments);
        command.current_dir(place).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let date = "1700000000 +0000";
        outcome(command.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date))
    };
    git(&["init", "--quiet", "--template=", "--initial-branch=main"])?;
    for commit in 0..COMMITS {
        for file in (0..FILES).filter(|file| commit == 0 || (file + commit).is_multiple_of(3)) {
            let line = |line: u64| {
                // One line in eight is another in each commit.
                let version = if (line + commit).is_multiple_of(8) { commit } else { 0 };
                let word = (file * LINES + line + version * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                format!("line {line} of file {file}: {word:016x}\n")
            };
            fs::write(place.join(format!("file-{file}")), (0..LINES).map(line).collect::<String>())?;
        }
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", &format!("commit {commit}")])?;
    }
    Ok(())
}
