//! Trees that are generated as they are read: procfs, sysfs.
//!
//! Crate `linux` describes a tree by its directories ([`Directory`]) and files ([`Content`]); the file
//! system around them is here. Nothing is kept: a directory is asked anew at every lookup, unless it says
//! that it is [`Directory::fixed`]. A file's text is made when a reader is at its start, and kept by that
//! open file, so a text that changes is still read in one piece.

use crate::{
    file::ready,
    inode::{Followed, Listed, NewNode, FOREVER},
    Attributes, Caller, File, FileSystem, FileSystemInfo, Inode, Kind, OpenFlags, Services, SetAttributes, Timestamp,
    Whence,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno, PAGE_SIZE,
};

/// What a name leads to.
#[derive(Clone)]
pub struct Node {
    /// Must be stable and unique within the tree; `hash_ino` gives one to a path.
    pub ino: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub body: Body,
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
        Node { ino, mode: 0o555, uid: 0, gid: 0, body: Body::Directory(Arc::new(directory)) }
    }

    pub fn file(ino: u64, content: impl Content + 'static) -> Node {
        Node { ino, mode: 0o444, uid: 0, gid: 0, body: Body::File(Arc::new(content)) }
    }

    pub fn link(ino: u64, link: impl Link + 'static) -> Node {
        Node { ino, mode: 0o777, uid: 0, gid: 0, body: Body::Link(Arc::new(link)) }
    }

    /// A character device.
    pub fn device(ino: u64, rdev: (u32, u32), device: impl Device + 'static) -> Node {
        Node { ino, mode: 0o600, uid: 0, gid: 0, body: Body::Device(rdev, Arc::new(device)) }
    }

    pub fn mode(self, mode: u32) -> Node {
        Node { mode, ..self }
    }

    pub fn owned(self, uid: u32, gid: u32) -> Node {
        Node { uid, gid, ..self }
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
    fn list<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<Listed>>>;
    /// Do the names never change?
    fn fixed(&self) -> bool {
        false
    }
    /// Hard links beside the two of every directory: its subdirectories, if they are counted.
    fn subdirectories(&self) -> u32 {
        0
    }
}

pub trait Content: Send + Sync {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>>;
    /// One write(2) is one message, as in procfs.
    fn write<'a>(&'a self, _caller: &'a Caller, _data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::EIO))
    }
    /// A file of its own kind instead (/proc/PID/mem, pagemap).
    fn open<'a>(&'a self, _caller: &'a Caller, _flags: OpenFlags) -> BoxFuture<'a, Result<Option<Arc<dyn File>>>> {
        ready(Ok(None))
    }
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

    pub fn entries(&self) -> Vec<Listed> {
        let entry = |(name, node): (&Vec<u8>, &Node)| Listed {
            ino: node.ino,
            d_type: node.kind().d_type(),
            name: name.clone(),
        };
        self.0.iter().map(entry).collect()
    }
}

