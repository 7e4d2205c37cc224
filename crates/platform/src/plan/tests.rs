use super::*;

const M: u64 = 1 << 20;

fn machine(cpus: u32, nodes: u32, megabytes: u64) -> Topology {
    let each = megabytes / u64::from(nodes) * M;
    Topology {
        cpus: (0..cpus).map(|cpu| CpuInfo { apic: cpu, node: cpu * nodes / cpus }).collect(),
        memory: (0..nodes)
            .map(|node| {
                let start = u64::from(node) * each;
                MemoryRange { start: start.max(M), end: start + each, node }
            })
            .collect(),
        ..Topology::default()
    }
}

/// Disjoint, aligned, within RAM, and big enough: what must hold of any plan.
fn check(plan: &Plan) {
    let mut all: Vec<_> = plan.kernels.iter().flat_map(|k| k.memory.clone()).collect();
    all.sort_by_key(|m| m.start);
    assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:x?}");
    for range in &all {
        assert!(range.start % PARTITION_ALIGN == 0 && range.end % PARTITION_ALIGN == 0);
        let ram = |m: &MemoryRange| m.start <= range.start && range.end <= m.end && m.node == range.node;
        assert!(plan.topology.memory.iter().any(ram), "{range:x?}");
    }
    assert_eq!(plan.home_of(PRIMARY_IMAGE_PHYS), Some(KernelId(0)));
    let mut cpus: Vec<_> = plan.kernels.iter().flat_map(|k| k.cpus.clone()).collect();
    let count = cpus.len();
    cpus.sort();
    cpus.dedup();
    assert_eq!(cpus.len(), count);
}

fn sizes(plan: &Plan) -> Vec<u64> {
    plan.kernels.iter().map(|k| k.memory.iter().map(MemoryRange::bytes).sum::<u64>() / M).collect()
}

#[test]
fn kernels_split_cpus_and_memory_evenly() {
    for (cpus, kernels) in [(4, 1), (4, 4), (16, 16), (8, 2), (5, 3), (4, 3)] {
        let plan = Plan::new(machine(cpus, 1, 1024), &format!("cob.kernels={kernels}")).unwrap();
        check(&plan);
        assert_eq!(plan.kernels.len(), kernels);
        let (least, most) = (*sizes(&plan).iter().min().unwrap(), *sizes(&plan).iter().max().unwrap());
        assert!(most - least <= 2, "{:?}", sizes(&plan));
    }
}

#[test]
fn a_kernel_per_node_has_the_memory_of_its_node() {
    let plan = Plan::new(machine(8, 2, 1024), "cob.partition=node").unwrap();
    check(&plan);
    assert_eq!(plan.kernels[1].cpus, [4, 5, 6, 7].map(CpuId));
    assert!(plan.kernels.iter().zip(0..).all(|(k, node)| k.memory.iter().all(|m| m.node == node)));
}

#[test]
fn memory_of_a_node_without_cpus_goes_to_all() {
    let mut topology = machine(4, 2, 1024);
    topology.cpus.iter_mut().for_each(|cpu| cpu.node = 0);
    let plan = Plan::new(topology, "cob.kernels=2").unwrap();
    check(&plan);
    assert!(plan.kernels.iter().all(|k| k.memory.iter().any(|m| m.node == 1)));
}

#[test]
fn kernels_of_two_cpus_across_a_hole_in_memory() {
    let mut topology = machine(8, 1, 2048);
    topology.memory.push(MemoryRange { start: 4096 * M, end: 5120 * M, node: 0 });
    let plan = Plan::new(topology, "quiet cob.partition=2").unwrap();
    check(&plan);
    assert_eq!(plan.kernels.len(), 4);
    assert_eq!(sizes(&plan)[1], sizes(&plan)[2]);
}

#[test]
fn explicit_lists_are_obeyed() {
    let plan = Plan::new(machine(4, 1, 1024), "cob.partition=0-1@256M;3@0x20000000-0x28000000+32M;2").unwrap();
    check(&plan);
    assert_eq!(plan.kernels[1].cpus, [CpuId(3)]);
    assert_eq!(sizes(&plan)[..2], [256, 160]);
    assert_eq!(plan.home_of(0x2000_0000), Some(KernelId(1)));
    assert_eq!(plan.kernel_of(CpuId(2)), Some(KernelId(2)));
}

#[test]
fn wrong_lists_are_refused_with_a_reason() {
    for text in [
        "cob.kernels=5",
        "cob.kernels=0",
        "cob.kernels=x",
        "cob.partition=0",
        "cob.partition=1;0",
        "cob.partition=0;0",
        "cob.partition=0@9G",
        "cob.partition=0;9",
        "cob.partition=0@5Q",
        "cob.partition=0@0x100-0x200",
        "cob.partition=0@0x40000000-0x80000000",
        "cob.partition=0;1@0x200000-0x400000",
        "cob.partition=0;1@2M",
        "cob.partition=0-99999999999",
        "cob.partition=0-65537",
    ] {
        assert!(Plan::new(machine(4, 1, 1024), text).is_err(), "{text}");
    }
    assert!(Plan::new(machine(16, 1, 128), "cob.kernels=16").is_err());
}

#[test]
fn which_to_boot() {
    let boot = |text: &str| Plan::new(machine(4, 1, 1024), text).unwrap().boot_now();
    assert_eq!(boot("cob.kernels=4").unwrap(), [1, 2, 3].map(KernelId));
    assert_eq!(boot("cob.kernels=4 cob.boot=0,2-3").unwrap(), [2, 3].map(KernelId));
    assert_eq!(boot("cob.kernels=4 cob.boot=none").unwrap(), []);
    assert!(boot("cob.kernels=4 cob.boot=4").is_err());
}
