//! What many bytes for another kernel cost in messages: nothing, they go in lent frames. By system calls, whole.

use crate::{go_to, shape};
use sim::{
    life::model::Id,
    nodes::{
        machine::Nodes,
        user::{call, Command, Event},
    },
};

const MSGGET: u64 = 68;
const MSGSND: u64 = 69;
const MSGRCV: u64 = 70;
const PROCESS_VM_READV: u64 = 310;
const PROCESS_VM_WRITEV: u64 = 311;

/// Where the thread's memory is: what it owns where it began, and where it is now.
const THERE: u64 = 0x5000_0000;
const HERE: u64 = 0x5010_0000;
const SIZE: usize = 16384;

/// A machine of two kernels, and a thread whose process, memory, queue and pipes are on the first.
struct Setup {
    nodes: Nodes,
    thread: Id,
}

impl Setup {
    fn new() -> Self {
        let nodes = Nodes::new(shape(1, 2));
        let thread = nodes.boot(0);
        Setup { nodes, thread }
    }

    /// What each of the commands gives, and how many bytes of messages all of them cost.
    fn run(&self, commands: impl IntoIterator<Item = Command>) -> (Vec<(i64, Vec<u8>)>, u64) {
        let bytes =
            || -> u64 { self.nodes.nodes.iter().map(|node| node.node.system.endpoint.stats().bytes_sent).sum() };
        self.nodes.user.events();
        let before = bytes();
        self.nodes.user.tell_all(self.thread, commands);
        self.nodes.settle();
        let returned = |event| match event {
            Event::Returned { result, output, .. } => Some((result, output)),
            _ => None,
        };
        let results = self.nodes.user.events().into_iter().filter_map(returned).collect();
        (results, bytes() - before)
    }

    fn results(&self, commands: impl IntoIterator<Item = Command>) -> Vec<i64> {
        self.run(commands).0.into_iter().map(|(result, _)| result).collect()
    }

    fn go_to(&self, kernel: usize) {
        let cpu = self.nodes.nodes[kernel].cpu.cpus[0].0 as usize;
        assert_eq!(self.results([go_to(cpu)]), [0]);
    }

    /// Memory at `at`, of the kernel where the thread is.
    fn map(&self, at: u64, content: Vec<u8>) {
        const RW: u64 = 3;
        const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
        let map = Command::plain(call::MMAP, &[at, content.len() as u64, RW, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0]);
        assert_eq!(self.results([map, fill(at, content)])[0], at as i64);
    }
}

fn fill(at: u64, content: Vec<u8>) -> Command {
    Command::plain(call::GETPID, &[]).at(at).input(content)
}

fn show(at: u64, bytes: usize) -> Command {
    Command::plain(call::GETPID, &[]).at(at).output(bytes)
}

fn pattern(first: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| first.wrapping_add((index % 251) as u8)).collect()
}

fn pipe_at(at: u64) -> Command {
    Command::plain(call::PIPE2, &[at, 0]).at(at).output(8)
}

fn numbers(ends: &[u8]) -> [u64; 2] {
    let number = |at: usize| u64::from(u32::from_le_bytes(ends[at..at + 4].try_into().unwrap()));
    [number(0), number(4)]
}

#[test]
fn another_kernels_memory_is_not_in_messages() {
    let setup = Setup::new();
    setup.map(THERE, pattern(1, SIZE));
    setup.go_to(1);
    setup.map(HERE, vec![0; 2 * SIZE]);
    let vectors = [HERE, SIZE as u64, THERE, SIZE as u64].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let at = HERE + SIZE as u64;
    let transfer = |call, pid: i64| Command::plain(call, &[pid as u64, at, 1, at + 16, 1, 0]);
    let pid = setup.results([fill(at, vectors)])[0];
    let (results, bytes) = setup.run([transfer(PROCESS_VM_READV, pid)]);
    assert_eq!(results[0].0, SIZE as i64);
    assert!((20..1000).contains(&bytes), "{bytes} bytes of messages");
    assert_eq!(setup.run([show(HERE, SIZE)]).0[0].1, pattern(1, SIZE));
    setup.results([fill(HERE, pattern(2, SIZE))]);
    let (results, bytes) = setup.run([transfer(PROCESS_VM_WRITEV, pid)]);
    assert_eq!(results[0].0, SIZE as i64);
    assert!((20..1000).contains(&bytes), "{bytes} bytes of messages");
    setup.go_to(0);
    assert_eq!(setup.run([show(THERE, SIZE)]).0[0].1, pattern(2, SIZE));
    setup.nodes.end_all();
}

#[test]
fn what_goes_through_another_kernels_queue_is_not_in_messages() {
    const LONG: usize = 8000;
    let setup = Setup::new();
    let queue = setup.results([Command::plain(MSGGET, &[0, 0o600])])[0];
    setup.go_to(1);
    let message: Vec<u8> = 5i64.to_le_bytes().into_iter().chain(pattern(3, LONG)).collect();
    setup.map(HERE, message.clone());
    let send = Command::plain(MSGSND, &[queue as u64, HERE, LONG as u64, 0]);
    let (results, bytes) = setup.run([send]);
    assert_eq!(results[0].0, 0);
    assert!((20..1000).contains(&bytes), "{bytes} bytes of messages");
    setup.results([fill(HERE, vec![0; message.len()])]);
    let receive = Command::plain(MSGRCV, &[queue as u64, HERE, LONG as u64, 0, 0]);
    let (results, bytes) = setup.run([receive]);
    assert_eq!(results[0].0, LONG as i64);
    assert!((20..1000).contains(&bytes), "{bytes} bytes of messages");
    assert_eq!(setup.run([show(HERE, message.len())]).0[0].1, message);
    setup.nodes.end_all();
}

#[test]
fn what_is_spliced_between_another_kernels_pipes_is_not_in_messages() {
    let setup = Setup::new();
    setup.map(THERE, pattern(4, SIZE));
    let (made, _) = setup.run([pipe_at(THERE), pipe_at(THERE), fill(THERE, pattern(4, SIZE))]);
    let [from, to] = [numbers(&made[0].1), numbers(&made[1].1)];
    let write = Command::plain(call::WRITE, &[from[1], THERE, SIZE as u64]);
    assert_eq!(setup.results([write]), [SIZE as i64]);
    setup.go_to(1);
    setup.map(HERE, vec![0; SIZE]);
    // They look the descriptors up.
    let (double, splice) = (
        Command::plain(call::TEE, &[from[0], to[1], SIZE as u64, 0]),
        Command::plain(call::SPLICE, &[from[0], 0, to[1], 0, 8000, 0]),
    );
    let (results, bytes) = setup.run([double, splice]);
    assert_eq!([results[0].0, results[1].0], [SIZE as i64, 8000]);
    assert!((100..2500).contains(&bytes), "{bytes} bytes of messages");
    let read = |fd: u64, bytes: u64| Command::plain(call::READ, &[fd, HERE, bytes]).at(HERE).output(SIZE);
    let (results, _) = setup.run([read(to[0], SIZE as u64), read(to[0], SIZE as u64), read(from[0], SIZE as u64)]);
    assert_eq!(results[0], (SIZE as i64, pattern(4, SIZE)));
    assert_eq!((results[1].0, &results[1].1[..8000]), (8000, &pattern(4, SIZE)[..8000]));
    assert_eq!((results[2].0, &results[2].1[..SIZE - 8000]), (SIZE as i64 - 8000, &pattern(4, SIZE)[8000..]));
    setup.nodes.end_all();
}
