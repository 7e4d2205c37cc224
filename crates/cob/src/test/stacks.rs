//! How deep the kernels' stacks have been in the guest tests, and how deep they may be.

/// Most bytes that a CPU of a kernel may have on its stack in any test, of 64 KiB. What happens at the worst moment is not in the tests.
const STACK_BOUND: u64 = 40 << 10;

/// The deepest stack of all tests: what the kernels say of it at the end of an audited run (`kernel/src/audit.rs`).
#[derive(Debug, Default)]
pub struct Deepest {
    bytes: u64,
    test: String,
}

impl Deepest {
    /// Reads it in the log of a test.
    pub fn note(&mut self, test: &str, log: &str) {
        let said = log.lines().filter_map(|line| line.split_once("stacks: at most "));
        let most = said.filter_map(|(_, rest)| rest.split(' ').next()?.parse().ok()).max().unwrap_or(0);
        if most > self.bytes {
            (self.bytes, self.test) = (most, test.to_string());
        }
    }

    /// Whether the bound was kept; None if no test has said anything.
    pub fn verdict(&self) -> Option<Result<(), String>> {
        let Deepest { bytes, test } = self;
        if *bytes == 0 {
            return None;
        }
        println!("kernel stacks: at most {bytes} bytes, in {test}; {STACK_BOUND} are allowed");
        Some(if *bytes <= STACK_BOUND {
            Ok(())
        } else {
            Err(format!("{bytes} bytes in {test}, more than {STACK_BOUND}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_stack_is_bounded() {
        let mut deepest = Deepest::default();
        assert_eq!(deepest.verdict(), None);
        deepest.note("a", "[1] INFO  kernel::audit: stacks: at most 17000 of 65536 bytes, on kernel 2\n");
        deepest.note("b", "stacks: at most 20 of 65536 bytes, on kernel 0\nelse\n");
        assert_eq!((deepest.bytes, deepest.test.as_str()), (17000, "a"));
        assert_eq!(deepest.verdict(), Some(Ok(())));
        deepest.note("c", &format!("stacks: at most {} of", STACK_BOUND + 1));
        assert!(deepest.verdict().unwrap().unwrap_err().contains("in c"));
    }
}
