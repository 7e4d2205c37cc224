//! The log of a disk: every change and every flush, in the order in which they were completed.
//!
//! All numbers are little endian. The file begins with 16 bytes:
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `COBDISK1` |
//! | 8..16 | the size of the disk |
//!
//! Entries follow, without gaps, each of 32 bytes and, for a write, its data:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | what it is: 1 write, 2 write zeroes, 3 trim, 4 flush |
//! | 4..8 | 1: the request was on stable storage before it was answered (FUA); else 0 |
//! | 8..16 | offset on the disk; 0 for a flush |
//! | 16..24 | length in bytes; 0 for a flush |
//! | 24..32 | *came*: how many entries the log had when the request came |
//!
//! Entries are numbered from 0. An entry is written before the client has the answer. So what entry `f`, a flush, makes durable is all entries before `came`
//! of `f`: they were completed when it came. What was completed while it was under way may be durable or not. And a request was under way when the log
//! had `n` entries if its number is at least `n` and its `came` at most `n`.
//!
//! Requests that failed are not in the log. The end of a log may be missing (the host command was killed, the host's disk was full): a reader ends
//! with the last whole entry.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{bail, Context, Result};

const MAGIC: &[u8; 8] = b"COBDISK1";
const HEADER: u64 = 16;
const ENTRY: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Write = 1,
    WriteZeroes = 2,
    Trim = 3,
    Flush = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub durable: bool,
    pub offset: u64,
    pub length: u64,
    pub came: u64,
}

impl Entry {
    /// How many bytes of data follow it.
    fn data_bytes(&self) -> u64 {
        if self.kind == Kind::Write {
            self.length
        } else {
            0
        }
    }

    fn bytes(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[0..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.durable).to_le_bytes());
        let words = [self.offset, self.length, self.came].map(u64::to_le_bytes);
        bytes[8..].copy_from_slice(words.as_flattened());
        bytes
    }

    /// None: these bytes are no entry.
    fn parse(bytes: &[u8; ENTRY]) -> Option<Entry> {
        let (words, _) = bytes.as_chunks();
        let [first, offset, length, came] = <[[u8; 8]; 4]>::try_from(words).ok()?.map(u64::from_le_bytes);
        let kind = match first as u32 {
            1 => Kind::Write,
            2 => Kind::WriteZeroes,
            3 => Kind::Trim,
            4 => Kind::Flush,
            _ => return None,
        };
        (first >> 32 <= 1).then_some(Entry { kind, durable: first >> 32 == 1, offset, length, came })
    }
}

pub struct Writer {
    file: File,
    end: u64,
    entries: u64,
}

