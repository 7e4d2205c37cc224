//! The files of a group.

use super::Place;
use crate::proc::made::{put, Text};
use ::process::cgroup::{Controllers, Group, MemoryEvents, Tree, PROCS, PROCS_MODE};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    synthetic::{Changes, Content},
    Caller,
};
use machine::{errno::Result, BoxFuture, Errno, GroupId, Pid, PAGE_SIZE};

/// PID_MAX_LIMIT.
const PID_MAX: u32 = 1 << 22;

/// A file that groups have.
pub(super) struct File {
    pub name: &'static str,
    pub mode: u32,
    /// The groups that have it.
    of: Of,
    what: What,
}

enum Of {
    All,
    /// All but the root.
    BelowRoot,
    /// Those whose parent has enabled it, so never the root.
    Controller(Controllers),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Controllers,
    Enabled,
    Events,
    Kill,
    MaxDepth,
    MaxDescendants,
    Processes,
    Threads,
    Stat,
    Type,
    PidsMax,
    PidsCurrent,
    PidsPeak,
    PidsEvents,
    PidsEventsHere,
    MemoryCurrent,
    MemoryEvents,
    MemoryEventsHere,
    MemoryHigh,
    MemoryMax,
    MemoryOomGroup,
    MemoryPeak,
    MemoryReclaim,
    MemoryStat,
}

const fn file(name: &'static str, mode: u32, of: Of, what: What) -> File {
    File { name, mode, of, what }
}

const MEMORY: Controllers = Controllers::MEMORY;
const PIDS: Controllers = Controllers::PIDS;

pub(super) const FILES: &[File] = &[
    file("cgroup.controllers", 0o444, Of::All, What::Controllers),
    file("cgroup.events", 0o444, Of::BelowRoot, What::Events),
    file("cgroup.kill", 0o200, Of::BelowRoot, What::Kill),
    file("cgroup.max.depth", 0o644, Of::All, What::MaxDepth),
    file("cgroup.max.descendants", 0o644, Of::All, What::MaxDescendants),
    file(PROCS, PROCS_MODE, Of::All, What::Processes),
    file("cgroup.stat", 0o444, Of::All, What::Stat),
    file("cgroup.subtree_control", 0o644, Of::All, What::Enabled),
    file("cgroup.threads", 0o644, Of::All, What::Threads),
    file("cgroup.type", 0o644, Of::BelowRoot, What::Type),
    file("memory.current", 0o444, Of::Controller(MEMORY), What::MemoryCurrent),
    file("memory.events", 0o444, Of::Controller(MEMORY), What::MemoryEvents),
    file("memory.events.local", 0o444, Of::Controller(MEMORY), What::MemoryEventsHere),
    file("memory.high", 0o644, Of::Controller(MEMORY), What::MemoryHigh),
    file("memory.max", 0o644, Of::Controller(MEMORY), What::MemoryMax),
    file("memory.oom.group", 0o644, Of::Controller(MEMORY), What::MemoryOomGroup),
    file("memory.peak", 0o444, Of::Controller(MEMORY), What::MemoryPeak),
    file("memory.reclaim", 0o200, Of::Controller(MEMORY), What::MemoryReclaim),
    file("memory.stat", 0o444, Of::Controller(MEMORY), What::MemoryStat),
    file("pids.current", 0o444, Of::Controller(PIDS), What::PidsCurrent),
    file("pids.events", 0o444, Of::Controller(PIDS), What::PidsEvents),
    file("pids.events.local", 0o444, Of::Controller(PIDS), What::PidsEventsHere),
    file("pids.max", 0o644, Of::Controller(PIDS), What::PidsMax),
    file("pids.peak", 0o444, Of::Controller(PIDS), What::PidsPeak),
];

impl File {
    /// What tells of its changes.
    pub fn changes<'a>(&self, group: &'a Group) -> Option<&'a Arc<Changes>> {
        match self.what {
            What::Events => Some(&group.events),
            What::MemoryEvents => Some(&group.memory.changes),
            What::MemoryEventsHere => Some(&group.memory.changes_here),
            _ => None,
        }
    }

    /// Whether the group has it.
    pub fn is_in(&self, tree: &Tree, group: GroupId) -> bool {
        match self.of {
            Of::All => true,
            Of::BelowRoot => !group.is_root(),
            Of::Controller(controller) => !group.is_root() && tree.available(group).contains(controller),
        }
    }
}

