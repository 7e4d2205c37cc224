//! What a call costs in instructions, without the transfer between caches: one thread plays both kernels.

use criterion::{criterion_group, criterion_main, Criterion};
use fabric::{local, Endpoint};
use machine::{BoxFuture, KernelId, Spawner};
use messages::control::{KernelDied, Ping};
use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// No handler here waits.
struct NoTasks;

impl Spawner for NoTasks {
    fn spawn(&self, _: BoxFuture<'static, ()>) {
        unreachable!("no handler waits");
    }
}

fn kernels(count: usize) -> Vec<Arc<Endpoint>> {
    let endpoints: Vec<_> = local::ports(count, 128, |_| ())
        .into_iter()
        .enumerate()
        .map(|(id, port)| Endpoint::new(KernelId(id as u16), count, Box::new(port), Arc::new(NoTasks)))
        .collect();
    for endpoint in &endpoints {
        (0..count).for_each(|other| endpoint.add_peer(KernelId(other as u16)));
        endpoint.on::<Ping, _, _>(|_, ping| async move { ping.payload });
        endpoint.on_sync::<KernelDied, _>(|_, _| ());
        endpoint.start_polling();
    }
    endpoints
}

fn calls(criterion: &mut Criterion) {
    let machine = kernels(2);
    let mut context = Context::from_waker(Waker::noop());
    let to = KernelId(1);
    criterion.bench_function("call, synchronous handler", |bencher| {
        bencher.iter(|| {
            let mut call = pin!(machine[0].call(to, KernelDied { kernel: to }));
            machine[1].drain(1);
            machine[0].drain(1);
            assert!(matches!(call.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        });
    });
    criterion.bench_function("call, asynchronous handler, 16 bytes", |bencher| {
        bencher.iter(|| {
            let mut call = pin!(machine[0].call(to, Ping { payload: vec![1; 16] }));
            machine[1].drain(1);
            machine[0].drain(1);
            assert!(matches!(call.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
        });
    });
    criterion.bench_function("call to oneself", |bencher| {
        bencher.iter(|| {
            let mut call = pin!(machine[0].call(KernelId(0), KernelDied { kernel: to }));
            assert!(matches!(call.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        });
    });
    for count in [4, 16] {
        let machine = kernels(count);
        criterion.bench_function(&format!("drain that finds nothing, {count} kernels"), |bencher| {
            bencher.iter(|| black_box(machine[0].drain(64)));
        });
    }
}

criterion_group!(benches, calls);
criterion_main!(benches);
