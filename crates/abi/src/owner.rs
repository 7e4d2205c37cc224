//! Whom an open file description tells that it is ready (man 2 fcntl, "Managing signals").

use crate::signal::Signal;
use machine::Pid;
use serde::{Deserialize, Serialize};

/// `f_owner_ex.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerKind {
    #[default]
    Thread = 0,
    Process = 1,
    Group = 2,
}

/// The owner of a description: what F_GETOWN_EX, F_GETOWNER_UIDS and F_GETSIG tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    pub kind: OwnerKind,
    /// None: nobody is told.
    pub id: Option<Pid>,
    /// Of who has made it the owner: they decide whether the owner may be signalled.
    pub uid: u32,
    pub euid: u32,
    /// None: SIGIO, which says nothing about the file.
    pub signal: Option<Signal>,
}

/// What a system call changes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerChange {
    /// Nothing.
    Ask,
    /// F_SETOWN_EX by who has these ids.
    Owner { kind: OwnerKind, id: Option<Pid>, uid: u32, euid: u32 },
    /// F_SETSIG.
    Signal(Option<Signal>),
    /// O_ASYNC is set, by this descriptor. ENOTTY: the file never tells anybody.
    Begin(i32),
    /// O_ASYNC is taken away.
    End,
}
