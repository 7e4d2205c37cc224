//! A key-value server whose values are in a mapped file that does not fit into memory, with a fixed pool of workers: each request is a task, which waits for its page.
//!
//! ```text
//! kvserver FILE [keys=N] [connections=N] [requests=N] [writes=PERCENT]
//! ```
//!
//! A thread hears what comes from all connections and makes a task of each request; the client, which is another process, has one request of each connection at a time, and looks at
//! every answer. `requests` are those of a connection. A value is a page; a write is on the disk before it is answered. Prints a line of JSON: requests for a second and how long the middle and the
//! slowest hundredth took.

mod common;

use cob_tasks::{Builder, Runtime};
use common::{mix, number, Line, Measured};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    process::Command,
    sync::{Arc, Mutex},
    time::Instant,
};

const VALUE: usize = 4096;
/// What a request says: read or write, and the key.
const REQUEST: usize = 16;
const READ: u64 = 0;
const WRITE: u64 = 1;

/// What is at a place of the value of a key.
fn content(key: u64, at: usize) -> u8 {
    mix((key << 12) | (at as u64 / 8)) as u8
}

fn value(key: u64) -> Vec<u8> {
    (0..VALUE).map(|at| content(key, at)).collect()
}

struct Store {
    start: usize,
    keys: u64,
}

