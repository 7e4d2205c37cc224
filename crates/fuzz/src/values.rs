//! Random arguments: mostly what a call can do something with, now and then what it must refuse.

use crate::{
    describe::{Field, Kind, Memory, DESCRIPTORS},
    draw::Drawing,
    program::{Patch, Step, Take, Word, Write, ACTORS, AREA, ARENA, HANDLER, PLAYGROUND, STACK, STACKS, USABLE},
};

const PATHS: &[&str] = &[
    "f0",
    "f1",
    "f2",
    "d0",
    "d1",
    "d0/f0",
    "d0/d1",
    "d0/d1/f0",
    "d1/l0",
    "l0",
    "l1",
    "p0",
    "s0",
    ".",
    "..",
    "/",
    "d0/../f0",
    "",
    "d0/",
    "f0/x",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm/m0",
    "/dev/shm",
    "/proc",
    "/proc/self",
    "/proc/self/fd",
    "/proc/self/fd/3",
    "/proc/self/fd/5",
    "/proc/thread-self/stat",
    "/proc/self/mem",
    "/proc/self/maps",
    "/proc/self/smaps",
    "/proc/self/status",
    "/proc/self/environ",
    "/proc/self/cwd",
    "/proc/self/exe",
    "/proc/self/task",
    "/proc/self/comm",
    "/proc/self/pagemap",
    "/proc/self/limits",
    "/proc/self/mounts",
    "/proc/self/io",
    "/proc/self/clear_refs",
    "/proc/self/oom_score_adj",
    "/proc/self/cob",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/1/stat",
    "/proc/1/fd",
    "/proc/sys/kernel",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/pipe-max-size",
    "/proc/cob/types",
    "/proc/sysvipc/shm",
    "/proc/locks",
    "/sys",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/etc/passwd",
];
const TEXTS: &[&str] =
    &["", "a", "user.x", "tmpfs", "proc", "size=4096", "security.capability", "system.posix_acl_access", "trusted.y"];
const WILD: &[u64] = &[
    0,
    1,
    8,
    0xfff,
    0x7fff_ffff_f000,
    0x7fff_ffff_ffff,
    0x8000_0000_0000,
    0xffff_8880_0000_0000,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];
const INTEGERS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    31,
    32,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    1000,
    1023,
    1024,
    4095,
    4096,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
    u64::MAX - 1,
    u64::MAX - 4095,
];
const SIZES: &[u64] = &[0, 1, 2, 7, 8, 12, 16, 24, 64, 100, 127, 128, 511, 512, 1000, 4095, 4096, 4097, 8192, 0x8000];
const OFFSETS: &[u64] = &[0, 0, 1, 8, 100, 4095, 4096, 4097, 8192, 0x10000, 0x10_0000, 0xffff_ffff, 0x1_0000_0000];
const PAGES: &[u64] = &[0x1000, 0x1000, 0x2000, 0x3000, 0x4000, 0x8000, 0x1_0000, 0x4_0000, 0, 1, 0x1001];
const SECONDS: &[u64] = &[0, 0, 0, 0, 0, 1, 2, 1000, u64::MAX, i64::MAX as u64, 1 << 31];
const NANOSECONDS: &[u64] = &[0, 1, 1000, 10_000, 100_000, 1_000_000, 3_000_000, 999_999_999, 1_000_000_000, u64::MAX];
const MILLISECONDS: &[u64] = &[0, 0, 1, 2, 5, 20, u64::MAX, i32::MAX as u64];
const SIGNALS: &[u64] =
    &[1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 18, 19, 20, 21, 22, 23, 25, 28, 32, 33, 34, 35, 63, 64, 65, 0];
const MODES: &[u64] = &[0, 0o400, 0o600, 0o644, 0o666, 0o700, 0o755, 0o777, 0o1777, 0o4755, 0o7777, 0o17_7777];
const USERS: &[u64] = &[65534, 65534, 0, 1, 1000, 0xffff_ffff, 0x1_0000_0000];
/// As bytes of sun_path: an abstract name, and two with a path, `s0` and `s1`.
const SOCKET_NAMES: &[u64] = &[0x6100, 0x3073, 0x3173];
/// Memory that one piece of data takes at most.
const MOST: u64 = 0x4000;

/// Draws the arguments of one step.
pub struct Values<'d, 'a> {
    pub drawing: &'d mut Drawing<'a>,
    pub step: Step,
}

