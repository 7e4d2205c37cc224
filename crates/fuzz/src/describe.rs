//! What the arguments and structures of each call mean, read from `calls/*.txt`.
//!
//! ```text
//! set open = 0x1 0x2 0x40                          values that flags or one of them are drawn from
//! struct iovec { inout bytes:8, len 0:8 }          fields and their sizes
//! 19 readv(fd, in iovec[5], count 1)               number, name, arguments
//! 22 pipe(out pipepair)                            `new pipe:4` in a structure is something later calls may use
//! 2 open(path, flags open, mode) -> file *2        so is the result; drawn twice as often as others
//! ```
//!
//! A call may have several descriptions. `len N` and `count N` are bytes and elements of what argument (or field) N
//! points to; `opt` makes a pointer null now and then.

use std::collections::BTreeMap;

/// What calls make and later ones use.
pub type Resource = &'static str;

/// Descriptors of all kinds: each may be used for any other.
pub const DESCRIPTORS: &[Resource] =
    &["fd", "file", "dir", "pipe", "sock", "epoll", "event", "timerfd", "sigfd", "inotify", "memfd", "pidfd", "tty"];
pub const OTHERS: &[Resource] = &["pid", "map", "shm", "sem", "msg", "timer", "wd"];

/// What is drawn without more being said.
const PLAIN: &[&str] = &[
    "int",
    "size",
    "off",
    "mode",
    "sig",
    "uid",
    "ms",
    "seconds",
    "nanoseconds",
    "microseconds",
    "address",
    "pages",
    "pointer",
    "path",
    "text",
    "tty_path",
    "exe",
    "stack",
    "shared_word",
    "socket_name",
    "dirfd",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Constant(u64),
    Plain(&'static str),
    /// Any of these or'ed, or one of them.
    Flags(Vec<u64>),
    One(Vec<u64>),
    Use(Resource),
    /// Written by the kernel, or the call's result.
    New(Resource),
    Memory(Memory),
    Length(usize),
    Count(usize),
}

/// What a pointer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The kernel reads it.
    pub input: bool,
    pub optional: bool,
    /// None: bytes.
    pub structure: Option<Vec<Field>>,
    /// Elements at most.
    pub most: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub kind: Kind,
    pub size: usize,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub number: u16,
    pub name: String,
    pub arguments: Vec<Kind>,
    pub result: Option<Resource>,
    pub weight: usize,
}

/// All descriptions.
pub struct Calls {
    pub calls: Vec<Call>,
    /// Each as often as its weight says.
    pub lots: Vec<usize>,
}

const SOURCES: [&str; 6] = [
    include_str!("../calls/files.txt"),
    include_str!("../calls/names.txt"),
    include_str!("../calls/memory.txt"),
    include_str!("../calls/processes.txt"),
    include_str!("../calls/signals.txt"),
    include_str!("../calls/messages.txt"),
];

impl Calls {
    /// Those in the tree.
    pub fn new() -> Calls {
        let lines: Vec<&str> = SOURCES.iter().flat_map(|text| text.lines()).collect();
        Calls::parse(&lines).unwrap_or_else(|error| panic!("the descriptions of calls: {error}"))
    }

    fn parse(lines: &[&str]) -> Result<Calls, String> {
        let mut reader = Reader::default();
        let lines = lines.iter().map(|line| line.split('#').next().unwrap_or_default().trim());
        let mut lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        // Sets and structures first: files use each other's.
        lines.sort_by_key(|line| (!line.starts_with("set "), !line.starts_with("struct ")));
        for line in lines {
            reader.line(line).map_err(|error| format!("{line}: {error}"))?;
        }
        let lots = reader.calls.iter().enumerate().flat_map(|(index, call)| vec![index; call.weight]).collect();
        Ok(Calls { calls: reader.calls, lots })
    }

    pub fn name_of(&self, number: u16) -> &str {
        self.calls.iter().find(|call| call.number == number).map_or("?", |call| &call.name)
    }
}

impl Default for Calls {
    fn default() -> Self {
        Calls::new()
    }
}

