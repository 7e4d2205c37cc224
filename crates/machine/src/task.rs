//! Work that goes on beside the caller.

use alloc::boxed::Box;
use core::{future::Future, pin::Pin};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts kernel tasks (not user threads) on this kernel.
pub trait Spawner: Send + Sync {
    fn spawn(&self, task: BoxFuture<'static, ()>);
}
