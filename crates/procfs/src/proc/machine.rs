//! The machine: what all kernels have and have done, added up.

use super::{
    made::{put, Text},
    Proc, TICK_NS,
};
use ::machine::{errno::Result, BoxFuture, CpuId, KernelId};
use ::process::load::ONE;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::Caller;
use messages::control::{KernelStatus, Status};

type Maker = fn(Arc<Proc>, Caller) -> BoxFuture<'static, Result<Vec<u8>>>;

macro_rules! files {
    ($($name:literal $make:path;)*) => {
        &[$(($name, |proc, caller| Box::pin($make(proc, caller)))),*]
    };
}

pub(super) const FILES: &[(&str, Maker)] = files! {
    "meminfo" meminfo;
    "stat" stat;
    "uptime" uptime;
    "loadavg" loadavg;
    "version" version;
    "filesystems" filesystems;
    "cmdline" command_line;
    "devices" devices;
    "partitions" partitions;
    "diskstats" diskstats;
    "swaps" swaps;
    "interrupts" interrupts;
    "vmstat" vmstat;
    "cpuinfo" cpuinfo;
};

async fn cpuinfo(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let cpus: Vec<CpuId> = proc.system.all_cpus().iter().collect();
    Ok((proc.cpuinfo)(&*proc.system.cpu, &cpus).into_bytes())
}

/// What every kernel has done so far; those that die meanwhile are left out.
pub(crate) async fn statuses(system: &::process::System) -> Vec<(KernelId, KernelStatus)> {
    let mut all = alloc::vec![(system.kernel, system.status())];
    for kernel in system.others() {
        if let Ok(status) = system.endpoint.call(kernel, Status {}).await {
            all.push((kernel, status));
        }
    }
    all.sort_by_key(|(kernel, _)| *kernel);
    all
}

/// Time of one CPU since the machine started.
struct CpuTime {
    cpu: CpuId,
    user: u64,
    system: u64,
    idle: u64,
}

/// Times of all CPUs, by number. What is neither idle nor user is the kernel's.
fn cpu_times(all: &[(KernelId, KernelStatus)]) -> Vec<CpuTime> {
    let mut times: Vec<CpuTime> = all
        .iter()
        .flat_map(|(_, status)| {
            status.cpus.iter().enumerate().map(|(index, &cpu)| {
                let of = |list: &[u64]| list.get(index).copied().unwrap_or(0);
                let (user, idle) = (of(&status.user_ns), of(&status.idle_ns));
                CpuTime { cpu, user, idle, system: status.uptime_ns.saturating_sub(user + idle) }
            })
        })
        .collect();
    times.sort_by_key(|time| time.cpu);
    times
}

async fn stat(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let started = proc.system.realtime_offset() / 1_000_000_000;
    Ok(stat_text(&all, started))
}

fn stat_text(all: &[(KernelId, KernelStatus)], started: u64) -> Vec<u8> {
    let times = cpu_times(all);
    let mut text = Text::default();
    let mut row = |name: &str, number: Option<u32>, user: u64, system: u64, idle: u64| {
        put!(text, "{name}");
        if let Some(number) = number {
            put!(text, "{number}");
        }
        put!(text, " {} 0 {} {} 0 0 0 0 0 0\n", user / TICK_NS, system / TICK_NS, idle / TICK_NS);
    };
    let sum = |what: fn(&CpuTime) -> u64| times.iter().map(what).sum();
    // Two spaces, and only here.
    row("cpu ", None, sum(|time| time.user), sum(|time| time.system), sum(|time| time.idle));
    for time in &times {
        row("cpu", Some(time.cpu.0), time.user, time.system, time.idle);
    }
    let total = |what: fn(&KernelStatus) -> u64| all.iter().map(|(_, status)| what(status)).sum::<u64>();
    put!(
        text,
        "intr {}\nctxt {}\nbtime {started}\n",
        total(|status| status.doorbells_sent),
        total(|status| status.switches)
    );
    let running = total(|status| status.load);
    put!(text, "processes {}\nprocs_running {running}\nprocs_blocked 0\n", total(|status| status.threads_started));
    put!(text, "softirq 0 0 0 0 0 0 0 0 0 0 0\n");
    text.0
}

