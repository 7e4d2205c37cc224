//! An ELF file: its symbols, and what the compiler says of its frames.

use elf::{abi, endian::LittleEndian, symbol::Symbol, ElfBytes};
use framehop::ExplicitModuleSectionInfo;
use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Larger files are not read.
const MOST_BYTES: u64 = 2 << 30;

/// Bytes of a section.
pub type Section = Arc<[u8]>;

/// What is kept of a file.
#[derive(Default)]
pub struct Image {
    segments: Vec<Segment>,
    symbols: Vec<Named>,
    text: Option<Range<u64>>,
    eh_frame: Option<(Range<u64>, Section)>,
    eh_frame_hdr: Option<(Range<u64>, Section)>,
    debug_frame: Option<Section>,
}

struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

struct Named {
    address: u64,
    /// 0: it ends where the next begins.
    bytes: u64,
    name: String,
}

type File<'a> = ElfBytes<'a, LittleEndian>;

impl Image {
    /// Reads a file; None if it is not there, or no ELF file. `debug_root`: where /usr/lib/debug is looked for.
    pub fn read(path: &Path, debug_root: &Path) -> Option<Image> {
        let bytes = contents(path)?;
        let file = File::minimal_parse(&bytes).ok()?;
        let mut image = Image::default();
        for header in file.segments()?.iter().filter(|header| header.p_type == abi::PT_LOAD) {
            image.segments.push(Segment { address: header.p_vaddr, offset: header.p_offset, bytes: header.p_filesz });
        }
        let section = |name: &str| -> Option<(Range<u64>, Section)> {
            let header = file.section_header_by_name(name).ok()??;
            let (data, compressed) = file.section_data(&header).ok()?;
            let range = header.sh_addr..header.sh_addr.checked_add(header.sh_size)?;
            compressed.is_none().then(|| (range, data.into()))
        };
        let text = file.section_header_by_name(".text").ok().flatten();
        image.text = text.and_then(|text| Some(text.sh_addr..text.sh_addr.checked_add(text.sh_size)?));
        image.eh_frame = section(".eh_frame");
        image.eh_frame_hdr = section(".eh_frame_hdr");
        let lowest = image.extent().start;
        image.debug_frame = section(".debug_frame").map(|(_, data)| without_discarded(&data, lowest));
        image.symbols = symbols(&file);
        if file.symbol_table().ok().flatten().is_none() {
            // Debian keeps the symbols of stripped files apart.
            if let Some(bytes) = debug_file(&file, debug_root).and_then(|path| contents(&path)) {
                image.symbols.extend(File::minimal_parse(&bytes).ok().map(|file| symbols(&file)).unwrap_or_default());
            }
        }
        image.symbols.sort_by_key(|symbol| (symbol.address, symbol.bytes == 0));
        image.symbols.dedup_by_key(|symbol| symbol.address);
        Some(image)
    }

    /// What is to be added to an address in the file where byte `offset` of it lies at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = 0xfff;
        let holds = |segment: &&Segment| {
            let from = segment.offset & !page;
            (from..(segment.offset + segment.bytes).next_multiple_of(page + 1)).contains(&offset)
        };
        let mut found = self.segments.iter().filter(holds);
        // Of two that share a page the one that begins with it.
        let exact = found.clone().find(|segment| segment.offset & !page == offset);
        let segment = exact.or_else(|| found.next())?;
        let address = (segment.address & !page).wrapping_add(offset - (segment.offset & !page));
        Some(start.wrapping_sub(address))
    }

    /// The function that has this address of the file, and how far it is into it.
    pub fn function(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        let inside = address - symbol.address;
        (symbol.bytes == 0 || inside < symbol.bytes).then_some((&symbol.name, inside))
    }

    /// Lowest and highest address of what is loaded.
    pub fn extent(&self) -> Range<u64> {
        let low = self.segments.iter().map(|segment| segment.address).min().unwrap_or(0);
        low..self.segments.iter().map(|segment| segment.address + segment.bytes).max().unwrap_or(0)
    }

    /// For the unwinder.
    pub fn sections(&self) -> ExplicitModuleSectionInfo<Section> {
        ExplicitModuleSectionInfo {
            text_svma: self.text.clone(),
            eh_frame_svma: self.eh_frame.as_ref().map(|(range, _)| range.clone()),
            eh_frame: self.eh_frame.as_ref().map(|(_, data)| data.clone()),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: self.eh_frame_hdr.as_ref().map(|(_, data)| data.clone()),
            debug_frame: self.debug_frame.clone(),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}

/// Says of functions that the linker has left out, which have address 0 then, that they are at `lowest` and have no instruction. The unwinder would not take the section else.
/// (DWARF 5, 6.4.1: length, number of the common entry, address, bytes.)
fn without_discarded(section: &[u8], lowest: u64) -> Section {
    const IS_COMMON: u32 = u32::MAX;
    let mut bytes = section.to_vec();
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 8) {
        let number = |from: usize| head[from..from + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let (length, common) = (number(0) as usize, number(4));
        let end = at + 4 + length;
        let Some(place) = bytes.get_mut(at + 8..at + 24).filter(|_| length >= 20 && common != IS_COMMON) else {
            at = end;
            continue;
        };
        let (address, range) = place.split_at_mut(8);
        if address.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) < lowest {
            address.copy_from_slice(&lowest.to_le_bytes());
            range.fill(0);
        }
        at = end;
    }
    bytes.into()
}

fn contents(path: &Path) -> Option<Vec<u8>> {
    let about = fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= MOST_BYTES).then(|| fs::read(path).ok())?
}

/// The functions that a file names.
fn symbols(file: &File<'_>) -> Vec<Named> {
    let mut named = Vec::new();
    for table in [file.symbol_table(), file.dynamic_symbol_table()] {
        let Ok(Some((table, names))) = table else { continue };
        let is_code = |symbol: &Symbol| {
            let kind = symbol.st_symtype();
            let code = matches!(kind, abi::STT_FUNC | abi::STT_GNU_IFUNC | abi::STT_NOTYPE);
            code && symbol.st_shndx != abi::SHN_UNDEF && symbol.st_shndx < abi::SHN_LORESERVE
        };
        for symbol in table.iter().filter(is_code) {
            let Ok(name) = names.get(symbol.st_name as usize) else { continue };
            // Marks of the compiler within functions.
            if !name.is_empty() && !name.starts_with('$') && !name.starts_with(".L") {
                named.push(Named { address: symbol.st_value, bytes: symbol.st_size, name: demangled(name) });
            }
        }
    }
    named
}

/// A name as its programmer wrote it.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_string())
}

/// Where the file with the symbols of a stripped one is, by its build id.
fn debug_file(file: &File<'_>, root: &Path) -> Option<PathBuf> {
    let header = file.section_header_by_name(".note.gnu.build-id").ok()??;
    let id = file.section_data_as_notes(&header).ok()?.find_map(|note| match note {
        elf::note::Note::GnuBuildId(id) => Some(id.0.to_vec()),
        _ => None,
    })?;
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (directory, rest) = digits.split_at_checked(2)?;
    Some(root.join(format!("usr/lib/debug/.build-id/{directory}/{rest}.debug")))
}
