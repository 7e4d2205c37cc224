//! The messages of both directions. The kinds are part of the wire format; a new message takes a new number.

use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::Message;
use crate::LinkError;

/// Where the program's output goes on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Stdout = 0,
    Stderr = 1,
    /// The terminal, whichever descriptor it is: everything that goes through the guest's tty, echo included.
    Tty = 2,
}

impl Output {
    pub const ALL: [Output; 3] = [Output::Stdout, Output::Stderr, Output::Tty];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|output| *output as u8 == byte)
    }
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Exited(u8),
    Signaled(u8),
}

impl ExitStatus {
    /// The status a shell would show.
    pub fn shell_status(self) -> u8 {
        match self {
            ExitStatus::Exited(status) => status,
            ExitStatus::Signaled(signal) => 128u8.wrapping_add(signal),
        }
    }
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest {
    /// A part of the [`crate::Config`]; environments can be longer than a frame.
    Config {
        last: bool,
        part: Vec<u8>,
    },
    /// Only within the credit the guest gave.
    Stdin(Vec<u8>),
    StdinEof,
    /// A Linux signal number, for the foreground process group (or the first process where there is no tty).
    Signal(u8),
    /// The terminal's new size.
    Resize {
        rows: u16,
        cols: u16,
    },
    /// Stream data was written out: so much of the charge is free again.
    Credit {
        output: Output,
        amount: u32,
    },
    /// The host's descriptor is gone: further writes get EPIPE and SIGPIPE, as at home.
    Closed(Output),
    /// Somebody wants to know what the kernels do: a Report answers.
    Inspect,
    /// A viewer (`cob top`) wants /proc/cob/activity: an Activity answers.
    Activity,
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost {
    /// The machine is up and has its whole Config; the program is about to run.
    Ready,
    Data(Output, Vec<u8>),
    /// A part of the text for `--stats`, in order.
    Stats(String),
    Exit(ExitStatus),
    /// The program could not be started: the errno of execve or of the mount, and what failed.
    CannotRun {
        errno: u16,
        what: String,
    },
    /// The guest can take so much more charge of stdin. It starts with none: a program that never reads its
    /// stdin must not eat it, exactly as at home.
    Credit(u32),
    /// A kernel died in a way that ends the machine.
    Panic(String),
    /// Once a second: the primary makes progress. The next beat is this CPU's.
    Beat {
        next: u32,
    },
    /// What each kernel does, a line each. It was asked for by Inspect, or at the terminal.
    Report(String),
    /// The text of /proc/cob/activity, or as much as fits.
    Activity(String),
}

mod kind {
    pub const CONFIG: u8 = 0x01;
    pub const STDIN: u8 = 0x02;
    pub const STDIN_EOF: u8 = 0x03;
    pub const SIGNAL: u8 = 0x04;
    pub const RESIZE: u8 = 0x05;
    pub const OUTPUT_CREDIT: u8 = 0x06;
    pub const CLOSED: u8 = 0x07;
    pub const INSPECT: u8 = 0x08;
    pub const ASK_ACTIVITY: u8 = 0x09;

    pub const READY: u8 = 0x80;
    /// 0x81 stdout, 0x82 stderr, 0x83 tty.
    pub const DATA: u8 = 0x81;
    pub const STATS: u8 = 0x85;
    pub const EXIT: u8 = 0x86;
    pub const CANNOT_RUN: u8 = 0x87;
    pub const STDIN_CREDIT: u8 = 0x88;
    pub const PANIC: u8 = 0x89;
    pub const BEAT: u8 = 0x8a;
    pub const REPORT: u8 = 0x8b;
    pub const ACTIVITY: u8 = 0x8c;
}

impl Message for ToGuest {
    fn kind(&self) -> u8 {
        match self {
            ToGuest::Config { .. } => kind::CONFIG,
            ToGuest::Stdin(_) => kind::STDIN,
            ToGuest::StdinEof => kind::STDIN_EOF,
            ToGuest::Signal(_) => kind::SIGNAL,
            ToGuest::Resize { .. } => kind::RESIZE,
            ToGuest::Credit { .. } => kind::OUTPUT_CREDIT,
            ToGuest::Closed(_) => kind::CLOSED,
            ToGuest::Inspect => kind::INSPECT,
            ToGuest::Activity => kind::ASK_ACTIVITY,
        }
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            ToGuest::Config { last, part } => {
                out.push(*last as u8);
                out.extend_from_slice(part);
            }
            ToGuest::Stdin(bytes) => out.extend_from_slice(bytes),
            ToGuest::StdinEof | ToGuest::Inspect | ToGuest::Activity => {}
            ToGuest::Signal(number) => out.push(*number),
            ToGuest::Resize { rows, cols } => {
                out.extend_from_slice(&rows.to_le_bytes());
                out.extend_from_slice(&cols.to_le_bytes());
            }
            ToGuest::Credit { output, amount } => {
                out.push(*output as u8);
                out.extend_from_slice(&amount.to_le_bytes());
            }
            ToGuest::Closed(output) => out.push(*output as u8),
        }
    }

    fn from_frame(kind: u8, payload: &[u8]) -> Result<Self, LinkError> {
        let output = |byte: u8| Output::from_byte(byte).ok_or(LinkError::Malformed(kind));
        match (kind, payload) {
            (kind::CONFIG, [last @ (0 | 1), part @ ..]) => {
                Ok(ToGuest::Config { last: *last == 1, part: part.to_vec() })
            }
            (kind::STDIN, bytes) => Ok(ToGuest::Stdin(bytes.to_vec())),
            (kind::STDIN_EOF, []) => Ok(ToGuest::StdinEof),
            (kind::SIGNAL, [number @ 1..=64]) => Ok(ToGuest::Signal(*number)),
            (kind::RESIZE, [r0, r1, c0, c1]) => {
                Ok(ToGuest::Resize { rows: u16::from_le_bytes([*r0, *r1]), cols: u16::from_le_bytes([*c0, *c1]) })
            }
            (kind::OUTPUT_CREDIT, [which, a, b, c, d]) => {
                Ok(ToGuest::Credit { output: output(*which)?, amount: u32::from_le_bytes([*a, *b, *c, *d]) })
            }
            (kind::CLOSED, [which]) => Ok(ToGuest::Closed(output(*which)?)),
            (kind::INSPECT, []) => Ok(ToGuest::Inspect),
            (kind::ASK_ACTIVITY, []) => Ok(ToGuest::Activity),
            (kind::CONFIG | kind::STDIN_EOF..=kind::ASK_ACTIVITY, _) => Err(LinkError::Malformed(kind)),
            _ => Err(LinkError::UnknownKind(kind)),
        }
    }
}

impl Message for ToHost {
    fn kind(&self) -> u8 {
        match self {
            ToHost::Ready => kind::READY,
            ToHost::Data(output, _) => kind::DATA + *output as u8,
            ToHost::Stats(_) => kind::STATS,
            ToHost::Exit(_) => kind::EXIT,
            ToHost::CannotRun { .. } => kind::CANNOT_RUN,
            ToHost::Credit(_) => kind::STDIN_CREDIT,
            ToHost::Panic(_) => kind::PANIC,
            ToHost::Beat { .. } => kind::BEAT,
            ToHost::Report(_) => kind::REPORT,
            ToHost::Activity(_) => kind::ACTIVITY,
        }
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            ToHost::Ready => {}
            ToHost::Data(_, bytes) => out.extend_from_slice(bytes),
            ToHost::Beat { next } => out.extend_from_slice(&next.to_le_bytes()),
            ToHost::Stats(text) | ToHost::Panic(text) | ToHost::Report(text) | ToHost::Activity(text) => {
                out.extend_from_slice(text.as_bytes())
            }
            ToHost::Exit(ExitStatus::Exited(status)) => out.extend_from_slice(&[0, *status]),
            ToHost::Exit(ExitStatus::Signaled(signal)) => out.extend_from_slice(&[1, *signal]),
            ToHost::CannotRun { errno, what } => {
                out.extend_from_slice(&errno.to_le_bytes());
                out.extend_from_slice(what.as_bytes());
            }
            ToHost::Credit(amount) => out.extend_from_slice(&amount.to_le_bytes()),
        }
    }

