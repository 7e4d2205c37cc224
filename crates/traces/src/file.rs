//! The file of a trace: a line of text that says what it is and which points there were when it was recorded, then pieces of rings as they were read, each with its place,
//! its length in words, and how many events of that ring had been lost by then. It is only ever added to, so that a trace whose recording was cut off can be read up to there; one that was not says so at its end.

use crate::{Event, Place};
use anyhow::{bail, Context, Result};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::Path,
};
use trace::{Header, POINTS};

const MAGIC: &str = "cob trace 1";
const PIECE_HEADER: usize = 24;
/// Stands where a piece would begin: no ring has lost so many events.
const END: [u8; PIECE_HEADER] = [0xff; PIECE_HEADER];
/// Bits of a time in a record.
const TIME_BITS: u32 = 48;

/// The points and their fields, so that a file of another version of Cob is not misread.
fn table() -> String {
    let mut text = String::new();
    for info in POINTS {
        text.push_str(info.name);
        info.fields.iter().for_each(|field| text.push_str(&format!(" {}:{}", field.name, field.bits)));
        text.push(';');
    }
    text
}

/// Writes a file, piece by piece.
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `about` is for people: what was traced.
    pub fn new(mut to: W, about: &str) -> std::io::Result<Self> {
        let about = about.replace(['\n', '\t'], " ");
        writeln!(to, "{MAGIC}\t{}\t{about}", table())?;
        Ok(Writer { to })
    }

    /// Adds words that were read from the ring of `place`, which has lost `lost` events since it began.
    pub fn add(&mut self, place: Place, lost: u64, words: &[u64]) -> std::io::Result<()> {
        let mut piece = Vec::new();
        piece.extend_from_slice(&place.cpu.to_le_bytes());
        piece.extend_from_slice(&place.kernel.to_le_bytes());
        piece.extend_from_slice(&place.boot_generation.to_le_bytes());
        piece.extend_from_slice(&lost.to_le_bytes());
        piece.extend_from_slice(&(words.len() as u64).to_le_bytes());
        words.iter().for_each(|word| piece.extend_from_slice(&word.to_le_bytes()));
        self.to.write_all(&piece)
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }

    /// Says that nothing is missing, which a reader can't see otherwise: a file may be cut off between two pieces, too.
    pub fn end(&mut self) -> std::io::Result<()> {
        self.to.write_all(&END)?;
        self.to.flush()
    }
}

/// A piece in a file.
#[derive(Clone, Copy)]
struct Piece {
    at: u64,
    words: u64,
}

/// A file to be read.
pub struct Trace {
    file: File,
    about: String,
    rings: BTreeMap<Place, Ring>,
    /// It doesn't say that it has ended.
    is_cut: bool,
}

#[derive(Default)]
struct Ring {
    pieces: Vec<Piece>,
    lost: u64,
}

impl Trace {
    /// Opens a file. Its end may be missing.
    pub fn open(path: &Path) -> Result<Trace> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut reader = BufReader::new(file.try_clone()?);
        let mut line = Vec::new();
        reader.by_ref().take(1 << 20).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let mut parts = line.trim_end_matches('\n').split('\t');
        if parts.next() != Some(MAGIC) {
            bail!("{}: not a trace of Cob", path.display());
        }
        if parts.next() != Some(&table()) {
            bail!("{}: recorded by another version of Cob, with other events", path.display());
        }
        let about = parts.next().unwrap_or_default().to_string();
        let (mut at, length) = (line.len() as u64, file.metadata()?.len());
        reader.seek(SeekFrom::Start(at))?;
        let mut trace = Trace { file, about, rings: BTreeMap::new(), is_cut: true };
        while at < length {
            let mut header = [0; PIECE_HEADER];
            if length - at < PIECE_HEADER as u64 || trace.file.read_exact_at(&mut header, at).is_err() {
                break;
            }
            if header == END {
                trace.is_cut = false;
                break;
            }
            let number = |from: usize, bytes: usize| {
                header[from..from + bytes].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
            };
            let place =
                Place { cpu: number(0, 2) as u16, kernel: number(2, 2) as u16, boot_generation: number(4, 4) as u32 };
            let words = number(16, 8);
            at += PIECE_HEADER as u64;
            let whole = words.checked_mul(8).is_some_and(|bytes| bytes <= length - at);
            let words = if whole { words } else { (length - at) / 8 };
            let ring = trace.rings.entry(place).or_default();
            ring.lost = number(8, 8);
            ring.pieces.push(Piece { at, words });
            at += words * 8;
            if !whole {
                break;
            }
        }
        Ok(trace)
    }

    /// What was traced.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Whether the recording went on after the file's end: it was killed, its disk was full, or it reached its limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Where events come from, and how many events each place has lost.
    pub fn places(&self) -> impl Iterator<Item = (Place, u64)> + '_ {
        self.rings.iter().map(|(place, ring)| (*place, ring.lost))
    }

    /// Events that were lost, in all.
    pub fn lost(&self) -> u64 {
        self.rings.values().map(|ring| ring.lost).sum()
    }

    /// All events in the order of time. Memory is bounded: a buffer for each CPU.
    pub fn events(&self) -> Result<Events<'_>> {
        let mut streams = Vec::new();
        for (place, ring) in &self.rings {
            let stream = Stream {
                file: &self.file,
                place: *place,
                pieces: &ring.pieces,
                next_piece: 0,
                buffer: Vec::new(),
                taken: 0,
                left: Piece { at: 0, words: 0 },
                time: 0,
            };
            streams.push(stream);
        }
        let mut events = Events { streams, heads: BinaryHeap::new(), waiting: Vec::new() };
        for index in 0..events.streams.len() {
            events.waiting.push(None);
            events.refill(index)?;
        }
        Ok(events)
    }
}

