//! From the start of QEMU to the first user program: Cob with 4 kernels against Debian's cloud kernel, in the
//! same machine with the same initramfs.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use link::{Config, Root};

use super::median;
use crate::cli::{BenchOptions, MachineOptions};
use crate::cpio::Archive;
use crate::prepare::{caller, kernel_image};
use crate::session::{self, Event, Streams};
use crate::test::project;
use crate::vm::{self, Machine, Vm};

const MARKER: &str = "COB-BENCH-INIT";
const KERNELS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(options: &BenchOptions) -> Result<()> {
    let project = project()?;
    let files = vm::private_directory()?;
    let init = files.path().join("init");
    outcome(
        Command::new("gcc")
            .args(["-O2", "-static", "-nostdlib", "-ffreestanding", "-o"])
            .arg(&init)
            .arg(project.join("crates/cob/src/bench/init.c")),
    )?;
    let initrd = files.path().join("initramfs.cpio");
    fs::write(&initrd, Archive::with_init(&fs::read(&init)?).finish())?;
    let linux = debian_kernel(&project.join(".cob/linux"))?;

    let (mut cob_times, mut linux_times) = (Vec::new(), Vec::new());
    // In turns, so that whatever else the machine does meets both.
    for _ in 0..options.runs {
        cob_times.push(cob(options, &initrd)?);
        linux_times.push(debian(options, &linux, &initrd)?);
    }
    let (cob, linux_time) = (median(cob_times), median(linux_times));
    println!("boot to the first user program, median of {}:", options.runs);
    println!("  cob, {KERNELS} kernels     {cob:8.3} s");
    println!("  {:<19} {linux_time:8.3} s", linux.file_name().unwrap_or_default().display());
    println!("  cob is {:.1} times as fast", linux_time / cob);
    Ok(())
}

fn machine(options: &BenchOptions, kernel: PathBuf, append: String, initrd: &Path, log: PathBuf) -> Machine {
    let usual = MachineOptions::defaults();
    Machine {
        kernel,
        append,
        initrd: Some(initrd.to_path_buf()),
        cpus: KERNELS,
        nodes: 1,
        memory: usual.memory,
        accel: options.accel,
        shares: Vec::new(),
        log,
    }
}

fn cob(options: &BenchOptions, initrd: &Path) -> Result<f64> {
    let files = vm::private_directory()?;
    let log = files.path().join("kernel.log");
    let append = format!("cob.kernels={KERNELS}");
    let machine = machine(options, kernel_image()?, append, initrd, log.clone());
    let config =
        Config { program: b"/init".to_vec(), argv: vec![b"/init".to_vec()], root: Root::Initramfs, ..caller()? };
    let (ours, theirs) = UnixStream::pair()?;
    let streams = Streams {
        stdin: File::open("/dev/null")?,
        stdout: File::from(OwnedFd::from(theirs)),
        stderr: File::create("/dev/null")?,
        tty: None,
    };
    let (sender, events) = channel();

    let start = Instant::now();
    let (_vm, stream) = Vm::start(&machine, files)?;
    let link = session::start(stream, streams, &sender)?;
    config.to_messages().context("config")?.iter().for_each(|part| link.send(part));
    ours.set_read_timeout(Some(PATIENCE))?;
    let mut line = vec![0; MARKER.len()];
    let read = (&ours).read_exact(&mut line);
    let time = start.elapsed().as_secs_f64();
    if read.is_err() || line != MARKER.as_bytes() {
        let ending = events.try_iter().find(|event| matches!(event, Event::End(_)));
        let log = fs::read(&log).unwrap_or_default();
        bail!("Cob did not reach the program ({ending:?}); its log:\n{}", String::from_utf8_lossy(&log));
    }
    Ok(time)
}

fn debian(options: &BenchOptions, kernel: &Path, initrd: &Path) -> Result<f64> {
    let files = vm::private_directory()?;
    let log = files.path().join("console.log");
    let append = "console=ttyS0 quiet rdinit=/init".to_string();
    let machine = machine(options, kernel.to_path_buf(), append, initrd, log.clone());
    File::create(&log)?;
    let start = Instant::now();
    let (vm, _stream) = Vm::start(&machine, files)?;
    loop {
        let console = fs::read(&log)?;
        let time = start.elapsed();
        if String::from_utf8_lossy(&console).contains(MARKER) {
            return Ok(time.as_secs_f64());
        }
        if time > PATIENCE {
            bail!("Debian's kernel did not start: {}\n{}", vm.complaints(), String::from_utf8_lossy(&console));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Debian's cloud kernel, fetched through apt but not installed.
fn debian_kernel(place: &Path) -> Result<PathBuf> {
    if let Some(kernel) = vmlinuz(place) {
        return Ok(kernel);
    }
    fs::create_dir_all(place)?;
    println!("fetching Debian's linux-image-cloud-amd64 into {}", place.display());
    let depends = outcome(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.context("linux-image-cloud-amd64: apt does not know it (apt-get update?)")?;
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

fn outcome(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| name.clone())?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
