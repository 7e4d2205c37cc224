//! mem: the memory of a process (man 5 proc_pid_mem).
//!
//! Who may look is decided when it is opened. The file is the memory's, not the process's: after an execve, or the end, it is
//! empty, whatever the process has then.

use super::Subject;
use ::machine::{errno::Result, BoxFuture, Errno, SpaceId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    synthetic::{Content, Places},
    Caller,
};
use messages::inspect::{Inspect, Inspection};

/// Bytes of one question.
const CHUNK: usize = 1 << 14;

pub(super) struct Memory(pub Subject);

impl Content for Memory {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(core::future::ready(Err(Errno::EINVAL)))
    }

    fn open<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Option<Arc<dyn Places>>>> {
        Box::pin(async move {
            let space = match self.0.inspect(Inspect::Space, caller).await {
                Ok(Inspection::Space(space)) => space,
                // A zombie has none.
                Err(Errno::ENOENT) => return Err(Errno::ESRCH),
                Err(error) => return Err(error),
                Ok(_) => return Err(Errno::EIO),
            };
            Ok(Some(Arc::new(Opened { subject: self.0.clone(), space, opener: caller.clone() }) as Arc<dyn Places>))
        })
    }
}

struct Opened {
    subject: Subject,
    space: SpaceId,
    opener: Caller,
}

impl Opened {
    /// None: the memory is gone.
    async fn ask(&self, what: Inspect) -> Result<Option<Inspection>> {
        match self.subject.inspect(what, &self.opener).await {
            Ok(inspection) => Ok(Some(inspection)),
            Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Places for Opened {
    fn read_at<'a>(&'a self, buf: &'a mut [u8], at: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut done = 0;
            while done < buf.len() {
                let at = at.wrapping_add(done as u64);
                let bytes = (buf.len() - done).min(CHUNK) as u32;
                match self.ask(Inspect::ForceRead { space: self.space, at, bytes }).await? {
                    None => break,
                    Some(Inspection::Bytes(part)) if !part.is_empty() => {
                        buf[done..done + part.len()].copy_from_slice(&part);
                        done += part.len();
                    }
                    Some(_) if done == 0 => return Err(Errno::EIO),
                    Some(_) => break,
                }
            }
            Ok(done)
        })
    }

    fn write_at<'a>(&'a self, buf: &'a [u8], at: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut done = 0;
            while done < buf.len() {
                let (at, bytes) = (at.wrapping_add(done as u64), buf[done..buf.len().min(done + CHUNK)].to_vec());
                match self.ask(Inspect::ForceWrite { space: self.space, at, bytes }).await? {
                    None => break,
                    Some(Inspection::Count(part)) if part > 0 => done += part as usize,
                    Some(_) if done == 0 => return Err(Errno::EIO),
                    Some(_) => break,
                }
            }
            Ok(done)
        })
    }
}