const BUFFER_WORDS: u64 = 8192;

/// The events of one ring.
struct Stream<'a> {
    file: &'a File,
    place: Place,
    pieces: &'a [Piece],
    next_piece: usize,
    /// Words read; `taken` of them have become events.
    buffer: Vec<u64>,
    taken: usize,
    /// What the present piece has beyond the buffer.
    left: Piece,
    /// Of the last event.
    time: u64,
}

impl Stream<'_> {
    /// Makes at least so many words ready; false at the end.
    fn need(&mut self, words: usize) -> Result<bool> {
        while self.buffer.len() - self.taken < words {
            if self.left.words == 0 {
                let Some(piece) = self.pieces.get(self.next_piece) else { return Ok(false) };
                self.next_piece += 1;
                self.left = *piece;
                continue;
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let count = self.left.words.min(BUFFER_WORDS);
            let mut bytes = vec![0; count as usize * 8];
            self.file.read_exact_at(&mut bytes, self.left.at)?;
            let words = bytes
                .chunks_exact(8)
                .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            self.buffer.extend(words);
            self.left = Piece { at: self.left.at + count * 8, words: self.left.words - count };
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if !self.need(1)? {
                return Ok(None);
            }
            let Some(header) = Header::decode(self.buffer[self.taken]) else {
                bail!("the ring of CPU {} holds what is no event", self.place.cpu);
            };
            if !self.need(header.words)? {
                return Ok(None);
            }
            let words = self.buffer[self.taken + 1..self.taken + header.words].to_vec();
            self.taken += header.words;
            // Times of a ring never go back, so what does has come round.
            let span = 1u64 << TIME_BITS;
            let mut time = self.time & !(span - 1) | header.time;
            if time < self.time {
                time += span;
            }
            self.time = time;
            if let Some(point) = header.point {
                return Ok(Some(Event { time, place: self.place, point, words }));
            }
        }
    }
}

impl<'a> Events<'a> {
    /// Only those that `filter` wants.
    pub fn filtered(self, mut filter: crate::Filter) -> impl Iterator<Item = Result<Event>> + 'a {
        self.filter(move |event| event.as_ref().map_or(true, |event| filter.wants(event)))
    }
}

/// Events in the order of time; of the same moment, in the order of CPUs.
pub struct Events<'a> {
    streams: Vec<Stream<'a>>,
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: Vec<Option<Event>>,
}

impl Events<'_> {
    fn refill(&mut self, index: usize) -> Result<()> {
        if let Some(event) = self.streams[index].next()? {
            self.heads.push(Reverse((event.time, index)));
            self.waiting[index] = Some(event);
        }
        Ok(())
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        let Reverse((_, index)) = self.heads.pop()?;
        let event = self.waiting[index].take()?;
        match self.refill(index) {
            Ok(()) => Some(Ok(event)),
            Err(error) => Some(Err(error)),
        }
    }
}
