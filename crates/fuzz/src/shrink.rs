//! From a program that fails to a short one that fails: delta debugging (Zeller, Hildebrandt 2002) on its steps, then on
//! what is in them.

use crate::program::{Program, Word};

/// The shortest program that at most `most` trials find. `fails` runs one and says whether it still fails.
pub fn shrink(program: Program, most: usize, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut shrinker = Shrinker { best: program, left: most, fails };
    loop {
        let before = shrinker.best.clone();
        shrinker.fewer_steps();
        shrinker.simpler_steps();
        if shrinker.best == before || shrinker.left == 0 {
            return shrinker.best;
        }
    }
}

struct Shrinker<'a> {
    best: Program,
    left: usize,
    fails: &'a mut dyn FnMut(&Program) -> bool,
}

impl Shrinker<'_> {
    fn accept(&mut self, candidate: Program) -> bool {
        if self.left == 0 || candidate == self.best {
            return false;
        }
        self.left -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn fewer_steps(&mut self) {
        let mut chunk = self.best.steps.len();
        while chunk > 0 {
            // From the end: what comes after the failure goes at once.
            let mut end = self.best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let mut candidate = self.best.clone();
                candidate.steps.drain(start..end);
                self.accept(candidate);
                end = start.min(self.best.steps.len());
            }
            chunk /= 2;
        }
    }

    fn simpler_steps(&mut self) {
        for index in 0..self.best.steps.len() {
            for argument in 0..6 {
                let mut candidate = self.best.clone();
                candidate.steps[index].arguments[argument] = Word::Value(0);
                self.accept(candidate);
            }
            self.without(|program| &mut program.steps[index].writes);
            self.without(|program| &mut program.steps[index].patches);
            self.without(|program| &mut program.steps[index].takes);
            let mut candidate = self.best.clone();
            candidate.steps[index].birth = None;
            self.accept(candidate);
        }
    }

    /// Tries without each element of a list of the step.
    fn without<T>(&mut self, list: impl Fn(&mut Program) -> &mut Vec<T>) {
        let mut at = list(&mut self.best).len();
        while at > 0 {
            at -= 1;
            let mut candidate = self.best.clone();
            list(&mut candidate).remove(at);
            self.accept(candidate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{describe::Calls, draw::draw};

    #[test]
    fn what_does_not_matter_goes() {
        let calls = Calls::new();
        // The failure: getpid (39) after pipe2 (293), by whomever.
        let mut fails = |program: &Program| {
            let numbers: Vec<u16> = program.steps.iter().map(|step| step.number).collect();
            let pipe = numbers.iter().position(|number| *number == 293);
            pipe.is_some_and(|at| numbers[at..].contains(&39))
        };
        let long = (1..).map(|seed| draw(&calls, seed, 200)).find(|program| fails(program)).unwrap();
        let short = shrink(long, 10_000, &mut fails);
        assert_eq!(short.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [293, 39]);
        assert!(short.steps.iter().all(|step| step.writes.is_empty() && step.arguments == [Word::Value(0); 6]));
    }
}
