//! The server's side of the NBD protocol: the fixed newstyle handshake, one export without a name, simple replies
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>). All numbers are big endian.

use std::io::{self, ErrorKind, Read, Write};

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x3_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// In the handshake; server and client use the same bits.
mod handshake {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// What the client may ask for before it uses an export.
mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
}

mod option_reply {
    pub const ACK: u32 = 1;
    pub const INFO: u32 = 3;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
}

mod info {
    pub const EXPORT: u16 = 0;
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
mod transmission {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
}

mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;

    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
}

/// The errors of replies. There is no "no space": QEMU would stop the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
}

/// The longest read, and the longest data of a write: what a client must expect who has not asked (proto.md, "Block sizes").
pub const MOST_BYTES: u32 = 32 << 20;
/// An option with more data than any client needs: the longest name has 4096 bytes.
const MOST_OPTION_BYTES: u32 = 16 << 10;
const PREFERRED_BLOCK: u32 = 4096;

/// What a client is told of the disk.
#[derive(Debug, Clone, Copy)]
pub struct Export {
    pub size: u64,
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    /// `durable`: the data is on stable storage before the answer (FUA); so in the next ones.
    Write {
        durable: bool,
    },
    /// `allocate`: the host keeps the space of what is zeroed.
    WriteZeroes {
        durable: bool,
        allocate: bool,
    },
    Trim {
        durable: bool,
    },
    Flush,
}

#[derive(Debug)]
pub struct Request {
    /// The client's name for it; the reply repeats it.
    pub cookie: u64,
    /// What to do, or why it can't be done.
    pub op: Result<Op, Error>,
    pub offset: u64,
    pub length: u32,
    /// Of a write.
    pub data: Vec<u8>,
}

impl Export {
    fn flags(&self) -> u16 {
        use transmission::*;
        let changes = if self.read_only { READ_ONLY } else { SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES };
        HAS_FLAGS | SEND_FLUSH | changes
    }

    fn op(&self, kind: u16, flags: u16, offset: u64, length: u32) -> Result<Op, Error> {
        let durable = flags & command::FUA != 0;
        let op = match kind {
            command::READ if length > MOST_BYTES => return Err(Error::Invalid),
            command::READ => Op::Read,
            command::WRITE => Op::Write { durable },
            command::WRITE_ZEROES => Op::WriteZeroes { durable, allocate: flags & command::NO_HOLE != 0 },
            command::TRIM => Op::Trim { durable },
            command::FLUSH => return Ok(Op::Flush),
            _ => return Err(Error::Invalid),
        };
        match offset.checked_add(u64::from(length)) {
            Some(end) if end <= self.size => (),
            _ => return Err(Error::Invalid),
        }
        match op {
            Op::Read => Ok(op),
            _ if self.read_only => Err(Error::NotPermitted),
            _ => Ok(op),
        }
    }
}

/// The handshake. False: the client does not want the disk.
///
/// # Errors
///
/// The stream broke, or the client does not speak this protocol.
pub fn negotiate(stream: &mut (impl Read + Write), export: &Export) -> io::Result<bool> {
    let ours = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    stream.write_all(&[&GREETING[..], &ours.to_be_bytes()].concat())?;
    let flags = u32::from_be_bytes(array(stream)?);
    if flags & !u32::from(ours) != 0 {
        return Err(nonsense("flags that are not known"));
    }
    loop {
        if &array(stream)? != OPTION_MAGIC {
            return Err(nonsense("no option"));
        }
        let option = u32::from_be_bytes(array(stream)?);
        let length = u32::from_be_bytes(array(stream)?);
        if length > MOST_OPTION_BYTES {
            return Err(nonsense("an option that is too long"));
        }
        let data = bytes(stream, length)?;
        match option {
            option::EXPORT_NAME if data.is_empty() => {
                let mut answer = [&export.size.to_be_bytes()[..], &export.flags().to_be_bytes()].concat();
                if flags & u32::from(handshake::NO_ZEROES) == 0 {
                    answer.extend([0; 124]);
                }
                stream.write_all(&answer)?;
                return Ok(true);
            }
            // This option has no reply that says so.
            option::EXPORT_NAME => return Ok(false),
            option::ABORT => {
                answer(stream, option, option_reply::ACK, &[])?;
                return Ok(false);
            }
            option::INFO | option::GO => {
                let refused = match wanted(&data) {
                    None => option_reply::ERR_INVALID,
                    Some((name, _)) if !name.is_empty() => option_reply::ERR_UNKNOWN,
                    Some((_, wanted)) => {
                        describe(stream, option, export, &wanted)?;
                        if option == option::GO {
                            return Ok(true);
                        }
                        continue;
                    }
                };
                answer(stream, option, refused, &[])?;
            }
            _ => answer(stream, option, option_reply::ERR_UNSUP, &[])?,
        }
    }
}

