//! The link: how the host command `cob` and the machine it started talk.
//!
//! One virtio console port carries one byte stream each way. On it travel frames: a kind (one byte), the
//! length of the payload (four bytes, little endian) and the payload. This crate holds what both ends must
//! agree on and nothing else: the frames ([`Decoder`], [`Message::encode`]), the messages ([`ToGuest`],
//! [`ToHost`]), the description of the program to run ([`Config`]) and the flow control ([`Window`]).
//! No I/O lives here. The host end is `crates/cob`, the guest end is `crates/dev` and `crates/linux`.
//!
//! The life of a run:
//!
//! ```text
//! host                                   guest
//!   Config (in parts, the last marked) ->
//!                                     <- Ready            the kernels are up, the program starts
//!                                     <- Credit(n)        the program wants stdin
//!   Stdin (at most n of charge)       ->
//!                                     <- Stdout, Stderr, Tty
//!   Credit(channel, n)                ->                  they have been written where they belong
//!   StdinEof                          ->
//!                                     <- Beat             once a second
//!   Inspect                           ->                  at any time
//!                                     <- Report
//!   Activity                          ->                  at any time
//!                                     <- Activity
//!                                     <- Stats            if Config asked for it
//!                                     <- Exit
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod credit;
mod message;
mod wire;

pub use config::{Config, ConfigAssembler, Rlimit, Root, Share, WinSize, MAX_CONFIG, VERSION};
pub use credit::{charge, Window, FRAME_COST, STDIN_WINDOW, STREAM_WINDOW};
pub use message::{ExitStatus, Output, ToGuest, ToHost};
pub use wire::{Decoder, Message, HEADER, MAX_DATA, MAX_PAYLOAD};

/// What can be wrong with the bytes of the other end. All of them mean that the link is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// A kind that this side does not know, or that the other side may not send.
    UnknownKind(u8),
    /// The header announces more than [`MAX_PAYLOAD`] bytes.
    TooLong(u32),
    /// The payload does not fit its kind.
    Malformed(u8),
    /// More credit returned than was ever spent.
    CreditOverflow,
}

impl core::fmt::Display for LinkError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            LinkError::UnknownKind(kind) => write!(f, "unknown frame kind {kind:#x}"),
            LinkError::TooLong(length) => {
                write!(f, "frame of {length} bytes, more than {MAX_PAYLOAD}")
            }
            LinkError::Malformed(kind) => {
                write!(f, "malformed payload in a frame of kind {kind:#x}")
            }
            LinkError::CreditOverflow => write!(f, "more credit returned than was spent"),
        }
    }
}

impl core::error::Error for LinkError {}
