//! The machines that are compared: the same QEMU command line but for the kernel and its words, the same initramfs,
//! and one serial line that carries what the program prints. No host link, no network, no disk but those of `disk`: what differs
//! is the kernel.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use tempfile::TempDir;

use super::content::Content;
use crate::cli::{Accel, BenchOptions, Disk, Link, Rival};
use crate::cpio::Archive;
use crate::prepare::kernel_image;
use crate::qmp::Questions;
use crate::vm::{self, Machine, Vm};

/// Settings that suit Linux under TCG best: there `rep movsb` is emulated byte by byte, and Linux takes it where the CPU says that
/// it is fast. Cob gets the same CPU.
pub const CPU: &str = "max,-erms,-fsrm";
const LINUX_WORDS: &str = "console=ttyS0 quiet mitigations=off rdinit=/init panic=-1";
/// Where Debian's kernel is unpacked, in the project.
pub const LINUX: &str = ".cob/linux";
const MEMORY: u64 = 1 << 30;

/// A kernel and how it is started.
#[derive(Clone, Debug)]
pub struct System {
    pub name: String,
    pub kernels: u16,
    kernel: PathBuf,
    words: String,
}

impl System {
    pub fn cob(kernels: u16) -> Result<System> {
        let name = if kernels == 1 { "Cob, 1 kernel".to_string() } else { format!("Cob, {kernels} kernels") };
        let kernel = kernel_image()?;
        if !kernel.is_file() {
            bail!("no kernel at {}: ./cob builds it", kernel.display());
        }
        Ok(System { name, kernels, kernel, words: format!("cob.kernels={kernels}") })
    }

    /// Cob with the numbers of kernels that are asked for, on so many CPUs, and Linux if it is asked for and to be had; and where
    /// that is among them.
    pub fn wanted(options: &BenchOptions, cpus: u16, project: &Path) -> Result<(Vec<System>, Option<usize>)> {
        let usual = if cpus > 1 { vec![cpus, 1] } else { vec![1] };
        let kernels = if options.kernels.is_empty() { &usual } else { &options.kernels };
        if let Some(many) = kernels.iter().find(|kernels| **kernels > cpus) {
            bail!("--kernels {many} needs at least as many --cpus, not {cpus}");
        }
        let mut systems = kernels.iter().map(|kernels| System::cob(*kernels)).collect::<Result<Vec<_>>>()?;
        if options.against == Some(Rival::Linux) {
            match System::linux(project) {
                Ok(linux) => {
                    let mitigated = options.mitigations.then(|| linux.clone().mitigated());
                    systems.push(linux);
                    systems.extend(mitigated);
                }
                Err(error) => println!("Debian's kernel is skipped, so there is nothing to compare with: {error:#}"),
            }
        }
        let linux = systems.iter().position(System::is_linux);
        Ok((systems, linux))
    }

    /// With one more word for its kernel. In front: Linux gives its init what it does not know itself, but forgets that at `rdinit=`.
    pub fn with_word(self, word: &str) -> System {
        System { words: format!("{word} {}", self.words), ..self }
    }

    /// The same, recording events: the newest stay, for nobody reads them.
    pub fn traced(&self, list: &str) -> System {
        let words = format!("{} cob.trace={list} cob.trace-full=overwrite", self.words);
        System { name: format!("{}, traced", self.name), words, ..self.clone() }
    }

    fn mitigated(self) -> System {
        System {
            name: format!("{}, mitigations", self.name),
            words: self.words.replace("mitigations=off", "mitigations=auto"),
            ..self
        }
    }

    pub fn is_linux(&self) -> bool {
        self.name.starts_with("Linux")
    }

    /// Debian's cloud kernel, fetched through apt but not installed.
    pub fn linux(project: &Path) -> Result<System> {
        let kernel = debian_kernel(&project.join(LINUX))?;
        let version = kernel.file_name().unwrap_or_default().to_string_lossy().replace("vmlinuz-", "");
        Ok(System { name: format!("Linux {version}"), kernels: 1, kernel, words: LINUX_WORDS.to_string() })
    }
}

/// How a machine is measured.
pub struct Setup {
    pub initramfs: PathBuf,
    pub cpus: u16,
    pub memory: u64,
    pub accel: Accel,
    /// QEMU's -plugin.
    pub plugin: Option<String>,
    /// See `vm::Machine`.
    pub counts_time: bool,
    pub patience: Duration,
    /// How often the serial line is looked at. Each look takes a CPU of the host from the machine that is measured.
    pub interval: Duration,
    _files: Arc<TempDir>,
}

impl Setup {
    /// Builds a static C program as /init of an initramfs.
    pub fn with_init(sources: &[PathBuf], flags: &[&str], cpus: u16, accel: Accel) -> Result<Setup> {
        Setup::linked(sources, flags, Link::Static, cpus, accel)
    }

