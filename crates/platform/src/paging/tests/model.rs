//! Page tables against a `BTreeMap`, and user memory seen through them.

use super::fake::{machine, Machine};
use alloc::{collections::BTreeMap, sync::Arc, vec, vec::Vec};
use machine::{
    Access, Frame, Mapping, Memory, NoMemory, Page, PageRange, PageTable, Soft, Step, UserAddr, UserFault, PAGE_SIZE,
    USER_END,
};
use proptest::prelude::*;

/// Pages around the borders of tables of every level, so that tables get shared and made.
fn page() -> impl Strategy<Value = Page> {
    let borders = prop_oneof![Just(0u64), Just(1 << 9), Just(1 << 18), Just(3 << 27), Just((USER_END >> 12) - 3)];
    (borders, -3i64..3)
        .prop_map(|(border, offset)| Page(border.saturating_add_signed(offset).min((USER_END >> 12) - 1)))
}

fn mapping() -> impl Strategy<Value = Mapping> {
    (0u64..1 << 40, 0u8..8, 0u16..0x80).prop_map(|(frame, access, soft)| Mapping {
        frame: Frame(frame),
        access: Access::from_bits(access).unwrap(),
        soft: Soft::from_bits(soft).unwrap(),
    })
}

/// What the hardware can say of it: everything that may be touched may be read.
fn as_kept(mapping: Mapping) -> Mapping {
    let read = if mapping.access.is_empty() { Access::empty() } else { Access::READ };
    Mapping { access: mapping.access | read, ..mapping }
}

/// What of `range` is mapped, by runs.
fn runs(model: &BTreeMap<Page, Mapping>, range: PageRange, longest: u64) -> Vec<(PageRange, Mapping)> {
    let mut runs: Vec<(PageRange, Mapping)> = Vec::new();
    for (page, mapping) in model.iter().filter(|(page, _)| range.contains(**page)) {
        if let Some((pages, first)) = runs.last_mut() {
            let next = Mapping { frame: first.frame.add(pages.len()), ..*first };
            if pages.end == *page && pages.len() < longest && page.0 % 512 > 0 && next == *mapping {
                pages.end = page.add(1);
                continue;
            }
        }
        runs.push((PageRange::one(*page), *mapping));
    }
    runs
}