/// What controllers are called.
const NAMES: [(&str, Controllers); 2] = [("memory", Controllers::MEMORY), ("pids", Controllers::PIDS)];

fn put_controllers(text: &mut Text, which: Controllers) {
    let names: Vec<&str> = NAMES.iter().filter(|(_, one)| which.contains(*one)).map(|(name, _)| *name).collect();
    if !names.is_empty() {
        put!(text, "{}\n", names.join(" "));
    }
}

/// A limit as it is read: `max` if there is none.
fn put_limit(text: &mut Text, limit: Option<u32>) {
    match limit {
        Some(limit) => put!(text, "{limit}\n"),
        None => put!(text, "max\n"),
    }
}

/// A limit of memory, in pages, as bytes.
fn put_bytes(text: &mut Text, pages: Option<u64>) {
    match pages {
        Some(pages) => put!(text, "{}\n", pages * PAGE_SIZE as u64),
        None => put!(text, "max\n"),
    }
}

fn put_memory_events(text: &mut Text, events: &MemoryEvents) {
    let MemoryEvents { high, max, oom, oom_kill, oom_group_kill } = events;
    put!(text, "low 0\nhigh {high}\nmax {max}\noom {oom}\noom_kill {oom_kill}\noom_group_kill {oom_group_kill}\n");
}

/// A limit of memory as it is written: bytes, perhaps with a unit. In pages.
fn pages(text: &str) -> Result<Option<u64>> {
    if text == "max" {
        return Ok(None);
    }
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let bytes = u64::try_from(number(digits).map_err(|_| Errno::EINVAL)?).map_err(|_| Errno::EINVAL)?;
    Ok(Some(bytes.saturating_mul(1 << shift) / PAGE_SIZE as u64))
}

/// What was written, without spaces around it.
fn words(data: &[u8]) -> Result<&str> {
    core::str::from_utf8(data).map(str::trim).map_err(|_| Errno::EINVAL)
}

/// A number in C's notation, as kstrtoint takes it.
fn number(text: &str) -> Result<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return Err(Errno::EINVAL);
    }
    let number = i64::from_str_radix(digits, radix).map_err(|error| match error.kind() {
        core::num::IntErrorKind::PosOverflow => Errno::ERANGE,
        _ => Errno::EINVAL,
    })?;
    Ok(if negative { -number } else { number })
}

/// A limit as it is written.
fn limit(text: &str, below: i64, error: Errno) -> Result<Option<u32>> {
    match text {
        "max" => Ok(None),
        text => match number(text)? {
            limit if (0..below).contains(&limit) => Ok(Some(limit as u32)),
            _ => Err(error),
        },
    }
}

/// What cgroup.subtree_control is to add and to remove.
fn changes(text: &str) -> Result<(Controllers, Controllers)> {
    let (mut add, mut remove) = (Controllers::empty(), Controllers::empty());
    for word in text.split_ascii_whitespace() {
        let (sign, name) = word.split_at_checked(1).ok_or(Errno::EINVAL)?;
        let (_, one) = NAMES.iter().find(|(known, _)| *known == name).ok_or(Errno::EINVAL)?;
        // The last word about a controller counts.
        add.set(*one, sign == "+");
        remove.set(*one, sign == "-");
        if sign != "+" && sign != "-" {
            return Err(Errno::EINVAL);
        }
    }
    Ok((add, remove))
}

pub(super) struct GroupFile {
    pub place: Place,
    pub file: &'static File,
    /// Of cgroup.events.
    pub changes: Option<Arc<Changes>>,
}

