//! Random programs on memory: threads of several processes on all kernels map, unmap, protect, move, fork, read
//! and write, one to three at the same time. After each step the results must be those of *some* order of
//! the operations in the sequential model; the invariants are audited; in the end nothing may have leaked.

use crate::{
    acts::{compared, perform, Act, Choices, ARENA, ARENA_PAGES, HEAP},
    audit,
    cluster::{Cluster, Shape, OBJECT_PAGES},
    executor::Handle,
    machine::Machine,
    model::{Model, Operation, Outcome},
    object::Later,
    rng::Rng,
    scenario::{Log, Scenario, Step},
};
use abi::ObjectId;
use machine::{Access, KernelId, Page, PageRange, SpaceId, UserAddr};
use std::future::Future;

/// Possible states of the model that are kept at most; a program gets out of its ambiguity by reading.
const MAX_STATES: usize = 64;
/// Steps from one time that all memory is compared to the next.
const COMPARE_EVERY: u32 = 40;

/// A program with its machine.
pub struct Program {
    pub cluster: Cluster,
    /// All states the results so far allow.
    states: Vec<Model>,
    spaces: Vec<SpaceId>,
    private: Vec<ObjectId>,
    shared: Vec<ObjectId>,
    operations: u64,
}

impl Scenario for Program {
    const NAME: &'static str = "memory";
    const STEPS: u32 = 120;

    fn new(shape: Shape) -> Self {
        let cluster = Cluster::new(shape);
        cluster.recorder.start(None);
        let mut model = Model::new(OBJECT_PAGES, shape.scarce);
        let (mut private, mut shared, mut next) = (Vec::new(), Vec::new(), 1);
        for kernel in &cluster.kernels {
            for list in [&mut private, &mut shared] {
                let serial = next;
                next += 1;
                list.push(ObjectId { owner: kernel.id, serial });
            }
        }
        let mut spaces = Vec::new();
        for _ in 0..1 + cluster.world.rng.below(2) {
            let home = cluster.world.rng.pick(&cluster.kernels);
            let space = home.vm.create().expect("memory is empty");
            space.set_brk(UserAddr(HEAP));
            model.add_space(space.id(), HEAP);
            spaces.push(space.id());
        }
        Program { cluster, states: vec![model], spaces, private, shared, operations: 0 }
    }

    fn machine(&self) -> &Machine {
        &self.cluster
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        let (acts, chained) = self.draw(step, rng);
        self.strike(rng);
        let outcomes = self.outcomes(&acts, chained);
        self.operations += acts.len() as u64;
        for (index, (act, outcome)) in acts.iter().zip(&outcomes).enumerate() {
            let number = if index == 0 { step.number.to_string() } else { String::new() };
            log.line(|| format!("{number:>4}  {act} -> {outcome}"));
        }
        self.states = explain(&self.states, &acts, &outcomes, chained);
        self.spaces = self.states[0].spaces();
        audit::check(&self.cluster);
        if step.number % COMPARE_EVERY == COMPARE_EVERY - 1 {
            self.compare_all(rng);
            self.end_some_space(rng, log);
        }
    }

    fn finish(&mut self, log: &Log) {
        log.line(|| " end  all memory is read, all processes end");
        self.compare_all(&Rng::new(self.cluster.shape.seed));
        audit::check(&self.cluster);
        self.end_all();
    }

    fn operations(&self) -> u64 {
        self.operations
    }
}

impl Program {
    /// The operations of a step, and whether the first two are of one thread, the second after the first: what a
    /// fork may not tear.
    fn draw(&self, step: Step, rng: &Rng) -> (Vec<Act>, bool) {
        let count = if self.states.len() > 1 { 1 } else { *rng.pick(&[1, 1, 2, 2, 3]) };
        let chained = count > 1 && rng.one_in(2);
        let space = *rng.pick(&self.spaces);
        let choices = Choices {
            model: &self.states[0],
            kernels: self.cluster.kernels.len(),
            spaces: self.spaces.len(),
            scarce: self.cluster.world.scarce,
            focus: (count > 1 && rng.one_in(2)).then(|| self.states[0].some_page(rng, space)).flatten(),
            private: &self.private,
            shared: &self.shared,
        };
        // Two writes, and a fork that may see the first alone.
        let torn = chained && count == 3 && self.spaces.len() < 3 && rng.one_in(3);
        let mut acts = Vec::with_capacity(count);
        for act in 0..count {
            let other = rng.one_in(8).then(|| *rng.pick(&self.spaces));
            let mut drawn = choices.act(rng, other.unwrap_or(space), count == 1);
            if torn {
                drawn.space = space;
                drawn.operation = match self.states[0].writable_page(rng, space).filter(|_| act < 2) {
                    Some(page) => Operation::Write { page, word: compared(page), value: rng.next() >> 8 },
                    None => Operation::Fork,
                };
            }
            if step.acts.contains(act) {
                acts.push(drawn);
            }
        }
        let both = step.acts.contains(0) && step.acts.contains(1);
        (acts, chained && both)
    }

