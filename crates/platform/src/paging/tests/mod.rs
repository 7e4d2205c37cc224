//! The tables against a map, and the shootdown protocol under threads that pretend to be CPUs.

mod fake;
mod model;
mod shootdown;
mod windows;
