//! No CPU uses a page after a flush of it has returned.

use super::fake::{machine, Fake, Machine, CPU};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use machine::{Access, Frame, Mapping, Memory, Page, PageRange, PageTable, Soft, UserAddr};
use std::thread;

const RW: Access = Access::READ.union(Access::WRITE);

fn map(machine: &Machine, table: &dyn PageTable, page: Page) -> Frame {
    let frame = machine.memory.alloc().unwrap();
    table.set(page, Mapping { frame, access: RW, soft: Soft::empty() }).unwrap();
    frame
}

/// One stay in user mode.
fn user<T>(machine: &Machine, table: &dyn PageTable, run: impl FnOnce(&Fake) -> T) -> T {
    machine.memory.enter_user(table);
    let result = run(machine.hardware);
    machine.memory.leave_user();
    result
}

#[test]
fn the_simulated_tlb_is_stale_without_a_flush() {
    // Else the other tests here would prove nothing.
    let machine = machine(1);
    let table = machine.memory.new_table().unwrap();
    let page = Page(0x400);
    map(&machine, &*table, page);
    assert!(user(&machine, &*table, |cpu| cpu.load(page.address())).is_ok());
    table.clear(page);
    assert!(user(&machine, &*table, |cpu| cpu.load(page.address())).is_ok(), "no longer cached");
    table.flush(PageRange::one(page));
    assert!(user(&machine, &*table, |cpu| cpu.load(page.address())).is_err());
}

#[test]
fn a_flush_on_one_cpu_interrupts_nobody_and_forgets_no_more_than_it_must() {
    let machine = machine(4);
    let table = machine.memory.new_table().unwrap();
    let pages: Vec<_> = (0..100).map(Page).collect();
    pages.iter().for_each(|page| _ = map(&machine, &*table, *page));
    let touch_all =
        || user(&machine, &*table, |cpu| pages.iter().filter(|page| cpu.load(page.address()).is_ok()).count());
    assert_eq!(touch_all(), 100);
    let (full, single) = machine.hardware.flushes();

    // Three small ones are caught up with page by page, at the next stay.
    for page in &pages[10..13] {
        table.clear(*page);
        table.flush(PageRange::one(*page));
    }
    assert_eq!(machine.hardware.flushes(), (full, single));
    assert_eq!(touch_all(), 97);
    assert_eq!(machine.hardware.flushes(), (full, single + 3));

    // Many pages, or many flushes: all at once.
    pages[13..60].iter().for_each(|page| _ = table.clear(*page));
    table.flush(PageRange::new(Page(13), Page(60)));
    assert_eq!(touch_all(), 50);
    assert_eq!(machine.hardware.flushes(), (full + 1, single + 3));
    for page in &pages[60..80] {
        table.clear(*page);
        table.flush(PageRange::one(*page));
    }
    assert_eq!(touch_all(), 30);
    assert_eq!(machine.hardware.flushes(), (full + 2, single + 3));
    assert_eq!(machine.hardware.interrupts.load(SeqCst), 0);
}

#[test]
fn switching_tables_forgets_and_the_dead_are_given_up() {
    let machine = machine(1);
    let free = machine.free();
    let [a, b] = [(), ()].map(|()| machine.memory.new_table().unwrap());
    let page = Page(0x1234);
    let (frame_a, frame_b) = (map(&machine, &*a, page), map(&machine, &*b, page));
    machine.memory.write(frame_a, 0, b"a");
    machine.memory.write(frame_b, 0, b"b");
    for _ in 0..3 {
        assert_eq!(user(&machine, &*a, |cpu| cpu.load(page.address())), Ok(b'a'));
        let mut byte = [0];
        // A copy through another table than the loaded one.
        assert_eq!(b.read(page.address(), &mut byte), Ok(()));
        assert_eq!(byte, *b"b");
    }
    drop((a, b));
    machine.memory.release(frame_a);
    machine.memory.release(frame_b);
    // The CPU still has b loaded, and so keeps its root and three tables.
    assert_eq!(machine.free(), free - 4);
    machine.memory.idle();
    assert_eq!(machine.free(), free);
}

#[test]
fn a_cpu_that_has_halted_with_a_table_is_woken_when_that_is_abandoned() {
    let machine = machine(2);
    let free = machine.free();
    let table = machine.memory.new_table().unwrap();
    let page = Page(0x1234);
    let frame = map(&machine, &*table, page);
    for cpu in [1, 0] {
        CPU.set(cpu);
        assert_eq!(user(&machine, &*table, |cpu| cpu.load(page.address())), Ok(0));
        machine.memory.idle();
    }
    machine.memory.release(frame);
    drop(table);
    assert_eq!(machine.hardware.interrupts.load(SeqCst), 1, "CPU 1 is woken");
    // It looks before CPU 0 does, which has the table loaded, too.
    for cpu in [1, 0] {
        CPU.set(cpu);
        machine.memory.idle();
    }
    assert_eq!(machine.free(), free);
}

/// CPUs in user mode and in copies go on writing to a page; another takes it away, flushes, and looks
/// whether its frame is still written to.
#[test]
fn after_a_flush_nobody_touches_the_old_frame() {
    const USERS: usize = 2;
    const ROUNDS: usize = 150;
    let machine = machine(USERS + 1);
    let table: Arc<dyn PageTable> = machine.memory.new_table().unwrap();
    let other: Arc<dyn PageTable> = machine.memory.new_table().unwrap();
    let page = Page(0x7_0000);
    let mut frame = map(&machine, &*table, page);
    map(&machine, &*other, page);
    let (stop, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for cpu in 1..=USERS {
            let (machine, table, other, stop, writes) = (&machine, &*table, &*other, &stop, &writes);
            scope.spawn(move || {
                CPU.set(cpu);
                let at = UserAddr(page.address().0 + 8 * cpu as u64);
                let mut step = 0usize;
                while !stop.load(SeqCst) {
                    step += 1;
                    match step % 4 {
                        // Now and then another table, so that loading races with flushing.
                        0 if step % 64 < 8 => _ = other.write(at, &[1]),
                        0 | 1 => _ = table.write(at, &[1; 4]).map(|()| writes.fetch_add(1, SeqCst)),
                        // Until an interrupt ends the stay, or for a while.
                        _ => user(machine, table, |hardware| {
                            for _ in 0..50 {
                                if hardware.take_interrupt() {
                                    break;
                                }
                                _ = hardware.store(at, 1).map(|()| writes.fetch_add(1, SeqCst));
                            }
                        }),
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            table.clear(page);
            table.flush(PageRange::one(page));
            machine.memory.zero(frame);
            let old = frame;
            frame = map(&machine, &*table, page);
            for _ in 0..3 {
                thread::yield_now();
            }
            let mut bytes = [0; 64];
            machine.memory.read(old, 0, &mut bytes);
            if bytes != [0; 64] {
                stop.store(true, SeqCst);
                panic!("a CPU wrote to a frame that was flushed away: {bytes:?}");
            }
            machine.memory.release(old);
        }
        stop.store(true, SeqCst);
    });
    assert!(writes.load(SeqCst) > 0 && machine.hardware.interrupts.load(SeqCst) > 0, "nothing was tried");
}