async fn meminfo(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let total = all.iter().map(|(_, status)| status.memory_total).sum();
    let free = all.iter().map(|(_, status)| status.memory_free).sum();
    let dirty = proc.services.flusher.dirty() as u64 * ::machine::PAGE_SIZE as u64;
    Ok(meminfo_text(total, free, dirty))
}

/// Only what is counted: page caches are part of what is used.
fn meminfo_text(total: u64, free: u64, dirty: u64) -> Vec<u8> {
    let mut text = Text::default();
    let rows = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", 0),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", dirty),
        ("Writeback", 0),
        ("Shmem", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("CommitLimit", total),
    ];
    for (name, bytes) in rows {
        put!(text, "{:<15} {:>8} kB\n", alloc::format!("{name}:"), bytes / 1024);
    }
    for (name, count) in [("HugePages_Total", 0), ("HugePages_Free", 0)] {
        put!(text, "{:<16}{count:>8}\n", alloc::format!("{name}:"));
    }
    put!(text, "{:<15} {:>8} kB\n", "Hugepagesize:", 2048);
    text.0
}

async fn uptime(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let idle = all.iter().flat_map(|(_, status)| &status.idle_ns).sum::<u64>();
    let mut text = Text::default();
    let hundredths = |ns: u64| (ns / 1_000_000_000, ns / 10_000_000 % 100);
    let (up, idle) = (hundredths(proc.system.now()), hundredths(idle));
    put!(text, "{}.{:02} {}.{:02}\n", up.0, up.1, idle.0, idle.1);
    Ok(text.0)
}

async fn loadavg(proc: Arc<Proc>, caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let mut text = Text::default();
    for which in 0..3 {
        let average = all.iter().map(|(_, status)| status.averages[which]).sum::<u64>();
        let rounded = average + ONE / 200;
        put!(text, "{}.{:02} ", rounded / ONE, rounded % ONE * 100 / ONE);
    }
    let running = all.iter().map(|(_, status)| status.load).sum::<u64>();
    let threads = all.iter().map(|(_, status)| status.threads_now).sum::<u64>();
    put!(text, "{running}/{threads} {}\n", caller.process);
    Ok(text.0)
}

async fn version(_proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "Linux version {} (cob) (rustc) {}\n", abi::RELEASE, abi::VERSION);
    Ok(text.0)
}

async fn filesystems(_proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    for kind in ["sysfs", "tmpfs", "proc", "devtmpfs", "devpts", "pipefs", "sockfs", "9p", "overlay"] {
        put!(text, "nodev\t{kind}\n");
    }
    put!(text, "\text4\n");
    Ok(text.0)
}

async fn command_line(_proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    Ok(b"\n".to_vec())
}

async fn devices(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "Character devices:\n");
    for (major, name) in
        [(1, "mem"), (5, "/dev/tty"), (5, "/dev/console"), (5, "/dev/ptmx"), (10, "misc"), (136, "pts")]
    {
        put!(text, "{major:3} {name}\n");
    }
    put!(text, "\nBlock devices:\n");
    let volumes = proc.disks.list();
    let has = |major: u32| volumes.iter().any(|volume| volume.number().0 == major);
    for (major, name) in [(1, "ramdisk"), (7, "loop"), (254, "virtblk"), (fs::block::EXTENDED_MAJOR, "blkext")] {
        if has(major) || major == fs::block::EXTENDED_MAJOR {
            put!(text, "{major:3} {name}\n");
        }
    }
    Ok(text.0)
}

async fn partitions(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "major minor  #blocks  name\n\n");
    // Linux leaves out what has no bytes now.
    for volume in proc.disks.list().iter().filter(|volume| volume.sectors() > 0) {
        let (major, minor) = volume.number();
        put!(text, "{major:4}  {minor:7} {:10} {}\n", volume.sectors() / 2, volume.name());
    }
    Ok(text.0)
}

