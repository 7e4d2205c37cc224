//! devpts: the terminals that have a master now, as the files of /dev/pts (man 4 pts).

use super::{sessions::DEVPTS, Terminals};
use crate::{
    inode::listing::{Listing, FIRST as FIRST_POSITION},
    synthetic::{Device, Directory, Node, Synthetic},
    Attributes, Caller, Kind, Services, SetAttributes,
};
use alloc::{boxed::Box, format, sync::Arc};
use core::iter;
use machine::{errno::Result, BoxFuture, Errno};

/// DEVPTS_SUPER_MAGIC.
const MAGIC: u64 = 0x1cd1;
/// The number of a terminal's inode is three more than its own: 1 is the directory, 2 its ptmx.
const FIRST: u64 = 3;
const PTMX: u64 = 2;

/// The tree for /dev/pts.
pub fn tree(services: &Arc<Services>, terminals: &Arc<Terminals>) -> Arc<Synthetic> {
    let root = Node::directory(1, Slaves(terminals.clone())).mode(0o755);
    Synthetic::with_device(services, "devpts", MAGIC, DEVPTS, root)
}

struct Ptmx;

impl Device for Ptmx {}

/// Owner and mode are the terminal's own, so that fchmod(2) on it and chmod(2) by name agree.
struct Slave {
    terminals: Arc<Terminals>,
    number: u32,
}

impl Device for Slave {
    fn attributes(&self) -> Option<Attributes> {
        self.terminals.attributes(self.number).ok()
    }

    fn set(&self, set: SetAttributes) -> Result<()> {
        self.terminals.set_attributes(self.number, set)
    }
}

struct Slaves(Arc<Terminals>);

impl Slaves {
    fn find(&self, name: &[u8]) -> Result<Node> {
        if name == b"ptmx" {
            return Ok(Node::device(PTMX, (5, 2), Ptmx).mode(0o666));
        }
        let text = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let number: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
        if format!("{number}") != text {
            return Err(Errno::ENOENT);
        }
        let known = self.0.attributes(number)?;
        let slave = Slave { terminals: self.0.clone(), number };
        let node = Node::device(u64::from(number) + FIRST, known.rdev, slave);
        Ok(node.mode(known.mode & 0o7777).owned(known.uid, known.gid))
    }
}

impl Directory for Slaves {
    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        let found = self.find(name);
        Box::pin(core::future::ready(found))
    }

    /// The inode's number says where a terminal is.
    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        let from = to.scan.position;
        let slaves = self.0.numbers().into_iter().map(|number| (FIRST + u64::from(number), format!("{number}")));
        for (ino, name) in iter::once((PTMX, "ptmx".into())).chain(slaves) {
            let next = FIRST_POSITION + ino;
            if next > from && !to.add(ino, next, Kind::CharDevice.d_type(), name.as_bytes()) {
                break;
            }
        }
        Box::pin(core::future::ready(Ok(())))
    }
}
