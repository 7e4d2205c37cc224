//! Keys of this very program are switched: the kernel of the host lets a process write to its own code through /proc/self/mem.

use crate::{is_on, sites, switch_off_copy, Site, LENGTH};
use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

#[inline(never)]
fn two_keys(value: u32) -> u32 {
    let mut sum = value;
    if is_on::<7>() {
        sum += 10;
    }
    if is_on::<8>() {
        sum += 100;
    }
    sum
}

#[inline(never)]
fn in_a_loop(values: &[u32]) -> u32 {
    values.iter().map(|value| if is_on::<7>() { value * 2 } else { *value }).sum()
}

fn switch(key: u32, on: bool) {
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    for site in sites().iter().filter(|site| site.key() == key) {
        memory.write_all_at(&site.instruction(on), site.address() as u64).unwrap();
    }
}

/// What the program has at its sites.
fn there(site: &Site) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, site.address() as u64).unwrap();
    bytes
}

fn results() -> [u32; 2] {
    [two_keys(black_box(1)), in_a_loop(black_box(&[1, 2, 3]))]
}

/// Copies of the code around each site, of any beginning and length.
fn a_copy_has_all_keys_off() {
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    for site in sites() {
        for (before, length) in [(0, 8), (3, 20), (64, 128), (64, 64 + 2)] {
            let mut copy = vec![0; length];
            memory.read_exact_at(&mut copy, (site.address() - before) as u64).unwrap();
            let was = copy.clone();
            switch_off_copy(site.address() - before, &mut copy);
            let there = (length - before).min(LENGTH);
            assert_eq!(copy[before..before + there], site.instruction(false)[..there]);
            assert_eq!(was[before], site.instruction(true)[0], "it was on");
        }
        // What begins in its middle.
        let mut copy = vec![0xcc; 16];
        switch_off_copy(site.address() + 2, &mut copy);
        assert_eq!(copy[..LENGTH - 2], site.instruction(false)[2..]);
    }
}

#[test]
fn a_key_is_on_at_all_its_sites_and_no_other() {
    // What the assembler has written is what switching off writes.
    assert!(sites().iter().all(|site| there(site) == site.instruction(false)));
    assert_eq!(results(), [1, 6]);
    switch(7, true);
    assert_eq!(results(), [11, 12]);
    switch(8, true);
    assert_eq!(results(), [111, 12]);
    a_copy_has_all_keys_off();
    switch(7, false);
    assert_eq!(results(), [101, 6]);
    switch(8, false);
    assert_eq!(results(), [1, 6]);
    let mut keys: Vec<u32> = sites().iter().map(Site::key).collect();
    keys.sort();
    // The compiler may make more than one site of one.
    keys.dedup();
    assert_eq!(keys, [7, 8]);
}
