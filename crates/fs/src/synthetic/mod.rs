//! Trees that are generated as they are read: procfs, sysfs.
//!
//! Crate `linux` describes a tree by its directories ([`Directory`]) and files ([`Content`]); the file
//! system around them is here. Nothing is kept: a directory is asked anew at every lookup, unless it says
//! that it is [`Directory::fixed`]. A file's text is made when a reader is at its start, and kept by that
//! open file, so a text that changes is still read in one piece.

mod changes;
mod places;
mod text;

use crate::{
    file::ready,
    inode::{
        listing::{Listing, FIRST},
        Followed, NewNode, FOREVER,
    },
    Attributes, Caller, File, FileSystem, FileSystemInfo, Inode, Kind, OpenFlags, Services, SetAttributes, Timestamp,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
pub use changes::Changes;
use core::any::Any;
use machine::{errno::Result, BoxFuture, Errno, Pid, PAGE_SIZE};
use places::PlacesFile;
use text::TextFile;

/// PROC_SUPER_MAGIC.
pub const PROC_MAGIC: u64 = 0x9fa0;
/// Last place in a text of bytes, or a directory of /proc (MAX_NON_LFS).
pub(crate) const MOST_BYTES: u64 = i32::MAX as u64;

/// What a name leads to.
#[derive(Clone)]
pub struct Node {
    /// Must be stable and unique within the tree; `hash_ino` gives one to a path.
    pub ino: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub style: Style,
    pub body: Body,
    /// Who knows to whom it belongs now; None: that never changes.
    pub keeper: Option<Arc<dyn Keeper>>,
}

/// Permission bits, user and group of a node that chmod and chown change.
pub trait Keeper: Send + Sync {
    /// What they are now; None: as when the node was made, for it is no more.
    fn get(&self) -> Option<(u32, u32, u32)>;
    /// Changes those that are given.
    fn set(&self, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
}

/// Which of Linux's ways to generate a text this file follows. They differ in where one can seek, and in the answer to what
/// the file does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// About the machine: a sequence (seq_file), which has no end to seek from.
    Machine,
    /// About a process or thread: a sequence. A directory: that of the process or thread, which nobody changes.
    Process,
    /// About a process, as bytes at places: 0 bytes long for who seeks.
    Bytes,
    /// In /proc/sys: root, too, writes only what has permission bits for it.
    Setting,
    /// Only there to be written: stays at its start.
    Action,
}

#[derive(Clone)]
pub enum Body {
    Directory(Arc<dyn Directory>),
    File(Arc<dyn Content>),
    Link(Arc<dyn Link>),
    /// A node of a device: what opens it is found by its number, in [`crate::devfs::Devices`].
    Device((u32, u32), Arc<dyn Device>),
}

impl Node {
    pub fn directory(ino: u64, directory: impl Directory + 'static) -> Node {
        Node {
            ino,
            mode: 0o555,
            uid: 0,
            gid: 0,
            style: Style::Machine,
            body: Body::Directory(Arc::new(directory)),
            keeper: None,
        }
    }

    pub fn file(ino: u64, content: impl Content + 'static) -> Node {
        Node {
            ino,
            mode: 0o444,
            uid: 0,
            gid: 0,
            style: Style::Machine,
            body: Body::File(Arc::new(content)),
            keeper: None,
        }
    }

    pub fn link(ino: u64, link: impl Link + 'static) -> Node {
        Node { ino, mode: 0o777, uid: 0, gid: 0, style: Style::Machine, body: Body::Link(Arc::new(link)), keeper: None }
    }

    /// A character device.
    pub fn device(ino: u64, rdev: (u32, u32), device: impl Device + 'static) -> Node {
        Node {
            ino,
            mode: 0o600,
            uid: 0,
            gid: 0,
            style: Style::Machine,
            body: Body::Device(rdev, Arc::new(device)),
            keeper: None,
        }
    }

    pub fn mode(self, mode: u32) -> Node {
        Node { mode, ..self }
    }

    pub fn style(self, style: Style) -> Node {
        Node { style, ..self }
    }

    pub fn owned(self, uid: u32, gid: u32) -> Node {
        Node { uid, gid, ..self }
    }

    pub fn kept(self, keeper: Arc<dyn Keeper>) -> Node {
        Node { keeper: Some(keeper), ..self }
    }

    fn kind(&self) -> Kind {
        match self.body {
            Body::Directory(_) => Kind::Directory,
            Body::File(_) => Kind::Regular,
            Body::Link(_) => Kind::Symlink,
            Body::Device(..) => Kind::CharDevice,
        }
    }
}

pub trait Directory: Send + Sync {
    /// ENOENT if there is no such name.
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>>;
    /// See [`Inode::list`]. Positions in /proc are below 2^31.
    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>>;
    /// See [`Inode::process`].
    fn process(&self) -> Option<Pid> {
        None
    }
    /// Do the names never change?
    fn fixed(&self) -> bool {
        false
    }
    /// Whether directories are made and removed in it (cgroup2).
    fn takes_directories(&self) -> bool {
        false
    }
    /// mkdir, of a name that is not there.
    fn make<'a>(&'a self, _name: &'a [u8], _new: &'a NewNode) -> BoxFuture<'a, Result<Node>> {
        ready(Err(Errno::EPERM))
    }
    /// rmdir.
    fn unmake<'a>(&'a self, _name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EPERM))
    }
    /// Hard links beside the two of every directory: its subdirectories, if they are counted.
    fn subdirectories(&self) -> u32 {
        0
    }
}

