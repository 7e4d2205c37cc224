//! Signals over kernels: signalfds that an epoll of one kernel watches for a thread of another, where the signals are known only there; and who is signalled
//! by a file of another kernel.

use super::*;
use crate::{
    epoll::EDGE,
    event::signalfd,
    file::{Access, Destination},
    testing::{OfAll, Owner, Signals},
};
use abi::{
    signal::{Signal, SignalFields, SignalSet},
    OwnerChange, OwnerKind,
};

const IN: u32 = Events::IN.bits();

/// Two kernels, an epoll of the first as the second knows it, which watches a signalfd, and the signals on the second.
fn watched(events: u32) -> (Machine, Arc<dyn File>, Arc<dyn File>, Arc<Signals>) {
    let machine = Machine::new(2);
    let (here, there) = (Arc::new(Signals::default()), Arc::new(Signals::default()));
    machine.kernels[1].set_signals(Arc::new(OfAll(there.clone())));
    let file: Arc<dyn File> =
        signalfd(Arc::new(OfAll(here)), SignalSet::only(Signal::USR1), OpenFlags::NONBLOCK).unwrap();
    let epoll = an_epoll();
    add(&machine, &epoll, 3, &file, events).unwrap();
    let (far_epoll, far_file) = (machine.pass(0, 1, &epoll), machine.pass(0, 1, &file));
    (machine, far_epoll, far_file, there)
}

fn now(machine: &Machine, epoll: &Arc<dyn File>) -> Vec<(u64, u32)> {
    let events = machine.run(epoll::wait(epoll, &caller(1), 8, epoll::Wait::No)).unwrap();
    events.iter().map(|event| (event.data, event.events)).collect()
}

#[test]
fn a_signal_known_at_the_waiter_only_is_told_until_it_is_read() {
    let (machine, epoll, file, signals) = watched(IN);
    assert_eq!(now(&machine, &epoll), []);
    signals.send(Signal::INT);
    assert_eq!(now(&machine, &epoll), [], "not wanted");
    signals.send(Signal::USR1);
    assert_eq!(now(&machine, &epoll), [(3, IN)]);
    assert_eq!(now(&machine, &epoll), [(3, IN)]);
    machine.run(file.read_into(Destination::Kernel(&mut [0; 128]), Access::by(&caller(1)))).unwrap();
    assert_eq!(now(&machine, &epoll), []);
}

#[test]
fn who_waits_is_woken_by_it_and_by_nothing_else() {
    for events in [IN, IN | EDGE] {
        let (machine, epoll, _file, signals) = watched(events);
        let who = caller(1);
        let mut waiting: BoxFuture<'_, _> = Box::pin(epoll::wait(&epoll, &who, 8, epoll::Wait::ForEver));
        assert!(machine.poll(&mut waiting).is_none());
        signals.send(Signal::INT);
        assert!(machine.poll(&mut waiting).is_none());
        signals.send(Signal::USR1);
        assert_eq!(machine.poll(&mut waiting).unwrap().unwrap().len(), 1);
    }
}

#[test]
fn an_edge_is_told_once_for_each_signal() {
    let (machine, epoll, file, signals) = watched(IN | EDGE);
    signals.send(Signal::USR1);
    assert_eq!(now(&machine, &epoll), [(3, IN)]);
    assert_eq!(now(&machine, &epoll), []);
    let who = caller(1);
    let mut waiting: BoxFuture<'_, _> = Box::pin(epoll::wait(&epoll, &who, 8, epoll::Wait::ForEver));
    assert!(machine.poll(&mut waiting).is_none());
    machine.run(file.read_into(Destination::Kernel(&mut [0; 128]), Access::by(&caller(1)))).unwrap();
    assert!(machine.poll(&mut waiting).is_none());
    signals.send(Signal::USR1);
    assert_eq!(machine.poll(&mut waiting).unwrap().unwrap().len(), 1);
}

#[test]
fn a_description_signals_whom_another_kernel_made_its_owner() {
    let machine = Machine::new(2);
    let (here, there) = (Arc::new(Owner::default()), Arc::new(Owner::default()));
    machine.kernels[0].set_signaller(here.clone());
    let signaller: Arc<dyn Signaller> = there.clone();
    let (reader, writer) = crate::pipe::pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
    let reader: Arc<dyn File> = reader;
    let far = machine.pass(0, 1, &reader);
    let id = Some(machine::Pid(7));
    let set = OwnerChange::Owner { kind: OwnerKind::Process, id, uid: 3, euid: 4 };
    for change in [set, OwnerChange::Signal(Signal::new(40)), OwnerChange::Begin(5)] {
        machine.run(change_owner(&far, &caller(7), change, &signaller)).unwrap();
    }
    assert!(far.flags().contains(OpenFlags::ASYNC) && reader.flags().contains(OpenFlags::ASYNC));
    let owner = machine.run(change_owner(&far, &caller(7), OwnerChange::Ask, &signaller)).unwrap();
    assert_eq!((owner.id, owner.uid, owner.euid), (id, 3, 4));
    machine.run(writer.write(b"x")).unwrap();
    assert_eq!(here.told().0, [(id, 1, SignalFields::Poll { band: 0x41, fd: 5 })]);
    machine.run(change_owner(&far, &caller(7), OwnerChange::End, &signaller)).unwrap();
    machine.run(writer.write(b"x")).unwrap();
    assert!(!far.flags().contains(OpenFlags::ASYNC));
    assert_eq!((here.told().0.len(), there.told().0.len()), (1, 0));
}
