//! /sys/kernel/tracing/trace_marker: what a program writes there is an event of the trace (Documentation/trace/ftrace.rst).

use ::machine::{errno::Result, BoxFuture, Errno};
use ::process::System;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    synthetic::{hash_ino, Content, Node},
    Caller,
};

pub(super) fn marker(system: &Arc<System>) -> Node {
    // On Linux root's alone; here whoever is traced may say what it does.
    Node::file(hash_ino(b"/sys/kernel/tracing/trace_marker"), Marker(system.clone())).mode(0o222)
}

/// Bytes that one write takes, as on Linux (TRACE_MARKER_MAX); the writer goes on with what is left.
const MOST_BYTES: usize = 4096;

struct Marker(Arc<System>);

impl Content for Marker {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async { Err(Errno::EINVAL) })
    }

    fn takes_writes(&self) -> bool {
        true
    }

    /// An event for each line; what is longer than an event has room for is in several.
    fn write<'a>(&'a self, _caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        let data = &data[..data.len().min(MOST_BYTES)];
        if trace::on::marker() {
            let thread = self.0.scheduler.actor().thread().0;
            for line in data.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                line.chunks(trace::MOST_TEXT).for_each(|part| trace::marker(thread, part));
            }
        }
        Box::pin(core::future::ready(Ok(data.len())))
    }
}
