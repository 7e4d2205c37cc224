//! Events as lines of text.

use crate::{
    names::{device_name, message_name, operation_letter, role_name, syscall_name, Names},
    Event, Place,
};
use std::fmt::Write;
use trace::Kind;

impl Event {
    /// A line for people.
    pub fn line(&self, names: &Names) -> String {
        let Place { cpu, kernel, .. } = self.place;
        let seconds = self.time as f64 / 1e9;
        let mut line = format!("{seconds:14.9} k{kernel} cpu{cpu:<3} {:<20}", self.info().name);
        for (field, value) in self.fields() {
            let number = value.number();
            let _ = match field.kind {
                Kind::Number => write!(line, " {}={number}", field.name),
                Kind::Hex => write!(line, " {}={number:#x}", field.name),
                Kind::Signed => write!(line, " {}={}", field.name, number as i64),
                Kind::Tid => write!(line, " {}={}", field.name, names.thread(number as u32)),
                Kind::For if number == 0 => write!(line, " {}=-", field.name),
                Kind::For => write!(line, " {}={}", field.name, names.thread(number as u32)),
                Kind::Kernel => write!(line, " {}=k{number}", field.name),
                Kind::Cpu => write!(line, " {}=cpu{number}", field.name),
                Kind::State => write!(line, " {}={}", field.name, state_letter(number)),
                Kind::Syscall => write!(line, " {}", syscall_name(number as u32)),
                Kind::Device => write!(line, " {}", device_name(number)),
                Kind::Operation => write!(line, " {}", operation_letter(number)),
                Kind::Message => write!(line, " {}", message_name(number as u16)),
                Kind::Role => write!(line, " {}", role_name(number as u8)),
                Kind::Text => write!(line, " {}={:?}", field.name, String::from_utf8_lossy(value.text())),
            };
        }
        line
    }
}

/// As ps shows it.
fn state_letter(state: u64) -> &'static str {
    match state {
        0 => "R",
        1 => "S",
        2 => "D",
        4 => "T",
        16 => "X",
        _ => "?",
    }
}
