//! What a CPU does all day.
//!
//! Interrupts are off in here except in the halt and in the moment that takes those that wait. Messages are
//! drained when a doorbell has come; while draining, senders see the polling flag and spare the doorbell.
//!
//! Messages are taken no faster than they are served, and not while it is the turn of threads (sched/src/turns.rs): what is left stays in its lane,
//! with its credit, so its sender waits. The polling flag goes up when a doorbell is heard and comes down when the lanes are empty; meanwhile
//! nobody rings, or each message would interrupt the thread whose turn it is, and the loop comes back by itself. A task that waits may need one of the
//! messages that are left, so messages must not wait for tasks to end: after [`ENOUGH`] turns as many are taken, whatever waits.

use crate::services::Kernel;
use core::sync::atomic::Ordering::SeqCst;
use machine::CpuId;
use platform::{board, Events};
use sched::Patience;
use spin::Once;

/// Messages handled before others get their turn.
const BUDGET: usize = 256;
/// Messages handled before the CPU looks whether it is the turn of threads.
const ROUND: usize = 32;
/// With so many kernel tasks waiting, a CPU takes as many messages only after as many turns of its loop.
const ENOUGH: usize = 32;

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
    let here = kernel.system.cpu.index();
    // `mail`: messages may lie in the lanes, and this CPU counts as polling. `turns`: of this loop, since it last took some.
    let (mut mail, mut turns, mut noted) = (false, 0, false);
    loop {
        platform::accept_interrupts();
        let events = platform::take_events();
        if trace::on::irq_events() && !events.is_empty() {
            trace::irq_events(events.bits());
        }
        // Once: those that poll are counted.
        if !mail && (events.contains(Events::DOORBELL) || kernel.endpoint.has_backlog()) {
            kernel.endpoint.start_polling();
            mail = true;
        }
        if mail && !kernel.scheduler.threads_first() {
            match kernel.scheduler.kernel_tasks() {
                ..ENOUGH => (mail, turns) = (attend(kernel, BUDGET), 0),
                _ if turns >= ENOUGH => (mail, turns) = (attend(kernel, ENOUGH), 0),
                _ => turns += 1,
            }
        }
        if mail != noted {
            kernel.scheduler.note_mail(mail);
            noted = mail;
        }
        let log_waits = platform::drain_log();
        publish_load(kernel, here);
        kernel.system.notice_shortage();
        kernel.system.look_for_pairs();
        let now = kernel.system.now();
        if kernel.scheduler.has_waiting(here) {
            kernel.system.balance(now);
        } else {
            kernel.system.relax();
        }
        if kernel.scheduler.turn_at(here, now) {
            continue;
        }
        kernel.system.vm.send_frames_home(1);
        kernel.system.return_to_cgroups();
        if log_waits || kernel.endpoint.has_backlog() || !kernel.scheduler.prepare_idle() {
            continue;
        }
        let began = kernel.system.now();
        let found = look_out(kernel, began + patience.ns(kernel.system.vm.expects_soon()));
        // Who is told may be woken here.
        let told = kernel.scheduler.take_stall(!found) && kernel.system.tell_stalls();
        if !found && !told {
            platform::idle();
        }
        let now = kernel.system.now();
        kernel.scheduler.end_idle(now - began);
        mail |= found;
        let rang = kernel.endpoint.has_mail() || platform::events().intersects(Events::DOORBELL | Events::KICK);
        let rung = platform::rung_at();
        match (rang, found) {
            _ if told => {}
            (false, _) => patience.interrupted(),
            (true, true) => patience.found(),
            (true, false) if (began..now).contains(&rung) => patience.halted(rung - began),
            (true, false) => patience.halted(now - began),
        }
    }
}

/// Looks at the lanes for a while before a halt; true if something came: then this CPU goes on counting as
/// polling. Siblings and devices interrupt, as they do a CPU that is halted: it has announced that it is idle. No `pause`: reading the clock lets a sibling thread in, too, and a hypervisor takes
/// a CPU that pauses for one that waits for a lock.
fn look_out(kernel: &'static Kernel, until: u64) -> bool {
    if kernel.system.now() >= until {
        return false;
    }
    kernel.endpoint.start_polling();
    loop {
        platform::accept_interrupts();
        if kernel.endpoint.has_mail() || !platform::events().is_empty() {
            return true;
        }
        if kernel.system.now() >= until {
            // What comes in while the doorbell is wanted again makes work, too.
            return !kernel.endpoint.stop_polling();
        }
    }
}

/// After a doorbell, while this CPU counts as polling: dead kernels are mourned, new ones connected, up to about `budget` messages handled. True if more
/// have come: then it goes on counting as polling.
fn attend(kernel: &'static Kernel, budget: usize) -> bool {
    kernel.scheduler.begin_kernel_work();
    let mut began = kernel.system.now();
    for dead in kernel.lanes.lost() {
        crate::death::notice(kernel, dead);
    }
    if kernel.lanes.incomplete() {
        for peer in kernel.lanes.connect(&kernel.port) {
            kernel.endpoint.add_peer(peer);
            crate::control::greet(kernel, peer);
        }
    }
    let mut handled = 0;
    loop {
        let round = kernel.endpoint.drain(ROUND);
        began = kernel.scheduler.charge_kernel(began);
        handled += round;
        if round == 0 || handled >= budget || kernel.scheduler.threads_first() {
            break;
        }
    }
    let left = !kernel.endpoint.stop_polling();
    publish_load(kernel, kernel.system.cpu.index());
    left
}

/// Messages may lie in lanes without a doorbell under way (inject.rs).
pub fn look_again() {
    if let Some(kernel) = KERNEL.get() {
        kernel.endpoint.start_polling();
        while attend(kernel, BUDGET) {}
    }
}

/// Puts this kernel's load on the board, for the CPU with this index. Written only if it changed: the others read the line.
fn publish_load(kernel: &Kernel, here: usize) {
    let Some(mut load) = kernel.scheduler.changed_worth(here) else { return };
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
