//! The operations of random programs on memory: drawing them, and doing them.

use crate::{
    cluster::OBJECT_PAGES,
    model::{Model, Operation, Outcome, Where, WORDS},
    object::{SimObjects, WORD_STEP},
    rng::Rng,
};
use abi::ObjectId;
use machine::{errno::Result, Access, Errno, SpaceId, UserAddr, PAGE_SIZE};
use std::{fmt, sync::Arc};
use vm::{MapAddress, MapRequest, Objects, Source, Space};

/// Pages programs map at addresses of their choice.
pub const ARENA: u64 = 0x10_0000;
pub const ARENA_PAGES: usize = 48;
pub const HEAP: u64 = 0x2000_0000;

#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub kernel: usize,
    pub space: SpaceId,
    pub operation: Operation,
}

impl fmt::Display for Act {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpaceId { home, serial } = self.space;
        write!(out, "k{:<2} process {}.{serial}  {}", self.kernel, home.0, self.operation)
    }
}

fn address(page: u64) -> UserAddr {
    UserAddr(page * PAGE_SIZE as u64)
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

/// The word of a page that is read when all memory is compared.
pub fn compared(page: u64) -> usize {
    page as usize % WORDS
}

const SLICE: u64 = 64 << 30 >> machine::PAGE_BITS;

/// mremap of what several kernels own is not as on Linux (docs/limits.md): such a range is moved away from the border.
fn inside_a_slice(page: u64, pages: u64) -> u64 {
    match page / SLICE == (page + pages) / SLICE {
        true => page,
        false => page - pages - 1,
    }
}

/// The last pages of a slice, of the one that `page` is in or one near by: its owner may be another kernel, or nobody.
fn near_a_border(rng: &Rng, page: u64) -> u64 {
    let slice = (page / SLICE + rng.below(4) as u64).clamp(3, 0x700) - 2;
    (slice + 1) * SLICE - rng.below(4) as u64
}

/// What there is to choose from.
pub struct Choices<'a> {
    pub model: &'a Model,
    pub kernels: usize,
    /// Processes there are.
    pub spaces: usize,
    pub scarce: bool,
    /// A page that all operations of this step are about, or nearly.
    pub focus: Option<u64>,
    pub private: &'a [ObjectId],
    pub shared: &'a [ObjectId],
}

impl Choices<'_> {
    /// An operation of `space`. `alone`: nothing else runs at the same time.
    pub fn act(&self, rng: &Rng, space: SpaceId, alone: bool) -> Act {
        let model = self.model;
        let pages = model.pages(space);
        let full = model.total_pages() > 400;
        // An operation over the slices of two owners is no single step: only when nothing else sees it.
        let far = alone && rng.one_in(10);
        let some = |rng: &Rng| match (pages.is_empty(), self.focus) {
            (false, _) if far => near_a_border(rng, *rng.pick(&pages)),
            (_, Some(page)) if !rng.one_in(4) => page,
            (true, _) => ARENA + rng.below(ARENA_PAGES) as u64,
            _ if rng.one_in(12) => ARENA + rng.below(ARENA_PAGES) as u64,
            _ => *rng.pick(&pages),
        };
        // Mostly the one that is compared later.
        let word = |rng: &Rng, page: u64| if rng.one_in(4) { rng.below(WORDS) } else { compared(page) };
        let length = 1 + rng.below(6) as u64;
        let prot = *rng.pick(&[
            Access::READ | Access::WRITE,
            Access::READ | Access::WRITE,
            Access::READ,
            Access::WRITE,
            Access::READ | Access::EXEC,
            Access::empty(),
        ]);
        let kernel = rng.below(self.kernels);
        let operation = match rng.below(100) {
            0..=11 if !full => {
                let at = match rng.below(6) {
                    0..=2 if far => Where::Fixed(some(rng)),
                    0 | 1 => Where::Fixed(ARENA + rng.below(ARENA_PAGES) as u64),
                    2 => Where::NoReplace(ARENA + rng.below(ARENA_PAGES) as u64),
                    3 => Where::Hint(ARENA + rng.below(ARENA_PAGES) as u64),
                    _ => Where::Anywhere,
                };
                let shared = rng.one_in(3);
                let list = if shared { self.shared } else { self.private };
                let mut object = None;
                if rng.one_in(2) && !list.is_empty() {
                    let id = *rng.pick(list);
                    object = Some((id, rng.below(OBJECT_PAGES as usize) as u64));
                }
                Operation::Map { at, pages: length, prot, shared, object }
            }
            12..=18 => Operation::Unmap { page: some(rng), pages: length },
            19..=26 => Operation::Protect { page: some(rng), pages: length, prot },
            27..=30 => Operation::DontNeed { page: some(rng) },
            31..=36 if !full => {
                // Pages of several owners move one after the other, see remap.rs.
                let old = 1 + if alone && !self.scarce { rng.below(4) as u64 } else { 0 };
                let new = 1 + rng.below(6) as u64;
                let page = inside_a_slice(some(rng), old.max(new));
                let target = ARENA + rng.below(ARENA_PAGES) as u64;
                let apart = target + new <= page || page + old <= target;
                let fixed = alone && apart && !self.scarce && rng.one_in(3);
                let may_move = fixed || rng.below(3) > 0;
                Operation::Remap { page, old, new, may_move, to: fixed.then_some(target) }
            }
            37..=39 => {
                let to = HEAP + rng.below(6 * PAGE_SIZE) as u64;
                Operation::Brk { to }
            }
            40..=43 if self.spaces < 5 && !full => Operation::Fork,
            44..=57 => {
                let page = some(rng);
                Operation::Read { page, word: word(rng, page) }
            }
            58..=62 => {
                let page = some(rng);
                let (word, pages) = (word(rng, page), 1 + rng.below(4) as u64);
                Operation::Arrive { page, word, pages, write: rng.one_in(2) }
            }
            63..=70 => {
                let page = some(rng);
                let word = word(rng, page);
                let found = model.word(space, page, word).unwrap_or(0) as u32;
                let old = if rng.one_in(4) { found ^ 1 } else { found };
                Operation::Exchange { page, word, old, new: rng.next() as u32 }
            }
            71..=73 => {
                let page = some(rng);
                Operation::ForceRead { page, word: word(rng, page) }
            }
            74..=77 => {
                let page = some(rng);
                Operation::ForceWrite { page, word: word(rng, page), value: rng.next() >> 8 }
            }
            _ => {
                let page = some(rng);
                Operation::Write { page, word: word(rng, page), value: rng.next() >> 8 }
            }
        };
        Act { kernel, space, operation }
    }
}

