//! Which file's code is where in an address space, and unwinding there.

use crate::image::{Image, Section};
use framehop::{
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
    ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder,
};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Calls of a chain that are kept.
const MOST_CALLS: usize = 256;

/// Files that were read, by the name that the program knows them by.
pub struct Images {
    root: PathBuf,
    known: HashMap<String, Option<Arc<Image>>>,
}

impl Images {
    /// Files lie below `root`.
    pub fn new(root: PathBuf) -> Images {
        Images { root, known: HashMap::new() }
    }

    fn get(&mut self, path: &str) -> Option<Arc<Image>> {
        if let Some(image) = self.known.get(path) {
            return image.clone();
        }
        let place = self.root.join(path.trim_start_matches('/'));
        let image = path.starts_with('/').then(|| Image::read(&place, &self.root)).flatten().map(Arc::new);
        self.known.insert(path.to_string(), image.clone());
        image
    }
}

/// A file's pages in a space.
#[derive(Clone)]
struct Mapped {
    end: u64,
    offset: u64,
    path: Arc<str>,
}

/// A file's pages with what the file says of them.
struct Loaded {
    end: u64,
    bias: u64,
    path: Arc<str>,
    image: Option<Arc<Image>>,
}

/// What is known at an address.
pub struct Known<'a> {
    /// The file.
    pub path: &'a str,
    /// The function, and how far the address is into it.
    pub function: Option<(&'a str, u64)>,
    /// The address in the file.
    pub address: u64,
}

/// Registers from which a chain begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
}

/// The bit that kernels' addresses have and programs' have not. The unwinder reckons with signed numbers, so it is shown kernels' addresses without it.
const UPPER: u64 = 1 << 63;

/// An address space.
#[derive(Default)]
pub struct Space {
    mapped: BTreeMap<u64, Mapped>,
    /// Made of `mapped` when somebody asks.
    code: Option<Code>,
}

#[derive(Default)]
struct Code {
    loaded: BTreeMap<u64, Loaded>,
    unwinder: UnwinderX86_64<Section>,
    /// [`UPPER`] of the kernels' space.
    upper: u64,
}

/// What an unwinder remembers between chains; one for all spaces.
pub type Cache = CacheX86_64<framehop::MayAllocateDuringUnwind>;

impl Space {
    /// A copy, as fork makes it.
    pub fn fork(&self) -> Space {
        Space { mapped: self.mapped.clone(), code: None }
    }

    /// The space of a kernel, whose image is at the address it was linked for.
    pub fn of_kernel(path: &Path) -> Option<Space> {
        let image = Arc::new(Image::read(path, Path::new("/"))?);
        let range = image.extent();
        let mut code = Code::default();
        // The unwinder counts from here on, in 32 bits.
        let sections = ExplicitModuleSectionInfo { base_svma: range.start, ..image.sections() };
        let lowered = range.start & !UPPER..range.end & !UPPER;
        code.unwinder.add_module(Module::new("kernel".into(), lowered.clone(), lowered.start, sections));
        code.upper = UPPER;
        let loaded = Loaded { end: range.end, bias: 0, path: "[kernel]".into(), image: Some(image) };
        code.loaded.insert(range.start, loaded);
        Some(Space { mapped: BTreeMap::new(), code: Some(code) })
    }

    /// A file's pages are at `start` now, to be executed.
    pub fn map(&mut self, start: u64, length: u64, offset: u64, path: &str) {
        let end = start.saturating_add(length);
        let replaced: Vec<u64> =
            self.mapped.range(..end).filter(|(_, old)| old.end > start).map(|(at, _)| *at).collect();
        for at in replaced {
            self.mapped.remove(&at);
        }
        self.mapped.insert(start, Mapped { end, offset, path: path.into() });
        self.code = None;
    }

    fn code(&mut self, images: &mut Images) -> &Code {
        self.code.get_or_insert_with(|| {
            let mut code = Code::default();
            for (start, mapped) in &self.mapped {
                let image = images.get(&mapped.path);
                let bias = image.as_ref().and_then(|image| image.bias(*start, mapped.offset));
                if let (Some(image), Some(bias)) = (&image, bias) {
                    let module = Module::new(mapped.path.to_string(), *start..mapped.end, bias, image.sections());
                    code.unwinder.add_module(module);
                }
                // Of a file that is not there, addresses are offsets in it.
                let bias = bias.unwrap_or(start.wrapping_sub(mapped.offset));
                code.loaded.insert(*start, Loaded { end: mapped.end, bias, path: mapped.path.clone(), image });
            }
            code
        })
    }

    /// What is at an address.
    pub fn find(&mut self, address: u64, images: &mut Images) -> Option<Known<'_>> {
        let (_, loaded) = self.code(images).at(address)?;
        let address = address.wrapping_sub(loaded.bias);
        let function = loaded.image.as_ref().and_then(|image| image.function(address));
        Some(Known { path: &loaded.path, function, address })
    }

    /// The chain of calls that begins at `registers`, with `stack` for the words of the stack: innermost first; and whether it ends where chains end, and not where nothing more was known. Each address is
    /// one of the calling instruction.
    pub fn unwind(
        &mut self,
        mut registers: Registers,
        stack: &dyn Fn(u64) -> Option<u64>,
        images: &mut Images,
        cache: &mut Cache,
    ) -> (Vec<u64>, bool) {
        let code = self.code(images);
        let upper = code.upper;
        let mut read = |at: u64| -> Result<u64, ()> { stack(at | upper).map(|word| word & !upper).ok_or(()) };
        let mut chain = Vec::new();
        // Code of which nobody has said what its frames are, such as the vDSO's: a function that calls none has its return address on top.
        let is_dark = code.at(registers.pc).is_some_and(|(_, loaded)| loaded.image.is_none());
        if let Some(caller) = read(registers.sp).ok().filter(|caller| is_dark && code.at(*caller).is_some()) {
            chain.push(registers.pc);
            registers = Registers { pc: caller, sp: registers.sp + 8, fp: registers.fp };
        }
        let start = UnwindRegsX86_64::new(registers.pc & !upper, registers.sp & !upper, registers.fp & !upper);
        let mut frames = code.unwinder.iter_frames(registers.pc & !upper, start, cache, &mut read);
        let mut is_whole = false;
        while chain.len() < MOST_CALLS {
            match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(pc))) if !chain.is_empty() => chain.push(pc.saturating_sub(1)),
                Ok(Some(frame)) => chain.push(frame.address_for_lookup() | upper),
                Ok(None) => {
                    is_whole = true;
                    break;
                }
                Err(_) => break,
            }
        }
        (chain, is_whole)
    }
}

impl Code {
    fn at(&self, address: u64) -> Option<(u64, &Loaded)> {
        let (start, loaded) = self.loaded.range(..=address).next_back()?;
        (address < loaded.end).then_some((*start, loaded))
    }
}
