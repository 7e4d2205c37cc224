//! User-monitored threads on Linux, as a program of BPF on the tracepoint sched_switch can imitate them: for comparison with Cob's, and for root only (COB_TASKS=bpf).
//!
//! The program counts blocks when a monitored thread leaves a CPU because it waits, unblocks when it gets one again, and both when it comes from another CPU although it
//! did not wait: in an array that is mapped here, laid out as that of Cob's counters. After a block that leaves no thread that can go on on a CPU it writes a record into a ring
//! buffer, which an epoll can wait for.
//!
//! Different from Cob's kernel: every switch of every thread of the machine runs the program, which looks the two threads up in a hash table; an unblock is counted when the thread
//! gets a CPU, not when it is about to be in user mode; and each wait within a call counts, not one a call. Two runtimes of a process on different CPUs share the ring buffer, so one of
//! them may be woken late.

use crate::{
    monitor::{BLOCK, UNBLOCK},
    sys::{self, bpf},
};
use std::{
    fs,
    io::{Error, ErrorKind, Result},
    os::fd::OwnedFd,
    sync::OnceLock,
};

/// Monitored threads, at most.
const THREADS: u32 = 8192;
const RING_BYTES: u32 = 1 << 16;

/// Everything of this process. It stays.
struct Counting {
    /// By the thread's id: the CPU, and whether it waits.
    threads: bpf::Threads,
    sums: Vec<sys::Sums>,
    _program: OwnedFd,
    _event: OwnedFd,
}

static COUNTING: OnceLock<Counting> = OnceLock::new();

/// Where the record of sched_switch has what (/sys/kernel/tracing/events/sched/sched_switch/format).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    prev_pid: i16,
    prev_state: i16,
    next_pid: i16,
}

impl Layout {
    fn of(format: &str) -> Option<Layout> {
        let offset = |name: &str| {
            let line = format.lines().find(|line| line.contains(&format!(" {name};")))?;
            line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
        };
        Some(Layout { prev_pid: offset("prev_pid")?, prev_state: offset("prev_state")?, next_pid: offset("next_pid")? })
    }
}

/// Counts on `cpus` CPUs from now on. For each: what an epoll waits for, the sums, and what empties the first.
pub fn start(cpus: usize) -> Result<Vec<(OwnedFd, sys::Sums, bpf::Ring)>> {
    let tracing = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let events = tracing.iter().map(|place| format!("{place}/events/sched/sched_switch"));
    let event = events.clone().find(|place| fs::exists(place).unwrap_or(false));
    let event = event.ok_or_else(|| Error::new(ErrorKind::NotFound, "no tracefs, or not root"))?;
    let id = fs::read_to_string(format!("{event}/id"))?.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
    let layout = Layout::of(&fs::read_to_string(format!("{event}/format"))?).ok_or(ErrorKind::InvalidData)?;
    let array = bpf::SumsArray::new(cpus)?;
    let threads = bpf::Threads::new(THREADS)?;
    let ring = bpf::RingBuffer::new(RING_BYTES)?;
    let code = program(layout, array.number(), threads.number(), ring.number());
    let program = bpf::load(&code)?;
    let attached = bpf::attach(&program, id)?;
    let sums = array.map()?;
    let taking = ring.map()?;
    let each = sums.iter().map(|sums| Ok((ring.descriptor()?, *sums, taking))).collect();
    let counting = Counting { threads, sums, _program: program, _event: attached };
    // The callers hold a lock over this.
    COUNTING.set(counting).map_err(|_| ErrorKind::AlreadyExists)?;
    each
}

/// The calling thread, which is bound to this CPU, is counted from now on, or no more.
pub fn watch(cpu: usize, on: bool) {
    let Some(counting) = COUNTING.get() else { return };
    let Some(sums) = counting.sums.get(cpu) else { return };
    let thread = sys::thread_id() as u32;
    if on {
        // It does not wait.
        if counting.threads.insert(thread, cpu as u64).is_ok() {
            sums.add(UNBLOCK);
        }
    } else if counting.threads.remove(thread).is_ok() {
        sums.add(BLOCK);
    }
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64 | (to as u64) << 8 | (from as u64) << 12 | (offset as u16 as u64) << 16 | (value as u32 as u64) << 32
}

