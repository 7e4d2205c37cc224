//! What one kernel knows of its sockets that hold each other.

use super::{
    super::{NetNamespace, OtherKernels, Socket},
    graph::{Graph, Mark, Pace},
};
use crate::File;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, Errno, HashMap, KernelSet};
use messages::fs::{SocketGraphEntry, SocketGraphPage};

/// Sockets that hold others, taken out of their table at a time.
const CHUNK: usize = 64;
/// Entries in a message; a socket has at most one more for each kernel.
const PAGE: usize = 256;

/// A socket of this kernel, or the stand-in of one.
struct SurveyedSocket {
    /// Whoever closes it meanwhile is to find it closed.
    file: Weak<dyn File>,
    /// When it was met first.
    gained: u64,
    /// References to it, and how many of them were found.
    references: usize,
    found: usize,
    /// Other kernels have references to it.
    lent: bool,
}

/// Who holds whom, and what of it can be reached.
pub(crate) struct Survey {
    graph: Graph,
    /// By node.
    seen: Vec<SurveyedSocket>,
}

fn address(file: &Arc<dyn File>) -> usize {
    Arc::as_ptr(file).cast::<()>().addr()
}

fn socket(file: &Arc<dyn File>) -> Option<&Socket> {
    file.as_any().downcast_ref()
}

/// How many times a file was referred to by others than the caller.
fn references(file: &Arc<dyn File>) -> usize {
    Arc::strong_count(file) - 1
}

struct Building {
    survey: Survey,
    nodes: HashMap<usize, usize>,
}

impl Building {
    fn node(&mut self, file: &Arc<dyn File>) -> Result<usize> {
        if let Some(node) = self.nodes.get(&address(file)) {
            return Ok(*node);
        }
        let no_memory = |_| Errno::ENOMEM;
        self.survey.seen.try_reserve(1).map_err(no_memory)?;
        self.nodes.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let gained = file.gained().ok_or(Errno::EINVAL)?.count();
        let node = self.survey.graph.add(Mark::Unreached)?;
        self.survey.seen.push(SurveyedSocket {
            file: Arc::downgrade(file),
            gained,
            references: 0,
            found: 0,
            lent: false,
        });
        self.nodes.insert(address(file), node);
        Ok(node)
    }

    /// Everything that holds others.
    async fn begin(&mut self, names: &NetNamespace, pace: &mut Pace<'_>) -> Result<()> {
        let mut above = 0;
        loop {
            let some = names.flight.some_holders(above, CHUNK);
            let Some((last, _)) = some.last() else { return Ok(()) };
            above = *last;
            for socket in some.iter().filter_map(|(_, socket)| socket.upgrade()) {
                let listener = socket.state.lock().listener.upgrade();
                let socket: Arc<dyn File> = socket;
                self.node(&socket)?;
                if let Some(listener) = listener {
                    let listener: Arc<dyn File> = listener;
                    self.node(&listener)?;
                }
            }
            pace.step().await;
        }
    }

    /// What the file of `node` holds; None if it has gone. Does it stay in any case?
    fn look_at(&mut self, node: usize, others: Option<&dyn OtherKernels>) -> Result<bool> {
        let Some(file) = self.survey.seen[node].file.upgrade() else { return Ok(false) };
        self.survey.graph.begin(node);
        self.survey.seen[node].references = references(&file);
        let Some(socket) = socket(&file) else { return Ok(false) };
        let loan = others.and_then(|others| others.loan_of(&file));
        self.survey.seen[node].lent = loan.is_some();
        let mut done = Ok(());
        socket.for_each_held(&mut |held| {
            let child = match done {
                Ok(()) => self.node(held),
                Err(_) => return,
            };
            done = child.and_then(|child| {
                self.survey.seen[child].found += 1;
                self.survey.graph.hold(node, child)
            });
        });
        done?;
        Ok(loan.is_some_and(|loan| !loan.settled))
    }
}

impl Survey {
    /// ENOMEM.
    pub async fn new(names: &NetNamespace, others: Option<&dyn OtherKernels>, pace: &mut Pace<'_>) -> Result<Self> {
        let survey = Survey { graph: Graph::default(), seen: Vec::new() };
        let mut building = Building { survey, nodes: HashMap::default() };
        building.begin(names, pace).await?;
        let mut unsettled = Vec::new();
        let mut node = 0;
        while node < building.survey.seen.len() {
            if building.look_at(node, others)? {
                unsettled.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                unsettled.push(node);
            }
            node += 1;
            pace.step().await;
        }
        let Survey { mut graph, seen } = building.survey;
        let used = |seen: &SurveyedSocket| seen.references != seen.found + usize::from(seen.lent);
        let users = (0..seen.len()).filter(|node| used(&seen[*node]));
        graph.spread(Mark::Reached, users.chain(unsettled), pace).await?;
        graph.spread(Mark::Elsewhere, (0..seen.len()).filter(|node| seen[*node].lent), pace).await?;
        Ok(Survey { graph, seen })
    }

