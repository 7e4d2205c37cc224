//! How many messages the common cases cost: the numbers the design promises.

use machine::{Access, KernelId, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    port::Weather,
};
use std::sync::Arc;
use vm::{MapRequest, Space};

const RW: Access = Access::READ.union(Access::WRITE);

fn cluster(kernels: usize) -> Cluster {
    let weather = Weather { room: 1000, longest: 1 << 20, delay: 0, scramble: false };
    Cluster::new(Shape { seed: 1, kernels, cpus: 1, frames: 20_000, scarce: false, weather })
}

/// A space with its home on kernel 0, and its replicas on all.
fn spread(cluster: &Cluster) -> Vec<Arc<Space>> {
    let id = cluster.kernels[0].vm.create().unwrap().id();
    cluster.kernels.iter().map(|kernel| kernel.vm.attach(id).unwrap()).collect()
}

fn map(cluster: &Cluster, space: &Arc<Space>, pages: usize) -> UserAddr {
    let space = space.clone();
    let request = MapRequest::anonymous((pages * PAGE_SIZE) as u64, RW);
    cluster.run(async move { space.map(request).await }).unwrap()
}

/// Writes a byte to each page, one after the other.
fn touch(cluster: &Cluster, space: &Arc<Space>, at: UserAddr, pages: usize) {
    let space = space.clone();
    let work = async move {
        for page in 0..pages {
            space.write(at.add(page * PAGE_SIZE), &[page as u8 | 1]).await.unwrap();
        }
    };
    cluster.run(work);
}

fn unmap(cluster: &Cluster, space: &Arc<Space>, at: UserAddr, pages: usize) {
    let space = space.clone();
    cluster.run(async move { space.unmap(at, (pages * PAGE_SIZE) as u64).await }).unwrap();
}

#[test]
fn memory_that_one_kernel_uses_costs_none_even_away_from_home() {
    let cluster = cluster(3);
    let spaces = spread(&cluster);
    // The first mapping gets kernel 2 its slice: one question, one answer.
    map(&cluster, &spaces[2], 1);
    assert_eq!(cluster.messages(), 2);
    for space in [&spaces[0], &spaces[2]] {
        let at = map(&cluster, space, 50);
        touch(&cluster, space, at, 50);
        unmap(&cluster, space, at, 50);
    }
    assert_eq!(cluster.messages(), 2);
}

#[test]
fn a_remote_fault_costs_two_and_brings_local_memory() {
    let cluster = cluster(2);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 1);
    let before = cluster.messages();
    touch(&cluster, &spaces[1], at, 1);
    assert_eq!(cluster.messages() - before, 2);
    let mapping = spaces[1].table().get(at.page()).unwrap();
    assert_eq!(cluster.kernels[1].memory.home_of(mapping.frame), Some(KernelId(1)));
    let owned = spaces[0].table().get(at.page()).unwrap();
    assert_eq!(owned.frame, mapping.frame);
}

/// Reads a byte of each page, one after the other; they are to be zero.
fn look(cluster: &Cluster, space: &Arc<Space>, at: UserAddr, pages: usize) {
    let space = space.clone();
    let work = async move {
        for page in 0..pages {
            let mut byte = [1];
            space.read(at.add(page * PAGE_SIZE), &mut byte).await.unwrap();
            assert_eq!(byte, [0]);
        }
    };
    cluster.run(work);
}