/// A text as far as it has been made.
#[derive(Default)]
pub struct Made {
    pub text: Vec<u8>,
    /// Where its records end, if it is made of records: a read gives whole ones that fit into a page (Linux: seq_file), and there are
    /// programs that take a read of less than they asked for as the end.
    pub ends: Vec<usize>,
}

pub trait Content: Send + Sync {
    /// The whole text.
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>>;
    /// Appends the piece of the text that begins at `mark`: 0, or what the last one gave; None: that was the end. A long text is made as far
    /// as it is read, as on Linux: who reads the beginning of one with a thousand lines does not wait for all of them.
    fn extend<'a>(&'a self, caller: &'a Caller, made: &'a mut Made, _mark: u64) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            made.text = self.read(caller).await?;
            Ok(None)
        })
    }
    /// Is there anything to be done by writing? Otherwise an error comes before the data is looked at.
    fn takes_writes(&self) -> bool {
        false
    }
    /// One write(2) is one message, as in procfs.
    fn write<'a>(&'a self, _caller: &'a Caller, _data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::EIO))
    }
    /// Of a text whose changes are told to who polls or watches (inotify) it.
    fn changes(&self) -> Option<&Arc<Changes>> {
        None
    }
    /// Looked at when it is opened. Bytes that are where they are, instead of a text: /proc/PID/mem.
    fn open<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Option<Arc<dyn Places>>>> {
        ready(Ok(None))
    }
}

/// What is behind a file that is no text: any offset is a place.
pub trait Places: Send + Sync {
    fn read_at<'a>(&'a self, buf: &'a mut [u8], at: u64) -> BoxFuture<'a, Result<usize>>;
    fn write_at<'a>(&'a self, buf: &'a [u8], at: u64) -> BoxFuture<'a, Result<usize>>;
}

pub trait Link: Send + Sync {
    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>>;
}

/// A node that opens a device, and may keep owner and mode elsewhere than in its [`Node`].
pub trait Device: Send + Sync {
    fn attributes(&self) -> Option<Attributes> {
        None
    }
    fn set(&self, _set: SetAttributes) -> Result<()> {
        Err(Errno::EPERM)
    }
}

/// A link to a path known beforehand.
impl Link for &'static str {
    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        ready(Ok(Followed::Path(self.as_bytes().to_vec())))
    }
}

impl Link for alloc::string::String {
    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        ready(Ok(Followed::Path(self.as_bytes().to_vec())))
    }
}

/// Text that a function makes without waiting.
pub struct Text<F>(pub F);

impl<F: Fn(&Caller) -> Vec<u8> + Send + Sync> Content for Text<F> {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        ready(Ok(self.0(caller)))
    }
}

