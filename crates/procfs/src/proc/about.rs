//! The small files of a process.

use super::{
    made::{put, Text},
    Subject,
};
use ::machine::{errno::Result, BoxFuture, Errno};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    namespace::mount::{flags, Mount},
    synthetic::Content,
    Caller, Inode,
};
use messages::{
    inspect::{Inspect, Inspection},
    process::SchedulingChange,
};

/// Bytes of its memory that are read at a time.
const PIECE: u64 = 1 << 16;

/// A part of the process's memory that execve wrote; what is gone (a zombie's) is empty.
async fn memory(subject: &Subject, caller: &Caller, range: [u64; 2]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let [mut start, last] = range;
    while start < last {
        let end = last.min(start + PIECE);
        match subject.inspect(Inspect::Memory { start, end }, caller).await {
            Ok(Inspection::Bytes(piece)) => bytes.extend(piece),
            Err(Errno::ENOENT | Errno::EFAULT | Errno::ESRCH) => break,
            Err(error) => return Err(error),
            Ok(_) => return Err(Errno::EIO),
        }
        start = end;
    }
    Ok(bytes)
}

/// Whoever may not look at the memory of a process still sees its command line (Linux reads it as itself).
pub(super) async fn cmdline(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let mut reader = caller;
    reader.credentials = fs::Credentials::default();
    let layout = subject.view(&reader).await?.shared.layout;
    memory(&subject, &reader, layout.arguments).await
}

pub(super) async fn environ(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let layout = match subject.view(&caller).await {
        // Its memory is gone, as a zombie's.
        Err(Errno::ESRCH) => return Ok(Vec::new()),
        view => view?.shared.layout,
    };
    memory(&subject, &caller, layout.environment).await
}

pub(super) async fn auxv(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let layout = subject.view(&caller).await?.shared.layout;
    memory(&subject, &caller, layout.auxv).await
}

/// comm: the name of a thread. Only a thread of the same process may write it.
pub(super) struct Name(pub Subject);

impl Content for Name {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let view = self.0.view(caller).await?;
            let mut name = self.0.thread_of(&view).map_or(view.name.clone(), |thread| thread.name.clone());
            name.push(b'\n');
            Ok(name)
        })
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if caller.process != self.0.pid {
                return self.0.view(caller).await.and(Err(Errno::EINVAL));
            }
            let name = data.iter().take(15).take_while(|byte| **byte != 0).copied().collect();
            let thread = self.0.thread.unwrap_or(self.0.pid);
            self.0
                .proc
                .system
                .change_scheduling(thread, SchedulingChange::Name(name), caller.credentials.clone())
                .await?;
            Ok(data.len())
        })
    }
}

/// Name, unit and number of each limit, in Linux's order.
const LIMITS: [(&str, &str, usize); 16] = [
    ("Max cpu time", "seconds", 0),
    ("Max file size", "bytes", 1),
    ("Max data size", "bytes", 2),
    ("Max stack size", "bytes", 3),
    ("Max core file size", "bytes", 4),
    ("Max resident set", "bytes", 5),
    ("Max processes", "processes", 6),
    ("Max open files", "files", 7),
    ("Max locked memory", "bytes", 8),
    ("Max address space", "bytes", 9),
    ("Max file locks", "locks", 10),
    ("Max pending signals", "signals", 11),
    ("Max msgqueue size", "bytes", 12),
    ("Max nice priority", "", 13),
    ("Max realtime priority", "", 14),
    ("Max realtime timeout", "us", 15),
];

pub(super) async fn limits(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    Ok(limits_text(&subject.view(&caller).await?.shared.limits))
}

fn limits_text(limits: &[(u64, u64)]) -> Vec<u8> {
    let mut text = Text::default();
    put!(text, "{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (name, unit, index) in LIMITS {
        let (soft, hard) = limits.get(index).copied().unwrap_or((u64::MAX, u64::MAX));
        put!(text, "{name:<25}");
        for value in [soft, hard] {
            match value {
                u64::MAX => put!(text, " {:<20}", "unlimited"),
                value => put!(text, " {value:<20}"),
            }
        }
        match unit {
            "" => put!(text, " \n"),
            unit => put!(text, " {unit:<10}\n"),
        }
    }
    text.0
}

/// Bytes read and written are not counted.
pub(super) async fn io(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    subject.alive(&caller).await?;
    let mut text = Text::default();
    for name in ["rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"] {
        put!(text, "{name}: 0\n");
    }
    Ok(text.0)
}

/// What a thread waits in has no name here: 0, as for a running thread.
pub(super) async fn wchan(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    subject.alive(&caller).await?;
    Ok(b"0".to_vec())
}

pub(super) async fn cgroup(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let path = subject.proc.system.with_cgroups(|tree| tree.path(view.shared.cgroup));
    Ok([b"0::", &path[..], b"\n"].concat())
}