    /// The same, or a dynamic one together with the libraries that it needs.
    pub fn linked(sources: &[PathBuf], flags: &[&str], link: Link, cpus: u16, accel: Accel) -> Result<Setup> {
        let files = vm::private_directory()?;
        let (init, initramfs) = (files.path().join("init"), files.path().join("initramfs.cpio"));
        let mut gcc = Command::new("gcc");
        if link == Link::Static {
            gcc.arg("-static");
        }
        // Libraries among the flags are searched for what the sources need.
        outcome(gcc.args(["-O2", "-o"]).arg(&init).args(sources).args(flags))?;
        let mut content = Content::default();
        if link == Link::Dynamic {
            content.libraries_of(&init)?;
        }
        fs::write(&initramfs, content.pack(Archive::with_init(&fs::read(&init)?)).finish())?;
        let (patience, interval) = (Duration::from_secs(180), Duration::from_millis(250));
        Ok(Setup {
            initramfs,
            cpus,
            memory: MEMORY,
            accel,
            plugin: None,
            counts_time: false,
            patience,
            interval,
            _files: Arc::new(files),
        })
    }

    /// The same program in an initramfs with more files.
    pub fn with_content(&self, content: Content) -> Result<Setup> {
        let files = vm::private_directory()?;
        let initramfs = files.path().join("initramfs.cpio");
        let init = fs::read(self._files.path().join("init"))?;
        fs::write(&initramfs, content.pack(Archive::with_init(&init)).finish())?;
        Ok(Setup { initramfs, plugin: self.plugin.clone(), _files: Arc::new(files), ..*self })
    }

    /// The same in a QEMU with a plugin.
    pub fn with_plugin(&self, plugin: String) -> Setup {
        let (initramfs, files) = (self.initramfs.clone(), Arc::clone(&self._files));
        Setup { initramfs, plugin: Some(plugin), patience: 5 * self.patience, _files: files, ..*self }
    }

    /// Starts a machine and looks at its serial line until `done` says what it was waiting for. Gives that and the time since
    /// the start.
    pub fn watch<T>(
        &self,
        system: &System,
        arguments: &str,
        mut done: impl FnMut(&str) -> Option<T>,
    ) -> Result<(T, Duration)> {
        self.watch_disks(system, arguments, Vec::new(), |text, _| done(text))
    }

    /// The same with disks, and QEMU can be asked something at each look.
    pub fn watch_disks<T>(
        &self,
        system: &System,
        arguments: &str,
        disks: Vec<Disk>,
        mut done: impl FnMut(&str, &mut Questions) -> Option<T>,
    ) -> Result<(T, Duration)> {
        let files = vm::private_directory()?;
        let log = files.path().join("serial.log");
        File::create(&log)?;
        let append =
            if arguments.is_empty() { system.words.clone() } else { format!("{} -- {arguments}", system.words) };
        let machine = Machine {
            kernel: system.kernel.clone(),
            append,
            initrd: Some(self.initramfs.clone()),
            cpu: CPU,
            cpus: self.cpus,
            nodes: 1,
            memory: self.memory,
            shared_memory: None,
            accel: self.accel,
            plugin: self.plugin.clone(),
            counts_time: self.counts_time,
            link: false,
            shares: Vec::new(),
            disks,
            log: log.clone(),
        };
        let start = Instant::now();
        let (mut vm, _link, monitor) = Vm::start(&machine, files)?;
        let mut monitor = Questions::start(monitor)?;
        loop {
            let ended = vm.ended()?;
            let text = fs::read(&log)?;
            let time = start.elapsed();
            let text = String::from_utf8_lossy(&text);
            if let Some(result) = done(&text, &mut monitor) {
                return Ok((result, time));
            }
            if let Some(status) = ended {
                bail!("{}: the machine ended ({status}): {}\n{}", system.name, vm.complaints(), last_lines(&text));
            }
            if time > self.patience {
                bail!("{}: not done after {:?}:\n{}", system.name, self.patience, last_lines(&text));
            }
            thread::sleep(self.interval);
        }
    }
}

fn last_lines(text: &str) -> String {
    crate::test::tail(text, 20)
}

/// All C files of a directory.
pub fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing = fs::read_dir(directory)?;
    let mut sources: Vec<PathBuf> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    Ok(sources)
}

fn debian_kernel(place: &Path) -> Result<PathBuf> {
    if let Some(kernel) = vmlinuz(place) {
        return Ok(kernel);
    }
    fs::create_dir_all(place)?;
    eprintln!("fetching Debian's linux-image-cloud-amd64 into {}", place.display());
    let depends = outcome(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.context("apt does not know linux-image-cloud-amd64 (apt-get update?)")?;
    outcome(Command::new("apt-get").args(["download", package]).current_dir(place))?;
    let listing = fs::read_dir(place)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let archive = listing.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.context("apt-get download left no package")?;
    outcome(Command::new("dpkg-deb").arg("-x").arg(archive).arg(place))?;
    vmlinuz(place).context("the package holds no kernel")
}

fn vmlinuz(place: &Path) -> Option<PathBuf> {
    let listing = fs::read_dir(place.join("boot")).ok()?;
    let mut names = listing.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    names.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))
}

pub(super) fn outcome(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| name.clone())?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