impl Values<'_, '_> {
    fn pick(&mut self, of: &[u64]) -> u64 {
        of[self.drawing.rng.usize(..of.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.drawing.rng.u32(..n) == 0
    }

    /// Arguments of a call, or fields of a structure: together, for some are the lengths of others.
    pub fn group(&mut self, kinds: &[&Kind]) -> Vec<Word> {
        let mut words = vec![Word::Value(0); kinds.len()];
        let mut sizes = vec![(0, 0); kinds.len()];
        for (index, kind) in kinds.iter().enumerate() {
            words[index] = match kind {
                Kind::Memory(memory) => {
                    let (address, bytes, count) = self.memory(memory);
                    sizes[index] = (bytes, count);
                    Word::Value(address)
                }
                Kind::Length(_) | Kind::Count(_) => Word::Value(0),
                kind => self.plain(kind),
            };
        }
        for (index, kind) in kinds.iter().enumerate() {
            let exact = match kind {
                Kind::Length(of) => sizes.get(*of).map(|(bytes, _)| *bytes),
                Kind::Count(of) => sizes.get(*of).map(|(_, count)| *count),
                _ => continue,
            };
            words[index] = Word::Value(match (exact, self.drawing.rng.u8(..16)) {
                (Some(_), 0) | (None, _) => self.pick(INTEGERS),
                (Some(exact), 1) => exact.wrapping_sub(1),
                (Some(exact), 2) => exact + 1,
                (Some(exact), 3) => self.drawing.rng.u64(..=exact),
                (Some(exact), _) => exact,
            });
        }
        words
    }

    /// Address, bytes and elements of memory, with what is in it.
    fn memory(&mut self, memory: &Memory) -> (u64, u64, u64) {
        if memory.optional && self.one_in(4) {
            return (0, 0, 0);
        }
        if self.one_in(40) {
            let wild = self.pick(WILD);
            return (wild, self.pick(SIZES), 1);
        }
        let Some(structure) = &memory.structure else {
            let size = self.pick(SIZES);
            let at = self.room(size);
            if memory.input && size > 0 {
                let bytes = self.bytes(size.min(600) as usize);
                self.step.writes.push(Write { at: (at - ARENA) as u32, bytes });
            }
            return (at, size, size);
        };
        let count = match memory.most {
            1 => 1,
            most => self.drawing.rng.usize(..=most),
        };
        let size: usize = structure.iter().map(|field| field.size).sum();
        let at = self.room((size * count) as u64);
        for element in 0..count {
            self.structure(structure, at + (element * size) as u64, memory.input);
        }
        (at, (size * count) as u64, count as u64)
    }

    fn structure(&mut self, fields: &[Field], at: u64, input: bool) {
        let kinds: Vec<&Kind> = fields.iter().map(|field| &field.kind).collect();
        let words = if input { self.group(&kinds) } else { Vec::new() };
        let (mut bytes, mut offset) = (Vec::new(), (at - ARENA) as u32);
        for (index, field) in fields.iter().enumerate() {
            let size = field.size as u8;
            if let Kind::New(resource) = field.kind {
                let slot = self.drawing.slot(resource);
                self.step.takes.push(Take { slot, from: Some((offset, size)) });
            }
            match words.get(index) {
                Some(Word::Slot(slot)) => {
                    self.step.patches.push(Patch { at: offset, size, slot: *slot });
                    bytes.resize(bytes.len() + field.size, 0);
                }
                Some(Word::Value(value)) => bytes.extend(&value.to_le_bytes()[..field.size.min(8)]),
                None => {}
            }
            offset += u32::from(size);
        }
        if !bytes.is_empty() {
            self.step.writes.push(Write { at: (at - ARENA) as u32, bytes });
        }
    }

    /// Fresh memory of the actor; now and then it ends where nothing is mapped.
    fn room(&mut self, size: u64) -> u64 {
        let area = ARENA + u64::from(self.step.actor) * AREA;
        let size = size.min(MOST);
        if self.one_in(30) {
            return area + USABLE - size;
        }
        let cursor = &mut self.drawing.cursors[usize::from(self.step.actor)];
        if *cursor + size > USABLE {
            *cursor = 0;
        }
        let at = area + *cursor;
        *cursor += (size + 8) & !7;
        at
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        match self.drawing.rng.u8(..4) {
            0 => vec![0; size],
            1 => (0..size).map(|_| self.drawing.rng.u8(..)).collect(),
            2 => vec![b'0' + self.drawing.rng.u8(..10); size],
            _ => {
                let word = self.pick(INTEGERS).to_le_bytes();
                word.iter().cycle().take(size).copied().collect()
            }
        }
    }

    fn text(&mut self, text: &[u8]) -> u64 {
        let at = self.room(text.len() as u64 + 1);
        self.step.writes.push(Write { at: (at - ARENA) as u32, bytes: [text, b"\0"].concat() });
        at
    }

    fn resource(&mut self, resource: &'static str) -> Word {
        let descriptor = DESCRIPTORS.contains(&resource);
        if !self.one_in(12) {
            // Rarely another kind: what is not meant for it.
            let wanted = if descriptor && self.one_in(10) { "fd" } else { resource };
            if let Some(slot) = self.drawing.some(wanted) {
                return Word::Slot(slot);
            }
        }
        Word::Value(match (descriptor, resource) {
            (true, _) => match self.drawing.rng.u8(..12) {
                0 => u64::MAX,
                1 => self.pick(INTEGERS),
                2 => -100i64 as u64,
                _ => self.drawing.rng.u64(..24),
            },
            // 0 is the caller or its group; -1 would be everybody, and 1 is the kernel's.
            (false, "pid") => match self.drawing.rng.u8(..16) {
                0 => u64::MAX,
                1 => 1,
                2 => self.pick(INTEGERS),
                _ => 0,
            },
            _ => self.pick(INTEGERS),
        })
    }

    fn plain(&mut self, kind: &Kind) -> Word {
        let name = match kind {
            Kind::Constant(value) => return Word::Value(*value),
            Kind::Use(resource) => return self.resource(resource),
            Kind::One(values) => {
                return Word::Value(if self.one_in(30) { self.pick(INTEGERS) } else { self.pick(values) });
            }
            Kind::Flags(values) => {
                let some = self.drawing.rng.usize(..=3.min(values.len()));
                let flags = (0..some).fold(0, |flags, _| flags | self.pick(values));
                return Word::Value(if self.one_in(40) { flags | self.pick(INTEGERS) } else { flags });
            }
            Kind::Plain(name) => *name,
            Kind::New(_) | Kind::Memory(_) | Kind::Length(_) | Kind::Count(_) => return Word::Value(0),
        };
        Word::Value(match name {
            "size" => self.rarely(SIZES),
            "off" => self.rarely(OFFSETS),
            "pages" => self.rarely(PAGES),
            "mode" => self.rarely(MODES),
            "sig" => self.rarely(SIGNALS),
            "uid" => self.pick(USERS),
            "ms" => self.pick(MILLISECONDS),
            "seconds" => self.pick(SECONDS),
            "nanoseconds" | "microseconds" => self.pick(NANOSECONDS),
            "dirfd" if !self.one_in(4) => -100i64 as u64,
            "dirfd" => return self.resource("dir"),
            "address" => match (self.drawing.rng.u8(..8), self.drawing.some("map")) {
                (0..=2, Some(slot)) => return Word::Slot(slot),
                (3, _) => self.pick(WILD),
                (4, _) => 0,
                _ => PLAYGROUND + self.drawing.rng.u64(..64) * 0x1000,
            },
            "pointer" => match self.drawing.rng.u8(..6) {
                0 => self.pick(WILD),
                1 => HANDLER,
                2 => PLAYGROUND + self.drawing.rng.u64(..0x4_0000),
                _ => self.room(64),
            },
            "shared_word" => match self.drawing.rng.u8(..4) {
                0 => PLAYGROUND + self.drawing.rng.u64(..16) * 0x1000,
                _ => ARENA + USABLE - 64 + 4 * self.drawing.rng.u64(..4),
            },
            "stack" => STACKS + STACK * (1 + self.drawing.rng.u64(1..ACTORS as u64)),
            "path" | "exe" => return Word::Value(self.path()),
            "tty_path" => self.text(b"/dev/ptmx"),
            "text" => {
                let text = TEXTS[self.drawing.rng.usize(..TEXTS.len())];
                self.text(text.as_bytes())
            }
            "socket_name" => self.pick(SOCKET_NAMES),
            _ => self.pick(INTEGERS),
        })
    }

    fn rarely(&mut self, usual: &[u64]) -> u64 {
        if self.one_in(25) {
            self.pick(INTEGERS)
        } else {
            self.pick(usual)
        }
    }

    fn path(&mut self) -> u64 {
        match self.drawing.rng.u8(..40) {
            0 => self.pick(WILD),
            1 => self.text(&[b'x'; 300]),
            2 => self.text(&b"d0/".repeat(1300)),
            3 => {
                let depth = 1 + self.drawing.rng.usize(..30);
                self.text(&b"d0/".repeat(depth))
            }
            // The names at the beginning are the program's own: there is more to be done with those.
            4..=27 => {
                let path = PATHS[self.drawing.rng.usize(..13)];
                self.text(path.as_bytes())
            }
            _ => {
                let path = PATHS[self.drawing.rng.usize(..PATHS.len())];
                self.text(path.as_bytes())
            }
        }
    }
}
