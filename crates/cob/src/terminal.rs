//! The caller's terminal: raw while the program runs, as it was afterwards, whatever happens.

use std::fs::File;
use std::io::{stderr, stdin, stdout, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

use link::WinSize;
use rustix::termios::{
    tcgetattr, tcgetwinsize, tcsetattr, OptionalActions, OutputModes, SpecialCodeIndex as Code, Termios,
};

/// What the guest has to know about the terminal.
pub struct Terminal {
    /// Which of descriptors 0, 1 and 2 are it.
    pub descriptors: [bool; 3],
    settings: Option<Termios>,
}

impl Terminal {
    pub fn of_caller() -> Self {
        let descriptors = [stdin().is_terminal(), stdout().is_terminal(), stderr().is_terminal()];
        let mut terminal = Self { descriptors, settings: None };
        terminal.settings = terminal.with_descriptor(|fd| tcgetattr(fd).ok()).flatten();
        terminal
    }

    fn with_descriptor<T>(&self, action: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        match self.descriptors {
            [true, ..] => Some(action(stdin().as_fd())),
            [_, true, _] => Some(action(stdout().as_fd())),
            [_, _, true] => Some(action(stderr().as_fd())),
            _ => None,
        }
    }

    pub fn size(&self) -> Option<WinSize> {
        let size = self.with_descriptor(|fd| tcgetwinsize(fd).ok()).flatten()?;
        Some(WinSize { rows: size.ws_row, cols: size.ws_col })
    }

    /// A descriptor of its own to write the tty's output to.
    pub fn output(&self) -> Option<File> {
        self.with_descriptor(|fd| fd.try_clone_to_owned().ok()).flatten().map(File::from)
    }

    /// `struct termios` as the Linux kernel has it. When the host's terminal is not made raw because stdin is
    /// something else, it goes on turning \n into \r\n itself, and the guest's must not do it a second time.
    pub fn settings(&self) -> Option<Vec<u8>> {
        let settings = self.settings.as_ref()?;
        let mut output_modes = settings.output_modes;
        output_modes.set(OutputModes::OPOST, output_modes.contains(OutputModes::OPOST) && self.descriptors[0]);
        let words = [
            settings.input_modes.bits(),
            output_modes.bits(),
            settings.control_modes.bits(),
            settings.local_modes.bits(),
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.push(0); // c_line: N_TTY
        bytes.extend(CONTROL_CHARACTERS.map(|code| settings.special_codes[code]));
        bytes.extend([0; 2]); // the kernel's array has two more than have a name
        Some(bytes)
    }

    /// Makes the terminal raw if stdin is it. The guest's tty does echo, editing and Ctrl-C from then on.
    pub fn raw(&self) -> Option<RawMode> {
        if !self.descriptors[0] {
            return None;
        }
        let before = self.settings.clone()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw).ok()?;
        Some(RawMode { before })
    }
}

/// The wire has them in the kernel's order (asm-generic/termbits.h); rustix only lets them be named.
const CONTROL_CHARACTERS: [Code; 17] = [
    Code::VINTR,
    Code::VQUIT,
    Code::VERASE,
    Code::VKILL,
    Code::VEOF,
    Code::VTIME,
    Code::VMIN,
    Code::VSWTC,
    Code::VSTART,
    Code::VSTOP,
    Code::VSUSP,
    Code::VEOL,
    Code::VREPRINT,
    Code::VDISCARD,
    Code::VWERASE,
    Code::VLNEXT,
    Code::VEOL2,
];

/// While this lives, the terminal is raw.
pub struct RawMode {
    before: Termios,
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}
