//! The root file system and /dev, on the kernel that has the devices: the host's files (read-only, over 9P)
//! under a layer in memory that takes the writes; or an initramfs, which is that layer alone, and where nothing is mounted
//! before its first program does it, as on Linux.

use crate::{
    services::{FileTimers, Kernel},
    terminal::Jobs,
};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use dev::{link::Link, ninep};
use fs::{
    devfs::{devtmpfs, DevMounter, Devices},
    initramfs,
    namespace::Mounter,
    ninep::{Options, Share},
    tmpfs::{TmpMounter, Tmpfs},
    tty::Terminals,
    union::Union,
    Caller, FileSystem, LocalPaths,
};
use link::{Config, Root};
use machine::{errno::Result, BoxFuture, Errno, Pid};
use platform::virtio;

/// The devices of the machine, opened by the kernel they are assigned to.
pub struct DeviceSet {
    pub link: Option<Arc<Link>>,
    pub shares: Vec<(Vec<u8>, Arc<dyn machine::Exchange>)>,
}

impl DeviceSet {
    pub fn open(kernel: &Kernel) -> DeviceSet {
        let cpu = kernel.system.cpu.cpus()[0];
        let mut set = DeviceSet { link: None, shares: Vec::new() };
        for found in virtio::find(kernel.plan.topology.ecam) {
            let name = alloc::format!("{found}");
            if found.is_console() {
                match found.console(cpu) {
                    Ok(console) => set.link = Some(Link::start(console, &*kernel.spawner)),
                    Err(error) => log::error!("{name}: {error}"),
                }
            } else if found.is_ninep() {
                match found.ninep(cpu) {
                    Ok((configuration, queue)) => match ninep::mount_tag(&configuration) {
                        Some(tag) => set.shares.push((tag.clone(), Arc::new(ninep::Server::new(tag, queue)))),
                        None => log::error!("{name}: no mount tag"),
                    },
                    Err(error) => log::error!("{name}: {error}"),
                }
            }
        }
        set
    }

    fn share(&self, tag: &[u8]) -> Result<Arc<dyn machine::Exchange>> {
        self.shares.iter().find(|(known, _)| known == tag).map(|(_, server)| server.clone()).ok_or(Errno::ENODEV)
    }
}

/// Builds the tree that `config` asks for.
pub async fn mount(
    kernel: &'static Kernel,
    devices: &DeviceSet,
    config: &Config,
) -> core::result::Result<(Arc<LocalPaths>, Arc<Terminals>), (Errno, String)> {
    let failed = |error| (error, String::from("mounting the root"));
    let services = &kernel.services;
    let tree: Arc<dyn FileSystem> = match &config.root {
        Root::NineP { tag } => {
            let share = devices.share(tag).map_err(failed)?;
            let lower = Share::attach(share, services, Options::default()).await.map_err(failed)?;
            Union::new(services, lower, Tmpfs::new(services, 0o755)).map_err(failed)?
        }
        Root::Initramfs => Tmpfs::new(services, 0o755),
    };
    let timers = Arc::new(FileTimers(kernel.scheduler.timers().clone()));
    let terminals = Terminals::new(Arc::new(Jobs(kernel.system.clone())), timers);
    let nodes = Arc::new(Devices::default());
    fs::chardev::register(&nodes, &terminals, &kernel.system.cpu, services);
    let paths = LocalPaths::new(services.clone(), tree, nodes.clone());
    let pseudo = linux::pseudo_file_systems(&kernel.system, services, &paths, &terminals);
    paths.register_kind("tmpfs", Arc::new(TmpMounter { services: services.clone() }));
    paths.register_kind("devtmpfs", Arc::new(DevMounter { services: services.clone(), devices: nodes.clone() }));
    for (_, tree, name) in &pseudo {
        paths.register_kind(name, Arc::new(TheOne(tree.clone())));
    }
    if config.root == Root::Initramfs {
        let archive = platform::initramfs::take()
            .ok_or((Errno::ENODEV, String::from("mounting the root: the machine was given no initramfs")))?;
        let names = initramfs::unpack(&*paths, archive.bytes())
            .await
            .map_err(|failure| (Errno::EINVAL, format!("mounting the root: {failure}")))?;
        log::info!("initramfs: {names} names, {} KiB", archive.bytes().len() >> 10);
        return Ok((paths, terminals));
    }
    let system = system_caller();
    let dev = devtmpfs(services, &nodes).await.map_err(failed)?;
    attach(&paths, &system, b"/dev", dev, b"devtmpfs").await;
    attach(&paths, &system, b"/dev/shm", Tmpfs::new(services, 0o1777), b"tmpfs").await;
    for (path, tree, name) in pseudo {
        attach(&paths, &system, path.as_bytes(), tree, name.as_bytes()).await;
    }
    for share in &config.shares {
        let server = devices.share(&share.tag).map_err(failed)?;
        let tree = Share::attach(server, services, Options::default()).await.map_err(failed)?;
        paths.attach(&system, &share.path, tree, &share.path, 0).await.map_err(failed)?;
    }
    Ok((paths, terminals))
}

/// `mount -t proc` and its kin: the same tree wherever it is mounted.
struct TheOne(Arc<dyn FileSystem>);

impl Mounter for TheOne {
    fn mount<'a>(&'a self, _source: &'a [u8], _data: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        fs::file::ready(Ok(self.0.clone()))
    }
}

/// A tree whose directory the host does not have is left out: the log says so.
async fn attach(paths: &LocalPaths, caller: &Caller, path: &[u8], tree: Arc<dyn FileSystem>, name: &[u8]) {
    if let Err(error) = paths.attach(caller, path, tree, name, 0).await {
        log::warn!("{}: {error:?}", path.escape_ascii());
    }
}

pub fn system_caller() -> Caller {
    Caller {
        credentials: fs::Credentials::default(),
        process: Pid(0),
        thread: Pid(0),
        group: Pid(0),
        session: Pid(0),
        umask: 0,
        shield: machine::Shield::NONE,
    }
}
