//! User mode that plays a program of crate `fuzz`.
//!
//! All that a thread is lies in its instruction pointer: whose part it plays, which step, and whether the call was made.
//! So whatever a program does to its registers (rt_sigreturn from a frame of its own making, say), what follows is what
//! would follow on a machine: it goes on there, or runs into nothing and gets a signal.

use super::CALLS;
use crate::nodes::{
    elf::{file, segment, ENTRY},
    user::UserMode,
};
use fuzz::{
    draw::gives_birth,
    program::{Program, Step, Word, ACTORS, AREA, ARENA, HANDLER, RESTORER, SLOTS, STACK, STACKS, USABLE},
};
use machine::{Exception, PageTable, Registers, Trap, UserAddr, UserFault, PAGE_SIZE};
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

/// The parts, a page each; a step takes 16 bytes, and its `syscall` two of these.
const PARTS: u64 = 0x41_0000;
const PART: u64 = 0x1000;
const STEP: u64 = 16;
/// Where a thread ends.
const EXIT: u64 = 0x40_0500;
const PAGE: u64 = PAGE_SIZE as u64;
/// Instructions that are played in a row.
const ROW: usize = 64;

const SCHED_YIELD: u64 = 24;
const RT_SIGRETURN: u64 = 15;
const SYS_EXIT: u64 = 60;
const INVALID_OPCODE: u8 = 6;

/// The program's file: text, memory of the actors, stacks for signal frames.
pub fn image() -> Vec<u8> {
    let text = [(0x40_0000, 2 * PAGE), (PARTS, ACTORS as u64 * PART), (HANDLER, PAGE)];
    let areas = (0..ACTORS as u64).map(|actor| (ARENA + actor * AREA, USABLE));
    let stacks = (STACKS, (ACTORS as u64 + 1) * STACK);
    let text = text.map(|(at, size)| segment(5, at, PAGE, size)).into_iter();
    let data = areas.chain([stacks]).map(|(at, size)| segment(6, at, 0, size));
    file(&text.chain(data).collect::<Vec<_>>())
}

#[derive(Default)]
struct State {
    parts: Vec<Vec<Step>>,
    slots: Vec<u64>,
    born: [bool; ACTORS],
    begun: bool,
    trace: bool,
    calls: u64,
    idle: bool,
    spins: u64,
    steps: u64,
    /// Where the last turn began.
    last: u64,
}

/// All threads of a machine.
#[derive(Default)]
pub struct Player(Mutex<State>);

impl Player {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The thread that waits begins with actor 0's part.
    pub fn begin(&self, program: &Program) {
        let mut state = self.lock();
        state.parts = (0..ACTORS as u8).map(|actor| program.of(actor).cloned().collect()).collect();
        state.slots = vec![u64::MAX; SLOTS];
        state.begun = true;
    }

    /// Calls that were made.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Calls are printed.
    pub fn trace(&self, on: bool) {
        self.lock().trace = on;
    }
}

impl UserMode for Player {
    fn run(&self, registers: &mut Registers, table: &dyn PageTable) -> Trap {
        let mut state = self.lock();
        let spins = state.spins;
        state.last = registers.rip;
        let trap = state.advance(registers, table);
        if state.spins == spins {
            state.steps += 1;
        }
        trap.unwrap_or_else(|fault| Trap::Page { at: fault.at, access: fault.access })
    }

    fn turns(&self) -> (u64, u64) {
        let state = self.lock();
        (state.spins, state.steps)
    }

    fn idle(&self) -> BTreeSet<u32> {
        self.lock().idle.then_some(0).into_iter().collect()
    }

    fn forget_idle(&self) {
        self.lock().idle = false;
    }

    fn last(&self) -> String {
        let last = self.lock().last;
        match self.lock().place(last) {
            Some((actor, step, made)) => format!("actor {actor}, step {step}, made: {made}"),
            None => format!("a thread at {last:#x}"),
        }
    }
}

fn system_call(registers: &mut Registers, number: u64) -> Trap {
    registers.rax = number;
    registers.rip += 2;
    Trap::Syscall
}

