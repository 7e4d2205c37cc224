//! Replicas: what a kernel knows of a process that is at home on another.

use super::{ExitStatus, PendingSet, Shared, StopState};
use crate::descriptor::TableId;
use abi::signal::SignalSet;
use alloc::borrow::Cow;
use machine::{KernelId, Pid, SpaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The thread that an execve leaves. All others end, also those on their way between kernels, unless they were made later than `at`
/// (ns of the clock that all kernels share).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// The thread that called execve.
    pub thread: Pid,
    /// When execve began.
    pub at: u64,
}

/// What a kernel needs to hold a replica of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// What its threads share, as of now; further changes follow.
    pub shared: Shared,
    /// Its address space.
    pub space: SpaceId,
    /// Whether that is its parent's (vfork).
    pub in_parents_space: bool,
    /// Its descriptor table.
    pub files: TableId,
    /// The process is ending, with this status; None: it is not.
    pub ending: Option<ExitStatus>,
    /// A thread is in execve, and the others end.
    pub survivor: Option<Survivor>,
    /// Whether it is stopped.
    pub stop_state: StopState,
    /// Signals for the process that wait.
    pub pending: PendingSet,
}

/// The numbers of a [`Replica`], as they travel: see those of a thread.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Numbers {
    space: u64,
    files: u64,
    order: u64,
    continues: u64,
    pending: u64,
    version: u64,
    space_home: u16,
    files_home: u16,
    in_parents_space: u16,
    stopped: u16,
}

/// The wire form of a [`Replica`].
#[derive(Serialize, Deserialize)]
struct Travelling<'a> {
    #[serde(with = "machine::plain")]
    numbers: Numbers,
    shared: Cow<'a, Shared>,
    ending: Option<ExitStatus>,
    survivor: Option<Survivor>,
}

impl Serialize for Replica {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Replica { space, files, stop_state, pending, .. } = self;
        let numbers = Numbers {
            space: space.serial,
            files: files.serial,
            order: stop_state.order,
            continues: stop_state.continues,
            pending: pending.set.0,
            version: pending.version,
            space_home: space.home.0,
            files_home: files.home.0,
            in_parents_space: self.in_parents_space.into(),
            stopped: stop_state.stopped.into(),
        };
        let (shared, ending, survivor) = (Cow::Borrowed(&self.shared), self.ending, self.survivor);
        Travelling { numbers, shared, ending, survivor }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Replica {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Travelling { numbers, shared, ending, survivor } = Deserialize::deserialize(from)?;
        let Numbers { order, continues, version, .. } = numbers;
        Ok(Replica {
            shared: shared.into_owned(),
            space: SpaceId { home: KernelId(numbers.space_home), serial: numbers.space },
            in_parents_space: numbers.in_parents_space != 0,
            files: TableId { home: KernelId(numbers.files_home), serial: numbers.files },
            ending,
            survivor,
            stop_state: StopState { stopped: numbers.stopped != 0, order, continues },
            pending: PendingSet { set: SignalSet(numbers.pending), version },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::RESOURCES;

    #[test]
    fn all_of_a_replica_travels() {
        let shared = Shared::first([(1, 2); RESOURCES], b"/bin/true".into());
        let plain = Replica {
            shared,
            space: SpaceId { home: KernelId(1), serial: 2 },
            in_parents_space: false,
            files: TableId { home: KernelId(3), serial: 4 },
            ending: None,
            survivor: None,
            stop_state: StopState::default(),
            pending: PendingSet::default(),
        };
        let full = Replica {
            in_parents_space: true,
            ending: Some(ExitStatus::Code(5)),
            survivor: Some(Survivor { thread: Pid(6), at: 7 }),
            stop_state: StopState { stopped: true, order: 8, continues: 9 },
            pending: PendingSet { set: SignalSet(u64::MAX), version: 10 },
            ..plain.clone()
        };
        for replica in [plain, full] {
            let bytes = postcard::to_allocvec(&replica).unwrap();
            assert_eq!(postcard::from_bytes::<Replica>(&bytes).unwrap(), replica);
        }
    }
}
