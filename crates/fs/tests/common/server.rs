//! A small 9P2000.L server over a directory of the host, in this process.

use machine::{errno::Result as Answer, BoxFuture, Exchange};
use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        Mutex,
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub struct Server {
    root: PathBuf,
    fids: Mutex<BTreeMap<u32, Fid>>,
    pub requests: AtomicUsize,
}

struct Fid {
    path: PathBuf,
    file: Option<File>,
}

impl Server {
    pub fn new(root: &Path) -> Server {
        Server { root: root.into(), fids: Mutex::default(), requests: AtomicUsize::new(0) }
    }

    pub fn fids(&self) -> usize {
        self.fids.lock().unwrap().len()
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Exchange for Server {
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Answer<Vec<u8>>> {
        Box::pin(async move {
            self.requests.fetch_add(1, Ordering::SeqCst);
            let size = u32::from_le_bytes(request[..4].try_into().unwrap());
            assert_eq!(size as usize, request.len());
            let (kind, tag) = (request[4], &request[5..7]);
            let mut input = In(&request[7..]);
            let (kind, body) = match self.answer(kind, &mut input) {
                Ok(out) => {
                    assert!(input.0.is_empty(), "a request of kind {kind} is too long");
                    (kind + 1, out.0)
                }
                Err(error) => (7, (error.raw_os_error().unwrap_or(5) as u32).to_le_bytes().to_vec()),
            };
            let mut reply = ((body.len() + 7) as u32).to_le_bytes().to_vec();
            reply.push(kind);
            reply.extend_from_slice(tag);
            reply.extend_from_slice(&body);
            assert!(reply.len() <= room, "no room for a reply of kind {kind}");
            Ok(reply)
        })
    }
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().unwrap())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }
    fn string(&mut self) -> Vec<u8> {
        let len = self.u16().into();
        self.take(len).to_vec()
    }
    fn name(&mut self) -> PathBuf {
        std::ffi::OsString::from_vec(self.string()).into()
    }
}

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }
    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }
    fn string(self, text: &[u8]) -> Self {
        self.u16(text.len() as u16).bytes(text)
    }
    fn qid(self, of: &Metadata) -> Self {
        let kind = if of.is_dir() { 0x80 } else { u8::from(of.is_symlink()) * 2 };
        self.bytes(&[kind]).u32(of.mtime_nsec() as u32).u64(of.ino())
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Server {
    fn path(&self, fid: u32) -> io::Result<PathBuf> {
        Ok(self.fids.lock().unwrap().get(&fid).ok_or(errno(9))?.path.clone())
    }

    fn put(&self, fid: u32, path: PathBuf, file: Option<File>) {
        self.fids.lock().unwrap().insert(fid, Fid { path, file });
    }

    fn with_file<T>(&self, fid: u32, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        act(self.fids.lock().unwrap().get(&fid).and_then(|fid| fid.file.as_ref()).ok_or(errno(9))?)
    }

    fn answer(&self, kind: u8, input: &mut In<'_>) -> io::Result<Out> {
        let out = Out::default();
        match kind {
            100 => {
                let msize = input.u32();
                assert_eq!(input.string(), b"9P2000.L");
                Ok(out.u32(msize).string(b"9P2000.L"))
            }
            104 => {
                let fid = input.u32();
                input.u32();
                input.string();
                input.string();
                input.u32();
                self.put(fid, self.root.clone(), None);
                Ok(out.qid(&fs::symlink_metadata(&self.root)?))
            }
            110 => self.walk(input),
            12 => self.open(input),
            14 => {
                let (fid, name, flags, mode, _gid) = (input.u32(), input.name(), input.u32(), input.u32(), input.u32());
                let path = self.path(fid)?.join(name);
                // O_CREAT and O_EXCL are in `flags`.
                let file = options(flags).create_new(true).mode(mode).open(&path)?;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
                let metadata = file.metadata()?;
                self.put(fid, path, Some(file));
                Ok(out.qid(&metadata).u32(0))
            }
            16 | 18 | 72 => self.make(kind, input),
            22 => Ok(out.string(fs::read_link(self.path(input.u32())?)?.as_os_str().as_bytes())),
            24 => self.attributes(input),
            26 => self.set(input),
            40 => self.read_dir(input),
            50 => {
                let fid = input.u32();
                input.u32();
                self.with_file(fid, |file| file.sync_all())?;
                Ok(out)
            }
            70 => {
                let (directory, file, name) = (input.u32(), input.u32(), input.name());
                fs::hard_link(self.path(file)?, self.path(directory)?.join(name))?;
                Ok(out)
            }
            74 => {
                let from = self.path(input.u32())?.join(input.name());
                let to = self.path(input.u32())?.join(input.name());
                fs::rename(&from, &to)?;
                for fid in self.fids.lock().unwrap().values_mut() {
                    if let Ok(rest) = fid.path.strip_prefix(&from) {
                        fid.path = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    }
                }
                Ok(out)
            }
            76 => {
                let path = self.path(input.u32())?.join(input.name());
                if input.u32() == 0x200 {
                    fs::remove_dir(path)?
                } else {
                    fs::remove_file(path)?
                }
                Ok(out)
            }
            116 => {
                let (fid, offset, count) = (input.u32(), input.u64(), input.u32());
                let mut data = vec![0; count as usize];
                let read = self.with_file(fid, |file| file.read_at(&mut data, offset))?;
                Ok(out.u32(read as u32).bytes(&data[..read]))
            }
            118 => {
                let (fid, offset, count) = (input.u32(), input.u64(), input.u32());
                let data = input.take(count as usize).to_vec();
                let written = self.with_file(fid, |file| file.write_at(&data, offset))?;
                Ok(out.u32(written as u32))
            }
            120 => {
                self.fids.lock().unwrap().remove(&input.u32()).ok_or(errno(9))?;
                Ok(out)
            }
            _ => {
                input.0 = &[];
                Err(errno(95))
            }
        }
    }

    fn walk(&self, input: &mut In<'_>) -> io::Result<Out> {
        let (fid, new, names) = (input.u32(), input.u32(), input.u16());
        let mut out = Out::default().u16(names);
        let names: Vec<_> = (0..names).map(|_| input.name()).collect();
        let mut path = self.path(fid)?;
        for name in names {
            path.push(name);
            out = out.qid(&fs::symlink_metadata(&path)?);
        }
        assert!(!self.fids.lock().unwrap().contains_key(&new), "a fid in use");
        self.put(new, path, None);
        Ok(out)
    }

    fn open(&self, input: &mut In<'_>) -> io::Result<Out> {
        let (fid, flags) = (input.u32(), input.u32());
        let path = self.path(fid)?;
        let file = options(flags).open(&path)?;
        let metadata = file.metadata()?;
        self.put(fid, path, Some(file));
        Ok(Out::default().qid(&metadata).u32(0))
    }

    fn make(&self, kind: u8, input: &mut In<'_>) -> io::Result<Out> {
        let path = self.path(input.u32())?.join(input.name());
        match kind {
            16 => {
                let target = input.name();
                std::os::unix::fs::symlink(target, &path)?;
            }
            72 => {
                let mode = input.u32();
                fs::DirBuilder::new().mode(mode).create(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            _ => {
                input.0 = &[];
                return Err(errno(1));
            }
        }
        let _gid = input.u32();
        Ok(Out::default().qid(&fs::symlink_metadata(&path)?))
    }

    fn attributes(&self, input: &mut In<'_>) -> io::Result<Out> {
        let of = fs::symlink_metadata(self.path(input.u32())?)?;
        let mask = input.u64();
        let out = Out::default().u64(mask).qid(&of).u32(of.mode()).u32(of.uid()).u32(of.gid());
        let out = out.u64(of.nlink()).u64(of.rdev()).u64(of.size()).u64(of.blksize()).u64(of.blocks());
        let out = out.u64(of.atime() as u64).u64(of.atime_nsec() as u64);
        let out = out.u64(of.mtime() as u64).u64(of.mtime_nsec() as u64);
        let out = out.u64(of.ctime() as u64).u64(of.ctime_nsec() as u64);
        Ok(out.u64(0).u64(0).u64(0).u64(0))
    }

    fn set(&self, input: &mut In<'_>) -> io::Result<Out> {
        let path = self.path(input.u32())?;
        let (valid, mode, _uid, _gid, size) = (input.u32(), input.u32(), input.u32(), input.u32(), input.u64());
        let mut time = || {
            let seconds = Duration::from_secs(input.u64());
            UNIX_EPOCH + seconds + Duration::from_nanos(input.u64())
        };
        let (accessed, modified) = (time(), time());
        if valid & 1 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        if valid & 8 != 0 {
            File::options().write(true).open(&path)?.set_len(size)?;
        }
        if valid & 0x30 != 0 {
            let exact = |bit, time| if valid & bit != 0 { time } else { SystemTime::now() };
            let mut times = fs::FileTimes::new();
            if valid & 0x10 != 0 {
                times = times.set_accessed(exact(0x80, accessed));
            }
            if valid & 0x20 != 0 {
                times = times.set_modified(exact(0x100, modified));
            }
            File::open(&path)?.set_times(times)?;
        }
        Ok(Out::default())
    }

    /// In an order of its own, where offsets are large numbers that say nothing about how many names came before, as ext4's.
    fn read_dir(&self, input: &mut In<'_>) -> io::Result<Out> {
        let (fid, offset, count) = (input.u32(), input.u64(), input.u32());
        let fids = self.fids.lock().unwrap();
        let fid = fids.get(&fid).filter(|fid| fid.file.is_some()).ok_or(errno(9))?;
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(&fid.path)? {
            let entry = entry?;
            names.insert(place(entry.file_name().as_bytes()), entry);
        }
        let mut data = Out::default();
        for (place, entry) in names.range(offset..) {
            let metadata = fs::symlink_metadata(entry.path())?;
            let (d_type, name) = ((metadata.mode() >> 12) as u8, entry.file_name().into_vec());
            let qid = if d_type == 4 { 0x80 } else { 0 };
            // Short answers, so that the client has to ask again.
            if data.0.len() + 24 + name.len() > (count as usize).min(350) {
                break;
            }
            let last = names.last_key_value().is_some_and(|(last, _)| last == place);
            let next = if last { i64::MAX as u64 } else { place + 1 };
            data = data.bytes(&[qid]).u32(0).u64(metadata.ino()).u64(next).bytes(&[d_type]).string(&name);
        }
        Ok(Out::default().u32(data.0.len() as u32).bytes(&data.0))
    }
}

/// Where a name is in its directory: 62 bits (FNV-1a).
fn place(name: &[u8]) -> u64 {
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    hash >> 1 & !0xff | 0x10
}

fn options(flags: u32) -> fs::OpenOptions {
    let mut options = File::options();
    options.read(flags & 3 != 1).write(flags & 3 != 0);
    options
}
