//! The guest's end of the link to the host command `cob` (its wire form is crate `link`).
//!
//! Problem. One byte stream each way carries everything: the program's standard streams, signals, the
//! terminal's size, credits, the exit status. No reader of one of them may hold up another, nothing may pile
//! up without bound, and a program that does not read its stdin must leave it to the next one, as at home.
//!
//! Idea. Two tasks own the stream. *Receive* decodes whatever comes into plain state and never waits for
//! anybody: stdin is bounded by the credit we gave, signals are a mask, of sizes only the last counts.
//! *Transmit* takes the outbox, a queue of encoded frames, and hands it to the device. All others only
//! change that state under one lock and wait for its wait queues. What the outbox holds is bounded by the
//! windows of the three output streams; control frames are few.
//!
//! The dangerous interleaving. A writer with no room left waits for a Credit frame; the host sends it only after
//! it has written out what we sent; that leaves only if Transmit runs. Neither task ever waits for a window, and
//! a writer puts its frame into the outbox in the same critical section that charges the window. So what was
//! charged always leaves, the credit always comes back, and a writer dropped half way (EINTR) has either sent its
//! frame or charged nothing.
//!
//! Order: frames leave in the order in which they were put into the outbox. Exit comes after all output that was
//! written before it.

mod state;
mod stdin;

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};

use ::link::{Config, ExitStatus, LinkError, Message, Output, ToHost, HEADER, MAX_DATA, MAX_PAYLOAD};
use machine::errno::Result;
use machine::sync::{Lock, WaitQueue};
use machine::{ByteStream, Errno, Spawner};

use state::State;

/// What the host wants to happen, beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Linux signal number for the foreground process group.
    Signal(u8),
    /// The terminal's new size.
    Resize { rows: u16, cols: u16 },
    /// Somebody wants to know what the kernels do ([`Link::report`]).
    Inspect,
    /// The host wants the text of /proc/cob/activity ([`Link::activity`]).
    Activity,
    /// The link is of no use any more: the host broke it, or the device did. Nobody is left to run for.
    Lost,
}

/// What stdin offers without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdinReady {
    /// Bytes that a read would get now.
    pub bytes: usize,
    /// The end was seen; after `bytes` comes nothing more.
    pub end: bool,
}

/// The link, shared by everybody who uses it.
pub struct Link {
    stream: Arc<dyn ByteStream>,
    state: Lock<State>,
    /// A frame is in the outbox.
    outbox: WaitQueue,
    /// Everything put into the outbox so far has been taken by the device.
    sent: WaitQueue,
    config: WaitQueue,
    events: WaitQueue,
    stdin: WaitQueue,
    /// Room in a window, or the stream was closed.
    outputs: [WaitQueue; 3],
}

impl Link {
    /// Takes over `stream`, with two tasks on this kernel.
    pub fn start(stream: Arc<dyn ByteStream>, spawner: &dyn Spawner) -> Arc<Link> {
        let link = Arc::new(Link {
            stream,
            state: Lock::new(State::new()),
            outbox: WaitQueue::new(),
            sent: WaitQueue::new(),
            config: WaitQueue::new(),
            events: WaitQueue::new(),
            stdin: WaitQueue::new(),
            outputs: [const { WaitQueue::new() }; 3],
        });
        spawner.spawn(Box::pin(link.clone().receive()));
        spawner.spawn(Box::pin(link.clone().transmit()));
        link
    }

    /// What to run. Comes once: the first caller gets it.
    pub async fn config(&self) -> core::result::Result<Config, LinkError> {
        self.config.wait_until(|| self.state.lock().take_config()).await
    }

    /// The machine is up and the program is about to run.
    pub fn ready(&self) {
        self.post(&ToHost::Ready);
    }

    /// The primary makes progress; the next time CPU `next` says so.
    pub fn beat(&self, next: u32) {
        self.state.lock().beat(next);
        self.outbox.wake_all();
    }

    /// Somebody at the terminal wants to know what the kernels do.
    pub fn inspect(&self) {
        self.state.lock().inspect();
        self.events.wake_all();
    }

    /// Tells what the kernels do. For a person: a long one is cut.
    pub fn report(&self, text: &str) {
        let text = parts(text).next().unwrap_or_default();
        self.post(&ToHost::Report(text));
    }

    /// Sends the text of /proc/cob/activity. Of a long one the lines that fit.
    pub fn activity(&self, text: &str) {
        self.post(&ToHost::Activity(String::from(first_lines(text, MAX_PAYLOAD - HEADER))));
    }

    /// The next signal, size or loss. One task waits for them.
    pub async fn event(&self) -> Event {
        self.events.wait_until(|| self.state.lock().take_event()).await
    }

    /// Writes the beginning of `bytes`, waiting until there is room for some of it, and gives back how much.
    /// What fits into 4 KiB goes as a whole (PIPE_BUF: man 7 pipe). EPIPE: the host has closed its end.
    pub async fn write(&self, output: Output, bytes: &[u8]) -> Result<usize> {
        self.outputs[output as usize].wait_until(|| unless_again(self.try_write(output, bytes))).await
    }