    /// What may happen to a replica at any time and no program notices, as `process/src/inject.rs` does it on the real machine:
    /// borrowed pages are forgotten, untouched ones handed over, and the home sends some with a thread that is on its way. It is under way
    /// when the operations begin.
    fn strike(&self, rng: &Rng) {
        let (index, chance) = (rng.below(self.cluster.kernels.len()), rng.next());
        let kernel = &self.cluster.kernels[index];
        let Some(space) = kernel.vm.find(*rng.pick(&self.spaces)) else { return };
        match chance % 8 {
            0 => self.cluster.recorder.during(kernel.id, || space.forget_borrowed(|_| rng.one_in(2))),
            1 | 2 => kernel.spawner.spawn(Box::pin(async move { space.steal_for_test(chance).await })),
            3 | 4 if space.id().home.index() != index => {
                let home = &self.cluster.kernels[space.id().home.index()];
                let Some(there) = home.vm.find(space.id()) else { return };
                let page = || Page(ARENA + rng.below(ARENA_PAGES) as u64);
                let access = || *rng.pick(&[Access::READ, Access::WRITE]);
                let pages: Vec<(Page, Access)> = (0..1 + rng.below(3)).map(|_| (page(), access())).collect();
                let (before, after) = (rng.below(40), rng.below(40));
                let later = async |turns: usize| {
                    for _ in 0..turns {
                        Later(false).await;
                    }
                };
                let touches = there.first_touches(&pages);
                let expected = space.expect_first(&touches);
                let to = KernelId(index as u16);
                home.spawner.spawn(Box::pin(async move {
                    later(before).await;
                    let answers = there.serve_first(to, &touches);
                    later(after).await;
                    expected.came(answers);
                }));
            }
            _ => {}
        }
    }

    fn outcomes(&self, acts: &[Act], chained: bool) -> Vec<Outcome> {
        let deadlock = |act: &Act| -> ! { panic!("deadlock: {act} has not ended") };
        let pair = chained.then(|| {
            let (first, second) = (self.work(acts[0]), self.work(acts[1]));
            self.cluster.start(async move { [first.await, second.await] })
        });
        let alone = if chained { &acts[2..] } else { acts };
        let handles: Vec<Handle<Outcome>> = alone.iter().map(|act| self.perform(*act)).collect();
        self.cluster.settle();
        let pair = pair.map(|handle| handle.take().unwrap_or_else(|| deadlock(&acts[0])));
        let others = handles.iter().zip(alone).map(|(handle, act)| handle.take().unwrap_or_else(|| deadlock(act)));
        pair.into_iter().flatten().chain(others).collect()
    }

    /// Starts an operation on its kernel.
    fn perform(&self, act: Act) -> Handle<Outcome> {
        self.cluster.start(self.work(act))
    }

