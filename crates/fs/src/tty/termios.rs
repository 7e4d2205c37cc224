//! Terminal settings and their forms in memory (man 2 ioctl_tty).

use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use machine::{errno::Result, Errno};

/// Control characters; the kernel's `NCCS`.
const CONTROLS: usize = 19;
/// Bytes of the kernel's `struct termios`, and of `struct termios2`.
pub const SIZE: usize = 36;
pub const SIZE2: usize = 44;
/// Bytes of the old `struct termio`: the low halves of the flags, the line discipline, the first eight characters.
const SHORT: usize = 18;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termios {
    pub input: u32,
    pub output: u32,
    pub control: u32,
    pub local: u32,
    pub line: u8,
    pub chars: [u8; CONTROLS],
    pub input_speed: u32,
    pub output_speed: u32,
}

/// Speeds of the codes B0 to B38400, then of B57600 on, which have CBAUDEX set.
const SPEEDS: [u32; 16] = [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
const FAST_SPEEDS: [u32; 15] = [
    57600, 115200, 230400, 460800, 500000, 576000, 921600, 1000000, 1152000, 1500000, 2000000, 2500000, 3000000,
    3500000, 4000000,
];

fn speed_of(code: u32) -> u32 {
    match code & raw::CBAUD {
        slow if slow < raw::BOTHER => SPEEDS[slow as usize],
        fast => FAST_SPEEDS.get((fast & 0xf).wrapping_sub(1) as usize).copied().unwrap_or(0),
    }
}

impl Termios {
    /// Linux's `tty_std_termios`.
    pub fn standard() -> Self {
        let mut chars = [0; CONTROLS];
        let defaults = [
            (raw::VINTR, 3),
            (raw::VQUIT, 28),
            (raw::VERASE, 127),
            (raw::VKILL, 21),
            (raw::VEOF, 4),
            (raw::VMIN, 1),
            (raw::VSTART, 17),
            (raw::VSTOP, 19),
            (raw::VSUSP, 26),
            (raw::VREPRINT, 18),
            (raw::VDISCARD, 15),
            (raw::VWERASE, 23),
            (raw::VLNEXT, 22),
        ];
        for (index, char) in defaults {
            chars[index as usize] = char;
        }
        Termios {
            input: raw::ICRNL | raw::IXON,
            output: raw::OPOST | raw::ONLCR,
            control: raw::B38400 | raw::CS8 | raw::CREAD | raw::HUPCL,
            local: raw::ISIG
                | raw::ICANON
                | raw::ECHO
                | raw::ECHOE
                | raw::ECHOK
                | raw::ECHOCTL
                | raw::ECHOKE
                | raw::IEXTEN,
            line: 0,
            chars,
            input_speed: 38400,
            output_speed: 38400,
        }
    }

    /// What a new pseudoterminal has.
    pub fn pty() -> Self {
        Termios { control: raw::B38400 | raw::CS8 | raw::CREAD, ..Self::standard() }
    }

    /// Is `byte` control character `index`? A zero disables it.
    pub fn is(&self, byte: u8, index: u32) -> bool {
        byte != 0 && self.chars[index as usize] == byte
    }

    pub fn char(&self, index: u32) -> u8 {
        self.chars[index as usize]
    }

    /// `struct termios`, or with its two speeds `struct termios2`.
    pub fn encode(&self, with_speeds: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for flags in [self.input, self.output, self.control, self.local] {
            bytes.extend_from_slice(&flags.to_ne_bytes());
        }
        bytes.push(self.line);
        bytes.extend_from_slice(&self.chars);
        if with_speeds {
            bytes.extend_from_slice(&self.input_speed.to_ne_bytes());
            bytes.extend_from_slice(&self.output_speed.to_ne_bytes());
        }
        bytes
    }

    pub fn encode_short(&self) -> Vec<u8> {
        let full = self.encode(false);
        let mut bytes = Vec::new();
        full[..16].chunks(4).for_each(|flags| bytes.extend_from_slice(&flags[..2]));
        bytes.extend_from_slice(&full[16..25]);
        bytes.extend(core::iter::repeat_n(0, SHORT - bytes.len()));
        bytes
    }

    /// What a `struct termio` does not have stays.
    pub fn with_short(&self, bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.get(..SHORT).ok_or(Errno::EFAULT)?;
        let mut full = self.encode(false);
        full[..16].chunks_mut(4).zip(bytes.chunks(2)).for_each(|(flags, low)| flags[..2].copy_from_slice(low));
        full[16..25].copy_from_slice(&bytes[8..17]);
        Self::decode(&full)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let word = |at: usize| -> Result<u32> {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map(u32::from_ne_bytes).ok_or(Errno::EFAULT)
        };
        let chars = bytes.get(17..SIZE).and_then(|chars| chars.try_into().ok()).ok_or(Errno::EFAULT)?;
        let control = word(8)?;
        let speeds = bytes.len() >= SIZE2;
        let speed = |code: u32, at: usize| match code & raw::CBAUD {
            raw::BOTHER if speeds => word(at),
            _ => Ok(speed_of(code)),
        };
        let output_speed = speed(control, 40)?;
        let input_speed = match control >> raw::IBSHIFT & raw::CBAUD {
            0 => output_speed,
            code => speed(code, 36)?,
        };
        Ok(Termios {
            input: word(0)?,
            output: word(4)?,
            control,
            local: word(12)?,
            line: bytes[16],
            chars,
            input_speed,
            output_speed,
        })
    }
}
