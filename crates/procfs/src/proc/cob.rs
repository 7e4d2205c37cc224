//! What Linux does not have: /proc/cob, and /proc/PID/cob with the kernels that a process is spread over.

use super::{
    activity, control,
    machine::statuses,
    made::{number_list, put, Directory as Names, Made, Text},
    trace, Proc, Subject,
};
use ::machine::{errno::Result, Errno, KernelSet, PAGE_SIZE};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use fs::Caller;
use messages::{
    control::{MessageTypes, Partitions},
    inspect::{Inspect, Inspection, ProcessView},
    vm::{OwnedRange, ReplicaReport, Spread},
};

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    names
        .file("kernels", Made { source: proc.clone(), make: kernels })
        .file("activity", Made { source: proc.clone(), make: activity::file })
        .file("messages", Made { source: proc.clone(), make: message_counts })
        .file("types", Made { source: proc.clone(), make: message_types })
        .with("boot", control::boot(proc))
        .with("stop", control::stop(proc))
        .with("panic", control::panic(proc))
        .with("hang", control::hang(proc))
        .with("probe", control::probe(proc))
        .with("trace", trace::events(proc))
}

/// Every partition of the plan; numbers where there is a kernel to ask.
async fn kernels(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "kernel state    boots cpus        memory_kB    free_kB  threads  load  moved_in moved_out faults_local faults_remote\n");
    let endpoint = &proc.system.endpoint;
    let partitions = endpoint.call(proc.system.kernel, Partitions {}).await.map_err(Errno::from)?;
    let statuses: BTreeMap<_, _> = statuses(&proc.system).await.into_iter().collect();
    for partition in partitions {
        let state = activity::name_of(partition.state);
        let cpus = number_list(partition.cpus.iter().map(|cpu| cpu.0));
        put!(text, "{:<6} {state:<8} {:>5} {cpus:<10}", partition.kernel.0, partition.boot_generation);
        match statuses.get(&partition.kernel) {
            Some(status) => put!(
                text,
                " {:>10} {:>10} {:>8} {:>5} {:>9} {:>9} {:>12} {:>13}\n",
                status.memory_total / 1024,
                status.memory_free / 1024,
                status.threads_now,
                status.load,
                status.migrations_in,
                status.migrations_out,
                status.faults_local,
                status.faults_remote,
            ),
            None => put!(text, " {:>10}\n", partition.memory_bytes / 1024),
        }
    }
    Ok(text.0)
}

async fn message_counts(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "kernel       sent   received doorbells_sent doorbells_suppressed\n");
    for (kernel, status) in statuses(&proc.system).await {
        put!(
            text,
            "{:<6} {:>10} {:>10} {:>14} {:>15}\n",
            kernel.0,
            status.messages_sent,
            status.messages_received,
            status.doorbells_sent,
            status.doorbells_suppressed,
        );
    }
    Ok(text.0)
}

/// Messages sent, by type: a column for each kernel.
async fn message_types(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let system = &proc.system;
    let mut kernels = alloc::vec![(system.kernel, system.message_types())];
    for kernel in system.others() {
        if let Ok(counts) = system.endpoint.call(kernel, MessageTypes {}).await {
            kernels.push((kernel, counts));
        }
    }
    kernels.sort_by_key(|(kernel, _)| *kernel);
    let mut text = Text::default();
    put!(text, "{:<20}", "sent by kernel");
    for (kernel, _) in &kernels {
        put!(text, " {:>10}", kernel.0);
    }
    put!(text, "\n");
    for message in messages::CATALOGUE {
        let sent = |counts: &[(u16, u64, u64)]| {
            counts.iter().find(|(kind, ..)| *kind == message.kind.0).map_or(0, |(_, sent, _)| *sent)
        };
        if kernels.iter().all(|(_, counts)| sent(counts) == 0) {
            continue;
        }
        put!(text, "{:<20}", message.name);
        for (_, counts) in &kernels {
            put!(text, " {:>10}", sent(counts));
        }
        put!(text, "\n");
    }
    Ok(text.0)
}

/// Where its threads and pages are, and who answers for which addresses.
pub(super) async fn process(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let mut text = Text::default();
    put!(text, "thread     kernel cpu  allowed\n");
    for thread in view.threads.iter().filter(|thread| subject.thread.is_none_or(|wanted| wanted == thread.thread)) {
        let allowed = number_list(thread.affinity.iter().map(|cpu| cpu.0));
        put!(text, "{:<10} {:<6} {:<4} {allowed}\n", thread.thread.0, thread.kernel.0, thread.cpu.0);
    }
    match subject.inspect(Inspect::Spread, &caller).await {
        Ok(Inspection::Spread(spread)) => {
            kernels_of(&mut text, &view, &spread);
            owners_of(&mut text, &spread);
            Ok(text.0)
        }
        // A zombie has no memory, and not everybody may look at that of others.
        Err(Errno::ENOENT | Errno::EACCES) => Ok(text.0),
        Ok(_) => Err(Errno::EIO),
        Err(error) => Err(error),
    }
}

/// A line for each kernel that has something of the process. Every page is counted once in `memory_kB`, by the partition its
/// frame lies in; in `mapped_kB` by each kernel that has it in its page table.
fn kernels_of(text: &mut Text, view: &ProcessView, spread: &Spread) {
    let own = |report: &ReplicaReport| report.frames.iter().map(|(home, _)| *home).collect::<Vec<_>>();
    let replicas = spread.replicas.iter().flat_map(|(kernel, report)| own(report).into_iter().chain([*kernel]));
    let kernels: KernelSet = view.threads.iter().map(|thread| thread.kernel).chain(replicas).collect();
    let kib = |pages: u64| pages * (PAGE_SIZE as u64 / 1024);
    let nothing = ReplicaReport::default();
    put!(text, "\nkernel threads  memory_kB   owned_kB  mapped_kB exported_kB faults_local faults_remote\n");
    for kernel in kernels.iter() {
        let threads = view.threads.iter().filter(|thread| thread.kernel == kernel).count();
        let frames = spread.replicas.iter().flat_map(|(_, report)| &report.frames);
        let memory = frames.filter(|(home, _)| *home == kernel).map(|(_, pages)| pages).sum();
        let replica = spread.replicas.iter().find(|(known, _)| *known == kernel).map_or(&nothing, |(_, report)| report);
        put!(
            text,
            "{:<6} {threads:>7} {:>10} {:>10} {:>10} {:>11} {:>12} {:>13}\n",
            kernel.0,
            kib(memory),
            kib(replica.owned),
            kib(replica.mapped),
            kib(replica.exported),
            replica.faults_local,
            replica.faults_remote,
        );
    }
}

/// All addresses in order, cut where another kernel answers for them.
fn owners_of(text: &mut Text, spread: &Spread) {
    put!(text, "\naddresses                 owner  slice_of\n");
    for OwnedRange { range, owner, slice } in &spread.owners {
        put!(text, "{:012x}-{:012x} {:<6} ", range.start.address().0, range.end.address().0, owner.0);
        match slice {
            Some(kernel) => put!(text, "{}\n", kernel.0),
            // Nobody has mapped anything there from elsewhere.
            None => put!(text, "-\n"),
        }
    }
    let left_out: u64 = spread.replicas.iter().map(|(_, report)| report.parts_left_out).sum();
    if left_out > 0 {
        put!(text, "{left_out} parts with another owner than their slice are not shown\n");
    }
}
