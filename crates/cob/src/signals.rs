//! The caller's signals. They are blocked in every thread and taken by one thread here, so that no handler
//! ever interrupts anything, and the guest hears of each one.

use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::session::Event;

const TAKEN: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Must be called before any other thread starts, because threads inherit the mask.
pub fn take(events: Sender<Event>) {
    let set: SigSet = TAKEN.into_iter().collect();
    // Fails only for a set that is not one.
    let _ = set.thread_block();
    thread::spawn(move || {
        while let Ok(signal) = set.wait() {
            if events.send(Event::Signal(signal as i32 as u8)).is_err() {
                return;
            }
        }
    });
}

/// The signals by which a person asks a program to end.
pub fn asks_to_end(signal: u8) -> bool {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP].iter().any(|s| *s as i32 as u8 == signal)
}

/// The signal by which a person asks what the machine does.
pub fn asks_for_report(signal: u8) -> bool {
    signal == Signal::SIGUSR1 as i32 as u8
}

pub fn is_resize(signal: u8) -> bool {
    signal == Signal::SIGWINCH as i32 as u8
}
