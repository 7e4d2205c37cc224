//! The search for an order of the calls that explains a round.

use super::{Id, Outcome, Reply, Subject, ESRCH};
use std::collections::{BTreeMap, HashSet};

/// What a thread was told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act<O> {
    Call(O),
    /// A new thread with the stack in this slot, or (true) a new process.
    Birth(u64, bool),
    /// sched_setaffinity of a thread to one CPU: the model sees nothing of it.
    Move(Id, u32),
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending<O> {
    pub number: u64,
    pub thread: Id,
    pub act: Act<O>,
    begun: bool,
}

impl<O> Pending<O> {
    pub fn new(number: u64, thread: Id, act: Act<O>) -> Self {
        Pending { number, thread, act, begun: false }
    }
}

/// The model, and the calls that have not returned in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<S: Subject> {
    pub model: S,
    pub pending: Vec<Pending<S::Op>>,
}

/// What was seen in a round: replies by the numbers of the calls, and threads that have ended.
pub struct Seen {
    pub replies: BTreeMap<u64, Reply>,
    pub ended: Vec<Id>,
}

/// Most states that are kept.
const MOST_STATES: usize = 64;
const MOST_TRIES: usize = 100_000;

/// All states that a round may have left, none if nothing explains it.
pub fn explain<S: Subject>(states: Vec<State<S>>, seen: &Seen) -> Vec<State<S>> {
    let mut search = Search { seen, tried: HashSet::new(), found: Vec::new() };
    states.into_iter().for_each(|state| search.go(state));
    search.found
}

struct Search<'a, S: Subject> {
    seen: &'a Seen,
    tried: HashSet<State<S>>,
    found: Vec<State<S>>,
}

impl<S: Subject> Search<'_, S> {
    fn ended(&self, thread: Id, answer: Option<&Reply>) -> bool {
        self.seen.ended.contains(&thread) && answer.is_some_and(|answer| answer.0 == ESRCH)
    }

    fn go(&mut self, state: State<S>) {
        if self.found.len() >= MOST_STATES || self.tried.len() >= MOST_TRIES || !self.tried.insert(state.clone()) {
            return;
        }
        let mut at_rest = true;
        for index in 0..state.pending.len() {
            let call = state.pending[index];
            let expected = self.seen.replies.get(&call.number);
            let mut next = state.clone();
            let outcome = next.advance(index, expected);
            // What could go on, or was seen to return, is not waiting.
            at_rest &= outcome.is_none() && call.begun && expected.is_none();
            let explained = match outcome {
                None => false,
                Some(Outcome::Waits) => {
                    next.pending[index].begun = true;
                    true
                }
                // A thread may end before it is moved.
                Some(Outcome::Reply(_)) if matches!(call.act, Act::Move(thread, _) if self.ended(thread, expected)) => {
                    next.pending.remove(index);
                    true
                }
                Some(Outcome::Ends) => {
                    next.pending.remove(index);
                    self.seen.ended.contains(&call.thread)
                }
                Some(Outcome::Reply(reply)) => {
                    next.pending.remove(index);
                    expected.is_some_and(|seen| agree(&reply, seen))
                }
            };
            if explained {
                self.go(next);
            }
        }
        if at_rest && !self.found.contains(&state) {
            self.found.push(state);
        }
    }
}

fn agree(expected: &Reply, seen: &Reply) -> bool {
    expected.0 == seen.0 && seen.1.starts_with(&expected.1)
}

impl<S: Subject> State<S> {
    /// The next thing that call `index` does, if it can do one.
    fn advance(&mut self, index: usize, seen: Option<&Reply>) -> Option<Outcome> {
        let Pending { thread, act, begun, .. } = self.pending[index];
        match act {
            Act::Call(op) if begun => self.model.go_on(thread, op),
            Act::Call(op) => Some(self.model.begin(thread, op)),
            Act::Move(..) => Some(Outcome::Reply((0, Vec::new()))),
            // Its id is the one that was seen.
            Act::Birth(_, process) => {
                let child = seen.map(|reply| reply.0).filter(|child| *child > 0)?;
                self.model.born(thread, child as Id, process);
                Some(Outcome::Reply((child, Vec::new())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{nodes::user::Command, rng::Rng};

    /// A number that is taken, or waited for.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Token(u32);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Op {
        Give,
        Take,
    }

    impl Subject for Token {
        const NAME: &'static str = "token";
        const STEPS: u32 = 1;
        const THREADS: usize = 1;
        const FORKS: bool = false;
        type Op = Op;
        fn new(_first: Id, _call: &mut dyn FnMut(Command) -> (i64, machine::KernelId)) -> Self {
            Token(0)
        }
        fn draw(&self, _thread: Id, _patient: bool, _rng: &Rng) -> Op {
            Op::Give
        }
        fn command(&self, _op: Op) -> Command {
            Command::plain(0, &[])
        }
        fn born(&mut self, _parent: Id, _child: Id, _process: bool) {}
        fn begin(&mut self, _thread: Id, op: Op) -> Outcome {
            match op {
                Op::Give => {
                    self.0 += 1;
                    Outcome::Reply((0, Vec::new()))
                }
                Op::Take => Outcome::Waits,
            }
        }
        fn go_on(&mut self, _thread: Id, _op: Op) -> Option<Outcome> {
            self.0 = self.0.checked_sub(1)?;
            Some(Outcome::Reply((1, Vec::new())))
        }
    }

    fn left(calls: &[Op], returned: &[(u64, i64)]) -> Vec<State<Token>> {
        let pending = (1..).zip(calls).map(|(number, op)| Pending::new(number, number as Id, Act::Call(*op)));
        let state = State { model: Token(0), pending: pending.collect() };
        let replies = returned.iter().map(|(number, result)| (*number, (*result, Vec::new()))).collect();
        explain(vec![state], &Seen { replies, ended: Vec::new() })
    }

    #[test]
    fn either_of_two_may_get_what_one_gives() {
        for winner in [1, 2] {
            let states = left(&[Op::Take, Op::Take, Op::Give], &[(winner, 1), (3, 0)]);
            assert_eq!(states.len(), 1);
            assert_eq!(states[0].pending.len(), 1);
        }
    }

    #[test]
    fn nobody_may_wait_beside_a_token_and_no_token_is_taken_twice() {
        assert!(left(&[Op::Take, Op::Give], &[(2, 0)]).is_empty());
        assert!(left(&[Op::Take, Op::Take, Op::Give], &[(1, 1), (2, 1), (3, 0)]).is_empty());
    }
}
