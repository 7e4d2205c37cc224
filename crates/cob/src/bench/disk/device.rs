//! What a disk of the machine was asked, by QEMU's own count, when the program says so.
//!
//! The program prints `MARK n` and reads the first sector of a second disk, past all caches, until it has n. That disk is the file [`Device::control`]: it
//! gets n when the counts have been read. So nothing that the program does is on either side of a mark by chance.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::qmp::Questions;

/// The disk that is measured, as `vm` names it.
const NAME: &str = "disk0";
const CONTROL_BYTES: usize = 1 << 20;

/// As QEMU counts them (docs/interop/qemu-qmp-ref, BlockDeviceStats): each request of the guest, before QEMU merges any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

impl Requests {
    fn of(answer: &Value) -> Option<Requests> {
        let disk = answer.as_array()?.iter().find(|disk| disk["device"] == NAME)?;
        let count = |name: &str| disk["stats"][name].as_u64();
        Some(Requests {
            reads: count("rd_operations")?,
            read_bytes: count("rd_bytes")?,
            writes: count("wr_operations")?,
            written_bytes: count("wr_bytes")?,
            flushes: count("flush_operations")?,
        })
    }

    fn since(self, before: Requests) -> Requests {
        Requests {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
        }
    }
}

pub struct Device {
    control: PathBuf,
    /// The counts at each mark.
    marks: Vec<(usize, Requests)>,
}

impl Device {
    pub fn new(files: &Path) -> Result<Device> {
        let control = files.join("control.img");
        fs::write(&control, vec![0; CONTROL_BYTES])?;
        Ok(Device { control, marks: Vec::new() })
    }

    /// The second disk.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Reads the counts if the program has printed a mark that it waits at.
    pub fn answer(&mut self, text: &str, monitor: &mut Questions) -> Result<()> {
        // A line may be seen while it is written.
        let whole = &text[..text.rfind('\n').unwrap_or_default()];
        let newest = whole.lines().rev().find_map(mark);
        if let Some(mark) = newest.filter(|mark| self.marks.iter().all(|(seen, _)| seen != mark)) {
            let requests = Requests::of(&monitor.ask("query-blockstats")?).context("QEMU counts no requests")?;
            self.marks.push((mark, requests));
            self.write(&format!("{mark}\n"))?;
        }
        Ok(())
    }

    /// In place, so that QEMU's file is this one.
    fn write(&self, text: &str) -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(&self.control)?;
        Ok(std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0)?)
    }

    /// What came between that mark and the next one.
    pub fn between(&self, mark: usize) -> Option<Requests> {
        let at = |wanted: usize| self.marks.iter().find(|(mark, _)| *mark == wanted).map(|(_, requests)| *requests);
        Some(at(mark + 1)?.since(at(mark)?))
    }
}

fn mark(line: &str) -> Option<usize> {
    line.trim_end().strip_prefix("MARK ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn counts_are_those_of_the_first_disk() {
        let stats = |reads: u64| json!({ "rd_operations": reads, "rd_bytes": 4096, "wr_operations": 2, "wr_bytes": 512, "flush_operations": 1, "idle": true });
        let answer = json!([{ "device": "disk1", "stats": stats(9) }, { "device": "disk0", "stats": stats(3) }]);
        let requests = Requests::of(&answer).unwrap();
        assert_eq!(requests, Requests { reads: 3, read_bytes: 4096, writes: 2, written_bytes: 512, flushes: 1 });
        assert_eq!(Requests { reads: 5, ..requests }.since(requests), Requests { reads: 2, ..Requests::default() });
        assert_eq!(Requests::of(&json!([])), None);
    }

    #[test]
    fn marks_are_answered_once() {
        let files = crate::vm::private_directory().unwrap();
        let mut device = Device::new(files.path()).unwrap();
        let (ours, qemu) = UnixStream::pair().unwrap();
        let answers = thread::spawn(move || {
            let mut qemu = BufReader::new(qemu);
            for reads in [0, 3, 10] {
                let mut command = String::new();
                qemu.read_line(&mut command).unwrap();
                let stats = json!({ "rd_operations": reads, "rd_bytes": 0, "wr_operations": 0, "wr_bytes": 0, "flush_operations": 0 });
                let answer = json!({ "return": [{ "device": "disk0", "stats": stats }] });
                writeln!(qemu.get_mut(), "{}\n{answer}", json!({ "event": "RESUME" })).unwrap();
            }
        });
        let mut monitor = Questions::start(ours).unwrap();
        for text in ["MARK 0\r\n", "MARK 0\r\nMARK 1", "MARK 0\r\nMARK 1\r\n"] {
            device.answer(text, &mut monitor).unwrap();
        }
        answers.join().unwrap();
        assert_eq!(device.between(0), Some(Requests { reads: 7, ..Requests::default() }));
        assert!(fs::read(device.control()).unwrap().starts_with(b"1\n"));
        assert_eq!(device.between(1), None);
    }
}
