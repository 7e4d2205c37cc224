//! Record locks that another kernel keeps.

use super::{
    names::{random, world, World},
    *,
};
use crate::{Caller, SetAttributes};
use abi::{LockMode, LockOp, LockRange};
use machine::Pid;

fn lock(mode: LockMode, start: u64, end: u64, wait: bool) -> LockOp {
    LockOp::Set { range: LockRange { start, end }, mode, wait, description: false }
}

const FLAGS: OpenFlags = OpenFlags::RDWR;

fn lockable(kernels: usize) -> World {
    let world = world(kernels);
    world.put("/f", b"hello");
    world
}

impl World {
    fn set(&self, who: u32, file: &Arc<dyn File>, mode: LockMode, start: u64, end: u64) -> Result<()> {
        self.machine.run(file.lock(&caller(who), lock(mode, start, end, false))).map(drop)
    }
}

#[test]
fn locks_of_a_file_that_one_kernel_uses_cost_no_message() {
    let world = lockable(2);
    let file = world.open(1, "/f", FLAGS).unwrap();
    let transaction = || {
        world.set(1, &file, LockMode::Shared, 0, 10).unwrap();
        world.set(1, &file, LockMode::Exclusive, 0, 10).unwrap();
        assert_eq!(world.set(2, &file, LockMode::Shared, 0, 10), Err(Errno::EAGAIN));
        world.set(1, &file, LockMode::Unlock, 0, 10).unwrap();
    };
    transaction();
    assert_eq!(world.messages(transaction), 0);
    // A second description of the same file, and the locks go with a close of it.
    world.set(1, &file, LockMode::Exclusive, 0, 10).unwrap();
    let second = world.open(1, "/f", FLAGS).unwrap();
    assert_eq!(world.set(2, &second, LockMode::Exclusive, 5, 6), Err(Errno::EAGAIN));
    world.close(second);
    // Of the owner: it fetches them.
    let own = world.open(0, "/f", FLAGS).unwrap();
    world.set(3, &own, LockMode::Exclusive, 0, 10).unwrap();
    assert_eq!(world.set(1, &file, LockMode::Shared, 9, 20), Err(Errno::EAGAIN));
    let test = LockOp::Get { range: LockRange { start: 0, end: 1 }, mode: LockMode::Shared, description: false };
    let found = world.machine.run(file.lock(&caller(1), test)).unwrap().unwrap();
    assert_eq!(found.process, Some(Pid(3)));
    world.set(3, &own, LockMode::Unlock, 0, 10).unwrap();
    world.close(own);
    world.set(1, &file, LockMode::Shared, 9, 20).unwrap();
    // Who waits does so at the owner, and gets it when it is free.
    world.set(1, &file, LockMode::Exclusive, 0, 20).unwrap();
    let who = caller(2);
    let mut waiting = file.lock(&who, lock(LockMode::Exclusive, 0, 1, true));
    assert!(world.machine.poll(&mut waiting).is_none());
    world.set(1, &file, LockMode::Unlock, 0, 20).unwrap();
    assert_eq!(world.machine.poll(&mut waiting), Some(Ok(None)));
}

#[test]
fn many_files_with_locks_are_kept_in_turn() {
    let world = world(2);
    let names: Vec<_> = (0..150).map(|number| format!("/{number}")).collect();
    let mut files = Vec::new();
    for name in &names {
        world.put(name, b"x");
        let file = world.open(1, name, FLAGS).unwrap();
        (0..9).for_each(|_| world.set(1, &file, LockMode::Exclusive, 0, 5).unwrap());
        files.push(file);
    }
    world.machine.settle();
    for (name, file) in names.iter().zip(&files) {
        let own = world.open(0, name, FLAGS).unwrap();
        assert_eq!(world.set(2, &own, LockMode::Shared, 4, 5), Err(Errno::EAGAIN), "{name}");
        world.set(1, file, LockMode::Unlock, 0, 5).unwrap();
        world.set(2, &own, LockMode::Shared, 4, 5).unwrap();
        world.close(own);
    }
}

