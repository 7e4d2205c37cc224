//! [`Inode`]: a file as its file system knows it, without names and without open state.
//!
//! The namespace ([`crate::namespace`]) does what is the same for all file systems: walking paths,
//! permissions, serialising changes of a directory. An implementation is called after those checks and
//! may rely on them: `create` is called for a name that does not exist, while nobody else changes this
//! directory, by somebody who may.

pub mod acl;
mod errors;
pub mod held;
pub mod lease;
pub mod listing;
pub mod locks;

use crate::{
    file::{ready, Destination, Source, Transfer},
    Attributes, Caller, File, FileSystemInfo, Kind, Object, OpenFlags, ReadAhead, SetAttributes, SetWhen,
};
use acl::{Acl, AclKind};
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;
use lease::Sharers;
use listing::Listing;
use locks::LockTable;
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, Pid};
use messages::disk::PlacedDisk;

pub use errors::WriteErrors;

/// What is to be made by [`Inode::create`].
#[derive(Clone, Debug)]
pub struct NewNode {
    /// What it is to be.
    pub kind: Kind,
    /// Permission bits, umask applied.
    pub mode: u32,
    /// User it belongs to.
    pub uid: u32,
    /// Group it belongs to.
    pub gid: u32,
    /// Major and minor number of a device; zero for others.
    pub rdev: (u32, u32),
    /// Text of a symbolic link.
    pub target: Vec<u8>,
}

/// Where a symbolic link leads.
pub enum Followed {
    /// To a path name, which is walked from where the link is.
    Path(Vec<u8>),
    /// A link of /proc/PID/fd and its kin: to the open file itself, whatever its name is by now.
    File(Arc<dyn File>),
}

/// Where a write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// At this offset in bytes.
    Offset(u64),
    /// At the end, wherever it is at that moment (O_APPEND).
    End,
}

impl WriteAt {
    /// The offset, if it is known before.
    pub fn offset(self) -> Option<u64> {
        match self {
            WriteAt::Offset(offset) => Some(offset),
            WriteAt::End => None,
        }
    }
}

/// What a fifo's pipe or a bound socket hangs on, so that it is found again through any name.
pub type Attachment = Lock<Option<Arc<dyn Any + Send + Sync>>>;

/// Where the data of a sparse file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that were written.
    Data,
    /// Zeros that take no memory.
    Hole,
}

/// An answer that only a change through the namespace makes wrong ([`Inode::believed`]).
pub const FOREVER: u64 = u64::MAX;