impl Store {
    fn open(path: &str, keys: u64) -> io::Result<Store> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = keys as usize * VALUE;
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(0)?;
            (0..keys).try_for_each(|key| file.write_all(&value(key)))?;
            file.sync_all()?;
        }
        Store::map(&file, keys)
    }

    fn map(file: &File, keys: u64) -> io::Result<Store> {
        let (bytes, protection) = (keys as usize * VALUE, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping of a file that nobody makes shorter.
        let start = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // Keys come at random: what is beside a page is not wanted.
            libc::madvise(start, bytes, libc::MADV_RANDOM);
            start
        };
        Ok(Store { start: start as usize, keys })
    }

    fn place(&self, key: u64) -> *mut u8 {
        assert!(key < self.keys);
        (self.start + key as usize * VALUE) as *mut u8
    }

    fn read(&self, key: u64) -> [u8; VALUE] {
        let mut value = [0; VALUE];
        // SAFETY: within the mapping. Writers write what is there already (see `write`).
        unsafe { std::ptr::copy_nonoverlapping(self.place(key), value.as_mut_ptr(), VALUE) };
        value
    }

    /// The value of a key is always the same, so that the client can check it: who reads meanwhile sees no other.
    fn write(&self, key: u64) -> io::Result<()> {
        let value = value(key);
        // SAFETY: within the mapping.
        let result = unsafe {
            std::ptr::copy_nonoverlapping(value.as_ptr(), self.place(key), VALUE);
            libc::msync(self.place(key).cast(), VALUE, libc::MS_SYNC)
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

fn numbers(bytes: &[u8; REQUEST]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    (number(0), number(8))
}

/// Hears what comes until all clients have gone, and makes tasks of it.
fn serve(runtime: &Runtime, store: &Arc<Store>, connections: Vec<UnixStream>) -> io::Result<()> {
    let answers: Vec<_> =
        connections.iter().map(|stream| Ok(Arc::new(Mutex::new(stream.try_clone()?)))).collect::<io::Result<_>>()?;
    let poll = |stream: &UnixStream| libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = connections.iter().map(poll).collect();
    let mut open = polled.len();
    while open > 0 {
        // SAFETY: the kernel writes to as many elements as there are.
        if unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for (index, polled) in polled.iter_mut().enumerate().filter(|(_, polled)| polled.revents != 0) {
            let mut request = [0; REQUEST];
            if (&connections[index]).read_exact(&mut request).is_err() {
                (polled.fd, polled.revents, open) = (-1, 0, open - 1);
                continue;
            }
            let (store, answer) = (store.clone(), answers[index].clone());
            runtime.spawn(move || {
                let (what, key) = numbers(&request);
                let mut stream = answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let sent = match what {
                    READ => stream.write_all(&store.read(key)),
                    _ => store.write(key).and_then(|()| stream.write_all(&[1])),
                };
                sent.unwrap_or_else(|error| eprintln!("kvserver: key {key}: {error}"));
            });
        }
    }
    Ok(())
}

/// One connection of the client: how long each request took, in microseconds, and how many answers were wrong.
fn ask(mut stream: UnixStream, seed: u64, keys: u64, requests: u64, writes: u64) -> io::Result<(Vec<u64>, u64)> {
    let (mut times, mut wrong) = (Vec::new(), 0);
    for number in 0..requests {
        let random = mix(seed << 32 | number);
        let (key, what) = (random % keys, if random >> 40 & 127 < writes * 128 / 100 { WRITE } else { READ });
        let begin = Instant::now();
        stream.write_all(&[what.to_le_bytes(), key.to_le_bytes()].concat())?;
        let mut answer = vec![0; if what == READ { VALUE } else { 1 }];
        stream.read_exact(&mut answer)?;
        times.push(begin.elapsed().as_micros() as u64);
        wrong += u64::from(what == READ && answer.iter().enumerate().any(|(at, byte)| *byte != content(key, at)));
    }
    Ok((times, wrong))
}

fn client(socket: &str, [keys, connections, requests, writes]: [u64; 4]) -> io::Result<()> {
    let begin = Instant::now();
    let asking: Vec<_> = (0..connections)
        .map(|seed| {
            let stream = UnixStream::connect(socket)?;
            Ok(std::thread::spawn(move || ask(stream, seed + 1, keys, requests, writes)))
        })
        .collect::<io::Result<_>>()?;
    let (mut times, mut wrong) = (Vec::new(), 0);
    for thread in asking {
        let (more, bad) = thread.join().map_err(|_| io::Error::other("a thread of the client has panicked"))??;
        times.extend(more);
        wrong += bad;
    }
    let seconds = begin.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!("{seconds} {} {} {} {wrong}", times.len(), at(0.5), at(0.99));
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut sizes = [16384, 64, 50, 5];
    let names = ["keys=", "connections=", "requests=", "writes="];
    for word in words.iter().skip(1).filter(|word| word.contains('=')) {
        let place = names.iter().position(|name| word.starts_with(name)).unwrap_or_else(|| panic!("{word}: not known"));
        sizes[place] = number(word);
    }
    let [keys, connections, requests, writes] = sizes;
    if words.first().is_some_and(|word| word == "client") {
        return client(&words[1], sizes);
    }
    let path = words.first().expect("kvserver FILE [keys=N] [connections=N] [requests=N] [writes=PERCENT]");
    let store = Arc::new(Store::open(path, keys)?);
    let socket = std::env::temp_dir().join(format!("kvserver-{}", std::process::id()));
    let listener = UnixListener::bind(&socket)?;
    let runtime = Builder::from_environment().build()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("client").arg(&socket).args(names.iter().zip(sizes).map(|(name, size)| format!("{name}{size}")));
    let client = command.stdout(std::process::Stdio::piped()).spawn()?;
    let streams: Vec<UnixStream> = (0..connections).map(|_| Ok(listener.accept()?.0)).collect::<io::Result<_>>()?;
    std::fs::remove_file(&socket)?;
    let measured = Measured::begin();
    serve(&runtime, &store, streams)?;
    let measured = measured.end();
    let said = client.wait_with_output()?;
    let said = String::from_utf8_lossy(&said.stdout);
    let figures: Vec<&str> = said.split_whitespace().collect();
    let [_, answered, middle, slowest, wrong] = figures[..] else {
        return Err(io::Error::other("the client has failed"));
    };
    Line::new("kvserver", &runtime)
        .with("keys", keys)
        .with("connections", connections)
        .with("requests", requests * connections)
        .with("writes", writes)
        .measured(&measured)
        .with("answered", answered)
        .with("middle_us", middle)
        .with("slowest_hundredth_us", slowest)
        .with("errors", wrong)
        .text("checksum", format!("{:016x}", (0..16).fold(0, |sum, key| sum ^ mix(u64::from(store.read(key)[0])))))
        .print(&runtime);
    Ok(())
}
