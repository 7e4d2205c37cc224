//! Popcorn's protocol: what the thesis says it costs, and a few random programs.

use machine::Access;
use sim::{
    machine::Machine,
    model::{Operation, Outcome, Where},
    popcorn::{Popcorn, Program},
    scenario::{Kind, Log, Plan, Scenario},
    shape::Shape,
};

fn does(machine: &Machine, popcorn: &std::sync::Arc<Popcorn>, kernel: usize, operation: Operation) -> (Outcome, u64) {
    let before = machine.messages();
    let popcorn = popcorn.clone();
    let outcome = machine.run(async move { popcorn.perform(kernel, operation).await });
    (outcome, machine.messages() - before)
}

#[test]
fn a_retrieval_costs_five_messages_for_each_other_kernel() {
    for kernels in [2, 3, 8, 16] {
        let machine = Machine::new(Shape::of(1, kernels).calm());
        let popcorn = Popcorn::new(&machine);
        let all = 5 * (kernels as u64 - 1);
        let prot = Access::READ | Access::WRITE;
        let map = Operation::Map { at: Where::Fixed(0x1000), pages: 4, prot, shared: false, object: None };
        assert_eq!(does(&machine, &popcorn, 0, map), (Outcome::At(0x1000), all));
        let write = Operation::Write { page: 0x1001, word: 1, value: 7 };
        assert_eq!(does(&machine, &popcorn, 0, write), (Outcome::Done, all));
        let read = Operation::Read { page: 0x1001, word: 1 };
        assert_eq!(does(&machine, &popcorn, 1, read), (Outcome::Value(7), all));
        assert_eq!(does(&machine, &popcorn, 1, read), (Outcome::Value(7), 0));
        let unmap = Operation::Unmap { page: 0x1000, pages: 4 };
        assert_eq!(does(&machine, &popcorn, 1, unmap), (Outcome::Done, all));
        popcorn.audit();
    }
}

#[test]
fn random_programs_are_as_the_model_says() {
    let popcorn = Kind::of::<Program>();
    for seed in 0..60 {
        let plan = Plan::new(seed, 2 + seed as usize % 5, Program::STEPS);
        assert_eq!((popcorn.run)(&plan, Log::Nothing).err(), None, "seed {seed}");
    }
}

#[test]
fn the_table_in_docs_is_what_is_counted() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    let page = std::fs::read_to_string(page).expect("docs are there");
    assert!(page.contains(&sim::baseline::table()), "out of date: cargo run --release -p sim -- --baseline");
}
