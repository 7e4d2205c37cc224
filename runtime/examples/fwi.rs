//! The mock-up of a seismic code of Roca Nonell 2017, 4.3: waves through a volume, forward and backward in time, with a snapshot of the velocities in each step, which the
//! backward pass reads again, the last first.
//!
//! ```text
//! fwi DIRECTORY [version=none|fdatasync|multifile|mmap|nocache] [io=parallel|sequential] [scale=F] [hz=60|90]
//! fwi DIRECTORY merge ...      puts the files of `multifile` together, as the others write them
//! ```
//!
//! The volume is cut into slices (planes of y). Tasks of one step, with what they use (v: velocities, s: stresses, by slices):
//!
//! ```text
//! write y      in v[y]                          forward
//! read y       out v[y]                         backward
//! velocity y   inout v[y]      in s[y-4 ..= y+3]
//! stress y     inout s[y]      in v[y-4 ..= y+3]
//! source       inout s[m-1 ..= m]               m: the middle
//! ```
//!
//! With parallel I/O one thread makes the tasks of all steps and waits at the end; with sequential I/O it writes or reads a whole snapshot itself, and each step ends with a
//! taskwait. `scale=1` and `hz=60` are the sizes of the thesis (160 slices of 128 x 128 cells, 356 steps forward); a smaller factor makes the side of a slice (in
//! whole pages), the slices and the steps fewer alike. All versions end with the same snapshots, velocities and stresses: the checksum says so.

mod common;

use cob_tasks::{task, taskwait, Builder, Region};
use common::{mix, number, sum_of, Line, Measured};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        Arc, RwLock,
    },
};

/// Slices at each end that are only read.
const HALO: usize = 4;
/// 32-bit numbers of a cell: velocities, those of them that a snapshot has, and stresses.
const VELOCITIES: usize = 13;
const STORED: usize = 9;
const STRESSES: usize = 45;
/// For direct I/O, in memory and on the disk.
const SECTOR: usize = 512;
const PAGE: usize = 4096;
/// Of an 8th-order difference between two points.
const WEIGHTS: [f32; 4] = [1.2, -0.08, 0.01, -0.0007];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    None,
    Fdatasync,
    Multifile,
    Mmap,
    Nocache,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    slices: usize,
    /// Of a slice.
    cells: usize,
    steps: usize,
}

impl Sizes {
    fn new(hz: usize, scale: f64) -> Sizes {
        let scaled = |full: usize, least: usize| ((full as f64 * scale).round() as usize).max(least);
        let (slices, side) = match hz {
            60 => (160, scaled(128, 1).next_multiple_of(32)),
            90 => (236, scaled(188, 4)),
            _ => panic!("hz={hz}: expected 60 or 90"),
        };
        let steps = if hz == 60 { 356 } else { 533 };
        Sizes { slices: scaled(slices, 2 * HALO + 4), cells: side * side, steps: scaled(steps, 4) }
    }

    fn slice_bytes(self) -> usize {
        self.cells * STORED * 4
    }
}

/// Where snapshots are: a file each, or one for each slice.
struct Snapshots {
    version: Version,
    sizes: Sizes,
    files: Vec<File>,
    /// The mapping of each file.
    maps: Vec<usize>,
    written: AtomicU64,
}

impl Snapshots {
    /// From the beginning of a slice to that of the next.
    fn stride(&self) -> usize {
        let bytes = self.sizes.slice_bytes();
        if self.version == Version::Nocache {
            bytes.next_multiple_of(SECTOR)
        } else {
            bytes
        }
    }

    fn open(directory: &Path, version: Version, sizes: Sizes) -> io::Result<Snapshots> {
        let (name, count) = match version {
            Version::Multifile => ("slice", sizes.slices),
            _ => ("snapshot", sizes.steps),
        };
        let mut snapshots =
            Snapshots { version, sizes, files: Vec::new(), maps: Vec::new(), written: AtomicU64::new(0) };
        for number in 0..count {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            if version == Version::Nocache {
                options.custom_flags(libc::O_DIRECT | libc::O_SYNC);
            }
            snapshots.files.push(options.open(path(directory, name, number))?);
        }
        if version == Version::Mmap {
            let bytes = snapshots.stride() * sizes.slices;
            for file in &snapshots.files {
                // SAFETY: no memory is passed.
                if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: a new mapping of a file that nobody makes shorter.
                let map = unsafe {
                    libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
                };
                if map == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
                snapshots.maps.push(map as usize);
            }
        }
        Ok(snapshots)
    }