// Instructions (Linux's Documentation/bpf/standardization/instruction-set.rst): with a register, or a number, in the place of the second operand.
const ADD_ATOMIC: u8 = 0xdb;
const ADD_NUMBER: u8 = 0x07;
const AND_NUMBER: u8 = 0x57;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP_IF_EQUAL: u8 = 0x1d;
const JUMP_IF_EQUAL_NUMBER: u8 = 0x15;
const JUMP_IF_GREATER_NUMBER: u8 = 0x65;
const JUMP_IF_NOT_EQUAL_NUMBER: u8 = 0x55;
const LOAD_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const READ_32: u8 = 0x61;
const READ_64: u8 = 0x79;
const SHIFT_LEFT_NUMBER: u8 = 0x67;
const SHIFT_RIGHT_NUMBER: u8 = 0x77;
const SUBTRACT: u8 = 0x1f;
const WRITE_32: u8 = 0x63;
const WRITE_32_NUMBER: u8 = 0x62;
const WRITE_64: u8 = 0x7b;
// Functions that a program may call (enum bpf_func_id).
const MAP_LOOKUP: i32 = 1;
const CPU_NUMBER: i32 = 8;
const RINGBUF_OUTPUT: i32 = 130;

/// Labels that jumps go to.
#[derive(Clone, Copy)]
enum To {
    Next,
    Unblock,
    End,
}

#[derive(Default)]
struct Assembler {
    code: Vec<u64>,
    jumps: Vec<(usize, To)>,
    labels: [usize; 3],
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.code.push(instruction(code, to, from, offset, value));
    }

    fn jump(&mut self, code: u8, register: u8, other: u8, value: i32, to: To) {
        self.jumps.push((self.code.len(), to));
        self.put(code, register, other, 0, value);
    }

    fn label(&mut self, to: To) {
        self.labels[to as usize] = self.code.len();
    }

    /// A 64-bit constant; `from` 1: the map that this descriptor is of.
    fn load(&mut self, register: u8, from: u8, value: u64) {
        self.put(LOAD_64, register, from, 0, value as u32 as i32);
        self.put(0, 0, 0, 0, (value >> 32) as u32 as i32);
    }

    /// r0 = where `map` has the 32-bit key at `place` of the stack; goes on at `to` if nowhere.
    fn look_up(&mut self, map: i32, place: i16, to: To) {
        self.load(1, 1, map as u32 as u64);
        self.put(MOVE, 2, 10, 0, 0);
        self.put(ADD_NUMBER, 2, 0, 0, place.into());
        self.put(CALL, 0, 0, 0, MAP_LOOKUP);
        self.jump(JUMP_IF_EQUAL_NUMBER, 0, 0, 0, to);
    }

    /// Adds a constant to the 64 bits at r0.
    fn count(&mut self, what: u64) {
        self.load(1, 0, what);
        self.put(ADD_ATOMIC, 0, 1, 0, 0);
    }

    /// Tells who waits if no thread can go on on the CPU whose sums are at r0.
    fn tell(&mut self, ring: i32, otherwise: To) {
        self.put(READ_64, 1, 0, 0, 0);
        self.put(MOVE, 2, 1, 0, 0);
        self.put(SHIFT_RIGHT_NUMBER, 2, 0, 0, 32);
        self.put(SHIFT_LEFT_NUMBER, 1, 0, 0, 32);
        self.put(SHIFT_RIGHT_NUMBER, 1, 0, 0, 32);
        self.put(SUBTRACT, 2, 1, 0, 0);
        self.jump(JUMP_IF_GREATER_NUMBER, 2, 0, 0, otherwise);
        self.put(WRITE_64, 10, 7, -16, 0);
        self.load(1, 1, ring as u32 as u64);
        self.put(MOVE, 2, 10, 0, 0);
        self.put(ADD_NUMBER, 2, 0, 0, -16);
        self.put(MOVE_NUMBER, 3, 0, 0, 8);
        self.put(MOVE_NUMBER, 4, 0, 0, 0);
        self.put(CALL, 0, 0, 0, RINGBUF_OUTPUT);
    }

    fn finish(mut self) -> Vec<u64> {
        for (place, to) in self.jumps {
            let distance = (self.labels[to as usize] - place - 1) as u16;
            self.code[place] |= u64::from(distance) << 16;
        }
        self.code
    }
}

