//! User mode without machine code: threads that make the system calls they are told to make.
//!
//! All a thread knows is in its registers and its memory, as with any program; so it survives what the kernel does
//! to it (moving, signal frames, fork, execve) exactly if the kernel does that right. What the test learns comes out
//! as [`Event`]s.
//!
//! | register | meaning |
//! |---|---|
//! | r15 | the thread's id, as gettid told it |
//! | r14 | what it is about, see [`phase`] |
//! | r13 | number of the command it works on |
//! | r12 | its scratch memory: input of a call, and a page further its output |
//! | r11 | number of the call it made |
//! | rbp | result of the call while the output is fetched |
//! | rbx | who made it; 0: execve |

use super::elf::{stack_top, ENTRY, HANDLER, RESTORER, SYSCALL};
use machine::{PageTable, Registers, Trap, UserAddr, UserFault};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

const AFTER: u64 = SYSCALL + 2;
const OUTPUT: u64 = 0x1000;
/// Scratch memory lies this far below the top of a stack.
const SCRATCH: u64 = 0x6000;

mod phase {
    /// Waits for a command.
    pub const IDLE: u64 = 0;
    /// Has a command, whose input is to be written.
    pub const PREPARES: u64 = 1;
    pub const CALLS: u64 = 2;
    /// The call is over, its output is to be read.
    pub const READS: u64 = 3;
    /// Asks who it is.
    pub const WAKES: u64 = 4;
}

pub mod call {
    //! Numbers of the system calls that worlds make.
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const CLOSE: u64 = 3;
    pub const LSEEK: u64 = 8;
    pub const MMAP: u64 = 9;
    pub const CHDIR: u64 = 80;
    pub const MKDIR: u64 = 83;
    pub const UMASK: u64 = 95;
    pub const PRCTL: u64 = 157;
    pub const SIGACTION: u64 = 13;
    pub const SIGPROCMASK: u64 = 14;
    pub const SIGRETURN: u64 = 15;
    pub const PIPE2: u64 = 293;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const GETPID: u64 = 39;
    pub const SOCKET: u64 = 41;
    pub const LISTEN: u64 = 50;
    pub const SOCKETPAIR: u64 = 53;
    pub const CLONE: u64 = 56;
    pub const SCHED_YIELD: u64 = 24;
    pub const FORK: u64 = 57;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const FCNTL: u64 = 72;
    pub const SETPGID: u64 = 109;
    pub const GETPPID: u64 = 110;
    pub const SETSID: u64 = 112;
    pub const GETPGID: u64 = 121;
    pub const GETSID: u64 = 124;
    pub const SIGPENDING: u64 = 127;
    pub const GETTID: u64 = 186;
    pub const FUTEX: u64 = 202;
    pub const SETAFFINITY: u64 = 203;
    pub const EXIT_GROUP: u64 = 231;
    pub const TGKILL: u64 = 234;
    pub const OPENAT: u64 = 257;
    pub const SPLICE: u64 = 275;
    pub const TEE: u64 = 276;
    pub const EPOLL_WAIT: u64 = 232;
    pub const EPOLL_CTL: u64 = 233;
    pub const EVENTFD2: u64 = 290;
    pub const EPOLL_CREATE1: u64 = 291;
    pub const DUP3: u64 = 292;
    pub const UMT_ENABLE: u64 = 0xc0b0;
    pub const UMT_CONTROL: u64 = 0xc0b1;
}

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    Value(u64),
    /// Address of the input.
    Input,
    /// Address of the output.
    Output,
}

/// A system call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub call: u64,
    pub arguments: [Arg; 6],
    pub input: Vec<u8>,
    /// Bytes of output to be read after a call that succeeded.
    pub output: usize,
    /// Where input and output are, if not in the thread's scratch memory: so a program stores to and loads from
    /// memory that it shares with others.
    pub at: Option<u64>,
}

