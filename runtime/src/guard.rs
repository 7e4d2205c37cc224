//! Where a panic must not go on: scopes have lent what lies on the stacks of their callers, so nobody may leave them before their tasks have ended.

/// Calls `work`, and ends the process if that panics.
pub(crate) fn or_abort<T>(what: &str, work: impl FnOnce() -> T) -> T {
    struct Abort<'a>(&'a str);
    impl Drop for Abort<'_> {
        fn drop(&mut self) {
            eprintln!("cob-tasks: {} has panicked: tasks borrow what a panic would free, so the process ends", self.0);
            std::process::abort();
        }
    }
    let abort = Abort(what);
    let result = work();
    std::mem::forget(abort);
    result
}
