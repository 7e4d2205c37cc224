use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tempfile::NamedTempFile;

use super::super::log::{Kind, Reader};
use super::*;

const SIZE: u64 = 1 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;
const FUA: u16 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const EPERM: u32 = 1;

const GO: u32 = 7;
const ACK: u32 = 1;

fn image() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file
}

/// A client before the handshake, and the thread that serves it.
fn connect(file: &Path, read_only: bool, behaviour: Behaviour) -> (UnixStream, JoinHandle<io::Result<()>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let store = Store::open(file, read_only, behaviour.log.as_deref()).unwrap();
    (ours, thread::spawn(move || serve(theirs, &store, &behaviour, "test")))
}

fn number<const N: usize>(stream: &mut UnixStream) -> u64 {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Takes the greeting and answers it.
fn greet(stream: &mut UnixStream, flags: u32) {
    let mut greeting = [0; 16];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");
    assert_eq!(number::<2>(stream), 3);
    stream.write_all(&flags.to_be_bytes()).unwrap();
}

fn ask(stream: &mut UnixStream, option: u32, data: &[u8]) {
    let words = [option, data.len() as u32].map(u32::to_be_bytes);
    stream.write_all(&[b"IHAVEOPT", words.as_flattened(), data].concat()).unwrap();
}

/// A reply to an option: its kind and data.
fn told(stream: &mut UnixStream, option: u32) -> (u32, Vec<u8>) {
    assert_eq!(number::<8>(stream), 0x3_e889_0455_65a9);
    assert_eq!(number::<4>(stream), u64::from(option));
    let kind = number::<4>(stream) as u32;
    let mut data = vec![0; number::<4>(stream) as usize];
    stream.read_exact(&mut data).unwrap();
    (kind, data)
}

/// The data of INFO and GO: a name, and that block sizes are asked for.
fn named(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 1, 0, 3]].concat()
}

/// A client after the handshake.
struct Client {
    stream: UnixStream,
    /// Of reads that were not answered.
    lengths: BTreeMap<u64, usize>,
    requests: u64,
    server: JoinHandle<io::Result<()>>,
}

impl Client {
    fn of(file: &Path, behaviour: Behaviour) -> Client {
        let (mut stream, server) = connect(file, false, behaviour);
        greet(&mut stream, 3);
        ask(&mut stream, GO, &named(""));
        while told(&mut stream, GO).0 != ACK {}
        Client { stream, lengths: BTreeMap::new(), requests: 0, server }
    }

    fn send(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> u64 {
        let cookie = self.requests;
        self.requests += 1;
        if kind == READ {
            self.lengths.insert(cookie, length as usize);
        }
        let head = [&0x2560_9513u32.to_be_bytes()[..], [flags, kind].map(u16::to_be_bytes).as_flattened()].concat();
        let words = [cookie, offset].map(u64::to_be_bytes);
        self.stream.write_all(&[&head, words.as_flattened(), &length.to_be_bytes(), data].concat()).unwrap();
        cookie
    }

    /// The next reply: which request, its error, its data.
    fn reply(&mut self) -> (u64, u32, Vec<u8>) {
        assert_eq!(number::<4>(&mut self.stream), 0x6744_6698);
        let error = number::<4>(&mut self.stream) as u32;
        let cookie = number::<8>(&mut self.stream);
        let length = self.lengths.remove(&cookie).filter(|_| error == 0);
        let mut data = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut data).unwrap();
        (cookie, error, data)
    }

