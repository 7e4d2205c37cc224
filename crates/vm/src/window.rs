//! How many pages a kernel asks their owner for at once.
//!
//! Problem: mapping pages one question at a time is slow when a thread goes through memory in order, and mapping
//! many at a time is wasteful (and takes them from whoever must revoke them later) when it does not. One kernel
//! runs several threads of a space, so their faults come mixed.
//!
//! Idea: each run of faults that continue each other is a *stream* with a window of its own, as in Linux's file readahead.
//!
//! - A fault just behind the pages of a stream continues it. So does one just before them (stacks, backward copies).
//! - If the thread has used the pages that came last, the window becomes eight times as large, or twice if the stream goes
//!   downwards. If not, it halves. The ACCESSED bits of the last quarter decide.
//! - A fault anywhere else begins a new stream with a small window, and the stream that was idle for longest is dropped. If few
//!   of the dropped stream's pages were used, new streams begin smaller: a program that jumps about soon gets single pages.
//!
//! A page too many costs little: both kernels map the same frame, and the other kernel hears of it only when the page is unmapped.
//!
//! For a long stream that goes upwards a second question follows each question: it asks for the next [`AHEAD`] windows, of which the
//! owner sends what it has ready. So the owner looks for these pages while the thread goes through those before them.

use alloc::vec::Vec;
use machine::{Page, PageRange};

/// The largest window of a new stream, in pages.
pub(crate) const FIRST_WINDOW: u16 = 16;
/// The largest window of any stream, in pages.
const MAX_WINDOW: u16 = 1024;
/// Streams remembered: more than threads of one space mostly run on one kernel.
const STREAMS: usize = 8;
/// A stream with at least this window is asked for ahead.
const LONG: u16 = 64;
/// How many windows are asked for ahead.
const AHEAD: u64 = 3;

struct Stream {
    /// All pages asked for so far, without a gap.
    whole: PageRange,
    /// The pages of the last question, even if it asked ahead.
    last: PageRange,
    window: u16,
    upwards: bool,
}

/// The streams of a replica, the one used last at the end.
pub(crate) struct Windows {
    streams: Vec<Stream>,
    /// Window of the next new stream.
    first: u16,
}

impl Default for Windows {
    fn default() -> Self {
        Windows { streams: Vec::new(), first: FIRST_WINDOW }
    }
}

impl Windows {
    /// The pages to ask for when `page` is missing. They include `page`. `used` counts the pages of a range that are mapped here
    /// and have been touched.
    pub fn ask(&mut self, page: Page, used: impl Fn(PageRange) -> u64) -> PageRange {
        let continued = self.streams.iter().position(|stream| stream.follows(page) || stream.precedes(page));
        let stream = match continued {
            Some(index) => {
                let mut stream = self.streams.remove(index);
                let end = stream.quarter_before(page);
                stream.upwards = stream.follows(page);
                if used(end) * 2 >= end.len() {
                    let more = if stream.upwards { 8 } else { 2 };
                    stream.window = (stream.window * more).min(MAX_WINDOW);
                    self.first = (self.first * 2).min(FIRST_WINDOW);
                } else {
                    stream.window = (stream.window / 2).max(1);
                }
                let pages = u64::from(stream.window);
                if stream.upwards {
                    stream.last = PageRange::new(page, page.add(pages));
                    stream.whole.end = stream.last.end;
                } else {
                    stream.last = PageRange::new(Page((page.0 + 1).saturating_sub(pages)), page.add(1));
                    stream.whole.start = stream.last.start;
                }
                stream
            }
            None => {
                if self.streams.len() == STREAMS {
                    let idle = self.streams.remove(0);
                    self.judge(&idle, &used);
                }
                // At least half of the window lies above the page, since most streams go upwards.
                let pages = u64::from(self.first);
                let start = Page(page.0 & !((pages / 2).max(1) - 1));
                let last = PageRange::new(start, start.add(pages));
                Stream { whole: last, last, window: self.first, upwards: false }
            }
        };
        let range = stream.last;
        self.streams.push(stream);
        range
    }

    /// The pages to ask for ahead after the question for `asked`, which [`Windows::ask`] has just returned.
    pub fn ahead(&mut self, asked: PageRange) -> Option<PageRange> {
        let long = |stream: &&mut Stream| stream.last == asked && stream.upwards && stream.window >= LONG;
        let stream = self.streams.last_mut().filter(long)?;
        stream.last = PageRange::new(asked.end, asked.end.add(AHEAD * asked.len()));
        stream.whole.end = stream.last.end;
        Some(stream.last)
    }

    /// Notes that of `asked` the owner sent only `got`. The stream then continues with a fault where `got` ends.
    pub fn got(&mut self, asked: PageRange, got: PageRange) {
        let holds = |stream: &&mut Stream| asked.intersect(stream.whole) == asked;
        let Some(stream) = self.streams.iter_mut().rev().find(holds) else { return };
        if stream.whole.start == asked.start && !got.is_empty() {
            stream.whole.start = got.start;
        }
        let falls_short = got.end < asked.end && (stream.upwards || stream.whole.end == asked.end);
        if falls_short {
            stream.whole.end = got.end;
        }
        if stream.upwards && falls_short {
            // The next fault judges the stream by these pages, so they must be pages that have come.
            let first = Page(got.end.0.saturating_sub(asked.len())).max(stream.whole.start);
            stream.last = PageRange::new(first, got.end);
        } else if stream.last == asked {
            stream.last = got;
        }
    }

