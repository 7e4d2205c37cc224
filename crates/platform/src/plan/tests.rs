use super::memory::Pool;
use super::*;
use crate::layout::PRIMARY_IMAGE_PHYS;
use proptest::{collection::vec, prelude::*};

const M: u64 = 1 << 20;

fn machine(cpus: u32, nodes: u32, megabytes: u64) -> Topology {
    let each = megabytes / u64::from(nodes) * M;
    Topology {
        cpus: (0..cpus).map(|cpu| CpuInfo { hardware_id: cpu, node: cpu * nodes / cpus }).collect(),
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
    check_cut(plan, &plan.topology.memory);
}

fn check_cut(plan: &Plan, memory: &[MemoryRange]) {
    let mut all: Vec<_> = plan.kernels.iter().flat_map(|k| k.memory.clone()).collect();
    all.sort_by_key(|m| m.start);
    assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:x?}");
    for range in &all {
        assert!(range.start % PARTITION_ALIGN == 0 && range.end % PARTITION_ALIGN == 0);
        let ram = |m: &MemoryRange| m.start <= range.start && range.end <= m.end && m.node == range.node;
        assert!(memory.iter().any(ram), "{range:x?}");
    }
    for (index, partition) in plan.kernels.iter().enumerate() {
        let boot =
            partition.boot_range().unwrap_or_else(|| panic!("kernel {index} has nowhere to boot: {partition:x?}"));
        assert!(boot.bytes() >= LEAST_MEMORY);
        assert!(partition.memory.windows(2).all(|pair| pair[0].end <= pair[1].start), "ascending");
    }
    assert_eq!(plan.kernels[0].boot_range().map(|range| range.start), Some(PRIMARY_IMAGE_PHYS));
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

/// As QEMU's q35 has it: what does not fit below 2 GiB lies above 4 GiB.
fn q35(cpus: u32, megabytes: u64) -> Topology {
    let low = if megabytes >= 2816 { 2048 } else { megabytes };
    let mut topology = machine(cpus, 1, low);
    if low < megabytes {
        topology.memory.push(MemoryRange { start: 4096 * M, end: (4096 + megabytes - low) * M, node: 0 });
    }
    topology
}

#[test]
fn machines_of_every_size_are_cut() {
    for megabytes in [512, 1024, 3072, 4096, 5120, 8192] {
        for kernels in [1, 3, 4, 7, 8, 12, 16, 32, 64] {
            let plan = Plan::new(q35(kernels, megabytes), &format!("cob.kernels={kernels}"));
            let share = (megabytes - 2) / u64::from(kernels) / 2 * 2;
            if share < 16 {
                let words = format!("would have {share} MiB of memory, and a kernel needs 16 MiB");
                assert!(plan.unwrap_err().contains(&words));
                continue;
            }
            let plan = plan.unwrap();
            check(&plan);
            assert!(sizes(&plan).iter().all(|size| *size == share), "{megabytes} {kernels}: {:?}", sizes(&plan));
        }
    }
}

/// Two kernels of 4 GiB: half of the machine does not fit behind the image, for the firmware has the end of what lies below the hole.
#[test]
fn an_initramfs_has_room_behind_the_primarys_image() {
    let mut topology = q35(2, 4096);
    topology.memory[0].end -= 2 * M;
    let plan = Plan::new(topology, "cob.kernels=2").unwrap();
    let first = plan.kernels[0].boot_range().unwrap();
    assert!(first.start < 32 * M && first.end == 2046 * M, "{:x?}", plan.kernels[0].memory);
    check(&plan);
}

#[test]
fn a_share_lies_in_one_piece_where_it_can() {
    let plan = Plan::new(q35(16, 4096), "cob.kernels=16").unwrap();
    assert!(plan.kernels.iter().all(|kernel| kernel.memory.len() == 1), "{:x?}", plan.kernels);
}

proptest! {
    /// Ranges of any size at any distance, aligned or not, said twice or overlapping: if there is a place to boot in and a share for each
    /// kernel, there is a plan, and it is right.
    #[test]
    fn any_memory_map_is_cut_right(
        pieces in vec((0u64..40 << 20, 1u64..90 << 20, any::<bool>()), 0..12),
        low in 0u64..300 << 20,
        fine in any::<bool>(),
        kernels in 1u32..9,
    ) {
        let unit = if fine { 4096 } else { M };
        let mut memory = std::vec![MemoryRange { start: M, end: 18 * M + low / unit * unit, node: 0 }];
        for (gap, bytes, overlaps) in pieces {
            let last = memory[memory.len() - 1];
            let start = if overlaps { last.start } else { last.end + gap / unit * unit };
            memory.push(MemoryRange { start, end: start + bytes / unit * unit, node: 0 });
        }
        let pool = Pool::new(&memory).0;
        let topology = Topology { memory, ..machine(kernels, 1, 1024) };
        let total: u64 = pool.iter().map(MemoryRange::bytes).sum();
        let places: u64 = pool.iter().map(|range| range.bytes() / LEAST_MEMORY).sum();
        let share = total / u64::from(kernels) / PARTITION_ALIGN * PARTITION_ALIGN;
        match Plan::new(topology, &format!("cob.kernels={kernels}")) {
            Ok(plan) => {
                check_cut(&plan, &pool);
                prop_assert!(plan.kernels.iter().all(|k| k.memory.iter().map(MemoryRange::bytes).sum::<u64>() == share));
            }
            Err(reason) => prop_assert!(share < LEAST_MEMORY || places < u64::from(kernels), "{reason}"),
        }
    }

    /// Nodes with memory in several ranges, or none, and kernels that are asked for by size: what comes out is right or is refused.
    #[test]
    fn nodes_and_sizes_are_cut_right(
        pieces in vec((0u64..30, 1u64..60, 0u32..4), 1..10),
        sizes in vec(proptest::option::of(0u64..50), 1..6),
    ) {
        let mut memory = std::vec![MemoryRange { start: M, end: 64 * M, node: 0 }];
        for (gap, megabytes, node) in pieces {
            let start = memory[memory.len() - 1].end + gap * M;
            memory.push(MemoryRange { start, end: start + megabytes * M, node });
        }
        let pool = Pool::new(&memory).0;
        let topology = Topology { memory, ..machine(sizes.len() as u32, 1 + sizes.len() as u32 / 2, 1024) };
        let size = |size: &Option<u64>| size.map_or(String::new(), |megabytes| format!("@{megabytes}M"));
        let list: Vec<String> = sizes.iter().enumerate().map(|(cpu, wanted)| format!("{cpu}{}", size(wanted))).collect();
        if let Ok(plan) = Plan::new(topology, &format!("cob.partition={}", list.join(";"))) {
            check_cut(&plan, &pool);
            for (index, (kernel, wanted)) in plan.kernels.iter().zip(&sizes).enumerate() {
                let bytes: u64 = kernel.memory.iter().map(MemoryRange::bytes).sum();
                // The primary has its image, however little it asks for.
                let least = if index == 0 { LEAST_MEMORY } else { 0 };
                prop_assert!(wanted.is_none_or(|mib| bytes == (mib / 2 * 2 * M).max(least)), "{bytes:#x} {wanted:?}");
            }
        }
    }
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

#[test]
fn who_drives_which_disk() {
    let disks = |text: &str, ecam: bool| {
        let mut machine = machine(4, 1, 1024);
        machine.ecam = ecam.then_some(Ecam { base: 0xb000_0000, first_bus: 0, last_bus: 255 });
        Plan::new(machine, text).unwrap().disks_elsewhere()
    };
    assert!(disks("cob.kernels=4", true).unwrap().is_empty());
    let found = disks("cob.kernels=4 cob.devices=blk0@2,blk3@0,blk1@1", true).unwrap();
    assert_eq!(found, BTreeMap::from([(0, KernelId(2)), (1, KernelId(1))]));
    assert!(disks("cob.kernels=4 cob.devices=blk0@0", false).unwrap().is_empty());
    for (text, ecam) in [("blk0@1", false), ("blk0@4", true), ("blk0", true), ("net0@1", true), ("blk@1", true)] {
        assert!(disks(&format!("cob.kernels=4 cob.devices={text}"), ecam).is_err(), "{text}");
    }
}