    /// [`Link::write`] as far as it goes without waiting; EAGAIN: no room.
    pub fn try_write(&self, output: Output, bytes: &[u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let length = self.state.lock().write(output, bytes)?;
        self.outbox.wake_all();
        Ok(length)
    }

    pub async fn stdout_write(&self, bytes: &[u8]) -> Result<usize> {
        self.write(Output::Stdout, bytes).await
    }

    pub async fn stderr_write(&self, bytes: &[u8]) -> Result<usize> {
        self.write(Output::Stderr, bytes).await
    }

    /// Whether a write would not wait: there is room for PIPE_BUF bytes, or it fails at once (Err).
    pub fn output_ready(&self, output: Output) -> Result<bool> {
        self.state.lock().output_ready(output)
    }

    /// Woken when [`Link::output_ready`] may have changed.
    pub fn output_changes(&self, output: Output) -> &WaitQueue {
        &self.outputs[output as usize]
    }

    /// Reads stdin into `buffer`; Ok(0) at its end. Asks the host for more only as needed.
    pub async fn stdin_read(&self, buffer: &mut [u8]) -> Result<usize> {
        self.stdin.wait_until(|| unless_again(self.try_stdin_read(buffer))).await
    }

    /// [`Link::stdin_read`] without waiting; EAGAIN: nothing there yet, but it has been asked for.
    pub fn try_stdin_read(&self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let (result, posted) = self.state.lock().read_stdin(buffer);
        if posted {
            self.outbox.wake_all();
        }
        result
    }

    /// For poll: what is there. As nobody can know that without asking, this asks the host for a byte.
    pub fn stdin_ready(&self) -> Result<StdinReady> {
        let (result, post) = self.state.lock().stdin_ready();
        if post {
            self.outbox.wake_all();
        }
        result
    }

    /// Woken when [`Link::stdin_ready`] may have changed.
    pub fn stdin_changes(&self) -> &WaitQueue {
        &self.stdin
    }

    /// The text of `--stats`, or the next part of it.
    pub fn stats(&self, text: &str) {
        for part in parts(text) {
            self.post(&ToHost::Stats(part));
        }
    }

    /// How the program ended. Returns once the device has this and everything before it, so the machine
    /// may end.
    pub async fn exit(&self, status: ExitStatus) {
        self.post(&ToHost::Exit(status));
        self.flush().await;
    }

    /// The program could not be started.
    pub async fn cannot_run(&self, errno: Errno, what: &str) {
        let what = parts(what).next().unwrap_or_default();
        self.post(&ToHost::CannotRun { errno: errno.0, what });
        self.flush().await;
    }

    /// A kernel died, and the machine ends with it. The link works without the kernel that died.
    pub async fn panicked(&self, text: &str) {
        let text = parts(text).next().unwrap_or_default();
        self.post(&ToHost::Panic(text));
        self.flush().await;
    }

    /// Waits until the device has everything that was put into the outbox so far.
    pub async fn flush(&self) {
        let target = self.state.lock().posted();
        self.sent.wait_until(|| self.state.lock().sent_up_to(target).then_some(())).await;
    }

    fn post(&self, message: &ToHost) {
        self.state.lock().post(message);
        self.outbox.wake_all();
    }

    /// The task that turns what arrives into state.
    async fn receive(self: Arc<Self>) {
        loop {
            let changed = match self.stream.receive().await {
                Ok(bytes) => self.state.lock().arrived(&bytes),
                Err(_) => self.state.lock().lose(),
            };
            // A wake-up for nothing costs a poll; one forgotten costs a hang. All state of a kind has one queue.
            if changed.config {
                self.config.wake_all();
            }
            if changed.events {
                self.events.wake_all();
            }
            if changed.stdin {
                self.stdin.wake_all();
            }
            for (queue, changed) in self.outputs.iter().zip(changed.outputs) {
                if changed {
                    queue.wake_all();
                }
            }
            if changed.lost {
                self.outbox.wake_all();
                self.sent.wake_all();
                return;
            }
        }
    }

    /// The task that hands the outbox to the device. All that lies there goes in one piece: fewer
    /// interrupts, and the host's socket is charged for fewer buffers.
    async fn transmit(self: Arc<Self>) {
        loop {
            let Some((bytes, upto)) = self.outbox.wait_until(|| self.state.lock().take_outbox()).await else {
                return;
            };
            let lost = self.stream.send(bytes).await.is_err();
            if lost {
                self.state.lock().lose();
                self.wake_all();
                return;
            }
            self.state.lock().mark_sent(upto);
            self.sent.wake_all();
        }
    }

    fn wake_all(&self) {
        for queue in [&self.config, &self.events, &self.stdin, &self.sent].into_iter().chain(&self.outputs) {
            queue.wake_all();
        }
    }
}

/// Wait queues wait for something; EAGAIN is nothing yet.
fn unless_again<T>(result: Result<T>) -> Option<Result<T>> {
    (!matches!(result, Err(Errno::EAGAIN))).then_some(result)
}

/// `text` cut at characters so that each part fits a frame.
fn parts(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut rest = text;
    core::iter::from_fn(move || {
        let mut end = rest.len().min(MAX_DATA.min(MAX_PAYLOAD));
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then(|| String::from(part))
    })
}

/// The whole lines of `text` that fit into so many bytes.
fn first_lines(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match end == text.len() {
        true => text,
        false => &text[..text[..end].rfind('\n').map_or(0, |at| at + 1)],
    }
}

/// Bytes of a message as it travels.
fn encoded(message: &ToHost) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
