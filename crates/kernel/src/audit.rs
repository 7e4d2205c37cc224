//! What is left when all programs have ended (`cob.audit=on`): it must be what there was before the first.
//!
//! Every kernel counts its records: processes, threads and shadows, spaces, descriptor tables, open files and stand-ins, files that
//! others hold, calls without an answer, and frames in use. What each kernel has of another's files must be what that one has
//! counted for it (`fs/src/remote/balance.rs`). Frames are counted after everything that can be had again was given back
//! (clean pages of files, copies of other kernels' files); what stays for a reason is counted exactly and taken off: the
//! heap's frames, the lanes of kernels that came meanwhile, and pages of files that exist only in memory, in frames of whichever kernel.
//!
//! Sockets that hold each other in messages are looked for at some ends only (`fs/src/socket/circles`), so that is done once more first.
//!
//! Ends take a moment: a notice may be under way, frames go home in batches. So what differs is looked at again, for a
//! while; what stays different is a leak, a line in the log, and `cob run` ends with status 125.

use crate::services::Kernel;
use abi::signal::{Signal, SignalInfo};
use alloc::{format, string::String, vec::Vec};
use machine::{KernelId, Pid};
use messages::control::{Stock, TakeStock};
use process::Target;

/// Looks at what differs, and the time between them.
const LOOKS: usize = 60;
const BETWEEN_NS: u64 = 50_000_000;
/// The name of their count.
const FRAMES: &str = "frames";

/// What this kernel has.
pub fn stock(kernel: &Kernel) -> Stock {
    kernel.services.reclaim(usize::MAX);
    kernel.remote.reclaim();
    kernel.system.vm.send_frames_home(1);
    let mut counts: Vec<(String, u64)> = Vec::new();
    let mut add = |what: &str, count: usize| counts.push((String::from(what), count as u64));
    for (what, count) in kernel.system.records() {
        add(what, count);
    }
    add("spaces", kernel.system.vm.spaces().len());
    add("files known elsewhere", kernel.remote.exported());
    add("open files", fs::anonymous::open_files() as usize);
    add("references under way", kernel.remote.under_way());
    add("futex waiters", kernel.system.futexes.waiting());
    let memory = &kernel.system.memory;
    let used = used_but_for_the_heap(kernel);
    let mut borrowed = kernel.services.pages();
    let own = borrowed.remove(&kernel.system.kernel).unwrap_or_default();
    for home in memory.stocked().into_iter().filter_map(|frame| memory.home_of(frame)) {
        *borrowed.entry(home).or_default() += 1;
    }
    let lasting = kernel.lanes.frames() + own;
    add(FRAMES, (used.saturating_sub(lasting)) as usize);
    add("audit faults", kernel.system.vm.audit_faults() as usize);
    Stock { counts, borrowed: borrowed.into_iter().collect(), held: kernel.remote.held(), lent: kernel.remote.lent() }
}

/// Frames in use, without the heap's. Both are counted of one moment: counting them needs memory itself, and the heap may grow for it or, on another CPU, at any time.
fn used_but_for_the_heap(kernel: &Kernel) -> u64 {
    loop {
        let heap = platform::heap::frames();
        let (total, free) = kernel.system.memory.totals();
        if platform::heap::frames() == heap {
            return (total - free).saturating_sub(heap);
        }
    }
}

/// Of all kernels.
pub async fn stocks(kernel: &'static Kernel) -> Vec<(KernelId, Stock)> {
    let mut all = Vec::from([(kernel.system.kernel, stock(kernel))]);
    for (id, answer) in kernel.endpoint.multicast(&kernel.endpoint.others(), TakeStock {}).await {
        all.extend(answer.map(|stock| (id, stock)));
    }
    let borrowed: Vec<_> = all.iter().flat_map(|(_, stock)| stock.borrowed.clone()).collect();
    for (home, frames) in borrowed {
        let lender = all.iter_mut().find(|(id, _)| *id == home);
        let counts = lender.into_iter().flat_map(|(_, stock)| &mut stock.counts);
        counts.filter(|(what, _)| what == FRAMES).for_each(|(_, count)| *count = count.saturating_sub(frames));
    }
    all
}

/// After the first program: ends what it has left running, and compares. None if all is as it was.
pub async fn compare(kernel: &'static Kernel, before: &[(KernelId, Stock)]) -> Option<String> {
    let kill = SignalInfo::kernel(Signal::KILL);
    // An error: there was nobody.
    let _ = kernel.system.signal(Target::All, Some(kill), None, Pid(0)).await;
    tell_stacks(kernel).await;
    let mut found = Vec::new();
    for _ in 0..LOOKS {
        linux::node::collect_sockets(&kernel.system).await;
        let after = stocks(kernel).await;
        found = differences(before, &after);
        found.extend(fs::remote::disagreements(&after));
        if found.is_empty() {
            return None;
        }
        kernel.scheduler.sleep_until(kernel.system.now() + BETWEEN_NS).await;
    }
    found.iter().for_each(|line| log::error!("audit: {line}"));
    Some(format!("audit: {}", found.join("; ")))
}

/// `cob test guest` reads this line, and bounds what it says.
async fn tell_stacks(kernel: &'static Kernel) {
    let statuses = crate::report::statuses(kernel).await;
    if let Some((id, status)) = statuses.iter().max_by_key(|(_, status)| status.deepest_stack) {
        let (most, bytes) = (status.deepest_stack, platform::stacks::STACK_BYTES);
        log::info!("stacks: at most {most} of {bytes} bytes, on kernel {id}");
    }
}

fn differences(before: &[(KernelId, Stock)], after: &[(KernelId, Stock)]) -> Vec<String> {
    let mut found = Vec::new();
    for (kernel, old) in before {
        let Some((_, new)) = after.iter().find(|(id, _)| id == kernel) else { continue };
        for ((what, was), (_, is)) in old.counts.iter().zip(&new.counts) {
            if was != is {
                found.push(format!("kernel {kernel}: {what}: {was} before, {is} after"));
            }
        }
    }
    found
}