async fn diskstats(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    for (volume, numbers) in proc.disks.counts().await {
        let (major, minor) = volume.number();
        put!(text, "{major:4} {minor:7} {}", volume.name());
        numbers.iter().for_each(|number| put!(text, " {number}"));
        put!(text, "\n");
    }
    Ok(text.0)
}

async fn swaps(_proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    Ok(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n".to_vec())
}

/// Interrupts between kernels are all that is counted, per kernel: shown at the first CPU of the sender.
async fn interrupts(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let mut cpus: Vec<(CpuId, u64)> = all
        .iter()
        .flat_map(|(_, status)| {
            status
                .cpus
                .iter()
                .enumerate()
                .map(|(index, &cpu)| (cpu, if index == 0 { status.doorbells_sent } else { 0 }))
        })
        .collect();
    cpus.sort_unstable();
    let mut text = Text::default();
    text.bytes(b"    ");
    for (cpu, _) in &cpus {
        put!(text, "       {:<4}", alloc::format!("CPU{}", cpu.0));
    }
    text.bytes(b"\nDBL:");
    for (_, count) in &cpus {
        put!(text, " {count:>10}");
    }
    text.bytes(b"   Doorbells rung\n");
    Ok(text.0)
}

async fn vmstat(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let all = statuses(&proc.system).await;
    let sum = |what: fn(&KernelStatus) -> u64| all.iter().map(|(_, status)| what(status)).sum::<u64>();
    let mut text = Text::default();
    let rows = [
        ("nr_free_pages", sum(|status| status.memory_free) / ::machine::PAGE_SIZE as u64),
        ("pgpgin", 0),
        ("pgpgout", 0),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgfault", sum(|status| status.faults_local + status.faults_remote)),
        ("pgmajfault", 0),
    ];
    for (name, value) in rows {
        put!(text, "{name} {value}\n");
    }
    Ok(text.0)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::string::String;

    fn kernels() -> Vec<(KernelId, KernelStatus)> {
        let second = 1_000_000_000;
        let status = |cpus: &[u32]| KernelStatus {
            uptime_ns: 10 * second,
            cpus: cpus.iter().copied().map(CpuId).collect(),
            idle_ns: alloc::vec![6 * second; cpus.len()],
            user_ns: alloc::vec![3 * second; cpus.len()],
            ..KernelStatus::default()
        };
        alloc::vec![(KernelId(0), status(&[0, 2])), (KernelId(1), status(&[1]))]
    }

    #[test]
    fn cpu_lines_are_in_order_and_add_up() {
        let text = String::from_utf8(stat_text(&kernels(), 42)).expect("ASCII");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cpu  900 0 300 1800 0 0 0 0 0 0");
        for (index, line) in lines[1..4].iter().enumerate() {
            assert_eq!(*line, alloc::format!("cpu{index} 300 0 100 600 0 0 0 0 0 0"));
        }
        let host = std::fs::read_to_string("/proc/stat").expect("the host has /proc");
        let first = |text: &str| -> Vec<String> {
            text.lines()
                .map(|line| line.split(' ').next().unwrap_or("").into())
                .filter(|word: &String| !word.starts_with("cpu"))
                .collect()
        };
        assert_eq!(first(&text), first(&host));
    }

    #[test]
    fn every_line_of_meminfo_looks_like_the_hosts() {
        let host = std::fs::read_to_string("/proc/meminfo").expect("the host has /proc");
        let shape = |line: &str| line.split(|byte: char| byte.is_ascii_digit()).map(String::from).collect::<Vec<_>>();
        for line in String::from_utf8(meminfo_text(1 << 34, 1 << 33, 0)).expect("ASCII").lines() {
            let name = line.split(':').next().expect("a name");
            let theirs = host.lines().find(|other| other.split(':').next() == Some(name)).expect(name);
            assert_eq!(line.len(), theirs.len(), "{line} and {theirs}");
            assert_eq!(shape(line).last(), shape(theirs).last());
        }
    }
}
