//! The kernels of a plan that are looked at once more, in the order in which they run: those that a symbol with another value occurs in, and those
//! that read what is found to be different. All others are not touched, for most of them are in no cache.

use crate::ir::{NodeId, NodeKind, Program, Value};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Where the values of a program come from and go to.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// The nodes of inputs.
    pub inputs: Vec<NodeId>,
    /// For each node, where the kernels that read it begin among all.
    first: Vec<usize>,
    kernels: Vec<usize>,
}

impl Readers {
    /// Of kernels that read these values each.
    pub fn of<'a>(program: &Program, reads: impl Iterator<Item = &'a [Value]>) -> Readers {
        let mut own = vec![vec![]; program.nodes.len()];
        for (k, values) in reads.enumerate() {
            values.iter().for_each(|v| own[v.node.0 as usize].push(k));
        }
        let mut out = Readers::default();
        for (i, mut kernels) in own.into_iter().enumerate() {
            kernels.dedup();
            out.first.push(out.kernels.len());
            out.kernels.append(&mut kernels);
            if let NodeKind::Input(_) = program.nodes[i].kind {
                out.inputs.push(NodeId(i as u32));
            }
        }
        out.first.push(out.kernels.len());
        out
    }

    /// The kernels that read a result of a node.
    fn readers(&self, node: NodeId) -> &[usize] {
        let at = node.0 as usize;
        &self.kernels[self.first[at]..self.first[at + 1]]
    }
}

/// Kernels that are left to look at.
pub struct Worklist<'a> {
    readers: &'a Readers,
    left: BinaryHeap<Reverse<usize>>,
}

impl<'a> Worklist<'a> {
    /// Begins with these kernels.
    pub fn new(readers: &'a Readers, first: impl Iterator<Item = usize>) -> Worklist<'a> {
        Worklist { readers, left: first.map(Reverse).collect() }
    }

    /// Adds what reads a node, which comes before it in the order of the kernels.
    pub fn differs(&mut self, node: NodeId) {
        self.left.extend(self.readers.readers(node).iter().copied().map(Reverse));
    }
}

impl Iterator for Worklist<'_> {
    type Item = usize;

    /// The next kernel, each once.
    fn next(&mut self) -> Option<usize> {
        let Reverse(next) = self.left.pop()?;
        while self.left.peek() == Some(&Reverse(next)) {
            self.left.pop();
        }
        Some(next)
    }
}