/// Nobody has logged in: (uid_t) -1.
pub(super) async fn loginuid(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    subject.alive(&caller).await?;
    Ok(b"4294967295".to_vec())
}

pub(super) async fn personality(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let mut text = Text::default();
    put!(text, "{:08x}\n", subject.thread_of(&view).map_or(0, |thread| thread.personality));
    Ok(text.0)
}

/// Octal escapes as in /etc/mtab (man 5 fstab).
fn escaped(text: &mut Text, path: &[u8]) {
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => put!(text, "\\{byte:03o}"),
            _ => text.bytes(&[byte]),
        }
    }
}

/// Where a mount hangs.
fn place(mount: &Mount) -> Vec<u8> {
    mount.on.as_ref().map_or_else(|| b"/".to_vec(), |on| on.path())
}

/// The topmost directories of mounted file systems that can stop when they find an error, and whether they have. Asking may wait, and a mount that somebody has is busy: meanwhile only the
/// directories are kept.
async fn stopped(subject: &Subject) -> Vec<(Arc<dyn Inode>, bool)> {
    let mounts = subject.proc.mounts();
    let can_stop = mounts.iter().filter(|mount| mount.file_system.kind() == "ext4");
    let mut all: Vec<_> = can_stop.map(|mount| (mount.root.inode.clone(), false)).collect();
    drop(mounts);
    for (root, stopped) in &mut all {
        *stopped = root.info().await.is_ok_and(|info| info.has_stopped);
    }
    all
}

fn options(mount: &Mount, stopped: &[(Arc<dyn Inode>, bool)]) -> alloc::string::String {
    let set = mount.flags();
    let mut text = alloc::string::String::from(if set & flags::RDONLY != 0 { "ro" } else { "rw" });
    let words = [
        (flags::NOSUID, ",nosuid"),
        (flags::NODEV, ",nodev"),
        (flags::NOEXEC, ",noexec"),
        (flags::NOATIME, ",noatime"),
        (flags::RELATIME, ",relatime"),
    ];
    for (_, word) in words.into_iter().filter(|(flag, _)| set & flag != 0) {
        text += word;
    }
    if stopped.iter().any(|(root, stopped)| *stopped && Arc::ptr_eq(root, &mount.root.inode)) {
        text += ",emergency_ro";
    }
    text
}

pub(super) async fn mounts(subject: Subject, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    let stopped = stopped(&subject).await;
    for mount in subject.proc.mounts() {
        let source = &mount.source[..];
        escaped(&mut text, source);
        text.bytes(b" ");
        escaped(&mut text, &place(&mount));
        put!(text, " {} {} 0 0\n", mount.file_system.kind(), options(&mount, &stopped));
    }
    Ok(text.0)
}

pub(super) async fn mount_info(subject: Subject, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    // What tells a device may wait, and a mount that somebody has is busy: meanwhile only their roots are kept.
    let roots = subject.proc.mounts().iter().map(|mount| mount.root.inode.clone()).collect::<Vec<_>>();
    let mut devices = Vec::new();
    for root in &roots {
        devices.push(root.attributes().await.map_or((0, 0), |attributes| attributes.dev));
    }
    let stopped = stopped(&subject).await;
    let all = subject.proc.mounts();
    for (index, mount) in all.iter().enumerate() {
        let parent = mount.on.as_ref().and_then(|on| all.iter().position(|other| Arc::ptr_eq(other, &on.mount)));
        let known = roots.iter().position(|root| Arc::ptr_eq(root, &mount.root.inode));
        let device = known.map_or((0, 0), |known| devices[known]);
        put!(text, "{} {} {}:{} / ", index + 1, parent.map_or(0, |parent| parent + 1), device.0, device.1);
        escaped(&mut text, &place(mount));
        put!(text, " {} - {} ", options(mount, &stopped), mount.file_system.kind());
        let source = &mount.source[..];
        escaped(&mut text, source);
        put!(text, " {}\n", if mount.flags() & flags::RDONLY != 0 { "ro" } else { "rw" });
    }
    Ok(text.0)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn limits_are_printed_as_the_host_does() {
        let host = std::fs::read_to_string("/proc/self/limits").expect("the host has /proc");
        let parse = |word: &str| if word == "unlimited" { u64::MAX } else { word.parse().expect("a number") };
        let mut limits = alloc::vec![(0, 0); 16];
        for (line, (name, _, index)) in host.lines().skip(1).zip(LIMITS) {
            assert!(line.starts_with(name), "{line}");
            limits[index] = (parse(line[26..46].trim()), parse(line[47..67].trim()));
        }
        assert_eq!(alloc::string::String::from_utf8(limits_text(&limits)).expect("ASCII"), host);
    }

    #[test]
    fn odd_characters_of_mount_points_are_octal() {
        let mut text = Text::default();
        escaped(&mut text, b"/a b\\c\td\n");
        assert_eq!(text.0, b"/a\\040b\\134c\\011d\\012");
    }
}