/// A directory whose names are known when it is made.
#[derive(Default)]
pub struct Fixed(BTreeMap<Vec<u8>, Node>);

impl Fixed {
    pub fn with(mut self, name: &str, node: Node) -> Self {
        self.0.insert(name.as_bytes().to_vec(), node);
        self
    }

    pub fn get(&self, name: &[u8]) -> Option<Node> {
        self.0.get(name).cloned()
    }

    /// In the order of the names: a position says how many came before, since there are never others.
    pub fn list(&self, to: &mut Listing) {
        let from = to.scan.position;
        for (next, (name, node)) in (FIRST + 1..).zip(&self.0).skip((from - FIRST) as usize) {
            if !to.add(node.ino, next, node.kind().d_type(), name) {
                return;
            }
        }
    }

    /// For a directory that is made anew with other names at times: in the order of the inode numbers, which say what a position is.
    pub fn list_by_number(&self, to: &mut Listing) {
        let from = to.scan.position;
        let position = |node: &Node| FIRST + node.ino;
        let mut left: Vec<_> = self.0.iter().filter(|(_, node)| position(node) > from).collect();
        left.sort_unstable_by_key(|(_, node)| node.ino);
        for (name, node) in left {
            if !to.add(node.ino, position(node), node.kind().d_type(), name) {
                return;
            }
        }
    }

    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }
}

impl Directory for Fixed {
    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        ready(self.get(name).ok_or(Errno::ENOENT))
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        self.list(to);
        ready(Ok(()))
    }

    fn fixed(&self) -> bool {
        true
    }

    fn subdirectories(&self) -> u32 {
        self.0.values().filter(|node| node.kind() == Kind::Directory).count() as u32
    }
}

/// A number for a path, 48 bits, never 0 (FNV-1a).
pub fn hash_ino(path: &[u8]) -> u64 {
    let hash = path
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 16).max(1)
}

/// What the nodes of one tree share.
struct Tree {
    services: Arc<Services>,
    device: (u32, u32),
    magic: u64,
    born: Timestamp,
}

pub struct Synthetic {
    kind: &'static str,
    root: Arc<SyntheticInode>,
}

impl Synthetic {
    /// A tree of `kind` ("proc") with the magic number that statfs tells.
    pub fn new(services: &Arc<Services>, kind: &'static str, magic: u64, root: Node) -> Arc<Self> {
        Self::with_device(services, kind, magic, services.anonymous_device(), root)
    }

    /// A tree whose device number others know.
    pub fn with_device(
        services: &Arc<Services>,
        kind: &'static str,
        magic: u64,
        device: (u32, u32),
        root: Node,
    ) -> Arc<Self> {
        let tree = Arc::new(Tree { services: services.clone(), device, magic, born: services.clock.realtime() });
        Arc::new(Synthetic { kind, root: Arc::new(SyntheticInode { tree, node: root }) })
    }
}

impl FileSystem for Synthetic {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }
}

struct SyntheticInode {
    tree: Arc<Tree>,
    node: Node,
}

impl SyntheticInode {
    fn directory(&self) -> Result<&Arc<dyn Directory>> {
        match &self.node.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn snapshot(&self) -> Attributes {
        let node = &self.node;
        if let Body::Device(_, device) = &node.body
            && let Some(attributes) = device.attributes()
        {
            return Attributes { dev: self.tree.device, ino: node.ino, ..attributes };
        }
        let (mode, uid, gid) =
            node.keeper.as_ref().and_then(|keeper| keeper.get()).unwrap_or((node.mode, node.uid, node.gid));
        let nlink = self.directory().map_or(1, |directory| 2 + directory.subdirectories());
        // Nothing is known about when a generated text changed: it is as of now, as in procfs.
        let now = if nlink > 1 { self.tree.born } else { self.tree.services.clock.realtime() };
        Attributes {
            dev: self.tree.device,
            ino: node.ino,
            mode: node.kind() as u32 | mode,
            nlink,
            uid,
            gid,
            rdev: match node.body {
                Body::Device(rdev, _) => rdev,
                _ => (0, 0),
            },
            size: 0,
            block_size: 1024,
            blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
        }
    }
}

impl Inode for SyntheticInode {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.node.kind()
    }

