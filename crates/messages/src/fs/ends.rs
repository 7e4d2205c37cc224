//! What the two ends of a connection between kernels tell each other, and what one takes along that moves to another kernel.

use super::{InternetEnds, SocketMessage, SocketSettings, UnixCredentials};
use abi::{Attributes, OpenFlags};
use alloc::vec::Vec;
use machine::{Errno, KernelId};
use serde::{Deserialize, Serialize};

/// How much the other end of a connection may send, in bytes since the connection began; each message counts for some more than it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketCredit {
    /// So much of what it has sent programs have received.
    pub taken: u64,
    /// So much it may have sent in all.
    pub granted: u64,
}

/// What one end of a connection tells the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketChange {
    /// Nothing more comes.
    pub read_shut: bool,
    /// Nothing more is received.
    pub write_shut: bool,
    /// The end is closed: nobody answers any more.
    pub closed: bool,
    /// What the next call is told.
    pub error: Option<Errno>,
    /// bind(2): a new `sun_path`.
    pub name: Option<Vec<u8>>,
}

impl SocketChange {
    /// The end is closed, and something was lost.
    pub fn reset() -> Self {
        SocketChange {
            read_shut: true,
            write_shut: true,
            closed: true,
            error: Some(Errno::ECONNRESET),
            ..SocketChange::default()
        }
    }
}

/// The end of a new connection that the listener's kernel has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketAttached {
    /// Its number there.
    pub end: u64,
    /// `sun_path` of the listener.
    pub name: Vec<u8>,
    /// Who listens, for SO_PEERCRED.
    pub credentials: Option<UnixCredentials>,
    /// The groups of who listens, for SO_PEERGROUPS.
    pub groups: Vec<u32>,
}

/// What the file of a connection's end takes along if that moves with the only program that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedFile {
    /// What fstat(2) says.
    pub attributes: Attributes,
    /// F_GETFL.
    pub flags: OpenFlags,
    /// SO_ERROR.
    pub error: Option<Errno>,
    /// SO_PASSCRED.
    pub wants_credentials: bool,
    /// A connect(2) that did not wait has succeeded, and no further one has told so.
    pub untold: bool,
}

/// How far a connection has come as one of its ends knows, counted as in [`SocketCredit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndProgress {
    /// So much the other end may have sent in all.
    pub granted: u64,
    /// So much it has sent.
    pub arrived: u64,
    /// It waits for so much room; 0: it does not.
    pub awaited: u64,
    /// So much this end has sent.
    pub sent: u64,
    /// So much it may have sent.
    pub credit: SocketCredit,
}

/// What an end of a connection takes along when it moves to another kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndState {
    /// The kernel of the other end, and its number there.
    pub other: (KernelId, u64),
    /// `sun_path` of the end that moves, and of the other end.
    pub names: [Vec<u8>; 2],
    /// Of a connection by TCP.
    pub ends: Option<InternetEnds>,
    /// SO_PEERCRED.
    pub credentials: Option<UnixCredentials>,
    /// SO_PEERGROUPS.
    pub groups: Vec<u32>,
    /// Options that programs have set.
    pub settings: SocketSettings,
    /// The other side sends nothing more.
    pub read_shut: bool,
    /// The other side receives nothing more.
    pub write_shut: bool,
    /// How far the connection has come.
    pub progress: EndProgress,
    /// None: it was accepted, and no program has had it.
    pub file: Option<MovedFile>,
}

/// An end of a connection that moves to another kernel: it was accepted there, or the only program that has it has gone there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MovedEnd<F> {
    /// All that is no file.
    pub state: EndState,
    /// What was sent to it and nobody has received.
    pub unread: Vec<SocketMessage<F>>,
    /// What keeps the port of TCP.
    pub port: Option<F>,
}
