//! execve: from a file to a program that is about to run its first instruction (man 2 execve; System V ABI,
//! x86-64 supplement, 3.4).
//!
//! Everything that can fail with an errno happens in a *new* address space, before the old one is touched;
//! then the other threads end, and the process takes the new image over in one step.

use crate::{migrate::Absence, Context, Process, System, Thread};
use abi::{signal::AltStack, OpenFlags, PathOp};
use alloc::{sync::Arc, vec, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use elf::{
    abi as elf_abi,
    endian::LittleEndian,
    file::Class,
    segment::{ProgramHeader, SegmentTable},
};
use fs::{File, PathAnswer};
use machine::{errno::Result, Access, Errno, FpuState, Registers, UserAddr, PAGE_SIZE, USER_END};
use messages::{
    process::{Change, EndShadow, Facet, Layout},
    timer::TimerOp,
};
use vm::{MapRequest, Place, Source, Space};

/// Interpreters of interpreters that Linux follows (BINPRM_MAX_RECURSION).
const SCRIPT_DEPTH: usize = 5;
/// Longest `#!` line (BINPRM_BUF_SIZE).
const HEAD: usize = 256;
/// A personality in which the same program has the same addresses every time.
const ADDR_NO_RANDOMIZE: u32 = 0x4_0000;
/// Where position-independent executables go (ELF_ET_DYN_BASE of x86-64), before randomization.
const DYNAMIC_BASE: u64 = 0x5555_5555_4000;
/// MAX_ARG_STRLEN, and what arguments and environment may take in all (a quarter of 8 MiB of stack).
pub const ARGUMENT_MAX: usize = 32 * PAGE_SIZE;
pub const ARGUMENTS_MAX: usize = 2 << 20;

/// What execve was asked to run.
pub struct Program {
    pub file: Arc<dyn File>,
    /// The path as given, for AT_EXECFN and scripts.
    pub path: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
}

struct Elf {
    file: Arc<dyn File>,
    path: Vec<u8>,
    dynamic: bool,
    entry: u64,
    header_at: u64,
    header_count: u16,
    segments: Vec<ProgramHeader>,
}

struct Loaded {
    entry: u64,
    /// Difference between addresses in the file and in memory.
    bias: u64,
    headers: u64,
    end: u64,
    code: (u64, u64),
}

/// A program loaded into a space of its own.
struct Image {
    space: Arc<Space>,
    entry: u64,
    stack: u64,
    layout: Layout,
    executable: Vec<u8>,
    name: Vec<u8>,
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
        self.take_over(&process, image, context).await?;
        if self.tid == process.id {
            return Ok(Absence::Back);
        }
        // man 2 execve: the process's id stays, whichever thread called.
        let mut state = {
            let mut state = self.state.lock();
            self.settle_account(&mut state);
            state.clone()
        };
        let visited = core::mem::take(&mut state.visited);
        let heir = Thread::new(process.id, process.clone(), state, self.fpu.lock().clone());
        process.threads.lock().remove(&self.tid);
        system.threads.lock().remove(&self.tid);
        system.forget_birth(self.tid, process.id);
        for kernel in visited.iter().filter(|&kernel| kernel != system.kernel) {
            // A dead kernel has no shadow left.
            let _ = system.endpoint.send(kernel, EndShadow { process: process.id, thread: self.tid });
        }
        // It may just have been told to go elsewhere.
        *heir.destination.lock() = self.destination.lock().take();
        heir.misplaced.store(self.misplaced.load(SeqCst), SeqCst);
        // The main thread that execve ended may have been here once, and its shadow not know of the end yet.
        system.end_shadow(process.id);
        system.threads.lock().insert(process.id, heir.clone());
        process.threads.lock().insert(process.id, heir.clone());
        heir.start(Context { registers: context.registers });
        Ok(Absence::Over)
    }

    async fn take_over(self: &Arc<Self>, process: &Arc<Process>, image: Image, context: &mut Context) -> Result<()> {
        let Image { space, entry, stack, layout, executable, name } = image;
        let files = match process.files().is_shared() {
            false => process.files(),
            true => {
                let own = process.files().copy().await?;
                process.set_files(own.clone()).release().await;
                own
            }
        };
        let caller = process.caller(self);
        for file in files.close_on_exec().await? {
            file.closed(&caller).await;
        }
        let old = process.set_space(space.clone());
        process.leave_parents_space();
        process.system.release_space(&old).await;
        if !process.is_home() || !process.replicas().is_empty() {
            // The home gives the parent of a vfork its memory back, too.
            let alone = Some(process.system.kernel);
            // It is about to have a replica, which may never ask for a page, and must hear of the end.
            space.expect(process.home);
            process.change(Change::Image { space: space.id(), files: files.id(), alone }).await?;
        }
        process.leave_circle(Facet::Handlers).await?;
        process.change(Change::ResetActions).await?;
        process.timer(TimerOp::DeleteAll).await?;
        process.change(Change::Executable { path: executable, layout }).await?;
        let owner = {
            let mut state = self.state.lock();
            state.name = name.clone();
            state.alt_stack = AltStack::NONE;
            state.clear_child_tid = 0;
            state.robust_list = (0, 0);
            state.rseq = None;
            let (uid, euid) = (state.credentials.uid, state.credentials.euid);
            state.credentials.effective = state.capabilities.after_execute(uid, euid);
            state.credentials.clone()
        };
        // A thread that was not the main one is it now.
        process.change(Change::Owner(owner)).await?;
        if let Some(home) = process.home() {
            home.state.lock().name = name;
        }
        self.with_fpu(|fpu| *fpu = FpuState::initial(process.system.cpu.fpu_size()));
        // Interrupts on, bit 1 always set.
        context.registers = Registers { rip: entry, rsp: stack, rflags: 0x202, ..Registers::default() };
        Ok(())
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
    let directories = process.directories();
    let base = fs::Base { root: directories.root, at: directories.cwd, to: None };
    let caller = process.caller(thread);
    let op = PathOp::Open { path: path.to_vec(), flags: OpenFlags::empty(), mode: 0, resolve: 0 };
    let access = PathOp::Access { path: path.to_vec(), mode: 1, effective: true, follow: true, empty_ok: false };
    process.system.paths.run(&caller, &base, access).await?;
    match process.system.paths.run(&caller, &base, op).await? {
        PathAnswer::File(file) => Ok(file),
        _ => Err(Errno::EIO),
    }
}

async fn load(process: &Arc<Process>, thread: &Thread, program: Program) -> Result<Image> {
    let Program { mut file, path, mut arguments, environment } = program;
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
    let space = process.system.vm.create()?;
    match build(process, thread, &space, &elf, interpreter.as_ref(), &path, &arguments, &environment).await {
        Ok((entry, stack, layout)) => {
            let executable = elf.file.path().await;
            let name: Vec<u8> =
                path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path).iter().copied().take(15).collect();
            Ok(Image { space, entry, stack, layout, executable, name })
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

async fn read_fully(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64).await? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

impl Elf {
    /// Reads and checks the headers. ENOEXEC for anything but an x86-64 executable or shared object.
    async fn read(file: Arc<dyn File>, path: Vec<u8>) -> Result<Elf> {
        let mut head = [0; 64];
        if read_fully(&*file, &mut head, 0).await? < head.len() {
            return Err(Errno::ENOEXEC);
        }
        let ident = elf::file::parse_ident::<LittleEndian>(&head).map_err(|_| Errno::ENOEXEC)?;
        let header =
            elf::file::FileHeader::parse_tail(ident, &head[elf_abi::EI_NIDENT..]).map_err(|_| Errno::ENOEXEC)?;
        let runnable = header.class == Class::ELF64
            && header.e_machine == elf_abi::EM_X86_64
            && matches!(header.e_type, elf_abi::ET_EXEC | elf_abi::ET_DYN)
            && header.e_phentsize == 56
            && (1..=1170).contains(&header.e_phnum);
        if !runnable {
            return Err(Errno::ENOEXEC);
        }
        let mut table = vec![0; usize::from(header.e_phnum) * usize::from(header.e_phentsize)];
        if read_fully(&*file, &mut table, header.e_phoff).await? < table.len() {
            return Err(Errno::ENOEXEC);
        }
        let segments: Vec<_> = SegmentTable::new(LittleEndian, Class::ELF64, &table).iter().collect();
        Ok(Elf {
            file,
            path,
            dynamic: header.e_type == elf_abi::ET_DYN,
            entry: header.e_entry,
            header_at: header.e_phoff,
            header_count: header.e_phnum,
            segments,
        })
    }

    /// The path in PT_INTERP.
    async fn interpreter(&self) -> Result<Option<Vec<u8>>> {
        let Some(header) = self.segments.iter().find(|segment| segment.p_type == elf_abi::PT_INTERP) else {
            return Ok(None);
        };
        if !(2..=4096).contains(&header.p_filesz) {
            return Err(Errno::ENOEXEC);
        }
        let mut path = vec![0; header.p_filesz as usize];
        if read_fully(&*self.file, &mut path, header.p_offset).await? < path.len() || path.pop() != Some(0) {
            return Err(Errno::ENOEXEC);
        }
        Ok(Some(path))
    }

    fn loadable(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(|segment| segment.p_type == elf_abi::PT_LOAD && segment.p_memsz > 0)
    }

    /// Lowest and highest page-aligned address of the image.
    fn extent(&self) -> Result<(u64, u64)> {
        let page = PAGE_SIZE as u64;
        let low = self.loadable().map(|segment| segment.p_vaddr / page * page).min().ok_or(Errno::ENOEXEC)?;
        let mut high = 0;
        for segment in self.loadable() {
            let end = segment.p_vaddr.checked_add(segment.p_memsz).filter(|&end| end <= USER_END);
            if segment.p_filesz > segment.p_memsz || segment.p_offset % page != segment.p_vaddr % page {
                return Err(Errno::ENOEXEC);
            }
            high = high.max(end.ok_or(Errno::ENOMEM)?.next_multiple_of(page));
        }
        Ok((low, high))
    }

    /// Maps the segments. `wish`: where a position-independent image should go; None: anywhere.
    async fn map(&self, space: &Arc<Space>, wish: Option<u64>) -> Result<Loaded> {
        let (low, high) = self.extent()?;
        let bias = match self.dynamic {
            false => 0,
            true => {
                // Reserves the whole extent, so that the parts keep their distances.
                let place = Place::Hint(UserAddr(wish.unwrap_or(0)));
                let reserve = MapRequest::anonymous(high - low, Access::empty()).at(place);
                let start = space.map(reserve).await?;
                space.unmap(start, high - low).await?;
                start.0.wrapping_sub(low)
            }
        };
        let object = self.file.object().await?;
        let label: Arc<[u8]> = self.file.path().await.into();
        let mut code = (u64::MAX, 0);
        for segment in self.loadable() {
            let start = segment.p_vaddr.wrapping_add(bias);
            map_segment(space, segment, start, &object, &label).await?;
            if segment.p_flags & elf_abi::PF_X != 0 {
                code = (code.0.min(start), code.1.max(start + segment.p_memsz));
            }
        }
        let first = self.loadable().next().ok_or(Errno::ENOEXEC)?;
        let headers = self
            .segments
            .iter()
            .find(|segment| segment.p_type == elf_abi::PT_PHDR)
            .map_or(first.p_vaddr.wrapping_sub(first.p_offset).wrapping_add(self.header_at), |header| header.p_vaddr);
        Ok(Loaded {
            entry: self.entry.wrapping_add(bias),
            bias,
            headers: headers.wrapping_add(bias),
            end: high.wrapping_add(bias),
            code,
        })
    }
}

fn access_of(segment: &ProgramHeader) -> Access {
    let mut access = Access::empty();
    access.set(Access::READ, segment.p_flags & elf_abi::PF_R != 0);
    access.set(Access::WRITE, segment.p_flags & elf_abi::PF_W != 0);
    access.set(Access::EXEC, segment.p_flags & elf_abi::PF_X != 0);
    access
}

/// One PT_LOAD: file pages, then zeroes up to the memory size.
async fn map_segment(
    space: &Arc<Space>,
    segment: &ProgramHeader,
    start: u64,
    object: &Arc<dyn fs::Object>,
    label: &Arc<[u8]>,
) -> Result<()> {
    let page = PAGE_SIZE as u64;
    let access = access_of(segment);
    let from = start / page * page;
    let file_end = start + segment.p_filesz;
    let memory_end = start + segment.p_memsz;
    if segment.p_filesz > 0 {
        let source = Source::Object {
            object: object.clone(),
            offset: segment.p_offset / page * page,
            label: label.clone(),
            limit: Access::all(),
        };
        let request = MapRequest { source, ..MapRequest::anonymous(file_end - from, access) };
        space.map(request.at(Place::Fixed(UserAddr(from)))).await?;
    }
    let zero_from = match segment.p_filesz {
        0 => from,
        _ => file_end.next_multiple_of(page),
    };
    if memory_end > zero_from {
        let request = MapRequest::anonymous(memory_end - zero_from, access).at(Place::Fixed(UserAddr(zero_from)));
        space.map(request).await?;
    }
    // The rest of the last file page holds what follows in the file. Linux clears all of it, also past the
    // memory size, and ld.so's first allocations rely on that.
    if memory_end > file_end && segment.p_filesz > 0 && access.contains(Access::WRITE) {
        space.write(UserAddr(file_end), &vec![0; (zero_from - file_end) as usize]).await?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // Everything a program starts with.
async fn build(
    process: &Arc<Process>,
    thread: &Thread,
    space: &Arc<Space>,
    elf: &Elf,
    interpreter: Option<&Elf>,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
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
    let wish = Some(DYNAMIC_BASE + slide(0, 20));
    let main = elf.map(space, wish).await?;
    space.set_brk(UserAddr(main.end + slide(8, 11)));
    let loader = match interpreter {
        None => None,
        Some(interpreter) => Some(interpreter.map(space, None).await?),
    };
    // The stack: as much as the start needs, growing down to RLIMIT_STACK.
    let top = USER_END - PAGE_SIZE as u64 - slide(16, 11);
    let bytes: usize = arguments.iter().chain(environment).map(|string| string.len() + 9).sum();
    let size = (bytes + path.len() + 0x20000).next_multiple_of(PAGE_SIZE) as u64;
    let stack =
        MapRequest { grows_down: true, stack: true, ..MapRequest::anonymous(size, Access::READ | Access::WRITE) };
    space.map(stack.at(Place::Fixed(UserAddr(top - size)))).await?;

    let mut writer = StackWriter { space, at: top - 8 };
    let name_at = writer.string(path).await?;
    let environment_at = writer.strings(environment).await?;
    let environment_end = name_at;
    let arguments_at = writer.strings(arguments).await?;
    let environment_start = environment_at.first().copied().unwrap_or(environment_end);
    let arguments_start = arguments_at.first().copied().unwrap_or(environment_start);
    let platform = writer.string(b"x86_64").await?;
    writer.at = (writer.at - 16) & !15;
    let random_at = writer.at;
    space.write(UserAddr(random_at), &random[24..40]).await?;

    let credentials = thread.state.lock().credentials.clone();
    let (hwcap, hwcap2) = (cpu.capabilities().0, cpu.capabilities().1);
    let auxiliary: [(u64, u64); 20] = [
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
        (25, random_at),                                                                             // AT_RANDOM
        (26, hwcap2),                                                                                // AT_HWCAP2
        (31, name_at),                                                                               // AT_EXECFN
        (15, platform),                                                                              // AT_PLATFORM
        (51, 2048 + cpu.fpu_size() as u64),                                                          // AT_MINSIGSTKSZ
        (0, 0),                                                                                      // AT_NULL
    ];
    let words = 1 + arguments_at.len() + 1 + environment_at.len() + 1 + auxiliary.len() * 2;
    let bottom = (writer.at - words as u64 * 8) & !15;
    let mut block: Vec<u64> = Vec::with_capacity(words);
    block.push(arguments_at.len() as u64);
    block.extend(&arguments_at);
    block.push(0);
    block.extend(&environment_at);
    block.push(0);
    let auxiliary_at = bottom + block.len() as u64 * 8;
    block.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
    let bytes: Vec<u8> = block.iter().flat_map(|word| word.to_le_bytes()).collect();
    space.write(UserAddr(bottom), &bytes).await?;

    let layout = Layout {
        arguments: (arguments_start, environment_start),
        environment: (environment_start, environment_end),
        stack: bottom,
        brk: main.end,
        code: main.code,
        auxv: (auxiliary_at, auxiliary_at + auxiliary.len() as u64 * 16),
    };
    log::trace!("{}: entry {:#x}", alloc::string::String::from_utf8_lossy(&elf.path), main.entry);
    Ok((loader.map_or(main.entry, |loader| loader.entry), bottom, layout))
}

/// Writes strings from the top of the stack down.
struct StackWriter<'a> {
    space: &'a Arc<Space>,
    at: u64,
}

impl StackWriter<'_> {
    async fn string(&mut self, string: &[u8]) -> Result<u64> {
        let mut bytes = string.to_vec();
        bytes.push(0);
        self.at -= bytes.len() as u64;
        self.space.write(UserAddr(self.at), &bytes).await?;
        Ok(self.at)
    }

    /// Strings in order at ascending addresses, without gaps (as /proc/PID/cmdline wants them).
    async fn strings(&mut self, strings: &[Vec<u8>]) -> Result<Vec<u64>> {
        let mut joined = Vec::with_capacity(strings.iter().map(|string| string.len() + 1).sum());
        let mut offsets = Vec::with_capacity(strings.len());
        for string in strings {
            offsets.push(joined.len() as u64);
            joined.extend_from_slice(string);
            joined.push(0);
        }
        self.at -= joined.len() as u64;
        self.space.write(UserAddr(self.at), &joined).await?;
        Ok(offsets.into_iter().map(|offset| self.at + offset).collect())
    }
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