    fn ino(&self) -> u64 {
        self.node.ino
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.snapshot()))
    }

    fn attributes_now(&self) -> Option<Attributes> {
        Some(self.snapshot())
    }

    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        if let Body::Device(_, device) = &self.node.body {
            return ready(device.set(set));
        }
        if let Some(keeper) = &self.node.keeper {
            let SetAttributes { mode, uid, gid, .. } = set;
            // Times are as of now, whatever is set.
            return ready(keeper.set(mode, uid, gid));
        }
        // open(O_TRUNC) of a text, as `echo 1 >/proc/sys/...` does, changes nothing.
        let only_size = SetAttributes { size: set.size, ..SetAttributes::default() };
        ready(if set == only_size { Ok(()) } else { Err(Errno::EPERM) })
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        let block_size = PAGE_SIZE as u64;
        ready(Ok(FileSystemInfo { kind: self.tree.magic, block_size, name_max: 255, ..FileSystemInfo::default() }))
    }

    fn process(&self) -> Option<Pid> {
        match &self.node.body {
            Body::Directory(directory) => directory.process(),
            _ => None,
        }
    }

    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let node = self.directory()?.lookup(caller, name).await?;
            let changes = match &node.body {
                Body::File(content) => content.changes().cloned(),
                _ => None,
            };
            let inode: Arc<dyn Inode> = Arc::new(SyntheticInode { tree: self.tree.clone(), node });
            if let Some(changes) = changes {
                changes.are_of(&inode);
            }
            Ok(inode)
        })
    }

    fn believed(&self) -> u64 {
        match self.directory() {
            Ok(directory) if directory.fixed() => FOREVER,
            _ => 0,
        }
    }

    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        match self.directory() {
            Ok(directory) => directory.list(caller, to),
            Err(error) => ready(Err(error)),
        }
    }

    fn last_position(&self) -> u64 {
        if self.is_closed() {
            MOST_BYTES
        } else {
            i64::MAX as u64
        }
    }

    fn is_closed(&self) -> bool {
        self.tree.magic == PROC_MAGIC
    }

    fn write_refused(&self) -> Option<Errno> {
        match (self.node.style, &self.node.body) {
            (Style::Setting, _) if self.node.mode & 0o222 == 0 => Some(Errno::EACCES),
            (Style::Process, Body::Directory(_)) => Some(Errno::EPERM),
            _ => None,
        }
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        if let Some(directory) = self.directory().ok().filter(|directory| directory.takes_directories()) {
            return match new.kind {
                Kind::Directory => Box::pin(async move {
                    let node = directory.make(name, &new).await?;
                    Ok(Arc::new(SyntheticInode { tree: self.tree.clone(), node }) as Arc<dyn Inode>)
                }),
                Kind::Regular => ready(Err(Errno::EACCES)),
                _ => ready(Err(Errno::EPERM)),
            };
        }
        let missing = new.kind == Kind::Regular || self.is_closed();
        ready(Err(if missing { Errno::ENOENT } else { Errno::EPERM }))
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        match self.directory() {
            Ok(directory) if node.kind() == Kind::Directory => directory.unmake(name),
            _ => ready(Err(Errno::EPERM)),
        }
    }

    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        ready(if self.is_closed() { Err(Errno::EINVAL) } else { Ok(()) })
    }

    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        match &self.node.body {
            Body::Link(link) => link.follow(caller),
            _ => ready(Err(Errno::EINVAL)),
        }
    }

    fn open<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Option<Arc<dyn File>>>> {
        Box::pin(async move {
            let Body::File(content) = &self.node.body else { return Ok(None) };
            // Texts pass through a buffer.
            if flags.contains(OpenFlags::DIRECT) {
                return Err(Errno::EINVAL);
            }
            if let Some(places) = content.open(caller).await? {
                return Ok(Some(Arc::new(PlacesFile::new(places, self.snapshot(), flags)) as Arc<dyn File>));
            }
            let file = TextFile::new(content, self.node.style, caller, self.snapshot(), flags);
            Ok(Some(Arc::new(file) as Arc<dyn File>))
        })
    }
}