    /// Adjusts the window of new streams by how many pages of a dropped one were used.
    fn judge(&mut self, stream: &Stream, used: impl Fn(PageRange) -> u64) {
        let touched = used(stream.last);
        let sent = stream.last.len();
        if touched * 4 <= sent {
            self.first = (self.first / 2).max(1);
        } else if sent > 1 && touched * 4 >= sent * 3 {
            self.first = (self.first * 2).min(FIRST_WINDOW);
        }
    }
}

impl Stream {
    /// Whether a fault at `page` continues the stream upwards. It may skip a few pages, which may have been mapped already.
    fn follows(&self, page: Page) -> bool {
        page >= self.whole.end && page.0 - self.whole.end.0 <= u64::from(self.window) / 4
    }

    /// The quarter of the pages sent last that lies nearest to `page`, which continues the stream.
    fn quarter_before(&self, page: Page) -> PageRange {
        let pages = self.last.len().div_ceil(4);
        match self.follows(page) {
            true => PageRange::new(Page(self.last.end.0 - pages), self.last.end),
            false => PageRange::new(self.last.start, self.last.start.add(pages)),
        }
    }

    /// Whether a fault at `page` continues the stream downwards.
    fn precedes(&self, page: Page) -> bool {
        page < self.whole.start && self.whole.start.0 - 1 - page.0 <= u64::from(self.window) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(range: PageRange) -> u64 {
        range.len()
    }

    /// Questions until `pages` pages from `start` on have been seen in order.
    fn sequential(windows: &mut Windows, start: u64, pages: u64) -> usize {
        let (mut at, mut questions) = (start, 0);
        while at < start + pages {
            at = windows.ask(Page(at), all).end.0;
            questions += 1;
        }
        questions
    }

    #[test]
    fn windows_grow_while_faults_go_on_in_order() {
        assert!(sequential(&mut Windows::default(), 4096, 4096) <= 20);
    }

    #[test]
    fn several_streams_do_not_disturb_each_other() {
        let mut windows = Windows::default();
        let mut at = [0, 1 << 20, 2 << 20, 3 << 20];
        let starts = at;
        let mut questions = 0;
        while at.iter().zip(starts).any(|(at, start)| *at < start + 4096) {
            for next in &mut at {
                *next = windows.ask(Page(*next), all).end.0;
                questions += 1;
            }
        }
        assert!(questions <= 80, "{questions}");
    }

    #[test]
    fn downwards_works_as_well() {
        let mut windows = Windows::default();
        let (mut at, mut questions) = (8191, 0);
        while at > 4096 {
            at = windows.ask(Page(at), all).start.0 - 1;
            questions += 1;
        }
        assert!(questions <= 20, "{questions}");
    }

    #[test]
    fn who_jumps_about_is_soon_sent_single_pages() {
        let mut windows = Windows::default();
        // A fault has touched its own page and no other.
        let sent: Vec<u64> = (0..200).map(|n| windows.ask(Page(n * 7919 + 5), |_| 1).len()).collect();
        assert_eq!(sent[0], 16);
        assert!(sent[100..].iter().all(|pages| *pages <= 2), "{sent:?}");
        // And gets windows again when it goes in order.
        assert!(sequential(&mut windows, 1 << 30, 4096) <= 24);
    }

    #[test]
    fn a_long_stream_is_asked_for_ahead() {
        let mut windows = Windows::default();
        let (mut at, mut waits, mut questions) = (4096, 0, 0);
        while at < 2 * 4096 {
            let asked = windows.ask(Page(at), all);
            assert_eq!(asked.start, Page(at));
            let ahead = windows.ahead(asked);
            assert!(ahead.is_none_or(|range| range.start == asked.end));
            at = ahead.unwrap_or(asked).end.0;
            (waits, questions) = (waits + 1, questions + 1 + usize::from(ahead.is_some()));
        }
        assert!(waits <= 6 && questions <= 9, "{waits} {questions}");
    }

    #[test]
    fn what_the_owner_did_not_have_ahead_is_asked_for_again() {
        let mut windows = Windows::default();
        let mut at = 4096;
        let (asked, ahead) = loop {
            let asked = windows.ask(Page(at), all);
            if let Some(ahead) = windows.ahead(asked) {
                break (asked, ahead);
            }
            at = asked.end.0;
        };
        windows.got(asked, asked);
        let hole = ahead.start.add(5);
        windows.got(ahead, PageRange::new(ahead.start, hole));
        assert_eq!(windows.ask(hole, all).start, hole);
        windows.got(ahead, PageRange::new(ahead.start, ahead.start));
        assert_eq!(windows.ask(ahead.start, all).start, ahead.start);
    }

    #[test]
    fn a_stream_goes_on_where_the_answer_ended() {
        let mut windows = Windows::default();
        let asked = windows.ask(Page(32), all);
        windows.got(asked, PageRange::new(Page(32), Page(40)));
        assert_eq!(windows.ask(Page(40), all), PageRange::new(Page(40), Page(168)));
    }
}
