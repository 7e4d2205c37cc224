//! Heartbeats: this kernel beats once a second, and watches the next one in the ring of those that run. What
//! counts as evidence is in `platform/src/suspicion.rs`.
//!
//! A kernel that hangs ends as one that panics does (death.rs): by default the machine ends with it, with
//! `cob.on_panic=survive` a secondary ends alone. Its own CPU says where it hangs.
//!
//! The same task says of which kernels this one has waited for seconds to take a message (`fabric/src/stall.rs`): the lanes to one that
//! hangs fill up long before it is condemned. It is a line in the log and nothing more; what waits goes on waiting.
//!
//! The host command watches the primary, also where that is the only kernel: it hears a beat over the link once a second, from each CPU of
//! the kernel in turn, so that one that hangs silences all. What the host does then is in `crates/cob/src/watch.rs`.
//!
//! On the board only the CPU that takes doorbells beats for its kernel. A sibling of a secondary that hangs is noticed when that CPU waits for it.

use crate::services::Kernel;
use alloc::sync::Arc;
use dev::link::Link;
use fabric::{Stall, StallState, Stalls};
use machine::KernelId;
use platform::{
    heartbeat,
    suspicion::{Suspicion, Verdict},
};

const BEAT_NS: u64 = 1_000_000_000;
/// From probe to probe of a kernel that is suspected.
const PROBE_NS: u64 = BEAT_NS / 10;

/// Once, on the boot CPU, which takes the doorbells.
pub fn start(kernel: &'static Kernel) {
    if kernel.plan.kernels.len() == 1 {
        return;
    }
    let boot_cpu = kernel.scheduler.index_of(kernel.system.cpu.current()).unwrap_or(0);
    kernel.scheduler.spawn_on(boot_cpu, async move {
        let mut watched: Option<(KernelId, Suspicion)> = None;
        let mut stalls = Stalls::default();
        let mut pause = BEAT_NS;
        loop {
            heartbeat::beat();
            let began = kernel.system.now();
            kernel.scheduler.sleep_until(began + pause).await;
            // A pause that took longer says nothing: this CPU was held up.
            let on_time = kernel.system.now() - began < pause * 3 / 2;
            if on_time {
                stalls.look(&kernel.endpoint, kernel.system.now()).iter().for_each(report);
            }
            let Some(next) = next_in_ring(kernel) else {
                (watched, pause) = (None, BEAT_NS);
                continue;
            };
            let suspicion = match &mut watched {
                Some((known, suspicion)) if *known == next => suspicion,
                _ => &mut watched.insert((next, Suspicion::default())).1,
            };
            pause = look(next, suspicion, on_time);
        }
    });
}

/// Beats for the host.
pub fn tell_host(kernel: &'static Kernel, link: Arc<Link>) {
    beat_on(kernel, link, 0);
}

/// The CPU with this index beats after a pause, and the next one after it.
fn beat_on(kernel: &'static Kernel, link: Arc<Link>, index: usize) {
    let cpus = kernel.system.cpu.cpus();
    link.beat(cpus[index].0);
    kernel.scheduler.spawn_on(index, async move {
        kernel.scheduler.sleep_until(kernel.system.now() + BEAT_NS).await;
        beat_on(kernel, link, (index + 1) % cpus.len());
    });
}

/// What tests of the probe's handler ask for (`Stop::PROBING`).
pub fn probe_all() {
    platform::plan().kernels.iter().enumerate().for_each(|(index, _)| {
        let other = KernelId(index as u16);
        if other != platform::kernel() {
            heartbeat::probe(other);
        }
    });
}

fn report(stall: &Stall) {
    let Stall { to, priority, for_ns, state } = stall;
    let ms = for_ns / 1_000_000;
    match state {
        StallState::Stuck { for_room, for_credit } => log::warn!(
            "kernel {to} has taken no {priority:?} message for {ms} ms: {for_room} wait for room in the lane, {for_credit} for a credit"
        ),
        StallState::Over => log::warn!("kernel {to} takes {priority:?} messages again, after {ms} ms"),
    }
}

/// The kernel after this one that has ever beaten in its present boot generation.
fn next_in_ring(kernel: &Kernel) -> Option<KernelId> {
    let (me, count) = (kernel.system.kernel.index(), kernel.plan.kernels.len());
    let others = (1..count).map(|step| KernelId(((me + step) % count) as u16));
    others.into_iter().find(|other| heartbeat::seen(*other).is_some())
}

/// Says how long to wait for the next look.
fn look(watched: KernelId, suspicion: &mut Suspicion, on_time: bool) -> u64 {
    let Some((beat, answered)) = heartbeat::seen(watched) else { return BEAT_NS };
    match suspicion.look(beat, answered, on_time) {
        Verdict::Well | Verdict::Wait => BEAT_NS,
        verdict @ (Verdict::Suspect | Verdict::Probe) => {
            if verdict == Verdict::Suspect {
                log::warn!("kernel {watched} has not beaten for seconds: probing it");
            }
            heartbeat::probe(watched);
            PROBE_NS
        }
        Verdict::Hangs => {
            log::error!("kernel {watched} hangs: its CPU runs, but it does not beat");
            heartbeat::condemn(watched);
            BEAT_NS
        }
    }
}
