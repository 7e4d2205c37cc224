//! QEMU: the command line of the machine, and a process that never outlives us.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::sys::socket::{setsockopt, socketpair, sockopt, AddressFamily, SockFlag, SockType};
use tempfile::TempDir;

use crate::cli::{Accel, Disk};
use crate::disk::Server;
use crate::trace::GuestMemory;

/// Larger than all windows of the link together with what control frames can add: see `link::Window`.
const SOCKET_BUFFER: usize = 1 << 20;

/// How long a QEMU that has let go of the link may take to end.
const MOMENT: Duration = Duration::from_secs(2);

pub const ROOT_TAG: &str = "root";

/// What there is to know to start a machine.
pub struct Machine {
    pub kernel: PathBuf,
    pub append: String,
    pub initrd: Option<PathBuf>,
    /// QEMU's -cpu.
    pub cpu: &'static str,
    pub cpus: u16,
    pub nodes: u16,
    pub memory: u64,
    /// Memory that this program can read, in place of QEMU's own.
    pub shared_memory: Option<GuestMemory>,
    pub accel: Accel,
    /// QEMU's -plugin. All CPUs then run in one thread, in turns.
    pub plugin: Option<String>,
    /// Time is what the CPUs have executed (-icount), so that a run is the same each time. With a plugin only.
    pub counts_time: bool,
    /// Whether there is a device for the link; without it there is the serial line only.
    pub link: bool,
    /// Mount tag, directory, writable.
    pub shares: Vec<(String, PathBuf, bool)>,
    pub disks: Vec<Disk>,
    pub log: PathBuf,
}

/// A running machine. Dropping it ends it.
pub struct Vm {
    child: Child,
    errors: PathBuf,
    // After the child, which is their client.
    _disks: Vec<Server>,
    // After the child, so that the files go when nobody writes them any more.
    _files: TempDir,
}

/// How the names of private directories begin.
pub const PRIVATE_PREFIX: &str = "cob-";

/// Where private directories are made, the best place first. The first may be someone else's after su.
pub fn private_places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    runtime.into_iter().chain([std::env::temp_dir()]).collect()
}

/// A private directory for the files of one run; gone when dropped.
pub fn private_directory() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PRIVATE_PREFIX).permissions(fs::Permissions::from_mode(0o700));
    let made = private_places().into_iter().find_map(|place| builder.tempdir_in(place).ok());
    made.map_or_else(|| builder.tempdir(), Ok).context("cannot make a private directory")
}

