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

extern crate alloc;

use alloc::string::String;
use core::fmt;
use serde::{de::DeserializeOwned, Serialize};

#[macro_use]
mod define;
pub mod control;
pub mod descriptor;
pub mod fs;
pub mod futex;
pub mod inspect;
pub mod ipc;
pub mod process;
pub mod timer;
pub mod vm;

/// What a message is, on the wire: the base of its subject plus its position in the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u16);

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match index_of(*self) {
            Some(index) => f.write_str(CATALOGUE[index].name),
            None => write!(f, "kind {:#x}", self.0),
        }
    }
}

/// Which lane of a pair a request takes. Replies always take `High`.
///
/// `High` is for requests whose handler never waits for another kernel: revocations, installs,
/// notices. They share the lane of the replies, so the two stay in the order they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    High = 0,
    Low = 1,
}

impl Priority {
    pub const ALL: [Priority; 2] = [Priority::High, Priority::Low];

    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A message that one kernel sends another. A notice that needs no answer has `Reply = ()`.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    const KIND: Kind;
    const NAME: &'static str;
    const PRIORITY: Priority;
}

/// One line of the table of messages.
#[derive(Clone, Copy, Debug)]
pub struct MessageInfo {
    pub kind: Kind,
    /// Short name, as counters and traces print it.
    pub name: &'static str,
    pub type_name: &'static str,
    /// Name and type of each field.
    pub fields: &'static [(&'static str, &'static str)],
    pub reply: &'static str,
    pub priority: Priority,
    pub doc: &'static str,
}

/// The messages of one module.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub name: &'static str,
    base: u16,
    messages: &'static [MessageInfo],
}

const SUBJECTS: &[Subject] = &[
    control::SUBJECT,
    process::SUBJECT,
    descriptor::SUBJECT,
    inspect::SUBJECT,
    vm::SUBJECT,
    futex::SUBJECT,
    fs::SUBJECT,
    timer::SUBJECT,
    ipc::SUBJECT,
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
pub const fn index_of(kind: Kind) -> Option<usize> {
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
    for subject in SUBJECTS.iter().filter(|subject| !subject.messages.is_empty()) {
        let rows = write_subject(&mut table, subject).and_then(|()| table.write_char('\n'));
        rows.expect("a String takes everything");
    }
    table
}

fn write_subject(out: &mut impl fmt::Write, subject: &Subject) -> fmt::Result {
    writeln!(out, "## {}\n", subject.name)?;
    writeln!(out, "| kind | message | fields | reply | priority | meaning |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for message in subject.messages {
        write!(out, "| {:#x} | `{}` | ", message.kind.0, message.type_name)?;
        for (index, (name, kind)) in message.fields.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}`{name}: {kind}`")?;
        }
        let MessageInfo { reply, priority, doc, .. } = message;
        writeln!(out, " | `{reply}` | {priority:?} | {} |", doc.trim())?;
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
            assert!(!message.doc.trim().is_empty(), "{} has no doc line", message.name);
        }
        assert_eq!(index_of(Kind(0)), None);
        assert_eq!(index_of(Kind(u16::MAX)), None);
    }

    #[test]
    fn the_table_lists_every_message_once() {
        let table = table_markdown();
        for message in CATALOGUE {
            let name = alloc::format!("`{}`", message.type_name);
            let rows = table.lines().filter(|line| line.split('|').nth(2).is_some_and(|cell| cell.trim() == name));
            assert_eq!(rows.count(), 1, "{}", message.type_name);
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
