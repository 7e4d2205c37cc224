//! Everything the link knows, changed only under its lock, without waiting.

use alloc::{collections::VecDeque, vec::Vec};

use link::{Config, ConfigAssembler, Decoder, LinkError, Output, ToGuest, ToHost, Window, MAX_DATA};
use machine::errno::Result;
use machine::Errno;

use super::stdin::Stdin;
use super::{encoded, Event, StdinReady};

/// Writes up to this long are not split (PIPE_BUF).
const WHOLE: usize = 4096;

/// Most bytes that go to the device in one piece: a guest may not make the host buffer without bound.
const PIECE: usize = 64 * 1024;

/// What [`State::arrived`] changed: which waiters to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub config: bool,
    pub events: bool,
    pub stdin: bool,
    pub outputs: [bool; 3],
    pub lost: bool,
}

struct OutputStream {
    window: Window,
    closed: bool,
}

pub struct State {
    decoder: Decoder,
    assembler: ConfigAssembler,
    config: Option<Config>,
    stdin: Stdin,
    outputs: [OutputStream; 3],
    /// Bit n-1: signal n came and nobody has taken it yet. Standard signals do not queue (man 7 signal).
    signals: u64,
    resize: Option<(u16, u16)>,
    /// Somebody wants to know what the kernels do.
    inspect: bool,
    /// The host wants the text of /proc/cob/activity.
    activity: bool,
    /// Set once; from then on everything fails with EIO.
    lost: Option<LinkError>,
    lost_told: bool,
    outbox: VecDeque<Vec<u8>>,
    /// Frames ever put into the outbox, and frames of them that the device has taken.
    posted: u64,
    sent: u64,
    /// Number of the last frame with a heartbeat.
    last_beat: u64,
}

impl State {
    pub fn new() -> Self {
        State {
            decoder: Decoder::new(),
            assembler: ConfigAssembler::new(),
            config: None,
            stdin: Stdin::new(),
            outputs: [(); 3].map(|()| OutputStream { window: Window::output(), closed: false }),
            signals: 0,
            resize: None,
            inspect: false,
            activity: false,
            last_beat: 0,
            lost: None,
            lost_told: false,
            outbox: VecDeque::new(),
            posted: 0,
            sent: 0,
        }
    }

    /// Takes in bytes of the stream.
    pub fn arrived(&mut self, mut bytes: &[u8]) -> Changed {
        let mut changed = Changed::default();
        loop {
            let step = match self.decoder.next::<ToGuest>(&mut bytes) {
                Ok(Some(message)) => self.take(message, &mut changed),
                Ok(None) => return changed,
                Err(error) => Err(error),
            };
            if let Err(error) = step {
                log::error!("link: {error}");
                return self.lose_with(error);
            }
        }
    }

    fn take(&mut self, message: ToGuest, changed: &mut Changed) -> core::result::Result<(), LinkError> {
        match message {
            ToGuest::Config { last, part } => {
                if let Some(config) = self.assembler.push(last, &part)? {
                    self.config = Some(config);
                    changed.config = true;
                }
            }
            ToGuest::Stdin(bytes) => {
                self.stdin.arrived(bytes)?;
                changed.stdin = true;
            }
            ToGuest::StdinEof => {
                self.stdin.end();
                changed.stdin = true;
            }
            ToGuest::Signal(number) => {
                self.signals |= 1 << (number - 1);
                changed.events = true;
            }
            ToGuest::Resize { rows, cols } => {
                self.resize = Some((rows, cols));
                changed.events = true;
            }
            ToGuest::Credit { output, amount } => {
                self.outputs[output as usize].window.give(amount)?;
                changed.outputs[output as usize] = true;
            }
            ToGuest::Inspect => {
                self.inspect = true;
                changed.events = true;
            }
            ToGuest::Activity => {
                self.activity = true;
                changed.events = true;
            }
            ToGuest::Closed(output) => {
                self.outputs[output as usize].closed = true;
                changed.outputs[output as usize] = true;
            }
        }
        Ok(())
    }

    /// The device is gone.
    pub fn lose(&mut self) -> Changed {
        self.lose_with(LinkError::Malformed(0))
    }

    fn lose_with(&mut self, error: LinkError) -> Changed {
        self.lost.get_or_insert(error);
        self.outbox.clear();
        Changed { config: true, events: true, stdin: true, outputs: [true; 3], lost: true }
    }

