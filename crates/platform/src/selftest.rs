//! `cob.selftest=platform`: what only the machine itself can show. Each check panics when it fails, and
//! then QEMU ends with status 251; when all kernels are through, with 85.

use crate::arch::selftest::FOREVER;
use crate::lanes::Lanes;
use crate::layout::Area;
use crate::{arch, board, clock, irq, kmap, percpu, Boot, Events};
use alloc::{sync::Arc, vec, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use fabric::{LanePort, Port};
use machine::{
    Access, CpuId, Errno, KernelId, Mapping, Memory, PageRange, PageTable, Registers, Soft, Trap, UserAddr, UserFault,
    UserRegisters,
};
use messages::Priority;

pub(crate) const CODE: UserAddr = UserAddr(0x40_0000);
const DATA: UserAddr = UserAddr(0x50_0000);
pub(crate) const WILD: UserAddr = UserAddr(0x60_0000);

/// Nothing keeps a CPU from running user code.
pub(crate) static GO: AtomicBool = AtomicBool::new(false);

static GREETED: AtomicU32 = AtomicU32::new(0);

/// Runs on the boot CPU of every kernel.
pub fn run(boot: &Boot) {
    if board::entry(boot.kernel).lifecycle().boot_generation.load(Acquire) > 1 {
        return reborn();
    }
    crate::start_siblings(sibling).expect("every sibling starts");
    while GREETED.load(Acquire) as usize != boot.cpus.len() - 1 {
        core::hint::spin_loop();
    }
    copies();
    arch::selftest::protections();
    let table = crate::memory().new_table().expect("memory for a table");
    arch::selftest::user_mode(&table);
    user_copies(&*table);
    alarm(&*table);
    kicks(&table, boot.cpus);
    flush_reaches_a_running_cpu(&table, boot.cpus);
    arch::selftest::extended_state();
    refused_mappings(boot);
    audit(boot);
    random();
    let lanes = Lanes::open();
    boot_next(boot);
    exchange(boot, &lanes);
    if boot.kernel == KernelId::PRIMARY {
        crate::panic::exit_machine(PASSED);
    }
}

/// `cob.selftest=stack`: uses up the stack of this CPU. It must end in a panic that says so.
pub fn overflow_stack() -> ! {
    fn deeper(depth: u64) -> u64 {
        let here = core::hint::black_box([depth; 32]);
        here[31] + if depth < u64::MAX { deeper(depth + 1) } else { 0 }
    }
    panic!("{} calls fit into the stack", deeper(0))
}

/// QEMU ends with twice that plus one: 85.
const PASSED: u32 = 42;

static RUN_ON_SIBLING: machine::sync::Lock<Option<Arc<dyn PageTable>>> = machine::sync::Lock::new(None);
static SIBLING_TRAPS: AtomicU64 = AtomicU64::new(0);
static SIBLING_LAST: AtomicU64 = AtomicU64::new(0);

/// Runs user code whenever there is some, and counts how it comes back.
fn sibling(cpu: CpuId) -> ! {
    assert_eq!(crate::cpu().current(), cpu);
    GREETED.fetch_add(1, AcqRel);
    loop {
        let table = RUN_ON_SIBLING.lock().clone();
        match table {
            Some(table) if crate::cpu().cpus().get(1) == Some(&cpu) => {
                let mut registers = Registers::of_program(CODE.0, 0);
                SIBLING_TRAPS.fetch_or(1 << 63, AcqRel);
                let trap = crate::cpu().run_user(&mut registers, &*table, &GO);
                SIBLING_LAST.store(if trap == Trap::Interrupt { 1 } else { 2 }, Release);
                SIBLING_TRAPS.fetch_add(1, AcqRel);
                irq::take_events();
            }
            _ => {
                drop(table);
                crate::idle()
            }
        }
    }
}

fn install(table: &dyn PageTable, at: UserAddr, bytes: &[u8], access: Access) {
    let memory = crate::memory();
    let frame = memory.alloc().expect("a frame");
    memory.write(frame, 0, bytes);
    let old = table.set(at.page(), Mapping { frame, access, soft: Soft::empty() });
    if let Some(old) = old.expect("memory for tables") {
        table.flush(PageRange::one(at.page()));
        memory.release(old.frame);
    }
}

pub(crate) fn run_code(table: &Arc<dyn PageTable>, code: &[u8], registers: &mut Registers) -> Trap {
    install(&**table, CODE, code, Access::READ | Access::EXEC);
    registers.set_instruction(CODE.0);
    crate::cpu().run_user(registers, &**table, &GO)
}

fn user_copies(table: &dyn PageTable) {
    install(table, DATA, b"hello\0", Access::READ | Access::WRITE);
    let mut text = [0; 5];
    assert_eq!(table.read(DATA, &mut text), Ok(()));
    assert_eq!(&text, b"hello");
    assert_eq!(table.string_length(DATA, 100), Ok(Some(5)));
    assert_eq!(table.write(DATA.add(4096 - 100), &[b'x'; 100]), Ok(()));
    // A copy that runs off the mapped page says at which byte.
    let mut long = vec![0; 300];
    let edge = UserFault { at: DATA.add(4096), access: Access::READ };
    assert_eq!(table.read(DATA.add(4096 - 77), &mut long), Err(edge));
    assert!(long[..77].iter().all(|&byte| byte == b'x') && long[77] == 0);
    assert_eq!(table.string_length(DATA.add(4096 - 77), 1000), Err(edge));
    let edge = UserFault { access: Access::WRITE, ..edge };
    assert_eq!(table.fill_zero(DATA.add(4096 - 3), 9), Err(edge));
    assert_eq!(table.write(DATA.add(4096 - 3), &long), Err(edge));
    assert_eq!(table.load_u32(DATA), Ok(u32::from_le_bytes(*b"hell")));
    assert_eq!(table.compare_exchange_u32(DATA, 1, 2), Ok(Err(u32::from_le_bytes(*b"hell"))));
    assert!(table.load_u32(WILD).is_err() && table.compare_exchange_u32(WILD, 0, 0).is_err());
    for wild in [UserAddr(u64::MAX - 3), UserAddr(crate::layout::IMAGE_BASE), UserAddr(1 << 47)] {
        assert!(table.read(wild, &mut text).is_err() && table.write(wild, &text).is_err());
        assert!(table.load_u32(UserAddr(wild.0 & !3)).is_err() && table.string_length(wild, 9).is_err());
    }
    // Read-only pages are read-only for the kernel too.
    assert!(table.write(CODE, b"x").is_err());
}

/// memcpy and its kin against a byte at a time: all short lengths, at all offsets in a word, with all overlaps.
fn copies() {
    let fresh = || -> Vec<u8> { (0..256u32).map(|at| (at * 37 + 11) as u8).collect() };
    let seen = |bytes: &mut Vec<u8>| core::hint::black_box(bytes).clone();
    for length in (0..140).chain([200]) {
        for to in 0..16 {
            for from in [0, 1, 7, 8, 9, 15, 16, 23] {
                let (source, mut whole) = (fresh(), vec![0xee; 256]);
                whole[to..to + length].copy_from_slice(&source[from..from + length]);
                let right = |(at, byte): (usize, &u8)| match at.checked_sub(to).filter(|at| *at < length) {
                    Some(at) => *byte == source[from + at],
                    None => *byte == 0xee,
                };
                assert!(seen(&mut whole).iter().enumerate().all(right), "memcpy of {length}");
                let mut moved = fresh();
                moved.copy_within(from..from + length, to);
                let right = |(at, byte): (usize, &u8)| match at.checked_sub(to).filter(|at| *at < length) {
                    Some(at) => *byte == source[from + at],
                    None => *byte == source[at],
                };
                assert!(seen(&mut moved).iter().enumerate().all(right), "memmove of {length}");
            }
            let mut set = fresh();
            set[to..to + length].fill(core::hint::black_box(0xa5));
            let source = fresh();
            let right =
                |(at, byte): (usize, &u8)| *byte == if (to..to + length).contains(&at) { 0xa5 } else { source[at] };
            assert!(seen(&mut set).iter().enumerate().all(right), "memset of {length}");
        }
    }
}

/// The timer interrupts a program that never gives up the CPU, and ends the halt of an idle one.
fn alarm(table: &dyn PageTable) {
    irq::take_events();
    install(table, CODE, &FOREVER, Access::READ | Access::EXEC);
    for in_user in [true, false] {
        let at = clock::now() + 3_000_000;
        let mut seen = Events::empty();
        while !seen.contains(Events::TIMER) {
            crate::cpu().set_alarm(Some(at));
            if in_user {
                let mut r = Registers::of_program(CODE.0, 0);
                assert_eq!(crate::cpu().run_user(&mut r, table, &GO), Trap::Interrupt);
            } else {
                crate::idle();
            }
            seen |= irq::take_events();
        }
        assert!(clock::now() >= at || in_user, "an alarm came early");
    }
    crate::cpu().set_alarm(None);
}

/// Kicks make a sibling leave user mode.
fn kicks(table: &Arc<dyn PageTable>, cpus: &[CpuId]) {
    let Some(&sibling) = cpus.get(1) else { return };
    *RUN_ON_SIBLING.lock() = Some(table.clone());
    for round in 0..20 {
        crate::cpu().kick(sibling);
        while SIBLING_TRAPS.load(Acquire) & 0xffff <= round {
            // One kick may come before the sibling entered user mode.
            clock::delay(100_000);
            crate::cpu().kick(sibling);
        }
    }
    assert_eq!(SIBLING_LAST.load(Acquire), 1);
}

/// A page is taken away from a program that is running: after the flush it can't use it.
fn flush_reaches_a_running_cpu(table: &Arc<dyn PageTable>, cpus: &[CpuId]) {
    if cpus.len() < 2 {
        return;
    }
    let old = table.clear(CODE.page()).expect("the code page");
    table.flush(PageRange::one(CODE.page()));
    crate::memory().release(old.frame);
    // The flush ended the sibling's stay; the next one faults.
    let give_up = clock::now() + 5_000_000_000;
    while SIBLING_LAST.load(Acquire) != 2 {
        assert!(clock::now() < give_up, "the sibling still runs on a page that is gone");
    }
    *RUN_ON_SIBLING.lock() = None;
    install(&**table, CODE, &FOREVER, Access::READ | Access::EXEC);
}

fn refused_mappings(boot: &Boot) {
    for (index, partition) in boot.plan.kernels.iter().enumerate() {
        let phys = partition.memory[0].end - 0x1000;
        let shared = kmap::map_shared(phys, 0x1000).err();
        assert_eq!(shared, Some(Errno::EPERM), "kernel {index}");
        assert_eq!(kmap::map_mmio(phys, 0x1000).err(), Some(Errno::EPERM));
    }
}

/// Invariant 1.
fn audit(boot: &Boot) {
    let found = crate::audit_kernel_mappings();
    let foreign: Vec<_> = found.iter().filter(|run| run.reason == kmap::Reason::Foreign).collect();
    assert!(foreign.is_empty(), "{foreign:x?}");
    assert!(found.iter().all(|run| run.reason != kmap::Reason::Window), "no window is open");
    let writable_text = found.iter().any(|run| arch::selftest::is_writable_text(run.mapped.bits));
    assert!(!writable_text);
    let own: u64 =
        found.iter().filter(|run| run.reason == kmap::Reason::Own(Area::Direct)).map(|run| run.mapped.bytes).sum();
    let planned: u64 = boot.memory.iter().map(|m| m.bytes()).sum();
    // The image, mapped where it runs, is not in the direct map.
    let image = (crate::image_end() - crate::layout::IMAGE_BASE).next_multiple_of(2 << 20);
    assert!(own <= planned && planned - own <= image, "{planned:#x} planned, {own:#x} mapped");
    let (total, free) = crate::memory().totals();
    log::info!("kernel {} uses {} of {} KiB; heap and all", boot.kernel, (total - free) * 4, total * 4);
}

fn random() {
    let (mut first, mut second) = ([0; 32], [0; 32]);
    crate::cpu().random(&mut first);
    crate::cpu().random(&mut second);
    assert!(first != second && first != [0; 32]);
}

/// Every kernel boots the next one of the list: any kernel can.
fn boot_next(boot: &Boot) {
    let wanted = boot.plan.boot_now().unwrap_or_else(|why| panic!("{why}"));
    let next = match wanted.iter().position(|&kernel| kernel == boot.kernel) {
        Some(at) => wanted.get(at + 1),
        None => wanted.first(),
    };
    if let Some(&kernel) = next {
        let before = clock::now();
        crate::boot_kernel(kernel).unwrap_or_else(|error| panic!("kernel {kernel}: {error:?}"));
        log::info!("kernel {kernel} booted in {} us", (clock::now() - before) / 1000);
        assert_eq!(crate::boot_kernel(kernel), Err(Errno::EBUSY));
    }
    assert_eq!(crate::boot_kernel(KernelId(boot.plan.kernels.len() as u16)), Err(Errno::EINVAL));
    assert_eq!(crate::boot_kernel(boot.kernel), Err(Errno::EBUSY));
    // Booting left no window on anybody's memory.
    assert!(crate::audit_kernel_mappings().iter().all(|run| run.reason != kmap::Reason::Window));
}

const MESSAGES: u32 = 300;

/// Everybody sends to everybody, in both priorities, and halts whenever there is nothing to do: so lanes
/// and doorbells are at work together. The last message of a secondary says that it is through.
fn exchange(boot: &Boot, lanes: &Lanes) {
    let all = || (0..boot.plan.kernels.len() as u16).map(KernelId);
    let booted = boot.plan.boot_now().unwrap_or_default();
    let peers: Vec<_> =
        all().filter(|&k| k != boot.kernel && (k == KernelId::PRIMARY || booted.contains(&k))).collect();
    let port = lanes.port();
    let mut connected = Vec::new();
    while connected.len() < peers.len() || lanes.incomplete() {
        connected.extend(lanes.connect(&port));
        if connected.len() < peers.len() {
            crate::idle();
        }
    }
    let mut sent = vec![0; peers.len()];
    let mut received = vec![[0u32; 2]; peers.len()];
    let mut message = [0; 150];
    loop {
        port.set_polling(true);
        let mut busy = false;
        for (index, &peer) in peers.iter().enumerate() {
            let number = sent[index];
            message[..4].copy_from_slice(&u32::to_le_bytes(number));
            let priority = PRIORITIES[number as usize % 2];
            if number < MESSAGES && port.try_send(peer, priority, &message).is_ok() {
                sent[index] += 1;
                busy = true;
                port.ring(peer);
            }
            busy |= receive(&port, peer, &mut received[index]);
        }
        port.set_polling(false);
        let waiting = peers.iter().any(|&peer| PRIORITIES.iter().any(|&priority| port.pending(peer, priority)));
        if sent.iter().all(|&n| n == MESSAGES) && received.iter().all(|n| n[0] + n[1] == MESSAGES) {
            break;
        }
        // A full lane empties without a word, so only who has sent everything may halt.
        if !busy && !waiting && sent.iter().all(|&n| n == MESSAGES) {
            crate::idle();
        }
    }
    audit(boot);
    if boot.kernel != KernelId::PRIMARY {
        log::info!("selftest passed on kernel {} with {} CPUs", boot.kernel, boot.cpus.len());
        port.try_send(KernelId::PRIMARY, Priority::High, b"through").expect("the lane is empty");
        port.ring(KernelId::PRIMARY);
        assert_eq!(wait_for_message(&port, KernelId::PRIMARY), b"die");
        crate::panic::die_alone();
    }
    for &peer in &peers {
        assert_eq!(wait_for_message(&port, peer), b"through");
    }
    if let Some(&victim) = booted.first() {
        restart(lanes, &port, victim);
    }
    assert_eq!(percpu::current().hardware_id, arch::hardware_id());
    log::info!("selftest passed on all kernels");
}

fn wait_for_message(port: &LanePort, from: KernelId) -> Vec<u8> {
    let mut buffer = Vec::new();
    while !port.try_recv(from, Priority::High, &mut buffer) {
        // Clears what says that an interrupt is under way, then looks once more.
        port.set_polling(true);
        port.set_polling(false);
        if !port.pending(from, Priority::High) {
            crate::idle();
        }
    }
    buffer
}

/// A kernel dies, its siblings with it, and is booted again while the others go on.
fn restart(lanes: &Lanes, port: &LanePort, victim: KernelId) {
    for generation in [2, 3] {
        port.try_send(victim, Priority::High, b"die").expect("the lane is empty");
        port.ring(victim);
        while board::entry(victim).state() != board::State::Dead {
            core::hint::spin_loop();
        }
        lanes.disconnect(victim);
        let foreign = |run: &&kmap::Audited| run.reason == kmap::Reason::Foreign;
        assert_eq!(crate::audit_kernel_mappings().iter().filter(foreign).count(), 0);
        crate::boot_kernel(victim).unwrap_or_else(|error| panic!("kernel {victim} again: {error:?}"));
        while lanes.connect(port).is_empty() {
            crate::idle();
        }
        assert_eq!(wait_for_message(port, victim), b"again");
        log::info!("kernel {victim} is up in boot generation {generation}");
    }
}

/// What a kernel does that is booted again.
fn reborn() {
    let lanes = Lanes::open();
    let port = lanes.port();
    while !lanes.connect(&port).contains(&KernelId::PRIMARY) {
        crate::idle();
    }
    port.try_send(KernelId::PRIMARY, Priority::High, b"again").expect("the lane is empty");
    port.ring(KernelId::PRIMARY);
    assert_eq!(wait_for_message(&port, KernelId::PRIMARY), b"die");
    crate::panic::die_alone();
}

const PRIORITIES: [Priority; 2] = [Priority::High, Priority::Low];

/// Takes what is there from `peer`; the numbers of each priority come in order.
fn receive(port: &LanePort, peer: KernelId, received: &mut [u32; 2]) -> bool {
    let mut buffer = Vec::new();
    let mut any = false;
    for (lane, priority) in PRIORITIES.into_iter().enumerate() {
        while received[lane] < MESSAGES / 2 && port.try_recv(peer, priority, &mut buffer) {
            let number = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            assert_eq!((number, buffer.len()), (received[lane] * 2 + lane as u32, 150));
            received[lane] += 1;
            any = true;
        }
    }
    any
}