/// A file as its file system knows it, whoever has it open. Operations that the kind of file lacks answer what Linux answers.
pub trait Inode: Any + Send + Sync {
    /// For a file system that gets back a node of its own.
    fn as_any(&self) -> &dyn Any;
    /// Regular file, directory, and so on; it never changes.
    fn kind(&self) -> Kind;
    /// Number within its file system.
    fn ino(&self) -> u64;
    /// What stat(2) says.
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>>;
    /// The attributes, if they are known without waiting.
    fn attributes_now(&self) -> Option<Attributes> {
        None
    }
    /// Applies what is Some. `Timestamp::NOW` stands for the clock's time. Times of change are up to
    /// the file system. A new mode changes the access list, too ([`Acl::with_mode`]).
    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>>;
    /// What statfs(2) says of its file system.
    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>>;
    /// Where record locks and flocks on it are kept; None: it takes none.
    fn locks(&self) -> Option<&LockTable> {
        None
    }
    /// See [`Attachment`]; None: nothing can hang on it.
    fn attachment(&self) -> Option<&Attachment> {
        None
    }
    /// fsync, or with `data_only` fdatasync: writes back what is dirty.
    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }

    /// What could not be written back of its contents. None: nobody waits to hear of that.
    fn write_errors(&self) -> Option<&WriteErrors> {
        None
    }

    // Extended attributes. Who may do it has been checked, and names are those of system calls, never of an ACL.
    /// The value of an attribute. ENODATA; EOPNOTSUPP: the file system has none of such a name.
    fn xattr<'a>(&'a self, _name: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// The names of all attributes, also of ACLs and of those that not everybody may see.
    fn xattrs(&self) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        ready(Ok(Vec::new()))
    }
    /// Sets an attribute if `when` allows it; with None removes it, if there is one.
    fn set_xattr<'a>(&'a self, _name: &'a [u8], _value: Option<&'a [u8]>, _when: SetWhen) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// Whether it has `security.capability`, which must not survive a write.
    fn has_capabilities(&self) -> bool {
        false
    }
    /// An ACL. Permission checks ask without waiting: the file system reads it with the inode. EOPNOTSUPP: files like this have none.
    fn acl(&self, _kind: AclKind) -> Result<Option<Arc<Acl>>> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Replaces or removes an ACL, and sets the mode that goes with it: both or neither.
    fn set_acl(&self, _kind: AclKind, _acl: Option<Arc<Acl>>, _mode: Option<u32>) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }

    /// Who else holds what the namespace has answered about it; None: nobody may, for it changes by itself.
    fn sharers(&self) -> Option<&Sharers> {
        None
    }
    /// How long (ns) its attributes may be believed: see [`Inode::believed`].
    fn lasts(&self) -> u64 {
        FOREVER
    }
    /// A fault in a mapping changes its attributes: it fills a hole.
    fn is_sparse(&self) -> bool {
        false
    }
    /// The next read changes its attributes (the time of access).
    fn notes_read(&self) -> bool {
        false
    }

    // Directories.
    /// The node of `name`, one component. ENOENT.
    fn lookup<'a>(&'a self, _caller: &'a Caller, _name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        ready(Err(Errno::ENOTDIR))
    }
    /// How long (ns) an answer of `lookup`, also ENOENT, may be believed: 0 for trees that change by
    /// themselves, [`FOREVER`] where all changes come through the namespace.
    fn believed(&self) -> u64 {
        FOREVER
    }
    /// Adds names, all but `.` and `..`, from the scan's position on ([`listing`]): as many as there is room for, or fewer. None
    /// though there is room: that was the end.
    fn list<'a>(&'a self, _caller: &'a Caller, _to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::ENOTDIR))
    }
    /// The largest position that lseek takes here.
    fn last_position(&self) -> u64 {
        i64::MAX as u64
    }
    /// Of a directory /proc/PID: whose it is.
    fn process(&self) -> Option<Pid> {
        None
    }
    /// Makes `new` under a name that is free. EEXIST.
    fn create<'a>(&'a self, _name: &'a [u8], _new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        ready(Err(Errno::EPERM))
    }
    /// Is a name that is not there not found even by who is about to make it (/proc)?
    fn is_closed(&self) -> bool {
        false
    }
    /// Why nobody may write it, or change the names in it, whoever asks.
    fn write_refused(&self) -> Option<Errno> {
        None
    }
    /// A file without a name (O_TMPFILE); `link` may give it one.
    fn create_unnamed(&self, _new: NewNode) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// Gives `node` of the same file system another name. EEXIST.
    fn link<'a>(&'a self, _name: &'a [u8], _node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EPERM))
    }
    /// Removes `name`, which is `node`. ENOTEMPTY is the file system's to find.
    fn unlink<'a>(&'a self, _name: &'a [u8], _node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EPERM))
    }
    /// Moves `from`, which is `node`, to `to` in `target` (of the same file system), replacing `old`.
    fn rename<'a>(
        &'a self,
        _from: &'a [u8],
        _node: &'a Arc<dyn Inode>,
        _target: &'a Arc<dyn Inode>,
        _to: &'a [u8],
        _old: Option<&'a Arc<dyn Inode>>,
    ) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EPERM))
    }
    /// RENAME_EXCHANGE.
    fn exchange<'a>(
        &'a self,
        _from: &'a [u8],
        _node: &'a Arc<dyn Inode>,
        _target: &'a Arc<dyn Inode>,
        _to: &'a [u8],
        _other: &'a Arc<dyn Inode>,
    ) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EINVAL))
    }

    // Symbolic links.
    /// Where a symbolic link leads; EINVAL for all others.
    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        ready(Err(Errno::EINVAL))
    }
    /// What readlink says; differs from [`Inode::follow`] for links to open files.
    fn read_link<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        alloc::boxed::Box::pin(async move {
            match self.follow(caller).await? {
                Followed::Path(path) => Ok(path),
                Followed::File(file) => Ok(file.path().await),
            }
        })
    }

    // Regular files.
    /// Called once per open, before the file is used: EACCES of the host, copy-up before writing, a
    /// file of its own instead of the usual one (generated text).
    fn open<'a>(&'a self, _caller: &'a Caller, _flags: OpenFlags) -> BoxFuture<'a, Result<Option<Arc<dyn File>>>> {
        ready(Ok(None))
    }
    /// Reads as many bytes as `to` wants from `offset` on, or fewer; 0 at the end.
    fn read<'a>(&'a self, _to: Destination<'a>, _offset: u64, _read_ahead: ReadAhead) -> Transfer<'a> {
        Transfer::Done(Err(Errno::EINVAL))
    }
    /// Where the write began, and how many bytes were written.
    fn write<'a>(&'a self, _from: Source<'a>, _at: WriteAt) -> Transfer<'a, (u64, usize)> {
        Transfer::Done(Err(Errno::EINVAL))
    }
    /// Reads for a file that is open with O_DIRECT. Where there is no way past the page cache it goes through that.
    fn read_direct<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        self.read(to, offset, ReadAhead::Random)
    }
    /// Writes likewise.
    fn write_direct<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        self.write(from, at)
    }
    /// fallocate(2).
    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// The first offset at or after `offset` that is data or hole; ENXIO past the end. Default: all data.
    fn seek(&self, offset: u64, what: Extent) -> BoxFuture<'_, Result<u64>> {
        alloc::boxed::Box::pin(async move {
            let size = self.attributes().await?.size;
            match what {
                _ if offset >= size => Err(Errno::ENXIO),
                Extent::Data => Ok(offset),
                Extent::Hole => Ok(size),
            }
        })
    }
    /// The pages of the file, to be mapped; `write`: through shared mappings, too. ENODEV: it can't be mapped.
    fn object(&self, _write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Err(Errno::ENODEV))
    }
    /// fcntl(F_ADD_SEALS, F_GET_SEALS): adds, then says which there are.
    fn seal(&self, _add: u32) -> BoxFuture<'_, Result<u32>> {
        crate::file::ready(Err(Errno::EINVAL))
    }
}

