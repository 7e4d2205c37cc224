//! Programs, and the bytes they are stored as.
//!
//! Memory that calls point into lies at fixed addresses, in an *arena*: an area for each actor, whose last page is not
//! mapped. Before a call its writes and patches (results of earlier calls inside structures) are made, after it its
//! takes: results go into numbered slots, which all actors share.

/// Threads and processes of a program.
pub const ACTORS: usize = 8;
/// Where the areas begin, and how long each is; the last page of each is missing.
pub const ARENA: u64 = 0x1_0000_0000;
pub const AREA: u64 = 0x1_0000;
pub const USABLE: u64 = AREA - 0x1000;
/// Stacks of the actors, above the areas. Signal frames go there.
pub const STACKS: u64 = ARENA + 0x10_0000;
pub const STACK: u64 = 0x1_0000;
/// Where mappings are made.
pub const PLAYGROUND: u64 = 0x1_1000_0000;
/// The signal handler, and behind it what calls rt_sigreturn.
pub const HANDLER: u64 = 0x1000_0000;
pub const RESTORER: u64 = 0x1000_0010;
pub const SLOTS: usize = 256;
/// Steps of a program.
pub const MOST_STEPS: usize = 240;

const MAGIC: &[u8; 4] = b"cobf";
const NO_BIRTH: u8 = 0xff;
/// As an offset: the call's result.
const RESULT: u32 = u32::MAX;

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Value(u64),
    Slot(u8),
}

/// Bytes that are in the arena before the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub at: u32,
    pub bytes: Vec<u8>,
}

/// A slot's value put into the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    pub at: u32,
    pub size: u8,
    pub slot: u8,
}

/// What the call has made, kept in a slot if it succeeds: its result, or what it wrote into the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    pub slot: u8,
    pub from: Option<(u32, u8)>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub actor: u8,
    pub number: u16,
    pub arguments: [Word; 6],
    pub writes: Vec<Write>,
    pub patches: Vec<Patch>,
    pub takes: Vec<Take>,
    /// Who begins where the call returns 0: in the child.
    pub birth: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub steps: Vec<Step>,
}

impl Program {
    /// What one actor does.
    pub fn of(&self, actor: u8) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.actor == actor)
    }

    /// Makes it one that can be run, whatever was done to it: what lies outside the arena goes, and actors are born by those
    /// before them.
    pub fn repair(&mut self) {
        self.steps.truncate(MOST_STEPS);
        for step in &mut self.steps {
            step.actor %= ACTORS as u8;
            let actor = step.actor;
            step.birth = step.birth.filter(|birth| *birth > actor && usize::from(*birth) < ACTORS);
            let fits = |at: u32, size: usize| u64::from(at) % AREA + size as u64 <= USABLE && u64::from(at) < AREA * 8;
            step.writes.retain(|write| fits(write.at, write.bytes.len()));
            step.patches.retain(|patch| fits(patch.at, 8) && matches!(patch.size, 2 | 4 | 8));
            step.takes.retain(|take| take.from.is_none_or(|(at, size)| fits(at, 8) && matches!(size, 4 | 8)));
            step.writes.truncate(60);
            step.patches.truncate(60);
            step.takes.truncate(8);
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((self.steps.len() as u32).to_le_bytes());
        for step in &self.steps {
            out.extend([step.actor, step.birth.unwrap_or(NO_BIRTH)]);
            out.extend(step.number.to_le_bytes());
            out.extend([step.writes.len() as u8, step.patches.len() as u8, step.takes.len() as u8, 0]);
            for argument in step.arguments {
                let (kind, value) = match argument {
                    Word::Value(value) => (0u64, value),
                    Word::Slot(slot) => (1, u64::from(slot)),
                };
                out.extend(kind.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            for write in &step.writes {
                out.extend(write.at.to_le_bytes());
                out.extend((write.bytes.len() as u32).to_le_bytes());
                out.extend(&write.bytes);
            }
            for patch in &step.patches {
                out.extend(patch.at.to_le_bytes());
                out.extend([patch.size, patch.slot, 0, 0]);
            }
            for take in &step.takes {
                let (at, size) = take.from.unwrap_or((RESULT, 0));
                out.extend(at.to_le_bytes());
                out.extend([size, take.slot, 0, 0]);
            }
        }
        out
    }

    /// None: these are not the bytes of a program.
    pub fn decode(bytes: &[u8]) -> Option<Program> {
        let mut input = Input(bytes);
        if input.take(4)? != MAGIC {
            return None;
        }
        let count = input.number(4)? as usize;
        let mut program = Program::default();
        for _ in 0..count.min(MOST_STEPS) {
            program.steps.push(input.step()?);
        }
        program.repair();
        Some(program)
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, size: usize) -> Option<u64> {
        let bytes = self.take(size)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn step(&mut self) -> Option<Step> {
        let (actor, birth) = (self.number(1)? as u8, self.number(1)? as u8);
        let number = self.number(2)? as u16;
        let [writes, patches, takes, _] = *self.take(4)? else { return None };
        let mut arguments = [Word::Value(0); 6];
        for argument in &mut arguments {
            *argument = match (self.number(8)?, self.number(8)?) {
                (0, value) => Word::Value(value),
                (_, slot) => Word::Slot(slot as u8),
            };
        }
        let birth = (birth != NO_BIRTH).then_some(birth);
        let mut step =
            Step { actor, number, arguments, writes: Vec::new(), patches: Vec::new(), takes: Vec::new(), birth };
        for _ in 0..writes {
            let (at, length) = (self.number(4)? as u32, self.number(4)? as usize);
            step.writes.push(Write { at, bytes: self.take(length)?.to_vec() });
        }
        for _ in 0..patches {
            let (at, rest) = (self.number(4)? as u32, self.take(4)?);
            step.patches.push(Patch { at, size: rest[0], slot: rest[1] });
        }
        for _ in 0..takes {
            let (at, rest) = (self.number(4)? as u32, self.take(4)?);
            step.takes.push(Take { slot: rest[1], from: (at != RESULT).then_some((at, rest[0])) });
        }
        Some(step)
    }
}
