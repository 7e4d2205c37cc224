//! devtmpfs: the tree of nodes that is mounted on /dev, those of the devices that were registered with a name, in a tmpfs (as on Linux).

pub use crate::namespace::{Devices, FifoOpener, Opener, Opening};

use crate::{
    file::SYSTEM,
    inode::{Mounter, NewNode},
    tmpfs::Tmpfs,
    FileSystem, Kind, Services,
};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, Errno};

/// The links that udev makes.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// A tree for /dev with all devices registered so far, and empty `pts`, `shm`, `mqueue`.
pub async fn devtmpfs(services: &Arc<Services>, devices: &Devices) -> Result<Arc<dyn FileSystem>> {
    let tree = Tmpfs::named(services, "devtmpfs", 0o755);
    let root = tree.root();
    for name in ["pts", "shm", "mqueue"] {
        let mode = if name == "pts" { 0o755 } else { 0o1777 };
        root.create(name.as_bytes(), node(Kind::Directory, mode, (0, 0), "")).await?;
    }
    for (name, target) in LINKS {
        root.create(name.as_bytes(), node(Kind::Symlink, 0o777, (0, 0), target)).await?;
    }
    let named = devices.named();
    for device in named {
        let mut at = root.clone();
        let mut rest = device.name.as_str();
        while let Some((directory, more)) = rest.split_once('/') {
            at = match at.lookup(&SYSTEM, directory.as_bytes()).await {
                Err(Errno::ENOENT) => at.create(directory.as_bytes(), node(Kind::Directory, 0o755, (0, 0), "")).await?,
                found => found?,
            };
            rest = more;
        }
        at.create(rest.as_bytes(), node(device.kind, device.mode, device.rdev, &device.target)).await?;
    }
    Ok(tree)
}

fn node(kind: Kind, mode: u32, rdev: (u32, u32), target: &str) -> NewNode {
    NewNode { kind, mode, uid: 0, gid: 0, rdev, target: target.as_bytes().to_vec() }
}

/// `mount -t devtmpfs`.
pub struct DevMounter {
    pub services: Arc<Services>,
    pub devices: Arc<Devices>,
}

impl Mounter for DevMounter {
    fn mount<'a>(
        &'a self,
        _source: &'a [u8],
        _data: &'a [u8],
        _read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(devtmpfs(&self.services, &self.devices))
    }
}