impl Vm {
    /// Starts the machine and gives the host's ends of the link and of QEMU's own line of commands.
    pub fn start(machine: &Machine, files: TempDir) -> Result<(Vm, UnixStream, UnixStream)> {
        let pair = || socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
        let ((ours, theirs), (our_monitor, monitor)) = (pair()?, pair()?);
        // What QEMU sends waits in the buffer of its own end. Root may exceed the system's maximum.
        if setsockopt(&theirs, sockopt::SndBufForce, &SOCKET_BUFFER).is_err() {
            setsockopt(&theirs, sockopt::SndBuf, &SOCKET_BUFFER)?;
        }
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
        fcntl(&monitor, FcntlArg::F_SETFD(FdFlag::empty()))?;

        let disks = serve(&machine.disks, files.path())?;
        let errors = files.path().join("qemu.err");
        let mut command = with_parent_death_signal("KILL", qemu());
        command.args(arguments(machine, &theirs, &monitor, files.path())?);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        // Its own process group: Ctrl-C is for the program, not for QEMU.
        command.process_group(0);
        let child = command.spawn().with_context(|| {
            format!("cannot start {} (./cob installs what is missing)", command.get_program().to_string_lossy())
        })?;
        drop((theirs, monitor));
        Ok((Vm { child, errors, _disks: disks, _files: files }, UnixStream::from(ours), UnixStream::from(our_monitor)))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// How it ended, if it does so by itself within a moment.
    pub fn wait_a_moment(&mut self) -> Option<ExitStatus> {
        let give_up = Instant::now() + MOMENT;
        loop {
            match self.ended() {
                Ok(None) if Instant::now() < give_up => thread::sleep(Duration::from_millis(10)),
                ended => return ended.ok().flatten(),
            }
        }
    }

    pub fn end(&mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// What QEMU itself complained about.
    pub fn complaints(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default().trim().to_string()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.end();
    }
}

/// The QEMU to start: `COB_QEMU`, or Debian's.
pub fn qemu() -> OsString {
    std::env::var_os("COB_QEMU").unwrap_or_else(|| "qemu-system-x86_64".into())
}

/// Its major version, as it says itself.
pub fn qemu_version() -> Option<u32> {
    let output = Command::new(qemu()).arg("--version").output().ok()?;
    version_of(&String::from_utf8_lossy(&output.stdout))
}

fn version_of(text: &str) -> Option<u32> {
    text.split_once("version ")?.1.split('.').next()?.parse().ok()
}

/// If we are killed, QEMU must go too: `signal` ("KILL") is what it then gets. Only the new process itself can ask the kernel for
/// that, before exec; util-linux's setpriv does it, so this crate needs no unsafe code after fork.
pub fn with_parent_death_signal(signal: &str, program: impl AsRef<OsStr>) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    command
}

/// Where the disk of this number is served, if it is.
fn disk_socket(files: &Path, index: usize) -> PathBuf {
    files.join(format!("disk{index}"))
}

/// Starts the servers of those disks that QEMU does not open itself.
fn serve(disks: &[Disk], files: &Path) -> Result<Vec<Server>> {
    let serve = |(index, disk): (usize, &Disk)| {
        let behaviour = disk.behaviour.as_ref()?;
        Some(Server::start(disk, behaviour, &disk_socket(files, index)))
    };
    disks.iter().enumerate().filter_map(serve).collect()
}

/// `files`: the private directory of the run.
fn arguments(machine: &Machine, link: &OwnedFd, monitor: &OwnedFd, files: &Path) -> Result<Vec<OsString>> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    let accel = match &machine.plugin {
        Some(_) => "tcg,thread=single",
        None if use_kvm(machine.accel)? => "kvm",
        None => "tcg,thread=multi",
    };
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-machine", "q35", "-cpu", machine.cpu, "-accel", accel]);
    add(&["-smp", &machine.cpus.to_string(), "-m", &format!("{}K", machine.memory >> 10)]);
    add(&["-kernel", text(&machine.kernel)?, "-append", &machine.append]);
    if let Some(plugin) = &machine.plugin {
        add(&["-plugin", plugin]);
    }
    if machine.counts_time {
        // 8 ns an instruction; a CPU that sleeps costs no time. What RDRAND and the clock on the wall say is the same each time, too.
        add(&["-icount", "shift=3,sleep=off", "-seed", "1", "-rtc", "base=2000-01-01T00:00:00,clock=vm"]);
    }
    if let Some(initrd) = &machine.initrd {
        add(&["-initrd", text(initrd)?]);
    }
    add(&["-chardev", &format!("file,id=log,path={}", option_text(&machine.log)?), "-serial", "chardev:log"]);
    add(&["-chardev", &format!("socket,id=qmp,fd={}", monitor.as_raw_fd()), "-mon", "chardev=qmp,mode=control"]);
    add(&["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
    if machine.link {
        add(&["-chardev", &format!("socket,id=link,fd={}", link.as_raw_fd())]);
        add(&["-device", "virtio-serial-pci,max_ports=1,disable-legacy=on", "-device", "virtconsole,chardev=link"]);
    }
    for (index, (tag, directory, writable)) in machine.shares.iter().enumerate() {
        let readonly = if *writable { "off" } else { "on" };
        let path = option_text(directory)?;
        add(&[
            "-fsdev",
            &format!("local,id=fs{index},security_model=none,multidevs=remap,readonly={readonly},path={path}"),
            "-device",
            &format!("virtio-9p-pci,fsdev=fs{index},mount_tag={tag},disable-legacy=on"),
        ]);
    }
    for (index, disk) in machine.disks.iter().enumerate() {
        let source = match disk.behaviour {
            Some(_) => format!("file.driver=nbd,file.path={}", option_text(&disk_socket(files, index))?),
            None => format!("file={}", option_text(&disk.file)?),
        };
        let readonly = if disk.read_only { "on" } else { "off" };
        let serial = if disk.serial.is_empty() { String::new() } else { format!(",serial={}", disk.serial) };
        add(&[
            "-drive",
            &format!("if=none,id=disk{index},format=raw,discard=unmap,readonly={readonly},{source}"),
            "-device",
            &format!("virtio-blk-pci,drive=disk{index},disable-legacy=on{serial}"),
        ]);
    }
    if let Some(shared) = machine.shared_memory.as_ref().filter(|_| machine.nodes < 2) {
        let object = backend(0, machine.memory >> 10, Some(shared));
        add(&["-object", &object, "-machine", "memory-backend=mem0"]);
    }
    for node in numa_nodes(machine.nodes, machine.cpus, machine.memory, machine.shared_memory.as_ref()) {
        add(&node.each_ref().map(String::as_str));
    }
    for distance in numa_distances(machine.nodes) {
        add(&["-numa", &distance]);
    }
    Ok(args)
}

/// How far nodes are from each other, where they stand in a ring: 10 to itself, 21 to a neighbour, and 10 more for each further step, as
/// common machines of four or eight sockets say (ACPI 6.5, 5.2.17).
fn numa_distances(nodes: u16) -> Vec<String> {
    let mut lines = Vec::new();
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from && nodes > 1) {
            let apart = from.abs_diff(to);
            let steps = apart.min(nodes - apart);
            lines.push(format!("dist,src={from},dst={to},val={}", (11 + 10 * steps).min(254)));
        }
    }
    lines
}

