//! Prints the table of all messages: `cargo run -p messages --example table >docs/messages.md`.

fn main() {
    print!("# Messages between kernels\n\n{}", messages::table_markdown());
}
