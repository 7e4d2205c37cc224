//! One event.

use trace::{unpack, Point, PointInfo, Value};

/// Which ring events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The CPU of the machine.
    pub cpu: u16,
    /// The kernel that has it.
    pub kernel: u16,
    /// Which boot of that kernel.
    pub boot_generation: u32,
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the machine started.
    pub time: u64,
    /// Where it was recorded.
    pub place: Place,
    /// What happened.
    pub point: Point,
    /// The fields, packed.
    pub words: Vec<u64>,
}

impl Event {
    /// The row of its point.
    pub fn info(&self) -> &'static PointInfo {
        self.point.info()
    }

    /// Its fields, in the order of the table.
    pub fn fields(&self) -> impl Iterator<Item = (&'static trace::Field, Value)> + '_ {
        let fields = self.info().fields;
        fields.iter().zip(unpack(fields, &self.words))
    }

    /// The number in this field of the point; 0 if it has none.
    pub fn number(&self, name: &str) -> u64 {
        self.fields().find(|(field, _)| field.name == name).map_or(0, |(_, value)| value.number())
    }

    /// The numbers in these fields of the point, in one pass.
    pub fn numbers<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let mut numbers = [0; N];
        for (field, value) in self.fields() {
            if let Some(at) = names.iter().position(|name| *name == field.name) {
                numbers[at] = value.number();
            }
        }
        numbers
    }

    /// [`Event::number`] of a field that is a thread id.
    pub fn tid(&self, name: &str) -> u32 {
        self.number(name) as u32
    }

    /// The text in the last field, if that is one.
    pub fn text(&self) -> String {
        let last = self.fields().last().map(|(_, value)| String::from_utf8_lossy(value.text()).into_owned());
        last.unwrap_or_default()
    }
}
