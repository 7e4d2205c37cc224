//! What an owner answers to a fault.

use super::{Owners, RegionKind, Runs};
use machine::PageRange;
use serde::{Deserialize, Serialize};

/// The reply to a [`FaultRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReply {
    /// What became of the fault.
    pub answer: FaultAnswer,
    /// How many of the offered frames, from the front of the list, the owner has kept.
    pub adopted: u16,
}

/// What an owner answers to a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultAnswer {
    /// Mappings to install, the requested page among them.
    Mapped(Runs),
    /// The thread gets a signal, or the memory is used up.
    Failed(Fault),
    /// Nobody has touched these pages yet: they are handed over to the asking kernel, which confirms with `TakenOver`.
    Yours(Stretch),
    /// The asked kernel does not own the page; this is who does.
    Moved(Owners),
}

/// Why a fault can't be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Nothing is mapped there: SIGSEGV, SEGV_MAPERR.
    NotMapped,
    /// Mapped, but not for this access: SIGSEGV, SEGV_ACCERR.
    Denied,
    /// Past the end of the mapped file, or it can't be read: SIGBUS, BUS_ADRERR.
    PastEnd,
    /// No frame is left.
    NoMemory,
}

/// Pages that nobody has touched, handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The pages.
    pub range: PageRange,
    /// Protection and flags of the region they are of.
    pub kind: RegionKind,
}
