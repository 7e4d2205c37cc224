//! All kernels' surveys put together, on the kernel that keeps the names.

use super::{
    super::OtherKernels,
    graph::{Graph, Mark, Pace},
};
use crate::FileRef;
use alloc::vec::Vec;
use core::ops::Range;
use machine::{collections::try_with_capacity, errno::Result, Errno, HashMap, KernelId};
use messages::fs::{SocketGraphEntry, SocketGraphPage};

/// Nodes in a message.
const NODES: usize = 512;

/// A round's surveys.
#[derive(Default)]
struct Round {
    /// Nodes that a kernel has not listed count as reached.
    graph: Graph,
    /// Where each kernel's nodes are.
    kernels: Vec<(KernelId, Range<usize>)>,
    /// Nodes of sockets that other kernels know, by their names.
    sockets: HashMap<FileRef, usize>,
    /// What owners say that other kernels have of them.
    lent: Vec<(FileRef, KernelId, u64)>,
    /// What those have: the stand-in's node, and its count.
    stand_ins: HashMap<(FileRef, KernelId), (usize, u64)>,
    listed: usize,
    /// The socket that the entries are of.
    current: Option<(usize, FileRef)>,
}

/// Those of a kernel that nobody reaches, some at a time, as that kernel numbers them.
struct Unreached {
    kernel: KernelId,
    nodes: Range<usize>,
    at: usize,
}

impl Round {
    async fn unreached(&self, some: &mut Unreached, pace: &mut Pace<'_>) -> Result<Vec<u32>> {
        let mut found = try_with_capacity(NODES.min(some.nodes.end - some.at))?;
        while some.at < some.nodes.end && found.len() < NODES {
            if self.graph.mark(some.at) == Mark::Unreached {
                found.push((some.at - some.nodes.start) as u32);
            }
            some.at += 1;
            pace.step().await;
        }
        Ok(found)
    }

    fn all_unreached(&self) -> impl Iterator<Item = Unreached> + '_ {
        self.kernels.iter().map(|(kernel, nodes)| Unreached { kernel: *kernel, nodes: nodes.clone(), at: nodes.start })
    }

    /// The next page of a kernel's survey.
    fn take(&mut self, kernel: KernelId, page: SocketGraphPage) -> Result<()> {
        let count = page.nodes as usize;
        if self.kernels.last().is_none_or(|(last, _)| *last != kernel) {
            let first = self.graph.len();
            for _ in 0..count {
                self.graph.add(Mark::Reached)?;
            }
            self.kernels.try_reserve(1).map_err(no_memory)?;
            self.kernels.push((kernel, first..first + count));
            self.current = None;
        }
        let nodes = self.kernels.last().map_or(0..0, |(_, nodes)| nodes.clone());
        let find = |node: u32| Some(nodes.start + node as usize).filter(|node| nodes.contains(node)).ok_or(Errno::EIO);
        for entry in page.entries {
            match entry {
                SocketGraphEntry::Socket { node, id } => {
                    let (node, name) = (find(node)?, FileRef { owner: kernel, id });
                    self.list(node);
                    self.current = Some((node, name));
                    if id != 0 {
                        self.sockets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                        self.sockets.insert(name, node);
                    }
                }
                SocketGraphEntry::Lent { holder, count } => {
                    let (_, name) = self.current.ok_or(Errno::EIO)?;
                    self.lent.try_reserve(1).map_err(no_memory)?;
                    self.lent.push((name, holder, count));
                }
                SocketGraphEntry::StandIn { node, file, count } => {
                    let node = find(node)?;
                    self.list(node);
                    self.current = None;
                    self.stand_ins.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    self.stand_ins.insert((file, kernel), (node, count));
                }
                SocketGraphEntry::Holds(child) => {
                    let (node, _) = self.current.ok_or(Errno::EIO)?;
                    self.graph.hold(node, find(child)?)?;
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, node: usize) {
        self.graph.set_mark(node, Mark::Unreached);
        self.graph.begin(node);
        self.listed += 1;
    }

    /// When all pages are there: a stand-in holds its socket, and a socket of which not all references are accounted for is reached.
    async fn join(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        for ((file, _), (node, _)) in &self.stand_ins {
            if let Some(socket) = self.sockets.get(file) {
                self.graph.begin(*node);
                self.graph.hold(*node, *socket)?;
            }
            pace.step().await;
        }
        let astray = |(name, holder, count): &&(FileRef, KernelId, u64)| {
            self.stand_ins.get(&(*name, *holder)).is_none_or(|(_, counted)| counted != count)
        };
        let users = self.lent.iter().filter(astray).filter_map(|(name, ..)| self.sockets.get(name).copied());
        self.graph.spread(Mark::Reached, users, pace).await
    }
}

fn no_memory(_: alloc::collections::TryReserveError) -> Errno {
    Errno::ENOMEM
}

/// What the next round will cost. An error: nothing is known, for a kernel has died, or has no memory for this.
pub(super) async fn run(others: &dyn OtherKernels, number: u64) -> Result<usize> {
    let done = look(others, number).await;
    for kernel in others.present().iter() {
        others.forget_survey(kernel, number);
    }
    done
}

async fn look(others: &dyn OtherKernels, number: u64) -> Result<usize> {
    let (mut pace, mut round) = (Pace::new(Some(others.spawner())), Round::default());
    for kernel in others.present().iter() {
        let mut from = Some((0, 0));
        while let Some(begin) = from {
            let page = others.survey(kernel, number, begin).await?;
            from = page.next;
            round.take(kernel, page)?;
            pace.step().await;
        }
    }
    round.join(&mut pace).await?;
    let mut gained = Vec::new();
    for mut some in round.all_unreached() {
        while some.at < some.nodes.end {
            let nodes = round.unreached(&mut some, &mut pace).await?;
            if nodes.is_empty() {
                continue;
            }
            let found = others.gained(some.kernel, number, nodes).await?;
            gained.try_reserve(found.len()).map_err(no_memory)?;
            gained.extend(found.into_iter().map(|node| some.nodes.start + node as usize));
        }
    }
    round.graph.spread(Mark::Reached, gained.into_iter(), &mut pace).await?;
    let mut ended = 0;
    for mut some in round.all_unreached() {
        while some.at < some.nodes.end {
            let nodes = round.unreached(&mut some, &mut pace).await?;
            ended += nodes.len();
            if !nodes.is_empty() {
                others.empty(some.kernel, number, nodes).await?;
            }
        }
    }
    // What has stayed is looked at again. A round asks each kernel: after one in vain there are to be as many suspicions before the next.
    let in_vain = if ended == 0 { 2 * round.kernels.len() } else { 0 };
    Ok(round.listed - ended + in_vain)
}
