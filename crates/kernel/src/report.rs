//! What the host command prints about the kernels: `--stats` at the end, and what a healthy machine does when somebody asks (Ctrl-T, SIGUSR1,
//! `cob top`).

use crate::services::Kernel;
use alloc::{collections::BTreeMap, format, string::String, sync::Arc, vec::Vec};
use core::{
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering::*},
};
use dev::link::Link;
use machine::{sync::Lock, KernelId};
use messages::control::{KernelStatus, Status};

const MIB: u64 = 1 << 20;

/// What this kernel has done so far.
pub fn status(kernel: &Kernel) -> KernelStatus {
    KernelStatus { deepest_stack: platform::stacks::deepest(), ..kernel.system.status() }
}

/// Of all kernels, once each has answered.
pub async fn statuses(kernel: &Kernel) -> Vec<(KernelId, KernelStatus)> {
    let mut rows = Vec::from([(kernel.system.kernel, status(kernel))]);
    for other in kernel.system.others() {
        if let Ok(status) = kernel.endpoint.call(other, Status {}).await {
            rows.push((other, status));
        }
    }
    rows.sort_by_key(|(id, _)| *id);
    rows
}

/// What `cob run --stats` prints.
pub async fn statistics(kernel: &Kernel) -> String {
    let mut text = String::from(
        "kernel cpus      memory used/free MiB  threads  moved in/out  faults local/remote  messages sent/recv  doorbells\n",
    );
    for (id, status) in statuses(kernel).await {
        let (used, free) = (status.memory_total - status.memory_free, status.memory_free / MIB);
        let row = writeln!(
            text,
            "{:<6} {:<9} {:>11}/{:<9} {:>8}  {:>5}/{:<6} {:>10}/{:<8} {:>8}/{:<9} {:>9}",
            id.0,
            cpu_list(&status),
            format!("{}.{:02}", used / MIB, used % MIB * 100 / MIB),
            free,
            status.threads_started,
            status.migrations_in,
            status.migrations_out,
            status.faults_local,
            status.faults_remote,
            status.messages_sent,
            status.messages_received,
            status.doorbells_sent,
        );
        row.expect("a String takes everything");
    }
    text
}

fn cpu_list(status: &KernelStatus) -> String {
    let numbers: Vec<String> = status.cpus.iter().map(|cpu| format!("{}", cpu.0)).collect();
    numbers.join(",")
}

/// Over how long [`present`] looks, and how long after that it waits for a kernel.
const SPAN_NS: u64 = 250_000_000;
const PATIENCE_NS: u64 = 1_000_000_000;
const BETWEEN_LOOKS_NS: u64 = 10_000_000;

/// Tells the host what each kernel does at present, in a line each. Who asks again before that is told hears it once.
pub fn tell(kernel: &'static Kernel, link: Arc<Link>) {
    static UNDER_WAY: AtomicBool = AtomicBool::new(false);
    if !UNDER_WAY.swap(true, AcqRel) {
        kernel.scheduler.spawn(async move {
            link.report(&present(kernel).await);
            UNDER_WAY.store(false, Release);
        });
    }
}

/// Sends the host the text of /proc/cob/activity. Who asks again before that is sent gets it once.
pub fn show_activity(kernel: &'static Kernel, link: Arc<Link>) {
    static UNDER_WAY: AtomicBool = AtomicBool::new(false);
    if !UNDER_WAY.swap(true, AcqRel) {
        kernel.scheduler.spawn(async move {
            link.activity(&String::from_utf8_lossy(&procfs::proc::activity(&kernel.system).await));
            UNDER_WAY.store(false, Release);
        });
    }
}

type Answers = Arc<Lock<BTreeMap<KernelId, (u64, KernelStatus)>>>;

async fn present(kernel: &'static Kernel) -> String {
    let began = kernel.system.now();
    let before = ask(kernel);
    kernel.scheduler.sleep_until(began + SPAN_NS).await;
    let after = ask(kernel);
    let expected = 1 + kernel.system.others().len();
    while after.lock().len() < expected && kernel.system.now() < began + SPAN_NS + PATIENCE_NS {
        kernel.scheduler.sleep_until(kernel.system.now() + BETWEEN_LOOKS_NS).await;
    }
    let (before, after) = (before.lock(), after.lock());
    let mut text = String::new();
    for id in core::iter::once(kernel.system.kernel).chain(kernel.system.others()) {
        let line = match (before.get(&id), after.get(&id)) {
            (Some((from, old)), Some((to, new))) => doing(old, new, to.saturating_sub(*from).max(1)),
            _ => format!("no answer for {} ms", (kernel.system.now() - began) / 1_000_000),
        };
        writeln!(text, "kernel {id}: {line}").expect("a String takes everything");
    }
    text
}

/// Asks all kernels at once; an answer is there when it has come.
fn ask(kernel: &'static Kernel) -> Answers {
    let answers: Answers = Arc::default();
    answers.lock().insert(kernel.system.kernel, (kernel.system.now(), status(kernel)));
    for other in kernel.system.others() {
        let answers = answers.clone();
        kernel.scheduler.spawn(async move {
            if let Ok(status) = kernel.endpoint.call(other, Status {}).await {
                answers.lock().insert(other, (kernel.system.now(), status));
            }
        });
    }
    answers
}

/// What has happened between two answers of a kernel, `ns` apart.
fn doing(old: &KernelStatus, new: &KernelStatus, ns: u64) -> String {
    let percent = |old: &[u64], new: &[u64], cpu: usize| {
        let of = |list: &[u64]| list.get(cpu).copied().unwrap_or(0);
        (of(new).saturating_sub(of(old)) * 100 / ns).min(100)
    };
    let cpus = new.cpus.iter().enumerate().map(|(at, cpu)| {
        let (user, idle) = (percent(&old.user_ns, &new.user_ns, at), percent(&old.idle_ns, &new.idle_ns, at));
        format!("cpu {}: {user} % user, {idle} % idle", cpu.0)
    });
    let rate = |old: u64, new: u64| u128::from(new.saturating_sub(old)) * 1_000_000_000 / u128::from(ns);
    let (used, total) = ((new.memory_total - new.memory_free) / MIB, new.memory_total / MIB);
    format!(
        "{}; {} of {} threads run or wait for a CPU; waits for {} answers, {} wait for it; {} tasks and {} messages/s; {used} of {total} MiB",
        cpus.collect::<Vec<_>>().join(", "),
        new.load,
        new.threads_now,
        new.calls_under_way,
        new.calls_parked,
        rate(old.switches, new.switches),
        rate(old.messages_received, new.messages_received),
    )
}