impl GroupFile {
    fn text(&self, tree: &Tree, id: GroupId, group: &Group) -> Vec<u8> {
        let mut text = Text::default();
        match self.file.what {
            What::Controllers => put_controllers(&mut text, tree.available(id)),
            What::Enabled => put_controllers(&mut text, group.enabled),
            What::Events => put!(text, "populated {}\nfrozen 0\n", u8::from(group.is_populated())),
            What::MaxDepth => put_limit(&mut text, group.max_depth),
            What::MaxDescendants => put_limit(&mut text, group.max_descendants),
            What::Stat => {
                let (descendants, kept) = group.descendants();
                put!(text, "nr_descendants {descendants}\nnr_dying_descendants {kept}\n");
            }
            What::Type => put!(text, "domain\n"),
            What::PidsMax => put_limit(&mut text, group.pids.max),
            What::PidsCurrent => put!(text, "{}\n", group.pids.current),
            What::PidsPeak => put!(text, "{}\n", group.pids.peak),
            What::PidsEvents => put!(text, "max {}\n", group.pids.refused),
            What::PidsEventsHere => put!(text, "max {}\n", group.pids.refused_here),
            What::MemoryEvents => put_memory_events(&mut text, &group.memory.events),
            What::MemoryEventsHere => put_memory_events(&mut text, &group.memory.events_here),
            What::MemoryHigh => put_bytes(&mut text, group.memory.high),
            What::MemoryMax => put_bytes(&mut text, group.memory.max),
            What::MemoryOomGroup => put!(text, "{}\n", u8::from(group.memory.all_end)),
            What::MemoryCurrent | What::MemoryPeak | What::MemoryStat => {}
            What::Kill | What::MemoryReclaim | What::Processes | What::Threads => {}
        }
        text.0
    }

    /// memory.current and its kin, which all kernels are asked for.
    async fn usage(&self, group: GroupId) -> Result<Vec<u8>> {
        let mut text = Text::default();
        let [anonymous, file, shared] = self.place.system.cgroup_usage(group).await;
        let now = anonymous + file + shared;
        let peak = self.place.with(|tree, id| Ok(tree.change(id)?.memory.peak(now)))?;
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        match self.file.what {
            What::MemoryCurrent => put!(text, "{}\n", bytes(now)),
            What::MemoryPeak => put!(text, "{}\n", bytes(peak)),
            _ => {
                let (anon, all_files, shmem) = (bytes(anonymous), bytes(file + shared), bytes(shared));
                put!(
                    text,
                    "anon {anon}\nfile {all_files}\nkernel 0\nkernel_stack 0\npagetables 0\nsock 0\nshmem {shmem}\n"
                );
            }
        }
        Ok(text.0)
    }

    /// cgroup.procs or cgroup.threads.
    async fn members(&self, group: GroupId) -> Vec<u8> {
        let members = self.place.system.cgroup_members(group).await;
        let mut text = Text::default();
        match self.file.what {
            What::Threads => {
                let mut threads: Vec<Pid> = members.into_iter().flat_map(|(_, threads)| threads).collect();
                threads.sort_unstable();
                threads.iter().for_each(|thread| put!(text, "{thread}\n"));
            }
            _ => members.iter().for_each(|(process, _)| put!(text, "{process}\n")),
        }
        text.0
    }

