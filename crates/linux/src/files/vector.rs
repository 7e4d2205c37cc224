//! Buffers in user memory: one, or a vector of them (`struct iovec`).

use crate::call::Call;
use alloc::{sync::Arc, vec::Vec};
use machine::{
    collections::{try_filled, try_with_capacity},
    errno::Result,
    Errno, Page, PageRange, UserAddr, PAGE_SIZE, USER_END,
};
use vm::Space;

/// Most bytes one call moves (MAX_RW_COUNT: INT_MAX rounded down to a page).
pub(crate) const MAX_RW_COUNT: usize = 0x7fff_f000;
/// Most buffers in a vector (UIO_MAXIOV).
pub(crate) const IOV_MAX: u64 = 1024;

/// A range of user memory that was checked to be below the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub at: UserAddr,
    pub len: usize,
}

impl Segment {
    /// The pages that it touches.
    pub fn pages(&self) -> impl Iterator<Item = Page> {
        PageRange::new(self.at.page(), self.at.add(self.len + PAGE_SIZE - 1).page()).pages()
    }

    /// Its part of each of those.
    pub fn pieces(&self) -> impl Iterator<Item = Segment> + '_ {
        self.pages().map(|page| {
            let (from, to) = (self.bytes_before(page), self.bytes_before(page.add(1)).min(self.len));
            Segment { at: self.at.add(from), len: to - from }
        })
    }

    /// How much of it lies below one of its pages.
    pub fn bytes_before(&self, page: Page) -> usize {
        page.address().0.saturating_sub(self.at.0) as usize
    }
}

/// One buffer, cut to what a call may move. EFAULT if it is not in the user half.
pub(crate) fn single(at: UserAddr, len: u64) -> Result<[Segment; 1]> {
    check_range(at, len)?;
    Ok([Segment { at, len: (len as usize).min(MAX_RW_COUNT) }])
}

fn check_range(at: UserAddr, len: u64) -> Result<()> {
    match at.0.checked_add(len) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// A vector from user memory. EINVAL for too many or a negative length, EFAULT.
pub(crate) async fn vector(call: &Call<'_>, at: UserAddr, count: u64) -> Result<Vec<Segment>> {
    // Linux counts them in 32 bits.
    let count = u64::from(count as u32);
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let mut raw = try_filled(count as usize, [0u64; 2])?;
    if count > 0 {
        call.space().read(at, zerocopy::IntoBytes::as_mut_bytes(raw.as_mut_slice())).await?;
    }
    bounded(&raw)
}

fn bounded(raw: &[[u64; 2]]) -> Result<Vec<Segment>> {
    if let [[at, len]] = *raw {
        // A single buffer is cut before it is looked at.
        return match i64::try_from(len) {
            Ok(_) => single(UserAddr(at), len.min(MAX_RW_COUNT as u64)).map(Vec::from),
            Err(_) => Err(Errno::EINVAL),
        };
    }
    let mut left = MAX_RW_COUNT;
    let mut segments = try_with_capacity(raw.len())?;
    for &[at, len] in raw {
        if len > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        check_range(UserAddr(at), len)?;
        let len = (len as usize).min(left);
        left -= len;
        segments.push(Segment { at: UserAddr(at), len });
    }
    Ok(segments)
}

/// Bytes from `offset` on must have places that a position can name.
pub(crate) fn check_end(offset: Option<u64>, bytes: usize) -> Result<()> {
    match offset {
        Some(offset) if offset.saturating_add(bytes as u64) > i64::MAX as u64 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

pub(crate) fn total(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.len).sum()
}

/// The parts of the segments that hold bytes `from..from + len` of the whole.
pub(crate) fn parts(segments: &[Segment], from: usize, len: usize) -> impl Iterator<Item = Segment> + '_ {
    let (mut skip, mut left) = (from, len);
    segments.iter().filter_map(move |segment| {
        let skipped = skip.min(segment.len);
        skip -= skipped;
        let len = (segment.len - skipped).min(left);
        left -= len;
        (len > 0).then(|| Segment { at: segment.at.add(skipped), len })
    })
}

/// Copies user memory, from byte `from` of the whole on, into `to`: as much as can be read.
pub(crate) async fn gather(space: &Arc<Space>, segments: &[Segment], from: usize, to: &mut [u8]) -> (usize, Errno) {
    let mut done = 0;
    for part in parts(segments, from, to.len()) {
        let (copied, error) = space.read_some(part.at, &mut to[done..done + part.len]).await;
        done += copied;
        if copied < part.len {
            return (done, error);
        }
    }
    (done, Errno::EFAULT)
}

/// Copies `data` to user memory, to byte `to` of the whole and on: as much as can be written.
pub(crate) async fn scatter(space: &Arc<Space>, segments: &[Segment], to: usize, data: &[u8]) -> (usize, Errno) {
    let mut done = 0;
    for part in parts(segments, to, data.len()) {
        let (copied, error) = space.write_some(part.at, &data[done..done + part.len]).await;
        done += copied;
        if copied < part.len {
            return (done, error);
        }
    }
    (done, Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(at: u64, len: usize) -> Segment {
        Segment { at: UserAddr(at), len }
    }

    #[test]
    fn a_range_of_the_whole_is_found_over_empty_and_cut_segments() {
        let list = [segment(0x1000, 3), segment(0x2000, 0), segment(0x3000, 4)];
        let found: Vec<_> = parts(&list, 2, 3).collect();
        assert_eq!(found, [segment(0x1002, 1), segment(0x3000, 2)]);
        assert_eq!(parts(&list, 7, 1).count(), 0);
    }

    #[test]
    fn a_buffer_touches_each_of_its_pages_once() {
        let pages = |at, len| segment(at, len).pages().map(|page| page.address().0).collect::<Vec<_>>();
        assert_eq!(pages(0x1ffe, 3), [0x1000, 0x2000]);
        assert_eq!(pages(0x1ffe, 2), [0x1000]);
        assert_eq!(pages(0x1000, 0x2000), [0x1000, 0x2000]);
        assert_eq!(pages(0x1fff, 1), [0x1000]);
        let buffer = segment(0x1ffe, 0x2000);
        assert_eq!(buffer.pages().map(|page| buffer.bytes_before(page)).collect::<Vec<_>>(), [0, 2, 0x1002]);
        let pieces = [segment(0x1ffe, 2), segment(0x2000, 0x1000), segment(0x3000, 0xffe)];
        assert_eq!(buffer.pieces().collect::<Vec<_>>(), pieces);
        assert_eq!(segment(0x1005, 7).pieces().collect::<Vec<_>>(), [segment(0x1005, 7)]);
    }

    #[test]
    fn lengths_are_bounded_and_addresses_checked() {
        let huge = 0x7000_0000;
        let list = bounded(&[[0x1000, huge], [0x1000, huge]]).unwrap();
        assert_eq!(total(&list), MAX_RW_COUNT);
        assert_eq!(bounded(&[[0x1000, u64::MAX]]), Err(Errno::EINVAL));
        assert_eq!(bounded(&[[USER_END, 1]]), Err(Errno::EFAULT));
        assert_eq!(single(UserAddr(u64::MAX), 2), Err(Errno::EFAULT));
    }
}
