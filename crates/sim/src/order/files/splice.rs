//! splice and tee: man 2 of both. What leaves a pipe is in the other file at the same moment, for all who look.

use super::{
    super::{Id, Outcome, EAGAIN, EBADF, EINVAL, EIO, EPIPE},
    done, Files, Kind,
};
use crate::rng::Rng;

/// One under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Moving {
    /// What the descriptors led to, which it finds one after the other.
    pub files: Vec<usize>,
    /// None before it has looked at them.
    way: Option<Way>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Way {
    FromPipe {
        to_pipe: bool,
    },
    /// As on Linux: the position is looked up first, and in the end set to what it was and what went, whatever others did to it.
    FromFile {
        at: usize,
        bytes: Option<Vec<u8>>,
        moved: Option<usize>,
    },
}

impl Files {
    /// A descriptor of what is `wanted`, often, if there is one; else `fd`.
    pub(super) fn likely(&self, thread: Id, wanted: fn(&Kind) -> bool, fd: i32, rng: &Rng) -> i32 {
        let table = &self.tables[&self.process[&thread]];
        let found: Vec<i32> = table
            .iter()
            .filter(|(_, entry)| wanted(&self.descriptions[&entry.description].kind))
            .map(|(fd, _)| *fd)
            .collect();
        if found.is_empty() || rng.one_in(6) {
            fd
        } else {
            *rng.pick(&found)
        }
    }

    pub(super) fn begin_splice(&mut self, thread: Id, from: i32) -> Outcome {
        let Some(description) = self.description(thread, from) else { return done(EBADF) };
        self.moving.insert(thread, Moving { files: vec![description], way: None });
        Outcome::Waits
    }

    /// Its next step; none: it must wait for bytes.
    pub(super) fn splice(&mut self, thread: Id, to: i32, bytes: usize, copies: bool) -> Option<Outcome> {
        let Moving { files, way } = self.moving[&thread].clone();
        let [from, to] = files[..] else {
            let Some(description) = self.description(thread, to) else { return Some(done(EBADF)) };
            self.moving.get_mut(&thread)?.files.push(description);
            return Some(Outcome::Waits);
        };
        match way {
            None => Some(match self.way(from, to, copies) {
                Ok(way) => self.goes(thread, way),
                Err(error) => done(error),
            }),
            Some(Way::FromPipe { to_pipe }) => self.splice_out_of_a_pipe([from, to], to_pipe, bytes, copies).map(done),
            Some(Way::FromFile { at, bytes: None, .. }) => {
                let Kind::File { file, .. } = self.descriptions[&from].kind else { return Some(done(EIO)) };
                let rest = self.store.files[file].get(at..).unwrap_or(&[]);
                let bytes = Some(rest[..bytes.min(rest.len())].to_vec());
                Some(self.goes(thread, Way::FromFile { at, bytes, moved: None }))
            }
            Some(Way::FromFile { at, bytes: Some(bytes), moved: None }) => match self.put(to, &bytes) {
                moved @ 0.. => {
                    Some(self.goes(thread, Way::FromFile { at, bytes: Some(bytes), moved: Some(moved as usize) }))
                }
                error => Some(done(error)),
            },
            Some(Way::FromFile { at, moved: Some(moved), .. }) => {
                let Kind::File { offset, .. } = &mut self.descriptions.get_mut(&from)?.kind else {
                    return Some(done(EIO));
                };
                *offset = at + moved;
                Some(done(moved as i64))
            }
        }
    }

    fn goes(&mut self, thread: Id, way: Way) -> Outcome {
        self.moving.get_mut(&thread).expect("it is under way").way = Some(way);
        Outcome::Waits
    }

    /// May it be, and how?
    fn way(&self, from: usize, to: usize, copies: bool) -> Result<Way, i64> {
        let [source, out] = [from, to].map(|number| &self.descriptions[&number].kind);
        let pipe = |kind: &Kind| match kind {
            Kind::ReadEnd(pipe) | Kind::WriteEnd(pipe) => Some(*pipe),
            _ => None,
        };
        let reads = !matches!(source, Kind::WriteEnd(_) | Kind::Dead { reads: false, .. });
        let writes = !matches!(out, Kind::ReadEnd(_) | Kind::Dead { writes: false, .. });
        match (source, out) {
            _ if !reads || !writes => Err(EBADF),
            _ if pipe(source).is_some() && pipe(source) == pipe(out) => Err(EINVAL),
            (Kind::ReadEnd(_), Kind::WriteEnd(_)) => Ok(Way::FromPipe { to_pipe: true }),
            _ if copies => Err(EINVAL),
            (Kind::ReadEnd(_), Kind::Dead { .. }) | (Kind::Dead { .. }, Kind::WriteEnd(_)) => Err(EIO),
            (Kind::ReadEnd(_), Kind::File { append: false, .. }) => Ok(Way::FromPipe { to_pipe: false }),
            (Kind::File { offset, .. }, Kind::WriteEnd(_)) => {
                Ok(Way::FromFile { at: *offset, bytes: None, moved: None })
            }
            _ => Err(EINVAL),
        }
    }

    /// What a write gives.
    fn put(&mut self, to: usize, bytes: &[u8]) -> i64 {
        let ends = self.ends_of(to);
        let Files { descriptions, store, .. } = self;
        descriptions.get_mut(&to).expect("it is held").write(store, ends, bytes).0
    }

    /// The files may have been lost since it looked at them.
    fn splice_out_of_a_pipe(
        &mut self,
        [from, to]: [usize; 2],
        to_pipe: bool,
        bytes: usize,
        copies: bool,
    ) -> Option<i64> {
        let nonblocking = |number: &usize| self.descriptions[number].nonblocking;
        let Kind::ReadEnd(pipe) = self.descriptions[&from].kind else { return Some(EIO) };
        let writers = self.ends(pipe).writers;
        let refuses = nonblocking(&from) || to_pipe && nonblocking(&to);
        let found: Vec<u8> = self.store.pipes[pipe].as_ref()?.iter().take(bytes).copied().collect();
        match (found.is_empty(), writers) {
            (true, true) => return refuses.then_some(EAGAIN),
            // At the end: a pipe is still asked for its readers.
            (true, false) if !to_pipe => return Some(0),
            _ => {}
        }
        let moved = self.put(to, &found);
        debug_assert!(moved != EPIPE || to_pipe);
        if let (1.., false) = (moved, copies) {
            self.store.pipes[pipe].as_mut()?.drain(..moved as usize);
        }
        Some(moved)
    }
}
