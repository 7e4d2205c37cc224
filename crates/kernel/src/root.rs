//! The root file system and /dev, on the kernel that has the devices: the host's files (read-only, over 9P)
//! under a layer in memory that takes the writes; a disk with ext4, which takes them itself; or an initramfs, which is that layer alone, and where nothing is mounted
//! before its first program does it, as on Linux.

use crate::services::Kernel;
use alloc::{collections::BTreeMap, format, string::String, sync::Arc, vec::Vec};
use dev::{block, link::Link, ninep};
use fs::{
    block::Disks,
    ext4::Ext4Mounter,
    initramfs,
    inode::Mounter,
    ninep::{Options, Share},
    remote::{RemoteDisk, RemoteTrees},
    tmpfs::Tmpfs,
    tty::Terminals,
    union::Union,
    Caller, FileSystem, LocalPaths,
};
use link::{Config, Root};
use linux::tree::Tree;
use machine::{block::BlockDevice, errno::Result, Errno, KernelId, Pid};
use platform::{plan, virtio};

/// The devices of the machine, opened by the kernel they are assigned to.
pub struct DeviceSet {
    pub link: Option<Arc<Link>>,
    pub shares: Vec<(Vec<u8>, Arc<dyn machine::Exchange>)>,
    disks: Vec<FoundDisk>,
}

/// A disk of the machine.
enum FoundDisk {
    /// Opened; its serial number has not been asked for.
    Here(virtio::OpenedDisk),
    /// Of that number on the bus; another kernel drives it (`cob.devices`).
    At(KernelId, u32),
}

/// Which disks other kernels than the primary drive.
fn disks_elsewhere(kernel: &Kernel) -> BTreeMap<u32, KernelId> {
    kernel.plan.disks_elsewhere().unwrap_or_else(|error| {
        if kernel.system.kernel == KernelId::PRIMARY {
            log::error!("{error}");
        }
        BTreeMap::new()
    })
}

fn open_disk(kernel: &Kernel, found: virtio::Found) -> Option<virtio::OpenedDisk> {
    let name = alloc::format!("{found}");
    // A queue for each CPU, or one for all (`cob.blk=single`).
    let cpus = match plan::option(&kernel.plan.command_line, "cob.blk") {
        Some("single") => &kernel.system.cpu.cpus()[..1],
        _ => kernel.system.cpu.cpus(),
    };
    found.block(cpus, block::FEATURES, block::queues).inspect_err(|error| log::error!("{name}: {error}")).ok()
}

async fn start_disk(kernel: &Kernel, opened: &virtio::OpenedDisk) -> Result<Arc<dyn BlockDevice>> {
    let (memory, queues) = (&kernel.services.memory, opened.queues.clone());
    let disk = block::Disk::start(memory, queues, opened.features, &opened.configuration).await?;
    Ok(Arc::new(disk))
}

/// On a kernel that does not have the root: opens the disks that it is to drive. The kernel that has it shows them, and has this one mount them.
pub fn drive_disks(kernel: &'static Kernel) {
    let mut mine = disks_elsewhere(kernel);
    mine.retain(|_, at| *at == kernel.system.kernel);
    kernel.scheduler.spawn(async move {
        let mut disks = BTreeMap::new();
        let found = if mine.is_empty() { Vec::new() } else { virtio::find(kernel.plan.topology.ecam) };
        for (number, found) in (0..).zip(found.into_iter().filter(virtio::Found::is_block)) {
            if !mine.contains_key(&number) {
                continue;
            }
            let Some(opened) = open_disk(kernel, found) else { continue };
            match start_disk(kernel, &opened).await {
                Ok(disk) => {
                    log::info!("disk {number}: driven here");
                    disks.insert(number, disk);
                }
                Err(error) => log::error!("disk {number}: {error:?}"),
            }
        }
        let known = Arc::new(Disks::default());
        if let (Some(trees), false) = (&kernel.trees, disks.is_empty()) {
            disks.iter().for_each(|(number, disk)| known.drive(&kernel.services, *number, disk));
            trees.register_kind("ext4", Arc::new(Ext4Mounter::new(&kernel.services, &known)));
        }
        kernel.remote.drive_disks(disks, &known);
    });
}