    fn place(&self, step: usize, slice: usize) -> (usize, u64) {
        match self.version {
            Version::Multifile => (slice, (step * self.stride()) as u64),
            _ => (step, (slice * self.stride()) as u64),
        }
    }

    /// The slice of a snapshot in the mapping. A task that writes it, or that reads it, is the only one that uses it then.
    fn mapped(&self, step: usize, slice: usize) -> *mut u8 {
        (self.maps[step] + slice * self.stride()) as *mut u8
    }

    fn write(&self, step: usize, slice: usize, packed: &Packed) -> io::Result<()> {
        let (file, offset) = self.place(step, slice);
        let bytes = self.sizes.slice_bytes();
        self.written.fetch_add(bytes as u64, Relaxed);
        match self.version {
            Version::Mmap => {
                let to = self.mapped(step, slice);
                // SAFETY: within the mapping; see `mapped`.
                unsafe { std::ptr::copy_nonoverlapping(packed.bytes(bytes).as_ptr(), to, bytes) };
                let from = to as usize & !(PAGE - 1);
                // SAFETY: within the mapping.
                match unsafe { libc::msync(from as *mut libc::c_void, to as usize + bytes - from, libc::MS_SYNC) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
            version => {
                self.files[file].write_all_at(packed.bytes(self.stride()), offset)?;
                match version {
                    Version::Fdatasync | Version::Multifile => self.files[file].sync_data(),
                    _ => Ok(()),
                }
            }
        }
    }

    fn read(&self, step: usize, slice: usize, packed: &mut Packed) -> io::Result<()> {
        let (file, offset) = self.place(step, slice);
        match self.version {
            Version::Mmap => {
                let (from, bytes) = (self.mapped(step, slice), self.sizes.slice_bytes());
                // SAFETY: within the mapping; see `mapped`.
                unsafe { std::ptr::copy_nonoverlapping(from, packed.bytes_mut(bytes).as_mut_ptr(), bytes) };
                Ok(())
            }
            _ => self.files[file].read_exact_at(packed.bytes_mut(self.stride()), offset),
        }
    }
}

fn path(directory: &Path, name: &str, number: usize) -> PathBuf {
    directory.join(format!("{name}-{number:04}"))
}

/// A buffer as direct I/O wants it.
struct Packed {
    memory: Vec<u8>,
    first: usize,
}

impl Packed {
    fn new(bytes: usize) -> Packed {
        let memory = vec![0; bytes.next_multiple_of(SECTOR) + PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        Packed { memory, first }
    }

    fn bytes(&self, count: usize) -> &[u8] {
        &self.memory[self.first..self.first + count]
    }

    fn bytes_mut(&mut self, count: usize) -> &mut [u8] {
        &mut self.memory[self.first..self.first + count]
    }

    fn pack(velocities: &[f32], bytes: usize) -> Packed {
        let mut packed = Packed::new(bytes);
        let stored = velocities.chunks_exact(VELOCITIES).flat_map(|cell| &cell[..STORED]);
        packed
            .bytes_mut(bytes)
            .chunks_exact_mut(4)
            .zip(stored)
            .for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes()));
        packed
    }

    fn unpack(&self, velocities: &mut [f32], bytes: usize) {
        let stored = velocities.chunks_exact_mut(VELOCITIES).flat_map(|cell| &mut cell[..STORED]);
        let values = self.bytes(bytes).chunks_exact(4);
        stored.zip(values).for_each(|(to, value)| *to = f32::from_le_bytes([value[0], value[1], value[2], value[3]]));
    }
}

/// The volume. Tasks lock what they have said they use; as that is all that keeps them apart, nobody ever waits for such a lock.
struct Volume {
    sizes: Sizes,
    velocities: Vec<RwLock<Vec<f32>>>,
    stresses: Vec<RwLock<Vec<f32>>>,
    snapshots: Snapshots,
}

const APART: &str = "tasks that use the same slice have run at the same time";

impl Volume {
    fn new(sizes: Sizes, snapshots: Snapshots) -> Volume {
        let plane = |slice: usize, numbers: usize| {
            let number = |at: usize| (mix((slice << 32 | at) as u64) % 1000) as f32 * 1e-5;
            RwLock::new((0..sizes.cells * numbers).map(number).collect())
        };
        let planes = |numbers: usize| (0..sizes.slices).map(|slice| plane(slice, numbers)).collect();
        Volume { sizes, velocities: planes(VELOCITIES), stresses: planes(STRESSES), snapshots }
    }

