//! /proc/PID, /proc/PID/task and /proc/PID/task/TID: which files there are, and whose.

use super::{about, cob, links, maps, memory, net, oom, root::number, stat, Subject};
use ::machine::{errno::Result, BoxFuture, Errno, Pid};
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use fs::{
    inode::listing::{Listing, FIRST},
    synthetic::{hash_ino, Content, Directory, Made, Node, Places, Style},
    Caller, Kind,
};
use messages::inspect::{Inspect, Inspection, ProcessFile, ProcessView, RunState, ThreadView};

type Answer = BoxFuture<'static, Result<Vec<u8>>>;
type Maker = fn(Subject, Caller) -> Answer;

/// A file of text: its name, its permission bits, and what makes it.
struct TextFile(&'static str, u32, Maker);

macro_rules! texts {
    ($($name:literal $mode:literal $make:path;)*) => {
        &[$(TextFile($name, $mode, |subject, caller| Box::pin($make(subject, caller)))),*]
    };
}

/// In the directory of a process, and of each of its threads.
const TEXTS: &[TextFile] = texts! {
    "stat" 0o444 stat::stat;
    "statm" 0o444 stat::statm;
    "status" 0o444 stat::status;
    "sched" 0o444 stat::sched;
    "schedstat" 0o444 stat::schedstat;
    "cmdline" 0o444 about::cmdline;
    "environ" 0o400 about::environ;
    "auxv" 0o400 about::auxv;
    "limits" 0o444 about::limits;
    "io" 0o400 about::io;
    "wchan" 0o444 about::wchan;
    "cgroup" 0o444 about::cgroup;
    "oom_score" 0o444 oom::score;
    "loginuid" 0o444 about::loginuid;
    "sessionid" 0o444 about::loginuid;
    "personality" 0o400 about::personality;
    "mounts" 0o444 about::mounts;
    "mountinfo" 0o444 about::mount_info;
    "maps" 0o444 maps::maps;
    "smaps" 0o444 maps::smaps;
    "smaps_rollup" 0o444 maps::smaps_rollup;
    "cob" 0o444 cob::process;
};

/// Those that Linux does not make line by line.
const BYTES: [&str; 5] = ["cmdline", "environ", "auxv", "loginuid", "sessionid"];

/// The node of a process's or thread's directory.
pub(super) fn node(subject: Subject, owner: (u32, u32)) -> Node {
    let at = match subject.thread {
        Some(thread) => format!("/proc/{}/task/{thread}", subject.pid),
        None => format!("/proc/{}", subject.pid),
    };
    let ino = hash_ino(at.as_bytes());
    Node::directory(ino, About { subject, owner, at }).owned(owner.0, owner.1).style(Style::Process)
}

/// Those of the memory, which not everybody may open.
const OF_MEMORY: [&str; 5] = ["environ", "auxv", "maps", "smaps", "smaps_rollup"];

struct ProcessText {
    subject: Subject,
    make: Maker,
    /// Without memory there is none, or it is empty.
    of_memory: Option<bool>,
    /// It is made region by region; with their pages?
    regions: Option<bool>,
}

impl Content for ProcessText {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        (self.make)(self.subject.clone(), caller.clone())
    }

    fn extend<'a>(&'a self, caller: &'a Caller, made: &'a mut Made, mark: u64) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            match self.regions {
                Some(pages) => maps::extend(&self.subject, pages, caller, made, mark).await,
                None => {
                    made.text = self.read(caller).await?;
                    Ok(None)
                }
            }
        })
    }

    fn open<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Option<Arc<dyn Places>>>> {
        Box::pin(async move {
            let Some(must_be) = self.of_memory else { return Ok(None) };
            match self.subject.inspect(Inspect::Memory { start: 0, end: 0 }, caller).await {
                Err(Errno::ENOENT) if must_be => Err(Errno::ESRCH),
                Err(Errno::ENOENT) | Ok(_) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

struct About {
    subject: Subject,
    owner: (u32, u32),
    at: String,
}

/// Files that are no [`TextFile`].
const OTHERS: [&str; 5] = ["comm", "mem", "clear_refs", "oom_score_adj", "oom_adj"];
const LINKS: [&str; 3] = ["cwd", "root", "exe"];
const DIRECTORIES: [&str; 4] = ["fd", "fdinfo", "task", "net"];

impl About {
    fn ino(&self, name: &str) -> u64 {
        hash_ino(format!("{}/{name}", self.at).as_bytes())
    }

    fn find(&self, name: &str) -> Option<Node> {
        let (ino, subject) = (self.ino(name), self.subject.clone());
        if let Some(TextFile(_, mode, make)) = TEXTS.iter().find(|text| text.0 == name) {
            let style = if BYTES.contains(&name) { Style::Bytes } else { Style::Process };
            let of_memory = OF_MEMORY.contains(&name).then_some(style == Style::Bytes);
            let regions = ["maps", "smaps"].contains(&name).then_some(name == "smaps");
            let content = ProcessText { subject, make: *make, of_memory, regions };
            return Some(Node::file(ino, content).mode(*mode).style(style));
        }
        Some(match name {
            "comm" => Node::file(ino, about::Name(subject)).mode(0o644).style(Style::Process),
            "mem" => Node::file(ino, memory::Memory(subject)).mode(0o600).style(Style::Bytes),
            "clear_refs" => Node::file(ino, maps::ClearRefs(subject)).mode(0o200).style(Style::Action),
            "oom_score_adj" => {
                Node::file(ino, oom::Adjust { subject, old_file: false }).mode(0o644).style(Style::Bytes)
            }
            "oom_adj" => Node::file(ino, oom::Adjust { subject, old_file: true }).mode(0o644).style(Style::Bytes),
            "cwd" => Node::link(ino, links::DirectoryLink { subject, which: ProcessFile::Cwd }),
            "root" => Node::link(ino, links::DirectoryLink { subject, which: ProcessFile::Root }),
            "exe" => Node::link(ino, links::Executable(subject)),
            "fd" => Node::directory(
                ino,
                links::Descriptors { subject, info: false, at: format!("{}/fd", self.at), owner: self.owner },
            )
            .mode(0o500),
            "fdinfo" => Node::directory(
                ino,
                links::Descriptors { subject, info: true, at: format!("{}/fdinfo", self.at), owner: self.owner },
            )
            .mode(0o555),
            "task" if self.subject.thread.is_none() => Node::directory(ino, Tasks { subject, owner: self.owner }),
            "net" => Node::directory(ino, net::directory(&format!("{}/net", self.at), &subject.proc)),
            _ => return None,
        })
    }
}

impl Directory for About {
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        Box::pin(async move {
            // It may have been found while its process lived.
            let of_thread = self.subject.thread.is_some();
            self.subject.alive(caller).await.map_err(|error| if of_thread { Errno::ENOENT } else { error })?;
            let found = core::str::from_utf8(name).ok().and_then(|name| self.find(name));
            Ok(found.ok_or(Errno::ENOENT)?.owned(self.owner.0, self.owner.1))
        })
    }

    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.subject.alive(caller).await.map_err(|_| Errno::ENOENT)?;
            let own = self.subject.thread.is_none();
            let names = TEXTS.iter().map(|text| (text.0, Kind::Regular));
            let names = names.chain(OTHERS.map(|name| (name, Kind::Regular)));
            let names = names.chain(LINKS.map(|name| (name, Kind::Symlink)));
            let names = names.chain(DIRECTORIES.map(|name| (name, Kind::Directory)));
            let from = to.scan.position;
            for (next, (name, kind)) in (FIRST + 1..).zip(names).filter(|(_, (name, _))| own || *name != "task") {
                if next > from && !to.add(self.ino(name), next, kind.d_type(), name.as_bytes()) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn process(&self) -> Option<Pid> {
        self.subject.thread.is_none().then_some(self.subject.pid)
    }

    fn subdirectories(&self) -> u32 {
        DIRECTORIES.len() as u32 - u32::from(self.subject.thread.is_some())
    }
}

/// /proc/PID/task.
struct Tasks {
    subject: Subject,
    owner: (u32, u32),
}

impl Tasks {
    async fn threads(&self, caller: &Caller) -> Result<Vec<Pid>> {
        let system = &self.subject.proc.system;
        match system.inspect(self.subject.pid, Inspect::Owner, caller.credentials.clone()).await? {
            Inspection::Owner { threads, .. } => Ok(threads),
            _ => Err(Errno::EIO),
        }
    }
}

impl Directory for Tasks {
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        Box::pin(async move {
            let threads = self.threads(caller).await?;
            let thread = number(name).ok_or(Errno::ENOENT)?;
            let known = threads.contains(&thread);
            let subject = Subject { thread: Some(thread), ..self.subject.clone() };
            if known {
                Ok(node(subject, self.owner))
            } else {
                Err(Errno::ENOENT)
            }
        })
    }

    /// The position behind a thread is its id's.
    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let threads = self.threads(caller).await.map_err(|_| Errno::ENOENT)?;
            let from = to.scan.position;
            let next = |thread: Pid| FIRST + u64::from(thread.0);
            for thread in threads.into_iter().filter(|&thread| next(thread) > from) {
                let ino = hash_ino(format!("/proc/{}/task/{thread}", self.subject.pid).as_bytes());
                if !to.add(ino, next(thread), Kind::Directory.d_type(), format!("{thread}").as_bytes()) {
                    break;
                }
            }
            Ok(())
        })
    }
}

