//! Frames of this kernel and of another, by the same calls.

use super::fake::{machine, OTHERS, OWN};
use machine::{Frame, KernelId, Memory, PAGE_SIZE};

#[test]
fn foreign_frames_are_reached_and_no_window_stays_open() {
    let machine = machine(2);
    let memory = &machine.memory;
    let own = memory.alloc().unwrap();
    let foreign = [Frame(OTHERS.start >> 12), Frame((OTHERS.end >> 12) - 1)];
    memory.write(foreign[0], 4000, &[7; 96]);
    memory.copy(foreign[0], foreign[1]);
    memory.copy(foreign[1], own);
    let mut back = [0; 97];
    memory.read(own, 3999, &mut back);
    assert_eq!((back[0], &back[1..]), (0, &[7; 96][..]));
    assert_eq!(memory.load_u32(foreign[1], 4092), 0x0707_0707);
    assert_eq!(memory.compare_exchange_u32(foreign[1], 4092, 1, 2), Err(0x0707_0707));
    assert_eq!(memory.compare_exchange_u32(foreign[1], 4092, 0x0707_0707, 2), Ok(0x0707_0707));
    assert_eq!(memory.load_u32(foreign[1], 4092), 2);
    memory.zero(foreign[1]);
    memory.read(foreign[1], PAGE_SIZE - 97, &mut back);
    assert_eq!(back, [0; 97]);
    assert!(machine.hardware.windows_are_closed());
}

#[test]
fn frames_know_their_home_and_go_there() {
    let machine = machine(1);
    let memory = &machine.memory;
    let (own, foreign) = (memory.alloc().unwrap(), Frame(OTHERS.start >> 12));
    assert_eq!(memory.home_of(own), Some(KernelId(0)));
    assert_eq!(memory.home_of(foreign), Some(KernelId(1)));
    for nowhere in [Frame(0), Frame((OWN.start >> 12) - 1), Frame(OTHERS.end >> 12), Frame(u64::MAX)] {
        assert_eq!(memory.home_of(nowhere), None);
    }
    memory.adopt(foreign);
    memory.retain(foreign);
    assert_eq!(memory.count(foreign), 2);
    memory.release(foreign);
    memory.release(foreign);
    assert_eq!(memory.foreign().drain_returns(KernelId(1)), [foreign]);

    let free = machine.free();
    memory.lend(own, KernelId(1));
    assert_eq!(memory.count(own), 0);
    memory.take_home(own, KernelId(1));
    assert_eq!(machine.free(), free + 1);
    // Pinned for us twice: home counts us once. And what others have pinned here comes home.
    memory.accept_pin(foreign, KernelId(1));
    memory.accept_pin(foreign, KernelId(1));
    assert_eq!((memory.count(foreign), memory.foreign().drain_returns(KernelId(1))), (2, vec![foreign]));
    memory.release(foreign);
    memory.release(foreign);
    assert_eq!(memory.foreign().drain_returns(KernelId(1)), [foreign]);
    let pinned = memory.alloc().unwrap();
    memory.retain(pinned);
    memory.retain(pinned);
    memory.pin(pinned, KernelId(1));
    memory.pin(pinned, KernelId(1));
    memory.take_home(pinned, KernelId(1));
    assert_eq!(memory.count(pinned), 2);
    memory.take_all_home(KernelId(1));
    assert_eq!(memory.count(pinned), 1);
    memory.release(pinned);
    // A frame of ours that another kernel has borrowed, and pinned for us and a third; and one of theirs that we have.
    let away = memory.alloc().unwrap();
    memory.lend(away, KernelId(1));
    memory.accept_pin(away, KernelId(1));
    memory.retain(away);
    assert_eq!((memory.count(away), memory.pinned_by(away)), (2, Some(KernelId(1))));
    memory.release(away);
    memory.release(away);
    assert_eq!(memory.foreign().drain_returns(KernelId(1)), [away]);
    memory.take_home(away, KernelId(1));
    memory.adopt(foreign);
    memory.retain(foreign);
    memory.pin(foreign, KernelId(2));
    memory.release(foreign);
    assert_eq!(memory.foreign().drain_returns(KernelId(1)), []);
    memory.take_home(foreign, KernelId(2));
    assert_eq!(memory.foreign().drain_returns(KernelId(1)), [foreign]);
    // Another kernel's mistakes are not ours.
    memory.take_home(own, KernelId(1));
    memory.take_home(foreign, KernelId(1));
    assert_eq!(machine.free(), free + 1);
}
