//! From a run that fails to a short one that fails.
//!
//! Delta debugging (Zeller, Hildebrandt 2002): leave out half of the steps, a quarter, ... single ones, then single
//! operations of those that are left; fewer kernels; calm weather. What is left out changes the schedule of nothing
//! else (see scenario.rs), but it changes the *state* the others meet, and so when messages cross. Therefore every
//! candidate is tried with a few other schedules too before it is given up.
//!
//! Any failure will do, not only the same message: what is wrong in a protocol shows as this or that.

use crate::scenario::{Acts, Kind, Log, Plan, Step};

/// Other schedules that are tried for each candidate.
const LUCKS: u64 = 6;

pub struct Shrunk {
    pub plan: Plan,
    pub error: String,
    /// Runs that it took.
    pub runs: u64,
}

struct Shrinker {
    kind: Kind,
    best: Shrunk,
    most_runs: u64,
}

/// The shortest failing run that at most `runs` runs find.
pub fn shrink(kind: Kind, plan: Plan, error: String, runs: u64) -> Shrunk {
    let mut shrinker = Shrinker { kind, best: Shrunk { plan, error, runs: 0 }, most_runs: runs };
    loop {
        let before = shrinker.best.plan.clone();
        shrinker.fewer_steps();
        shrinker.fewer_kernels();
        shrinker.calmer();
        shrinker.fewer_acts();
        if shrinker.best.plan == before || shrinker.exhausted() {
            return shrinker.best;
        }
    }
}

impl Shrinker {
    fn exhausted(&self) -> bool {
        self.best.runs >= self.most_runs
    }

    /// Whether the candidate fails too, with any luck; then it is the best one.
    fn accept(&mut self, candidate: Plan) -> bool {
        for luck in 0..=LUCKS {
            if self.exhausted() {
                return false;
            }
            self.best.runs += 1;
            let plan = Plan { luck: candidate.luck.wrapping_add(luck), ..candidate.clone() };
            if let Err(error) = (self.kind.run)(&plan, Log::Nothing) {
                self.best = Shrunk { plan, error, runs: self.best.runs };
                return true;
            }
        }
        false
    }

    fn accept_steps(&mut self, steps: Vec<Step>) -> bool {
        let candidate = Plan { steps, ..self.best.plan.clone() };
        self.accept(candidate)
    }

    fn fewer_steps(&mut self) {
        let mut chunk = self.best.plan.steps.len();
        while chunk > 0 {
            // From the end: what comes after the failure goes at once.
            let mut end = self.best.plan.steps.len();
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let mut steps = self.best.plan.steps.clone();
                steps.drain(start..end);
                self.accept_steps(steps);
                end = start.min(self.best.plan.steps.len());
            }
            chunk /= 2;
        }
    }

    fn fewer_kernels(&mut self) {
        for kernels in 1..self.best.plan.kernels {
            let candidate = Plan { kernels, ..self.best.plan.clone() };
            if self.accept(candidate) {
                return;
            }
        }
    }

    fn calmer(&mut self) {
        if !self.best.plan.calm {
            let candidate = Plan { calm: true, ..self.best.plan.clone() };
            self.accept(candidate);
        }
    }

    fn fewer_acts(&mut self) {
        for index in 0..self.best.plan.steps.len() {
            // Three operations run at the same time at most in today's programs; bits above mean nothing.
            for act in 0..8 {
                let mut steps = self.best.plan.steps.clone();
                let left = steps[index].acts.0 & !(1 << act);
                if left & 0b111 == 0 || left == steps[index].acts.0 {
                    continue;
                }
                steps[index].acts = Acts(left & 0b111);
                self.accept_steps(steps);
            }
        }
    }
}
