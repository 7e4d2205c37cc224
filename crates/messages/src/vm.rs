//! Address spaces: faults, slices, revocation.

messages! {
    "vm" 0x300;
}