/// Does `operation` in a replica of its space.
pub async fn perform(space: Arc<Space>, operation: Operation, objects: Arc<SimObjects>) -> Result<Outcome> {
    let at = |page: u64, word: usize| address(page).add(word * WORD_STEP);
    Ok(match operation {
        Operation::Map { at, pages, prot, shared, object: named } => {
            let place = match at {
                Where::Anywhere => MapAddress::Hint(UserAddr::NULL),
                Where::Hint(page) => MapAddress::Hint(address(page)),
                Where::Fixed(page) => MapAddress::Fixed(address(page)),
                Where::NoReplace(page) => MapAddress::FixedNoReplace(address(page)),
            };
            let source = match named {
                Some((id, first)) => Source::Object {
                    object: objects.resolve(id).await?,
                    offset: bytes(first),
                    label: (*b"/file").into(),
                    limit: Access::all(),
                },
                None => Source::Anonymous,
            };
            let request = MapRequest { shared, source, ..MapRequest::anonymous(bytes(pages), prot).at(place) };
            Outcome::At(space.map(request).await?.page().0)
        }
        Operation::Unmap { page, pages } => {
            space.unmap(address(page), bytes(pages)).await?;
            Outcome::Done
        }
        Operation::Protect { page, pages, prot } => {
            space.protect(address(page), bytes(pages), prot).await?;
            Outcome::Done
        }
        Operation::DontNeed { page } => {
            space.advise(address(page), bytes(1), 4).await?;
            Outcome::Done
        }
        Operation::Remap { page, old, new, may_move, to } => {
            let flags = u32::from(may_move) | if to.is_some() { 3 } else { 0 };
            let to = address(to.unwrap_or(0));
            Outcome::At(space.remap(address(page), bytes(old), bytes(new), flags, to, false).await?.page().0)
        }
        Operation::Brk { to } => Outcome::At(space.brk(UserAddr(to)).await.0),
        Operation::Fork => Outcome::Child(space.fork().await?.id()),
        Operation::Arrive { page, word, pages, write } => {
            let access = if write { Access::WRITE } else { Access::READ };
            // Not in order, and one twice.
            let some = (0..=pages).map(|index| (address(page + index * 3 % pages).page(), access));
            space.expect_touches(&some.collect::<Vec<_>>());
            let mut value = [0; 8];
            space.read(at(page, word), &mut value).await?;
            Outcome::Value(u64::from_le_bytes(value))
        }
        Operation::Read { page, word } => {
            let mut value = [0; 8];
            space.read(at(page, word), &mut value).await?;
            Outcome::Value(u64::from_le_bytes(value))
        }
        Operation::Write { page, word, value } => {
            space.write(at(page, word), &value.to_le_bytes()).await?;
            Outcome::Done
        }
        Operation::ForceRead { page, word } => {
            let value = space.force_read(at(page, word), 8).await;
            Outcome::Value(u64::from_le_bytes(value.try_into().map_err(|_| Errno::EIO)?))
        }
        Operation::ForceWrite { page, word, value } => {
            match space.force_write(at(page, word), &value.to_le_bytes()).await {
                8 => Outcome::Done,
                _ => return Err(Errno::EIO),
            }
        }
        Operation::Exchange { page, word, old, new } => {
            Outcome::Exchanged(space.compare_exchange_u32(at(page, word), old, new).await?)
        }
    })
}
