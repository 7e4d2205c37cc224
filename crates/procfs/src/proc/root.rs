//! The directory /proc itself.

use super::{
    cob, control, machine as of_machine,
    made::{Directory as Names, Made},
    process, sysctl, sysvipc, Proc, Subject,
};
use ::machine::{errno::Result, BoxFuture, Errno, Pid};
use alloc::{boxed::Box, format, sync::Arc};
use fs::{
    inode::{
        listing::{Listing, FIRST},
        Followed,
    },
    synthetic::{hash_ino, Directory, Fixed, Link, Node},
    Caller, Kind,
};
use messages::inspect::{Inspect, Inspection};

/// Position of the first process, as on Linux (FIRST_PROCESS_ENTRY); that behind a process is its id's.
const PROCESSES: u64 = 256;

pub(super) struct Root {
    proc: Arc<Proc>,
    names: Fixed,
}

impl Root {
    pub fn new(proc: Arc<Proc>) -> Self {
        let mut names = Names::new("/proc");
        for (name, make) in of_machine::FILES {
            names = names.file(name, Made { source: proc.clone(), make: *make });
        }
        let names = names
            .with("sysrq-trigger", control::sysrq(&proc))
            .link("mounts", "self/mounts")
            .link("net", "self/net")
            .with("self", Node::link(2, Own { thread: false }))
            .with("thread-self", Node::link(3, Own { thread: true }))
            .directory("sys", |names| sysctl::fill(&proc, names))
            .directory("sysvipc", |names| sysvipc::fill(&proc, names))
            .directory("cob", |names| cob::fill(&proc, names))
            .done();
        assert!(FIRST + names.names().len() as u64 <= PROCESSES, "positions of names and processes are apart");
        Root { proc, names }
    }
}

impl Directory for Root {
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        Box::pin(async move {
            if let Some(node) = self.names.get(name) {
                return Ok(node);
            }
            let id = number(name).ok_or(Errno::ENOENT)?;
            // A thread's id leads to its process's files, but is not listed (man 5 proc, /proc/TID).
            let system = &self.proc.system;
            let pid = match system.process(id) {
                Some(_) => id,
                None => system.process_of(id).await.unwrap_or(id),
            };
            let asked = system.inspect(pid, Inspect::Owner, caller.credentials.clone()).await;
            let Ok(Inspection::Owner { uid, gid, threads }) = asked else { return Err(Errno::ENOENT) };
            let thread = (id != pid).then_some(id);
            if thread.is_some_and(|thread| !threads.contains(&thread)) {
                return Err(Errno::ENOENT);
            }
            let subject = Subject { proc: self.proc.clone(), pid, thread };
            Ok(process::node(subject, (uid, gid)))
        })
    }

    /// The names that are always there first, then processes from the position's id on.
    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if to.scan.position < PROCESSES {
                self.names.list(to);
            }
            if to.is_full() {
                return Ok(());
            }
            let from = to.scan.position;
            let next = |pid: Pid| PROCESSES + u64::from(pid.0);
            let processes = self.proc.system.list().await;
            for &pid in &processes[processes.partition_point(|&pid| next(pid) <= from)..] {
                let name = format!("{pid}").into_bytes();
                let ino = hash_ino(&[b"/proc/", &name[..]].concat());
                if !to.add(ino, next(pid), Kind::Directory.d_type(), &name) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn subdirectories(&self) -> u32 {
        self.names.subdirectories()
    }
}

/// A process or thread id as a name: decimal, no leading zero.
pub(super) fn number(name: &[u8]) -> Option<Pid> {
    let text = core::str::from_utf8(name).ok()?;
    let plain = !text.starts_with(['0', '+', '-']);
    text.parse().ok().filter(|_| plain).map(Pid)
}

/// /proc/self and /proc/thread-self.
struct Own {
    thread: bool,
}

impl Link for Own {
    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move {
            if caller.process == Pid(0) {
                return Err(Errno::ENOENT);
            }
            let path = match self.thread {
                true => format!("{}/task/{}", caller.process, caller.thread),
                false => format!("{}", caller.process),
            };
            Ok(Followed::Path(path.into_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::number;
    use ::machine::Pid;

    #[test]
    fn only_plain_numbers_are_ids() {
        assert_eq!(number(b"17"), Some(Pid(17)));
        for name in [&b"017"[..], b"0", b"+1", b"-1", b"1a", b"", b"99999999999"] {
            assert_eq!(number(name), None, "{}", name.escape_ascii());
        }
    }
}