#[derive(Clone, Debug)]
enum Action {
    Set(Page, Mapping),
    Clear(Page),
    /// Removes, replaces or keeps runs of at most so many pages, by the position within the walk.
    Walk(Page, Page, Mapping, usize, u64),
    /// Maps so many pages from there on; what is there stays or goes by its position.
    Fill(Page, u64, Mapping, usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (page(), mapping()).prop_map(|(page, mapping)| Action::Set(page, mapping)),
        2 => page().prop_map(Action::Clear),
        1 => (page(), page(), mapping(), 0..6usize, 1..4u64).prop_map(|(a, b, m, n, l)| Action::Walk(a, b, m, n, l)),
        1 => (page(), 0..9u64, mapping(), 0..3usize).prop_map(|(a, pages, m, n)| Action::Fill(a, pages, m, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn a_table_is_a_map_of_pages(actions in prop::collection::vec(action(), 1..80)) {
        let machine = machine(1);
        let free = machine.free();
        let table = machine.memory.new_table().unwrap();
        let mut model = BTreeMap::<Page, Mapping>::new();
        let mut most = 0;
        for action in actions {
            match action {
                Action::Set(page, mapping) => {
                    prop_assert_eq!(table.set(page, mapping), Ok(model.insert(page, as_kept(mapping))));
                }
                Action::Clear(page) => prop_assert_eq!(table.clear(page), model.remove(&page)),
                Action::Walk(start, end, new, salt, longest) => {
                    let decide = |position: usize| match (position + salt) % 3 {
                        _ if position == 7 => Step::Stop,
                        0 => Step::Keep,
                        1 => Step::Remove,
                        _ => Step::Replace(new),
                    };
                    let mut seen = Vec::new();
                    table.walk_runs(PageRange::new(start, end), longest, &mut |pages, mapping| {
                        seen.push((pages, mapping));
                        decide(seen.len())
                    });
                    let wanted: Vec<_> = runs(&model, PageRange::new(start, end), longest).into_iter().take(7).collect();
                    prop_assert_eq!(&seen, &wanted);
                    for (position, (pages, _)) in seen.into_iter().enumerate() {
                        for (page, frame) in pages.pages().zip(new.frame.row(pages.len())) {
                            match decide(position + 1) {
                                Step::Keep | Step::Stop => (),
                                Step::Remove => _ = model.remove(&page),
                                Step::Replace(new) => _ = model.insert(page, as_kept(Mapping { frame, ..new })),
                            }
                        }
                    }
                }
                Action::Fill(start, pages, new, salt) => {
                    let range = PageRange::new(start, start.add(pages)).intersect(PageRange::user());
                    let mut seen = Vec::new();
                    let filled = table.fill(range, new, &mut |page, old| {
                        seen.push((page, old));
                        (page.0 as usize + salt).is_multiple_of(3)
                    });
                    prop_assert_eq!(filled, Ok(()));
                    let there: Vec<_> =
                        range.pages().filter_map(|page| model.get(&page).map(|mapping| (page, *mapping))).collect();
                    prop_assert_eq!(&seen, &there);
                    for (page, frame) in range.pages().zip(new.frame.row(range.len())) {
                        if !(model.contains_key(&page) && (page.0 as usize + salt).is_multiple_of(3)) {
                            model.insert(page, as_kept(Mapping { frame, ..new }));
                        }
                    }
                }
            }
            let mut all = Vec::new();
            table.walk(PageRange::user(), &mut |page, mapping| {
                all.push((page, mapping));
                Step::Keep
            });
            prop_assert_eq!(all, model.iter().map(|(page, mapping)| (*page, *mapping)).collect::<Vec<_>>());
            let owned = model.values().filter(|mapping| !mapping.soft.contains(Soft::BORROWED)).count() as u64;
            let (now, peak) = table.owned_entries();
            // A walk or a row of pages may have had more in between.
            most = peak.max(owned).max(most);
            prop_assert_eq!((now, peak), (owned, most));
        }
        for (page, mapping) in &model {
            prop_assert_eq!(table.get(*page), Some(*mapping));
        }
        prop_assert_eq!(machine.kernel_entry(table.root()), 0xabc_d003);
        drop(table);
        prop_assert_eq!(machine.free(), free, "page-table pages are lost");
    }
}

#[test]
fn pages_past_user_space_are_never_there() {
    let table = machine(1).memory.new_table().unwrap();
    for page in [USER_END >> 12, 1 << 35, (1 << 36) - 1, u64::MAX] {
        assert_eq!(table.get(Page(page)), None);
        assert_eq!(table.clear(Page(page)), None);
    }
    table.walk(PageRange::new(Page(0), Page(u64::MAX)), &mut |page, _| panic!("{page:?} is not user space"));
}

#[test]
fn no_memory_for_a_table_is_an_error_and_changes_nothing() {
    let machine = machine(1);
    let table = machine.memory.new_table().unwrap();
    let all: Vec<_> = core::iter::from_fn(|| machine.memory.partition().alloc()).collect();
    let mapping = Mapping { frame: all[0], access: Access::READ, soft: Soft::empty() };
    assert_eq!(table.set(Page(7), mapping), Err(NoMemory));
    assert_eq!(table.get(Page(7)), None);
    assert!(machine.memory.new_table().is_err());
    machine.memory.release(all[1]);
    machine.memory.release(all[2]);
    // Two of the three tables it takes can be had; they stay for the next try.
    assert_eq!(table.set(Page(7), mapping), Err(NoMemory));
    machine.memory.release(all[3]);
    assert_eq!(table.set(Page(7), mapping), Ok(None));
}

fn map(machine: &Machine, table: &Arc<dyn PageTable>, at: u64, access: Access) -> Frame {
    let frame = machine.memory.alloc().unwrap();
    table.set(UserAddr(at).page(), Mapping { frame, access, soft: Soft::empty() }).unwrap();
    frame
}

const RW: Access = Access::READ.union(Access::WRITE);

#[test]
fn user_memory_is_read_and_written_up_to_the_fault() {
    let machine = machine(1);
    let table = machine.memory.new_table().unwrap();
    let start = 0x40_0000u64;
    // More than a chunk, then a page that may only be read.
    let frames: Vec<_> = (0..20).map(|page| map(&machine, &table, start + page * 0x1000, RW)).collect();
    map(&machine, &table, start + 20 * 0x1000, Access::READ);
    let data: Vec<u8> = (0..20 * PAGE_SIZE).map(|n| (n % 251) as u8 + 1).collect();

    let fault = |at, access| UserFault { at: UserAddr(at), access };
    assert_eq!(table.write(UserAddr(start), &data), Ok(()));
    let mut back = vec![0; 3000];
    machine.memory.read(frames[19], 1096, &mut back);
    assert_eq!(back, data[19 * PAGE_SIZE + 1096..]);
    let read_only = start + 20 * 0x1000;
    assert_eq!(table.write(UserAddr(read_only - 2), b"abc"), Err(fault(read_only, Access::WRITE)));
    let mut back = vec![0; 21 * PAGE_SIZE + 1];
    assert_eq!(table.read(UserAddr(start), &mut back), Err(fault(read_only + 0x1000, Access::READ)));
    assert_eq!(back[..data.len() - 2], data[..data.len() - 2]);
    assert_eq!(back[data.len() - 2..data.len()], *b"ab");

    let source = machine.memory.alloc().unwrap();
    machine.memory.write(source, 100, b"from a frame");
    assert_eq!(table.write_frame(UserAddr(start + 0xffb), source, 100, 12), Ok(()));
    let mut back = vec![0; 12];
    assert_eq!(table.read(UserAddr(start + 0xffb), &mut back), Ok(()));
    assert_eq!(back, b"from a frame");
    assert_eq!(table.write_frame(UserAddr(read_only - 2), source, 100, 3), Err(fault(read_only, Access::WRITE)));
    let target = machine.memory.alloc().unwrap();
    assert_eq!(table.read_frame(UserAddr(start + 0xffb), target, 200, 12), Ok(()));
    machine.memory.read(target, 200, &mut back);
    assert_eq!(back, b"from a frame");
    let end = read_only + 0x1000;
    assert_eq!(table.read_frame(UserAddr(end - 2), target, 0, 3), Err(fault(end, Access::READ)));
    assert_eq!(table.write(UserAddr(start), &data), Ok(()));

    let limit = 30 * PAGE_SIZE;
    assert_eq!(table.string_length(UserAddr(start), limit), Ok(Some(20 * PAGE_SIZE)));
    assert_eq!(table.string_length(UserAddr(start), 20 * PAGE_SIZE), Ok(None));
    assert_eq!(table.fill_zero(UserAddr(start + 5), 17 * PAGE_SIZE), Ok(()));
    assert_eq!(table.string_length(UserAddr(start), limit), Ok(Some(5)));
    assert_eq!(table.string_length(UserAddr(read_only + 0x1000 - 3), 2), Ok(Some(0)));

    assert_eq!(table.write(UserAddr(start), &7u32.to_le_bytes()), Ok(()));
    assert_eq!(table.compare_exchange_u32(UserAddr(start), 6, 9), Ok(Err(7)));
    assert_eq!(table.compare_exchange_u32(UserAddr(start), 7, 9), Ok(Ok(7)));
    assert_eq!(table.load_u32(UserAddr(start)), Ok(9));
    assert_eq!(table.compare_exchange_u32(UserAddr(read_only), 0, 1), Err(fault(read_only, Access::WRITE)));
}

#[test]
fn wild_pointers_fault() {
    let machine = machine(1);
    let table = machine.memory.new_table().unwrap();
    let last = USER_END - 0x1000;
    map(&machine, &table, last, RW);
    let mut two = [0; 2];
    let fault = |at, access| Err(UserFault { at: UserAddr(at), access });
    assert_eq!(table.read(UserAddr(USER_END - 2), &mut two), Ok(()));
    assert_eq!(table.read(UserAddr(USER_END - 1), &mut two), fault(USER_END, Access::READ));
    for wild in [USER_END, 0x8000_0000_0000, 0xffff_8000_0000_0000, u64::MAX] {
        assert_eq!(table.read(UserAddr(wild), &mut two), fault(wild, Access::READ));
        assert_eq!(table.read(UserAddr(wild), &mut []), Ok(()));
        assert_eq!(table.write(UserAddr(wild), &two), fault(wild, Access::WRITE));
        assert_eq!(table.fill_zero(UserAddr(wild), usize::MAX), fault(wild, Access::WRITE));
        assert_eq!(
            table.string_length(UserAddr(wild), usize::MAX),
            Err(UserFault { at: UserAddr(wild), access: Access::READ })
        );
        let word = UserAddr(wild & !3);
        assert_eq!(table.load_u32(word), Err(UserFault { at: word, access: Access::READ }));
        assert!(table.compare_exchange_u32(word, 0, 1).is_err());
    }
    assert_eq!(table.read(UserAddr(0), &mut two), fault(0, Access::READ));
}