/// r6: the record, r7: this CPU, r8: what is known of a thread: 32 bits of its CPU, 32 bits whether it waits. At -4 of the stack a thread's id, at -8 a CPU.
fn program(layout: Layout, sums: i32, threads: i32, ring: i32) -> Vec<u64> {
    let mut code = Assembler::default();
    code.put(MOVE, 6, 1, 0, 0);
    code.put(CALL, 0, 0, 0, CPU_NUMBER);
    code.put(MOVE, 7, 0, 0, 0);
    // A thread that has lost its CPU to another is in state 0, or 0x100.
    code.put(READ_64, 1, 6, layout.prev_state, 0);
    code.put(AND_NUMBER, 1, 0, 0, 0xff);
    code.jump(JUMP_IF_EQUAL_NUMBER, 1, 0, 0, To::Next);
    code.put(READ_32, 1, 6, layout.prev_pid, 0);
    code.put(WRITE_32, 10, 1, -4, 0);
    code.look_up(threads, -4, To::Next);
    code.put(READ_32, 1, 0, 4, 0);
    code.jump(JUMP_IF_NOT_EQUAL_NUMBER, 1, 0, 0, To::Next);
    code.put(WRITE_32_NUMBER, 0, 0, 4, 1);
    code.put(WRITE_32, 10, 7, -8, 0);
    code.look_up(sums, -8, To::Next);
    code.count(BLOCK);
    code.tell(ring, To::Next);
    code.label(To::Next);
    code.put(READ_32, 1, 6, layout.next_pid, 0);
    code.put(WRITE_32, 10, 1, -4, 0);
    code.look_up(threads, -4, To::End);
    code.put(MOVE, 8, 0, 0, 0);
    code.put(READ_32, 1, 8, 4, 0);
    code.put(READ_32, 3, 8, 0, 0);
    code.put(WRITE_32_NUMBER, 8, 0, 4, 0);
    code.put(WRITE_32, 8, 7, 0, 0);
    code.jump(JUMP_IF_NOT_EQUAL_NUMBER, 1, 0, 0, To::Unblock);
    code.jump(JUMP_IF_EQUAL, 3, 7, 0, To::End);
    // It has come from another CPU although it did not wait.
    code.put(WRITE_32, 10, 3, -8, 0);
    code.look_up(sums, -8, To::End);
    code.count(BLOCK);
    code.tell(ring, To::Unblock);
    code.label(To::Unblock);
    code.put(WRITE_32, 10, 7, -8, 0);
    code.look_up(sums, -8, To::End);
    code.count(UNBLOCK);
    code.label(To::End);
    code.put(MOVE_NUMBER, 0, 0, 0, 0);
    code.put(EXIT, 0, 0, 0, 0);
    code.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_switch\nID: 314\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\nprint fmt: \"prev_pid=%d\", REC->prev_pid\n";

    #[test]
    fn jumps_go_forward_to_where_they_should() {
        let layout = Layout::of(FORMAT).unwrap();
        assert_eq!(layout, Layout { prev_pid: 24, prev_state: 32, next_pid: 56 });
        let code = program(layout, 3, 4, 5);
        assert_eq!(code.last(), Some(&u64::from(EXIT)));
        for (place, word) in code.iter().enumerate() {
            if matches!(
                *word as u8,
                JUMP_IF_EQUAL_NUMBER | JUMP_IF_NOT_EQUAL_NUMBER | JUMP_IF_EQUAL | JUMP_IF_GREATER_NUMBER
            ) {
                let target = place + 1 + (word >> 16) as u16 as usize;
                assert!(target > place + 1 && target < code.len(), "{place}");
            }
        }
    }
}
