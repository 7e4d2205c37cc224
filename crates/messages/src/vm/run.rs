//! Compact lists of pages: runs of mapped pages, and pages that a thread will touch.

use alloc::vec::Vec;
use core::fmt;
use machine::{plain, Access, Frame, Page, PageRange};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Pages in a row, mapped to as many consecutive frames. Without a frame: to the page of zeros, of which each kernel has its own.
///
/// It is packed into two words, which a message carries as they are, because answers hold many runs. Page numbers have 35 bits, those of
/// frames 40 (SDM 3A, 4.5).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Run {
    /// The first page, and in the low 16 bits how many.
    pages: u64,
    /// The first frame, [`Run::HAS_FRAME`], and the access.
    mapping: u64,
}

impl Run {
    const HAS_FRAME: u64 = 0x80;

    /// A run of `pages` from `page` on. None as `frame`: the page of zeros.
    pub fn new(page: Page, pages: u16, frame: Option<Frame>, access: Access) -> Self {
        let frame = frame.map_or(0, |frame| frame.0 << 8 | Self::HAS_FRAME);
        Run { pages: page.0 << 16 | u64::from(pages), mapping: frame | u64::from(access.bits()) }
    }

    /// The first page.
    pub fn page(&self) -> Page {
        Page(self.pages >> 16)
    }

    /// How many pages (and frames).
    pub fn pages(&self) -> u16 {
        self.pages as u16
    }

    /// All its pages.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.page(), self.page().add(self.pages().into()))
    }

    /// The first frame; None: the page of zeros.
    pub fn frame(&self) -> Option<Frame> {
        (self.mapping & Self::HAS_FRAME != 0).then_some(Frame(self.mapping >> 8))
    }

    /// What the receiver's table may allow.
    pub fn access(&self) -> Access {
        Access::from_bits_truncate(self.mapping as u8)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?} {:?}", self.range(), self.frame(), self.access())
    }
}

/// The mappings that an owner sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs(#[serde(with = "machine::plain::list")] pub Vec<Run>);

/// A page that a thread is about to touch, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The page.
    pub page: Page,
    /// What the thread will do there.
    pub access: Access,
    /// Pages that the owner may send with it, the touched one among them.
    pub around: PageRange,
}

impl Serialize for Touch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Touch { page, access, around } = self;
        plain::serialize(&[page.0 << 8 | u64::from(access.bits()), around.start.0, around.end.0], to)
    }
}

impl<'de> Deserialize<'de> for Touch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let [page, start, end]: [u64; 3] = plain::deserialize(from)?;
        let (access, around) = (Access::from_bits_truncate(page as u8), PageRange::new(Page(start), Page(end)));
        Ok(Touch { page: Page(page >> 8), access, around })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_travel_as_they_are() {
        let parts = [
            (Page(0), 1, None, Access::READ),
            (Page((1 << 35) - 1), 512, Some(Frame(0)), Access::all()),
            (Page(7), u16::MAX, Some(Frame((1 << 40) - 1)), Access::empty()),
        ];
        let runs = Runs(parts.map(|(page, pages, frame, access)| Run::new(page, pages, frame, access)).to_vec());
        for (run, parts) in runs.0.iter().zip(parts) {
            assert_eq!((run.page(), run.pages(), run.frame(), run.access()), parts);
        }
        let bytes = postcard::to_allocvec(&runs).unwrap();
        assert_eq!(bytes.len(), 1 + 3 * 16);
        assert_eq!(postcard::from_bytes(&bytes), Ok(runs));
        assert!(postcard::from_bytes::<Runs>(&bytes[..bytes.len() - 1]).is_err());
        assert!(postcard::from_bytes::<Runs>(&[1, 0]).is_err());
    }
}
