//! What a panic ends, and how the others go on without a dead kernel.
//!
//! By default a panic of any kernel ends the machine: `cob run` shows the log and answers 125. With
//! `cob.on_panic=survive` a secondary dies alone. (The primary has the devices and the root file system;
//! nothing could go on without it.) The dying kernel itself marks the board and rings everybody
//! (`platform::panic`), so that nobody has to watch for that. One that hangs is found by its neighbour
//! (watch.rs), and from then on dies the same way.
//!
//! A survivor notices at its next doorbell: it fails the calls to the dead kernel, unmaps its lanes, takes its
//! CPUs off the machine, and kills the processes that had something there (crate `process`, death.rs). The dead
//! kernel's memory is made new only after all survivors are through with that ([`bury`]).

use crate::{root, services::Kernel};
use machine::KernelId;
use messages::control::{KernelDied, Stop};

pub fn set_policy(kernel: &Kernel) {
    let policy = platform::plan::option(&kernel.plan.command_line, "cob.on_panic");
    if policy == Some("survive") && kernel.system.kernel != KernelId::PRIMARY {
        platform::panic::set_policy(platform::panic::die_alone);
    }
}

/// The board says that `dead`, which we were connected with, is no more.
pub fn notice(kernel: &'static Kernel, dead: KernelId) {
    if detach(kernel, dead) {
        let system = kernel.system.clone();
        kernel.scheduler.spawn(async move {
            // Before anybody may boot it again: its disks must not write into memory that is used anew.
            root::reset_disks_of(kernel, dead);
            system.kernel_died(dead).await;
        });
    }
}

/// Everything that can be done at once; false if it was done before.
fn detach(kernel: &Kernel, dead: KernelId) -> bool {
    if !linux::node::detach(&kernel.system, &kernel.remote, dead) {
        return false;
    }
    log::error!("kernel {dead} is dead");
    kernel.lanes.disconnect(dead);
    true
}

/// Another kernel wants to boot the dead one again: returns when nothing here uses its memory, and it has nothing of this kernel.
pub async fn mourn(kernel: &'static Kernel, dead: KernelId) {
    notice(kernel, dead);
    kernel.system.until_over(dead).await;
}

/// Makes everybody, this kernel included, have done with a dead kernel.
pub async fn bury(kernel: &'static Kernel, dead: KernelId) {
    let mut mourners = kernel.endpoint.present();
    mourners.remove(dead);
    kernel.endpoint.multicast(&mourners, KernelDied { kernel: dead }).await;
}

/// Root wants this kernel to end. Never inlined: the backtrace of a panic names it.
#[inline(never)]
pub fn stop(by: KernelId, status: u8) {
    match status {
        Stop::QUIETLY => {}
        Stop::HANGING => hang(by),
        Stop::PROBING => return crate::watch::probe_all(),
        _ => panic!("a panic was asked for through kernel {by}"),
    }
    log::warn!("stopped through kernel {by}");
    platform::panic::die_alone();
}

/// Spins for ever, with interrupts off, in the middle of a drain: what tests of the heartbeat ask for.
#[inline(never)]
fn hang(by: KernelId) -> ! {
    log::warn!("hangs, as was asked for through kernel {by}");
    loop {
        core::hint::spin_loop();
    }
}
