//! Terminals ask processes about sessions and groups.

use abi::signal::{Signal, SignalInfo};
use alloc::{boxed::Box, sync::Arc};
use fs::tty::{Background, JobControl};
use fs::Caller;
use machine::{BoxFuture, Pid};
use process::{System, Target};

pub struct Jobs(pub Arc<System>);

impl Jobs {
    fn send(&self, target: Target, signal: Signal) {
        let system = self.0.clone();
        self.0.scheduler.spawn(async move {
            // A group that is gone needs no signal.
            let _ = system.signal(target, Some(SignalInfo::kernel(signal)), None, Pid(0)).await;
        });
    }
}

impl JobControl for Jobs {
    fn signal_group(&self, group: Pid, signal: Signal) {
        self.send(Target::Group(group), signal);
    }

    fn signal_process(&self, process: Pid, signal: Signal) {
        self.send(Target::Process(process), signal);
    }

    fn background<'a>(&'a self, caller: &'a Caller, signal: Signal) -> BoxFuture<'a, Background> {
        Box::pin(async move {
            if self.0.ignores(caller.process, caller.thread, signal).await {
                return Background::Ignored;
            }
            if self.0.is_orphaned(caller.group, caller.session).await {
                return Background::Orphaned;
            }
            self.send(Target::Group(caller.group), signal);
            Background::Signalled
        })
    }

    fn session_of(&self, group: Pid) -> BoxFuture<'_, Option<Pid>> {
        Box::pin(self.0.session_of_group(group))
    }
}
