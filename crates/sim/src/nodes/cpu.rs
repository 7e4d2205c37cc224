//! The CPUs of one kernel: time, a current CPU, and user mode.

use super::user::UserMode;
use crate::world::World;
use ::machine::{Cpu, CpuId, FpuState, PageTable, Registers, Trap};
use std::sync::{
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    Arc,
};

pub struct SimCpu {
    pub cpus: Vec<CpuId>,
    /// Index of the CPU that takes the present step.
    pub current: AtomicUsize,
    pub clock: Arc<AtomicU64>,
    pub user: Arc<dyn UserMode>,
    pub world: Arc<World>,
}

impl Cpu for SimCpu {
    fn current(&self) -> CpuId {
        self.cpus[self.current.load(SeqCst)]
    }

    fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    fn index(&self) -> usize {
        self.current.load(SeqCst)
    }

    fn run_user(&self, registers: &mut Registers, table: &dyn PageTable, unless: &AtomicBool) -> Trap {
        match unless.load(SeqCst) {
            true => Trap::Interrupt,
            false => self.user.run(registers, table),
        }
    }

    fn fpu_size(&self) -> usize {
        // The legacy area and the header of the extended one.
        576
    }

    fn fpu_load(&self, _state: &FpuState) {}

    fn fpu_save(&self, _state: &mut FpuState) {}

    fn now(&self) -> u64 {
        self.clock.load(SeqCst)
    }

    fn set_alarm(&self, _at: Option<u64>) {}

    fn kick(&self, _cpu: CpuId) {}

    fn capabilities(&self) -> (u64, u64) {
        (0, 0)
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.world.rng.next() as u8);
    }
}
