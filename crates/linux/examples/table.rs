//! Prints the list of system calls: `cargo run -p linux --example table >docs/syscalls.md`.

fn main() {
    print!("# System calls\n\n{}", linux::table_markdown());
}