    fn work(&self, act: Act) -> impl Future<Output = Outcome> + Send + 'static {
        let kernel = &self.cluster.kernels[act.kernel];
        let space = kernel.vm.attach(act.space).expect("the space is there");
        let objects = kernel.objects.clone();
        self.cluster.at(kernel.id, async move {
            match perform(space, act.operation, objects).await {
                Ok(outcome) => outcome,
                Err(error) => Outcome::Error(error),
            }
        })
    }

    /// Every page, read from a random kernel each, is what the model says.
    fn compare_all(&mut self, rng: &Rng) {
        for (space, page, word, _) in self.states[0].expectations() {
            let kernel = rng.below(self.cluster.kernels.len());
            let operation = Operation::Read { page: page.0, word };
            let act = Act { kernel, space, operation };
            let handle = self.perform(act);
            self.cluster.settle();
            let outcome = handle.take().expect("a read alone does not wait for anybody");
            self.operations += 1;
            let expected = self.states[0].word(space, page.0, word);
            self.states.retain_mut(|state| state.accepts(space, operation, outcome));
            assert!(!self.states.is_empty(), "{act} -> {outcome}, the model has {expected:x?}");
        }
    }

    fn end_some_space(&mut self, rng: &Rng, log: &Log) {
        if self.spaces.len() < 2 || rng.one_in(2) {
            return;
        }
        let id = self.spaces.remove(rng.below(self.spaces.len()));
        log.line(|| format!("      process {}.{} ends", id.home.0, id.serial));
        self.end(id);
        self.states.iter_mut().for_each(|state| state.remove_space(id));
    }

    fn end(&self, id: SpaceId) {
        let home = &self.cluster.kernels[id.home.index()];
        let space = home.vm.find(id).expect("home knows its spaces");
        self.cluster.run(self.cluster.at(id.home, async move { space.destroy().await }));
        assert_eq!(home.vm.audit_faults(), 0, "the audit of {id:?} at its end");
        for kernel in &self.cluster.kernels {
            // A replica that never asked for anything is unknown to home, and holds nothing.
            if let Some(space) = kernel.vm.find(id) {
                space.table().walk(PageRange::user(), &mut |page, mapping| {
                    panic!("{id:?} has ended but {:?} maps {page:?}: {mapping:?}", kernel.id)
                });
                self.cluster.recorder.during(kernel.id, || kernel.vm.drop_replica(id));
            }
        }
    }

    /// Ends all spaces and the files; then the only frames left are the kernels' zero pages.
    fn end_all(&mut self) {
        for id in std::mem::take(&mut self.spaces) {
            self.end(id);
        }
        for kernel in &self.cluster.kernels {
            self.cluster.recorder.during(kernel.id, || kernel.objects.clear());
        }
        // Twice: a kernel keeps borrowed frames in stock until its own have come home.
        for _ in 0..2 {
            for kernel in &self.cluster.kernels {
                self.cluster.recorder.during(kernel.id, || kernel.vm.send_frames_home(1));
            }
            self.cluster.settle();
        }
        for kernel in &self.cluster.kernels {
            assert_eq!(kernel.objects.remote.exported(), 0, "{:?} is held by nobody", kernel.id);
        }
        let used = self.cluster.world.used();
        assert_eq!(used.len(), self.cluster.kernels.len(), "leaked frames: {used:#?}");
    }
}

/// The states that some order of the operations leads to; panics if there is none. A mapping finds its hint taken at some
/// moment before it is made elsewhere (man 2 mmap: a hint): only that is not at once.
pub fn explain(states: &[Model], acts: &[Act], outcomes: &[Outcome], chained: bool) -> Vec<Model> {
    let mut next: Vec<Model> = Vec::new();
    for state in states {
        for order in orders(acts.len(), chained) {
            let mut model = state.clone();
            let mut taken = vec![false; acts.len()];
            let fits = order.iter().enumerate().all(|(done, &turn)| {
                for (index, act) in acts.iter().enumerate() {
                    let begun = !(chained && index == 1) || order[..done].contains(&0);
                    taken[index] |= begun && model.hint_taken(act.space, act.operation);
                }
                let Act { space, operation, .. } = acts[turn];
                let operation = if taken[turn] { operation.without_hint() } else { operation };
                model.accepts(space, operation, outcomes[turn])
            });
            if fits && !next.contains(&model) {
                next.push(model);
            }
        }
    }
    if next.is_empty() {
        let lines = acts.iter().zip(outcomes).map(|(act, outcome)| format!("\n      {act} -> {outcome}"));
        panic!("no order of these operations explains their results:{}", lines.collect::<String>());
    }
    next.truncate(MAX_STATES);
    next
}

/// All orders of `count` things, for counts up to three; `chained`: those with 0 before 1.
fn orders(count: usize, chained: bool) -> Vec<Vec<usize>> {
    let all: &[&[usize]] = match count {
        0 => &[&[]],
        1 => &[&[0]],
        2 => &[&[0, 1], &[1, 0]],
        _ => &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]],
    };
    let at = |order: &[usize], act: usize| order.iter().position(|one| *one == act);
    let fits = |order: &&&[usize]| !chained || at(order, 0) < at(order, 1);
    all.iter().filter(fits).map(|order| order.to_vec()).collect()
}
