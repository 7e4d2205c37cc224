//! What kernels say about themselves (messages of `messages::control`).

use crate::{death, services::Kernel};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use machine::{errno::Result, Errno, KernelId};
use messages::control::{
    Boot, Hello, KernelDied, KernelState, Meet, MessageTypes, Partition, Partitions, Ping, Resources, Status, Stop,
    TakeStock,
};
use platform::board::{self, State};

fn resources(kernel: &Kernel) -> Resources {
    let own = &kernel.plan.kernels[kernel.system.kernel.index()];
    Resources {
        cpus: kernel.system.cpu.cpus().to_vec(),
        memory_bytes: own.memory.iter().map(|range| range.bytes()).sum(),
        nodes: own.memory.iter().map(|range| range.node as u16).collect(),
    }
}

/// Registers the handlers, connects whoever is there, and boots the secondaries that the plan wants now.
pub fn start(kernel: &'static Kernel) {
    let endpoint = &kernel.endpoint;
    endpoint.on_sync::<Hello, _>(move |from, hello| {
        kernel.system.add_kernel(from, hello.resources.cpus);
        resources(kernel)
    });
    endpoint.on_sync::<Ping, _>(|_, ping| ping.payload);
    endpoint.on_to_completion::<Boot, _, _>(move |_, ask| boot(kernel, ask.kernel));
    endpoint.on::<Meet, _, _>(move |_, ask| meet(kernel, ask.newcomers));
    endpoint.on_sync::<Status, _>(move |_, _| crate::report::status(kernel));
    endpoint.on_sync::<TakeStock, _>(move |_, _| crate::audit::stock(kernel));
    endpoint.on_sync::<MessageTypes, _>(move |_, _| kernel.system.message_types());
    endpoint.on_sync::<Partitions, _>(move |_, _| partitions(kernel));
    endpoint.on_to_completion::<KernelDied, _, _>(move |_, notice| death::mourn(kernel, notice.kernel));
    endpoint.on_sync::<Stop, _>(|from, ask| death::stop(from, ask.status));
    crate::tracing::serve(kernel);
    death::set_policy(kernel);
    for partition in &kernel.plan.kernels {
        for cpu in &partition.cpus {
            let node = partition.memory.first().map_or(0, |range| range.node);
            kernel.system.set_node(*cpu, node);
        }
    }
    kernel.system.set_node_distances(&kernel.plan.topology.distances);
    for peer in kernel.lanes.connect(&kernel.port) {
        endpoint.add_peer(peer);
        greet(kernel, peer);
    }
    if kernel.system.kernel == KernelId::PRIMARY {
        boot_secondaries(kernel);
    }
}

fn boot_secondaries(kernel: &'static Kernel) {
    let wanted = match kernel.plan.boot_now() {
        Ok(wanted) => wanted,
        Err(error) => return log::error!("cob.boot: {error}"),
    };
    for id in wanted.into_iter().filter(|id| *id != KernelId::PRIMARY) {
        if let Err(error) = platform::boot_kernel(id) {
            log::error!("kernel {id} does not boot: {error:?}");
        }
    }
}

/// Introduces this kernel to one that has just been connected.
pub fn greet(kernel: &Kernel, peer: KernelId) {
    let (endpoint, system) = (kernel.endpoint.clone(), kernel.system.clone());
    let hello = Hello { resources: resources(kernel) };
    kernel.scheduler.spawn(async move {
        match endpoint.call(peer, hello).await {
            Ok(theirs) => system.add_kernel(peer, theirs.cpus),
            Err(error) => log::warn!("kernel {peer} does not answer: {error:?}"),
        }
    });
}

/// Boots a kernel and returns when it has met all others: from then on its CPUs can be used from anywhere.
async fn boot(kernel: &'static Kernel, id: KernelId) -> Result<()> {
    if kernel.plan.partition(id).is_none() {
        return Err(Errno::EINVAL);
    }
    if board::entry(id).state() == State::Dead {
        death::bury(kernel, id).await;
    }
    platform::boot_kernel(id)?;
    introduce(kernel, Vec::from([id])).await;
    match kernel.endpoint.is_alive(id) {
        true => Ok(()),
        false => Err(Errno::EIO),
    }
}

/// Before the first program: waits for the kernels that are booted with the machine.
pub async fn gather(kernel: &'static Kernel) {
    introduce(kernel, kernel.plan.boot_now().unwrap_or_default()).await;
}

/// Waits until `newcomers` know everybody, and everybody knows them.
async fn introduce(kernel: &'static Kernel, newcomers: Vec<KernelId>) {
    meet(kernel, newcomers.clone()).await;
    let others = kernel.endpoint.others();
    let everybody = others.iter().chain([kernel.system.kernel]).collect::<Vec<_>>();
    kernel.endpoint.multicast(&others, Meet { newcomers: everybody }).await;
    kernel.system.tell_facts(&others).await;
}

/// Waits until this kernel knows `newcomers`, except those that do not come any more.
pub async fn meet(kernel: &'static Kernel, newcomers: Vec<KernelId>) {
    let gone = |id: KernelId| matches!(board::entry(id).state(), State::Dead | State::Absent);
    kernel.system.wait_for_kernels(|known| newcomers.iter().all(|id| known.contains(id) || gone(*id))).await;
}

fn partitions(kernel: &Kernel) -> Vec<Partition> {
    let all = kernel.plan.kernels.iter().enumerate();
    all.map(|(index, partition)| {
        let entry = board::entry(KernelId(index as u16));
        Partition {
            kernel: KernelId(index as u16),
            state: match entry.state() {
                State::Absent => KernelState::Absent,
                State::Starting | State::Up => KernelState::Starting,
                State::Running => KernelState::Running,
                State::Dead => KernelState::Dead,
            },
            boot_generation: entry.lifecycle().boot_generation.load(Relaxed),
            cpus: partition.cpus.clone(),
            memory_bytes: partition.memory.iter().map(|range| range.bytes()).sum(),
        }
    })
    .collect()
}
