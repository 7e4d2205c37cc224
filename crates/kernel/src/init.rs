//! Runs the program that the host asked for, and ends the machine with it. What process 1 does on a Linux machine
//! is done by the kernel here: orphans are adopted and reaped by crate `process`. There is one to be looked at.

use crate::{audit, console, control, report, root, services::Kernel, watch};
use abi::{
    signal::{Signal, SignalInfo},
    Capabilities, CpuSet, Credentials,
};
use alloc::{format, string::String, sync::Arc, vec, vec::Vec};
use dev::{
    link::{Event, Link},
    streams::{keyboard, Screen, Sink, Stdin},
};
use fs::{
    stream::StreamFile,
    tty::{Terminals, Tty},
    Base, File, OpenFlags, PathAnswer, PathOp, Paths,
};
use link::{Config, ExitStatus, Output};
use machine::{errno::Result, Errno, KernelId, Pid};
use messages::control::Stock;
use messages::process::{ExitStatus as Ended, Shared, ThreadState, RESOURCES};
use process::{Process, Program, Target, Thread};

/// Default limits of Linux (fs/exec, include/asm-generic/resource.h), by number.
const LIMITS: [(u64, u64); RESOURCES] = {
    let infinite = (u64::MAX, u64::MAX);
    let mut limits = [infinite; RESOURCES];
    limits[3] = (8 << 20, u64::MAX);
    limits[4] = (0, u64::MAX);
    limits[6] = (4096, 4096);
    limits[7] = (1024, 1 << 20);
    limits[8] = (8 << 20, 8 << 20);
    limits[11] = (4096, 4096);
    limits[12] = (819_200, 819_200);
    limits[13] = (0, 0);
    limits[14] = (0, 0);
    limits
};

pub fn start(kernel: &'static Kernel) {
    kernel.scheduler.spawn(async move {
        let devices = root::DeviceSet::open(kernel);
        let Some(link) = devices.link.clone() else { return without_host(kernel, &devices).await };
        let config = match link.config().await {
            Ok(config) => config,
            Err(error) => return log::error!("the host's wishes are not understood: {error:?}"),
        };
        kernel.system.begin(config.unix_ns, config.hostname.clone());
        match run(kernel, &devices, Some(&link), &config).await {
            Ok((status, before)) => {
                if config.stats {
                    link.stats(&report::statistics(kernel).await);
                }
                let leak = match before {
                    Some(before) => audit::compare(kernel, &before).await,
                    None => None,
                };
                // The host ends the machine as soon as it hears of the end.
                platform::flush_log();
                match leak {
                    Some(leak) => link.panicked(&leak).await,
                    None => link.exit(status).await,
                }
            }
            Err((error, what)) => link.cannot_run(error, &what).await,
        }
        link.flush().await;
        platform::panic::exit_machine(0);
    });
}

/// An initramfs and a serial line are enough.
async fn without_host(kernel: &'static Kernel, devices: &root::DeviceSet) {
    let config = console::config(kernel);
    kernel.system.begin(0, config.hostname.clone());
    match run(kernel, devices, None, &config).await {
        Ok((status, _)) => log::info!("the first program has ended: {status:?}"),
        Err((error, what)) => log::error!("no link to a host, and nothing to run: {what}: {error:?}"),
    }
    platform::panic::exit_machine(0);
}

type Failure = (Errno, String);

/// What every kernel had before the first program.
type Before = Vec<(KernelId, Stock)>;