    /// Empties the inboxes of what nobody reaches.
    pub async fn end_unreached(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let Survey { graph, seen } = self;
        let gained = (0..seen.len()).filter(|node| seen[*node].has_gained());
        graph.spread(Mark::Reached, gained, pace).await?;
        for (node, seen) in seen.iter().enumerate() {
            if graph.mark(node) == Mark::Unreached {
                seen.empty();
            }
            pace.step().await;
        }
        Ok(())
    }

    /// Whose sockets are held by what only other kernels reach. None: there is no circle over several kernels.
    pub async fn owners(&self, pace: &mut Pace<'_>) -> KernelSet {
        let mut owners = KernelSet::new();
        for (node, seen) in self.seen.iter().enumerate() {
            pace.step().await;
            if self.graph.mark(node) == Mark::Elsewhere
                && let Some(there) = seen.file.upgrade().and_then(|file| file.remote())
            {
                owners.insert(there.owner);
            }
        }
        owners
    }

    /// What hangs on other kernels, from this socket and this one of those that it holds on.
    pub async fn page(
        &self,
        others: &dyn OtherKernels,
        (node, held): (u32, u32),
        pace: &mut Pace<'_>,
    ) -> Result<SocketGraphPage> {
        let (mut at, mut skipped) = (node as usize, held as usize);
        let mut page = SocketGraphPage { nodes: self.seen.len() as u32, entries: Vec::new(), next: None };
        let room = PAGE + usize::from(u8::MAX);
        page.entries.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
        while at < self.seen.len() {
            pace.step().await;
            if page.entries.len() >= PAGE {
                page.next = Some((at as u32, skipped as u32));
                break;
            }
            if self.graph.mark(at) == Mark::Elsewhere {
                if skipped == 0 {
                    self.list(others, at, &mut page.entries);
                }
                let held = &self.graph.held(at)[skipped..];
                let fits = held.len().min(PAGE.saturating_sub(page.entries.len()).max(1));
                let hangs = |child: &&u32| self.graph.mark(**child as usize) == Mark::Elsewhere;
                page.entries.extend(held[..fits].iter().filter(hangs).map(|child| SocketGraphEntry::Holds(*child)));
                if fits < held.len() {
                    skipped += fits;
                    continue;
                }
            }
            (at, skipped) = (at + 1, 0);
        }
        Ok(page)
    }

    fn list(&self, others: &dyn OtherKernels, node: usize, entries: &mut Vec<SocketGraphEntry>) {
        let file = self.seen[node].file.upgrade();
        let node = node as u32;
        match file.as_ref().and_then(|file| file.remote()) {
            Some(file) => entries.push(SocketGraphEntry::StandIn { node, file, count: others.references(file) }),
            None => {
                let loan = file.and_then(|file| others.loan_of(&file)).unwrap_or_default();
                entries.push(SocketGraphEntry::Socket { node, id: loan.id });
                entries
                    .extend(loan.holders.into_iter().map(|(holder, count)| SocketGraphEntry::Lent { holder, count }));
            }
        }
    }

    fn of<'a>(&'a self, nodes: &'a [u32]) -> impl Iterator<Item = (u32, &'a SurveyedSocket)> {
        nodes.iter().filter_map(|node| Some((*node, self.seen.get(*node as usize)?)))
    }

    /// Those of `nodes` that have gained a reference since they were met.
    pub fn gained(&self, nodes: &[u32]) -> Vec<u32> {
        self.of(nodes).filter(|(_, seen)| seen.has_gained()).map(|(node, _)| node).collect()
    }

    /// Nobody reaches any of them.
    pub async fn empty(&self, nodes: &[u32], pace: &mut Pace<'_>) {
        for (_, seen) in self.of(nodes) {
            seen.empty();
            pace.step().await;
        }
    }
}

impl SurveyedSocket {
    fn has_gained(&self) -> bool {
        // What has gone was not received by anybody, and what it held has gained by that.
        self.file.upgrade().is_some_and(|file| file.gained().is_some_and(|gained| gained.count() != self.gained))
    }

    fn empty(&self) {
        let Some(file) = self.file.upgrade() else { return };
        if let Some(socket) = socket(&file) {
            let messages = socket.state.lock().take_messages();
            drop(messages);
        }
    }
}

impl Socket {
    /// Calls `visit` with each socket, or stand-in of one, that this one holds: those in the messages here, connections that nobody has
    /// accepted.
    fn for_each_held(&self, visit: &mut dyn FnMut(&Arc<dyn File>)) {
        let state = self.state.lock();
        state.inbox.sockets().for_each(&mut *visit);
        for waiting in state.waiting() {
            let waiting: Arc<dyn File> = waiting.clone();
            visit(&waiting);
        }
    }
}
