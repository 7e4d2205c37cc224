//! From options to what the machine and the guest need. Everything that can be wrong is found here, before
//! anything starts.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{anyhow, bail, Context, Result};
use link::{Config, Rlimit, Root, Share, VERSION};
use nix::sys::resource::{getrlimit, Resource};
use nix::sys::stat::{umask, Mode};

use crate::cli::{Disk, MachineOptions, Placement};
use crate::program;
use crate::terminal::Terminal;
use crate::vm::{self, Machine};

/// The kernel image beside this program, where `./cob` builds it.
pub fn kernel_image() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("COB_KERNEL") {
        return Ok(PathBuf::from(path));
    }
    let this = std::env::current_exe().context("where is this program?")?;
    let target = this.ancestors().nth(2).context("this program is not in target/")?;
    Ok(target.join("x86_64-unknown-none/kernel/kernel"))
}

/// What to start, and what to tell the guest. The log's place is left to the caller.
pub fn prepare(options: &MachineOptions, argv: Vec<OsString>, terminal: &Terminal) -> Result<(Config, Machine)> {
    let (kernels, cpus) = options.shape().map_err(|complaint| anyhow!(complaint))?;
    let root = options.root.as_deref().map(directory).transpose()?;
    let mut env = environment(&options.env)?;
    let is_elsewhere = options.initramfs.is_some() || options.root_disk.is_some();
    if root.is_none() && !is_elsewhere {
        add_tools(&mut env);
    }
    let (cwd, program) = match is_elsewhere {
        true => (PathBuf::from("/"), inside(&argv[0])?),
        false => {
            let cwd = working_directory(root.as_deref())?;
            let path = env.iter().find_map(|word| word.as_bytes().strip_prefix(b"PATH=").map(OsStr::from_bytes));
            let program = program::find(&argv[0], root.as_deref(), path, &cwd)?;
            (cwd, program)
        }
    };
    let initrd = options.initramfs.as_deref().map(archive).transpose()?;

    let mut shares = Vec::new();
    if !is_elsewhere {
        shares.push((vm::ROOT_TAG.to_string(), root.clone().unwrap_or(PathBuf::from("/")), false));
    }
    for (index, share) in options.share.iter().enumerate() {
        shares.push((format!("share{index}"), directory(share)?, true));
    }
    let kernel = kernel_image()?;
    if !kernel.is_file() {
        bail!("no kernel at {}: ./cob builds it", kernel.display());
    }
    let mounts = shares
        .iter()
        .skip(usize::from(!is_elsewhere))
        .map(|(tag, path, _)| Share { tag: tag.clone().into(), path: bytes(path) });
    let mut config = Config {
        version: VERSION,
        program: bytes(program),
        argv: argv.into_iter().map(OsString::into_vec).collect(),
        env: env.into_iter().map(OsString::into_vec).collect(),
        cwd: bytes(cwd),
        tty: terminal.descriptors,
        winsize: terminal.size(),
        termios: terminal.settings(),
        root: Root::NineP { tag: vm::ROOT_TAG.into() },
        shares: mounts.collect(),
        stats: options.stats,
        ..caller()?
    };
    if is_elsewhere {
        config.root = if initrd.is_some() { Root::Initramfs } else { Root::Disk };
        (config.uid, config.gid, config.groups) = (0, 0, Vec::new());
    }
    let mut words = options.shake.map(|seed| format!(" cob.shake={seed}")).unwrap_or_default();
    if options.audit {
        words.push_str(" cob.audit=on");
    }
    if let Some(Placement::Pack) = options.placement {
        words += " cob.placement=pack";
    }
    if let Some(more) = &options.append {
        words = format!("{words} {more}");
    }
    let machine = Machine {
        kernel,
        append: format!("cob.kernels={kernels}{words}"),
        initrd,
        cpu: "max",
        cpus,
        nodes: options.nodes,
        memory: options.memory,
        shared_memory: None,
        accel: options.accel,
        plugin: None,
        counts_time: false,
        link: true,
        shares,
        disks: disks(options.root_disk.iter().chain(&options.disk))?,
        log: PathBuf::new(),
    };
    Ok((config, machine))
}

/// All disks, prepared. A log empties the file that it goes to, so that must be nothing else's.
fn disks<'a>(disks: impl Iterator<Item = &'a Disk>) -> Result<Vec<Disk>> {
    let disks = disks.map(prepared).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<&Path> = disks.iter().map(|disk| disk.file.as_path()).collect();
    for log in disks.iter().filter_map(|disk| disk.behaviour.as_ref()?.log.as_deref()) {
        if files.contains(&log) {
            bail!("{}: the log of a disk needs a file of its own", log.display());
        }
        files.push(log);
    }
    Ok(disks)
}

/// The disk with its files' whole paths. Its own file is made if it is to be and is not there.
fn prepared(disk: &Disk) -> Result<Disk> {
    let name = || disk.file.display().to_string();
    if let Some(size) = disk.size.filter(|_| !disk.file.exists()) {
        File::create(&disk.file).and_then(|file| file.set_len(size)).with_context(name)?;
    }
    let file = disk.file.canonicalize().with_context(name)?;
    OpenOptions::new().read(true).write(!disk.read_only).open(&file).with_context(name)?;
    let mut behaviour = disk.behaviour.clone();
    if let Some(log) = behaviour.as_mut().and_then(|behaviour| behaviour.log.as_mut()) {
        *log = log.canonicalize().or_else(|_| std::path::absolute(&log))?;
    }
    Ok(Disk { file, behaviour, ..disk.clone() })
}

