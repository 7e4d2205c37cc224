//! Processes, threads, signals, migration.

messages! {
    "process" 0x200;
}
