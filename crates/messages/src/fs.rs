//! Files, pipes, terminals and other open objects.

messages! {
    "fs" 0x500;
}