    pub fn take_config(&mut self) -> Option<core::result::Result<Config, LinkError>> {
        match self.config.take() {
            Some(config) => Some(Ok(config)),
            None => self.lost.map(Err),
        }
    }

    /// Signals first: a Ctrl-C matters more than a size.
    pub fn take_event(&mut self) -> Option<Event> {
        if self.signals != 0 {
            let bit = self.signals.trailing_zeros();
            self.signals &= self.signals - 1;
            return Some(Event::Signal(bit as u8 + 1));
        }
        if let Some((rows, cols)) = self.resize.take() {
            return Some(Event::Resize { rows, cols });
        }
        if core::mem::take(&mut self.inspect) {
            return Some(Event::Inspect);
        }
        if core::mem::take(&mut self.activity) {
            return Some(Event::Activity);
        }
        // Told once: a task that asks again in a loop must not spin.
        (self.lost.is_some() && !core::mem::replace(&mut self.lost_told, true)).then_some(Event::Lost)
    }

    /// EAGAIN: no room for as much as must go in one piece.
    pub fn write(&mut self, output: Output, bytes: &[u8]) -> Result<usize> {
        self.output_ready(output)?;
        let window = &mut self.outputs[output as usize].window;
        let length = bytes.len().min(MAX_DATA).min(window.room());
        if length < bytes.len().min(WHOLE) || !window.take(length) {
            return Err(Errno::EAGAIN);
        }
        self.post(&ToHost::Data(output, bytes[..length].to_vec()));
        Ok(length)
    }

    pub fn output_ready(&self, output: Output) -> Result<bool> {
        let stream = &self.outputs[output as usize];
        match (self.lost, stream.closed) {
            (Some(_), _) => Err(Errno::EIO),
            (None, true) => Err(Errno::EPIPE),
            (None, false) => Ok(stream.window.room() >= WHOLE),
        }
    }

    /// How much was read, and whether a credit frame was put into the outbox.
    pub fn read_stdin(&mut self, buffer: &mut [u8]) -> (Result<usize>, bool) {
        let read = self.stdin.read(buffer);
        if read.is_none() && self.lost.is_some() {
            return (Err(Errno::EIO), false);
        }
        let posted = self.grant(buffer.len(), read.is_none());
        (read.ok_or(Errno::EAGAIN), posted)
    }

    pub fn stdin_ready(&mut self) -> (Result<StdinReady>, bool) {
        let ready = self.stdin.ready();
        if ready.bytes == 0 && !ready.end && self.lost.is_some() {
            return (Err(Errno::EIO), false);
        }
        let posted = ready.bytes == 0 && self.grant(1, true);
        (Ok(ready), posted)
    }

    fn grant(&mut self, wanted: usize, waiting: bool) -> bool {
        let Some(amount) = self.stdin.grant(wanted, waiting) else {
            return false;
        };
        self.post(&ToHost::Credit(amount));
        true
    }

    pub fn post(&mut self, message: &ToHost) {
        if self.lost.is_none() {
            self.outbox.push_back(encoded(message));
            self.posted += 1;
        }
    }

    /// The same as if the host had asked.
    pub fn inspect(&mut self) {
        self.inspect = true;
    }

    /// Not behind one that still waits: a host that does not listen must not make them pile up.
    pub fn beat(&mut self, next: u32) {
        if self.sent_up_to(self.last_beat) {
            self.post(&ToHost::Beat { next });
            self.last_beat = self.posted;
        }
    }

    /// Whole frames from the front of the outbox, and the number of the last of them. `Some(None)`: there
    /// will be no more. (The inner None ends the task, the outer one lets it wait.)
    pub fn take_outbox(&mut self) -> Option<Option<(Vec<u8>, u64)>> {
        if self.lost.is_some() {
            return Some(None);
        }
        let mut piece = self.outbox.pop_front()?;
        while let Some(next) = self.outbox.front() {
            if piece.len() + next.len() > PIECE {
                break;
            }
            piece.extend_from_slice(next);
            self.outbox.pop_front();
        }
        Some(Some((piece, self.posted - self.outbox.len() as u64)))
    }

    pub fn mark_sent(&mut self, upto: u64) {
        self.sent = upto;
    }

    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// True as well when it will never be: nobody should wait for a lost link.
    pub fn sent_up_to(&self, target: u64) -> bool {
        self.sent >= target || self.lost.is_some()
    }
}