/// The host does not look into an initramfs or a disk, so it cannot search a program there.
fn inside(program: &OsStr) -> Result<PathBuf> {
    let path = PathBuf::from(program);
    if !path.is_absolute() {
        bail!("{}: --initramfs and --root-disk need the program's whole path, such as /bin/sh", path.display());
    }
    Ok(path)
}

fn archive(path: &Path) -> Result<PathBuf> {
    let full = path.canonicalize().with_context(|| path.display().to_string())?;
    if !full.is_file() {
        bail!("{}: not a file", path.display());
    }
    Ok(full)
}

/// What the program inherits from the caller without being asked, and nothing to run.
pub fn caller() -> Result<Config> {
    let mask = umask(Mode::empty());
    umask(mask);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Config {
        version: VERSION,
        program: Vec::new(),
        argv: Vec::new(),
        env: Vec::new(),
        cwd: b"/".to_vec(),
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        groups: nix::unistd::getgroups()?.into_iter().map(|group| group.as_raw()).collect(),
        umask: mask.bits(),
        hostname: nix::unistd::gethostname()?.into_vec(),
        tty: [false; 3],
        winsize: None,
        termios: None,
        root: Root::Initramfs,
        shares: Vec::new(),
        stats: false,
        rlimits: limits(),
        unix_ns: now.as_nanos() as u64,
    })
}

fn limits() -> Vec<Rlimit> {
    let resources = [
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_STACK,
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_NPROC,
        Resource::RLIMIT_NOFILE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_AS,
    ];
    let limit = |resource: Resource| {
        let (soft, hard) = getrlimit(resource).ok()?;
        Some(Rlimit { resource: resource as u32 as u8, soft, hard })
    };
    resources.into_iter().filter_map(limit).collect()
}

fn bytes(path: impl Into<PathBuf>) -> Vec<u8> {
    path.into().into_os_string().into_vec()
}

fn directory(path: &Path) -> Result<PathBuf> {
    let full = path.canonicalize().with_context(|| path.display().to_string())?;
    if !full.is_dir() {
        bail!("{}: not a directory", path.display());
    }
    Ok(full)
}

/// The current directory; with another root its place in there, or `/`.
fn working_directory(root: Option<&Path>) -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory")?;
    let Some(root) = root else { return Ok(here) };
    Ok(match here.strip_prefix(root) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => PathBuf::from("/"),
    })
}

/// Puts the project's own tools for inside (`user/`: cobctl) at the end of PATH. Another root does not have them.
fn add_tools(env: &mut [OsString]) {
    let this = std::env::current_exe().unwrap_or_default();
    let Some(tools) = this.ancestors().nth(3).map(|project| project.join("user")) else { return };
    let path = env.iter_mut().find(|variable| variable.as_bytes().starts_with(b"PATH="));
    if let Some(path) = path.filter(|_| tools.is_dir()) {
        path.push(":");
        path.push(tools);
    }
}

/// The caller's variables in their order, changed by `--env K=V`.
fn environment(changes: &[OsString]) -> Result<Vec<OsString>> {
    let join = |name: &OsStr, value: &OsStr| {
        let mut variable = name.to_os_string();
        variable.push("=");
        variable.push(value);
        variable
    };
    let mut env: Vec<OsString> = std::env::vars_os().map(|(name, value)| join(&name, &value)).collect();
    for change in changes {
        let name = change.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        if name.is_empty() || name.len() == change.len() {
            bail!("--env {}: expected NAME=VALUE", change.display());
        }
        let prefix = [name, b"="].concat();
        match env.iter_mut().find(|variable| variable.as_bytes().starts_with(&prefix)) {
            Some(variable) => *variable = change.clone(),
            None => env.push(change.clone()),
        }
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_changed_in_place_or_added() {
        let changes = ["PATH=/only", "COB_NEW=a=b"].map(OsString::from);
        let env = environment(&changes).unwrap();
        let named = |name: &str| env.iter().filter(|v| v.as_bytes().starts_with(name.as_bytes())).count();
        assert!(env.contains(&OsString::from("PATH=/only")));
        assert_eq!((named("PATH="), named("COB_NEW=")), (1, 1));
        assert_eq!(env.last(), Some(&OsString::from("COB_NEW=a=b")));
        for bad in ["", "=x", "NAME"] {
            assert!(environment(&[OsString::from(bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_working_directory_inside_another_root() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(working_directory(None).unwrap(), here);
        assert_eq!(working_directory(Some(&here)).unwrap(), Path::new("/"));
        let parent = here.parent().unwrap();
        let name = here.file_name().unwrap();
        assert_eq!(working_directory(Some(parent)).unwrap(), Path::new("/").join(name));
        assert_eq!(working_directory(Some(Path::new("/proc"))).unwrap(), Path::new("/"));
    }

    #[test]
    fn what_the_caller_has_survives_the_link() {
        let config = caller().unwrap();
        assert!(config.rlimits.iter().any(|limit| limit.resource == 7 && limit.soft > 0));
        assert!(config.unix_ns > 1_600_000_000_000_000_000);
        assert!(config.to_messages().is_some());
    }
}
