//! What the machine and its processes look like as files: /proc (man 5 proc) and /sys (man 5 sysfs).
//!
//! A crate of its own because it is large and cold: the kernel's image has it built for least size.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cgroup;
pub mod proc;
pub mod sys;
