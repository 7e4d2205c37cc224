//! Prints the table of all events: `cargo run -q -p trace --example table >docs/trace-events.md`.

use trace::{Group, Kind, POINTS};

fn main() {
    println!("# Events of a trace\n");
    println!("Made from the table in crates/trace/src/points.rs by `cargo run -q -p trace --example table`. [trace.md](trace.md) says how to use them.");
    for group in Group::ALL {
        println!("\n## {}\n\n{}\n\n| event | fields | when |\n|---|---|---|", group.name(), group.about());
        for info in POINTS.iter().filter(|info| info.group == *group) {
            let field = |field: &trace::Field| match field.kind {
                Kind::Text => format!("{}: text", field.name),
                kind => format!("{}: {} bits, {}", field.name, field.bits, meaning(kind)),
            };
            let fields: Vec<String> = info.fields.iter().map(field).collect();
            println!("| {} | {} | {} |", info.name, fields.join("; "), info.about.trim());
        }
    }
}

fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "number",
        Kind::Hex => "hexadecimal",
        Kind::Signed => "signed",
        Kind::Tid => "thread",
        Kind::For => "thread, or 0",
        Kind::Kernel => "kernel",
        Kind::Cpu => "CPU",
        Kind::State => "state",
        Kind::Syscall => "system call",
        Kind::Device => "disk",
        Kind::Operation => "operation",
        Kind::Message => "kind of message",
        Kind::Role => "what the message is",
        Kind::Text => "text",
    }
}
