//! What the audit says of references between kernels.

use super::*;
use crate::remote::disagreements;
use messages::{control::Stock, fs::FileRelease};

fn stocks(machine: &Machine) -> Vec<(KernelId, Stock)> {
    let stock = |remote: &Arc<Remote>| Stock { held: remote.held(), lent: remote.lent(), ..Stock::default() };
    machine.kernels.iter().map(|remote| (remote.me(), stock(remote))).collect()
}

#[test]
fn both_sides_count_the_same_at_rest() {
    let machine = Machine::new(3);
    let (read, _write) = ends();
    let first = machine.pass(0, 1, &read);
    let again = machine.pass(0, 1, &read);
    let second = machine.pass(1, 2, &first);
    machine.settle();
    let counts = |stocks: &[(KernelId, Stock)]| -> Vec<u64> {
        stocks.iter().flat_map(|(_, stock)| &stock.held).map(|reference| reference.count).collect()
    };
    assert_eq!(counts(&stocks(&machine)), [2, 1]);
    assert_eq!(disagreements(&stocks(&machine)), [""; 0]);
    assert_eq!(machine.kernels[0].under_way(), 0);
    drop((first, again, second));
    machine.settle();
    assert_eq!(counts(&stocks(&machine)), []);
    assert_eq!(disagreements(&stocks(&machine)), [""; 0]);
}

#[test]
fn a_reference_that_one_side_has_lost_is_named() {
    let machine = Machine::new(3);
    let (read, _write) = ends();
    let held = machine.pass(0, 1, &read);
    machine.settle();
    // Released, but not by who has it.
    machine.kernels[1].endpoint.send(KernelId(0), FileRelease { id: held.remote().unwrap().id, count: 1 }).unwrap();
    machine.settle();
    let found = disagreements(&stocks(&machine));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("kernel 1 has 1 ") && found[0].ends_with("counts 0"), "{found:?}");
    // Counted, but never sent.
    let (other, _write) = ends();
    machine.kernels[0].exports.add(KernelId(0), &other, KernelId(2));
    let found = disagreements(&stocks(&machine));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("kernel 2 has 0 ") && found[0].ends_with("counts 1"), "{found:?}");
    // A kernel that is not there says nothing of what it has.
    assert_eq!(disagreements(&stocks(&machine)[..1]), [""; 0]);
}
