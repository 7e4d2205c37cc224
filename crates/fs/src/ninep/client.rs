//! Requests to a 9p server, as functions.
//!
//! Any number may be under way: each carries a tag of its own. A fid (the server's handle of a file) is
//! given back when its last user drops it. An abandoned request is still carried out, so a fid belongs to
//! its guard from before the request that makes it.

use super::wire::{self, Qid, Reader, Writer, HEADER};
use crate::{file::Frames, Attributes, FileSystemInfo, Kind, Services, SetAttributes, Timestamp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use machine::{errno::Result, Errno, Exchange, PAGE_SIZE};

const NO_TAG: u16 = 0xffff;
const NO_FID: u32 = u32::MAX;
/// Room for any reply that carries no data.
const SMALL: usize = 512;
/// A path in a reply.
const LINK: usize = 4096 + 64;
/// Tread's and Twrite's header and count.
const DATA_HEADER: usize = HEADER + 4 + 8 + 4;
/// An entry of Rreaddir: qid, offset, type and name, of 255 bytes.
const LONGEST_ENTRY: usize = 13 + 8 + 1 + 2 + 255;
/// P9_GETATTR_BASIC
const GETATTR_BASIC: u64 = 0x7ff;
const AT_REMOVEDIR: u32 = 0x200;

pub struct Client {
    exchange: Arc<dyn Exchange>,
    services: Arc<Services>,
    msize: u32,
    tags: AtomicU16,
    fids: AtomicU32,
}

pub struct Fid {
    client: Arc<Client>,
    number: u32,
}

impl Drop for Fid {
    fn drop(&mut self) {
        let (client, number) = (self.client.clone(), self.number);
        self.client.services.spawner.spawn(Box::pin(async move {
            // An error means that the server has forgotten it already.
            let _ = client.call(wire::CLUNK, SMALL, |m| m.u32(number)).await;
        }));
    }
}

impl Client {
    /// Agrees on the protocol; messages of at most `msize` bytes.
    pub async fn connect(exchange: Arc<dyn Exchange>, services: &Arc<Services>, msize: u32) -> Result<Arc<Self>> {
        let mut client =
            Client { exchange, services: services.clone(), msize, tags: AtomicU16::new(0), fids: AtomicU32::new(0) };
        let mut message = Writer::new(wire::VERSION, NO_TAG);
        message.u32(msize).string(b"9P2000.L");
        let reply = client.exchange.exchange(message.finish(), SMALL).await?;
        let mut reply = client.check(wire::VERSION, NO_TAG, reply)?;
        client.msize = reply.u32()?.min(msize);
        if reply.string()? != b"9P2000.L" || (client.msize as usize) < 4096 {
            return Err(Errno::EPROTONOSUPPORT);
        }
        Ok(Arc::new(client))
    }

    /// Bytes of one read or write, whole pages.
    pub fn unit(&self) -> usize {
        let room = self.msize as usize - DATA_HEADER;
        if room >= 4096 {
            room & !4095
        } else {
            room
        }
    }

    fn tag(&self) -> u16 {
        self.tags.fetch_add(1, Ordering::Relaxed) % NO_TAG
    }

    async fn call(&self, kind: u8, room: usize, fill: impl FnOnce(&mut Writer) -> &mut Writer) -> Result<Reader> {
        let message = Writer::new(kind, self.tag());
        self.send(message, room, |message| {
            fill(message);
        })
        .await
    }

    /// Sends `message` with what `fill` adds to it. ENOMEM: there is no memory for an answer of `room` bytes.
    async fn send(&self, mut message: Writer, room: usize, fill: impl FnOnce(&mut Writer)) -> Result<Reader> {
        let (kind, tag) = (message.kind(), message.tag());
        fill(&mut message);
        let reply = self.exchange.exchange(message.finish(), room.min(self.msize as usize)).await?;
        self.check(kind, tag, reply)
    }

    fn check(&self, kind: u8, tag: u16, reply: Vec<u8>) -> Result<Reader> {
        let mut reply = Reader::new(reply);
        let _size = reply.u32()?;
        let answered = reply.u8()?;
        if reply.u16()? != tag {
            return Err(Errno::EIO);
        }
        match answered {
            wire::RLERROR => match reply.u32()? {
                0 => Err(Errno::EIO),
                number => Err(Errno(u16::try_from(number).unwrap_or(Errno::EIO.0))),
            },
            _ if answered == kind + 1 => Ok(reply),
            _ => Err(Errno::EIO),
        }
    }

    fn fid(self: &Arc<Self>) -> Fid {
        Fid { client: self.clone(), number: self.fids.fetch_add(1, Ordering::Relaxed) }
    }

    pub async fn attach(self: &Arc<Self>) -> Result<(Fid, Qid)> {
        let fid = self.fid();
        let mut reply = self
            .call(wire::ATTACH, SMALL, |m| m.u32(fid.number).u32(NO_FID).string(b"root").string(b"").u32(0))
            .await?;
        Ok((fid, reply.qid()?))
    }
}

/// `struct stat` as Rgetattr brings it.
fn attributes(reply: &mut Reader, device: (u32, u32)) -> Result<Attributes> {
    let _valid = reply.u64()?;
    let qid = reply.qid()?;
    let (mode, uid, gid) = (reply.u32()?, reply.u32()?, reply.u32()?);
    let (nlink, rdev, size) = (reply.u64()?, reply.u64()?, reply.u64()?);
    let (block_size, blocks) = (reply.u64()?, reply.u64()?);
    let mut time = || -> Result<Timestamp> {
        let seconds = reply.u64()? as i64;
        Ok(Timestamp { seconds, nanoseconds: (reply.u64()? as u32).min(999_999_999) })
    };
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
    let minor = (rdev & 0xff) | (rdev >> 12 & !0xff);
    Ok(Attributes {
        dev: device,
        ino: qid.path,
        mode,
        nlink: nlink as u32,
        uid,
        gid,
        rdev: (major as u32, minor as u32),
        size,
        block_size: u32::try_from(block_size).ok().filter(|size| *size > 0).unwrap_or(4096),
        blocks,
        accessed: time()?,
        modified: time()?,
        changed: time()?,
    })
}

/// An entry of Rreaddir.
pub struct Entry {
    pub qid: Qid,
    /// The server's offset of the entry after it.
    pub next: u64,
    pub d_type: u8,
    pub name: Vec<u8>,
}

impl Fid {
    /// A new fid for `name` in this directory.
    pub async fn walk(&self, name: &[u8]) -> Result<(Fid, Qid)> {
        let fid = self.client.fid();
        let mut reply =
            self.client.call(wire::WALK, SMALL, |m| m.u32(self.number).u32(fid.number).u16(1).string(name)).await?;
        if reply.u16()? != 1 {
            return Err(Errno::ENOENT);
        }
        Ok((fid, reply.qid()?))
    }

    /// A new fid for the same file.
    pub async fn again(&self) -> Result<Fid> {
        let fid = self.client.fid();
        self.client.call(wire::WALK, SMALL, |m| m.u32(self.number).u32(fid.number).u16(0)).await?;
        Ok(fid)
    }

    pub async fn attributes(&self, device: (u32, u32)) -> Result<Attributes> {
        let mut reply = self.client.call(wire::GETATTR, SMALL, |m| m.u32(self.number).u64(GETATTR_BASIC)).await?;
        attributes(&mut reply, device)
    }

    pub async fn set(&self, set: &SetAttributes) -> Result<()> {
        let bit = |bit: u32, given: bool| if given { bit } else { 0 };
        let exact = |time: Option<Timestamp>| time.is_some_and(|time| time != Timestamp::NOW);
        let valid = bit(1, set.mode.is_some())
            | bit(2, set.uid.is_some())
            | bit(4, set.gid.is_some())
            | bit(8, set.size.is_some())
            | bit(0x10, set.accessed.is_some())
            | bit(0x20, set.modified.is_some())
            | bit(0x80, exact(set.accessed))
            | bit(0x100, exact(set.modified));
        let (accessed, modified) = (set.accessed.unwrap_or_default(), set.modified.unwrap_or_default());
        self.client
            .call(wire::SETATTR, SMALL, |m| {
                m.u32(self.number).u32(valid).u32(set.mode.unwrap_or(0));
                m.u32(set.uid.unwrap_or(u32::MAX)).u32(set.gid.unwrap_or(u32::MAX));
                m.u64(set.size.unwrap_or(0));
                m.u64(accessed.seconds as u64).u64(u64::from(accessed.nanoseconds));
                m.u64(modified.seconds as u64).u64(u64::from(modified.nanoseconds))
            })
            .await
            .map(drop)
    }

    /// Opens this very fid.
    pub async fn open(&self, flags: u32) -> Result<()> {
        self.client.call(wire::LOPEN, SMALL, |m| m.u32(self.number).u32(flags)).await.map(drop)
    }

    /// Makes and opens a regular file; this fid, a directory's until now, becomes the file's.
    pub async fn create(&self, name: &[u8], flags: u32, mode: u32, gid: u32) -> Result<()> {
        self.client
            .call(wire::LCREATE, SMALL, |m| m.u32(self.number).string(name).u32(flags).u32(mode).u32(gid))
            .await
            .map(drop)
    }

    pub async fn make_dir(&self, name: &[u8], mode: u32, gid: u32) -> Result<()> {
        self.client.call(wire::MKDIR, SMALL, |m| m.u32(self.number).string(name).u32(mode).u32(gid)).await.map(drop)
    }

    pub async fn symlink(&self, name: &[u8], target: &[u8], gid: u32) -> Result<()> {
        self.client
            .call(wire::SYMLINK, SMALL, |m| m.u32(self.number).string(name).string(target).u32(gid))
            .await
            .map(drop)
    }

    pub async fn make_node(&self, name: &[u8], kind: Kind, mode: u32, rdev: (u32, u32), gid: u32) -> Result<()> {
        self.client
            .call(wire::MKNOD, SMALL, |m| {
                m.u32(self.number).string(name).u32(kind as u32 | mode).u32(rdev.0).u32(rdev.1).u32(gid)
            })
            .await
            .map(drop)
    }

    pub async fn link(&self, name: &[u8], file: &Fid) -> Result<()> {
        self.client.call(wire::LINK, SMALL, |m| m.u32(self.number).u32(file.number).string(name)).await.map(drop)
    }

    pub async fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        let flags = if directory { AT_REMOVEDIR } else { 0 };
        self.client.call(wire::UNLINKAT, SMALL, |m| m.u32(self.number).string(name).u32(flags)).await.map(drop)
    }

    pub async fn rename(&self, from: &[u8], target: &Fid, to: &[u8]) -> Result<()> {
        self.client
            .call(wire::RENAMEAT, SMALL, |m| m.u32(self.number).string(from).u32(target.number).string(to))
            .await
            .map(drop)
    }

    pub async fn read_link(&self) -> Result<Vec<u8>> {
        self.client.call(wire::READLINK, LINK, |m| m.u32(self.number)).await?.string()
    }

    /// Reads into `to`; fewer bytes than it holds only at the end. More than a message holds takes several, one after the
    /// other since a short one is the end.
    pub async fn read(&self, offset: u64, mut to: Frames<'_>) -> Result<usize> {
        let mut done = 0;
        while !to.is_empty() {
            let count = to.len().min(self.client.unit());
            let at = offset + done as u64;
            let mut reply = self
                .client
                .call(wire::READ, DATA_HEADER + count, |m| m.u32(self.number).u64(at).u32(count as u32))
                .await?;
            let got = reply.u32()? as usize;
            if got > count {
                return Err(Errno::EIO);
            }
            to.put(reply.take(got)?);
            done += got;
            if got == 0 {
                break;
            }
        }
        Ok(done)
    }

    pub async fn write(&self, offset: u64, from: Frames<'_>) -> Result<()> {
        let (mut done, mut most) = (0, self.client.unit());
        while done < from.len() {
            let mut part = from.part(done, most);
            let bytes = part.len();
            let Ok(message) = Writer::with_room(wire::WRITE, self.client.tag(), bytes) else {
                if bytes <= PAGE_SIZE {
                    return Err(Errno::ENOMEM);
                }
                most = PAGE_SIZE;
                continue;
            };
            let fill = |m: &mut Writer| {
                m.u32(self.number).u64(offset + done as u64).u32(bytes as u32).frames(&mut part);
            };
            let mut reply = self.client.send(message, SMALL, fill).await?;
            match reply.u32()? as usize {
                0 => return Err(Errno::EIO),
                written => done += written.min(bytes),
            }
        }
        Ok(())
    }

    /// Entries of an opened directory from the server's own `offset` on, about `bytes` of them; none: that was the end. The first of
    /// all has offset 0, each other that which the server gave with the one before it.
    pub async fn read_dir(&self, offset: u64, bytes: usize) -> Result<Vec<Entry>> {
        // A server that can't place a single name answers as at the end.
        let count = bytes.clamp(LONGEST_ENTRY, self.client.unit().min(64 * 1024));
        let mut reply = self
            .client
            .call(wire::READDIR, DATA_HEADER + count, |m| m.u32(self.number).u64(offset).u32(count as u32))
            .await?;
        let _bytes = reply.u32()?;
        let mut entries = Vec::new();
        while !reply.is_empty() {
            entries.push(Entry { qid: reply.qid()?, next: reply.u64()?, d_type: reply.u8()?, name: reply.string()? });
        }
        Ok(entries)
    }

    pub async fn sync(&self, data_only: bool) -> Result<()> {
        self.client.call(wire::FSYNC, SMALL, |m| m.u32(self.number).u32(data_only.into())).await.map(drop)
    }

    pub async fn info(&self) -> Result<FileSystemInfo> {
        let mut reply = self.client.call(wire::STATFS, SMALL, |m| m.u32(self.number)).await?;
        Ok(FileSystemInfo {
            kind: u64::from(reply.u32()?),
            block_size: u64::from(reply.u32()?),
            blocks: reply.u64()?,
            blocks_free: reply.u64()?,
            blocks_available: reply.u64()?,
            files: reply.u64()?,
            files_free: reply.u64()?,
            id: reply.u64()?,
            name_max: u64::from(reply.u32()?),
            ..FileSystemInfo::default()
        })
    }
}