#[test]
fn memory_that_is_only_read_takes_no_frames_on_any_kernel() {
    let cluster = cluster(3);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 4097);
    touch(&cluster, &spaces[0], at, 1);
    let at = at.add(PAGE_SIZE);
    // What nobody has touched would be handed over.
    look(&cluster, &spaces[0], at.add(2048 * PAGE_SIZE), 1);
    for page in 0..128 {
        look(&cluster, &spaces[0], at.add(page * 32 * PAGE_SIZE), 1);
    }
    let (used, sent) = (cluster.world.used_count(), cluster.messages());
    look(&cluster, &spaces[1], at, 4096);
    assert!(cluster.messages() - sent <= 60, "{}", cluster.messages() - sent);
    assert_eq!(cluster.world.used_count(), used);
    assert!(spaces[0].owns_page(at.page()));
    sim::audit::check(&cluster);
    // Who writes gives them back by asking; only others must be asked for them.
    let there = at.add(1000 * PAGE_SIZE);
    let sent = cluster.messages();
    touch(&cluster, &spaces[1], there, 1);
    assert_eq!(cluster.messages() - sent, 2);
    let there = at.add(3000 * PAGE_SIZE);
    look(&cluster, &spaces[2], there, 16);
    let sent = cluster.messages();
    touch(&cluster, &spaces[1], there, 1);
    assert_eq!(cluster.messages() - sent, 2 + 2);
    // A few at once.
    sim::audit::check(&cluster);
    let sent = cluster.messages();
    touch(&cluster, &spaces[1], at, 512);
    assert!(cluster.messages() - sent <= 512 / 3, "{}", cluster.messages() - sent);
    let sent = cluster.messages();
    touch(&cluster, &spaces[0], at.add(512 * PAGE_SIZE), 512);
    assert!(cluster.messages() - sent <= 2 * 512 / 16 + 2, "{}", cluster.messages() - sent);
    sim::audit::check(&cluster);
    look(&cluster, &spaces[2], at.add(1024 * PAGE_SIZE), 16);
    unmap(&cluster, &spaces[2], at, 4096);
    sim::audit::check(&cluster);
}

#[test]
fn a_region_nobody_has_touched_is_handed_over_whole() {
    let cluster = cluster(3);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 4096);
    // Somewhere in the middle first: a question, the answer, and a confirmation.
    touch(&cluster, &spaces[2], at.add(1000 * PAGE_SIZE), 1);
    assert_eq!(cluster.messages(), 3);
    touch(&cluster, &spaces[2], at, 4096);
    assert_eq!(cluster.messages(), 3);
    assert!(spaces[2].owns_page(at.page()) && !spaces[0].owns_page(at.page()));
    // Others find it: the owner of the slice sends them on, once.
    touch(&cluster, &spaces[1], at, 1);
    assert_eq!(cluster.messages(), 3 + 2 + 2);
    sim::audit::check(&cluster);
    let before = cluster.messages();
    // The holder unmaps (one page is lent), and gives the range back before it answers.
    unmap(&cluster, &spaces[0], at, 4096);
    assert_eq!(cluster.messages() - before, 2 + 2 + 2);
    assert!(spaces[0].owns_page(at.page()) && !spaces[2].owns_page(at.page()));
    sim::audit::check(&cluster);
}

#[test]
fn a_stack_whose_top_the_creator_wrote_is_handed_over_below() {
    let cluster = cluster(2);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 2048);
    touch(&cluster, &spaces[0], at.add(2046 * PAGE_SIZE), 2);
    let space = spaces[1].clone();
    let (top, below) = (at.add(2047 * PAGE_SIZE), at);
    cluster.run(async move {
        space.write(top, &[1]).await.unwrap();
        for page in (0..2046).rev() {
            space.write(below.add(page * PAGE_SIZE), &[1]).await.unwrap();
        }
    });
    assert_eq!(cluster.messages(), 2 + 3);
    assert!(spaces[0].owns_page(at.add(2046 * PAGE_SIZE).page()));
}

#[test]
fn who_jumps_about_in_what_was_handed_over_is_sent_on_once() {
    let cluster = cluster(3);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 4096);
    touch(&cluster, &spaces[2], at, 1);
    let sent = cluster.messages();
    for page in [3000, 100, 4000, 2000] {
        touch(&cluster, &spaces[1], at.add(page * PAGE_SIZE), 1);
    }
    assert_eq!(cluster.messages() - sent, 2 + 4 * 2);
    // All of it goes back, and is mapped anew: who believes the old holder is sent back once.
    unmap(&cluster, &spaces[2], at, 4096);
    assert_eq!(map(&cluster, &spaces[0], 4096), at);
    touch(&cluster, &spaces[0], at, 4096);
    let sent = cluster.messages();
    for page in [3000, 100, 4000, 2000] {
        touch(&cluster, &spaces[1], at.add(page * PAGE_SIZE), 1);
    }
    assert_eq!(cluster.messages() - sent, 2 + 4 * 2);
}