impl Command {
    pub fn new(call: u64, arguments: &[Arg]) -> Self {
        let mut all = [Arg::Value(0); 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Command { call, arguments: all, input: Vec::new(), output: 0, at: None }
    }

    /// A call with numbers only.
    pub fn plain(call: u64, arguments: &[u64]) -> Self {
        let arguments: Vec<Arg> = arguments.iter().map(|value| Arg::Value(*value)).collect();
        Self::new(call, &arguments)
    }

    pub fn input(self, input: impl Into<Vec<u8>>) -> Self {
        Command { input: input.into(), ..self }
    }

    pub fn output(self, output: usize) -> Self {
        Command { output, ..self }
    }

    pub fn at(self, at: u64) -> Self {
        Command { at: Some(at), ..self }
    }
}

/// What a program lets the test see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Command `number` of `thread` is done.
    Returned {
        thread: u32,
        number: u64,
        result: i64,
        output: Vec<u8>,
    },
    Handled {
        thread: u32,
        signal: u8,
    },
    /// `thread` has its first moment; `parent` called clone or fork by command `number`.
    Born {
        thread: u32,
        parent: u32,
        number: u64,
    },
    /// execve is done.
    Executed {
        thread: u32,
    },
}

#[derive(Default)]
struct State {
    commands: HashMap<u32, VecDeque<(u64, Command)>>,
    /// Commands under way, by number.
    running: BTreeMap<u64, Command>,
    number: u64,
    events: Vec<Event>,
    idle: BTreeSet<u32>,
    spins: u64,
    steps: u64,
}

/// What runs outside the kernel.
pub trait UserMode: Send + Sync {
    /// Goes on with a thread until its next trap.
    fn run(&self, registers: &mut Registers, table: &dyn PageTable) -> Trap;

    /// (Turns of threads that had nothing to do, steps of threads that had).
    fn turns(&self) -> (u64, u64);

    /// Threads that were found idle since `forget_idle`.
    fn idle(&self) -> BTreeSet<u32>;

    fn forget_idle(&self);

    /// Where the last turn was, for a machine that does not come to rest.
    fn last(&self) -> String {
        String::new()
    }
}

/// All programs of a machine.
#[derive(Default)]
pub struct User(Mutex<State>);

impl User {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tells an idle thread what to do; the number of the command.
    pub fn tell(&self, thread: u32, command: Command) -> u64 {
        self.tell_all(thread, [command])
    }

    /// Tells an idle thread what to do, one thing after the other; the number of the first.
    pub fn tell_all(&self, thread: u32, commands: impl IntoIterator<Item = Command>) -> u64 {
        let mut state = self.lock();
        let first = state.number + 1;
        let commands: VecDeque<_> = (first..).zip(commands).collect();
        state.number += commands.len() as u64;
        state.commands.insert(thread, commands);
        first
    }

    /// What has happened since this was last asked.
    pub fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }
}

impl UserMode for User {
    fn idle(&self) -> BTreeSet<u32> {
        self.lock().idle.clone()
    }

    fn forget_idle(&self) {
        self.lock().idle.clear();
    }

    fn turns(&self) -> (u64, u64) {
        let state = self.lock();
        (state.spins, state.steps)
    }

    fn run(&self, registers: &mut Registers, table: &dyn PageTable) -> Trap {
        let mut state = self.lock();
        let spins = state.spins;
        let trap = state.advance(registers, table);
        if state.spins == spins {
            state.steps += 1;
        }
        trap.unwrap_or_else(|fault| Trap::Page { at: fault.at, access: fault.access })
    }
}

fn system_call(registers: &mut Registers, number: u64, back: u64) -> Trap {
    registers.rax = number;
    registers.rip = back;
    Trap::Syscall
}

