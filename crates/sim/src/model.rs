//! What the memory of processes is when nothing happens at the same time: a map from page to protection
//! and content. Obvious on purpose.
//!
//! [`Model::accepts`] says whether an operation may end in a given result here, and if so makes its effect. Where Linux
//! leaves a choice (the address of a mapping) any allowed result will do.

use crate::{
    acts::compared,
    object::{initial, WORD_STEP},
    rng::Rng,
};
use abi::ObjectId;
use machine::{Access, Errno, Page, SpaceId, PAGE_SIZE};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Words of a page that programs use, [`WORD_STEP`] bytes apart.
pub const WORDS: usize = PAGE_SIZE / WORD_STEP;
pub type Words = [u64; WORDS];

/// Where shared content lives: object, page.
type Place = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Anonymous,
    /// Private mapping of a file's page.
    File(Place, ObjectId),
    /// Shared mapping: content is the object's.
    Shared(Place),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelPage {
    prot: Access,
    heap: bool,
    source: Source,
    /// Content of its own.
    words: Option<Words>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSpace {
    pages: BTreeMap<u64, ModelPage>,
    heap: (u64, u64),
}

/// Cheap to clone, for there is one for each order of operations that run at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    spaces: BTreeMap<SpaceId, Arc<ModelSpace>>,
    shared: Arc<BTreeMap<Place, Words>>,
    /// Pages of each shared anonymous object: mremap grows the mapping, not the object.
    anonymous: Vec<u64>,
    /// Pages of an object.
    object_pages: u64,
    /// Memory is so short that anything may fail with ENOMEM, and then has no effect.
    scarce: bool,
}

