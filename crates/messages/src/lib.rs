//! All messages between kernels, in one place.
//!
//! A subject is a module with one `messages!` block (see define.rs). From the block come the structs with their
//! wire form (serde; `fabric` encodes them with postcard), the [`Request`] impls, the names in traces
//! and counters, and the table in `docs/`. Types that only occur inside messages stand beside the
//! block. Whoever owns the service owns the subject: `vm` fills in vm.rs, and so on.
//!
//! Messages are made of plain values and the types of `machine` and `abi`; a page or more of data travels as
//! the number of a lent frame. Nothing here acts: who answers a message registers with
//! `fabric::Endpoint::on`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

use alloc::string::String;
use core::fmt;
use serde::{de::DeserializeOwned, Serialize};

#[macro_use]
mod define;
pub mod cgroup;
pub mod control;
pub mod descriptor;
pub mod disk;
pub mod fs;
pub mod futex;
pub mod inspect;
pub mod ipc;
pub mod process;
pub mod timer;
pub mod vm;

/// What a message is, on the wire: the base of its subject plus its position in the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageKind(pub u16);

impl fmt::Debug for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match index_of(*self) {
            Some(index) => f.write_str(CATALOGUE[index].name),
            None => write!(f, "kind {:#x}", self.0),
        }
    }
}

/// Which lane of a pair a request takes. Replies always take `High`.
///
/// `High` is for requests whose handler never waits for another kernel, but perhaps for its answer to another `High` one:
/// revocations, installs, notices, and signals for processes, which must not wait behind what the processes ask. They share the
/// lane of the replies, so the two stay in the order they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Never waits behind [`Priority::Low`].
    High = 0,
    /// For everything else: handlers may wait for other kernels.
    Low = 1,
}

impl Priority {
    /// Both, in the order of their [`Priority::index`].
    pub const ALL: [Priority; 2] = [Priority::High, Priority::Low];

    /// For arrays with an entry for each priority.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A message that one kernel sends another. A notice that needs no answer has `Reply = ()`.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What the receiver answers.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The number on the wire.
    const KIND: MessageKind;
    /// The name in counters and traces; no two messages have the same.
    const NAME: &'static str;
    /// The lane it takes.
    const PRIORITY: Priority;
}

/// What kernels know of a kind of message.
#[derive(Clone, Copy, Debug)]
pub struct MessageInfo {
    /// The number on the wire.
    pub kind: MessageKind,
    /// Short name, as counters and traces print it.
    pub name: &'static str,
    /// The lane it takes.
    pub priority: Priority,
}

/// What the table in `docs/` says of one besides. Apart, for a kernel has no use for it.
#[derive(Clone, Copy, Debug)]
struct Texts {
    type_name: &'static str,
    /// Name and type of each field.
    fields: &'static [(&'static str, &'static str)],
    reply: &'static str,
    doc: &'static str,
}

/// The messages of one module.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The title of its table in `docs/messages.md`.
    pub name: &'static str,
    base: u16,
    messages: &'static [MessageInfo],
}

const SUBJECTS: &[Subject] = &[
    control::SUBJECT,
    process::SUBJECT,
    process::signals::SUBJECT,
    process::family::SUBJECT,
    descriptor::SUBJECT,
    inspect::SUBJECT,
    vm::SUBJECT,
    futex::SUBJECT,
    fs::SUBJECT,
    fs::sockets::SUBJECT,
    timer::SUBJECT,
    ipc::SUBJECT,
    disk::SUBJECT,
    cgroup::SUBJECT,
];

/// In the order of [`SUBJECTS`].
const TEXTS: &[&[Texts]] = &[
    control::TEXTS,
    process::TEXTS,
    process::signals::TEXTS,
    process::family::TEXTS,
    descriptor::TEXTS,
    inspect::TEXTS,
    vm::TEXTS,
    futex::TEXTS,
    fs::TEXTS,
    fs::sockets::TEXTS,
    timer::TEXTS,
    ipc::TEXTS,
    disk::TEXTS,
    cgroup::TEXTS,
];

