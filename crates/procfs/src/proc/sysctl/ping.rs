//! /proc/sys/net/ipv4/ping_group_range: which groups may have ICMP sockets. Kept by the kernel that serves /proc; others ask it.

use super::Proc;
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use fs::{
    socket::NetNamespace,
    synthetic::{hash_ino, Content, Node, Style},
    Caller,
};
use machine::{errno::Result, BoxFuture, Errno};

struct PingGroups(Arc<NetNamespace>);

pub(super) fn groups(proc: &Arc<Proc>) -> Node {
    let content = PingGroups(proc.system.extension::<NetNamespace>());
    Node::file(hash_ino(b"/proc/sys/net/ipv4/ping_group_range"), content).mode(0o644).style(Style::Setting)
}

/// The range after `text` was written: a number that is not there stays as it was, and a range that has nobody in it is the default.
fn changed(before: (u32, u32), text: &[u8]) -> Result<(u32, u32)> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    if text.trim_ascii().is_empty() {
        return Err(Errno::EINVAL);
    }
    let (mut first, mut last) = before;
    for (bound, number) in [&mut first, &mut last].into_iter().zip(text.split_ascii_whitespace()) {
        *bound = number.parse().ok().filter(|group: &u32| *group < u32::MAX).ok_or(Errno::EINVAL)?;
    }
    Ok(if first <= last { (first, last) } else { (1, 0) })
}

impl Content for PingGroups {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        let (first, last) = self.0.ping_groups();
        Box::pin(core::future::ready(Ok(format!("{first}\t{last}\n").into_bytes())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            let (first, last) = changed(self.0.ping_groups(), data)?;
            self.0.set_ping_groups(first, last);
            Ok(data.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_takes_is_taken() {
        assert_eq!(changed((1, 0), b"0 100\n"), Ok((0, 100)));
        assert_eq!(changed((0, 100), b"100 5"), Ok((1, 0)));
        assert_eq!(changed((0, 100), b"5\n"), Ok((5, 100)));
        assert_eq!(changed((0, 100), b"0 2147483648"), Ok((0, 2147483648)));
        assert_eq!(changed((0, 100), b"\n"), Err(Errno::EINVAL));
        assert_eq!(changed((0, 100), b"-1 5"), Err(Errno::EINVAL));
    }
}