    /// `to` of a slice from the differences of `from` across it, at slices -4 to 3 from here.
    fn propagate(&self, slice: usize, to: &[RwLock<Vec<f32>>], from: &[RwLock<Vec<f32>>], numbers: [usize; 2]) {
        let mut to = to[slice].try_write().expect(APART);
        let from: Vec<_> = (slice - 4..slice + 4).map(|slice| from[slice].try_read().expect(APART)).collect();
        for cell in 0..self.sizes.cells {
            for number in 0..numbers[0] {
                let at = cell * numbers[1] + number * numbers[1] / numbers[0];
                let mut change = 0.0;
                for (near, weight) in WEIGHTS.iter().enumerate() {
                    change += weight * (from[4 + near][at] - from[3 - near][at]);
                }
                let value = &mut to[cell * numbers[0] + number];
                *value = *value * 0.999 + change * 1e-3;
            }
        }
    }

    fn velocity(&self, slice: usize) {
        self.propagate(slice, &self.velocities, &self.stresses, [VELOCITIES, STRESSES]);
    }

    fn stress(&self, slice: usize) {
        self.propagate(slice, &self.stresses, &self.velocities, [STRESSES, VELOCITIES]);
    }

    fn source(&self, step: usize) {
        let middle = self.sizes.slices / 2;
        for slice in [middle - 1, middle] {
            let mut stresses = self.stresses[slice].try_write().expect(APART);
            let at = stresses.len() / 2;
            stresses[at] += (step as f32 * 0.1).sin();
        }
    }

    fn write(&self, step: usize, slice: usize) {
        let velocities = self.velocities[slice].try_read().expect(APART);
        let packed = Packed::pack(&velocities, self.sizes.slice_bytes());
        self.snapshots.write(step, slice, &packed).unwrap_or_else(|error| panic!("snapshot {step}: {error}"));
    }