/// On the primary: `dead` drives its disks no longer.
pub fn reset_disks_of(kernel: &Kernel, dead: KernelId) {
    let lost = disks_elsewhere(kernel);
    if kernel.system.kernel != KernelId::PRIMARY || !lost.values().any(|at| *at == dead) {
        return;
    }
    let found = virtio::find(kernel.plan.topology.ecam).into_iter().filter(virtio::Found::is_block);
    for (number, found) in (0..).zip(found) {
        if lost.get(&number) == Some(&dead)
            && let Err(error) = found.reset()
        {
            log::error!("{found}: {error}");
        }
    }
}

impl DeviceSet {
    pub fn open(kernel: &Kernel) -> DeviceSet {
        let cpu = kernel.system.cpu.cpus()[0];
        let mut set = DeviceSet { link: None, shares: Vec::new(), disks: Vec::new() };
        let (elsewhere, mut number) = (disks_elsewhere(kernel), 0);
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
            } else if found.is_block() {
                match elsewhere.get(&number) {
                    Some(at) => set.disks.push(FoundDisk::At(*at, number)),
                    None => set.disks.extend(open_disk(kernel, found).map(FoundDisk::Here)),
                }
                number += 1;
            }
        }
        set
    }

    /// Looks at all disks: what they are called, and their partitions. `cob.ramdisk=SIZE` makes one in memory.
    async fn disks(&self, kernel: &'static Kernel) -> Arc<Disks> {
        let services = &kernel.services;
        let disks = Arc::new(Disks::default());
        for found in &self.disks {
            let disk = match found {
                FoundDisk::Here(opened) => start_disk(kernel, opened).await,
                FoundDisk::At(at, number) => {
                    crate::control::meet(kernel, Vec::from([*at])).await;
                    let found = RemoteDisk::find(&kernel.remote, *at, *number).await;
                    found.map(|disk| -> Arc<dyn BlockDevice> { Arc::new(disk) })
                }
            };
            match disk {
                Ok(disk) => {
                    for volume in disks.add(services, disk).await {
                        log::info!("{}: {} KiB", volume.name(), volume.sectors() / 2);
                    }
                }
                Err(error) => log::error!("a disk: {error:?}"),
            }
        }
        let size = plan::option(&kernel.plan.command_line, "cob.ramdisk").and_then(plan::size);
        if let Some(bytes) = size {
            let volume = disks.add_ram(services, bytes);
            log::info!("{}: {} KiB", volume.name(), volume.sectors() / 2);
        }
        disks
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
    let disks = devices.disks(kernel).await;
    let ext4 = Arc::new(Ext4Mounter::new(services, &disks));
    let root: Arc<dyn FileSystem> = match &config.root {
        Root::NineP { tag } => {
            let share = devices.share(tag).map_err(failed)?;
            let lower = Share::attach(share, services, Options::default()).await.map_err(failed)?;
            Union::new(services, lower, Tmpfs::new(services, 0o755)).map_err(failed)?
        }
        Root::Initramfs => Tmpfs::new(services, 0o755),
        Root::Disk => root_on_disk(&disks, &ext4).await?,
    };
    let tree = Tree::new(&kernel.system, services, root, ext4);
    let (paths, terminals) = (tree.paths.clone(), tree.terminals.clone());
    paths.set_trees(RemoteTrees::new(&kernel.remote));
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
    tree.mount(&system).await.map_err(failed)?;
    for share in &config.shares {
        let server = devices.share(&share.tag).map_err(failed)?;
        let tree = Share::attach(server, services, Options::default()).await.map_err(failed)?;
        paths.attach(&system, &share.path, tree, &share.path, 0).await.map_err(failed)?;
    }
    Ok((paths, terminals))
}

/// The first volume of the first disk that can be mounted.
async fn root_on_disk(disks: &Disks, ext4: &Ext4Mounter) -> core::result::Result<Arc<dyn FileSystem>, (Errno, String)> {
    let is_first = |name: &&String| name.starts_with("vda");
    let names: Vec<String> = disks.list().iter().map(|disk| String::from(disk.name())).collect();
    let mut failure = (Errno::ENODEV, String::from("mounting the root: there is no disk"));
    for name in names.iter().filter(is_first) {
        match ext4.mount(format!("/dev/{name}").as_bytes(), b"", false).await {
            Ok(root) => return Ok(root),
            Err(error) if failure.0 == Errno::ENODEV || failure.0 == Errno::EINVAL => {
                failure = (error, format!("mounting the root: {name}: no ext4 that can be written"))
            }
            Err(_) => {}
        }
    }
    Err(failure)
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
