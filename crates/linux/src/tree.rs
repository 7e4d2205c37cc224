//! The tree that every program finds, over whatever root: devices, /proc, /sys, and terminals that ask processes about
//! sessions and groups.

use crate::{pseudo_file_systems, Pseudo};
use abi::signal::{Signal, SignalInfo};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    devfs::{devtmpfs, DevMounter, Devices},
    ext4::Ext4Mounter,
    inode::Mounter,
    tmpfs::{TmpMounter, Tmpfs},
    tty::{Background, JobControl, Terminals},
    Caller, FileSystem, LocalPaths, Services,
};
use machine::{errno::Result, BoxFuture, Pid};
use process::{System, Target};
use sched::Timers;

/// The root, and what can be mounted in it.
pub struct Tree {
    pub paths: Arc<LocalPaths>,
    pub terminals: Arc<Terminals>,
    services: Arc<Services>,
    devices: Arc<Devices>,
    pseudo: Vec<Pseudo>,
}

/// The file systems of a kernel that does not own the root: what is mounted there. Devices are opened where the root is, but for fifos.
pub fn without_root(services: &Arc<Services>) -> Arc<LocalPaths> {
    let paths = LocalPaths::without_root(services.clone());
    paths.devices.set_fifo(Arc::new(|opening| Box::pin(fs::pipe::open_node(opening))));
    paths.register_kind("tmpfs", Arc::new(TmpMounter { services: services.clone() }));
    paths
}

impl Tree {
    /// `root` with nothing mounted in it, and devices for the disks that `ext4` mounts; programs can mount the rest by its names.
    pub fn new(
        system: &Arc<System>,
        services: &Arc<Services>,
        root: Arc<dyn FileSystem>,
        ext4: Arc<Ext4Mounter>,
    ) -> Tree {
        let disks = ext4.disks().clone();
        let timers = Arc::new(FileTimers(system.scheduler.timers().clone()));
        let terminals = Terminals::new(Arc::new(Jobs(system.clone())), timers);
        let devices = Arc::new(Devices::default());
        fs::chardev::register(&devices, &terminals, &system.cpu, services);
        fs::block::register(services, &disks, &devices);
        let paths = LocalPaths::new(services.clone(), root, devices.clone());
        let pseudo = pseudo_file_systems(system, services, &paths, &terminals, &disks);
        paths.register_kind("tmpfs", Arc::new(TmpMounter { services: services.clone() }));
        let devtmpfs = DevMounter { services: services.clone(), devices: devices.clone() };
        paths.register_kind("devtmpfs", Arc::new(devtmpfs));
        paths.register_kind("ext4", ext4);
        for (_, tree, name) in &pseudo {
            paths.register_kind(name, Arc::new(TheOne(tree.clone())));
        }
        Tree { paths, terminals, services: services.clone(), devices, pseudo }
    }

    /// Mounts /dev, /dev/shm and the trees that show the machine.
    pub async fn mount(self, caller: &Caller) -> Result<()> {
        let devices = devtmpfs(&self.services, &self.devices).await?;
        self.attach(caller, b"/dev", devices, b"devtmpfs").await;
        self.attach(caller, b"/dev/shm", Tmpfs::new(&self.services, 0o1777), b"tmpfs").await;
        for (path, tree, name) in &self.pseudo {
            self.attach(caller, path.as_bytes(), tree.clone(), name.as_bytes()).await;
        }
        Ok(())
    }

    /// A tree whose directory the root does not have is left out: the log says so.
    async fn attach(&self, caller: &Caller, path: &[u8], tree: Arc<dyn FileSystem>, name: &[u8]) {
        if let Err(error) = self.paths.attach(caller, path, tree, name, 0).await {
            log::warn!("{}: {error:?}", path.escape_ascii());
        }
    }
}

/// `mount -t proc` and its kin: the same tree wherever it is mounted.
struct TheOne(Arc<dyn FileSystem>);

impl Mounter for TheOne {
    fn mount<'a>(
        &'a self,
        _source: &'a [u8],
        _data: &'a [u8],
        _read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        fs::file::ready(Ok(self.0.clone()))
    }
}

/// Timers for files.
pub(crate) struct FileTimers(pub Arc<Timers>);

impl fs::event::Timers for FileTimers {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn at(&self, ns: u64) -> BoxFuture<'static, ()> {
        Box::pin(self.0.sleep_until(ns))
    }
}

/// What terminals ask about processes.
struct Jobs(Arc<System>);

impl Jobs {
    fn send(&self, target: Target, signal: Signal) {
        let system = self.0.clone();
        self.0.scheduler.spawn(async move {
            // A group that is gone needs no signal.
            let _ = system.signal(target, Some(SignalInfo::kernel(signal)), None, Pid(0)).await;
        });
    }
}

impl JobControl for Jobs {
    fn signal_group(&self, group: Pid, signal: Signal) {
        self.send(Target::Group(group), signal);
    }

    fn signal_process(&self, process: Pid, signal: Signal) {
        self.send(Target::Process(process), signal);
    }

    fn background<'a>(&'a self, caller: &'a Caller, signal: Signal) -> BoxFuture<'a, Background> {
        Box::pin(async move {
            if self.0.ignores(caller.process, caller.thread, signal).await {
                return Background::Ignored;
            }
            if self.0.is_orphaned(caller.group, caller.session).await {
                return Background::Orphaned;
            }
            self.send(Target::Group(caller.group), signal);
            Background::Signalled
        })
    }

    fn session_of(&self, group: Pid) -> BoxFuture<'_, Option<Pid>> {
        Box::pin(self.0.session_of_group(group))
    }
}