impl State {
    fn advance(&mut self, registers: &mut Registers, table: &dyn PageTable) -> Result<Trap, UserFault> {
        match registers.rip {
            // The handler asks who it is, too: a signal may come before the thread's first moment.
            HANDLER => return Ok(system_call(registers, call::GETTID, HANDLER + 2)),
            at if at == HANDLER + 2 => {
                let (thread, signal) = (registers.rax as u32, registers.rdi as u8);
                self.events.push(Event::Handled { thread, signal });
                // `ret` takes the return address, which is the restorer's.
                registers.rsp += 8;
                return Ok(system_call(registers, call::SIGRETURN, RESTORER));
            }
            // The kernel has turned back to a call that was interrupted.
            SYSCALL => {
                registers.rip = AFTER;
                return Ok(Trap::Syscall);
            }
            ENTRY => {
                registers.r12 = (registers.rsp - SCRATCH) & !0xfff;
                registers.r14 = phase::WAKES;
                return Ok(system_call(registers, call::GETTID, AFTER));
            }
            AFTER => {}
            strange => panic!("a thread goes on at {strange:#x}: {registers:x?}"),
        }
        loop {
            match registers.r14 {
                phase::WAKES => {
                    registers.r15 = registers.rax;
                    registers.r14 = phase::IDLE;
                    let (thread, parent) = (registers.r15 as u32, registers.rbx as u32);
                    if parent == 0 {
                        // Told to the main thread that is no more.
                        self.commands.remove(&thread);
                    }
                    self.events.push(match parent {
                        0 => Event::Executed { thread },
                        parent => Event::Born { thread, parent, number: registers.r13 },
                    });
                    self.steps += 1;
                }
                phase::IDLE => {
                    let thread = registers.r15 as u32;
                    let Some((number, command)) = self.commands.get_mut(&thread).and_then(VecDeque::pop_front) else {
                        self.idle.insert(thread);
                        self.spins += 1;
                        // So that all others have a turn before it is its own again, without time going by.
                        return Ok(system_call(registers, call::SCHED_YIELD, AFTER));
                    };
                    registers.r13 = number;
                    registers.r14 = phase::PREPARES;
                    self.running.insert(number, command);
                }
                phase::PREPARES => return self.start(registers, table),
                phase::CALLS => {
                    // In registers, for a child begins where its parent may have long gone on.
                    let made = registers.r11;
                    if matches!(made, call::CLONE | call::FORK) && registers.rax == 0 {
                        registers.rbx = registers.r15;
                        registers.r14 = phase::WAKES;
                        if made == call::CLONE {
                            registers.r12 = registers.rsp - SCRATCH;
                        }
                        return Ok(system_call(registers, call::GETTID, AFTER));
                    }
                    registers.rbp = registers.rax;
                    registers.r14 = phase::READS;
                }
                phase::READS => {
                    let (number, result) = (registers.r13, registers.rbp as i64);
                    let mut output = Vec::new();
                    if result >= 0 {
                        let command = &self.running[&number];
                        output.resize(command.output, 0);
                        table.read(UserAddr(command.at.unwrap_or(registers.r12 + OUTPUT)), &mut output)?;
                    }
                    self.running.remove(&number);
                    registers.r14 = phase::IDLE;
                    self.events.push(Event::Returned { thread: registers.r15 as u32, number, result, output });
                    self.steps += 1;
                }
                strange => panic!("phase {strange}: {registers:x?}"),
            }
        }
    }

    fn start(&mut self, registers: &mut Registers, table: &dyn PageTable) -> Result<Trap, UserFault> {
        let command = &self.running[&registers.r13];
        if !command.input.is_empty() {
            table.write(UserAddr(command.at.unwrap_or(registers.r12)), &command.input)?;
        }
        let scratch = registers.r12;
        let arguments = command.arguments.map(|argument| match argument {
            Arg::Value(value) => value,
            Arg::Input => scratch,
            Arg::Output => scratch + OUTPUT,
        });
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        registers.r14 = phase::CALLS;
        registers.r11 = command.call;
        Ok(system_call(registers, command.call, AFTER))
    }
}

/// `struct sigaction` of a signal for rt_sigaction: handler 0 is the default, 1 ignores, else ours.
pub fn action(handler: u64) -> Vec<u8> {
    const RESTORER_FLAG: u64 = 0x0400_0000;
    let handler = if handler > 1 { HANDLER } else { handler };
    [handler, RESTORER_FLAG, RESTORER, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// clone(2) of a thread with the stack in slot `index`.
pub fn clone_thread(index: u64) -> Command {
    // CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM.
    Command::plain(call::CLONE, &[0x5_0f00, stack_top(index)])
}
