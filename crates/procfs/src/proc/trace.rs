//! /proc/cob/trace: which events are recorded. Reading gives the list; root writes `on`, `off`, or another list. The write returns when all kernels do so.

use super::Proc;
use ::machine::{errno::Result, BoxFuture, Errno};
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use fs::{
    synthetic::{hash_ino, Content, Node},
    Caller,
};
use messages::control::{Trace, Traced};

pub(super) fn events(proc: &Arc<Proc>) -> Node {
    Node::file(hash_ino(b"/proc/cob/trace"), Events(proc.clone())).mode(0o644)
}

struct Events(Arc<Proc>);

fn wish(text: &[u8]) -> Result<Traced> {
    match core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?.trim() {
        "off" | "none" => Ok(Traced::Nothing),
        "on" => Ok(Traced::Again),
        list => trace::select(list).map(Traced::Points).map_err(|_| Errno::EINVAL),
    }
}

impl Content for Events {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        let enabled = trace::enabled();
        let mut text = String::new();
        for info in trace::POINTS.iter().filter(|info| enabled & info.point.bit() != 0) {
            text.push_str(info.name);
            text.push('\n');
        }
        Box::pin(core::future::ready(Ok(text.into_bytes())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            if !caller.credentials.is_privileged() {
                return Err(Errno::EPERM);
            }
            let endpoint = &self.0.system.endpoint;
            let message = Trace { events: wish(data)? };
            let answers = endpoint.multicast(&endpoint.present(), message).await;
            // A kernel that died meanwhile records nothing.
            match answers.into_iter().any(|(_, answer)| answer == Ok(false)) {
                true => Err(Errno::EOPNOTSUPP),
                false => Ok(data.len()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::wish;
    use ::machine::Errno;
    use messages::control::Traced;

    #[test]
    fn what_is_written_is_a_wish() {
        assert_eq!(wish(b"on\n"), Ok(Traced::Again));
        assert_eq!(wish(b"off"), Ok(Traced::Nothing));
        assert_eq!(wish(b"sched_switch\n"), Ok(Traced::Points(trace::select("sched_switch").unwrap())));
        assert_eq!(wish(b"\xff"), Err(Errno::EINVAL));
        assert_eq!(wish(b"nonsense"), Err(Errno::EINVAL));
    }
}