impl State {
    fn advance(&mut self, registers: &mut Registers, table: &dyn PageTable) -> Result<Trap, UserFault> {
        for _ in 0..ROW {
            let at = registers.rip;
            // The instruction is fetched.
            table.read(UserAddr(at), &mut [0])?;
            match at {
                ENTRY if !self.begun => {
                    self.idle = true;
                    self.spins += 1;
                    registers.rax = SCHED_YIELD;
                    return Ok(Trap::Syscall);
                }
                // Again: by execve.
                ENTRY if self.born[0] => registers.rip = EXIT,
                ENTRY => self.enter(0, registers),
                EXIT => {
                    registers.rdi = 0;
                    return Ok(system_call(registers, SYS_EXIT));
                }
                HANDLER => {
                    let mut to = [0; 8];
                    table.read(UserAddr(registers.rsp), &mut to)?;
                    registers.rsp = registers.rsp.wrapping_add(8);
                    registers.rip = u64::from_le_bytes(to);
                }
                RESTORER => return Ok(system_call(registers, RT_SIGRETURN)),
                at => match self.place(at) {
                    Some((actor, index, false)) => return self.call(actor, index, registers, table),
                    Some((actor, index, true)) => self.conclude(actor, index, registers, table)?,
                    None => return Ok(Trap::Exception(Exception { vector: INVALID_OPCODE, code: 0 })),
                },
            }
        }
        Ok(Trap::Interrupt)
    }

    /// Whose part lies at an address, which step, and whether its call was made.
    fn place(&self, at: u64) -> Option<(usize, usize, bool)> {
        let offset = at.checked_sub(PARTS).filter(|offset| *offset < ACTORS as u64 * PART)?;
        let after = match offset % STEP {
            0 => false,
            2 => true,
            _ => return None,
        };
        Some(((offset / PART) as usize, (offset % PART / STEP) as usize, after))
    }

    fn enter(&mut self, actor: usize, registers: &mut Registers) {
        self.born[actor] = true;
        registers.rip = PARTS + actor as u64 * PART;
        if actor > 0 {
            registers.rsp = STACKS + (actor as u64 + 1) * STACK - 64;
        }
    }

    fn value(&self, word: Word) -> u64 {
        match word {
            Word::Value(value) => value,
            Word::Slot(slot) => self.slots[usize::from(slot)],
        }
    }

    fn call(
        &mut self,
        actor: usize,
        index: usize,
        registers: &mut Registers,
        table: &dyn PageTable,
    ) -> Result<Trap, UserFault> {
        let Some(step) = self.parts[actor].get(index) else {
            registers.rip = EXIT;
            return Ok(Trap::Interrupt);
        };
        for write in &step.writes {
            table.write(UserAddr(ARENA + u64::from(write.at)), &write.bytes)?;
        }
        for patch in &step.patches {
            let value = self.slots[usize::from(patch.slot)].to_le_bytes();
            table.write(UserAddr(ARENA + u64::from(patch.at)), &value[..usize::from(patch.size)])?;
        }
        let [a, b, c, d, e, f] = step.arguments.map(|word| self.value(word));
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = [a, b, c, d, e, f];
        if self.trace {
            let name = CALLS.name_of(step.number);
            eprintln!("  {actor}.{index} {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {f:#x})");
        }
        self.calls += 1;
        Ok(system_call(registers, u64::from(step.number)))
    }

    /// The call has returned: here, or in a child.
    fn conclude(
        &mut self,
        actor: usize,
        index: usize,
        registers: &mut Registers,
        table: &dyn PageTable,
    ) -> Result<(), UserFault> {
        let result = registers.rax as i64;
        let next = PARTS + actor as u64 * PART + (index as u64 + 1) * STEP;
        let Some(step) = self.parts[actor].get(index) else {
            registers.rip = EXIT;
            return Ok(());
        };
        if self.trace {
            eprintln!("  {actor}.{index} = {result}");
        }
        if gives_birth(step.number) && result == 0 {
            match step.birth.map(usize::from).filter(|birth| !self.born[*birth]) {
                Some(birth) => self.enter(birth, registers),
                None => registers.rip = EXIT,
            }
            return Ok(());
        }
        if !(-4095..0).contains(&result) {
            for take in step.takes.clone() {
                let mut bytes = [0; 8];
                let value = match take.from {
                    None => result as u64,
                    Some((at, size)) => {
                        table.read(UserAddr(ARENA + u64::from(at)), &mut bytes[..usize::from(size)])?;
                        u64::from_le_bytes(bytes)
                    }
                };
                self.slots[usize::from(take.slot)] = value;
            }
        }
        registers.rip = next;
        Ok(())
    }
}
