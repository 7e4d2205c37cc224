//! Links to open files: fd, fdinfo, cwd, root, exe. They lead to the file itself, not to its name.

use super::{
    made::{put, Text},
    Subject,
};
use ::machine::{errno::Result, BoxFuture, Errno};
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use fs::{
    inode::{
        listing::{Listing, FIRST},
        Followed,
    },
    synthetic::{hash_ino, Content, Directory, Link, Node, Style},
    Caller, File, Kind, OpenFlags, Whence,
};
use messages::inspect::{Inspect, Inspection, ProcessFile};

impl Subject {
    async fn file(&self, which: ProcessFile, caller: &Caller) -> Result<Arc<dyn File>> {
        self.proc.system.inspect_file(self.pid, which, self.reader(caller)).await
    }

    /// ENOENT if there is none, or nobody who could have it.
    async fn descriptor(&self, fd: u32, caller: &Caller) -> Result<Arc<dyn File>> {
        let file = self.file(ProcessFile::Descriptor(fd), caller).await;
        file.map_err(|error| if error == Errno::ESRCH { Errno::ENOENT } else { error })
    }
}

/// cwd and root.
pub(super) struct DirectoryLink {
    pub subject: Subject,
    pub which: ProcessFile,
}

impl Link for DirectoryLink {
    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move { Ok(Followed::File(self.subject.file(self.which, caller).await?)) })
    }
}

/// exe: known by its path only.
pub(super) struct Executable(pub Subject);

impl Link for Executable {
    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move {
            let view = self.0.view(caller).await?;
            let who = &caller.credentials;
            if !(who.can(abi::capability::SYS_PTRACE) || who.fsuid == view.credentials.uid && view.shared.dumpable) {
                return Err(Errno::EACCES);
            }
            // Init has none.
            if view.zombie || view.shared.executable.is_empty() {
                return Err(Errno::ENOENT);
            }
            Ok(Followed::Path(view.shared.executable))
        })
    }
}

struct Open {
    subject: Subject,
    fd: u32,
}

impl Link for Open {
    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move { Ok(Followed::File(self.subject.file(ProcessFile::Descriptor(self.fd), caller).await?)) })
    }
}

/// A file of fdinfo.
impl Content for Open {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let file = self.subject.descriptor(self.fd, caller).await?;
            // What can't seek (a pipe) is at 0.
            let position = file.seek(0, Whence::Current).await.unwrap_or(0);
            let ino = file.attributes().await?.ino;
            let mut text = Text::default();
            let flags = file.flags();
            fs::file::close(file).await;
            put!(text, "pos:\t{position}\nflags:\t0{:o}\nmnt_id:\t1\nino:\t{ino}\n", flags.shown());
            Ok(text.0)
        })
    }
}

/// /proc/PID/fd and /proc/PID/fdinfo.
pub(super) struct Descriptors {
    pub subject: Subject,
    pub info: bool,
    pub at: String,
    pub owner: (u32, u32),
}

impl Descriptors {
    /// Open descriptors from `from` on, as many as come at a time.
    async fn open(&self, from: u32, caller: &Caller) -> Result<Vec<u32>> {
        match self.subject.inspect(Inspect::Descriptors { from }, caller).await {
            Ok(Inspection::Descriptors(list)) => Ok(list),
            Ok(_) => Err(Errno::EIO),
            // A zombie has closed them.
            Err(Errno::ENOENT) => Ok(Vec::new()),
            Err(Errno::ESRCH) => Err(Errno::ENOENT),
            Err(error) => Err(error),
        }
    }
}

impl Directory for Descriptors {
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        Box::pin(async move {
            if self.info {
                self.subject.alive(caller).await?;
            }
            let text = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
            let fd: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
            if format!("{fd}") != text {
                return Err(Errno::ENOENT);
            }
            let ino = hash_ino(format!("{}/{fd}", self.at).as_bytes());
            let subject = self.subject.clone();
            let file = subject.descriptor(fd, caller).await?;
            let flags = file.flags();
            fs::file::close(file).await;
            let open = Open { subject, fd };
            let node = match self.info {
                true => Node::file(ino, open).style(Style::Process),
                false => {
                    // The link's bits say how the file is open.
                    let access = if flags.contains(OpenFlags::PATH) {
                        0
                    } else {
                        u32::from(flags.readable()) << 8 | u32::from(flags.writable()) << 7
                    };
                    Node::link(ino, open).mode(access | 0o100)
                }
            };
            Ok(node.owned(self.owner.0, self.owner.1))
        })
    }

    /// A descriptor is at its number.
    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let kind = if self.info { Kind::Regular } else { Kind::Symlink };
            // A position is less than 2^31.
            let from = (to.scan.position - FIRST) as u32;
            for fd in self.open(from, caller).await? {
                let name = format!("{fd}");
                let ino = hash_ino(format!("{}/{name}", self.at).as_bytes());
                if !to.add(ino, FIRST + u64::from(fd) + 1, kind.d_type(), name.as_bytes()) {
                    break;
                }
            }
            Ok(())
        })
    }
}