impl Subject {
    /// ESRCH once the process or the thread is gone.
    pub async fn alive(&self, caller: &Caller) -> Result<()> {
        match self.proc.system.inspect(self.pid, Inspect::Owner, caller.credentials.clone()).await? {
            Inspection::Owner { threads, .. } => match self.thread {
                Some(other) if other != self.pid && !threads.contains(&other) => Err(Errno::ESRCH),
                _ => Ok(()),
            },
            _ => Err(Errno::EIO),
        }
    }

    /// Looks at the process; ESRCH once it is gone.
    pub async fn inspect(&self, what: Inspect, caller: &Caller) -> Result<Inspection> {
        self.proc.system.inspect(self.pid, what, self.reader(caller)).await
    }

    pub fn reader(&self, caller: &Caller) -> fs::Credentials {
        match caller.process == self.pid {
            // Nobody is kept from looking at himself.
            true => fs::Credentials::default(),
            false => caller.credentials.clone(),
        }
    }

    pub async fn view(&self, caller: &Caller) -> Result<ProcessView> {
        match self.inspect(Inspect::View, caller).await? {
            Inspection::View(mut view) => {
                // Who asks is at work, though inside a system call.
                for thread in view.threads.iter_mut().filter(|thread| thread.thread == caller.thread) {
                    thread.state = RunState::Runnable;
                }
                match self.thread {
                    Some(other) if other != self.pid && self.thread_of(&view).is_none() => Err(Errno::ESRCH),
                    _ => Ok(*view),
                }
            }
            _ => Err(Errno::EIO),
        }
    }

    /// The thread that a per-thread file is about: the main one in a process's own directory. None: it is
    /// gone (a zombie has no main one).
    pub fn thread_of<'a>(&self, view: &'a ProcessView) -> Option<&'a ThreadView> {
        let wanted = self.thread.unwrap_or(self.pid);
        view.threads.iter().find(|thread| thread.thread == wanted)
    }
}
