//! Static trace points: what a kernel can say about itself while it runs, and how it is kept until the host has read it.
//!
//! The table in points.rs says what can be recorded. Each row is a function, [`sched_switch`] for example, which the code at that place calls. While
//! the point is off, the call is one instruction that does nothing (enabled.rs). While it is on, it jumps to the code that packs the fields, and [`Sink::record`] gets the fields, adds the time, and
//! puts both into the [`Ring`] of its CPU. The platform makes the rings from the kernel's own memory and tells the host where they lie; the host reads them while the
//! machine runs, and after a kernel has died. Nothing of this costs a message.
//!
//! | file | subject |
//! |---|---|
//! | points.rs | the table of points |
//! | enabled.rs | which of them are on |
//! | pack.rs | fields in words of 64 bits, and back |
//! | position.rs | where in its program the thread of a CPU is, for samples |
//! | ring.rs | the ring of one CPU, for its one writer and its one reader |
//! | select.rs | which points a list of names means |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

mod enabled;
mod pack;
mod points;
mod position;
mod ring;
mod select;
#[cfg(test)]
mod tests;

pub use pack::{unpack, words_of, Packer, Value, MOST_TEXT, MOST_WORDS};
pub use points::*;
pub use position::UserPosition;
pub use ring::{
    Directory, Header, Layout, Reader, Ring, RingMemory, ASKED_PHYS, DIRECTORIES_PHYS, RING_HEADER_WORDS, SAMPLES,
};
pub use select::{select, UnknownEvent};

use spin::Once;

/// What a field of a point means, and with it how the host shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// An address or a mask, shown in hexadecimal.
    Hex,
    /// A signed number.
    Signed,
    /// A thread id; [`IDLE`] and [`KERNEL_WORK`] are no threads.
    Tid,
    /// The id of the thread for which something is done; 0: the kernel does it for itself.
    For,
    /// A kernel.
    Kernel,
    /// A CPU of the machine.
    Cpu,
    /// A state as Linux numbers them: 0 runnable, 1 waits (interruptible), 2 waits (uninterruptible), 4 stopped, 16 ended.
    State,
    /// The number of a system call.
    Syscall,
    /// A disk or partition: major << 20 | minor.
    Device,
    /// What a request of a disk does, in Linux's bits: [`operation`].
    Operation,
    /// A kind of message, by its number in docs/messages.md.
    Message,
    /// What a message is: see docs/trace.md.
    Role,
    /// Bytes, until the end of the record.
    Text,
}

/// A field of a point.
#[derive(Debug)]
pub struct Field {
    /// As LTTng calls it, where LTTng has such a field.
    pub name: &'static str,
    /// Its size in a record: 8, 16, 32 or 64 bits; 0: [`Kind::Text`].
    pub bits: u32,
    /// What it means.
    pub kind: Kind,
}

/// A row of the table.
#[derive(Debug)]
pub struct PointInfo {
    /// The point.
    pub point: Point,
    /// As LTTng calls it, where LTTng has such an event.
    pub name: &'static str,
    /// The group that it is switched on with.
    pub group: Group,
    /// When it is recorded.
    pub about: &'static str,
    /// What is recorded.
    pub fields: &'static [Field],
}

/// Bits of [`Kind::Operation`], as LTTng numbers them (`rwbs`).
pub mod operation {
    /// Blocks are written.
    pub const WRITE: u16 = 1 << 0;
    /// Blocks are given up.
    pub const DISCARD: u16 = 1 << 1;
    /// Blocks are read.
    pub const READ: u16 = 1 << 2;
    /// What was written before becomes durable.
    pub const FLUSH: u16 = 1 << 8;
}

/// The thread id of a CPU that has nothing to do.
pub const IDLE: u32 = 0;
/// The thread id of work that a kernel does for itself.
pub const KERNEL_WORK: u32 = u32::MAX;

/// Where recorded events go: one for a kernel, or for a program of the host.
pub trait Sink: Send + Sync {
    /// The present CPU records `point`, with these fields, packed.
    fn record(&self, point: Point, words: &[u64]);
    /// Other points are [`enabled`] than before: has the code follow them, where it does not look at the words.
    fn points_changed(&self) {}
    /// Where samples of the present CPU find the thread that it works for; None: it takes none.
    fn position(&self) -> Option<&UserPosition> {
        None
    }
}

static SINK: Once<&'static dyn Sink> = Once::new();

/// The points that are recorded: bit N is point N.
pub fn enabled() -> u64 {
    enabled::get()
}

/// Records exactly these points from now on; false if this kernel has no [`Sink`], and records nothing. On the host: what this thread does is recorded.
pub fn enable(points: u64) -> bool {
    let sink = SINK.get();
    enabled::set(if sink.is_some() { points } else { 0 });
    sink.inspect(|sink| sink.points_changed()).is_some()
}

/// [`enable`] while the kernel runs: the trace says so, for what comes before is another recording than what comes after.
pub fn change(points: u64) -> bool {
    if enabled() == points {
        return SINK.get().is_some();
    }
    let changed = enable(points);
    let mut packer = <Packer>::default();
    packer.put(enabled(), 64);
    record(Point::Recording, packer.words());
    changed
}

/// Events go to `sink`. Once for each kernel; later calls change nothing.
pub fn set_sink(sink: &'static dyn Sink) {
    SINK.call_once(|| sink);
}

/// Where samples of the present CPU find the thread that it works for. Whoever changes what that is says it there, while [`Point::Sample`] is on.
#[cold]
pub fn position() -> Option<&'static UserPosition> {
    SINK.get().and_then(|sink| sink.position())
}

#[cold]
#[inline(never)]
pub(crate) fn record(point: Point, words: &[u64]) {
    if let Some(sink) = SINK.get() {
        sink.record(point, words);
    }
}