    fn does(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> Result<Vec<u8>, u32> {
        let cookie = self.send(kind, flags, offset, length, data);
        let (answered, error, data) = self.reply();
        assert_eq!(answered, cookie);
        if error == 0 {
            Ok(data)
        } else {
            Err(error)
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        self.does(WRITE, 0, offset, data.len() as u32, data)
    }

    fn end(mut self) -> io::Result<()> {
        self.send(DISC, 0, 0, 0, &[]);
        self.server.join().unwrap()
    }
}

#[test]
fn the_handshake_answers_every_option() {
    let file = image();
    let (mut stream, server) = connect(file.path(), true, Behaviour::default());
    greet(&mut stream, 3);
    // Structured replies, TLS, a list: not here.
    for option in [8, 5, 3, 77] {
        ask(&mut stream, option, &[]);
        assert_eq!(told(&mut stream, option), (1 << 31 | 1, Vec::new()));
    }
    ask(&mut stream, 6, &named("other"));
    assert_eq!(told(&mut stream, 6).0, 1 << 31 | 6);
    for bad in [&[][..], &[0, 0, 0, 9, 0, 0], &[0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0], &[255; 20]] {
        ask(&mut stream, GO, bad);
        assert_eq!(told(&mut stream, GO).0, 1 << 31 | 3, "{bad:?}");
    }
    for option in [6, GO] {
        ask(&mut stream, option, &named(""));
        let export = told(&mut stream, option).1;
        assert_eq!(
            export,
            [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 0b111]].concat(),
            "size; has flags, read only, flush"
        );
        assert_eq!(told(&mut stream, option).1, [0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0], "block sizes");
        assert_eq!(told(&mut stream, option).0, ACK);
    }
    drop(stream);
    assert_eq!(server.join().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn old_clients_name_their_export() {
    for (flags, zeroes) in [(1, 124), (3, 0), (0, 124)] {
        let file = image();
        let (mut stream, server) = connect(file.path(), false, Behaviour::default());
        greet(&mut stream, flags);
        ask(&mut stream, 1, b"");
        assert_eq!(number::<8>(&mut stream), SIZE);
        assert_eq!(number::<2>(&mut stream), 0b110_1101);
        let mut rest = vec![1; zeroes];
        stream.read_exact(&mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 0));
        let mut client = Client { stream, lengths: BTreeMap::new(), requests: 0, server };
        assert_eq!(client.does(READ, 0, 0, 4, &[]), Ok(vec![0; 4]));
        client.end().unwrap();
    }
}

#[test]
fn clients_may_leave_or_be_sent_away() {
    let file = image();
    let (mut stream, server) = connect(file.path(), false, Behaviour::default());
    greet(&mut stream, 3);
    ask(&mut stream, 2, &[]);
    assert_eq!(told(&mut stream, 2).0, ACK);
    assert!(server.join().unwrap().is_ok());
    for nonsense in [&b"\0\0\0\x80"[..], b"\0\0\0\x03GET / HTTP/1.1", b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\0\0\0"] {
        let (mut stream, server) = connect(file.path(), false, Behaviour::default());
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(nonsense).unwrap();
        assert_eq!(server.join().unwrap().unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn requests_change_the_file() {
    let file = image();
    let mut client = Client::of(file.path(), Behaviour::default());
    client.write(1000, &[7; 5000]).unwrap();
    client.does(WRITE, FUA, SIZE - 3, 3, b"end").unwrap();
    assert_eq!(client.does(READ, 0, 999, 3, &[]), Ok(vec![0, 7, 7]));
    assert_eq!(client.does(READ, 0, SIZE - 4, 4, &[]), Ok(b"\0end".to_vec()));
    client.does(ZEROES, 0, 1001, 100, &[]).unwrap();
    client.does(ZEROES, 2, 1201, 100, &[]).unwrap();
    client.does(TRIM, 0, 4096, 512, &[]).unwrap();
    client.does(FLUSH, 0, 0, 0, &[]).unwrap();
    client.does(ZEROES, 0, 0, 0, &[]).unwrap();
    client.end().unwrap();
    let mut expected = vec![0; SIZE as usize];
    expected[1000..6000].fill(7);
    expected[1001..1101].fill(0);
    expected[1201..1301].fill(0);
    expected[4096..4608].fill(0);
    expected[SIZE as usize - 3..].copy_from_slice(b"end");
    assert!(fs::read(file.path()).unwrap() == expected);
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let file = image();
    let mut client = Client::of(file.path(), Behaviour::default());
    for kind in [READ, TRIM, ZEROES] {
        assert_eq!(client.does(kind, 0, SIZE - 1, 2, &[]), Err(EINVAL));
        assert_eq!(client.does(kind, 0, u64::MAX, 2, &[]), Err(EINVAL));
    }
    assert_eq!(client.write(SIZE, &[1]), Err(EINVAL));
    assert_eq!(client.does(READ, 0, 0, (32 << 20) + 1, &[]), Err(EINVAL));
    assert_eq!(client.does(99, 0, 0, 0, &[]), Err(EINVAL));
    client.end().unwrap();

    let (mut stream, server) = connect(file.path(), true, Behaviour::default());
    greet(&mut stream, 3);
    ask(&mut stream, 1, b"");
    let _ = (number::<8>(&mut stream), number::<2>(&mut stream));
    let mut client = Client { stream, lengths: BTreeMap::new(), requests: 0, server };
    assert_eq!(client.write(0, &[1]), Err(EPERM));
    assert_eq!(client.does(TRIM, 0, 0, 1, &[]), Err(EPERM));
    client.does(FLUSH, 0, 0, 0, &[]).unwrap();
    client.end().unwrap();
    assert_eq!(fs::metadata(file.path()).unwrap().len(), SIZE);
}

#[test]
fn nobody_else_may_serve_a_disk_that_is_written() {
    let file = image();
    let client = Client::of(file.path(), Behaviour::default());
    let complaint = Store::open(file.path(), true, None).err().unwrap().to_string();
    assert!(complaint.contains("another machine"), "{complaint}");
    client.end().unwrap();
    let readers = [(); 2].map(|()| Store::open(file.path(), true, None));
    assert!(readers.iter().all(Result::is_ok));
}

#[test]
fn no_answer_comes_before_its_delay() {
    let file = image();
    let delay = Duration::from_millis(30);
    let mut client = Client::of(file.path(), Behaviour { delay, ..Behaviour::default() });
    let start = Instant::now();
    for n in 0..32 {
        client.send(READ, 0, n * 512, 512, &[]);
    }
    let mut answered: Vec<u64> = (0..32).map(|_| client.reply().0).collect();
    assert!(start.elapsed() >= delay);
    answered.sort();
    assert!(answered.into_iter().eq(0..32));
    client.end().unwrap();
}

#[test]
fn a_disk_of_depth_one_answers_in_turn() {
    let file = image();
    let delay = Duration::from_millis(10);
    let mut client = Client::of(file.path(), Behaviour { delay, depth: NonZeroUsize::new(1), ..Behaviour::default() });
    let start = Instant::now();
    for n in 0..8 {
        client.send(WRITE, 0, 0, 1, &[n]);
    }
    for n in 0..8 {
        assert_eq!(client.reply().0, n);
        assert!(start.elapsed() >= delay * (n as u32 + 1), "{n}");
    }
    assert_eq!(client.does(READ, 0, 0, 1, &[]), Ok(vec![7]));
    client.end().unwrap();
}

#[test]
fn who_says_goodbye_gets_the_answers() {
    let file = image();
    let mut client = Client::of(file.path(), Behaviour { delay: Duration::from_millis(30), ..Behaviour::default() });
    for n in 0..8 {
        client.send(WRITE, 0, n * 4096, 1, &[n as u8 + 1]);
    }
    client.send(DISC, 0, 0, 0, &[]);
    let mut answered: Vec<u64> = (0..8).map(|_| client.reply().0).collect();
    answered.sort();
    assert!(answered.into_iter().eq(0..8));
    client.server.join().unwrap().unwrap();
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    let bytes = fs::read(file.path()).unwrap();
    assert!((0..8).all(|n| bytes[n * 4096] == n as u8 + 1));
}

#[test]
fn what_waits_is_dropped_when_the_client_is_gone() {
    let file = image();
    // Nobody waits for that.
    let mut client = Client::of(file.path(), Behaviour { delay: Duration::from_secs(3600), ..Behaviour::default() });
    client.send(WRITE, 0, 0, 1, &[1]);
    drop(client.stream);
    assert_eq!(client.server.join().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(fs::read(file.path()).unwrap()[0], 0);
}

#[test]
fn faults_are_eio_and_change_nothing() {
    let (file, log) = (image(), NamedTempFile::new().unwrap());
    let errors = ["read:8192-8193", "write:2", "flush:1"].map(|word| word.parse().unwrap()).to_vec();
    let mut client =
        Client::of(file.path(), Behaviour { errors, log: Some(log.path().into()), ..Behaviour::default() });
    client.write(0, &[1; 512]).unwrap();
    assert_eq!(client.write(0, &[2; 512]), Err(EIO));
    client.write(512, &[3; 512]).unwrap();
    assert_eq!(client.does(FLUSH, 0, 0, 0, &[]), Err(EIO));
    client.does(FLUSH, 0, 0, 0, &[]).unwrap();
    assert_eq!(client.does(READ, 0, 0, 8193, &[]), Err(EIO));
    assert_eq!(client.does(READ, 0, 511, 2, &[]), Ok(vec![1, 3]));
    assert_eq!(client.does(READ, 0, 8193, 1, &[]), Ok(vec![0]));
    client.end().unwrap();
    let mut reader = Reader::open(log.path()).unwrap();
    let kinds: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).map(|entry| (entry.kind, entry.offset)).collect();
    assert_eq!(kinds, [(Kind::Write, 0), (Kind::Write, 512), (Kind::Flush, 0)]);
}

#[test]
fn the_log_has_every_change_and_when_it_came() {
    let (file, log) = (image(), NamedTempFile::new().unwrap());
    let behaviour = Behaviour {
        delay: Duration::from_millis(1),
        depth: NonZeroUsize::new(1),
        log: Some(log.path().into()),
        ..Behaviour::default()
    };
    let mut client = Client::of(file.path(), behaviour);
    client.does(WRITE, FUA, 5, 3, b"abc").unwrap();
    client.send(ZEROES, 0, 6, 1, &[]);
    client.send(TRIM, 0, 4096, 4096, &[]);
    client.reply();
    client.reply();
    client.does(FLUSH, 0, 0, 0, &[]).unwrap();
    client.end().unwrap();
    let mut reader = Reader::open(log.path()).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        entries.push((entry.kind, entry.durable, entry.offset, entry.length, entry.came, reader.data().unwrap()));
    }
    // Whether the trim came before the write of zeroes was answered is the threads' matter.
    assert!([1, 2].contains(&entries[2].4));
    entries[2].4 = 1;
    assert_eq!(
        entries,
        [
            (Kind::Write, true, 5, 3, 0, b"abc".to_vec()),
            (Kind::WriteZeroes, false, 6, 1, 1, Vec::new()),
            (Kind::Trim, false, 4096, 4096, 1, Vec::new()),
            (Kind::Flush, false, 0, 0, 3, Vec::new()),
        ]
    );
    // The file is what the log makes of an empty disk.
    let replayed = image();
    replayed.as_file().write_all_at(b"a\0c", 5).unwrap();
    assert!(fs::read(file.path()).unwrap() == fs::read(replayed.path()).unwrap());
}

#[test]
fn a_server_ends_also_without_a_client() {
    let (file, directory) = (image(), tempfile::tempdir().unwrap());
    let disk = crate::cli::Disk {
        file: file.path().into(),
        read_only: false,
        serial: String::new(),
        size: None,
        behaviour: Some(Behaviour::default()),
    };
    let socket = directory.path().join("disk0");
    drop(Server::start(&disk, &Behaviour::default(), &socket).unwrap());
    assert!(Server::start(&disk, &Behaviour::default(), &socket).is_err(), "the name is taken");
    assert!(Store::open(file.path(), false, None).is_ok(), "the disk is free");
}
