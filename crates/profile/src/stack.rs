//! Pieces of stacks, as samples have them.

use std::collections::{BTreeMap, HashMap};

const PAGE: u64 = 4096;
/// Threads whose stacks are remembered, and pages of each.
const MOST_THREADS: usize = 4096;
const MOST_PAGES: usize = 16;

/// What a sample has of a stack: words, by page, in the order of addresses. Pages may be missing.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    pages: BTreeMap<u64, Words>,
    words: usize,
}

/// Words from an address on.
#[derive(Clone, Debug)]
struct Words(u64, Vec<u64>);

impl Piece {
    /// Words that it has.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Adds words from an address on.
    pub fn add(&mut self, mut address: u64, mut words: &[u64]) {
        while !words.is_empty() {
            let room = ((PAGE - address % PAGE) / 8).max(1) as usize;
            let (now, later) = words.split_at(words.len().min(room));
            let page = self.pages.entry(address / PAGE).or_insert(Words(address, Vec::new()));
            // Else something is missing between.
            if page.0 + page.1.len() as u64 * 8 == address {
                page.1.extend_from_slice(now);
            }
            self.words += now.len();
            address += now.len() as u64 * 8;
            words = later;
        }
    }

    /// The word at an address.
    pub fn word(&self, at: u64) -> Option<u64> {
        word(&self.pages, at)
    }
}

fn word(pages: &BTreeMap<u64, Words>, at: u64) -> Option<u64> {
    let Words(from, words) = pages.get(&(at / PAGE))?;
    let offset = at.checked_sub(*from).filter(|offset| offset.is_multiple_of(8))?;
    words.get((offset / 8) as usize).copied()
}

/// What was seen of programs' stacks before. After a move to another kernel a thread's stack comes page by page, as the thread touches it, so a sample ends where nothing has come
/// yet. What is missing is as the thread has left it, and so mostly as a sample has seen it there.
#[derive(Default)]
pub struct Stacks(HashMap<u32, BTreeMap<u64, Words>>);

impl Stacks {
    /// Remembers a sample's piece for a thread whose stack pointer is `pointer`, and forgets what lies below: the thread has returned from there.
    pub fn remember(&mut self, thread: u32, pointer: u64, piece: Piece) {
        if self.0.len() >= MOST_THREADS && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        let pages = self.0.entry(thread).or_default();
        *pages = pages.split_off(&(pointer / PAGE));
        pages.extend(piece.pages);
        while pages.len() > MOST_PAGES {
            pages.pop_last();
        }
    }

    /// The word that a thread had at an address.
    pub fn word(&self, thread: u32, at: u64) -> Option<u64> {
        word(self.0.get(&thread)?, at)
    }
}