/// The same file?
pub fn same(a: &Arc<dyn Inode>, b: &Arc<dyn Inode>) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// A mounted tree.
pub trait FileSystem: Send + Sync {
    /// As in /proc/filesystems.
    fn kind(&self) -> &'static str;
    /// Its topmost directory.
    fn root(&self) -> Arc<dyn Inode>;
    /// What /proc/mounts says that it is from, if it is the root of the machine.
    fn source(&self) -> Vec<u8> {
        b"cob".to_vec()
    }
    /// Writes back all that is dirty.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }
    /// How many loop devices lie below it.
    fn nesting(&self) -> u32 {
        0
    }
    /// `mount -o remount`: it is to be written, or only read. EBUSY: somebody has a file open to write it. EROFS: it can't be written.
    fn remount(&self, read_only: bool) -> BoxFuture<'_, Result<()>> {
        ready(match (read_only, self.root().write_refused()) {
            (false, Some(error)) => Err(error),
            _ => Ok(()),
        })
    }
    /// If another kernel has it: how it is reached.
    fn elsewhere(&self) -> Option<&dyn Elsewhere> {
        None
    }
    /// Nobody uses it any more, or the machine ends: writes back all that is dirty, and leaves what it is kept on as one that was unmounted. It can't be written any more.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.sync()
    }
}

/// A mounted tree of another kernel, on the kernel that owns the root.
pub trait Elsewhere: Send + Sync {
    /// The stand-in of its topmost directory.
    fn entry(&self) -> &Arc<dyn File>;
    /// Mounted with other flags (mount(2)) from now on.
    fn remount(&self, flags: u64) -> BoxFuture<'_, Result<()>>;
    /// Takes it away. EBUSY: something there is in use. Only if it succeeds the file system is closed there. `detached`: it hangs nowhere any more, and this is asked each second until it
    /// is not busy.
    fn unmount(&self, detached: bool) -> BoxFuture<'_, Result<()>>;
}

/// A file system that is to be on another kernel.
pub struct Placed {
    /// The kernel.
    pub kernel: KernelId,
    /// The disk that it is on.
    pub disk: Option<PlacedDisk>,
    /// What this kernel knows of the disk, and leaves to the other one as long as it is mounted.
    pub lent: Option<Arc<dyn Lent>>,
}

/// A disk that another kernel has mounted.
pub trait Lent: Send + Sync {
    /// It has unmounted it: what was known of its contents is forgotten.
    fn returned(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// Makes file systems of one kind (`mount -t KIND`).
pub trait Mounter: Send + Sync {
    /// On which other kernel a file system for `source` with the options `data` is to be, as the kernel that owns the root sees it. None: here.
    fn place<'a>(&'a self, _source: &'a [u8], _data: &'a [u8]) -> BoxFuture<'a, Result<Option<Placed>>> {
        ready(Ok(None))
    }
    /// [`Mounter::mount`] on the kernel where [`Mounter::place`] wants it.
    fn mount_placed<'a>(
        &'a self,
        _disk: Option<&'a PlacedDisk>,
        source: &'a [u8],
        data: &'a [u8],
        read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        self.mount(source, data, read_only)
    }
    /// A file system for `source` with the options `data` (mount(2)), which nobody will write to if it is `read_only`.
    fn mount<'a>(
        &'a self,
        source: &'a [u8],
        data: &'a [u8],
        read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>>;
}
