//! File systems in images, with e2fsprogs as the second opinion.

mod attributes;
mod contents;
mod faults;
mod journal;
mod names;
mod reading;
mod tree;

use crate::*;
use std::{
    fs,
    future::Future,
    path::Path,
    pin::pin,
    process::Command,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

/// What a disk was asked to do.
#[derive(Clone)]
pub enum Asked {
    /// Bytes at a place.
    Write(usize, Vec<u8>),
    Flush,
}

/// A disk in memory that answers at once, and remembers what it was asked to change.
pub struct Disk {
    pub bytes: Mutex<Vec<u8>>,
    pub asked: Mutex<Vec<Asked>>,
    /// The first block and how many, of each read.
    pub reads: Mutex<Vec<(u64, u32)>>,
    pub block: usize,
}

impl Device for Disk {
    async fn read(&self, block: u64, blocks: u32) -> Result<Vec<u8>> {
        let from = usize::try_from(block).ok().and_then(|block| block.checked_mul(self.block)).ok_or(Error::Io)?;
        let end = from + blocks as usize * self.block;
        self.reads.lock().unwrap().push((block, blocks));
        self.bytes.lock().unwrap().get(from..end).map(<[u8]>::to_vec).ok_or(Error::Io)
    }

    async fn write(&self, block: u64, blocks: Vec<Bytes>) -> Result<()> {
        let from = block as usize * self.block;
        let new: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
        self.bytes.lock().unwrap().get_mut(from..from + new.len()).ok_or(Error::Io)?.copy_from_slice(&new);
        self.asked.lock().unwrap().push(Asked::Write(from, new));
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        self.asked.lock().unwrap().push(Asked::Flush);
        Ok(())
    }
}

/// What a future answers that waits for nothing.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the image answers at once"),
    }
}

/// To be read.
pub fn open(bytes: Vec<u8>) -> Result<Volume<Disk>> {
    let (at, length) = Superblock::PLACE;
    let superblock = Superblock::parse(bytes[at..at + length].try_into().unwrap())?;
    let block = superblock.block_bytes as usize;
    Ok(Volume::new(
        Disk { bytes: Mutex::new(bytes), asked: Mutex::default(), reads: Mutex::default(), block },
        superblock,
    ))
}

/// An image of so many KiB with the files of a directory.
pub fn made(directory: &Path, kib: u32, options: &[&str]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-d"]).arg(directory).args(options).arg(file.path()).arg(format!("{kib}k"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(file.path()).unwrap()
}

/// An image of an empty file system.
pub fn empty(kib: u32, options: &[&str]) -> Vec<u8> {
    made(tempfile::tempdir().unwrap().path(), kib, options)
}

/// What `e2fsck -fn` says of an image that should be whole.
pub fn check(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// What debugfs answers to a command; with `write`, the image is changed by it.
pub fn debugfs(bytes: &mut Vec<u8>, write: bool, commands: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &*bytes).unwrap();
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), commands).unwrap();
    let mut command = Command::new("/usr/sbin/debugfs");
    command.args(if write { &["-w"][..] } else { &[] }).arg("-f").arg(script.path()).arg(file.path());
    let output = command.output().unwrap();
    if write {
        *bytes = fs::read(file.path()).unwrap();
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}
