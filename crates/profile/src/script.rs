//! The text of `perf script`, which flame graph tools, Speedscope and the Firefox Profiler read: for each sample a line, and its calls, innermost first.

use crate::samples::{Chain, Doing, Functions};
use std::io::{Result, Write};

/// Writes samples.
pub struct Script<W> {
    to: W,
    /// ns between two samples.
    period: u64,
    result: Result<()>,
}

impl<W: Write> Script<W> {
    /// `hertz`: samples of a CPU in a second.
    pub fn new(to: W, hertz: u32) -> Self {
        Script { to, period: 1_000_000_000 / u64::from(hertz.max(1)), result: Ok(()) }
    }

    /// Writes a sample; those of idle CPUs are left out, as perf does.
    pub fn take(&mut self, functions: &Functions, chain: &Chain<'_>) {
        if chain.doing != Doing::Idle && self.result.is_ok() {
            self.result = self.write(functions, chain);
        }
    }

    fn write(&mut self, functions: &Functions, chain: &Chain<'_>) -> Result<()> {
        let tid = if chain.pid == 0 { 0 } else { chain.tid };
        let (seconds, micros) = (chain.time / 1_000_000_000, chain.time / 1000 % 1_000_000);
        let (comm, cpu, period) = (chain.comm, chain.place.cpu, chain.ticks * self.period);
        writeln!(self.to, "{comm} {}/{tid} [{cpu:03}] {seconds}.{micros:06}: {period} cpu-clock:", chain.pid)?;
        for frame in chain.frames {
            let function = functions.get(frame.function);
            write!(self.to, "\t{:16x} {}", frame.address, function.name)?;
            // Of what has no name there is nothing to be inside of.
            if !function.name.starts_with('[') {
                write!(self.to, "+0x{:x}", frame.inside)?;
            }
            writeln!(self.to, " ({})", function.object)?;
        }
        writeln!(self.to)
    }

    #[cfg(test)]
    pub(crate) fn buffer(&mut self) -> &mut W {
        &mut self.to
    }

    /// Writes what is buffered.
    pub fn end(mut self) -> Result<()> {
        self.result?;
        self.to.flush()
    }
}