/// What sqlite does to make a change last, without the reading of a program that waits for it.
fn commit(world: &World, data: &Arc<dyn File>) {
    let machine = &world.machine;
    let lock = |mode, start, end| world.set(1, data, mode, start, end).unwrap();
    let write = |file: &Arc<dyn File>, at, bytes: usize| {
        assert_eq!(machine.run(file.write_at(&vec![7; bytes], at)), Ok(bytes));
    };
    lock(LockMode::Shared, 1000, 1001);
    lock(LockMode::Shared, 1002, 1512);
    lock(LockMode::Unlock, 1000, 1001);
    assert!(world.stat(1, "/f-journal").is_err());
    machine.run(data.read_at(&mut [0; 16], 24)).unwrap();
    assert!(world.stat(1, "/f-wal").is_err());
    machine.run(data.attributes()).unwrap();
    lock(LockMode::Exclusive, 1001, 1002);
    world.stat(1, "/f").unwrap();
    world.stat(1, "/f").unwrap();
    let journal = world.open(1, "/f-journal", FLAGS | OpenFlags::CREAT).unwrap();
    machine.run(journal.attributes()).unwrap();
    let owner = SetAttributes { uid: Some(0), gid: Some(0), ..SetAttributes::default() };
    machine.run(journal.set_attributes(&caller(1), owner)).unwrap();
    for (at, bytes) in [(0, 512), (512, 4), (516, 4096), (4612, 4)] {
        write(&journal, at, bytes);
    }
    lock(LockMode::Exclusive, 1000, 1001);
    lock(LockMode::Exclusive, 1002, 1512);
    for (at, bytes) in [(4616, 4), (4620, 4096), (8716, 4)] {
        write(&journal, at, bytes);
    }
    machine.run(journal.read_at(&mut [0; 8], 9216)).unwrap();
    machine.run(journal.sync(true)).unwrap();
    let directory = world.open(1, "/", OpenFlags::DIRECTORY).unwrap();
    machine.run(directory.sync(true)).unwrap();
    machine.run(crate::file::close_descriptor(directory, &caller(1)));
    write(&journal, 0, 12);
    machine.run(journal.sync(true)).unwrap();
    write(data, 0, 4096);
    write(data, 4096, 4096);
    machine.run(data.sync(true)).unwrap();
    machine.run(crate::file::close_descriptor(journal, &caller(1)));
    world.root(1, PathOp::Unlink { path: "/f-journal".into(), directory: false }).unwrap();
    lock(LockMode::Shared, 1002, 1512);
    lock(LockMode::Unlock, 1000, 1002);
    lock(LockMode::Unlock, 0, 10000);
}

#[test]
fn a_commit_of_a_database_costs_at_most_a_message_for_each_call() {
    let world = lockable(2);
    let data = world.open(1, "/f", FLAGS).unwrap();
    (0..3).for_each(|_| commit(&world, &data));
    // 35 calls. Questions and answers to recalls are counted.
    let messages = world.messages(|| commit(&world, &data));
    assert!(messages <= 27, "{messages}");
}

#[test]
fn locks_of_other_kernels_are_not_lost_with_the_one_that_takes_some_more() {
    let world = lockable(3);
    let files: Vec<_> = (0..3).map(|kernel| world.open(kernel, "/f", FLAGS).unwrap()).collect();
    world.set(1, &files[1], LockMode::Shared, 0, 1).unwrap();
    (0..9).for_each(|_| world.set(2, &files[2], LockMode::Exclusive, 2, 3).unwrap());
    world.machine.dies(2, &[0, 1]);
    world.machine.is_mourned(2, &[0, 1]);
    world.machine.run(world.services.end_locks(&|process| process.0 == 2));
    assert_eq!(world.set(3, &files[0], LockMode::Exclusive, 0, 5), Err(Errno::EAGAIN), "kernel 1 has it");
    world.set(3, &files[0], LockMode::Exclusive, 1, 5).unwrap();
}

/// Kernel 1 keeps the locks of a process that drops its replica there (execve on another kernel), and dies later.
#[test]
fn locks_of_a_process_that_has_left_do_not_end_with_the_kernel_that_kept_them() {
    // By itself; with a fetch under way; when they go back because there are too many.
    for how in 0..3 {
        let world = world(3);
        let names: Vec<_> = (0..100).map(|number| format!("/{number}")).collect();
        let mut files = Vec::new();
        for name in names.iter().take(if how == 2 { 100 } else { 5 }) {
            world.put(name, b"x");
            let file = world.open(1, name, FLAGS).unwrap();
            (0..3).for_each(|_| world.set(1, &file, LockMode::Exclusive, 0, 5).unwrap());
            files.push((world.open(0, name, FLAGS).unwrap(), file));
        }
        let who = caller(2);
        let mut asks = files[0].0.lock(&who, lock(LockMode::Shared, 0, 1, false));
        if how == 1 {
            assert!(once(asks.as_mut()).is_none());
            world.machine.run_tasks();
            world.machine.kernels[1].endpoint.drain(1000);
        }
        world.machine.run(world.machine.kernels[1].give_back_locks(Pid(1)));
        drop(asks);
        world.machine.dies(1, &[0, 2]);
        world.machine.is_mourned(1, &[0, 2]);
        for (number, (own, _)) in files.iter().enumerate() {
            assert_eq!(world.set(2, own, LockMode::Shared, 4, 5), Err(Errno::EAGAIN), "{how}: {number}");
        }
    }
}

