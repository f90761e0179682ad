//! Groups that reduce what they compute element by element.

use super::{Anchor, Resolver};
use crate::BackendError;
use crate::cpu::graph::Group;
use crate::cpu::map_reduce::MapReduce;
use crate::cpu::registry;
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Value};
use mlc_dsl::library::OpClass;
use std::collections::HashSet;

/// The parts of such a group.
struct Parts {
    /// What computes the operand.
    head: Vec<NodeId>,
    reduction: NodeId,
    /// What follows.
    tail: Vec<NodeId>,
}

impl Resolver<'_> {
    /// Launches a group as one map and reduction; false if it is none, and nothing is done then but views.
    pub(super) fn mapped(&mut self, group: &Group) -> Result<bool, BackendError> {
        let Some(parts) = self.parts_of(group) else { return Ok(false) };
        if !self.views(group)? {
            return Ok(false);
        }
        let node = self.graph.program.node(parts.reduction);
        let NodeKind::Apply(call, attrs) = &node.kind else { return Ok(false) };
        let shape = |v: Value| self.symbols.shape(self.graph.program.ty(v));
        let result = Value { node: parts.reduction, output: 0 };
        let (Some((_, from)), Some((_, to))) = (shape(node.args[0]), shape(result)) else {
            return Ok(false);
        };
        let Some(monoid) = registry::monoid(&self.library.call(*call).name) else {
            return Ok(false);
        };
        let Some(axes) = attrs.first().and_then(|a| self.symbols.attr(a).as_i64s()) else {
            return Ok(false);
        };
        let axes: Vec<usize> = axes.into_iter().map(|a| a as usize).collect();
        let Some((map, inputs, outs)) = self.fuse(&parts.head, &from, None)? else {
            return Ok(false);
        };
        let [(made, DType::F32)] = outs.as_slice() else { return Ok(false) };
        if *made != node.args[0] {
            return Ok(false);
        }
        let launch = Box::new(MapReduce::new(map, monoid, &from, &axes));
        let outputs = vec![(DType::F32, to.clone())];
        self.launch_before(Anchor { launch, args: inputs, outputs, result }, &parts.tail, &to)?;
        Ok(true)
    }

    /// The parts of a group of pointwise operators around one reduction of f32.
    fn parts_of(&self, group: &Group) -> Option<Parts> {
        let program = &self.graph.program;
        let (mut reduction, mut pointwise) = (None, Vec::new());
        for &id in &group.nodes {
            let NodeKind::Apply(call, _) = &program.node(id).kind else { continue };
            let call = self.library.call(*call);
            match call.class {
                OpClass::View => {}
                OpClass::Pointwise => pointwise.push(id),
                _ if registry::monoid(&call.name).is_some() && reduction.is_none() => {
                    reduction = Some(id);
                }
                _ => return None,
            }
        }
        let reduction = reduction?;
        let operand = *program.node(reduction).args.first()?;
        if program.ty(operand).dtype != DType::F32 {
            return None;
        }
        let mut before: HashSet<NodeId> = HashSet::from([operand.node]);
        for &id in pointwise.iter().rev().filter(|id| **id < reduction) {
            if before.contains(&id) {
                before.extend(program.node(id).args.iter().map(|a| a.node));
            }
        }
        let (head, tail): (Vec<NodeId>, Vec<NodeId>) =
            pointwise.into_iter().partition(|id| before.contains(id));
        (!head.is_empty()).then_some(Parts { head, reduction, tail })
    }

    /// Places the views of a group; false if one shows what the group computes itself.
    fn views(&mut self, group: &Group) -> Result<bool, BackendError> {
        for &id in &group.nodes {
            let node = self.graph.program.node(id);
            let NodeKind::Apply(call, attrs) = &node.kind else { continue };
            if self.library.call(*call).class != OpClass::View {
                continue;
            }
            let result = Value { node: id, output: 0 };
            if self.places.contains_key(&result) {
                continue;
            }
            let known = node.args.iter().all(|a| self.places.contains_key(a));
            let Some((_, shape)) = self.symbols.shape(&node.types[0]).filter(|_| known) else {
                return Ok(false);
            };
            let attrs: Vec<Attr> = attrs.iter().map(|a| self.symbols.attr(a)).collect();
            if !self.view(id, &attrs, &shape)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
