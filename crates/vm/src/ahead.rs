//! First touches that go upwards.
//!
//! Problem: a program that fills a large array takes a fault for each page, and what a fault costs is mostly the way into the
//! kernel and back.
//!
//! Idea: faults that continue each other upwards are a *run*, and the pages that follow are made with the fault: none at first, for
//! most programs touch a page here and a page there, then 2, 4, 8, 16. So a run takes little more memory than it touches. (Linux maps
//! two mebibytes at the first touch where it can.)

use alloc::vec::Vec;
use machine::Page;

/// So many faults must continue each other before pages are made ahead.
const PROOF: u32 = 4;
const MOST: u64 = 16;
/// Most runs that are remembered; several, since threads of a space that run on one kernel take turns.
const RUNS: usize = 4;

#[derive(Clone, Copy)]
struct Run {
    next: Page,
    faults: u32,
}

/// The runs of sequential faults of a space; the one that was continued last is at the end.
#[derive(Default)]
pub(crate) struct Ahead(Vec<Run>);

impl Ahead {
    /// Notes that `page` is touched for the first time. Answers how many pages behind it should be made, too.
    pub fn after(&mut self, page: Page) -> u64 {
        let faults = match self.0.iter().position(|run| run.next == page) {
            Some(known) => self.0.remove(known).faults + 1,
            None => 0,
        };
        if self.0.len() == RUNS {
            self.0.remove(0);
        }
        let pages = match faults.checked_sub(PROOF) {
            Some(proven) => (2 << proven.min(8)).min(MOST),
            None => 0,
        };
        self.0.push(Run { next: page.add(1), faults });
        pages
    }

    /// Notes that so many pages behind `page` were made.
    pub fn made(&mut self, pages: u64) {
        if let Some(run) = self.0.last_mut() {
            run.next = run.next.add(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of a walk over `pages` pages from `start` on.
    fn faults(ahead: &mut Ahead, start: u64, pages: u64) -> usize {
        let (mut at, mut faults) = (start, 0);
        while at < start + pages {
            let more = ahead.after(Page(at));
            ahead.made(more);
            at += 1 + more;
            faults += 1;
        }
        faults
    }

    #[test]
    fn a_long_walk_takes_few_faults_and_a_short_one_gets_nothing_ahead() {
        let mut ahead = Ahead::default();
        assert_eq!(faults(&mut ahead, 100, 4), 4);
        assert!(faults(&mut ahead, 1000, 4096) < 260);
    }

    #[test]
    fn walks_of_several_threads_do_not_disturb_each_other() {
        let mut ahead = Ahead::default();
        let mut at = [0u64, 1 << 20, 2 << 20, 3 << 20];
        for _ in 0..20 {
            for next in &mut at {
                let more = ahead.after(Page(*next));
                ahead.made(more);
                *next += 1 + more;
            }
        }
        assert!(at.iter().enumerate().all(|(thread, at)| at - ((thread as u64) << 20) > 100), "{at:?}");
    }

    #[test]
    fn who_jumps_about_gets_nothing_ahead() {
        let mut ahead = Ahead::default();
        assert!((0..100).all(|n| ahead.after(Page(n * 7919)) == 0));
    }
}
