//! execve: from a file to a program that is about to run its first instruction (man 2 execve; System V ABI, 3.4).
//!
//! Everything that can fail with an errno happens in a *new* address space, before the old one is touched;
//! then the other threads end, and the process takes the new image over in one step.

mod elf;
mod stack;

use crate::arch::DYNAMIC_BASE;
use crate::{death::KILLED, limits, migrate::Absence, thread::Presence, Context, Files, Process, System, Thread};
use abi::{signal::AltStack, OpenFlags, PathOp};
use alloc::{sync::Arc, vec, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use elf::{read_fully, Elf};
use fs::{File, PathAnswer};
use linux_raw_sys::general::MINSIGSTKSZ;
use machine::{errno::Result, Errno, FpuState, KernelSet, Registers, UserAddr, UserRegisters, PAGE_SIZE, USER_END};
use messages::{
    process::{Change, EndShadow, Layout, SharedPart},
    timer::TimerOp,
};
use stack::Strings;
use vm::Space;

/// Interpreters of interpreters that Linux follows (BINPRM_MAX_RECURSION).
const SCRIPT_DEPTH: usize = 5;
/// Longest `#!` line (BINPRM_BUF_SIZE).
const HEAD: usize = 256;
/// A personality in which whatever may be read may be executed: that of programs older than the difference.
pub const READ_IMPLIES_EXEC: u32 = 0x40_0000;
/// A personality in which the same program has the same addresses every time.
const ADDR_NO_RANDOMIZE: u32 = 0x4_0000;
/// Most bytes of one string of arguments or environment, with its zero byte (MAX_ARG_STRLEN).
pub const ARGUMENT_MAX: usize = 32 * PAGE_SIZE;
/// Most bytes of all of them, with their pointers (a quarter of 8 MiB of stack).
pub const ARGUMENTS_MAX: usize = 2 << 20;

/// What execve was asked to run.
pub struct Program {
    /// The file, opened; a script's interpreter takes its place later.
    pub file: Arc<dyn File>,
    /// The path as given, for AT_EXECFN and scripts.
    pub path: Vec<u8>,
    /// That path leads nowhere once the descriptors are closed that execve closes: no interpreter could find a script by it.
    pub closes: bool,
    /// `argv`, without the zero bytes.
    pub arguments: Vec<Vec<u8>>,
    /// `envp`, likewise.
    pub environment: Vec<Vec<u8>>,
}

/// A program loaded into a space of its own.
struct Image {
    space: Arc<Space>,
    entry: u64,
    stack: u64,
    layout: Layout,
    executable: Vec<u8>,
    name: Vec<u8>,
    /// Whoever runs it may read it: so others may look into the process.
    readable: bool,
}

impl Thread {
    /// Replaces the process's program. On success the context is the new program's, unless the thread was not
    /// the main one: then a new thread with the process's id goes on, and this one is over without exit.
    pub async fn execute(self: &Arc<Self>, context: &mut Context, program: Program) -> Result<Absence> {
        let process = self.process.clone();
        let system = process.system.clone();
        let image = load(&process, self, program).await?;
        if let Err(error) = process.become_single(self).await {
            image.space.destroy().await;
            return Err(error);
        }
        self.executing.store(true, SeqCst);
        system.abi.leave_memory(self).await;
        // Afterwards: what a robust list names has no owner by then, and goes to those who wait.
        process.leave_locks(self.tid).await;
        if let Err(error) = self.take_over(&process, image, context).await {
            // There is no way back, as in Linux. It fails only if a kernel has died that the process had something on.
            process.end(KILLED).await;
            return Err(error);
        }
        if self.tid == process.id {
            self.executing.store(false, SeqCst);
            return Ok(Absence::Back);
        }
        // man 2 execve: the process's id stays, whichever thread called. The main thread that it ended may have been
        // here once, and its shadow not know of the end yet.
        system.end_shadow(process.id);
        let (heir, visited) = self.become_main();
        system.forget_birth(self.tid, process.id);
        for kernel in visited.iter().filter(|&kernel| kernel != system.kernel) {
            // A dead kernel has no shadow left.
            let _ = system.endpoint.send(kernel, EndShadow { process: process.id, thread: self.tid });
        }
        heir.start(Context { registers: context.registers });
        Ok(Absence::Over)
    }

    /// The same thread under the process's id, and the kernels that know it under the old one. Whoever looks for the main thread finds
    /// either this one ([`Process::executing`]) or the new one.
    fn become_main(&self) -> (Arc<Thread>, KernelSet) {
        let process = &self.process;
        self.settle_account(&mut self.state.lock());
        let (heir, visited) = {
            let mut threads = process.system.threads.lock();
            let mut presence = self.presence.lock();
            let mut state = self.state.lock().clone();
            let visited = core::mem::take(&mut state.visited);
            let heir = Thread::new(process.id, process.clone(), state, self.fpu.lock().clone());
            // It may just have been told to go elsewhere.
            *heir.destination.lock() = self.destination.lock().take();
            *heir.reserved.lock() = self.reserved.lock().take();
            heir.misplaced.store(self.misplaced.load(SeqCst), SeqCst);
            threads.remove(&self.tid);
            threads.insert(process.id, heir.clone());
            *presence = Presence::Ended;
            (heir, visited)
        };
        let mut threads = process.threads.lock();
        threads.remove(&self.tid);
        threads.insert(process.id, heir.clone());
        (heir, visited)
    }

    async fn take_over(self: &Arc<Self>, process: &Arc<Process>, image: Image, context: &mut Context) -> Result<()> {
        let Image { space, entry, stack, layout, executable, name, readable } = image;
        let files = match self.own_files(process).await {
            Ok(files) => files,
            // The home of the table is dead.
            Err(error) => {
                space.destroy().await;
                return Err(error);
            }
        };
        process.system.first_user(space.id(), process.home);
        let old = process.take_space(space.clone());
        // As on Linux it stays the process's, also that of the parent's memory after a vfork.
        let peak = old.peak().await;
        self.state.lock().usage.note_resident(peak.resident);
        process.system.release_space(&old, process.home).await;
        if !process.is_home() || !process.replicas().is_empty() {
            // The home gives the parent of a vfork its memory back, too.
            let alone = process.system.kernel;
            // It is about to have a replica, which may never ask for a page, and must hear of the end.
            space.expect(process.home);
            process.change(Change::Image { space: space.id(), files: files.id(), alone }).await?;
        }
        self.end_monitoring();
        if process.with_shared(|shared| shared.monitored) {
            process.change(Change::Monitored(false)).await?;
        }
        process.leave_sharing_group(SharedPart::Handlers).await?;
        process.leave_sharing_group(SharedPart::Memory).await?;
        process.change(Change::ResetActions).await?;
        process.timer(TimerOp::DeleteAll).await?;
        trace::sched_process_exec(self.tid.0, &executable);
        process.change(Change::Executable { path: executable, layout }).await?;
        let dumpable = {
            let who = &self.state.lock().credentials;
            readable && who.uid == who.euid && who.gid == who.egid
        };
        if process.with_shared(|shared| shared.dumpable) != dumpable {
            process.change(Change::Dumpable(dumpable)).await?;
        }
        let owner = {
            let mut state = self.state.lock();
            state.name = name.clone();
            trace::thread_name(self.tid.0, process.id.0, &name);
            state.alt_stack = AltStack::NONE;
            state.clear_child_tid = 0;
            state.robust_list = (0, 0);
            state.rseq = None;
            state.personality &= !READ_IMPLIES_EXEC;
            let (uid, euid) = (state.credentials.uid, state.credentials.euid);
            state.credentials.effective = state.capabilities.after_execute(uid, euid);
            state.credentials.clone()
        };
        // A thread that was not the main one is it now.
        process.change(Change::Owner(owner)).await?;
        if let Some(home) = process.home() {
            home.state.lock().name = name;
        }
        // Last: who sees the end of a pipe by that knows that the old program and its memory are gone.
        let caller = process.caller(self);
        for file in files.close_on_exec().await? {
            fs::file::close_descriptor(file, &caller).await;
        }
        self.with_fpu(|fpu| *fpu = FpuState::initial(process.system.cpu.fpu_size()));
        context.registers = Registers::of_program(entry, stack);
        Ok(())
    }
}

impl Thread {
    /// The descriptors of the new program: nobody else's.
    async fn own_files(&self, process: &Arc<Process>) -> Result<Arc<Files>> {
        if !process.files().is_shared() {
            return Ok(process.files());
        }
        let own = process.files().copy(process.home).await?;
        // Its locks it keeps, with the files in the copy.
        let _ = process.set_files(own.clone()).release(process.home, None).await;
        Ok(own)
    }
}

impl System {
    /// Loads the first program into its process, which has an empty space.
    pub async fn load_first(self: &Arc<Self>, thread: &Arc<Thread>, program: Program) -> Result<Registers> {
        let image = load(&thread.process, thread, program).await?;
        let mut context = Context { registers: Registers::default() };
        thread.take_over(&thread.process.clone(), image, &mut context).await?;
        Ok(context.registers)
    }
}

/// Opens `path` for execution: a regular file with execute permission.
async fn open_executable(process: &Arc<Process>, thread: &Thread, path: &[u8]) -> Result<Arc<dyn File>> {
    let directories = process.directories().await?;
    let base = fs::Base::new(directories.root, directories.cwd);
    let caller = process.caller(thread);
    let op = PathOp::Open { path: path.to_vec(), flags: OpenFlags::EXEC, mode: 0, resolve: 0 };
    match process.system.paths.run(&caller, &base, op).await? {
        PathAnswer::File(file) => Ok(file),
        _ => Err(Errno::EIO),
    }
}

async fn load(process: &Arc<Process>, thread: &Thread, program: Program) -> Result<Image> {
    let Program { mut file, path, closes, mut arguments, environment } = program;
    let mut depth = 0;
    let elf = loop {
        if file.attributes().await?.kind() != fs::Kind::Regular {
            return Err(Errno::EACCES);
        }
        let mut head = vec![0; HEAD];
        let len = read_fully(&*file, &mut head, 0).await?;
        head.truncate(len);
        match head.strip_prefix(b"#!") {
            None => break Elf::read(file, path.clone()).await?,
            Some(line) => {
                depth += 1;
                if depth > SCRIPT_DEPTH {
                    return Err(Errno::ELOOP);
                }
                let (interpreter, argument) = parse_script(line)?;
                if closes {
                    return Err(Errno::ENOENT);
                }
                // The script's own name replaces argv[0].
                let script = if depth == 1 { path.clone() } else { arguments.first().cloned().unwrap_or_default() };
                let rest = arguments.split_off(arguments.len().min(1));
                arguments = [interpreter.to_vec()].into();
                arguments.extend(argument.map(<[u8]>::to_vec));
                arguments.push(script);
                arguments.extend(rest);
                file = open_executable(process, thread, interpreter).await?;
            }
        }
    };
    let interpreter = match elf.interpreter().await? {
        None => None,
        Some(path) => {
            let file = open_executable(process, thread, &path).await?;
            Some(Elf::read(file, path).await?)
        }
    };
    let who = thread.state.lock().credentials.clone();
    let mut readable = true;
    for elf in [Some(&elf), interpreter.as_ref()].into_iter().flatten() {
        readable &= fs::may_read(&who, &elf.file.attributes().await?);
    }
    let space = process.system.vm.create()?;
    space.set_limits(limits::of_mappings(&process.shared().limits));
    let strings = Strings { path: &path, arguments: &arguments, environment: &environment };
    match build(process, thread, &space, &elf, interpreter.as_ref(), &strings).await {
        Ok((entry, stack, layout)) => {
            let executable = elf.file.path().await;
            let name: Vec<u8> =
                path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path).iter().copied().take(15).collect();
            Ok(Image { space, entry, stack, layout, executable, name, readable })
        }
        Err(error) => {
            space.destroy().await;
            Err(error)
        }
    }
}

