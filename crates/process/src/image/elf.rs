//! ELF files as execve reads and maps them (man 5 elf; System V ABI, chapter 5).

use crate::arch::ELF_MACHINE;
use alloc::{sync::Arc, vec, vec::Vec};
use elf::{
    abi as elf_abi,
    endian::LittleEndian,
    file::Class,
    segment::{ProgramHeader, SegmentTable},
};
use fs::File;
use machine::{errno::Result, Access, Errno, UserAddr, PAGE_SIZE, USER_END};
use vm::{MapAddress, MapRequest, Source, Space};

/// The headers of an executable or shared object.
pub(super) struct Elf {
    pub file: Arc<dyn File>,
    pub path: Vec<u8>,
    dynamic: bool,
    pub entry: u64,
    header_at: u64,
    pub header_count: u16,
    segments: Vec<ProgramHeader>,
}

/// Where it was mapped.
pub(super) struct Loaded {
    pub entry: u64,
    /// Difference between addresses in the file and in memory.
    pub bias: u64,
    pub headers: u64,
    pub end: u64,
    pub code: (u64, u64),
}

pub(super) async fn read_fully(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<usize> {
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
    /// Reads and checks the headers. ENOEXEC for anything but an executable or shared object of this architecture.
    pub async fn read(file: Arc<dyn File>, path: Vec<u8>) -> Result<Elf> {
        let mut head = [0; 64];
        if read_fully(&*file, &mut head, 0).await? < head.len() {
            return Err(Errno::ENOEXEC);
        }
        let ident = elf::file::parse_ident::<LittleEndian>(&head).map_err(|_| Errno::ENOEXEC)?;
        let header =
            elf::file::FileHeader::parse_tail(ident, &head[elf_abi::EI_NIDENT..]).map_err(|_| Errno::ENOEXEC)?;
        let runnable = header.class == Class::ELF64
            && header.e_machine == ELF_MACHINE
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
    pub async fn interpreter(&self) -> Result<Option<Vec<u8>>> {
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

    /// Maps the segments. `wish`: where a position-independent image should go; None: anywhere. `program`: this is what is executed, not
    /// its interpreter.
    pub async fn map(&self, space: &Arc<Space>, wish: Option<u64>, program: bool) -> Result<Loaded> {
        let (low, high) = self.extent()?;
        let bias = match self.dynamic {
            false => 0,
            true => {
                // Reserves the whole extent, so that the parts keep their distances.
                let place = MapAddress::Hint(UserAddr(wish.unwrap_or(0)));
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
            map_segment(space, segment, start, &object, &label, program).await?;
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
    program: bool,
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
        let request = MapRequest { source, program, ..MapRequest::anonymous(file_end - from, access) };
        space.map(request.at(MapAddress::Fixed(UserAddr(from)))).await?;
    }
    let zero_from = match segment.p_filesz {
        0 => from,
        _ => file_end.next_multiple_of(page),
    };
    if memory_end > zero_from {
        let request = MapRequest::anonymous(memory_end - zero_from, access).at(MapAddress::Fixed(UserAddr(zero_from)));
        space.map(request).await?;
    }
    // The rest of the last file page holds what follows in the file. Linux clears all of it, also past the
    // memory size, and ld.so's first allocations rely on that.
    if memory_end > file_end && segment.p_filesz > 0 && access.contains(Access::WRITE) {
        space.write(UserAddr(file_end), &vec![0; (zero_from - file_end) as usize]).await?;
    }
    Ok(())
}
