use super::*;
use crate::{testing::*, File, OpenFlags};
use std::sync::Mutex;

#[path = "host_tests.rs"]
mod host;
#[path = "job_tests.rs"]
mod jobs;

/// Signals sent, and which groups exist in which session.
#[derive(Default)]
pub struct FakeJobs {
    sent: Mutex<Vec<(char, u32, Signal)>>,
    ignores: Mutex<bool>,
    orphaned: Mutex<bool>,
}

impl FakeJobs {
    fn take(&self) -> Vec<(char, u32, Signal)> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

impl JobControl for FakeJobs {
    fn signal_group(&self, group: Pid, signal: Signal) {
        self.sent.lock().unwrap().push(('g', group.0, signal));
    }
    fn signal_process(&self, process: Pid, signal: Signal) {
        self.sent.lock().unwrap().push(('p', process.0, signal));
    }
    fn background<'a>(&'a self, caller: &'a Caller, signal: Signal) -> BoxFuture<'a, Background> {
        let answer = match (*self.ignores.lock().unwrap(), *self.orphaned.lock().unwrap()) {
            (true, _) => Background::Ignored,
            (_, true) => Background::Orphaned,
            _ => {
                self.signal_group(caller.group, signal);
                Background::Signalled
            }
        };
        crate::file::ready(answer)
    }
    /// Groups 10 to 19 are of session 10, and so on.
    fn session_of(&self, group: Pid) -> BoxFuture<'_, Option<Pid>> {
        crate::file::ready((group.0 >= 10).then_some(Pid(group.0 / 10 * 10)))
    }
}

pub struct Rig {
    jobs: Arc<FakeJobs>,
    timers: Arc<FakeTimers>,
    terminals: Arc<Terminals>,
}

impl Rig {
    fn new() -> Self {
        let jobs = Arc::new(FakeJobs::default());
        let timers = Arc::new(FakeTimers::default());
        let terminals = Terminals::new(jobs.clone(), Arc::new(timers.clone()));
        Rig { jobs, timers, terminals }
    }

    /// A master and an unlocked slave, both of them never waiting.
    fn pty(&self) -> (Arc<dyn File>, Arc<dyn File>) {
        let who = caller(1);
        let flags = OpenFlags::RDWR | OpenFlags::NONBLOCK | OpenFlags::NOCTTY;
        let master = self.terminals.open_ptmx(&who, flags).unwrap();
        ioctl(&master, &who, linux_raw_sys::ioctl::TIOCSPTLCK, 0i32.to_ne_bytes().to_vec()).unwrap();
        let number = ioctl(&master, &who, linux_raw_sys::ioctl::TIOCGPTN, Vec::new()).unwrap();
        let number = u32::from_ne_bytes(number[..4].try_into().unwrap());
        let slave = self.terminals.open_pts(number, &who, flags, None).unwrap();
        (master, slave)
    }
}

fn ioctl(file: &Arc<dyn File>, who: &Caller, request: u32, data: Vec<u8>) -> Result<Vec<u8>> {
    let mut data = data;
    block_on(file.ioctl(who, request, &mut data)).map(|_| data)
}

fn read(file: &Arc<dyn File>) -> Result<Vec<u8>> {
    let mut buf = vec![0; 8192];
    block_on(file.read(&mut buf)).map(|count| buf[..count].to_vec())
}