impl Writer {
    /// An empty log of a disk of this size.
    pub fn create(path: &Path, size: u64) -> io::Result<Writer> {
        let file = File::create(path)?;
        file.write_all_at(MAGIC, 0)?;
        file.write_all_at(&size.to_le_bytes(), MAGIC.len() as u64)?;
        Ok(Writer { file, end: HEADER, entries: 0 })
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// # Errors
    ///
    /// The entry is not in the log; the next one takes its place.
    pub fn append(&mut self, entry: &Entry, data: &[u8]) -> io::Result<()> {
        let written = self
            .file
            .write_all_at(&entry.bytes(), self.end)
            .and_then(|()| self.file.write_all_at(data, self.end + ENTRY as u64));
        if let Err(error) = written {
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += (ENTRY + data.len()) as u64;
        self.entries += 1;
        Ok(())
    }
}

pub struct Reader {
    file: BufReader<File>,
    /// Of the disk.
    pub size: u64,
    /// Bytes of the log that were not read.
    left: u64,
    /// Entries that were read.
    entries: u64,
    /// Bytes of data of the entry that was read last.
    data: u64,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name)?;
        let left = file.metadata().with_context(name)?.len();
        let mut reader = Reader { file: BufReader::with_capacity(1 << 20, file), size: 0, left, entries: 0, data: 0 };
        let mut header = [0; HEADER as usize];
        match reader.file.read_exact(&mut header) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error).with_context(name),
            Ok(()) if header.starts_with(MAGIC) => (),
            _ => bail!("{}: not the log of a disk", path.display()),
        }
        reader.left -= HEADER;
        reader.size = u64::from_le_bytes(header[8..].try_into()?);
        Ok(reader)
    }

    /// The next entry; after it its data may be read ([`Self::data`]). None at the end.
    pub fn next(&mut self) -> Result<Option<Entry>> {
        self.file.seek_relative(self.data as i64)?;
        self.data = 0;
        if self.left < ENTRY as u64 {
            return Ok(None);
        }
        let mut bytes = [0; ENTRY];
        self.file.read_exact(&mut bytes)?;
        let number = self.entries;
        let fits = |entry: &Entry| {
            entry.came <= number && entry.offset.checked_add(entry.length).is_some_and(|end| end <= self.size)
        };
        let entry =
            Entry::parse(&bytes).filter(fits).with_context(|| format!("entry {number} of the log is damaged"))?;
        if self.left - (ENTRY as u64) < entry.data_bytes() {
            return Ok(None);
        }
        self.left -= ENTRY as u64 + entry.data_bytes();
        self.data = entry.data_bytes();
        self.entries += 1;
        Ok(Some(entry))
    }

    /// The data of the entry that came last: that of a write, else nothing.
    pub fn data(&mut self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.data as usize];
        self.file.read_exact(&mut data)?;
        self.data = 0;
        Ok(data)
    }

    /// After the last entry: how many bytes there are of one that is not whole.
    pub fn left(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 1 << 20;

    fn entries() -> impl Strategy<Value = Entries> {
        let kind = prop::sample::select(vec![Kind::Write, Kind::WriteZeroes, Kind::Trim, Kind::Flush]);
        let entry = (kind, any::<bool>(), 0..SIZE / 2, 0u64..6000, any::<prop::sample::Index>(), any::<u8>());
        prop::collection::vec(entry, 0..20).prop_map(|entries| {
            let entry = |(number, (kind, durable, offset, length, came, fill)): (
                usize,
                (_, _, _, _, prop::sample::Index, u8),
            )| {
                let entry = Entry { kind, durable, offset, length, came: came.index(number + 1) as u64 };
                (entry, vec![fill; entry.data_bytes() as usize])
            };
            entries.into_iter().enumerate().map(entry).collect()
        })
    }

    /// Entries with their data.
    type Entries = Vec<(Entry, Vec<u8>)>;

    /// All whole entries, and the bytes that are left.
    fn all(path: &Path) -> Result<(Entries, u64)> {
        let mut reader = Reader::open(path)?;
        assert_eq!(reader.size, SIZE);
        let mut read = Vec::new();
        while let Some(entry) = reader.next()? {
            read.push((entry, reader.data()?));
        }
        Ok((read, reader.left()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_written_is_read(entries in entries(), cut in any::<prop::sample::Index>()) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = Writer::create(file.path(), SIZE).unwrap();
            let mut ends = vec![HEADER];
            for (number, (entry, data)) in entries.iter().enumerate() {
                prop_assert_eq!(writer.entries(), number as u64);
                writer.append(entry, data).unwrap();
                ends.push(writer.end);
            }
            prop_assert_eq!(all(file.path()).unwrap(), (entries.clone(), 0));
            // Without the data.
            let mut reader = Reader::open(file.path()).unwrap();
            for (entry, _) in &entries {
                prop_assert_eq!(reader.next().unwrap(), Some(*entry));
            }
            prop_assert_eq!(reader.next().unwrap(), None);
            // Wherever the file is cut off, the whole entries before are there.
            let length = HEADER + cut.index((writer.end - HEADER + 1) as usize) as u64;
            writer.file.set_len(length).unwrap();
            let whole = ends.iter().rposition(|end| *end <= length).unwrap();
            prop_assert_eq!(all(file.path()).unwrap(), (entries[..whole].to_vec(), length - ends[whole]));
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "COBDISK1", "COBDISK2 and more than that"] {
            std::fs::write(file.path(), text).unwrap();
            let complaint = Reader::open(file.path()).err().unwrap().to_string();
            assert!(complaint.contains("not the log of a disk"), "{complaint}");
        }
        let good = Entry { kind: Kind::Write, durable: false, offset: 0, length: 4, came: 0 };
        let bad = [Entry { offset: SIZE - 3, ..good }, Entry { came: 1, ..good }, Entry { length: u64::MAX, ..good }];
        for entry in bad {
            Writer::create(file.path(), SIZE).unwrap().append(&entry, b"abcd").unwrap();
            assert!(all(file.path()).unwrap_err().to_string().contains("entry 0"), "{entry:?}");
        }
    }
}
