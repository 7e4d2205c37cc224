//! Which CPUs belong together: those of a kernel of Cob, or else of a NUMA node.

use std::{collections::BTreeMap, fs};

/// The group of each of these CPUs, counted from 0.
pub(crate) fn groups(cpus: &[usize]) -> Vec<usize> {
    let known = of_kernels().or_else(of_nodes).unwrap_or_default();
    let mut numbers = BTreeMap::new();
    let mut group = |name: usize| {
        let next = numbers.len();
        *numbers.entry(name).or_insert(next)
    };
    cpus.iter().map(|cpu| group(known.get(cpu).copied().unwrap_or(0))).collect()
}

/// /proc/cob/kernels: the first column is the kernel, the fourth its CPUs.
fn of_kernels() -> Option<BTreeMap<usize, usize>> {
    let text = fs::read_to_string("/proc/cob/kernels").ok()?;
    let mut known = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let kernel = columns.first()?.parse().ok()?;
        known.extend(list(columns.get(3)?).into_iter().map(|cpu| (cpu, kernel)));
    }
    Some(known)
}

fn of_nodes() -> Option<BTreeMap<usize, usize>> {
    let mut known = BTreeMap::new();
    for entry in fs::read_dir("/sys/devices/system/node").ok()? {
        let entry = entry.ok()?;
        let Some(node) = entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else {
            continue;
        };
        let cpus = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        known.extend(list(cpus.trim()).into_iter().map(|cpu| (cpu, node)));
    }
    Some(known)
}

/// A list as `0-3,5`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_are_read_and_groups_counted() {
        assert_eq!(super::list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(super::list(""), [0; 0]);
        assert_eq!(super::groups(&[0]), [0]);
    }
}
