//! Kernels that really sleep when they have nothing to do, and are woken by interrupts alone. A lost
//! wake-up hangs this test. (doorbell.rs explains why there is none; loom.rs checks the core of it.)

mod common;

use common::{Executor, Handle, Kernel};
use fabric::{local, Endpoint};
use machine::KernelId;
use messages::control::{Ping, Stop};
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Condvar, Mutex,
    },
    thread,
};

/// The interrupt line of a kernel: pending until taken.
#[derive(Default)]
struct Line {
    pending: Mutex<bool>,
    raised: Condvar,
}

impl Line {
    fn raise(&self) {
        *self.pending.lock().unwrap() = true;
        self.raised.notify_all();
    }

    /// `sti; hlt`.
    fn halt(&self) {
        let pending = self.pending.lock().unwrap();
        *self.raised.wait_while(pending, |pending| !*pending).unwrap() = false;
    }
}

/// The idle loop as the kernel has it.
fn idle_until(kernel: &Kernel, line: &Line, over: &AtomicBool) -> u64 {
    let mut halts = 0;
    kernel.endpoint.start_polling();
    while !over.load(Ordering::SeqCst) {
        if kernel.step() || kernel.endpoint.has_backlog() {
            continue;
        }
        if kernel.endpoint.stop_polling() {
            halts += 1;
            line.halt();
            kernel.endpoint.start_polling();
        }
    }
    halts
}

#[test]
fn sleeping_kernels_miss_nothing() {
    const COUNT: usize = 3;
    const CALLS: u64 = 2_000;
    let lines: Arc<Vec<Line>> = Arc::new((0..COUNT).map(|_| Line::default()).collect());
    let ringing = lines.clone();
    let ports = local::ports(COUNT, 4, move |kernel: KernelId| ringing[kernel.index()].raise());
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let machine: Vec<Kernel> = ports
        .into_iter()
        .enumerate()
        .map(|(id, port)| {
            let executor = Arc::new(Executor::default());
            let spawner = Arc::new(Handle(executor.clone()));
            let endpoint = Endpoint::new(KernelId(id as u16), COUNT, Box::new(port), spawner);
            (0..COUNT).for_each(|other| endpoint.add_peer(KernelId(other as u16)));
            endpoint.on::<Ping, _, _>(|_, ping| async move { ping.payload });
            let over = over.clone();
            endpoint.on_sync::<Stop, _>(move |_, _| over.store(true, Ordering::SeqCst));
            Kernel { endpoint, executor }
        })
        .collect();
    for kernel in &machine {
        let (task, done, lines) = (kernel.clone(), done.clone(), lines.clone());
        kernel.spawn(async move {
            let endpoint = &task.endpoint;
            for index in 0..CALLS {
                let to = KernelId(((endpoint.me().0 as u64 + 1 + index % 2) % COUNT as u64) as u16);
                assert_eq!(endpoint.call(to, Ping { payload: vec![1; 40] }).await, Ok(vec![1; 40]));
            }
            // The last one ends the machine; each kernel hears of it by an interrupt as well.
            if done.fetch_add(1, Ordering::SeqCst) + 1 == COUNT as u64 {
                for kernel in endpoint.others().iter() {
                    endpoint.send(kernel, Stop { status: 0 }).unwrap();
                }
                endpoint.send(endpoint.me(), Stop { status: 0 }).unwrap();
                lines.iter().for_each(Line::raise);
            }
        });
    }
    let halts: u64 = thread::scope(|scope| {
        let idle = |id: usize| {
            let (kernel, lines, over) = (machine[id].clone(), lines.clone(), over.clone());
            scope.spawn(move || idle_until(&kernel, &lines[id], &over))
        };
        let threads: Vec<_> = (0..COUNT).map(idle).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(halts > 0, "nobody ever slept, so nothing was tested");
    let rung: u64 = machine.iter().map(|kernel| kernel.endpoint.stats().doorbells_rung).sum();
    assert!(rung > 0);
}

#[test]
fn a_kernel_that_is_polling_is_not_interrupted_and_may_not_halt_on_a_message() {
    let interrupts = Arc::new(AtomicU64::new(0));
    let count = interrupts.clone();
    let ports = local::ports(2, 8, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let endpoints: Vec<_> = ports
        .into_iter()
        .enumerate()
        .map(|(id, port)| {
            let spawner = Arc::new(Handle(Arc::default()));
            let endpoint = Endpoint::new(KernelId(id as u16), 2, Box::new(port), spawner);
            (0..2).for_each(|other| endpoint.add_peer(KernelId(other)));
            endpoint.on_sync::<Stop, _>(|_, _| ());
            endpoint
        })
        .collect();
    let send = || endpoints[0].send(KernelId(1), Stop { status: 0 }).unwrap();

    endpoints[1].start_polling();
    send();
    assert_eq!(interrupts.load(Ordering::SeqCst), 0);
    assert!(!endpoints[1].stop_polling(), "a message is there");
    assert_eq!(endpoints[1].drain(10), 1);
    assert!(endpoints[1].stop_polling());

    send();
    send();
    assert_eq!(interrupts.load(Ordering::SeqCst), 1, "one interrupt for both");
    let stats = endpoints[0].stats();
    assert_eq!((stats.doorbells_rung, stats.doorbells_suppressed), (1, 2));
}
