//! maps, smaps, smaps_rollup and clear_refs: the regions of an address space.

use super::{
    made::{put, Text},
    Subject,
};
use ::machine::{errno::Result, Access, BoxFuture, Errno, Page, PageRange, PAGE_SIZE};
use alloc::{boxed::Box, vec::Vec};
use core::num::IntErrorKind;
use fs::{
    synthetic::{Content, Made},
    Caller,
};
use messages::{
    inspect::{Inspect, Inspection},
    vm::{PageCounts, RegionReport, SHARE},
};
use vm::RegionFlags;

pub(super) async fn maps(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    whole(&subject, false, &caller).await
}

pub(super) async fn smaps(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    whole(&subject, true, &caller).await
}

async fn whole(subject: &Subject, pages: bool, caller: &Caller) -> Result<Vec<u8>> {
    let (mut made, mut mark) = (Made::default(), Some(0));
    while let Some(from) = mark {
        mark = extend(subject, pages, caller, &mut made, from).await?;
    }
    Ok(made.text)
}

/// [`Content::extend`] of maps, and of smaps (`pages`). The mark is a page: the lines of the regions from there on that one answer has.
pub(super) async fn extend(
    subject: &Subject,
    pages: bool,
    caller: &Caller,
    made: &mut Made,
    mark: u64,
) -> Result<Option<u64>> {
    let from = Page(mark);
    let what = if pages { Inspect::Touched { from } } else { Inspect::Maps { from } };
    let regions = regions(subject, caller, what).await?;
    let more = regions.len() * if pages { 1024 } else { 128 };
    // What grows moves, to twice as much.
    if !subject.proc.system.memory.has_room_for(3 * (made.text.len() + more)) {
        return Err(Errno::ENOMEM);
    }
    let mut lines = Text(core::mem::take(&mut made.text));
    for region in &regions {
        line(&mut lines, region);
        if pages {
            lines_of_pages(&mut lines, region);
        }
        made.ends.push(lines.0.len());
    }
    made.text = lines.0;
    Ok(regions.last().map(|last| last.range.end.0))
}

async fn regions(subject: &Subject, caller: &Caller, what: Inspect) -> Result<Vec<RegionReport>> {
    match subject.inspect(what, caller).await {
        Ok(Inspection::Regions(regions)) => Ok(regions),
        // A zombie has no memory.
        Err(Errno::ENOENT) => Ok(Vec::new()),
        Ok(_) => Err(Errno::EIO),
        Err(error) => Err(error),
    }
}

/// A region as Linux prints it: the name begins at column 73.
fn line(text: &mut Text, region: &RegionReport) {
    let flags = RegionFlags::from_bits_truncate(region.kind.flags);
    let prot = region.kind.prot;
    let letter = |access, letter| if prot.contains(access) { letter } else { '-' };
    let page = PAGE_SIZE as u64;
    let (offset, serial) = region.backing.as_ref().map_or((0, 0), |backing| match backing.label.starts_with(b"[") {
        true => (0, 0),
        false => (backing.first * page, backing.object.serial),
    });
    put!(
        text,
        "{:08x}-{:08x} {}{}{}{} {offset:08x} 00:{:02x} {serial} ",
        region.range.start.0 * page,
        region.range.end.0 * page,
        letter(Access::READ, 'r'),
        letter(Access::WRITE, 'w'),
        letter(Access::EXEC, 'x'),
        if flags.contains(RegionFlags::SHARED) { 's' } else { 'p' },
        u8::from(serial != 0),
    );
    let name = match &region.backing {
        Some(backing) => &backing.label[..],
        None if flags.contains(RegionFlags::STACK) => b"[stack]",
        None if flags.contains(RegionFlags::HEAP) => b"[heap]",
        None => b"",
    };
    if !name.is_empty() {
        text.pad(73);
        for part in name.split_inclusive(|&byte| byte == b'\n') {
            match part.split_last() {
                Some((b'\n', rest)) => {
                    text.bytes(rest);
                    text.bytes(b"\\012");
                }
                _ => text.bytes(part),
            }
        }
    }
    text.bytes(b"\n");
}

