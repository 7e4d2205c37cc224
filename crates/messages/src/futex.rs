//! Futexes.

messages! {
    "futex" 0x400;
}