async fn run(
    kernel: &'static Kernel,
    devices: &root::DeviceSet,
    link: Option<&Arc<Link>>,
    config: &Config,
) -> core::result::Result<(ExitStatus, Option<Before>), Failure> {
    let because = |what: &'static str| move |error: Errno| (error, String::from(what));
    let (paths, terminals) = root::mount(kernel, devices, config).await?;
    kernel.paths.set(paths.clone());
    control::gather(kernel).await;
    init(kernel, &paths).await.map_err(because("process 1"))?;
    let before = match kernel.audit {
        true => Some(audit::stocks(kernel).await),
        false => None,
    };
    let thread = first_thread(kernel, &paths, config).await.map_err(because("the working directory"))?;
    let process = thread.process.clone();
    let tty = standard_files(kernel, &terminals, link, config, &thread).await.map_err(because("standard streams"))?;
    let program = program(kernel, config, &thread)
        .await
        .map_err(|error| (error, format!("{}", config.program.escape_ascii())))?;
    let registers = kernel
        .system
        .load_first(&thread, program)
        .await
        .map_err(|error| (error, format!("{}", config.program.escape_ascii())))?;
    if let Some(link) = link {
        kernel.scheduler.spawn(events(kernel, link.clone(), tty, process.id));
        link.ready();
        watch::tell_host(kernel, link.clone());
    }
    log::info!("running {} as process {}", config.program.escape_ascii(), process.id);
    kernel.system.launch_first(&thread, registers);
    drop(thread);
    let ended = process.ended().await;
    // What the program wrote to a share reaches the host before the machine ends.
    if let Err(error) = paths.close().await {
        log::error!("writing back what is dirty: {error:?}");
    }
    let status = match ended {
        Ended::Code(code) => ExitStatus::Exited(code),
        Ended::Signal { signal, .. } => ExitStatus::Signaled(signal.number()),
    };
    Ok((status, before))
}

async fn init(kernel: &'static Kernel, paths: &Arc<fs::LocalPaths>) -> Result<()> {
    let mut shared = Shared::first(LIMITS, Vec::new());
    (shared.parent, shared.executed) = (Pid(0), false);
    let mut state = ThreadState::first(credentials_of(0, 0, Vec::new()), every_cpu(kernel), 0);
    state.name = b"init".to_vec();
    kernel.system.make_init(shared, paths.root().await?, state).await
}

fn credentials_of(uid: u32, gid: u32, groups: Vec<u32>) -> Credentials {
    let effective = Capabilities::of_user(uid).permitted;
    Credentials { uid, euid: uid, suid: uid, fsuid: uid, gid, egid: gid, sgid: gid, fsgid: gid, groups, effective }
}

/// As on Linux: also CPUs that may come later (`cobctl boot`).
fn every_cpu(kernel: &Kernel) -> CpuSet {
    kernel.plan.kernels.iter().flat_map(|partition| partition.cpus.iter().copied()).collect()
}

async fn first_thread(kernel: &'static Kernel, paths: &Arc<fs::LocalPaths>, config: &Config) -> Result<Arc<Thread>> {
    let system = &kernel.system;
    let credentials = credentials_of(config.uid, config.gid, config.groups.clone());
    let mut limits = LIMITS;
    for limit in &config.rlimits {
        if let Some(slot) = limits.get_mut(usize::from(limit.resource)) {
            *slot = process::taken_over(usize::from(limit.resource), (limit.soft, limit.hard));
        }
    }
    let mut shared = Shared::first(limits, config.program.clone());
    (shared.umask, shared.started) = (config.umask, system.now());
    let state = ThreadState::first(credentials, every_cpu(kernel), system.now());
    let root = paths.root().await?;
    let base = Base::new(root.clone(), root.clone());
    let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
    let open = PathOp::Open { path: config.cwd.clone(), flags, mode: 0, resolve: 0 };
    let cwd = match paths.run(&root::system_caller(), &base, open).await? {
        PathAnswer::File(file) => file,
        _ => return Err(Errno::ENOTDIR),
    };
    system.first_process(shared, root, cwd, state).await
}