struct Woken(core::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// The kernel has answered that the locks come, and dies before it has sent them: who ends is woken, for all wait for him.
#[test]
fn a_process_ends_though_the_kernel_that_keeps_its_locks_died_on_the_way() {
    let world = lockable(2);
    let machine = &world.machine;
    let file = world.open(1, "/f", FLAGS).unwrap();
    (0..3).for_each(|_| world.set(1, &file, LockMode::Exclusive, 0, 5).unwrap());
    machine.settle();
    let (own, who) = (world.open(0, "/f", FLAGS).unwrap(), caller(1));
    let woken = Arc::new(Woken(false.into()));
    let waker = woken.clone().into();
    let mut context = core::task::Context::from_waker(&waker);
    let mut closing = own.closed(&who);
    assert!(closing.as_mut().poll(&mut context).is_pending());
    machine.run_tasks();
    machine.kernels[1].endpoint.drain(1000);
    // What sends the locks has not run, and never will.
    let sends = machine.tasks.0.lock().unwrap().pop();
    machine.kernels[0].endpoint.drain(1000);
    machine.run_tasks();
    assert!(closing.as_mut().poll(&mut context).is_pending());
    woken.0.store(false, SeqCst);
    machine.dies(1, &[0]);
    assert!(woken.0.load(SeqCst));
    assert!(closing.as_mut().poll(&mut context).is_ready());
    drop(sends);
}

#[test]
fn locks_that_are_kept_always_fit_into_a_message() {
    let world = lockable(2);
    let file = world.open(1, "/f", FLAGS).unwrap();
    (0..3).for_each(|_| world.set(1, &file, LockMode::Exclusive, 0, 1 << 40).unwrap());
    let sent = || world.machine.kernels[1].endpoint.stats().messages_sent();
    let holes = |first: u64, last: u64| {
        let before = sent();
        (first..last).for_each(|hole| world.set(1, &file, LockMode::Unlock, 2 * hole + 1, 2 * hole + 2).unwrap());
        sent() - before
    };
    assert_eq!(holes(0, 50), 0);
    assert!(holes(50, 200) >= 100, "the owner keeps so many");
    let own = world.open(0, "/f", FLAGS).unwrap();
    for byte in 0..400 {
        let answer = if byte % 2 == 1 { Ok(()) } else { Err(Errno::EAGAIN) };
        assert_eq!(world.set(2, &own, LockMode::Shared, byte, byte + 1), answer, "{byte}");
    }
}

const CLIENTS: usize = 6;
const BYTES: usize = 4;

/// What a client may hold of each byte at some moment: from the beginning of the call that takes it to the end of the one that gives it up.
type Held = [Option<LockMode>; BYTES];

struct Call {
    mode: LockMode,
    range: (usize, usize),
    wait: bool,
    /// Somebody may have been in the way at some time.
    excused: bool,
    work: BoxFuture<'static, Result<Option<abi::LockConflict>>>,
}

fn conflicts(held: &Held, mode: LockMode, (start, end): (usize, usize)) -> bool {
    let in_the_way = |held: &Option<LockMode>| match held {
        Some(LockMode::Exclusive) => true,
        Some(_) => mode == LockMode::Exclusive,
        None => false,
    };
    mode != LockMode::Unlock && held[start..end].iter().any(in_the_way)
}

/// Two processes on each of three kernels lock bytes of a file, wait for them, close and open the file, in any order of steps. Nobody
/// has what another one has, nobody is refused what nobody has, and at the end everybody gets all.
fn interleave(seed: u64, dies: bool) {
    let world = lockable(3);
    let machine = &world.machine;
    let mut rng = seed * 0x9e37_79b9 + 1;
    let who: Vec<Arc<Caller>> = (0..CLIENTS).map(|client| Arc::new(caller(100 + client as u32))).collect();
    let open = |client: usize| world.open(client % 3, "/f", FLAGS).unwrap();
    let mut files: Vec<Option<Arc<dyn File>>> = (0..CLIENTS).map(|client| Some(open(client))).collect();
    let (mut certain, mut possible) = ([[None; BYTES]; CLIENTS], [[None; BYTES]; CLIENTS]);
    let mut calls: Vec<Option<Call>> = (0..CLIENTS).map(|_| None).collect();
    let (mut locked, mut kernels) = (0, 3);
    // One kernel uses the file alone for a while, then all do.
    let mut alone = None;
    for step in 0..3000 {
        if step % 300 == 0 {
            alone = (random(&mut rng, 3) > 0).then(|| random(&mut rng, 3) as usize);
        }
        if dies && step == 1500 {
            kernels = 2;
            for client in [2, 5] {
                (calls[client], files[client]) = (None, None);
                (certain[client], possible[client]) = ([None; BYTES], [None; BYTES]);
            }
            machine.dies(2, &[0, 1]);
            machine.is_mourned(2, &[0, 1]);
            machine.run(world.services.end_locks(&|process| [102, 105].contains(&process.0)));
        }
        match random(&mut rng, 8) {
            0..=4 => {
                let client = random(&mut rng, CLIENTS as u64) as usize;
                let Some(file) = files[client].clone() else { continue };
                let Some(call) = &mut calls[client] else {
                    if alone.is_some_and(|kernel| kernel != client % 3) {
                        continue;
                    }
                    let mode = [LockMode::Shared, LockMode::Exclusive, LockMode::Unlock][random(&mut rng, 3) as usize];
                    let start = random(&mut rng, BYTES as u64) as usize;
                    let end = start + 1 + random(&mut rng, (BYTES - start) as u64) as usize;
                    let (wait, who) = (random(&mut rng, 3) == 0, who[client].clone());
                    let op = lock(mode, start as u64, end as u64, wait);
                    let others = |of: &[Held; CLIENTS]| {
                        (0..CLIENTS).any(|other| other != client && conflicts(&of[other], mode, (start, end)))
                    };
                    let excused = others(&possible);
                    for (byte, certain) in certain[client].iter_mut().enumerate().take(end).skip(start) {
                        // While it is converted or given up it is not known what is held.
                        *certain = None;
                        let may = &mut possible[client][byte];
                        *may = match (mode, *may) {
                            (LockMode::Unlock, may) => may,
                            (LockMode::Exclusive, _) | (_, Some(LockMode::Exclusive)) => Some(LockMode::Exclusive),
                            _ => Some(LockMode::Shared),
                        };
                    }
                    let work: BoxFuture<'static, _> = Box::pin(async move { file.lock(&who, op).await });
                    calls[client] = Some(Call { mode, range: (start, end), wait, excused, work });
                    let mine = possible[client];
                    for (other, call) in calls.iter_mut().enumerate() {
                        if let (true, Some(call)) = (other != client, call) {
                            call.excused |= conflicts(&mine, call.mode, call.range);
                        }
                    }
                    continue;
                };
                let Some(answer) = once(call.work.as_mut()) else { continue };
                let call = calls[client].take().unwrap();
                let (start, end) = call.range;
                match answer {
                    Ok(_) => {
                        let now = (call.mode != LockMode::Unlock).then_some(call.mode);
                        certain[client][start..end].fill(now);
                        possible[client][start..end].fill(now);
                        let with = |other: &Held| conflicts(other, call.mode, call.range);
                        let other = (0..CLIENTS).find(|other| *other != client && with(&certain[*other]));
                        assert_eq!(other, None, "and {client} have the same at {step}, seed {seed}");
                        locked += 1;
                    }
                    // What it had it has; it is not worth knowing which part was converted.
                    Err(Errno::EAGAIN) => assert!(call.excused && !call.wait, "{client} at {step}, seed {seed}"),
                    Err(Errno::EDEADLK) => assert!(call.wait, "{client}, seed {seed}"),
                    Err(error) => panic!("{error:?}, seed {seed}"),
                }
                if random(&mut rng, 8) == 0 {
                    let file = files[client].take().unwrap();
                    possible[client] = [None; BYTES];
                    certain[client] = [None; BYTES];
                    drop(call.work);
                    machine.run(crate::file::close_descriptor(file, &who[client]));
                    files[client] = Some(open(client));
                }
            }
            5..=6 => {
                let kernel = random(&mut rng, kernels) as usize;
                machine.kernels[kernel].endpoint.drain(1);
            }
            _ => {
                let task = {
                    let mut tasks = machine.tasks.0.lock().unwrap();
                    let index = random(&mut rng, tasks.len().max(1) as u64) as usize;
                    (!tasks.is_empty()).then(|| tasks.swap_remove(index))
                };
                if let Some(mut task) = task
                    && once(task.as_mut()).is_none()
                {
                    machine.tasks.0.lock().unwrap().push(task);
                }
            }
        }
    }
    assert!(locked > 10, "nothing happened under seed {seed}");
    calls.clear();
    machine.settle();
    for (client, file) in files.iter().enumerate() {
        if let Some(file) = file {
            world.set(100 + client as u32, file, LockMode::Unlock, 0, BYTES as u64).unwrap();
        }
    }
    for (client, file) in files.iter().enumerate() {
        if let Some(file) = file {
            let done = world.set(100 + client as u32, file, LockMode::Exclusive, 0, BYTES as u64);
            assert_eq!(done, Ok(()), "{client}, seed {seed}");
            world.set(100 + client as u32, file, LockMode::Unlock, 0, BYTES as u64).unwrap();
        }
    }
}

#[test]
fn nobody_has_what_another_one_has_locked_in_any_order() {
    (1..150).for_each(|seed| interleave(seed, false));
}

#[test]
fn locks_of_a_kernel_that_dies_end_with_it() {
    (1..100).for_each(|seed| interleave(seed, true));
}
