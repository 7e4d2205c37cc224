//! Who holds whom, and what can be reached.

use alloc::vec::Vec;
use core::ops::Range;
use machine::{collections::try_with_capacity, errno::Result, pause, Errno, Spawner};

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing that was looked at reaches it.
    Unreached,
    Reached,
    /// Reached from another kernel, if at all.
    Elsewhere,
}

struct Node {
    /// Its children, in [`Graph::edges`].
    held: Range<usize>,
    mark: Mark,
}

/// Users decide how many nodes and edges there are: ENOMEM.
#[derive(Default)]
pub struct Graph {
    nodes: Vec<Node>,
    edges: Vec<u32>,
}

impl Graph {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn add(&mut self, mark: Mark) -> Result<usize> {
        self.nodes.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.nodes.push(Node { held: 0..0, mark });
        Ok(self.nodes.len() - 1)
    }

    /// The edges that are added from now on, until the next `begin`, are of this node.
    pub fn begin(&mut self, node: usize) {
        self.nodes[node].held = self.edges.len()..self.edges.len();
    }

    /// `node`, which was begun last, holds `child`.
    pub fn hold(&mut self, node: usize, child: usize) -> Result<()> {
        self.edges.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.edges.push(child as u32);
        self.nodes[node].held.end = self.edges.len();
        Ok(())
    }

    pub fn held(&self, node: usize) -> &[u32] {
        &self.edges[self.nodes[node].held.clone()]
    }

    pub fn mark(&self, node: usize) -> Mark {
        self.nodes[node].mark
    }

    pub fn set_mark(&mut self, node: usize, mark: Mark) {
        self.nodes[node].mark = mark;
    }

    /// Marks what can be reached from `roots` and was not reached yet, them included.
    pub async fn spread(&mut self, mark: Mark, roots: impl Iterator<Item = usize>, pace: &mut Pace<'_>) -> Result<()> {
        // Each node once.
        let mut reached = try_with_capacity::<usize>(self.nodes.len())?;
        let reach = |nodes: &mut [Node], reached: &mut Vec<usize>, node: usize| {
            if nodes[node].mark == Mark::Unreached {
                nodes[node].mark = mark;
                reached.push(node);
            }
        };
        for root in roots {
            reach(&mut self.nodes, &mut reached, root);
            pace.step().await;
        }
        while let Some(node) = reached.pop() {
            for child in &self.edges[self.nodes[node].held.clone()] {
                reach(&mut self.nodes, &mut reached, *child as usize);
            }
            pace.step().await;
        }
        Ok(())
    }
}

/// Lets others run now and then, where this kernel's work is done by tasks.
pub struct Pace<'a> {
    spawner: Option<&'a dyn Spawner>,
    steps: usize,
}

impl<'a> Pace<'a> {
    /// Steps between two looks at the clock.
    const STRIDE: usize = if cfg!(test) { 1 } else { 32 };

    pub fn new(spawner: Option<&'a dyn Spawner>) -> Self {
        Pace { spawner, steps: 0 }
    }

    /// A step of less than a microsecond, mostly.
    pub async fn step(&mut self) {
        self.steps += 1;
        if let (Some(spawner), true) = (self.spawner, self.steps.is_multiple_of(Self::STRIDE)) {
            pause(spawner).await;
        }
    }
}