/// The counts of smaps and smaps_rollup. Zero is what there is none of here: huge pages, swap.
fn counts(text: &mut Text, pages: &PageCounts, locked: u64) {
    let kib = |pages: u64| pages * (PAGE_SIZE as u64 / 1024);
    let shares = |shares: u64| kib(shares) / SHARE;
    let rows = [
        ("Rss", kib(pages.present)),
        ("Pss", shares(pages.proportional)),
        ("Pss_Dirty", shares(pages.proportional_dirty)),
        ("Shared_Clean", kib(pages.shared_clean)),
        ("Shared_Dirty", kib(pages.shared_dirty)),
        ("Private_Clean", kib(pages.private_clean)),
        ("Private_Dirty", kib(pages.private_dirty)),
        ("Referenced", kib(pages.touched)),
        ("Anonymous", kib(pages.anonymous)),
        ("LazyFree", 0),
        ("AnonHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FilePmdMapped", 0),
        ("Shared_Hugetlb", 0),
        ("Private_Hugetlb", 0),
        ("Swap", 0),
        ("SwapPss", 0),
        ("Locked", shares(locked)),
    ];
    rows.into_iter().for_each(|(name, kib)| count(text, name, kib));
}

fn count(text: &mut Text, name: &str, kib: u64) {
    let start = text.0.len();
    put!(text, "{name}:");
    text.0.resize(start + 16, b' ');
    put!(text, "{kib:>8} kB\n");
}

/// Of a locked region the pages are locked, each by its share as on Linux.
fn locked(region: &RegionReport) -> u64 {
    match RegionFlags::from_bits_truncate(region.kind.flags).contains(RegionFlags::LOCKED) {
        true => region.pages.proportional,
        false => 0,
    }
}

/// The sums of smaps.
pub(super) async fn smaps_rollup(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let (mut sum, mut sum_locked, mut range) = (PageCounts::default(), 0, None);
    let mut from = Page(0);
    loop {
        let regions = regions(&subject, &caller, Inspect::Touched { from }).await?;
        let Some(last) = regions.last() else { break };
        from = last.range.end;
        for region in &regions {
            sum.add(region.pages);
            sum_locked += locked(region);
            let start = range.map_or(region.range.start, |range: PageRange| range.start);
            range = Some(PageRange::new(start, region.range.end));
        }
    }
    let mut text = Text::default();
    let Some(PageRange { start, end }) = range else { return Ok(text.0) };
    let page = PAGE_SIZE as u64;
    put!(text, "{:08x}-{:08x} ---p 00000000 00:00 0 ", start.0 * page, end.0 * page);
    text.pad(73);
    put!(text, "[rollup]\n");
    counts(&mut text, &sum, sum_locked);
    Ok(text.0)
}

/// What smaps says of a region besides.
fn lines_of_pages(text: &mut Text, region: &RegionReport) {
    let flags = RegionFlags::from_bits_truncate(region.kind.flags);
    let kib = |pages: u64| pages * (PAGE_SIZE as u64 / 1024);
    for (name, pages) in [("Size", region.range.len()), ("KernelPageSize", 1), ("MMUPageSize", 1)] {
        count(text, name, kib(pages));
    }
    counts(text, &region.pages, locked(region));
    put!(text, "THPeligible:{:>12}\n", 0);
    text.bytes(b"VmFlags:");
    let (prot, limit) = (region.kind.prot, region.kind.limit);
    let words = [
        (prot.contains(Access::READ), "rd"),
        (prot.contains(Access::WRITE), "wr"),
        (prot.contains(Access::EXEC), "ex"),
        (flags.contains(RegionFlags::SHARED), "sh"),
        (limit.contains(Access::READ), "mr"),
        (limit.contains(Access::WRITE), "mw"),
        (limit.contains(Access::EXEC), "me"),
        (flags.contains(RegionFlags::GROWS_DOWN), "gd"),
        (flags.contains(RegionFlags::LOCKED), "lo"),
        (flags.contains(RegionFlags::SEQUENTIAL), "sr"),
        (flags.contains(RegionFlags::RANDOM), "rr"),
        (flags.contains(RegionFlags::DONT_FORK), "dc"),
        (flags.contains(RegionFlags::NO_RESERVE), "nr"),
        (flags.contains(RegionFlags::WIPE_ON_FORK), "wf"),
        (flags.contains(RegionFlags::DONT_DUMP), "dd"),
    ];
    for (_, word) in words.into_iter().filter(|(set, _)| *set) {
        put!(text, " {word}");
    }
    text.bytes(b" \n");
}

