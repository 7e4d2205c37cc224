//! Frames on the host's heap, counted, so that a test can tell whether any is lost.

use machine::{Frame, KernelId, Memory, NoMemory, PageTable, PAGE_SIZE};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

pub struct FakeMemory {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    frames: BTreeMap<u64, (Box<[u8; PAGE_SIZE]>, u32)>,
}

impl FakeMemory {
    pub fn new(limit: usize) -> Self {
        FakeMemory { limit, state: Mutex::default() }
    }

    pub fn used(&self) -> usize {
        self.state.lock().unwrap().frames.len()
    }

    fn with<T>(&self, frame: Frame, act: impl FnOnce(&mut (Box<[u8; PAGE_SIZE]>, u32)) -> T) -> T {
        act(self.state.lock().unwrap().frames.get_mut(&frame.0).expect("a frame in use"))
    }
}

impl Memory for FakeMemory {
    fn kernel(&self) -> KernelId {
        KernelId(0)
    }
    fn alloc(&self) -> Option<Frame> {
        let mut state = self.state.lock().unwrap();
        if state.frames.len() >= self.limit {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.frames.insert(number, (Box::new([0; PAGE_SIZE]), 1));
        Some(Frame(number))
    }
    fn retain(&self, frame: Frame) {
        self.with(frame, |frame| frame.1 += 1);
    }
    fn release(&self, frame: Frame) {
        if self.with(frame, |frame| {
            frame.1 -= 1;
            frame.1 == 0
        }) {
            self.state.lock().unwrap().frames.remove(&frame.0);
        }
    }
    fn count(&self, frame: Frame) -> u32 {
        self.with(frame, |frame| frame.1)
    }
    fn adopt(&self, _frame: Frame) {
        unimplemented!("one kernel")
    }
    fn lend(&self, _frame: Frame, _to: KernelId) {
        unimplemented!("one kernel")
    }
    fn pin(&self, _frame: Frame, _to: KernelId) {
        unimplemented!("one kernel")
    }
    fn take_home(&self, _frame: Frame, _from: KernelId) {
        unimplemented!("one kernel")
    }
    fn take_all_home(&self, _dead: KernelId) {
        unimplemented!("one kernel")
    }
    fn accept_pin(&self, _frame: Frame, _by: KernelId) {
        unimplemented!("one kernel")
    }
    fn home_of(&self, _frame: Frame) -> Option<KernelId> {
        Some(KernelId(0))
    }
    fn totals(&self) -> (u64, u64) {
        (self.limit as u64, (self.limit - self.used()) as u64)
    }
    fn copy(&self, from: Frame, to: Frame) {
        let bytes = self.with(from, |frame| frame.0.clone());
        self.with(to, |frame| frame.0 = bytes);
    }
    fn zero(&self, frame: Frame) {
        self.with(frame, |frame| frame.0.fill(0));
    }
    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]) {
        self.with(frame, |frame| buf.copy_from_slice(&frame.0[offset..offset + buf.len()]));
    }
    fn write(&self, frame: Frame, offset: usize, buf: &[u8]) {
        self.with(frame, |frame| frame.0[offset..offset + buf.len()].copy_from_slice(buf));
    }
    fn load_u32(&self, _frame: Frame, _offset: usize) -> u32 {
        unimplemented!("no futex here")
    }
    fn compare_exchange_u32(&self, _: Frame, _: usize, _: u32, _: u32) -> Result<u32, u32> {
        unimplemented!("no futex here")
    }
    fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory> {
        unimplemented!("no user space here")
    }
}
