//! Kernels that have files of others and sockets, and no more: how they are made, how they die, what may be left on them.

use crate::{machine::Machine, rng::Rng, shape::Shape};
use ::machine::{
    account::{Accounts, Resource},
    KernelId, Pid, Shield,
};
use abi::CapabilitySet;
use fabric::Endpoint;
use fs::{remote::Remote, socket::NetNamespace, Caller, Credentials, File, Refaults};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Whose all sockets are.
const USER: u32 = 1000;
/// Memory of a kernel whose user soon has no more of it; a user may have an eighth.
const LITTLE: usize = 8 * 100_000;

pub struct Kernel {
    pub id: KernelId,
    pub remote: Arc<Remote>,
    pub names: Arc<NetNamespace>,
    endpoint: Arc<Endpoint>,
    accounts: Arc<Accounts>,
}

pub struct Kernels {
    pub machine: Machine,
    pub all: Vec<Kernel>,
    /// The user may have little memory.
    pub tight: bool,
    /// There is little of it at all, and a transfer over kernels may fail.
    pub scarce: bool,
}

pub fn caller(process: u32) -> Caller {
    let pid = Pid(process);
    let credentials = Credentials { uid: USER, euid: USER, effective: CapabilitySet::NONE, ..Credentials::default() };
    Caller { credentials, process: pid, thread: pid, group: pid, session: pid, umask: 0, shield: Shield::new() }
}

/// What `work` has done at once.
pub fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it should not wait"),
    }
}

impl Kernels {
    pub fn new(shape: Shape) -> Self {
        let machine = Machine::new(shape);
        let tight = Rng::new(shape.seed ^ 0x50c).one_in(4);
        let kernel = |node: &crate::machine::Node| {
            let refaults = Arc::new(Refaults::new(&*node.memory));
            let remote = Remote::new(node.endpoint.clone(), node.memory.clone(), node.spawner.clone(), refaults, None);
            let names: Arc<NetNamespace> = Arc::default();
            remote.join_sockets(&names, KernelId(0));
            let accounts = Accounts::new(if tight { LITTLE } else { 1 << 40 });
            names.set_accounts(&accounts);
            Kernel { id: node.id, remote, names, endpoint: node.endpoint.clone(), accounts }
        };
        let all = machine.nodes().iter().map(kernel).collect();
        Kernels { machine, all, tight, scarce: shape.scarce }
    }

    pub fn of(&self, kernel: KernelId) -> &Kernel {
        &self.all[kernel.index()]
    }

    fn alive(&self) -> impl Iterator<Item = &Kernel> {
        self.machine.alive().into_iter().map(|kernel| self.of(kernel))
    }

    /// A file of `from` as `to` knows it.
    pub fn hand(&self, from: KernelId, to: KernelId, file: Arc<dyn File>) -> Arc<dyn File> {
        if from == to {
            return file;
        }
        let given = at_once(self.of(from).remote.hand_over(to, &file)).expect("both live").send();
        self.of(to).remote.accept(given).expect("it was handed over")
    }

    /// So many steps, which may leave things half done.
    pub fn some_steps(&self, most: usize) {
        for _ in 0..self.machine.world.rng.below(most) {
            self.machine.step();
        }
    }

    /// In the middle of what is going on one after the other hears that a kernel has died.
    pub fn mourn(&self, dead: KernelId) {
        let mut through = Vec::new();
        for kernel in self.alive() {
            self.some_steps(20);
            kernel.endpoint.declare_dead(dead);
            kernel.remote.kernel_died(dead);
            kernel.names.kernel_died(dead);
            let (endpoint, remote) = (kernel.endpoint.clone(), kernel.remote.clone());
            through.push(self.machine.start_on(kernel.id, async move {
                endpoint.silence(dead).await;
                remote.mourn(dead).await;
            }));
        }
        self.machine.settle();
        assert!(through.iter().all(|done| done.take().is_some()), "they mourn for ever");
        self.alive().for_each(|kernel| kernel.remote.release_of(dead));
        self.machine.settle();
    }

    /// Everything is closed: nothing may be left.
    pub fn check_empty(&self) {
        for kernel in self.alive() {
            let id = kernel.id;
            assert_eq!(kernel.remote.exported(), 0, "files of {id:?} that others hold");
            assert_eq!(self.machine.world.used_of(id), 0, "frames of {id:?}");
            assert_eq!(kernel.endpoint.outstanding(), (0, 0), "calls of {id:?}");
            let account = kernel.accounts.of(Pid(1), USER);
            for resource in [Resource::Memory, Resource::DescriptorsInFlight] {
                assert_eq!(account.used_at_top(resource), 0, "{resource:?} on {id:?}");
            }
        }
    }
}
