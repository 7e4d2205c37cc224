//! Plain values of the Linux ABI that several services share and that messages between kernels carry:
//! file attributes, open flags, path operations, signals, CPU sets. No behaviour beyond their own rules.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod capabilities;
mod cpuset;
mod file;
mod lock;
mod owner;
mod path;
pub mod signal;
mod xattr;

pub use attributes::{Attributes, Caller, Credentials, Kind, SetAttributes, Timestamp};
pub use capabilities::{capability, secure, Capabilities, CapabilitySet};
pub use cpuset::CpuSet;
pub use file::{DirEntry, Events, FileAdvice, FileRef, ObjectId, OpenFlags, ReadAhead, SyncRange, Whence};
pub use lock::{LockConflict, LockMode, LockOp, LockRange, RecordLock};
pub use owner::{FileOwner, OwnerChange, OwnerKind};
pub use path::{FileSystemInfo, PathOp};
pub use xattr::{SetWhen, XattrOp};

/// The Linux release whose interface this is.
pub const RELEASE: &str = "6.1.0-cob";
pub const VERSION: &str = concat!("#1 SMP Cob ", env!("CARGO_PKG_VERSION"));
