//! /proc/sys: what can be asked of it. The names of the machine, who may have ICMP sockets, and when dirty pages are written back can be set.

mod net;
mod ping;
mod vm;

use super::{
    made::{put, Directory as Names, Made, Text},
    Proc,
};
use ::machine::{errno::Result, BoxFuture, Errno};
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use fs::{
    inotify, pipe,
    synthetic::{hash_ino, Content, Node, Style},
    Caller,
};

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    names
        .directory("kernel", |names| kernel(proc, names))
        .directory("net", |names| net::fill(proc, names))
        .directory("vm", |names| vm::fill(proc, names))
        .directory("fs", |names| {
            names
                .constant("file-max", "9223372036854775807\n")
                .constant("nr_open", "1048576\n")
                .constant("pipe-max-size", format!("{}\n", pipe::MAX_CAPACITY))
                .constant("pipe-user-pages-soft", format!("{}\n", pipe::SOFT_PAGES))
                .constant("pipe-user-pages-hard", "0\n")
                .directory("epoll", |names| {
                    names.constant("max_user_watches", format!("{}\n", proc.system.accounts.most_watches()))
                })
                .directory("inotify", |names| {
                    names
                        .constant("max_queued_events", format!("{}\n", inotify::MAX_QUEUED))
                        .constant("max_user_instances", format!("{}\n", inotify::MAX_INSTANCES))
                        .constant("max_user_watches", format!("{}\n", inotify::MAX_WATCHES))
                })
        })
}

fn kernel(proc: &Arc<Proc>, names: Names) -> Names {
    let name = |domain, path: &str| {
        let content = MachineName { proc: proc.clone(), domain };
        Node::file(hash_ino(path.as_bytes()), content).mode(0o644).style(Style::Setting)
    };
    names
        .with("hostname", name(false, "/proc/sys/kernel/hostname"))
        .with("domainname", name(true, "/proc/sys/kernel/domainname"))
        .constant("ostype", "Linux\n")
        .constant("osrelease", format!("{}\n", abi::RELEASE))
        .constant("version", format!("{}\n", abi::VERSION))
        .constant("pid_max", "4194304\n")
        .constant("threads-max", "4194304\n")
        .constant("overflowuid", "65534\n")
        .constant("overflowgid", "65534\n")
        .constant("cap_last_cap", "40\n")
        .constant("ngroups_max", "65536\n")
        .constant("randomize_va_space", "2\n")
        .constant("shmmax", "18446744073692774399\n")
        .constant("shmall", "18446744073692774399\n")
        .constant("shmmni", "4096\n")
        .constant("msgmax", "8192\n")
        .constant("msgmnb", "16384\n")
        .constant("msgmni", "32000\n")
        .constant("sem", "32000\t1024000000\t500\t32000\n")
        .constant("core_pattern", "core\n")
        .constant("tainted", "0\n")
        .directory("random", |names| {
            names
                .constant("poolsize", "256\n")
                .constant("entropy_avail", "256\n")
                .constant("boot_id", uuid(proc.boot_id))
                .file("uuid", Made { source: proc.clone(), make: fresh_uuid })
        })
}

async fn fresh_uuid(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut bytes = [0; 16];
    proc.system.cpu.random(&mut bytes);
    Ok(uuid(bytes).into_bytes())
}

/// A random UUID (RFC 9562, version 4) of these bits.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text + "\n"
}

struct MachineName {
    proc: Arc<Proc>,
    domain: bool,
}

impl Content for MachineName {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let (host, domain) = self.proc.system.host_name();
            let mut text = Text::default();
            text.bytes(if self.domain { &domain } else { &host });
            put!(text, "\n");
            Ok(text.0)
        })
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            if data.is_empty() {
                return Ok(0);
            }
            let end = data.iter().position(|byte| matches!(byte, 0 | b'\n')).unwrap_or(data.len());
            self.proc.system.set_name(self.domain, data[..end.min(64)].to_vec()).await?;
            Ok(data.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn a_uuid_is_one_of_version_four() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff\n");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000\n");
    }
}
