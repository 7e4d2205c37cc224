//! Which events of a trace are wanted: those of one process.

use crate::{states::is_thread, Event, Names};
use std::collections::HashMap;
use trace::{Kind, Point};

/// Tells events of a process from others: those that name a thread of it, and those of a CPU that has one.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Name or id; None: everything is wanted.
    process: Option<String>,
    names: Names,
    cpus: HashMap<u16, u32>,
}

impl Filter {
    /// `process`: a process id, or the name of a program. None wants everything.
    pub fn new(process: Option<String>) -> Filter {
        Filter { process, ..Filter::default() }
    }

    fn is_of(&self, process: &str, tid: u32) -> bool {
        is_thread(tid) && {
            let pid = self.names.process(tid);
            pid.to_string() == process || self.names.comm(pid) == process || self.names.comm(tid) == process
        }
    }

    /// Whether it is wanted. All events must be shown, in the order of time.
    pub fn wants(&mut self, event: &Event) -> bool {
        self.names.take(event);
        let Some(process) = self.process.clone() else { return true };
        let mut threads = event.fields().filter(|(field, _)| matches!(field.kind, Kind::Tid | Kind::For));
        let named = threads.any(|(_, value)| self.is_of(&process, value.number() as u32));
        let before = self.cpus.get(&event.place.cpu).copied().unwrap_or(trace::IDLE);
        if event.point == Point::SchedSwitch {
            self.cpus.insert(event.place.cpu, event.tid("next_tid"));
        }
        named || self.is_of(&process, before) || event.point == Point::LostEvents
    }
}
