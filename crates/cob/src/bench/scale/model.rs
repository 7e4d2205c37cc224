//! From what was counted to modelled time. A CPU's time is its instructions and the lines it had to wait for; own lines are
//! part of the instructions. A line that many want can be in one place at a time: all its moves, one after another, bound the whole.

/// Costs, in nanoseconds: of a large server of our days, about.
pub const INSTRUCTION: f64 = 0.4;
pub const LINE_OF_NODE: f64 = 40.0;
pub const LINE_OF_OTHER_NODE: f64 = 100.0;
/// CPUs of a node.
pub const NODE: u16 = 8;

pub fn stated() -> String {
    format!(
        "an instruction {INSTRUCTION} ns (lines of the own cache included), a line from another CPU of the node {LINE_OF_NODE} ns, from another \
         node {LINE_OF_OTHER_NODE} ns; {NODE} CPUs a node; the moves of one line follow each other"
    )
}

pub const USER: usize = 0;
pub const KERNEL: usize = 1;

/// What one CPU did between its marks, in user and in kernel mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpu {
    pub instructions: [u64; 2],
    /// Lines that another CPU had written, brought from the same node and from another.
    pub transfers: [[u64; 2]; 2],
    /// Lines taken from CPUs that held them, to write.
    pub recalls: [[u64; 2]; 2],
}

impl Cpu {
    fn nanoseconds(&self) -> f64 {
        let lines =
            |node: usize| -> u64 { (0..2).map(|mode| self.transfers[mode][node] + self.recalls[mode][node]).sum() };
        self.instructions.iter().sum::<u64>() as f64 * INSTRUCTION
            + lines(0) as f64 * LINE_OF_NODE
            + lines(1) as f64 * LINE_OF_OTHER_NODE
    }
}

/// An instruction that had a line brought or taken that another instruction had written.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub at: u64,
    pub writer: u64,
    pub transfers: u64,
    pub recalls: u64,
}

/// One loop on one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Operations of each worker.
    pub operations: u64,
    pub cpus: Vec<Cpu>,
    /// Lines that moved into user and kernel mode, each once.
    pub distinct: [u64; 2],
    /// Moves of the line that moved most.
    pub hottest: u64,
    pub pairs: Vec<Pair>,
    /// The heaviest blocks of the kernel.
    pub codes: Vec<Code>,
}

/// A block of instructions that QEMU has translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its first address.
    pub at: u64,
    /// Instructions that were executed in it.
    pub instructions: u64,
    /// How often it was.
    pub executed: u64,
}

impl Counted {
    fn all(&self) -> f64 {
        (self.operations * self.cpus.len() as u64) as f64
    }

    /// Per operation, the mean of all CPUs.
    pub fn instructions(&self, mode: usize) -> f64 {
        self.cpus.iter().map(|cpu| cpu.instructions[mode]).sum::<u64>() as f64 / self.all()
    }

    /// Lines that one CPU wrote and another then touched, per operation.
    pub fn transfers(&self, mode: usize) -> f64 {
        self.cpus.iter().flat_map(|cpu| cpu.transfers[mode]).sum::<u64>() as f64 / self.all()
    }

    /// Modelled operations of all CPUs in a second.
    pub fn throughput(&self) -> f64 {
        let slowest = self.cpus.iter().map(Cpu::nanoseconds).fold(0.0, f64::max);
        self.all() * 1e9 / slowest.max(self.hottest as f64 * LINE_OF_NODE)
    }
}

/// The one in the middle by its modelled throughput.
pub fn median(mut rounds: Vec<Counted>) -> Option<Counted> {
    rounds.sort_by(|a, b| a.throughput().total_cmp(&b.throughput()));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds.swap_remove(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(transfers: u64, hottest: u64, cpus: usize) -> Counted {
        let cpu = Cpu { instructions: [500, 2000], transfers: [[0, 0], [transfers, 0]], ..Cpu::default() };
        Counted { operations: 10, cpus: vec![cpu; cpus], hottest, ..Counted::default() }
    }

    #[test]
    fn without_shared_lines_throughput_grows_with_the_cpus() {
        // 2500 instructions are a microsecond.
        assert_eq!(busy(0, 0, 1).throughput().round(), 1e7);
        assert_eq!(busy(0, 0, 16).throughput().round(), 16e7);
        assert_eq!((busy(5, 0, 2).transfers(KERNEL), busy(5, 0, 2).transfers(USER)), (0.5, 0.0));
    }

    #[test]
    fn the_median_is_one_of_them() {
        let middle = median(vec![busy(9, 0, 2), busy(0, 0, 2), busy(5, 0, 2)]).unwrap();
        assert_eq!(middle, busy(5, 0, 2));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn lines_cost_time_and_one_hot_line_bounds_all() {
        assert_eq!(busy(25, 0, 4).throughput().round(), 2e7);
        // 100 moves at 40 ns are 4 us for 40 operations.
        assert_eq!(busy(25, 100, 4).throughput().round(), 1e7);
    }
}