#[test]
fn a_change_of_what_two_kernels_own_stops_no_others() {
    let cluster = cluster(6);
    let spaces = spread(&cluster);
    let mut stacks = Vec::new();
    for space in &spaces[1..] {
        let at = map(&cluster, &spaces[0], 2048);
        touch(&cluster, &spaces[0], at.add(2046 * PAGE_SIZE), 2);
        touch(&cluster, space, at, 1);
        assert!(space.owns_page(at.page()));
        stacks.push(at);
    }
    let sent = cluster.messages();
    unmap(&cluster, &spaces[0], stacks[2], 2048);
    // Its holder is frozen, changes it, gives it back, and is thawed.
    assert_eq!(cluster.messages() - sent, 3 * 2 + 1);
    sim::audit::check(&cluster);
}

#[test]
fn present_pages_come_in_growing_windows() {
    let cluster = cluster(2);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 4096);
    touch(&cluster, &spaces[0], at, 4096);
    touch(&cluster, &spaces[1], at, 4096);
    let messages = cluster.messages();
    assert!(messages <= 40, "4096 pages cost {messages} messages");
}

#[test]
fn pages_touched_at_random_are_soon_sent_one_by_one() {
    let cluster = cluster(2);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 8192);
    touch(&cluster, &spaces[0], at, 8192);
    let space = spaces[1].clone();
    cluster.run(async move {
        for n in 0..200 {
            space.write(at.add(n * 3163 % 8192 * PAGE_SIZE), &[1]).await.unwrap();
        }
    });
    let mut borrowed = 0;
    spaces[1].table().walk(machine::PageRange::user(), &mut |_, _| {
        borrowed += 1;
        machine::Step::Keep
    });
    assert!(borrowed < 800, "{borrowed} pages mapped for 200");
}

#[test]
fn munmap_asks_exactly_the_kernels_that_have_the_pages() {
    let cluster = cluster(6);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 8);
    // Who maps it touches it first, so it is not handed over.
    for space in &spaces[0..4] {
        touch(&cluster, space, at, 8);
    }
    let before = cluster.messages();
    unmap(&cluster, &spaces[0], at, 8);
    assert_eq!(cluster.messages() - before, 2 * 3);
}

/// Whoever has a page is asked before anybody's answer is waited for.
#[test]
fn munmap_waits_once_however_many_have_the_pages() {
    for holders in 1..=3 {
        let cluster = cluster(5);
        let spaces = spread(&cluster);
        let at = map(&cluster, &spaces[0], 1);
        for space in &spaces[0..=holders] {
            touch(&cluster, space, at, 1);
        }
        let before = cluster.messages();
        let is_answer = |packet: &[u8]| fabric::describe(packet).starts_with("revoke_pages Reply");
        cluster.network.hold(Box::new(move |_, _, packet| is_answer(packet)));
        let space = spaces[0].clone();
        let unmapped = cluster.start(async move { space.unmap(at, PAGE_SIZE as u64).await });
        cluster.settle();
        // All questions have been sent, and no answer has come.
        assert_eq!(cluster.messages() - before, holders as u64);
        assert!(unmapped.take().is_none());
        cluster.network.release();
        cluster.settle();
        assert_eq!(unmapped.take(), Some(Ok(())));
    }
}

#[test]
fn munmap_of_a_range_handed_over_costs_the_giving_back_too() {
    let cluster = cluster(6);
    let spaces = spread(&cluster);
    let at = map(&cluster, &spaces[0], 8);
    for space in &spaces[1..4] {
        touch(&cluster, space, at, 8);
    }
    let before = cluster.messages();
    unmap(&cluster, &spaces[0], at, 8);
    // The holder is asked, asks the two others, and gives the range back.
    assert_eq!(cluster.messages() - before, 2 * 3 + 2);
}

#[test]
fn two_kernels_that_map_at_once_never_overlap() {
    let cluster = cluster(4);
    let spaces = spread(&cluster);
    let request = || MapRequest::anonymous(3 * PAGE_SIZE as u64, RW);
    let maps: Vec<_> = spaces
        .iter()
        .cycle()
        .take(40)
        .cloned()
        .map(|space| cluster.start(async move { space.map(request()).await.unwrap() }))
        .collect();
    cluster.settle();
    let mut starts: Vec<u64> = maps.iter().map(|map| map.take().unwrap().0).collect();
    starts.sort();
    assert!(starts.windows(2).all(|pair| pair[0] + 3 * PAGE_SIZE as u64 <= pair[1]), "{starts:x?}");
}