    fn from_frame(kind: u8, payload: &[u8]) -> Result<Self, LinkError> {
        // The texts are for a person to read: a broken byte in one is no reason to give up the run.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if let Some(output) = kind.checked_sub(kind::DATA).and_then(Output::from_byte) {
            return Ok(ToHost::Data(output, payload.to_vec()));
        }
        match (kind, payload) {
            (kind::READY, []) => Ok(ToHost::Ready),
            (kind::STATS, bytes) => Ok(ToHost::Stats(text(bytes))),
            (kind::EXIT, [0, status]) => Ok(ToHost::Exit(ExitStatus::Exited(*status))),
            (kind::EXIT, [1, signal @ 1..=64]) => Ok(ToHost::Exit(ExitStatus::Signaled(*signal))),
            (kind::CANNOT_RUN, [e0, e1, what @ ..]) => {
                Ok(ToHost::CannotRun { errno: u16::from_le_bytes([*e0, *e1]), what: text(what) })
            }
            (kind::STDIN_CREDIT, [a, b, c, d]) => Ok(ToHost::Credit(u32::from_le_bytes([*a, *b, *c, *d]))),
            (kind::PANIC, bytes) => Ok(ToHost::Panic(text(bytes))),
            (kind::BEAT, [a, b, c, d]) => Ok(ToHost::Beat { next: u32::from_le_bytes([*a, *b, *c, *d]) }),
            (kind::REPORT, bytes) => Ok(ToHost::Report(text(bytes))),
            (kind::ACTIVITY, bytes) => Ok(ToHost::Activity(text(bytes))),
            (kind::READY | kind::EXIT | kind::CANNOT_RUN | kind::STDIN_CREDIT | kind::BEAT, _) => {
                Err(LinkError::Malformed(kind))
            }
            _ => Err(LinkError::UnknownKind(kind)),
        }
    }
}