/// What earlier lines have defined.
#[derive(Default)]
struct Reader {
    sets: BTreeMap<String, Vec<u64>>,
    structures: BTreeMap<String, Vec<Field>>,
    calls: Vec<Call>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(set) = line.strip_prefix("set ") {
            let (name, values) = set.split_once('=').ok_or("a set without =")?;
            let values = values.split_whitespace().map(number).collect::<Result<_, _>>()?;
            self.sets.insert(name.trim().to_string(), values);
            return Ok(());
        }
        if let Some(structure) = line.strip_prefix("struct ") {
            let (name, fields) = structure.split_once('{').ok_or("a structure without {")?;
            let fields = fields.strip_suffix('}').ok_or("a structure without }")?.split(',');
            let fields = fields.map(|field| self.field(field.trim())).collect::<Result<_, _>>()?;
            self.structures.insert(name.trim().to_string(), fields);
            return Ok(());
        }
        let call = self.call(line)?;
        self.calls.push(call);
        Ok(())
    }

    fn field(&self, text: &str) -> Result<Field, String> {
        let (kind, size) = text.rsplit_once(':').ok_or("a field without size")?;
        Ok(Field { kind: self.kind(kind)?, size: number(size)? as usize })
    }

    fn call(&self, line: &str) -> Result<Call, String> {
        let (head, rest) = line.split_once('(').ok_or("neither set, struct nor call")?;
        let (number_text, name) = head.split_once(' ').ok_or("a call without number")?;
        let (arguments, tail) = rest.rsplit_once(')').ok_or("a call without )")?;
        let arguments = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
        let arguments: Vec<Kind> = arguments.map(|argument| self.kind(argument)).collect::<Result<_, _>>()?;
        let (result, weight) = match tail.split_once('*') {
            Some((result, weight)) => (result, number(weight)? as usize),
            None => (tail, 1),
        };
        let result = match result.trim().strip_prefix("->") {
            Some(name) => Some(resource(name.trim()).ok_or("no such resource")?),
            None => None,
        };
        if arguments.len() > 6 {
            return Err("more than six arguments".to_string());
        }
        Ok(Call { number: number(number_text)? as u16, name: name.to_string(), arguments, result, weight })
    }

    fn kind(&self, text: &str) -> Result<Kind, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let set = || self.sets.get(rest).cloned().ok_or(format!("no set {rest}"));
        Ok(match word {
            "val" => Kind::Constant(number(rest)?),
            "flags" => Kind::Flags(set()?),
            "one" => Kind::One(set()?),
            "len" => Kind::Length(number(rest)? as usize),
            "count" => Kind::Count(number(rest)? as usize),
            "new" => Kind::New(resource(rest).ok_or("no such resource")?),
            "in" | "inout" => Kind::Memory(self.memory(rest, true)?),
            "out" => Kind::Memory(self.memory(rest, false)?),
            "opt" => match self.kind(rest)? {
                Kind::Memory(memory) => Kind::Memory(Memory { optional: true, ..memory }),
                _ => return Err("only pointers are optional".to_string()),
            },
            name => match (resource(name), PLAIN.iter().find(|plain| **plain == name)) {
                (Some(resource), _) => Kind::Use(resource),
                (None, Some(plain)) => Kind::Plain(plain),
                (None, None) => return Err(format!("{name} means nothing")),
            },
        })
    }

    fn memory(&self, shape: &str, input: bool) -> Result<Memory, String> {
        let (name, most) = match shape.split_once('[') {
            Some((name, most)) => (name, number(most.trim_end_matches(']'))? as usize),
            None => (shape, 1),
        };
        let structure = match name {
            "bytes" => None,
            name => Some(self.structures.get(name).cloned().ok_or(format!("no structure {name}"))?),
        };
        Ok(Memory { input, optional: false, structure, most })
    }
}

fn resource(name: &str) -> Option<Resource> {
    DESCRIPTORS.iter().chain(OTHERS).find(|known| **known == name).copied()
}

/// Decimal, hexadecimal or octal, as in C; may be negative.
fn number(text: &str) -> Result<u64, String> {
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.trim()),
    };
    let value = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
        (Some(hexadecimal), _) => u64::from_str_radix(hexadecimal, 16),
        (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8),
        _ => digits.parse(),
    };
    let value = value.map_err(|_| format!("{text} is no number"))?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every system call of `docs/syscalls.md` has a description, under its number, and nothing else has.
    #[test]
    fn every_call_is_described() {
        let list = include_str!("../../../docs/syscalls.md");
        let row = |line: &'static str| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
        let rows = list.lines().filter_map(row).filter_map(|(number, name)| Some((number.parse().ok()?, name)));
        let implemented: Vec<(u16, &str)> = rows.collect();
        let described = Calls::new().calls;
        let described: Vec<(u16, &str)> = described.iter().map(|call| (call.number, &*call.name)).collect();
        let missing: Vec<_> = implemented.iter().filter(|call| !described.contains(call)).collect();
        assert!(missing.is_empty(), "no description in crates/fuzz/calls: {missing:?}");
        let strange: Vec<_> = described.iter().filter(|call| !implemented.contains(call)).collect();
        assert!(strange.is_empty(), "described, but not in docs/syscalls.md: {strange:?}");
    }

    #[test]
    fn mistakes_in_descriptions_are_named() {
        let wrong = |line: &str| Calls::parse(&[line]).err().unwrap_or_default();
        assert!(wrong("1 write(fd, in bites, size)").contains("no structure bites"));
        assert!(wrong("1 write(fd, flags open)").contains("no set open"));
        assert!(wrong("1 write(fd").contains("without )"));
        assert!(wrong("1 write(opt fd)").contains("only pointers"));
        assert!(wrong("1 dup(fd) -> bird").contains("no such resource"));
        assert!(wrong("set x = 09").contains("no number"));
        let calls = Calls::parse(&["set s = 010 -1", "7 poll(one s) -> fd *3"]).unwrap();
        assert_eq!(calls.calls[0].arguments, [Kind::One(vec![8, u64::MAX])]);
        assert_eq!(calls.lots, [0, 0, 0]);
    }
}
