//! /proc/sys/vm (Linux: Documentation/admin-guide/sysctl/vm.rst). When dirty pages are written back is set on the kernel that has the file systems of disks and shares.

use super::Proc;
use crate::proc::made::Directory as Names;
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use fs::{
    synthetic::{hash_ino, Content, Node, Style},
    Caller, Services, WriteBackSettings,
};
use machine::{errno::Result, BoxFuture, Errno};

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    let setting = |path: &str, which, most| {
        let content = Setting { services: proc.services.clone(), which, most };
        Node::file(hash_ino(path.as_bytes()), content).mode(0o644).style(Style::Setting)
    };
    let drop_caches = Node::file(hash_ino(b"/proc/sys/vm/drop_caches"), DropCaches(proc.clone()));
    names
        .constant("overcommit_memory", "0\n")
        .constant("overcommit_ratio", "50\n")
        .constant("max_map_count", "65530\n")
        .constant("mmap_min_addr", "65536\n")
        .constant("swappiness", "0\n")
        .with("drop_caches", drop_caches.mode(0o200).style(Style::Setting))
        .with(
            "dirty_background_ratio",
            setting("/proc/sys/vm/dirty_background_ratio", |all| &all.background_ratio, 100),
        )
        .with("dirty_ratio", setting("/proc/sys/vm/dirty_ratio", |all| &all.ratio, 100))
        .with(
            "dirty_expire_centisecs",
            setting("/proc/sys/vm/dirty_expire_centisecs", |all| &all.expire, i32::MAX as u32),
        )
        .with(
            "dirty_writeback_centisecs",
            setting("/proc/sys/vm/dirty_writeback_centisecs", |all| &all.interval, i32::MAX as u32),
        )
}

/// A number from 0 to `most`.
struct Setting {
    services: Arc<Services>,
    which: fn(&WriteBackSettings) -> &AtomicU32,
    most: u32,
}

fn number(text: &[u8], most: u32) -> Result<u32> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    text.trim_ascii().parse().ok().filter(|number| *number <= most).ok_or(Errno::EINVAL)
}

impl Content for Setting {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        let number = (self.which)(&self.services.flusher.settings).load(Relaxed);
        Box::pin(core::future::ready(Ok(format!("{number}\n").into_bytes())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            let number = number(data, self.most)?;
            (self.which)(&self.services.flusher.settings).store(number, Relaxed);
            Ok(data.len())
        })
    }
}

/// Clean pages (1) and names (2) that nobody uses are forgotten.
struct DropCaches(Arc<Proc>);

impl Content for DropCaches {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(core::future::ready(Ok(b"0\n".to_vec())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            let what = number(data, 4)?;
            if what == 0 {
                return Err(Errno::EINVAL);
            }
            if let Some(paths) = self.0.paths.upgrade().filter(|_| what & 2 != 0) {
                paths.drop_names().await;
            }
            if what & 1 != 0 {
                self.0.services.reclaim(usize::MAX);
            }
            Ok(data.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_linux_takes_are_taken() {
        assert_eq!((number(b"30\n", 100), number(b" 0", 100)), (Ok(30), Ok(0)));
        for refused in [&b"101"[..], b"-1", b"x", b"", b"1 2"] {
            assert_eq!(number(refused, 100), Err(Errno::EINVAL));
        }
    }
}
