//! rayon itself on the task runtime.

use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[test]
fn iterators_sorts_scopes_and_pools_answer_as_rayons_do() {
    let numbers: Vec<u64> = (0..100_000).collect();
    assert_eq!(numbers.par_iter().map(|number| number * 2).sum::<u64>(), 9_999_900_000);
    assert_eq!((0..1000).into_par_iter().filter(|number| number % 3 == 0).count(), 334);
    let mut mixed: Vec<u64> = numbers.iter().map(|number| number * 7919 % 100_003).collect();
    let mut sorted = mixed.clone();
    sorted.sort_unstable();
    mixed.par_sort_unstable();
    assert_eq!(mixed, sorted);
    let strings: Vec<String> = numbers.par_iter().map(u64::to_string).collect();
    assert_eq!(strings[99_999], "99999");
    let count = AtomicUsize::new(0);
    rayon::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|scope| scope.spawn(|_| _ = count.fetch_add(1, SeqCst)));
        }
    });
    rayon::in_place_scope(|scope| scope.spawn(|_| _ = count.fetch_add(1, SeqCst)));
    assert_eq!(count.into_inner(), 11);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| numbers.par_iter().max().copied()), Some(99_999));
    assert_eq!(pool.install(|| pool.current_thread_index()), Some(0));
    assert_eq!((rayon::current_thread_index(), pool.current_thread_index()), (None, None));
    assert_eq!(rayon::join(|| 1, || 2), (1, 2));
    assert!(rayon::ThreadPoolBuilder::new().use_current_thread().build().is_err());
}

#[test]
fn panics_come_back_and_spawned_work_is_done_before_the_pool_goes() {
    let panic = std::panic::catch_unwind(|| (0..100).into_par_iter().for_each(|number| assert_ne!(number, 50)));
    assert!(panic.is_err());
    let (send, receive) = std::sync::mpsc::channel();
    let pool = rayon::ThreadPoolBuilder::new().panic_handler(|_| ()).build().unwrap();
    for number in 0..10 {
        let send = send.clone();
        pool.spawn(move || {
            send.send(number).unwrap();
            assert_ne!(number, 5);
        });
    }
    drop((pool, send));
    assert_eq!(receive.iter().sum::<i32>(), 45);
}