    fn read(&self, step: usize, slice: usize) {
        let mut velocities = self.velocities[slice].try_write().expect(APART);
        let mut packed = Packed::new(self.sizes.slice_bytes());
        self.snapshots.read(step, slice, &mut packed).unwrap_or_else(|error| panic!("snapshot {step}: {error}"));
        packed.unpack(&mut velocities, self.sizes.slice_bytes());
    }
}

/// Names of slices for the runtime; they are no addresses.
fn velocities(first: usize, count: usize) -> Region {
    Region::new(first, count)
}

fn stresses(first: usize, count: usize) -> Region {
    Region::new((1 << 32) + first, count)
}

/// Makes the tasks of all steps, forward and then backward.
fn propagate(volume: &Arc<Volume>, parallel: bool) {
    let Sizes { slices, steps, .. } = volume.sizes;
    for step in 0..2 * steps {
        let (forward, snapshot) = if step < steps { (true, step) } else { (false, 2 * steps - 1 - step) };
        for slice in 0..slices {
            match (parallel, forward) {
                (false, true) => volume.write(snapshot, slice),
                (false, false) => volume.read(snapshot, slice),
                (true, true) => {
                    let volume = volume.clone();
                    task().reads(velocities(slice, 1)).spawn(move || volume.write(snapshot, slice));
                }
                (true, false) => {
                    let volume = volume.clone();
                    task().writes(velocities(slice, 1)).spawn(move || volume.read(snapshot, slice));
                }
            }
        }
        for slice in HALO..slices - HALO {
            let volume = volume.clone();
            let task = task().changes(velocities(slice, 1)).reads(stresses(slice - 4, 8));
            task.spawn(move || volume.velocity(slice));
        }
        for slice in HALO..slices - HALO {
            let volume = volume.clone();
            let task = task().changes(stresses(slice, 1)).reads(velocities(slice - 4, 8));
            task.spawn(move || volume.stress(slice));
        }
        let source = volume.clone();
        task().changes(stresses(slices / 2 - 1, 2)).spawn(move || source.source(step));
        if !parallel {
            taskwait();
        }
    }
    taskwait();
}

/// Of all snapshots in their order, as they are on the disk.
fn sum_of_snapshots(directory: &Path, version: Version, sizes: Sizes) -> io::Result<u64> {
    let name = if version == Version::Multifile { "slice" } else { "snapshot" };
    let stride = match version {
        Version::Nocache => sizes.slice_bytes().next_multiple_of(SECTOR),
        _ => sizes.slice_bytes(),
    };
    let (mut sum, mut bytes) = (0, vec![0; sizes.slice_bytes()]);
    let count = if version == Version::Multifile { sizes.slices } else { sizes.steps };
    let files: Vec<File> =
        (0..count).map(|number| File::open(path(directory, name, number))).collect::<Result<_, _>>()?;
    for step in 0..sizes.steps {
        for slice in 0..sizes.slices {
            let (file, index) = if version == Version::Multifile { (slice, step) } else { (step, slice) };
            files[file].read_exact_at(&mut bytes, (index * stride) as u64)?;
            sum = sum_of(sum, &bytes);
        }
    }
    Ok(sum)
}

/// The tool for who wants the output of `multifile` as that of the others.
fn merge(directory: &Path, sizes: Sizes) -> io::Result<()> {
    let mut bytes = vec![0; sizes.slice_bytes()];
    for step in 0..sizes.steps {
        let to = File::create(path(directory, "snapshot", step))?;
        for slice in 0..sizes.slices {
            File::open(path(directory, "slice", slice))?
                .read_exact_at(&mut bytes, (step * sizes.slice_bytes()) as u64)?;
            to.write_all_at(&bytes, (slice * bytes.len()) as u64)?;
        }
    }
    let sum = sum_of_snapshots(directory, Version::None, sizes)?;
    println!("{{\"benchmark\": \"fwi\", \"merged\": {}, \"snapshots\": \"{sum:016x}\"}}", sizes.steps);
    Ok(())
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let directory =
        PathBuf::from(words.next().expect("fwi DIRECTORY [version=V] [io=parallel|sequential] [scale=F] [hz=60|90]"));
    let (mut version, mut parallel, mut scale, mut hz, mut merges) = (Version::None, true, 0.125, 60, false);
    for word in words {
        match word.as_str() {
            "version=none" => version = Version::None,
            "version=fdatasync" => version = Version::Fdatasync,
            "version=multifile" => version = Version::Multifile,
            "version=mmap" => version = Version::Mmap,
            "version=nocache" => version = Version::Nocache,
            "io=parallel" => parallel = true,
            "io=sequential" => parallel = false,
            "merge" => merges = true,
            word if word.starts_with("scale=") => scale = number(word),
            word if word.starts_with("hz=") => hz = number(word),
            word => panic!("{word}: not known"),
        }
    }
    let sizes = Sizes::new(hz, scale);
    if merges {
        return merge(&directory, sizes);
    }
    fs::create_dir_all(&directory)?;
    let snapshots = Snapshots::open(&directory, version, sizes)?;
    let volume = Arc::new(Volume::new(sizes, snapshots));
    let runtime = Builder::from_environment().build()?;
    let measured = Measured::begin();
    let working = volume.clone();
    runtime.run(move || propagate(&working, parallel));
    let measured = measured.end();
    let mut sum = sum_of_snapshots(&directory, version, sizes)?;
    let of_snapshots = sum;
    for plane in volume.velocities.iter().chain(&volume.stresses) {
        let plane = plane.read().expect(APART);
        sum = plane.iter().fold(sum, |sum, value| sum_of(sum, &value.to_le_bytes()));
    }
    let Sizes { slices, cells, steps } = sizes;
    Line::new("fwi", &runtime)
        .text("version", format!("{version:?}").to_lowercase())
        .text("io", if parallel { "parallel" } else { "sequential" })
        .with("slices", slices)
        .with("cells", cells)
        .with("steps", steps)
        .with("written", volume.snapshots.written.load(Relaxed))
        .measured(&measured)
        .text("snapshots", format!("{of_snapshots:016x}"))
        .text("checksum", format!("{sum:016x}"))
        .print(&runtime);
    Ok(())
}