/// clear_refs: 1 makes all pages untouched, 2 those of anonymous mappings, 3 those of mapped files. 5 sets the peak of the resident
/// size back to what is resident. 4 clears the soft-dirty bits, which are not kept here, as on a Linux that was built without.
pub(super) struct ClearRefs(pub Subject);

impl Content for ClearRefs {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(core::future::ready(Err(Errno::EINVAL)))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            // Of more, the first bytes are a write of their own.
            let data = &data[..data.len().min(12)];
            let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
            let what = match text.trim().parse::<i32>() {
                Ok(1) => Inspect::ClearTouched { anonymous: true, files: true },
                Ok(2) => Inspect::ClearTouched { anonymous: true, files: false },
                Ok(3) => Inspect::ClearTouched { anonymous: false, files: true },
                Ok(4) => return Ok(data.len()),
                Ok(5) => Inspect::ClearPeak,
                Err(error) if matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
                    return Err(Errno::ERANGE)
                }
                _ => return Err(Errno::EINVAL),
            };
            match self.0.inspect(what, caller).await {
                // A zombie has no memory.
                Ok(_) | Err(Errno::ENOENT) => Ok(data.len()),
                Err(error) => Err(error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::machine::KernelId;
    use alloc::string::String;
    use messages::vm::{RegionKind, RemoteBacking};

    fn region(start: u64, end: u64, prot: Access, flags: RegionFlags, backing: Option<RemoteBacking>) -> RegionReport {
        RegionReport {
            range: PageRange { start: Page(start), end: Page(end) },
            owner: KernelId(0),
            kind: RegionKind { prot, limit: Access::all(), flags: flags.bits() },
            backing,
            pages: PageCounts::default(),
        }
    }

    #[test]
    fn lines_have_the_shape_of_the_hosts() {
        let object = fs::ObjectId { owner: KernelId(0), serial: 17 };
        let file = RemoteBacking { object, first: 2, label: b"/bin/sh".to_vec() };
        let mut text = Text::default();
        line(&mut text, &region(0x400, 0x402, Access::READ | Access::EXEC, RegionFlags::empty(), Some(file)));
        line(&mut text, &region(0x7_ffff_fffd, 0x7_ffff_ffff, Access::READ | Access::WRITE, RegionFlags::STACK, None));
        line(&mut text, &region(0x500, 0x501, Access::empty(), RegionFlags::SHARED, None));
        let expected = "00400000-00402000 r-xp 00002000 00:01 17                                 /bin/sh\n\
                        7fffffffd000-7ffffffff000 rw-p 00000000 00:00 0                            [stack]\n\
                        00500000-00501000 ---s 00000000 00:00 0 \n";
        let lines: Vec<&[u8]> = text.0.split(|&byte| byte == b'\n').collect();
        assert_eq!(lines[0].iter().position(|&byte| byte == b'/'), Some(73));
        assert_eq!(lines[1].iter().position(|&byte| byte == b'['), Some(73));
        let words = |text: &str| text.split(' ').filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&String::from_utf8(text.0).expect("ASCII")), words(expected));
    }
}
