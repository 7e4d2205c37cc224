//! The values of `--disk` and `--root-disk`, and the options of `cob disk`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::disk::Behaviour;

/// A disk of the machine, and the file that has its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub file: PathBuf,
    pub read_only: bool,
    pub serial: String,
    pub size: Option<u64>,
    /// The host command serves it, and not QEMU.
    pub behaviour: Option<Behaviour>,
}

pub const VALUE: &str = "FILE[,ro][,serial=NAME][,size=SIZE][,delay=US][,depth=N][,errors=WHAT][,log=FILE]";

/// Lines of its own: as one paragraph nobody would find a word in it.
pub const HELP: &str = "\
A disk inside (/dev/vda, then vdb, ...), whose bytes are those of FILE; may be repeated
  ro           nobody inside may write it
  serial=NAME  what it is called inside (20 bytes)
  size=SIZE    FILE is made with so many bytes if it is not there
  delay=US     each request is answered at the earliest so many microseconds after it came
  depth=N      at most N requests wait for that at the same time, the others for them
  errors=WHAT  these fail: read:START-END or write:START-END (bytes, or with K, M, G), read:N, write:N, flush:N (the Nth, once); joined by +
  log=FILE     every write, zeroing, trim and flush goes to FILE, for `cob disk`";

/// The longest `delay`: a minute.
const MOST_DELAY_US: u64 = 60_000_000;

pub fn disk(text: &str) -> Result<Disk, String> {
    let mut words = text.split(',');
    let file = words.next().filter(|file| !file.is_empty()).ok_or("a file is missing")?;
    let mut disk = Disk { file: file.into(), read_only: false, serial: String::new(), size: None, behaviour: None };
    for word in words {
        match word.split_once('=') {
            None if word == "ro" => disk.read_only = true,
            Some(("serial", name)) if !name.is_empty() && name.len() <= 20 => disk.serial = name.to_string(),
            Some(("serial", _)) => return Err("a serial number has 1 to 20 bytes".to_string()),
            Some(("size", size)) => disk.size = Some(super::bytes(size)?),
            Some((name @ ("delay" | "depth" | "errors" | "log"), value)) => {
                behave(disk.behaviour.get_or_insert_default(), name, value)?;
            }
            _ => {
                return Err(format!(
                    "{word:?}: expected ro, serial=NAME, size=SIZE, delay=US, depth=N, errors=WHAT or log=FILE"
                ));
            }
        }
    }
    Ok(disk)
}

fn behave(behaviour: &mut Behaviour, name: &str, value: &str) -> Result<(), String> {
    match name {
        "delay" => {
            let delay = value.parse().ok().filter(|us| *us <= MOST_DELAY_US);
            behaviour.delay =
                delay.map(Duration::from_micros).ok_or("delay=US: expected 0 to 60000000 microseconds")?;
        }
        "depth" => {
            let depth = value.parse::<NonZeroUsize>();
            behaviour.depth = Some(depth.map_err(|_| "depth=N: expected a number of requests, at least 1")?);
        }
        "errors" => {
            for fault in value.split('+') {
                behaviour.errors.push(fault.parse()?);
            }
        }
        _ if value.is_empty() => return Err("log=FILE: a file is missing".to_string()),
        _ => behaviour.log = Some(value.into()),
    }
    Ok(())
}

#[derive(Debug, Args)]
pub struct DiskOptions {
    #[command(subcommand)]
    pub command: DiskCommand,
}

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Write what a disk could hold after a power cut, by its log (`--disk FILE,log=FILE`).
    Cut(CutOptions),
    /// Count what is in the log of a disk.
    Log {
        /// The log.
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct CutOptions {
    /// The log of the disk.
    #[arg(long, value_name = "FILE")]
    pub log: PathBuf,
    /// What the disk held when the log began.
    #[arg(long, value_name = "FILE")]
    pub image: PathBuf,
    /// Gets what the disk could hold afterwards.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// The power fails after so many entries [default: any number of them].
    #[arg(long, value_name = "N")]
    pub at: Option<u64>,
    /// Chooses what is lost, and N; the same seed, the same disk [default: another each time].
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Aligned blocks of so many bytes are written wholly or not at all.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = tear)]
    pub tear: u64,
}

fn tear(text: &str) -> Result<u64, String> {
    let blocks = text.parse().ok().filter(|bytes: &u64| bytes.is_power_of_two() && (512..=1 << 20).contains(bytes));
    blocks.ok_or_else(|| "expected a power of two from 512 to 1048576".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_disk() {
        let plain = disk("a.img,ro,serial=x,size=64M").unwrap();
        assert_eq!((plain.read_only, plain.size, plain.behaviour), (true, Some(64 << 20), None));
        let served = disk("a.img,delay=1000,depth=4,errors=read:0-4K+flush:2,errors=write:1,log=l").unwrap();
        let behaviour = served.behaviour.unwrap();
        assert_eq!((behaviour.delay, behaviour.depth), (Duration::from_millis(1), NonZeroUsize::new(4)));
        assert_eq!((behaviour.errors.len(), behaviour.log), (3, Some("l".into())));
        assert_eq!(disk("a,delay=0").unwrap().behaviour, Some(Behaviour::default()));
    }

    #[test]
    fn silly_disks_are_one_clear_line() {
        for text in [
            "",
            "a,rw",
            "a,serial=",
            "a,size=x",
            "a,delay",
            "a,delay=",
            "a,delay=-1",
            "a,delay=1ms",
            "a,delay=60000001",
            "a,depth=0",
            "a,depth=x",
            "a,errors",
            "a,errors=",
            "a,errors=all",
            "a,errors=read:1+",
            "a,log",
            "a,log=",
        ] {
            let complaint = disk(text).unwrap_err();
            assert!(!complaint.is_empty() && !complaint.contains('\n'), "{text}: {complaint}");
        }
    }
}
