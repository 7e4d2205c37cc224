//! What a disk could hold after a power cut, by its log (log.rs).
//!
//! The power fails when the log has `n` entries. Of all requests that came before, some are *certain* to be on the disk:
//!
//! - those that were answered when a flush came that was answered, too: for the entry `f < n` of a flush, all entries before `came` of `f`;
//! - those that were durable before they were answered (FUA): entries before `n` that say so.
//!
//! The others may have reached it or not, each block by itself: a disk writes its cache in any order. These are the rest of the entries before `n`, and what
//! was under way: entries from `n` on whose `came` is at most `n`.
//!
//! ```text
//! entry   0        1        2       3 (came 2)   4                5
//!         write A  write B  write C flush        write A again    write D (came 4)
//!         |----certain----| |            may be lost             |
//!                                                                ^ the power fails, n = 5
//! ```
//!
//! C was answered, but only after the flush had come, so the flush says nothing about it. D was under way.
//!
//! For each uncertain block a coin decides whether it is there, and what is there is applied in the order of the log. So each block has what the
//! last flush left there or what any one of the later writes has put there, as if the disk had written them in any order; but never anything older than
//! what is certain. How likely it is that a block is lost is chosen for each cut, so that some lose little and some nearly everything.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use fastrand::Rng;

use super::log::{Entry, Kind, Reader};
use super::store::zero;
use crate::cli::CutOptions;

/// Makes the disk; says in a line what it did.
pub fn cut(options: &CutOptions) -> Result<String> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(0..1 << 32));
    let mut rng = Rng::with_seed(seed);
    let entries = entries(&options.log)?;
    let all = entries.len() as u64;
    let random = rng.u64(0..=all);
    let at = options.at.unwrap_or(random);
    ensure!(at <= all, "--at {at}: the log has {all} entries");
    let flushed = entries[..at as usize].iter().filter(|entry| entry.kind == Kind::Flush);
    let flushed = flushed.map(|flush| flush.came).max().unwrap_or(0);

    let mut reader = Reader::open(&options.log)?;
    let disk = copy(options, reader.size)?;
    let kept = rng.f64();
    let (mut certain, mut blocks, mut written) = (0, 0, 0);
    let mut number = 0;
    while let Some(entry) = reader.next()? {
        let is_certain = number < flushed || (number < at && entry.durable);
        let is_under_way = number >= at && entry.came <= at;
        if entry.kind != Kind::Flush && (number < at || is_under_way) {
            let data = reader.data()?;
            if is_certain {
                certain += 1;
                apply(&disk, &entry, &data, entry.offset..entry.offset + entry.length)?;
            } else {
                for block in pieces(&entry, options.tear) {
                    blocks += 1;
                    if rng.f64() < kept {
                        written += 1;
                        apply(&disk, &entry, &data, block)?;
                    }
                }
            }
        }
        number += 1;
    }
    disk.sync_all()?;
    Ok(format!(
        "cut after {at} of {all} entries (--at {at} --seed {seed}): {certain} requests are certain, {written} of {blocks} other blocks are there"
    ))
}

fn entries(log: &Path) -> Result<Vec<Entry>> {
    let mut reader = Reader::open(log)?;
    std::iter::from_fn(|| reader.next().transpose()).collect::<Result<_>>().with_context(|| log.display().to_string())
}

/// The output, which begins as a copy of the image.
fn copy(options: &CutOptions, size: u64) -> Result<File> {
    let (image, output) = (&options.image, &options.output);
    let name = || output.display().to_string();
    // It would be emptied before it is read.
    for other in [image, &options.log] {
        let other = other.canonicalize().with_context(|| other.display().to_string())?;
        if output.canonicalize().is_ok_and(|output| output == other) {
            bail!("--output {}: needs a file of its own", output.display());
        }
    }
    let bytes = fs::metadata(image).with_context(|| image.display().to_string())?.len();
    ensure!(bytes == size, "--image {}: has {bytes} bytes, and the disk had {size}", image.display());
    fs::copy(image, output).with_context(name)?;
    OpenOptions::new().write(true).open(output).with_context(name)
}

/// The parts of an entry that are written wholly or not at all.
fn pieces(entry: &Entry, tear: u64) -> impl Iterator<Item = Range<u64>> {
    let (mut start, end) = (entry.offset, entry.offset + entry.length);
    std::iter::from_fn(move || {
        let piece = start..end.min((start / tear + 1) * tear);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Does to these bytes of the disk what the entry does.
fn apply(disk: &File, entry: &Entry, data: &[u8], bytes: Range<u64>) -> Result<()> {
    let from = |byte: u64| (byte - entry.offset) as usize;
    match entry.kind {
        Kind::Write => disk.write_all_at(&data[from(bytes.start)..from(bytes.end)], bytes.start)?,
        Kind::WriteZeroes | Kind::Trim => zero(disk, bytes.start, bytes.end - bytes.start, false)?,
        Kind::Flush => (),
    }
    Ok(())
}

/// The numbers of requests in a log, and their bytes.
pub fn summary(log: &Path) -> Result<String> {
    let mut reader = Reader::open(log)?;
    let mut lines = format!("{:8} {:>10} {:>14}\n", "", "requests", "bytes");
    let mut count = [(0u64, 0u64); 4];
    let mut durable = 0u64;
    let mut came = Vec::new();
    while let Some(entry) = reader.next().with_context(|| log.display().to_string())? {
        let (requests, bytes) = &mut count[entry.kind as usize - 1];
        *requests += 1;
        *bytes += entry.length;
        durable += u64::from(entry.durable);
        came.push(entry.came);
    }
    for (name, (requests, bytes)) in ["writes", "zeroes", "trims", "flushes"].into_iter().zip(count) {
        lines += &format!("{name:8} {requests:>10} {bytes:>14}\n");
    }
    lines += &format!("durable before the answer (FUA): {durable}\n");
    lines += &format!("changes and flushes at the same time, at most: {}\n", most_at_once(&came));
    if reader.left() > 0 {
        lines += &format!("the last entry is cut off: {} bytes\n", reader.left());
    }
    Ok(lines)
}

/// The most requests that were under way together, from the `came` of each entry: an entry is under way from there to its own number.
fn most_at_once(came: &[u64]) -> u64 {
    let mut begin = vec![0u64; came.len() + 1];
    came.iter().for_each(|came| begin[*came as usize] += 1);
    let (mut now, mut most) = (0, 0);
    for begin in begin {
        now += begin;
        most = most.max(now);
        // The entry of this number ends.
        now = now.saturating_sub(1);
    }
    most
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
