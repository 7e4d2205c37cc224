//! Crate `log`'s records as lines on the serial port.

use crate::{plan, serial};
use log::{LevelFilter, Log, Metadata, Record};

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let target = record.target();
            serial::line(crate::kernel(), format_args!("{:5} {target}: {}", record.level(), record.args()));
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
