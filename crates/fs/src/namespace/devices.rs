//! Which device numbers open what: a node of any file system leads here.

use super::{LocalPaths, Location};
use crate::{Caller, File, Kind, OpenFlags};
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{account::Accounts, errno::Result, sync::Lock, BoxFuture, Errno};

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
pub(crate) struct Named {
    pub name: String,
    pub kind: Kind,
    pub rdev: (u32, u32),
    pub mode: u32,
    /// Of a symbolic link.
    pub target: String,
}

/// Kind, major and minor; a minor of None takes all the others of its major.
type Numbers = (u32, u32, Option<u32>);

/// Has devices keep what was written to them.
pub type Syncer = Arc<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

#[derive(Default)]
pub struct Devices {
    openers: Lock<BTreeMap<Numbers, Opener>>,
    named: Lock<Vec<Named>>,
    fifo: Lock<Option<FifoOpener>>,
    syncer: Lock<Option<Syncer>>,
    /// Where devtmpfs is mounted.
    paths: Lock<Weak<LocalPaths>>,
}

impl Devices {
    /// `name` below /dev ("null", "pts/ptmx"), made when devtmpfs is mounted.
    pub fn register(&self, name: &str, kind: Kind, rdev: (u32, u32), mode: u32, opener: Opener) {
        self.openers.lock().insert((kind as u32, rdev.0, Some(rdev.1)), opener);
        self.named.lock().push(Named { name: name.to_string(), kind, rdev, mode, target: String::new() });
    }

    /// A symbolic link, made when devtmpfs is mounted. The first of a name stays.
    pub fn link(&self, name: &str, target: &str) {
        let mut named = self.named.lock();
        if named.iter().all(|known| known.name != name) {
            let (name, target) = (name.to_string(), target.to_string());
            named.push(Named { name, kind: Kind::Symlink, rdev: (0, 0), mode: 0o777, target });
        }
    }

    /// [`Devices::register`] of one that comes while the machine runs: its node is made at once where devtmpfs is mounted.
    pub async fn add(&self, name: &str, kind: Kind, rdev: (u32, u32), mode: u32, opener: Opener) {
        self.register(name, kind, rdev, mode, opener);
        let paths = self.paths.lock().upgrade();
        if let Some(paths) = paths {
            paths.make_device(name, kind as u32 | mode, rdev).await;
        }
    }

    /// The device is no more, nor are its nodes where devtmpfs is mounted.
    pub async fn remove(&self, name: &str, kind: Kind, rdev: (u32, u32)) {
        let opener = self.openers.lock().remove(&(kind as u32, rdev.0, Some(rdev.1)));
        self.named.lock().retain(|known| known.name != name);
        drop(opener);
        let paths = self.paths.lock().upgrade();
        if let Some(paths) = paths {
            paths.remove_device(name).await;
        }
    }

    pub(super) fn set_paths(&self, paths: &Arc<LocalPaths>) {
        *self.paths.lock() = Arc::downgrade(paths);
    }

    /// All minors of `major` that have no opener of their own (terminals of devpts).
    pub fn register_major(&self, kind: Kind, major: u32, opener: Opener) {
        self.openers.lock().insert((kind as u32, major, None), opener);
    }

    pub fn set_fifo(&self, opener: FifoOpener) {
        *self.fifo.lock() = Some(opener);
    }

    /// sync(2) asks it, too.
    pub fn set_syncer(&self, syncer: Syncer) {
        *self.syncer.lock() = Some(syncer);
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        let syncer = self.syncer.lock().clone();
        match syncer {
            Some(sync) => sync().await,
            None => Ok(()),
        }
    }

    /// All that were registered with a name.
    pub(crate) fn named(&self) -> Vec<Named> {
        self.named.lock().clone()
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