/// Numbers of shared anonymous memory start here; those of objects are below.
const ANONYMOUS: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Anywhere,
    Hint(u64),
    Fixed(u64),
    NoReplace(u64),
}

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Map {
        at: Where,
        pages: u64,
        prot: Access,
        shared: bool,
        object: Option<(ObjectId, u64)>,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    Protect {
        page: u64,
        pages: u64,
        prot: Access,
    },
    DontNeed {
        page: u64,
    },
    Remap {
        page: u64,
        old: u64,
        new: u64,
        may_move: bool,
        to: Option<u64>,
    },
    Brk {
        to: u64,
    },
    Fork,
    Read {
        page: u64,
        word: usize,
    },
    Write {
        page: u64,
        word: usize,
        value: u64,
    },
    Exchange {
        page: u64,
        word: usize,
        old: u32,
        new: u32,
    },
    /// A thread comes and reads: the pages from there on are asked for together.
    Arrive {
        page: u64,
        word: usize,
        pages: u64,
        write: bool,
    },
    /// As through /proc/PID/mem.
    ForceRead {
        page: u64,
        word: usize,
    },
    ForceWrite {
        page: u64,
        word: usize,
        value: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A page number, or the break.
    At(u64),
    Value(u64),
    Exchanged(Result<u32, u32>),
    Child(SpaceId),
    Error(Errno),
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = |prot: Access| {
            let letter = |access, letter| if prot.contains(access) { letter } else { '-' };
            [letter(Access::READ, 'r'), letter(Access::WRITE, 'w'), letter(Access::EXEC, 'x')]
                .iter()
                .collect::<String>()
        };
        match *self {
            Operation::Map { at, pages, prot, shared, object } => {
                let kind = if shared { "shared" } else { "private" };
                write!(out, "map {pages} pages {} {kind}", letters(prot))?;
                match object {
                    Some((id, first)) => write!(out, " file {}.{} from page {first}", id.owner.0, id.serial)?,
                    None => write!(out, " anonymous")?,
                }
                match at {
                    Where::Anywhere => Ok(()),
                    Where::Hint(page) => write!(out, " near {page:x}"),
                    Where::Fixed(page) => write!(out, " at {page:x}"),
                    Where::NoReplace(page) => write!(out, " at {page:x} if free"),
                }
            }
            Operation::Unmap { page, pages } => write!(out, "unmap {page:x} +{pages}"),
            Operation::Protect { page, pages, prot } => write!(out, "protect {page:x} +{pages} {}", letters(prot)),
            Operation::DontNeed { page } => write!(out, "dontneed {page:x}"),
            Operation::Remap { page, old, new, may_move, to } => {
                write!(out, "remap {page:x} +{old} to +{new}")?;
                match (to, may_move) {
                    (Some(to), _) => write!(out, " at {to:x}"),
                    (None, true) => write!(out, ", may move"),
                    (None, false) => Ok(()),
                }
            }
            Operation::Brk { to } => write!(out, "brk {to:x}"),
            Operation::Fork => write!(out, "fork"),
            Operation::Read { page, word } => write!(out, "read {page:x}[{word}]"),
            Operation::Arrive { page, word, pages, write } => {
                let access = if write { "write" } else { "read" };
                write!(out, "arrive to {access} {page:x}+{pages:x}, read {page:x}[{word}]")
            }
            Operation::Write { page, word, value } => write!(out, "write {page:x}[{word}] = {value:x}"),
            Operation::Exchange { page, word, old, new } => write!(out, "exchange {page:x}[{word}] {old:x} by {new:x}"),
            Operation::ForceRead { page, word } => write!(out, "force read {page:x}[{word}]"),
            Operation::ForceWrite { page, word, value } => write!(out, "force write {page:x}[{word}] = {value:x}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Done => write!(out, "done"),
            At(page) => write!(out, "at {page:x}"),
            Value(value) => write!(out, "{value:x}"),
            Exchanged(Ok(found)) => write!(out, "exchanged {found:x}"),
            Exchanged(Err(found)) => write!(out, "found {found:x}"),
            Child(id) => write!(out, "process {}.{}", id.home.0, id.serial),
            Error(errno) => write!(out, "{errno:?}"),
        }
    }
}

use Outcome::{At, Child, Done, Error, Exchanged, Value};

impl Operation {
    pub fn without_hint(self) -> Operation {
        match self {
            Operation::Map { pages, prot, shared, object, .. } => {
                Operation::Map { at: Where::Anywhere, pages, prot, shared, object }
            }
            other => other,
        }
    }
}

impl ModelSpace {
    fn free(&self, page: u64, pages: u64) -> bool {
        self.pages.range(page..page + pages).next().is_none()
    }

    fn clear(&mut self, page: u64, pages: u64) {
        let gone: Vec<u64> = self.pages.range(page..page + pages).map(|(page, _)| *page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// Whether `page` and the one before belong to one region.
    fn joined(&self, page: u64) -> bool {
        let (Some(before), Some(here)) = (self.pages.get(&(page - 1)), self.pages.get(&page)) else {
            return false;
        };
        before.prot == here.prot
            && before.heap == here.heap
            && match (before.source, here.source) {
                (Source::Anonymous, Source::Anonymous) => true,
                (Source::File(a, _), Source::File(b, _)) | (Source::Shared(a), Source::Shared(b)) => {
                    a.0 == b.0 && a.1 + 1 == b.1
                }
                _ => false,
            }
    }

    fn one_region(&self, page: u64, pages: u64) -> bool {
        self.pages.contains_key(&page) && (page + 1..page + pages).all(|page| self.joined(page))
    }
}

impl Model {
    /// Nothing yet; every object has `object_pages` pages.
    pub fn new(object_pages: u64, scarce: bool) -> Self {
        Model { object_pages, scarce, ..Model::default() }
    }

    pub fn add_space(&mut self, id: SpaceId, heap: u64) {
        let space = ModelSpace { heap: (heap, heap), ..ModelSpace::default() };
        self.spaces.insert(id, Arc::new(space));
    }

    pub fn remove_space(&mut self, id: SpaceId) {
        self.spaces.remove(&id);
    }

    /// Mapped pages of a space, in order.
    pub fn pages(&self, id: SpaceId) -> Vec<u64> {
        self.spaces.get(&id).map(|space| space.pages.keys().copied().collect()).unwrap_or_default()
    }

    pub fn some_page(&self, rng: &Rng, id: SpaceId) -> Option<u64> {
        let pages = self.pages(id);
        (!pages.is_empty()).then(|| *rng.pick(&pages))
    }

    pub fn writable_page(&self, rng: &Rng, id: SpaceId) -> Option<u64> {
        let pages = &self.spaces.get(&id)?.pages;
        let writable = |(at, page): (&u64, &ModelPage)| page.prot.contains(Access::WRITE).then_some(*at);
        let all: Vec<u64> = pages.iter().filter_map(writable).collect();
        (!all.is_empty()).then(|| *rng.pick(&all))
    }

    pub fn total_pages(&self) -> usize {
        self.spaces.values().map(|space| space.pages.len()).sum()
    }

    /// What reading word `word` gives; None: EFAULT.
    pub fn word(&self, id: SpaceId, page: u64, word: usize) -> Option<u64> {
        let readable = !self.spaces.get(&id)?.pages.get(&page)?.prot.is_empty();
        self.content(id, page, word).filter(|_| readable)
    }

    /// What is there, whoever may read it; None: nothing.
    fn content(&self, id: SpaceId, page: u64, word: usize) -> Option<u64> {
        let page = self.spaces.get(&id)?.pages.get(&page)?;
        self.check_size(page)?;
        Some(match (page.words, page.source) {
            (Some(words), _) => words[word],
            (None, Source::Anonymous) => 0,
            (None, Source::File((object, index), _)) => initial(object, index, word),
            (None, Source::Shared(place)) => self.shared_words(place)[word],
        })
    }

    fn shared_words(&self, place: Place) -> Words {
        self.shared.get(&place).copied().unwrap_or_else(|| match place.0 < ANONYMOUS {
            true => std::array::from_fn(|word| initial(place.0, place.1, word)),
            false => [0; WORDS],
        })
    }

    /// None past the end of the object.
    fn check_size(&self, page: &ModelPage) -> Option<()> {
        match page.source {
            Source::File((_, index), _) => (index < self.object_pages).then_some(()),
            Source::Shared((object, index)) if object < ANONYMOUS => (index < self.object_pages).then_some(()),
            Source::Shared((object, index)) => (index < self.anonymous[(object - ANONYMOUS) as usize]).then_some(()),
            Source::Anonymous => Some(()),
        }
    }

    fn write_word(&mut self, id: SpaceId, page: u64, word: usize, value: u64) -> Option<()> {
        let may_write = self.spaces.get(&id)?.pages.get(&page)?.prot.contains(Access::WRITE);
        may_write.then(|| self.put_word(id, page, word, value))?
    }

    fn put_word(&mut self, id: SpaceId, page: u64, word: usize, value: u64) -> Option<()> {
        self.content(id, page, word)?;
        let old: Words = std::array::from_fn(|word| self.content(id, page, word).unwrap_or(0));
        let space = self.spaces.get_mut(&id)?;
        let page = Arc::make_mut(space).pages.get_mut(&page)?;
        let words = match page.source {
            Source::Shared(place) => Arc::make_mut(&mut self.shared).entry(place).or_insert(old),
            _ => page.words.get_or_insert(old),
        };
        words[word] = value;
        Some(())
    }

    /// Whether `operation` may give `outcome`; if so, it has its effect.
    pub fn accepts(&mut self, id: SpaceId, operation: Operation, outcome: Outcome) -> bool {
        let may_fail = !matches!(operation, Operation::Protect { .. } | Operation::DontNeed { .. });
        if self.scarce && may_fail && outcome == Error(Errno::ENOMEM) {
            return true;
        }
        let forced = matches!(operation, Operation::ForceRead { .. } | Operation::ForceWrite { .. });
        if self.scarce && forced && outcome == Error(Errno::EIO) {
            return true;
        }
        match operation {
            Operation::ForceRead { page, word } => match self.content(id, page, word) {
                Some(value) => outcome == Value(value),
                None => outcome == Error(Errno::EIO),
            },
            Operation::ForceWrite { page, word, value } => {
                let own =
                    |page: &ModelPage| !matches!(page.source, Source::Shared(_)) || page.prot.contains(Access::WRITE);
                let allowed = self.spaces.get(&id).and_then(|space| space.pages.get(&page)).is_some_and(own);
                match allowed.then(|| self.put_word(id, page, word, value)).flatten() {
                    Some(()) => outcome == Done,
                    None => outcome == Error(Errno::EIO),
                }
            }
            Operation::Read { page, word } | Operation::Arrive { page, word, .. } => match self.word(id, page, word) {
                Some(value) => outcome == Value(value),
                None => outcome == Error(Errno::EFAULT),
            },
            Operation::Write { page, word, value } => match self.write_word(id, page, word, value) {
                Some(()) => outcome == Done,
                None => outcome == Error(Errno::EFAULT),
            },
            Operation::Exchange { page, word, old, new } => {
                let Some(found) = self.word(id, page, word) else { return outcome == Error(Errno::EFAULT) };
                // A compare-exchange needs the right to write even when it fails to match.
                if self.write_word(id, page, word, found).is_none() {
                    return outcome == Error(Errno::EFAULT);
                }
                let low = found as u32;
                if low != old {
                    return outcome == Exchanged(Err(low));
                }
                self.write_word(id, page, word, found & !0xffff_ffff | u64::from(new));
                outcome == Exchanged(Ok(low))
            }
            Operation::Fork => match outcome {
                Child(child) => {
                    let copy = self.spaces[&id].clone();
                    self.spaces.insert(child, copy).is_none()
                }
                _ => false,
            },
            Operation::Map { .. } => self.accepts_map(id, operation, outcome),
            Operation::Remap { .. } => self.accepts_remap(id, operation, outcome),
            _ => self.accepts_change(id, operation, outcome),
        }
    }

    /// Is there something at the hint of this mapping? Then it may be made anywhere ([`Operation::without_hint`]).
    pub fn hint_taken(&self, id: SpaceId, operation: Operation) -> bool {
        let Operation::Map { at: Where::Hint(page), pages, .. } = operation else { return false };
        self.spaces.get(&id).is_some_and(|space| !space.free(page, pages))
    }

    fn accepts_map(&mut self, id: SpaceId, operation: Operation, outcome: Outcome) -> bool {
        let Operation::Map { at, pages, prot, shared, object } = operation else { return false };
        let Some(space) = self.spaces.get_mut(&id).map(Arc::make_mut) else { return false };
        let start = match (at, outcome) {
            (Where::NoReplace(page), Error(Errno::EEXIST)) => return !space.free(page, pages),
            (Where::NoReplace(page), At(start)) if start == page && space.free(page, pages) => start,
            (Where::Fixed(page), At(start)) if start == page => start,
            (Where::Hint(page), At(start)) if space.free(page, pages) && start == page => start,
            (Where::Anywhere, At(start)) if space.free(start, pages) => start,
            _ => return false,
        };
        space.clear(start, pages);
        let anonymous = ANONYMOUS + self.anonymous.len() as u64;
        for index in 0..pages {
            let source = match (object, shared) {
                (None, false) => Source::Anonymous,
                (None, true) => Source::Shared((anonymous, index)),
                (Some((id, first)), false) => Source::File((id.serial, first + index), id),
                (Some((id, first)), true) => Source::Shared((id.serial, first + index)),
            };
            space.pages.insert(start + index, ModelPage { prot, heap: false, source, words: None });
        }
        if shared && object.is_none() {
            self.anonymous.push(pages);
        }
        true
    }

    fn accepts_change(&mut self, id: SpaceId, operation: Operation, outcome: Outcome) -> bool {
        let Some(space) = self.spaces.get_mut(&id).map(Arc::make_mut) else { return false };
        match operation {
            Operation::Unmap { page, pages } => {
                space.clear(page, pages);
                outcome == Done
            }
            Operation::Protect { page, pages, prot } => {
                for at in page..page + pages {
                    match space.pages.get_mut(&at) {
                        Some(page) => page.prot = prot,
                        None => return outcome == Error(Errno::ENOMEM),
                    }
                }
                outcome == Done
            }
            Operation::DontNeed { page } => match space.pages.get_mut(&page) {
                Some(page) => {
                    page.words = None;
                    outcome == Done
                }
                None => outcome == Error(Errno::ENOMEM),
            },
            Operation::Brk { to } => {
                let (start, old) = space.heap;
                let (old_end, new_end) = (old.div_ceil(4096), to.div_ceil(4096));
                if to < start || new_end > old_end && !space.free(old_end, new_end - old_end) {
                    return outcome == At(old);
                }
                for page in old_end..new_end {
                    let prot = Access::READ | Access::WRITE;
                    let new = ModelPage { prot, heap: true, source: Source::Anonymous, words: None };
                    space.pages.insert(page, new);
                }
                space.clear(new_end, old_end.saturating_sub(new_end));
                space.heap.1 = to;
                outcome == At(to)
            }
            _ => false,
        }
    }

    fn accepts_remap(&mut self, id: SpaceId, operation: Operation, outcome: Outcome) -> bool {
        let Operation::Remap { page, old, new, may_move, to } = operation else { return false };
        let Some(space) = self.spaces.get_mut(&id).map(Arc::make_mut) else { return false };
        if !space.pages.contains_key(&page) {
            return outcome == Error(Errno::EFAULT);
        }
        let kept = old.min(new);
        if old > new {
            space.clear(page + new, old - new);
        }
        if to.is_none() && old >= new {
            return outcome == At(page);
        }
        if !space.one_region(page, kept) {
            return outcome == Error(Errno::EFAULT);
        }
        let target = match (outcome, to) {
            (At(at), Some(to)) if at == to => at,
            (At(at), None) if at == page && space.free(page + kept, new - kept) => at,
            (At(at), None) if may_move && at != page && space.free(at, new) => at,
            (Error(Errno::ENOMEM), None) => return !may_move,
            _ => return false,
        };
        let mut moved: Vec<ModelPage> = (page..page + kept).filter_map(|page| space.pages.remove(&page)).collect();
        let last = moved[moved.len() - 1].clone();
        for more in 1..=new - kept {
            let source = match last.source {
                Source::Anonymous => Source::Anonymous,
                Source::File((object, index), id) => Source::File((object, index + more), id),
                Source::Shared((object, index)) => Source::Shared((object, index + more)),
            };
            moved.push(ModelPage { source, words: None, ..last });
        }
        space.clear(target, new);
        space.pages.extend((target..).zip(moved));
        true
    }

    /// A word of every page of every space, with what it should be.
    pub fn expectations(&self) -> Vec<(SpaceId, Page, usize, Option<u64>)> {
        let mut all = Vec::new();
        for (id, space) in &self.spaces {
            for page in space.pages.keys() {
                let word = compared(*page);
                all.push((*id, Page(*page), word, self.word(*id, *page, word)));
            }
        }
        all
    }

    pub fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.keys().copied().collect()
    }
}