/// The name of the export and the kinds of information in INFO and GO.
fn wanted(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (length, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk()?;
    let (kinds, odd) = rest.as_chunks();
    let kinds: Vec<u16> = kinds.iter().map(|kind| u16::from_be_bytes(*kind)).collect();
    (odd.is_empty() && kinds.len() == usize::from(u16::from_be_bytes(*count))).then_some((name, kinds))
}

fn describe(stream: &mut impl Write, option: u32, export: &Export, wanted: &[u16]) -> io::Result<()> {
    let text = [&info::EXPORT.to_be_bytes()[..], &export.size.to_be_bytes(), &export.flags().to_be_bytes()].concat();
    answer(stream, option, option_reply::INFO, &text)?;
    if wanted.contains(&info::BLOCK_SIZE) {
        let sizes = [1, PREFERRED_BLOCK, MOST_BYTES].map(u32::to_be_bytes);
        let text = [&info::BLOCK_SIZE.to_be_bytes()[..], sizes.as_flattened()].concat();
        answer(stream, option, option_reply::INFO, &text)?;
    }
    answer(stream, option, option_reply::ACK, &[])
}

fn answer(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let words = [option, kind, data.len() as u32].map(u32::to_be_bytes);
    stream.write_all(&[&OPTION_REPLY_MAGIC.to_be_bytes()[..], words.as_flattened(), data].concat())
}

/// The next request; None when the client says that it needs no more answers.
///
/// # Errors
///
/// The client is gone (UnexpectedEof), or sends what is no request.
pub fn receive(stream: &mut impl Read, export: &Export) -> io::Result<Option<Request>> {
    if u32::from_be_bytes(array(stream)?) != REQUEST_MAGIC {
        return Err(nonsense("no request"));
    }
    let flags = u16::from_be_bytes(array(stream)?);
    let kind = u16::from_be_bytes(array(stream)?);
    let cookie = u64::from_be_bytes(array(stream)?);
    let offset = u64::from_be_bytes(array(stream)?);
    let length = u32::from_be_bytes(array(stream)?);
    let data = match kind {
        command::DISC => return Ok(None),
        command::WRITE if length > MOST_BYTES => return Err(nonsense("a write that is too long")),
        command::WRITE => bytes(stream, length)?,
        _ => Vec::new(),
    };
    Ok(Some(Request { cookie, op: export.op(kind, flags, offset, length), offset, length, data }))
}

/// The reply to a request: its data (of a read) or an error.
pub fn reply(cookie: u64, result: Result<&[u8], Error>) -> Vec<u8> {
    let error = result.err().map_or(0, |error| error as u32);
    let words = [REPLY_MAGIC, error].map(u32::to_be_bytes);
    [words.as_flattened(), &cookie.to_be_bytes(), result.unwrap_or_default()].concat()
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the NBD client sends {what}"))
}

fn array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    stream.read_exact(&mut array)?;
    Ok(array)
}

fn bytes(stream: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
