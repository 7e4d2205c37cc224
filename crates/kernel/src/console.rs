//! A machine that nobody started with `cob`: an image, an initramfs and a serial line, as Linux would boot. The words of
//! the command line are Linux's: `rdinit=PROGRAM` instead of /init, and what follows `--` are its arguments.

use crate::services::Kernel;
use alloc::{vec, vec::Vec};
use fs::stream::{ByteSink, ByteSource};
use link::{Config, Root, VERSION};
use machine::{errno::Result, sync::WaitQueue};
use platform::plan::option;

/// What the first program of Linux is given (init/main.c), as the host command would ask for it.
pub fn config(kernel: &Kernel) -> Config {
    let (words, arguments) = match kernel.plan.command_line.split_once(" -- ") {
        Some((words, arguments)) => (words, arguments),
        None => (kernel.plan.command_line.as_str(), ""),
    };
    let program = Vec::from(option(words, "rdinit").unwrap_or("/init"));
    let arguments = arguments.split_ascii_whitespace().map(Vec::from);
    Config {
        version: VERSION,
        argv: core::iter::once(program.clone()).chain(arguments).collect(),
        program,
        env: vec![b"HOME=/".to_vec(), b"TERM=linux".to_vec()],
        cwd: b"/".to_vec(),
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        umask: 0o022,
        hostname: b"(none)".to_vec(),
        tty: [false; 3],
        winsize: None,
        termios: None,
        root: Root::Initramfs,
        shares: Vec::new(),
        stats: false,
        rlimits: Vec::new(),
        unix_ns: 0,
    }
}

/// Nothing is typed.
#[derive(Default)]
pub struct Nothing(WaitQueue);

impl ByteSource for Nothing {
    fn read(&self, _buf: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn changes(&self) -> &WaitQueue {
        &self.0
    }
}

/// The serial line, where the log goes too.
#[derive(Default)]
pub struct Serial(WaitQueue);

impl ByteSink for Serial {
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        // A line at a time, so that a program that prints much does not keep the CPU.
        let part = &bytes[..bytes.len().min(128)];
        platform::console_write(part);
        Ok(part.len())
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn changes(&self) -> &WaitQueue {
        &self.0
    }
}
