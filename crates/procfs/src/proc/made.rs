//! Texts that functions make.

use ::machine::{errno::Result, BoxFuture};
use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, future::Future};
use fs::{
    synthetic::{Content, Fixed, Node, Style},
    Caller,
};

/// A text under construction. Writing to it can't fail, so `line!` forgets the Result.
#[derive(Default)]
pub(crate) struct Text(pub Vec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Text {
    pub fn add(&mut self, arguments: fmt::Arguments<'_>) {
        let _ = fmt::Write::write_fmt(self, arguments);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Spaces up to column `width` of the current line.
    pub fn pad(&mut self, width: usize) {
        let start = self.0.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let now = self.0.len() - start;
        self.0.resize(self.0.len() + width.saturating_sub(now), b' ');
    }
}

/// Appends formatted text.
macro_rules! put {
    ($text:expr, $($argument:tt)*) => { $text.add(format_args!($($argument)*)) };
}
pub(crate) use put;

/// A text made from `source` by an asynchronous function.
pub(crate) struct Made<S, F> {
    pub source: S,
    pub make: F,
}

impl<S, F, R> Content for Made<S, F>
where
    S: Clone + Send + Sync,
    F: Fn(S, Caller) -> R + Send + Sync,
    R: Future<Output = Result<Vec<u8>>> + Send + 'static,
{
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin((self.make)(self.source.clone(), caller.clone()))
    }
}

fn style_below(path: &str) -> Style {
    match path.strip_prefix("/proc/sys") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Style::Setting,
        _ => Style::Machine,
    }
}

/// A directory of which all is known beforehand, built name by name. Inode numbers are those of the paths.
pub(crate) struct Directory {
    path: String,
    names: Fixed,
}

impl Directory {
    pub fn new(path: &str) -> Self {
        Directory { path: path.into(), names: Fixed::default() }
    }

    fn ino(&self, name: &str) -> u64 {
        fs::synthetic::hash_ino(alloc::format!("{}/{name}", self.path).as_bytes())
    }

    pub fn file(self, name: &str, content: impl Content + 'static) -> Self {
        let node = Node::file(self.ino(name), content).style(style_below(&self.path));
        self.with(name, node)
    }

    /// A text that never changes.
    pub fn constant(self, name: &str, text: impl Into<String>) -> Self {
        let text = text.into().into_bytes();
        self.file(name, fs::synthetic::Text(move |_: &Caller| text.clone()))
    }

    pub fn link(self, name: &str, target: impl Into<String>) -> Self {
        let node = Node::link(self.ino(name), target.into());
        self.with(name, node)
    }

    pub fn directory(self, name: &str, fill: impl FnOnce(Directory) -> Directory) -> Self {
        let ino = self.ino(name);
        let below = Directory::new(&alloc::format!("{}/{name}", self.path));
        let style = style_below(&below.path);
        let node = Node::directory(ino, fill(below).names).style(style);
        self.with(name, node)
    }

    pub fn with(self, name: &str, node: Node) -> Self {
        Directory { names: self.names.with(name, node), path: self.path }
    }

    pub fn done(self) -> Fixed {
        self.names
    }
}

/// CPU or node numbers as Linux lists them: `0-3,7`.
pub(crate) fn number_list(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut sorted: Vec<u32> = numbers.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    let mut at = 0;
    while at < sorted.len() {
        let first = sorted[at];
        let mut end = at;
        while sorted.get(end + 1) == Some(&(sorted[end] + 1)) {
            end += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        text += &match sorted[end] - first {
            0 => alloc::format!("{comma}{first}"),
            _ => alloc::format!("{comma}{first}-{}", sorted[end]),
        };
        at = end + 1;
    }
    text
}

/// The same as a bit mask: hexadecimal words of 32 bits, `00000001,0000000f`, for `width` bits in all.
pub(crate) fn number_mask(numbers: impl IntoIterator<Item = u32>, width: u32) -> String {
    let words = width.div_ceil(32).max(1) as usize;
    let mut mask = alloc::vec![0u32; words];
    for number in numbers {
        if let Some(word) = mask.get_mut(number as usize / 32) {
            *word |= 1 << (number % 32);
        }
    }
    // The first word has only as many digits as it has bits.
    let digits = match width % 32 {
        0 => 8,
        rest => rest.div_ceil(4) as usize,
    };
    let mut text = String::new();
    for (index, word) in mask.iter().rev().enumerate() {
        text += &match index {
            0 => alloc::format!("{word:0digits$x}"),
            _ => alloc::format!(",{word:08x}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_as_linux_prints_them() {
        assert_eq!(number_list([]), "");
        assert_eq!(number_list([3, 0, 1, 2, 7]), "0-3,7");
        assert_eq!(number_list([1, 3, 5, 6]), "1,3,5-6");
        assert_eq!(number_mask([0, 1], 2), "3");
        assert_eq!(number_mask([0, 33], 64), "00000002,00000001");
        assert_eq!(number_mask([0], 40), "00,00000001");
    }

    #[test]
    fn padding_counts_from_the_line_start() {
        let mut text = Text::default();
        put!(text, "abc\nde");
        text.pad(5);
        text.bytes(b"x");
        assert_eq!(text.0, b"abc\nde   x");
    }
}
