//! The tables against a map, and the shootdown protocol under threads that pretend to be CPUs; with
//! `RUSTFLAGS="--cfg loom"` its memory order, and nothing else.

#[cfg(not(loom))]
mod fake;
#[cfg(not(loom))]
mod model;
#[cfg(loom)]
mod order;
#[cfg(not(loom))]
mod shootdown;
#[cfg(not(loom))]
mod windows;
