//! The root file system and /dev, on the kernel that has the devices: the host's files (read-only, over 9P)
//! under a layer in memory that takes the writes.

use crate::{
    services::{FileTimers, Kernel},
    terminal::Jobs,
};
use alloc::{sync::Arc, vec::Vec};
use dev::{link::Link, ninep};
use fs::{
    devfs::{devtmpfs, Devices},
    ninep::{Options, Share},
    tmpfs::Tmpfs,
    tty::Terminals,
    union::Union,
    Caller, FileSystem, LocalPaths,
};
use link::{Config, Root};
use machine::{errno::Result, Errno, Pid};
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
) -> Result<(Arc<LocalPaths>, Arc<Terminals>)> {
    let services = &kernel.services;
    let Root::NineP { tag } = &config.root else { return Err(Errno::ENODEV) };
    let lower = Share::attach(devices.share(tag)?, services, Options::default()).await?;
    let union = Union::new(services, lower, Tmpfs::new(services, 0o755))?;
    let timers = Arc::new(FileTimers(kernel.scheduler.timers().clone()));
    let terminals = Terminals::new(Arc::new(Jobs(kernel.system.clone())), timers);
    let nodes = Arc::new(Devices::default());
    fs::chardev::register(&nodes, &terminals, &kernel.system.cpu, services);
    let paths = LocalPaths::new(services.clone(), union, nodes.clone());
    let system = system_caller();
    let dev = devtmpfs(services, &nodes).await?;
    attach(&paths, &system, b"/dev", dev, b"devtmpfs").await;
    attach(&paths, &system, b"/dev/shm", Tmpfs::new(services, 0o1777), b"tmpfs").await;
    for (path, tree, name) in linux::pseudo_file_systems(&kernel.system, services, &paths, &terminals) {
        attach(&paths, &system, path.as_bytes(), tree, name.as_bytes()).await;
    }
    for share in &config.shares {
        let tree = Share::attach(devices.share(&share.tag)?, services, Options::default()).await?;
        paths.attach(&system, &share.path, tree, &share.path, 0).await?;
    }
    Ok((paths, terminals))
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
    }
}