/// The bytes of each node.
pub fn node_sizes(nodes: u64, memory: u64) -> Vec<u64> {
    let (nodes, mebibytes) = (nodes.max(1), memory >> 20);
    let part = |node: u64| mebibytes / nodes + u64::from(node < mebibytes % nodes);
    // QEMU wants the sizes to add up to -m exactly; the odd kibibytes go with the first node.
    let odd = |node: u64| if node == 0 { (memory % (1 << 20)) & !1023 } else { 0 };
    (0..nodes).map(|node| (part(node) << 20) + odd(node)).collect()
}

/// The memory of a node, as QEMU's -object.
fn backend(node: usize, kibibytes: u64, shared: Option<&GuestMemory>) -> String {
    match shared {
        Some(shared) => {
            let path = shared.path(node);
            format!("memory-backend-file,id=mem{node},size={kibibytes}K,mem-path={path},share=on")
        }
        None => format!("memory-backend-ram,id=mem{node},size={kibibytes}K"),
    }
}

/// Memory and CPUs in equal contiguous parts; what does not divide goes to the first nodes.
fn numa_nodes(nodes: u16, cpus: u16, memory: u64, shared: Option<&GuestMemory>) -> Vec<[String; 4]> {
    if nodes < 2 {
        return Vec::new();
    }
    let (nodes, cpus) = (u64::from(nodes), u64::from(cpus));
    let sizes = node_sizes(nodes, memory);
    let part = |total: u64, node: u64| total / nodes + u64::from(node < total % nodes);
    let mut first_cpu = 0;
    let mut one = |node: u64| {
        let last_cpu = first_cpu + part(cpus, node) - 1;
        let object = backend(node as usize, sizes[node as usize] >> 10, shared);
        let numa = format!("node,nodeid={node},memdev=mem{node},cpus={first_cpu}-{last_cpu}");
        first_cpu = last_cpu + 1;
        ["-object".to_string(), object, "-numa".to_string(), numa]
    };
    (0..nodes).map(&mut one).collect()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: QEMU needs a name in UTF-8", path.display()))
}

/// Inside an option list of QEMU a comma is written twice.
fn option_text(path: &Path) -> Result<String> {
    Ok(text(path)?.replace(',', ",,"))
}

/// A /dev/kvm without hardware virtualization exists (nested emulation, an instruction at a time): the CPU decides.
pub fn use_kvm(accel: Accel) -> Result<bool> {
    let opens = || OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    match accel {
        Accel::Tcg => Ok(false),
        Accel::Kvm if opens() => Ok(true),
        Accel::Kvm => bail!("--accel kvm: /dev/kvm does not open"),
        Accel::Auto => {
            let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            Ok(has_virtualization(&cpuinfo) && opens())
        }
    }
}

fn has_virtualization(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_may_enter_a_private_directory() {
        let directory = private_directory().unwrap();
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version_of("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"), Some(10));
        assert_eq!(version_of("QEMU emulator version 7.2.22"), Some(7));
        assert_eq!(version_of("nothing"), None);
    }

    #[test]
    fn kvm_is_the_cpus_decision() {
        assert!(has_virtualization("processor: 0\nflags\t\t: fpu vmx sse\n"));
        assert!(has_virtualization("flags: svm\n"));
        assert!(!has_virtualization("flags: fpu sse svm_lock vmx_x\nvmx flags: ept\n"));
        assert!(!has_virtualization(""));
    }

    #[test]
    fn nodes_share_everything_out() {
        assert!(numa_nodes(1, 4, 1 << 30, None).is_empty());
        let nodes = numa_nodes(3, 8, 1 << 30, None);
        let cpus: Vec<&str> = nodes.iter().map(|node| node[3].split("cpus=").nth(1).unwrap()).collect();
        assert_eq!(cpus, ["0-2", "3-5", "6-7"]);
        let size = |node: &[String; 4]| -> u64 {
            node[1].split("size=").nth(1).unwrap().trim_end_matches('K').parse().unwrap()
        };
        assert_eq!(nodes.iter().map(size).sum::<u64>(), 1 << 20);
    }

    #[test]
    fn commas_in_names_do_not_end_an_option() {
        assert_eq!(option_text(Path::new("/a,b")).unwrap(), "/a,,b");
    }
}
