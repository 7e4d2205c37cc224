//! Fields in words of 64 bits. They lie one after the other from the lowest bit on, each where its size divides its place, so that none is in two words; a field that does
//! not fit begins a new word. A text begins a new word: its length in the lowest byte, then its bytes.

use crate::{Field, Kind};

/// Words that the fields of a record have at most.
pub const MOST_WORDS: usize = 16;
/// Bytes of a text that are kept.
pub const MOST_TEXT: usize = 87;

/// Puts fields together, in `N` words at most: [`words_of`] says how many fields need.
pub struct Packer<const N: usize = MOST_WORDS> {
    words: [u64; N],
    bits: u32,
}

impl<const N: usize> Default for Packer<N> {
    #[inline(always)]
    fn default() -> Self {
        Packer { words: [0; N], bits: 0 }
    }
}

/// Words of a record with fields of so many bits each; 0: a text.
pub const fn words_of(fields: &[u32]) -> usize {
    let (mut bits, mut at) = (0u32, 0);
    while at < fields.len() {
        bits = match fields[at] {
            0 => return MOST_WORDS,
            field => bits.next_multiple_of(field) + field,
        };
        at += 1;
    }
    bits.div_ceil(64) as usize
}

impl<const N: usize> Packer<N> {
    /// Adds a field of so many bits.
    #[inline(always)]
    pub fn put(&mut self, value: u64, bits: u32) {
        let at = self.bits.next_multiple_of(bits);
        self.words[(at / 64) as usize] |= value << (at % 64);
        self.bits = at + bits;
    }

    /// Adds a text, which is the last field; cut after 87 bytes.
    pub fn put_text(&mut self, text: &[u8]) {
        let text = &text[..text.len().min(MOST_TEXT)];
        let first = self.bits.div_ceil(64) as usize;
        let bytes = core::iter::once(text.len() as u8).chain(text.iter().copied());
        for (at, byte) in bytes.enumerate() {
            self.words[first + at / 8] |= u64::from(byte) << (at % 8 * 8);
        }
        self.bits = (first + text_words(text.len())) as u32 * 64;
    }

    /// What has been put together.
    #[inline(always)]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.bits.div_ceil(64) as usize]
    }
}

/// Words that a text of so many bytes takes.
fn text_words(bytes: usize) -> usize {
    (1 + bytes).div_ceil(8)
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a field with bits.
    Number(u64),
    /// Of a text: its length, and its bytes.
    Text(u8, [u8; MOST_TEXT]),
}

impl Value {
    /// The number; 0 of a text.
    pub fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Text(..) => 0,
        }
    }

    /// The text; empty of a number.
    pub fn text(&self) -> &[u8] {
        match self {
            Value::Number(_) => &[],
            Value::Text(length, bytes) => &bytes[..usize::from(*length).min(MOST_TEXT)],
        }
    }
}

/// The fields of a record, in the order of the table. Fields that the words do not reach are missing: the record is damaged.
pub fn unpack<'a>(fields: &'a [Field], words: &'a [u64]) -> impl Iterator<Item = Value> + 'a {
    let mut at = 0u32;
    fields.iter().map_while(move |field| {
        if field.kind == Kind::Text {
            let first = at.div_ceil(64) as usize;
            let byte = |index: usize| words.get(first + index / 8).map(|word| (word >> (index % 8 * 8)) as u8);
            let length = byte(0)?.min(MOST_TEXT as u8);
            let mut text = [0; MOST_TEXT];
            for (index, slot) in text.iter_mut().enumerate().take(usize::from(length)) {
                *slot = byte(1 + index)?;
            }
            return Some(Value::Text(length, text));
        }
        at = at.next_multiple_of(field.bits);
        let word = words.get((at / 64) as usize)?;
        let value = word >> (at % 64);
        at += field.bits;
        Some(Value::Number(if field.bits == 64 { value } else { value & ((1 << field.bits) - 1) }))
    })
}
