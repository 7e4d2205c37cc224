//! The file of a disk, and its log.
//!
//! Several threads carry out requests at the same time. Where there is a log, a change of the file and its entry are made under the log's lock: changes
//! of the same bytes are then in the log in the order in which they reached the file. A flush is not made under the lock, since it takes long.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{bail, Context, Result};
use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::Errno;

use super::log::{Entry, Kind, Writer};
use super::protocol::{Export, Op, Request};

/// So much is zeroed in one go where the host's file system can't do it by itself.
const ZEROES: usize = 1 << 20;

pub struct Store {
    file: File,
    pub export: Export,
    log: Option<Mutex<Writer>>,
}

impl Store {
    /// Opens the disk's file, which no other `cob` may serve (unless all only read it), and makes the log.
    pub fn open(file: &Path, read_only: bool, log: Option<&Path>) -> Result<Store> {
        let name = || file.display().to_string();
        let mut disk = OpenOptions::new().read(true).write(!read_only).open(file).with_context(name)?;
        let locked = if read_only { disk.try_lock_shared() } else { disk.try_lock() };
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            bail!("{}: another machine has it", file.display());
        }
        // Also the size of a block device, whose metadata says 0.
        let size = disk.seek(SeekFrom::End(0)).with_context(name)?;
        let log = match log {
            Some(log) => Some(Mutex::new(Writer::create(log, size).with_context(|| log.display().to_string())?)),
            None => None,
        };
        Ok(Store { file: disk, export: Export { size, read_only }, log })
    }

    /// How many entries the log has: the `came` of a request that comes now.
    pub fn position(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.lock().unwrap_or_else(PoisonError::into_inner).entries())
    }

    /// Carries out a request that came when the log had `came` entries. Gives what was read.
    pub fn carry_out(&self, op: Op, request: &Request, came: u64) -> io::Result<Vec<u8>> {
        let (offset, length) = (request.offset, u64::from(request.length));
        let (kind, durable) = match op {
            Op::Read => return self.read(offset, request.length as usize),
            Op::Write { durable } => (Kind::Write, durable),
            Op::WriteZeroes { durable, .. } => (Kind::WriteZeroes, durable),
            Op::Trim { durable } => (Kind::Trim, durable),
            Op::Flush => {
                self.file.sync_data()?;
                let entry = Entry { kind: Kind::Flush, durable: false, offset: 0, length: 0, came };
                return self.logged(&entry, &[], || Ok(()));
            }
        };
        let entry = Entry { kind, durable, offset, length, came };
        self.logged(&entry, &request.data, || match op {
            Op::WriteZeroes { allocate, .. } => zero(&self.file, offset, length, allocate),
            Op::Trim { .. } => trim(&self.file, offset, length),
            _ => self.file.write_all_at(&request.data, offset),
        })?;
        if durable {
            self.file.sync_data()?;
        }
        Ok(Vec::new())
    }

    fn logged(&self, entry: &Entry, data: &[u8], change: impl FnOnce() -> io::Result<()>) -> io::Result<Vec<u8>> {
        let log = self.log.as_ref().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner));
        change()?;
        if let Some(mut log) = log {
            log.append(entry, data).map_err(|error| io::Error::new(error.kind(), format!("its log: {error}")))?;
        }
        Ok(Vec::new())
    }

    /// A file that somebody has made shorter since ends in zeroes.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; length];
        let mut done = 0;
        while done < length {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(data)
    }
}

/// Makes these bytes zeroes. `allocate`: their space stays theirs.
pub fn zero(file: &File, offset: u64, length: u64, allocate: bool) -> io::Result<()> {
    let how = if allocate { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
    match length {
        0 => return Ok(()),
        _ => match fallocate(file, how | FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::OPNOTSUPP) => (),
            result => return Ok(result?),
        },
    }
    let zeroes = vec![0; ZEROES.min(length as usize)];
    for done in (0..length).step_by(zeroes.len()) {
        let part = zeroes.len().min((length - done) as usize);
        file.write_all_at(&zeroes[..part], offset + done)?;
    }
    Ok(())
}

/// Gives the space of these bytes back, where the host can.
fn trim(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}