impl Directory for Fixed {
    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        ready(self.get(name).ok_or(Errno::ENOENT))
    }

    fn list<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<Listed>>> {
        ready(Ok(self.entries()))
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
        if let Body::Device(_, device) = &node.body {
            if let Some(attributes) = device.attributes() {
                return Attributes { dev: self.tree.device, ino: node.ino, ..attributes };
            }
        }
        let nlink = self.directory().map_or(1, |directory| 2 + directory.subdirectories());
        // Nothing is known about when a generated text changed: it is as of now, as in procfs.
        let now = if nlink > 1 { self.tree.born } else { self.tree.services.clock.realtime() };
        Attributes {
            dev: self.tree.device,
            ino: node.ino,
            mode: node.kind() as u32 | node.mode,
            nlink,
            uid: node.uid,
            gid: node.gid,
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
        // open(O_TRUNC) of a text, as `echo 1 >/proc/sys/...` does, changes nothing.
        let only_size = SetAttributes { size: set.size, ..SetAttributes::default() };
        ready(if set == only_size { Ok(()) } else { Err(Errno::EPERM) })
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        let block_size = PAGE_SIZE as u64;
        ready(Ok(FileSystemInfo { kind: self.tree.magic, block_size, name_max: 255, ..FileSystemInfo::default() }))
    }

    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let node = self.directory()?.lookup(caller, name).await?;
            Ok(Arc::new(SyntheticInode { tree: self.tree.clone(), node }) as Arc<dyn Inode>)
        })
    }

    fn believed(&self) -> u64 {
        match self.directory() {
            Ok(directory) if directory.fixed() => FOREVER,
            _ => 0,
        }
    }

    fn list<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<Listed>>> {
        match self.directory() {
            Ok(directory) => directory.list(caller),
            Err(error) => ready(Err(error)),
        }
    }

    fn create<'a>(&'a self, _name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        // What procfs says: files can't be, other things may not be.
        ready(Err(if new.kind == Kind::Regular { Errno::ENOENT } else { Errno::EPERM }))
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
            if let Some(file) = content.open(caller, flags).await? {
                return Ok(Some(file));
            }
            Ok(Some(Arc::new(TextFile {
                content: content.clone(),
                opener: caller.clone(),
                attributes: self.snapshot(),
                flags: Lock::new(flags),
                reading: AsyncLock::new(Reading { text: None, position: 0 }),
            }) as Arc<dyn File>))
        })
    }
}

struct Reading {
    text: Option<Vec<u8>>,
    position: u64,
}

/// A generated text, open.
struct TextFile {
    content: Arc<dyn Content>,
    /// Who opened it: whose view of the text it is, whoever reads (man 5 proc, /proc/self).
    opener: Caller,
    attributes: Attributes,
    flags: Lock<OpenFlags>,
    reading: AsyncLock<Reading>,
}

impl TextFile {
    async fn copy(&self, reading: &mut Reading, buf: &mut [u8], at: u64) -> Result<usize> {
        if !self.flags.lock().readable() {
            return Err(Errno::EBADF);
        }
        if at == 0 || reading.text.is_none() {
            reading.text = Some(self.content.read(&self.opener).await?);
        }
        let text = reading.text.as_deref().unwrap_or_default();
        let rest = text.get(at as usize..).unwrap_or_default();
        let part = rest.len().min(buf.len());
        buf[..part].copy_from_slice(&rest[..part]);
        Ok(part)
    }
}

impl File for TextFile {
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            let at = reading.position;
            let read = self.copy(&mut reading, buf, at).await?;
            reading.position += read as u64;
            Ok(read)
        })
    }

    fn read_at<'a>(&'a self, buf: &'a mut [u8], offset: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            self.copy(&mut reading, buf, offset).await
        })
    }

    fn write<'a>(&'a self, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !self.flags.lock().writable() {
                return Err(Errno::EBADF);
            }
            let written = self.content.write(&self.opener, buf).await?;
            self.reading.lock().await.position += written as u64;
            Ok(written)
        })
    }

    fn write_at<'a>(&'a self, buf: &'a [u8], _offset: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !self.flags.lock().writable() {
                return Err(Errno::EBADF);
            }
            self.content.write(&self.opener, buf).await
        })
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            let start = match whence {
                Whence::Set => 0,
                Whence::Current => reading.position,
                _ => return Err(Errno::EINVAL),
            };
            reading.position = start.checked_add_signed(offset).ok_or(Errno::EINVAL)?;
            Ok(reading.position)
        })
    }

    fn flags(&self) -> OpenFlags {
        *self.flags.lock()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        let settable = OpenFlags::APPEND | OpenFlags::NONBLOCK;
        let mut own = self.flags.lock();
        *own = (*own - settable) | (flags & settable);
        drop(own);
        ready(Ok(()))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.attributes.clone()))
    }

    /// Called by a name only through the cloak that knows it.
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
