//! System calls about processes and threads.

pub(crate) mod clone;
pub(crate) mod credentials;
pub(crate) mod end;
pub(crate) mod exec;
pub(crate) mod group;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod pidfd;
pub(crate) mod prctl;
pub(crate) mod schedule;
pub(crate) mod signals;
pub(crate) mod umt;
