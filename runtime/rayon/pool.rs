//! Checksums of all files of a directory tree, as one writes that with rayon: closures read files, and wait for them.
//!
//! ```text
//! pool DIRECTORY          prints the checksum of the tree, its files and bytes, and how long that took
//! pool make DIRECTORY N   makes N files of 4 to 64 KiB there
//! pool cost               nanoseconds for a join and for a spawned closure
//! ```

use rayon::prelude::*;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            match kind {
                kind if kind.is_dir() => left.push(path),
                kind if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn make(directory: &Path, count: usize) -> io::Result<()> {
    for number in 0..count {
        let place = directory.join(format!("{}", number / 100));
        fs::create_dir_all(&place)?;
        let bytes = 4096 + number * 7919 % (60 << 10);
        let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + number * 17) as u8).collect();
        fs::write(place.join(format!("{number}")), content)?;
    }
    Ok(())
}

/// As runtime/examples/cost.rs.
fn cost() {
    fn leaves(depth: u32) -> u64 {
        if depth == 0 {
            return std::hint::black_box(1);
        }
        let (one, other) = rayon::join(|| leaves(depth - 1), || leaves(depth - 1));
        one + other
    }
    let fastest = |count: u64, work: &dyn Fn()| {
        let round = || {
            let begin = Instant::now();
            work();
            begin.elapsed().as_nanos() as u64
        };
        (0..7).map(|_| round()).min().unwrap_or(0) / count
    };
    let (tasks, depth) = (100_000u64, 17);
    let joined = fastest((1 << depth) - 1, &|| assert_eq!(leaves(depth), 1 << depth));
    let scoped = fastest(tasks, &|| {
        rayon::scope(|scope| (0..tasks).for_each(|_| scope.spawn(|_| _ = std::hint::black_box(1))));
    });
    println!("{{\"benchmark\": \"rayon\", \"scope_ns\": {scoped}, \"join_ns\": {joined}}}");
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [directory] if directory != "cost" => {
            let files = files(Path::new(directory))?;
            let begin = Instant::now();
            let (sum, bytes) = files
                .par_iter()
                .map(|path| fs::read(path).map(|content| (sum(&content), content.len())))
                .try_reduce(|| (0, 0), |one, other| Ok((one.0.wrapping_add(other.0), one.1 + other.1)))?;
            let seconds = begin.elapsed().as_secs_f64();
            println!("{sum:016x} {} files {bytes} bytes {seconds:.3} s", files.len());
            Ok(())
        }
        [word] if word == "cost" => {
            cost();
            Ok(())
        }
        [make_word, directory, count] if make_word == "make" => {
            make(Path::new(directory), count.parse().map_err(io::Error::other)?)
        }
        _ => Err(io::Error::other("pool DIRECTORY, or pool make DIRECTORY N")),
    }
}