/// Descriptors 0, 1 and 2: the terminal, or streams over the link; without a link the serial line.
async fn standard_files(
    kernel: &'static Kernel,
    terminals: &Arc<Terminals>,
    link: Option<&Arc<Link>>,
    config: &Config,
    thread: &Arc<Thread>,
) -> Result<Option<Arc<Tty>>> {
    let process: &Arc<Process> = &thread.process;
    let caller = process.caller(thread);
    let Some(link) = link else {
        for fd in 0..3 {
            let file: Arc<dyn File> = match fd {
                0 => StreamFile::reader(&caller, Arc::new(console::Nothing::default())),
                _ => StreamFile::writer(&caller, Arc::new(console::Serial::default())),
            };
            process.files().add(file, 0, false, u64::MAX).await?;
        }
        return Ok(None);
    };
    let mut tty = None;
    if config.tty.contains(&true) {
        let screen = Screen::new(link.clone());
        let console = terminals.make_console(screen.clone());
        kernel.scheduler.spawn(screen.run(console.clone()));
        if config.tty[0] {
            kernel.scheduler.spawn(keyboard(link.clone(), console.clone()));
        }
        tty = Some(console);
    }
    for fd in 0..3 {
        let file: Arc<dyn File> = match (config.tty[fd], fd) {
            (true, _) => terminals.open_console(&caller, OpenFlags::RDWR, None)?,
            (false, 0) => StreamFile::reader(&caller, Arc::new(Stdin(link.clone()))),
            (false, 1) => StreamFile::writer(&caller, Arc::new(Sink { link: link.clone(), output: Output::Stdout })),
            (false, _) => StreamFile::writer(&caller, Arc::new(Sink { link: link.clone(), output: Output::Stderr })),
        };
        if config.tty[fd] {
            set_up_terminal(&*file, &caller, config).await;
        }
        process.files().add(file, 0, false, u64::MAX).await?;
    }
    Ok(tty)
}

/// The terminal as the host has it: modes and size.
async fn set_up_terminal(file: &dyn File, caller: &fs::Caller, config: &Config) {
    const TCSETS: u32 = 0x5402;
    const TIOCSWINSZ: u32 = 0x5414;
    if let Some(termios) = &config.termios {
        let _ = file.ioctl(caller, TCSETS, &mut termios.clone()).await;
    }
    if let Some(size) = config.winsize {
        let _ = file.ioctl(caller, TIOCSWINSZ, &mut window_bytes(size.rows, size.cols)).await;
    }
}

fn window_bytes(rows: u16, columns: u16) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes[..2].copy_from_slice(&rows.to_le_bytes());
    bytes[2..4].copy_from_slice(&columns.to_le_bytes());
    bytes
}

async fn program(kernel: &'static Kernel, config: &Config, thread: &Arc<Thread>) -> Result<Program> {
    let directories = thread.process.directories().await?;
    let base = Base::new(directories.root, directories.cwd);
    let caller = thread.process.caller(thread);
    let path = config.program.clone();
    let access = PathOp::Access { path: path.clone(), mode: 1, effective: true, follow: true, empty_ok: false };
    kernel.system.paths.run(&caller, &base, access).await?;
    let open = PathOp::Open { path: path.clone(), flags: OpenFlags::empty(), mode: 0, resolve: 0 };
    match kernel.system.paths.run(&caller, &base, open).await? {
        PathAnswer::File(file) => {
            Ok(Program { file, path, closes: false, arguments: config.argv.clone(), environment: config.env.clone() })
        }
        _ => Err(Errno::EIO),
    }
}

/// Signals and window changes from the host.
async fn events(kernel: &'static Kernel, link: Arc<Link>, tty: Option<Arc<Tty>>, first: Pid) {
    loop {
        match link.event().await {
            Event::Signal(number) => {
                let Some(signal) = Signal::new(u64::from(number)) else { continue };
                let group = tty.as_ref().and_then(|tty| tty.foreground());
                let target = group.map_or(Target::Process(first), Target::Group);
                let _ = kernel.system.signal(target, Some(SignalInfo::kernel(signal)), None, Pid(0)).await;
            }
            Event::Resize { rows, cols } => {
                if let Some(tty) = &tty {
                    tty.resize(rows, cols);
                }
            }
            Event::Inspect => report::tell(kernel, link.clone()),
            Event::Activity => report::show_activity(kernel, link.clone()),
            Event::Lost => {
                log::error!("the host is gone");
                platform::panic::exit_machine(1);
            }
        }
    }
}
