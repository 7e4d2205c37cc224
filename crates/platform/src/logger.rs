//! Crate `log`'s records as lines on the serial port.

use crate::{plan, serial};
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Logger;

/// The crates in which a line has been caused by a program.
const FOR_PROGRAMS: [&str; 8] = ["linux", "process", "fs", "vm", "ipc", "futex", "procfs", "dev"];

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (kernel, target) = (crate::kernel(), record.target());
        let text = format_args!("{:5} {target}: {}", record.level(), record.args());
        // Who has asked for more than the usual levels wants all of it.
        let by_program = FOR_PROGRAMS.contains(&target.split("::").next().unwrap_or_default());
        match by_program && record.level() <= Level::Info {
            true => serial::line_of_program(kernel, text),
            false => serial::line(kernel, text),
        }
    }

    fn flush(&self) {}
}

/// `cob.log=error|warn|info|debug|trace`, default info.
pub fn init(command_line: &str) {
    let level = plan::option(command_line, "cob.log").and_then(|text| text.parse().ok());
    log::set_max_level(level.unwrap_or(LevelFilter::Info));
    let _ = log::set_logger(&Logger);
}