const COUNT: usize = {
    let (mut count, mut subject) = (0, 0);
    while subject < SUBJECTS.len() {
        count += SUBJECTS[subject].messages.len();
        subject += 1;
    }
    count
};

/// All messages, subject after subject.
pub const CATALOGUE: &[MessageInfo] = &{
    let mut all = [control::SUBJECT.messages[0]; COUNT];
    let (mut next, mut subject) = (0, 0);
    while subject < SUBJECTS.len() {
        let mut message = 0;
        while message < SUBJECTS[subject].messages.len() {
            all[next] = SUBJECTS[subject].messages[message];
            next += 1;
            message += 1;
        }
        subject += 1;
    }
    all
};

/// The position of `kind` in [`CATALOGUE`]; handlers and counters are arrays indexed by it.
pub const fn index_of(kind: MessageKind) -> Option<usize> {
    let (mut before, mut subject) = (0, 0);
    while subject < SUBJECTS.len() {
        let Subject { base, messages, .. } = SUBJECTS[subject];
        if kind.0 >= base && ((kind.0 - base) as usize) < messages.len() {
            return Some(before + (kind.0 - base) as usize);
        }
        before += messages.len();
        subject += 1;
    }
    None
}

/// The table of all messages, for `docs/messages.md`.
pub fn table_markdown() -> String {
    use fmt::Write;
    let mut table = String::new();
    for (subject, texts) in SUBJECTS.iter().zip(TEXTS).filter(|(_, texts)| !texts.is_empty()) {
        let rows = write_subject(&mut table, subject, texts).and_then(|()| table.write_char('\n'));
        rows.expect("a String takes everything");
    }
    table
}

fn write_subject(out: &mut impl fmt::Write, subject: &Subject, texts: &[Texts]) -> fmt::Result {
    writeln!(out, "## {}\n", subject.name)?;
    writeln!(out, "| kind | message | fields | reply | priority | meaning |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (message, texts) in subject.messages.iter().zip(texts) {
        let Texts { type_name, fields, reply, doc } = texts;
        write!(out, "| {:#x} | `{type_name}` | ", message.kind.0)?;
        for (index, (name, kind)) in fields.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}`{name}: {kind}`")?;
        }
        writeln!(out, " | `{reply}` | {:?} | {} |", message.priority, doc.trim())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn kinds_and_names_are_unique_and_lead_back_to_their_line() {
        let mut names = BTreeSet::new();
        for (index, message) in CATALOGUE.iter().enumerate() {
            assert_eq!(index_of(message.kind), Some(index), "{}", message.name);
            assert!(names.insert(message.name), "{} occurs twice", message.name);
        }
        assert_eq!(index_of(MessageKind(0)), None);
        assert_eq!(index_of(MessageKind(u16::MAX)), None);
    }

    #[test]
    fn every_message_is_in_the_page_of_interleavings() {
        let page = include_str!("../../../docs/interleavings.md");
        let named = |name: &str| page.contains(&alloc::format!("`{name}`"));
        // `Descriptor*` stands for all that begin like that.
        let covered = |name: &str| (1..name.len()).any(|end| named(&alloc::format!("{}*", &name[..end])));
        let missing: alloc::vec::Vec<_> = TEXTS
            .iter()
            .copied()
            .flatten()
            .map(|texts| texts.type_name)
            .filter(|name| !named(name) && !covered(name))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn the_table_lists_every_message_once() {
        let table = table_markdown();
        assert_eq!(TEXTS.iter().map(|texts| texts.len()).sum::<usize>(), CATALOGUE.len());
        for texts in TEXTS.iter().copied().flatten() {
            let name = alloc::format!("`{}`", texts.type_name);
            let rows = table.lines().filter(|line| line.split('|').nth(2).is_some_and(|cell| cell.trim() == name));
            assert_eq!(rows.count(), 1, "{}", texts.type_name);
            assert!(!texts.doc.trim().is_empty(), "{} has no doc line", texts.type_name);
        }
    }

    #[test]
    fn a_message_survives_the_wire() {
        let sent = control::Ping { payload: [1u8, 2, 3].into() };
        let bytes = postcard::to_allocvec(&sent).unwrap();
        let received: control::Ping = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(received.payload, sent.payload);
    }
}