/// `#! interpreter [argument]`: one optional argument, the rest of the line with inner spaces.
fn parse_script(line: &[u8]) -> Result<(&[u8], Option<&[u8]>)> {
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let split = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(split);
    if interpreter.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    let argument = argument.trim_ascii();
    Ok((interpreter, (!argument.is_empty()).then_some(argument)))
}

/// Fills an empty space with the program. The first instruction, its stack pointer, and what /proc tells.
async fn build(
    process: &Arc<Process>,
    thread: &Thread,
    space: &Arc<Space>,
    elf: &Elf,
    interpreter: Option<&Elf>,
    strings: &Strings<'_>,
) -> Result<(u64, u64, Layout)> {
    let cpu = &process.system.cpu;
    let mut random = [0; 40];
    if thread.state.lock().personality & ADDR_NO_RANDOMIZE == 0 {
        cpu.random(&mut random[..24]);
    }
    cpu.random(&mut random[24..]);
    let slide = |index: usize, bits: u32| -> u64 {
        let bytes: [u8; 8] = random[index..index + 8].try_into().unwrap_or_default();
        (u64::from_le_bytes(bytes) & ((1 << bits) - 1)) * PAGE_SIZE as u64
    };
    let main = elf.map(space, Some(DYNAMIC_BASE + slide(0, 20)), true).await?;
    space.set_brk(UserAddr(main.end + slide(8, 11)));
    let loader = match interpreter {
        None => None,
        Some(interpreter) => Some(interpreter.map(space, None, false).await?),
    };
    let vdso = process.system.map_vdso(space).await?;

    let credentials = thread.state.lock().credentials.clone();
    let (hwcap, hwcap2) = cpu.capabilities();
    let mut auxiliary: Vec<(u64, u64)> = vec![
        (16, hwcap),                                                                                 // AT_HWCAP
        (6, PAGE_SIZE as u64),                                                                       // AT_PAGESZ
        (17, 100),                                                                                   // AT_CLKTCK
        (3, main.headers),                                                                           // AT_PHDR
        (4, 56),                                                                                     // AT_PHENT
        (5, u64::from(elf.header_count)),                                                            // AT_PHNUM
        (7, loader.as_ref().map_or(0, |loader| loader.bias)),                                        // AT_BASE
        (8, 0),                                                                                      // AT_FLAGS
        (9, main.entry),                                                                             // AT_ENTRY
        (11, u64::from(credentials.uid)),                                                            // AT_UID
        (12, u64::from(credentials.euid)),                                                           // AT_EUID
        (13, u64::from(credentials.gid)),                                                            // AT_GID
        (14, u64::from(credentials.egid)),                                                           // AT_EGID
        (23, u64::from(credentials.uid != credentials.euid || credentials.gid != credentials.egid)), // AT_SECURE
        (26, hwcap2),                                                                                // AT_HWCAP2
        (51, u64::from(MINSIGSTKSZ) + cpu.fpu_size() as u64),                                        // AT_MINSIGSTKSZ
    ];
    auxiliary.extend(vdso.map(|at| (33, at))); // AT_SYSINFO_EHDR
    let top = USER_END - PAGE_SIZE as u64 - slide(16, 11);
    let stack = stack::write(space, top, strings, &random[24..40], auxiliary).await?;
    let layout = Layout {
        arguments: stack.arguments.into(),
        environment: stack.environment.into(),
        stack: stack.bottom,
        brk: main.end,
        code: main.code.into(),
        auxv: stack.auxv.into(),
    };
    log::trace!("{}: entry {:#x}", alloc::string::String::from_utf8_lossy(&elf.path), main.entry);
    Ok((loader.map_or(main.entry, |loader| loader.entry), stack.bottom, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_line_has_one_argument_with_its_spaces() {
        assert_eq!(parse_script(b"/bin/sh\necho"), Ok((&b"/bin/sh"[..], None)));
        assert_eq!(parse_script(b" /usr/bin/env  python3 -u \n"), Ok((&b"/usr/bin/env"[..], Some(&b"python3 -u"[..]))));
        assert_eq!(parse_script(b"  \n"), Err(Errno::ENOEXEC));
    }
}
