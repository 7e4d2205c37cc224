//! What is shown of chains made by hand; symbols of a real file; whose code is where. Chains out of real stacks are tests of the guest (`profile-`).

use crate::{
    image::Image,
    jit::Jit,
    samples::{Chain, Doing, Frame, Functions},
    space::{Cache, Images, Registers, Space},
    stack::{Piece, Stacks},
    Flame, Script, Table,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use trace::KERNEL_WORK;
use traces::Place;

const ROOT: &str = "/";

struct Made {
    functions: Functions,
    table: Table,
    flame: Flame,
    script: Script<Vec<u8>>,
}

impl Made {
    fn new() -> Made {
        let mut script = Script::new(Vec::new(), 1000);
        let functions = Functions::default();
        let (table, flame) = (Table::default(), Flame::new(true));
        script.take(&functions, &chain(0, "x", 0, 1, Doing::Idle, &[]));
        Made { functions, table, flame, script }
    }

    fn add(&mut self, kernel: u16, comm: &str, tid: u32, ticks: u64, doing: Doing, calls: &[(&str, &str)]) {
        let functions = &mut self.functions;
        let frame =
            |(object, name): &(&str, &str)| Frame { function: functions.id(object, name), address: 0x10, inside: 4 };
        let frames: Vec<Frame> = calls.iter().map(frame).collect();
        let sample = chain(kernel, comm, tid, ticks, doing, &frames);
        self.table.take(&sample);
        self.flame.take(&sample);
        self.script.take(&self.functions, &sample);
    }
}

fn chain<'a>(kernel: u16, comm: &'a str, tid: u32, ticks: u64, doing: Doing, frames: &'a [Frame]) -> Chain<'a> {
    let pid = if tid == KERNEL_WORK { 0 } else { tid };
    let place = Place { cpu: kernel, kernel, boot_generation: 1 };
    Chain { time: 1_500_000_000, place, tid, pid, comm, ticks, doing, frames }
}

#[test]
fn shares_are_of_the_busy_time_of_all_and_of_each_kernel() {
    let mut made = Made::new();
    made.add(0, "prog", 7, 3, Doing::User, &[("/usr/bin/prog", "leaf"), ("/usr/bin/prog", "main")]);
    made.add(1, "prog", 7, 1, Doing::User, &[("/usr/bin/prog", "main"), ("/usr/bin/prog", "main")]);
    made.add(1, "prog", 7, 4, Doing::Kernel, &[("[kernel]", "fault"), ("/usr/bin/prog", "main")]);
    made.add(1, "kernel", KERNEL_WORK, 92, Doing::Idle, &[("[kernel]", "halted")]);
    assert_eq!(made.table.busy(), 8);
    assert_eq!(made.table.share(&made.functions, "leaf"), 0.375);
    assert_eq!(made.table.share(&made.functions, "main"), 1.0);
    let text = made.table.text(&made.functions, 10, Some(1000));
    let line = |end: &str| text.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{end}: {text}"));
    let words = |end: &str| line(end).split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert!(text.starts_with("4 samples of 2 CPUs"), "{text}");
    assert!(text.contains("4.0 % user, 4.0 % kernel, 92.0 % idle"), "{text}");
    assert_eq!(words("  [kernel]"), ["50.00", "0.0", "80.0", "[kernel]"]);
    assert_eq!(words("leaf"), ["37.50", "100.0", "0.0", "37.50", "prog", "leaf"]);
    // It has called itself once, and is in every chain.
    assert_eq!(words("main"), ["12.50", "0.0", "20.0", "100.00", "prog", "main"]);
}

#[test]
fn a_flame_graph_has_a_box_for_each_call_and_its_share() {
    let mut made = Made::new();
    made.add(0, "a<b>", 7, 3, Doing::User, &[("/lib/x.so", "operator<"), ("/usr/bin/prog", "main")]);
    made.add(1, "kernel", KERNEL_WORK, 1, Doing::Kernel, &[("[kernel]", "poll")]);
    let mut picture = Vec::new();
    made.flame.write(&made.functions, "a & b", &mut picture).unwrap();
    let text = String::from_utf8(picture).unwrap();
    for wanted in [
        "a &amp; b",
        "<title>all: 4 samples, 100.00 %</title>",
        "<title>kernel 0: 3 samples, 75.00 %</title>",
        "<title>a&lt;b&gt;: 3 samples, 75.00 %</title>",
        "<title>operator&lt; (x.so): 3 samples, 75.00 %</title><rect x=\"0.00\"",
        "<title>poll ([kernel]): 1 samples, 25.00 %</title><rect x=\"900.00\"",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
fn a_chain_that_never_ends_does_not_end_the_drawer() {
    let mut made = Made::new();
    let calls = vec![("/usr/bin/prog", "again"); 200_000];
    made.add(0, "prog", 7, 1, Doing::User, &calls);
    made.flame.write(&made.functions, "", &mut Vec::new()).unwrap();
}

#[test]
fn the_text_is_what_perf_script_prints() {
    let mut made = Made::new();
    made.add(2, "my prog", 7, 2, Doing::User, &[("/bin/p", "leaf"), ("[unknown]", "[unknown]")]);
    let mut text = Vec::new();
    std::mem::swap(&mut text, made.script.buffer());
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "my prog 7/7 [002] 1.500000: 2000000 cpu-clock:\n\t              10 leaf+0x4 (/bin/p)\n\t              10 [unknown] ([unknown])\n\n"
    );
}

#[test]
fn functions_of_a_real_file_are_found() {
    let own = std::env::current_exe().unwrap();
    let image = Image::read(&own, Path::new(ROOT)).unwrap();
    let bytes = fs::read(&own).unwrap();
    let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&bytes).unwrap();
    let (symbols, names) = file.symbol_table().unwrap().unwrap();
    let named = |symbol: &elf::symbol::Symbol| names.get(symbol.st_name as usize).is_ok_and(|name| name == "main");
    let main = symbols.iter().find(named).unwrap();
    assert_eq!(image.function(main.st_value + 1), Some(("main", 1)));
    assert_eq!(image.function(1), None);
    // Loaded at any page, an address of the code is its address in the file again.
    let code = file.segments().unwrap().iter().find(|segment| segment.p_flags & elf::abi::PF_X != 0).unwrap();
    let at = 0x5555_0000_0000;
    let bias = image.bias(at, code.p_offset & !0xfff).unwrap();
    assert_eq!(at + (code.p_offset & 0xfff) - bias, code.p_vaddr);
    // And the space says so.
    let (mut images, mut space) = (Images::new(PathBuf::from(ROOT)), Space::default());
    space.map(at, code.p_filesz, code.p_offset & !0xfff, own.to_str().unwrap());
    let found = space.find(main.st_value + bias, &mut images).unwrap();
    assert_eq!(found.function, Some(("main", 0)));
    assert!(Image::read(Path::new("/etc/passwd"), Path::new(ROOT)).is_none());
}

#[test]
fn what_is_mapped_later_replaces_what_it_overlaps() {
    let (mut images, mut space) = (Images::new(PathBuf::from(ROOT)), Space::default());
    space.map(0x1000, 0x3000, 0, "/old");
    let child = space.fork();
    space.map(0x2000, 0x1000, 0x5000, "/new");
    let path = |space: &mut Space, images: &mut Images, at| space.find(at, images).map(|known| known.path.to_string());
    assert_eq!(path(&mut space, &mut images, 0x1000), None);
    let found = space.find(0x2010, &mut images).unwrap();
    assert_eq!((found.path, found.address), ("/new", 0x5010));
    let mut child = child;
    assert_eq!(path(&mut child, &mut images, 0x2010).as_deref(), Some("/old"));
}

/// The vDSO is in no file.
#[test]
fn the_caller_of_code_without_a_file_is_on_top_of_the_stack() {
    let (mut images, mut space, mut cache) = (Images::new(PathBuf::from(ROOT)), Space::default(), Cache::new_in());
    space.map(0x1000, 0x1000, 0, "[vdso]");
    space.map(0x8000, 0x1000, 0, "/program");
    let registers = Registers { pc: 0x1010, sp: 0x100, fp: 0 };
    let word = |word: u64| move |at: u64| (at == 0x100).then_some(word);
    let (chain, _) = space.unwind(registers, &word(0x8020), &mut images, &mut cache);
    assert_eq!(chain, [0x1010, 0x801f]);
    let (chain, _) = space.unwind(registers, &word(0x9999_9999), &mut images, &mut cache);
    assert_eq!(chain, [0x1010]);
}

#[test]
fn maps_of_made_code_are_read_as_perf_does() {
    let jit = Jit::parse("1000 20 LazyCompile:~main /a b.js:1\n0x1020 10 next\nbad\n1000 20 newer\n");
    assert_eq!(jit.function(0x1000), Some(("newer", 0)));
    assert_eq!(jit.function(0x102f), Some(("next", 15)));
    assert_eq!(jit.function(0x1030), None);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("perf-7.map"), "10 10 f\n").unwrap();
    let before = SystemTime::now() - Duration::from_secs(60);
    assert!(Jit::read(directory.path(), 7, before).function(0x10).is_some());
    // Of another process that had the number before.
    assert!(Jit::read(directory.path(), 7, SystemTime::now() + Duration::from_secs(60)).function(0x10).is_none());
}

#[test]
fn what_of_a_stack_has_not_come_yet_is_as_it_was_before() {
    let mut stacks = Stacks::default();
    let piece = |from, words: &[u64]| {
        let mut piece = Piece::default();
        piece.add(from, words);
        piece
    };
    // Two pages, seen on one kernel; then the thread calls on another one, which has the first page only.
    stacks.remember(7, 0x1ff8, piece(0x1ff8, &[1, 2, 3]));
    stacks.remember(7, 0x1ff0, piece(0x1ff0, &[8, 9]));
    let words = |stacks: &Stacks| [0x1ff0, 0x1ff8, 0x2000, 0x2008, 0x2010].map(|at| stacks.word(7, at));
    assert_eq!(words(&stacks), [Some(8), Some(9), Some(2), Some(3), None]);
    assert_eq!(stacks.word(8, 0x2000), None);
    // It returns, and what was below is nothing.
    stacks.remember(7, 0x2008, piece(0x2008, &[4]));
    assert_eq!(words(&stacks), [None, None, None, Some(4), None]);
}
