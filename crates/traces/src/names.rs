//! What threads, system calls and messages are called.

use crate::Event;
use fuzz::describe::Calls;
use std::{borrow::Cow, collections::HashMap, sync::LazyLock};
use trace::{Point, IDLE, KERNEL_WORK};

static CALLS: LazyLock<HashMap<u32, String>> = LazyLock::new(|| {
    let calls = Calls::new();
    calls.calls.iter().map(|call| (u32::from(call.number), call.name.clone())).collect()
});

/// The name of a system call; its number where Cob has none of that number.
pub fn syscall_name(number: u32) -> Cow<'static, str> {
    match CALLS.get(&number) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("syscall_{number}")),
    }
}

/// The name of a kind of message.
pub fn message_name(kind: u16) -> &'static str {
    messages::index_of(messages::MessageKind(kind)).map_or("?", |index| messages::CATALOGUE[index].name)
}

/// What a message is.
pub fn role_name(role: u8) -> &'static str {
    ["request", "notice", "reply", "cancel", "cancelled", "refused"].get(usize::from(role)).copied().unwrap_or("?")
}

/// What threads are called, as far as the trace has said.
#[derive(Clone, Debug, Default)]
pub struct Names {
    threads: HashMap<u32, (u32, String)>,
}

/// A disk or partition by its numbers, as lsblk shows them.
pub fn device_name(device: u64) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

/// What a request of a disk does, as blktrace shows it.
pub fn operation_letter(operation: u64) -> &'static str {
    match operation as u16 {
        trace::operation::READ => "R",
        trace::operation::WRITE => "W",
        trace::operation::DISCARD => "D",
        trace::operation::FLUSH => "F",
        _ => "?",
    }
}

impl Names {
    /// Hears what an event says about names.
    pub fn take(&mut self, event: &Event) {
        match event.point {
            Point::ThreadName => {
                self.threads.insert(event.tid("tid"), (event.tid("pid"), event.text()));
            }
            Point::SchedProcessFork => {
                let (parent, child, pid) = (event.tid("parent_tid"), event.tid("child_tid"), event.tid("child_pid"));
                let name = self.comm(parent).into_owned();
                self.threads.insert(child, (pid, name));
            }
            _ => {}
        }
    }

    /// The name of a thread alone, as Linux calls it `comm`.
    pub fn comm(&self, tid: u32) -> Cow<'_, str> {
        match tid {
            IDLE => Cow::Borrowed("idle"),
            KERNEL_WORK => Cow::Borrowed("kernel"),
            _ => Cow::Borrowed(self.threads.get(&tid).map_or("?", |(_, name)| name)),
        }
    }

    /// The process of a thread; the thread itself if the trace has not said.
    pub fn process(&self, tid: u32) -> u32 {
        self.threads.get(&tid).map_or(tid, |(pid, _)| *pid)
    }

    /// Name and id.
    pub fn thread(&self, tid: u32) -> String {
        match tid {
            IDLE | KERNEL_WORK => self.comm(tid).into_owned(),
            _ => format!("{}/{tid}", self.comm(tid)),
        }
    }
}
