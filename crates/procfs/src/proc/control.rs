//! Files that root writes to: `boot`, `stop`, `panic`, `hang` and `probe` in /proc/cob take the id of a kernel, and
//! /proc/sysrq-trigger takes `c`, the one key of it that Cob knows. `boot` also takes `ID BY`: kernel BY
//! starts kernel ID. A kernel that is told to `probe` probes all others once.
//!
//! The write returns when it is done: a booted kernel's CPUs can be used at once.

use super::{root::number, Proc};
use ::machine::{errno::Result, BoxFuture, Errno, KernelId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    synthetic::{hash_ino, Content, Node},
    Caller,
};
use messages::control::{Boot, KernelState, Partitions, Stop};

pub(super) fn boot(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/cob/boot", Wish::Boot)
}

pub(super) fn stop(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/cob/stop", Wish::Stop)
}

pub(super) fn panic(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/cob/panic", Wish::Panic)
}

pub(super) fn hang(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/cob/hang", Wish::Hang)
}

pub(super) fn probe(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/cob/probe", Wish::Probe)
}

pub(super) fn sysrq(proc: &Arc<Proc>) -> Node {
    node(proc, "/proc/sysrq-trigger", Wish::Sysrq)
}

fn node(proc: &Arc<Proc>, path: &str, wish: Wish) -> Node {
    Node::file(hash_ino(path.as_bytes()), Control { proc: proc.clone(), wish }).mode(0o200)
}

#[derive(Clone, Copy)]
enum Wish {
    Boot,
    Stop,
    Panic,
    Hang,
    Probe,
    Sysrq,
}

struct Control {
    proc: Arc<Proc>,
    wish: Wish,
}

impl Content for Control {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async { Err(Errno::EIO) })
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            let me = self.proc.system.kernel;
            match self.wish {
                Wish::Boot => self.boot(&ids(data)?).await?,
                Wish::Stop => match ids(data)?[..] {
                    // The kernel with the devices ends with the machine only.
                    [id] if id == me => return Err(Errno::EBUSY),
                    [id] => self.end(id, Stop::QUIETLY).await?,
                    _ => return Err(Errno::EINVAL),
                },
                Wish::Panic => match ids(data)?[..] {
                    [id] => self.end(id, Stop::BY_A_PANIC).await?,
                    _ => return Err(Errno::EINVAL),
                },
                Wish::Hang => match ids(data)?[..] {
                    [id] => self.end(id, Stop::HANGING).await?,
                    _ => return Err(Errno::EINVAL),
                },
                Wish::Probe => match ids(data)?[..] {
                    [id] if self.proc.system.endpoint.is_alive(id) => {
                        self.proc.system.endpoint.send(id, Stop { status: Stop::PROBING }).map_err(Errno::from)?
                    }
                    _ => return Err(Errno::EINVAL),
                },
                Wish::Sysrq => match data.first() {
                    Some(b'c') => self.end(me, Stop::BY_A_PANIC).await?,
                    _ => return Err(Errno::EINVAL),
                },
            }
            Ok(data.len())
        })
    }
}

impl Control {
    async fn boot(&self, ids: &[KernelId]) -> Result<()> {
        let (kernel, by) = match ids {
            [kernel] => (*kernel, self.proc.system.kernel),
            [kernel, by] => (*kernel, *by),
            _ => return Err(Errno::EINVAL),
        };
        let endpoint = &self.proc.system.endpoint;
        if !endpoint.is_alive(by) {
            return Err(Errno::EINVAL);
        }
        endpoint.call(by, Boot { kernel }).await.map_err(Errno::from)?
    }

    /// Returns when the kernel has ended and this one has noticed.
    async fn end(&self, kernel: KernelId, status: u8) -> Result<()> {
        let system = &self.proc.system;
        let plan = system.endpoint.call(system.kernel, Partitions {}).await.map_err(Errno::from)?;
        let there = plan.iter().find(|partition| partition.kernel == kernel).ok_or(Errno::EINVAL)?;
        if there.state != KernelState::Running {
            return Err(Errno::ESRCH);
        }
        system.endpoint.send(kernel, Stop { status }).map_err(Errno::from)?;
        system.wait_for_kernels(|known| !known.contains(&kernel)).await;
        Ok(())
    }
}

/// Kernel ids between white space.
fn ids(data: &[u8]) -> Result<Vec<KernelId>> {
    let words = data.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| if word == b"0" { Ok(KernelId(0)) } else { id(word) }).collect()
}

fn id(word: &[u8]) -> Result<KernelId> {
    let number = number(word).and_then(|number| u16::try_from(number.0).ok());
    number.map(KernelId).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::ids;
    use ::machine::{Errno, KernelId};
    use alloc::vec;

    #[test]
    fn ids_stand_between_white_space() {
        assert_eq!(ids(b"2\n"), Ok(vec![KernelId(2)]));
        assert_eq!(ids(b" 3 0\n"), Ok(vec![KernelId(3), KernelId(0)]));
        assert_eq!(ids(b"\n"), Ok(vec![]));
        for wrong in [&b"x"[..], b"-1", b"65536", b"1,2"] {
            assert_eq!(ids(wrong), Err(Errno::EINVAL));
        }
    }
}