    async fn attach(&self, caller: &Caller, text: &str) -> Result<()> {
        let system = &self.place.system;
        let id = u32::try_from(number(text).map_err(|_| Errno::EINVAL)?).map_err(|_| Errno::EINVAL)?;
        let thread = if id == 0 { caller.thread } else { Pid(id) };
        // Any thread stands for its process.
        let process = match system.process_of(thread).await {
            Some(process) => process,
            None => thread,
        };
        let from = system.with_cgroups(|tree| tree.group_of(process));
        let to = self.place.with(|_, id| Ok(id))?;
        if self.file.what == What::Threads {
            system.process_of(thread).await.ok_or(Errno::ESRCH)?;
            // All threads of a process are in one group.
            return if from == to { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
        }
        self.place.with(|tree, to| tree.may_move(&caller.credentials, from, to))?;
        system.attach_to_cgroup(process, to).await
    }
}

impl Content for GroupFile {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            match self.file.what {
                What::Processes | What::Threads => {
                    let group = self.place.with(|_, id| Ok(id))?;
                    Ok(self.members(group).await)
                }
                What::MemoryCurrent | What::MemoryPeak | What::MemoryStat => {
                    let group = self.place.with(|_, id| Ok(id))?;
                    self.usage(group).await
                }
                _ => self.place.with(|tree, id| {
                    let group = tree.get(id).ok_or(Errno::ENODEV)?;
                    Ok(self.text(tree, id, group))
                }),
            }
        })
    }

    fn changes(&self) -> Option<&Arc<Changes>> {
        self.changes.as_ref()
    }

    fn takes_writes(&self) -> bool {
        self.file.mode & 0o200 != 0
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let text = words(data)?;
            let change = |change: &dyn Fn(&mut Group)| {
                self.place.with(|tree, id| {
                    change(tree.change(id)?);
                    Ok(())
                })
            };
            match self.file.what {
                What::Enabled => {
                    let (add, remove) = changes(text)?;
                    self.place.with(|tree, id| tree.enable(id, add, remove))?;
                }
                What::Kill => match number(text)? {
                    1 => {
                        let group = self.place.with(|_, id| Ok(id))?;
                        self.place.system.kill_cgroup(group).await;
                    }
                    _ => return Err(Errno::ERANGE),
                },
                What::MaxDepth => {
                    let most = limit(text, i64::from(i32::MAX), Errno::ERANGE)?;
                    change(&|group| group.max_depth = most)?;
                }
                What::MaxDescendants => {
                    let most = limit(text, i64::from(i32::MAX), Errno::ERANGE)?;
                    change(&|group| group.max_descendants = most)?;
                }
                What::PidsMax => {
                    let most = limit(text, i64::from(PID_MAX) + 1, Errno::EINVAL)?;
                    change(&|group| group.pids.max = most)?;
                }
                What::MemoryHigh => {
                    let high = pages(text)?;
                    change(&|group| group.memory.high = high)?;
                    let group = self.place.with(|_, id| Ok(id))?;
                    self.place.system.collect_surplus(group).await;
                }
                What::MemoryMax => {
                    let max = pages(text)?;
                    change(&|group| group.memory.max = max)?;
                    let group = self.place.with(|_, id| Ok(id))?;
                    self.place.system.shrink_cgroup(group, caller.thread).await;
                }
                What::MemoryReclaim => {
                    let wanted = pages(text)?.ok_or(Errno::EINVAL)?;
                    let group = self.place.with(|_, id| Ok(id))?;
                    self.place.system.reclaim_in_cgroup(group, wanted).await?;
                }
                What::MemoryOomGroup => match number(text)? {
                    all @ (0 | 1) => change(&|group| group.memory.all_end = all == 1)?,
                    _ => return Err(Errno::EINVAL),
                },
                What::Processes | What::Threads => self.attach(caller, text).await?,
                // Threads of a process can't be in several groups.
                What::Type => return Err(if text == "threaded" { Errno::EOPNOTSUPP } else { Errno::EINVAL }),
                _ => return Err(Errno::EINVAL),
            }
            Ok(data.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, value) in [("1", 1), ("+7", 7), ("-3", -3), ("0x10", 16), ("010", 8), ("0", 0)] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "-", "1a", "--1", "0x", "+-1", "1 2"] {
            assert_eq!(number(text), Err(Errno::EINVAL), "{text}");
        }
        assert_eq!(limit("max", 5, Errno::ERANGE), Ok(None));
        assert_eq!((limit("4", 5, Errno::ERANGE), limit("5", 5, Errno::ERANGE)), (Ok(Some(4)), Err(Errno::ERANGE)));
    }

    #[test]
    fn limits_of_memory_are_pages() {
        let cases = [
            ("max", Ok(None)),
            ("0", Ok(Some(0))),
            ("8191", Ok(Some(1))),
            ("1M", Ok(Some(256))),
            ("0x2000", Ok(Some(2))),
        ];
        for (text, limit) in cases {
            assert_eq!(pages(text), limit, "{text}");
        }
        for text in ["", "M", "-1", "1MM", "much"] {
            assert_eq!(pages(text), Err(Errno::EINVAL), "{text}");
        }
    }

    #[test]
    fn the_last_word_about_a_controller_counts() {
        assert_eq!(changes("+pids"), Ok((Controllers::PIDS, Controllers::empty())));
        assert_eq!(changes("+pids -pids"), Ok((Controllers::empty(), Controllers::PIDS)));
        assert_eq!(
            (changes("pids"), changes("+cpu"), changes("")),
            (Err(Errno::EINVAL), Err(Errno::EINVAL), Ok(Default::default()))
        );
    }
}
