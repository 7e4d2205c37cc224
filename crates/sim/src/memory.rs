//! Random programs on memory: threads of several processes on all kernels map, unmap, protect, move, fork, read
//! and write, one to three at the same time. After each step the results must be those of *some* order of
//! the operations in the sequential model; the invariants are audited; in the end nothing may have leaked.

use crate::{
    audit,
    cluster::{Cluster, Shape, OBJECT_PAGES},
    executor::Handle,
    model::{Model, Operation, Outcome, Where, WORDS},
    object::{SimObjects, WORD_STEP},
};
use abi::ObjectId;
use machine::{errno::Result, Access, PageRange, SpaceId, UserAddr, PAGE_SIZE};
use std::{future::Future, sync::Arc};
use vm::{MapRequest, Objects, Place, Source, Space};

/// Pages programs map at addresses of their choice.
const ARENA: u64 = 0x10_0000;
const ARENA_PAGES: usize = 48;
const HEAP: u64 = 0x2000_0000;
/// Possible states of the model that are kept at most; a program gets out of its ambiguity by reading.
const MAX_STATES: usize = 64;

/// A program with its machine.
pub struct Program {
    pub cluster: Cluster,
    /// All states the results so far allow.
    states: Vec<Model>,
    spaces: Vec<SpaceId>,
    private: Vec<ObjectId>,
    shared: Vec<ObjectId>,
    /// Print each operation.
    pub trace: bool,
    pub operations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Act {
    kernel: usize,
    space: SpaceId,
    operation: Operation,
}

fn address(page: u64) -> UserAddr {
    UserAddr(page * PAGE_SIZE as u64)
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

impl Program {
    pub fn new(shape: Shape) -> Self {
        let cluster = Cluster::new(shape);
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
        Program { cluster, states: vec![model], spaces, private, shared, trace: false, operations: 0 }
    }

    /// Runs `steps` steps and the end of everything. Panics at the first thing that is wrong.
    pub fn run(&mut self, steps: usize) {
        for step in 0..steps {
            let count = if self.states.len() > 1 { 1 } else { *self.rng().pick(&[1, 1, 2, 2, 3]) };
            self.step(count);
            if step % 8 == 7 {
                audit::check(&self.cluster);
            }
            if step % 40 == 39 {
                self.compare_all();
                self.end_some_space();
            }
        }
        self.compare_all();
        audit::check(&self.cluster);
        self.finish();
    }

    fn rng(&self) -> &crate::rng::Rng {
        &self.cluster.world.rng
    }

    /// `count` operations at the same time.
    fn step(&mut self, count: usize) {
        let space = *self.rng().pick(&self.spaces);
        let mut acts: Vec<Act> = Vec::new();
        for _ in 0..count {
            let other = self.rng().one_in(8).then(|| *self.rng().pick(&self.spaces));
            acts.push(self.random_act(other.unwrap_or(space), count == 1));
        }
        // Sometimes the first two are of one thread, the second after the first: what a fork may not tear.
        let chained = count > 1 && self.rng().one_in(2);
        let outcomes = self.outcomes(&acts, chained);
        self.operations += count as u64;
        if self.trace {
            for (act, outcome) in acts.iter().zip(&outcomes) {
                let SpaceId { home, serial } = act.space;
                eprintln!("k{} {home:?}.{serial} {:x?} -> {outcome:x?}", act.kernel, act.operation);
            }
            eprintln!("--");
        }
        let mut next: Vec<Model> = Vec::new();
        for state in &self.states {
            for order in orders(count, chained) {
                let mut model = state.clone();
                let fits = order.iter().all(|&i| model.accepts(acts[i].space, acts[i].operation, outcomes[i]));
                if fits && !next.contains(&model) {
                    next.push(model);
                }
            }
        }
        if next.is_empty() {
            for (act, outcome) in acts.iter().zip(&outcomes) {
                eprintln!("k{} {:?} {:x?} -> {outcome:x?}", act.kernel, act.space, act.operation);
            }
            panic!("no order of these explains the results");
        }
        next.truncate(MAX_STATES);
        self.states = next;
        self.spaces = self.states[0].spaces();
    }

    fn outcomes(&self, acts: &[Act], chained: bool) -> Vec<Outcome> {
        let deadlock = |act: &Act| -> ! { panic!("deadlock: {act:?} has not ended") };
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

    fn random_act(&self, space: SpaceId, alone: bool) -> Act {
        let rng = self.rng();
        let model = &self.states[0];
        let pages = model.pages(space);
        let full = model.total_pages() > 400;
        let some = |rng: &crate::rng::Rng| match pages.is_empty() || rng.one_in(12) {
            true => ARENA + rng.below(ARENA_PAGES) as u64,
            false => *rng.pick(&pages),
        };
        let length = 1 + rng.below(6) as u64;
        let prot = *rng.pick(&[
            Access::READ | Access::WRITE,
            Access::READ | Access::WRITE,
            Access::READ,
            Access::WRITE,
            Access::READ | Access::EXEC,
            Access::empty(),
        ]);
        let word = rng.below(WORDS);
        let kernel = rng.below(self.cluster.kernels.len());
        let operation = match rng.below(100) {
            0..=11 if !full => {
                let at = match rng.below(6) {
                    0 | 1 => Where::Fixed(ARENA + rng.below(ARENA_PAGES) as u64),
                    2 => Where::NoReplace(ARENA + rng.below(ARENA_PAGES) as u64),
                    3 => Where::Hint(ARENA + rng.below(ARENA_PAGES) as u64),
                    _ => Where::Anywhere,
                };
                let shared = rng.one_in(3);
                let list = if shared { &self.shared } else { &self.private };
                let mut object = None;
                if rng.one_in(2) && !list.is_empty() {
                    let id = *rng.pick(list);
                    object = Some((id, rng.below(OBJECT_PAGES as usize) as u64));
                }
                Operation::Map { at, pages: length, prot, shared, object }
            }
            12..=18 => Operation::Unmap { page: some(rng), pages: length },
            19..=26 => Operation::Protect { page: some(rng), pages: length, prot },
            27..=30 => Operation::DontNeed { page: some(rng) },
            31..=36 if !full => {
                let old = 1 + rng.below(4) as u64;
                let new = 1 + rng.below(6) as u64;
                let page = some(rng);
                let target = ARENA + rng.below(ARENA_PAGES) as u64;
                let apart = target + new <= page || page + old <= target;
                // To another owner it is not one step, see remap.rs.
                let fixed = alone && apart && !self.cluster.world.scarce && rng.one_in(3);
                let may_move = fixed || rng.below(3) > 0;
                Operation::Remap { page, old, new, may_move, to: fixed.then_some(target) }
            }
            37..=39 => {
                let to = HEAP + rng.below(6 * PAGE_SIZE) as u64;
                Operation::Brk { to }
            }
            40..=43 if self.spaces.len() < 5 && !full => Operation::Fork,
            44..=62 => Operation::Read { page: some(rng), word },
            63..=70 => {
                let page = some(rng);
                let found = model.word(space, page, word).unwrap_or(0) as u32;
                let old = if rng.one_in(4) { found ^ 1 } else { found };
                Operation::Exchange { page, word, old, new: rng.next() as u32 }
            }
            _ => Operation::Write { page: some(rng), word, value: rng.next() >> 8 },
        };
        Act { kernel, space, operation }
    }

    /// Starts an operation on its kernel.
    fn perform(&self, act: Act) -> Handle<Outcome> {
        self.cluster.start(self.work(act))
    }

    fn work(&self, act: Act) -> impl Future<Output = Outcome> + Send + 'static {
        let kernel = &self.cluster.kernels[act.kernel];
        let space = kernel.vm.attach(act.space).expect("the space is there");
        let objects = kernel.objects.clone();
        async move {
            match perform(space, act.operation, objects).await {
                Ok(outcome) => outcome,
                Err(error) => Outcome::Error(error),
            }
        }
    }

    /// Every page, read from a random kernel each, is what the model says.
    fn compare_all(&mut self) {
        for (space, page, word, _) in self.states[0].expectations() {
            let kernel = self.rng().below(self.cluster.kernels.len());
            let operation = Operation::Read { page: page.0, word };
            let act = Act { kernel, space, operation };
            let handle = self.perform(act);
            self.cluster.settle();
            let outcome = handle.take().expect("a read alone does not wait for anybody");
            let before = self.states[0].clone();
            self.states.retain_mut(|state| state.accepts(space, operation, outcome));
            assert!(
                !self.states.is_empty(),
                "{act:x?} gave {outcome:x?}, the model has {:x?}",
                before.word(space, page.0, word)
            );
        }
    }

    fn end_some_space(&mut self) {
        if self.spaces.len() < 2 || self.rng().one_in(2) {
            return;
        }
        let id = self.spaces.remove(self.rng().below(self.spaces.len()));
        self.end(id);
        self.states.iter_mut().for_each(|state| state.remove_space(id));
    }

    fn end(&self, id: SpaceId) {
        let home = &self.cluster.kernels[id.home.index()];
        let space = home.vm.find(id).expect("home knows its spaces");
        self.cluster.run(async move { space.destroy().await });
        for kernel in &self.cluster.kernels {
            // A replica that never asked for anything is unknown to home, and holds nothing.
            if let Some(space) = kernel.vm.find(id) {
                space.table().walk(PageRange::user(), &mut |page, mapping| {
                    panic!("{id:?} has ended but {:?} maps {page:?}: {mapping:?}", kernel.id)
                });
                kernel.vm.drop_replica(id);
            }
        }
    }

    /// Ends all spaces and the files; then the only frames left are the kernels' zero pages.
    fn finish(&mut self) {
        for id in std::mem::take(&mut self.spaces) {
            self.end(id);
        }
        for kernel in &self.cluster.kernels {
            kernel.objects.clear();
            kernel.vm.send_frames_home(1);
        }
        self.cluster.settle();
        for kernel in &self.cluster.kernels {
            assert_eq!(kernel.objects.remote.exported(), 0, "{:?} is held by nobody", kernel.id);
        }
        let used = self.cluster.world.used();
        assert_eq!(used.len(), self.cluster.kernels.len(), "leaked frames: {used:#?}");
    }
}

async fn perform(space: Arc<Space>, operation: Operation, objects: Arc<SimObjects>) -> Result<Outcome> {
    let at = |page: u64, word: usize| address(page).add(word * WORD_STEP);
    Ok(match operation {
        Operation::Map { at, pages, prot, shared, object: named } => {
            let place = match at {
                Where::Anywhere => Place::Hint(UserAddr::NULL),
                Where::Hint(page) => Place::Hint(address(page)),
                Where::Fixed(page) => Place::Fixed(address(page)),
                Where::NoReplace(page) => Place::FixedNoReplace(address(page)),
            };
            let source = match named {
                Some((id, first)) => Source::Object {
                    object: objects.resolve(id).await?,
                    offset: bytes(first),
                    label: (*b"/file").into(),
                    limit: Access::all(),
                },
                None => Source::Anonymous,
            };
            let request = MapRequest { shared, source, ..MapRequest::anonymous(bytes(pages), prot).at(place) };
            Outcome::At(space.map(request).await?.page().0)
        }
        Operation::Unmap { page, pages } => {
            space.unmap(address(page), bytes(pages)).await?;
            Outcome::Done
        }
        Operation::Protect { page, pages, prot } => {
            space.protect(address(page), bytes(pages), prot).await?;
            Outcome::Done
        }
        Operation::DontNeed { page } => {
            space.advise(address(page), bytes(1), 4).await?;
            Outcome::Done
        }
        Operation::Remap { page, old, new, may_move, to } => {
            let flags = u32::from(may_move) | if to.is_some() { 3 } else { 0 };
            let to = address(to.unwrap_or(0));
            Outcome::At(space.remap(address(page), bytes(old), bytes(new), flags, to).await?.page().0)
        }
        Operation::Brk { to } => Outcome::At(space.brk(UserAddr(to)).await.0),
        Operation::Fork => Outcome::Child(space.fork().await?.id()),
        Operation::Read { page, word } => {
            let mut value = [0; 8];
            space.read(at(page, word), &mut value).await?;
            Outcome::Value(u64::from_le_bytes(value))
        }
        Operation::Write { page, word, value } => {
            space.write(at(page, word), &value.to_le_bytes()).await?;
            Outcome::Done
        }
        Operation::Exchange { page, word, old, new } => {
            Outcome::Exchanged(space.compare_exchange_u32(at(page, word), old, new).await?)
        }
    })
}

/// All orders of `count` things, for counts up to three; `chained`: those with 0 before 1.
fn orders(count: usize, chained: bool) -> Vec<Vec<usize>> {
    let all: &[&[usize]] = match count {
        1 => &[&[0]],
        2 => &[&[0, 1], &[1, 0]],
        _ => &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]],
    };
    let at = |order: &[usize], act: usize| order.iter().position(|one| *one == act);
    let fits = |order: &&&[usize]| !chained || at(order, 0) < at(order, 1);
    all.iter().filter(fits).map(|order| order.to_vec()).collect()
}

/// The outcome of one seed: operations and messages.
pub fn run_seed(seed: u64, kernels: usize, steps: usize, trace: bool) -> (u64, u64) {
    let mut program = Program::new(Shape::of(seed, kernels));
    program.trace = trace;
    program.run(steps);
    (program.operations, program.cluster.messages())
}
