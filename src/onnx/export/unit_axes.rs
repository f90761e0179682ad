//! Unit axes where they cost nothing: a reduction writes them itself, a reshape after what follows it is a
//! node of its own.
//!
//! `reshape(sqrt(mean(x)))` becomes `sqrt(reshape(mean(x)))`, which is written as two nodes, not three.

use super::graph::Graph;
use bytes::Bytes;
use mlc_dsl::ir::{Extent, NodeId, NodeKind, Tensor, Value};
use mlc_dsl::library::OpClass;

impl Graph<'_> {
    /// Moves every reshape that only adds unit axes down to the reduction that it follows.
    pub(crate) fn sink_unit_axes(&mut self) {
        // Chains share no node: each of a chain's nodes has one reader.
        let tops = (0..self.len()).map(|i| NodeId(i as u32));
        let chains: Vec<(NodeId, Vec<NodeId>)> =
            tops.filter_map(|t| Some((t, self.chain(t)?))).collect();
        for (top, chain) in &chains {
            self.sink(*top, chain);
        }
        if !chains.is_empty() {
            self.recount();
        }
    }

    /// The pointwise nodes from a reshape down to a reduction, each read by the one before alone.
    fn chain(&self, top: NodeId) -> Option<Vec<NodeId>> {
        let reshape = self.structural.reshape?;
        let x = self.applied(top).filter(|(c, _)| *c == reshape).map(|(_, args)| args[0])?;
        let shape = |id: NodeId| &self.node(id).types[0].shape;
        let wide = |id| shape(id).iter().filter(|e| !e.is(1)).cloned().collect::<Vec<Extent>>();
        if shape(top).len() <= shape(x.node).len() || wide(top) != wide(x.node) {
            return None;
        }
        let mut chain = Vec::new();
        let (mut reader, mut at) = (top, x.node);
        loop {
            let (call, args) = self.applied(at)?;
            if self.consumers(at) != [reader] || self.is_output(at) {
                return None;
            }
            match self.library.call(call).class {
                OpClass::Pointwise => {
                    let mut large = args.iter().filter(|v| self.is_large(**v));
                    let next = large.next()?;
                    if large.next().is_some() || self.ty(*next).shape != *shape(at) {
                        return None;
                    }
                    chain.push(at);
                    (reader, at) = (at, next.node);
                }
                OpClass::View | OpClass::Movement => return None,
                OpClass::Reduction | OpClass::Contraction | OpClass::Other => {
                    let drops = args.len() == 1 && self.ty(args[0]).rank() > shape(at).len();
                    return (drops && !chain.is_empty()).then_some(chain);
                }
            }
        }
    }

    /// Moves the nodes of a chain up by one place each and the reshape to the lowest: every node still stands after
    /// what it reads, and the last place still has what its readers want.
    fn sink(&mut self, top: NodeId, chain: &[NodeId]) {
        let shape = self.node(top).types[0].shape.clone();
        let mut places: Vec<NodeId> = chain.iter().rev().copied().collect();
        places.push(top);
        let reshape = self.take(top);
        let moved: Vec<_> = chain.iter().rev().map(|&id| self.take(id)).collect();
        let Some(&read) = moved[0].0.args.iter().find(|v| self.is_large(**v)) else { return };
        let mut below = reshape;
        below.0.args = vec![read];
        below.0.types[0].dtype = self.ty(read).dtype;
        self.put(places[0], below);
        for (i, mut node) in moved.into_iter().enumerate() {
            let from = Value { node: places[i], output: 0 };
            for a in &mut node.0.args {
                *a = match self.repeated(*a) {
                    Some(one) => self.add_const(one),
                    None if self.is_large(*a) => from,
                    None => *a,
                };
            }
            node.0.types[0].shape = shape.clone();
            self.put(places[i + 1], node);
        }
    }

    fn is_large(&self, v: Value) -> bool {
        self.ty(v).rank() > 0 && self.repeated(v).is_none()
    }

    /// The one element that a constant with axes repeats.
    fn repeated(&self, v: Value) -> Option<Tensor> {
        let t = self.constant(v).filter(|t| !t.shape().is_empty())?;
        let one = Bytes::copy_from_slice(t.splat()?);
        Tensor::new(t.dtype(), vec![], one).ok()
    }

    fn applied(&self, id: NodeId) -> Option<(mlc_dsl::library::CallId, &[Value])> {
        match &self.node(id).kind {
            NodeKind::Apply(call, _) => Some((*call, &self.node(id).args)),
            NodeKind::Const(_) | NodeKind::Input(_) => None,
        }
    }
}
