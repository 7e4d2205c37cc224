//! What two programs on two kernels cost that talk.

use crate::{born, go_to, results, shape};
use sim::{
    nodes::{
        machine::Nodes,
        user::{call, Arg, Command},
    },
    shape::Shape,
};

const ROUNDS: u64 = 50;

/// Two programs, each on a kernel of its own, send each other so many bytes and back. The first has made what they talk through, so the other asks for each write
/// and each read, and nobody else asks anything: also if the memory that it reads into was never used before and lies on two pages.
fn a_round_trip_is_four_messages(opened: impl Fn() -> Vec<Command>, [reads, writes]: [[u64; 2]; 2]) {
    for (seed, bytes, amid) in
        [1, 2048, 4096].into_iter().flat_map(|bytes| [(1, bytes, 0), (2, bytes, 32), (3, bytes, 4090)])
    {
        let nodes = Nodes::new(Shape { frames: 1 << 13, ..shape(seed, 2).calm() });
        let main = nodes.boot(0);
        nodes.user.events();
        assert!(results(&nodes, main, opened()).into_iter().all(|opened| opened == 0));
        let map = Command::plain(call::MMAP, &[0, 0x4000, 3, 0x22, u64::MAX, 0]);
        let [at] = results(&nodes, main, vec![map])[..] else { panic!("there is room") };
        let (input, output) = (at as u64 + amid, at as u64 + 0x2000 + amid);
        let child = born(&nodes, main, Command::plain(call::FORK, &[]));
        for (kernel, thread) in [main, child].into_iter().enumerate() {
            let cpu = nodes.nodes[kernel].cpu.cpus[0].0 as usize;
            assert_eq!(results(&nodes, thread, vec![go_to(cpu)]), [0]);
        }
        let read = |from| Command::plain(call::READ, &[from, output, bytes]);
        let write = |to| Command::plain(call::WRITE, &[to, input, bytes]);
        let talk = |rounds| {
            nodes.user.tell_all(main, (0..rounds).flat_map(|_| [write(writes[0]), read(reads[0])]));
            results(&nodes, child, (0..rounds).flat_map(|_| [read(reads[1]), write(writes[1])]).collect())
        };
        talk(2);
        let before = nodes.messages();
        assert_eq!(talk(ROUNDS), vec![bytes as i64; 2 * ROUNDS as usize]);
        assert_eq!(nodes.messages() - before, 4 * ROUNDS, "{bytes} bytes, {amid} bytes after the beginning of a page");
        nodes.end_all();
    }
}

fn pipe() -> Command {
    Command::new(call::PIPE2, &[Arg::Output, Arg::Value(0)]).output(8)
}

#[test]
fn a_round_trip_through_pipes_is_four_messages() {
    a_round_trip_is_four_messages(|| vec![pipe(), pipe()], [[2, 0], [1, 3]]);
}

#[test]
fn a_round_trip_through_a_pair_of_sockets_is_four_messages() {
    let stream = [Arg::Value(1), Arg::Value(1), Arg::Value(0), Arg::Output];
    a_round_trip_is_four_messages(move || vec![Command::new(call::SOCKETPAIR, &stream).output(8)], [[0, 1], [0, 1]]);
}
