//! Devices: which numbers open what, and the tree of nodes that is mounted on /dev.
//!
//! A node of any file system leads here through its device number; the nodes of /dev are those of the
//! devices that were registered with a name, in a tmpfs (Linux's devtmpfs is one, too).

use crate::{
    inode::NewNode,
    namespace::{Location, Mounter},
    tmpfs::Tmpfs,
    Caller, File, FileSystem, Kind, OpenFlags, Services,
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use machine::{account::Accounts, errno::Result, sync::Lock, BoxFuture, Errno, Pid};

/// An open of a device or a fifo.
pub struct Opening<'a> {
    pub caller: &'a Caller,
    /// Of this kernel, which makes the file.
    pub accounts: &'a Accounts,
    pub flags: OpenFlags,
    /// The node: its inode's attachment is where a fifo keeps its pipe.
    pub at: &'a Location,
    pub rdev: (u32, u32),
}

pub type Opener = Arc<dyn for<'a> Fn(Opening<'a>) -> BoxFuture<'a, Result<Arc<dyn File>>> + Send + Sync>;
pub type FifoOpener = Opener;

/// A node of /dev.
#[derive(Clone)]
struct Named {
    name: String,
    kind: Kind,
    rdev: (u32, u32),
    mode: u32,
}

/// Kind, major and minor; a minor of None takes all the others of its major.
type Numbers = (u32, u32, Option<u32>);

#[derive(Default)]
pub struct Devices {
    openers: Lock<BTreeMap<Numbers, Opener>>,
    named: Lock<Vec<Named>>,
    fifo: Lock<Option<FifoOpener>>,
}

impl Devices {
    /// `name` below /dev ("null", "pts/ptmx"), made when devtmpfs is mounted.
    pub fn register(&self, name: &str, kind: Kind, rdev: (u32, u32), mode: u32, opener: Opener) {
        self.openers.lock().insert((kind as u32, rdev.0, Some(rdev.1)), opener);
        self.named.lock().push(Named { name: name.to_string(), kind, rdev, mode });
    }

    /// All minors of `major` that have no opener of their own (terminals of devpts).
    pub fn register_major(&self, kind: Kind, major: u32, opener: Opener) {
        self.openers.lock().insert((kind as u32, major, None), opener);
    }

    pub fn set_fifo(&self, opener: FifoOpener) {
        *self.fifo.lock() = Some(opener);
    }

    pub(crate) fn fifo(&self) -> Option<FifoOpener> {
        self.fifo.lock().clone()
    }

    pub async fn open(&self, kind: Kind, opening: Opening<'_>) -> Result<Arc<dyn File>> {
        let (major, minor) = opening.rdev;
        let opener = {
            let openers = self.openers.lock();
            let exact = openers.get(&(kind as u32, major, Some(minor)));
            exact.or_else(|| openers.get(&(kind as u32, major, None))).cloned()
        };
        opener.ok_or(Errno::ENXIO)?(opening).await
    }
}

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
    let named = devices.named.lock().clone();
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
        at.create(rest.as_bytes(), node(device.kind, device.mode, device.rdev, "")).await?;
    }
    Ok(tree)
}

fn node(kind: Kind, mode: u32, rdev: (u32, u32), target: &str) -> NewNode {
    NewNode { kind, mode, uid: 0, gid: 0, rdev, target: target.as_bytes().to_vec() }
}

/// The kernel itself.
pub(crate) static SYSTEM: Caller = Caller {
    credentials: crate::Credentials {
        uid: 0,
        euid: 0,
        suid: 0,
        fsuid: 0,
        gid: 0,
        egid: 0,
        sgid: 0,
        fsgid: 0,
        groups: Vec::new(),
        effective: abi::CapabilitySet::ALL,
    },
    process: Pid(0),
    thread: Pid(0),
    group: Pid(0),
    session: Pid(0),
    umask: 0,
    shield: machine::Shield::NONE,
};

/// `mount -t devtmpfs`.
pub struct DevMounter {
    pub services: Arc<Services>,
    pub devices: Arc<Devices>,
}

impl Mounter for DevMounter {
    fn mount<'a>(&'a self, _source: &'a [u8], _data: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(devtmpfs(&self.services, &self.devices))
    }
}
