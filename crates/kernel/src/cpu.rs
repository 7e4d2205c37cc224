//! What a CPU does all day.
//!
//! Interrupts are off in here except in the halt and in the moment that takes those that wait. Messages are
//! drained when a doorbell has come; while draining, senders see the polling flag and spare the doorbell.

use crate::services::Kernel;
use core::sync::atomic::Ordering::SeqCst;
use machine::CpuId;
use platform::{board, Events};
use sched::Patience;
use spin::Once;

/// Messages handled before others get their turn.
const BUDGET: usize = 256;

static KERNEL: Once<&'static Kernel> = Once::new();

/// The boot CPU: starts its siblings and joins them.
pub fn run(kernel: &'static Kernel) -> ! {
    KERNEL.call_once(|| kernel);
    if let Err((cpu, error)) = platform::start_siblings(sibling) {
        panic!("CPU {} does not start: {error:?}", cpu.0);
    }
    work(kernel)
}

fn sibling(_cpu: CpuId) -> ! {
    work(KERNEL.wait())
}

fn work(kernel: &'static Kernel) -> ! {
    let mut patience = Patience::default();
    loop {
        platform::accept_interrupts();
        let events = platform::take_events();
        if events.contains(Events::DOORBELL) || kernel.endpoint.has_backlog() {
            attend(kernel);
        }
        let log_waits = platform::drain_log();
        publish_load(kernel);
        kernel.system.notice_shortage();
        if kernel.scheduler.has_waiting() {
            kernel.system.balance();
        } else {
            kernel.system.relax();
        }
        if kernel.scheduler.turn() {
            continue;
        }
        kernel.system.vm.send_frames_home(1);
        if log_waits || kernel.endpoint.has_backlog() || !kernel.scheduler.prepare_idle() {
            continue;
        }
        let began = kernel.system.now();
        let found = look_out(kernel, began + patience.ns(kernel.system.vm.expects_soon()));
        if !found {
            platform::idle();
        }
        let now = kernel.system.now();
        kernel.scheduler.end_idle(now - began);
        if found {
            patience.found();
            continue;
        }
        let rung = platform::rung_at();
        let came = if (began..now).contains(&rung) { rung } else { now };
        patience.halted(came - began);
    }
}

/// Looks at the lanes for a while before a halt; true if something came. Siblings and devices interrupt, as they do a
/// CPU that is halted: it has announced that it is idle. No `pause`: reading the clock lets a sibling thread in, too, and a hypervisor takes
/// a CPU that pauses for one that waits for a lock.
fn look_out(kernel: &'static Kernel, until: u64) -> bool {
    if kernel.system.now() >= until {
        return false;
    }
    kernel.endpoint.start_polling();
    let mut found = loop {
        platform::accept_interrupts();
        if kernel.endpoint.has_mail() || platform::has_events() {
            break true;
        }
        if kernel.system.now() >= until {
            break false;
        }
    };
    // Drained before the doorbell is wanted again. What comes in while it is wanted again makes work, too.
    if found {
        kernel.endpoint.drain(BUDGET);
    }
    while !kernel.endpoint.stop_polling() {
        kernel.endpoint.drain(BUDGET);
        found = true;
    }
    found
}

/// A doorbell: dead kernels are mourned, new ones connected, messages drained.
fn attend(kernel: &'static Kernel) {
    for dead in kernel.lanes.lost() {
        crate::death::notice(kernel, dead);
    }
    if kernel.lanes.incomplete() {
        for peer in kernel.lanes.connect(&kernel.port) {
            kernel.endpoint.add_peer(peer);
            crate::control::greet(kernel, peer);
        }
    }
    kernel.endpoint.start_polling();
    loop {
        kernel.endpoint.drain(BUDGET);
        if kernel.endpoint.stop_polling() {
            break;
        }
    }
    publish_load(kernel);
}

/// Messages may lie in lanes without a doorbell under way (shake.rs).
pub fn look_again() {
    if let Some(kernel) = KERNEL.get() {
        attend(kernel);
    }
}

/// Puts this kernel's load on the board. Written only if it changed: the others read the line.
pub fn publish_load(kernel: &Kernel) {
    let Some(mut load) = kernel.scheduler.changed_worth() else { return };
    let entry = &board::entry(kernel.system.kernel).pulse.0.load;
    loop {
        entry.store(load as u32, SeqCst);
        // A sibling may have stored meanwhile what was true later: the last one to store looks once more.
        let now = kernel.scheduler.worth();
        if now == load {
            return;
        }
        load = now;
    }
}
