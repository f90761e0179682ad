//! What does not change in a loop moves out of it.
//!
//! A node of a body that reads nothing of its loop is read as a node before the loop. That is done only where computing it
//! cannot fail, since the loop may run no time at all.

use super::super::Importer;
use super::super::value::NodeValue;
use crate::opaque;
use crate::raw::{RawAttr, RawGraph, RawNode};
use mlc_dsl::ir::{DType, Node, NodeKind};
use mlc_dsl::library::{CallKind, OpClass};
use std::collections::{HashMap, HashSet};

impl Importer<'_> {
    /// Moves what does not change from one time to the next out of the body of a loop.
    pub(crate) fn hoist(&mut self, node: &mut RawNode) {
        let is_loop = node.domain.is_empty() && matches!(&*node.op_type, "Loop" | "Scan");
        let prefix = super::super::value::origin(node).to_string();
        let Some(RawAttr::Graph(body)) = node.attrs.get_mut("body").filter(|_| is_loop) else {
            return;
        };
        let results: HashSet<String> = body.outputs.iter().map(|o| o.name.clone()).collect();
        let mut changing: HashSet<String> = body.inputs.iter().map(|i| i.name.clone()).collect();
        let mut moved: HashMap<String, String> = HashMap::new();
        for (name, tensor) in std::mem::take(&mut body.initializers) {
            if results.contains(&name) {
                body.initializers.insert(name, tensor);
                continue;
            }
            let outside = self.outside(&prefix, &name);
            let v = self.draft.builder.constant(tensor.named(&outside));
            self.values.insert(outside.clone(), NodeValue::Tensor(v));
            moved.insert(name, outside);
        }
        for mut inner in std::mem::take(&mut body.nodes) {
            rename(&mut inner, &moved);
            let stays = inner.outputs.iter().any(|o| results.contains(o))
                || inner.attrs.values().any(|a| !a.graphs().is_empty())
                || opaque::reads(&inner).iter().any(|n| changing.contains(n));
            match if stays { None } else { self.moved(&prefix, &inner) } {
                Some(names) => moved.extend(names),
                None => {
                    changing.extend(inner.outputs.iter().cloned());
                    body.nodes.push(inner);
                }
            }
        }
    }

    /// Reads a node before its loop: what its results are called there.
    fn moved(&mut self, prefix: &str, inner: &RawNode) -> Option<Vec<(String, String)>> {
        let mut outer = inner.clone();
        outer.name = format!("{prefix}/{}", super::super::value::origin(inner));
        let given = outer.outputs.iter_mut().filter(|o| !o.is_empty());
        let mut names = vec![];
        for o in given {
            let outside = self.outside(prefix, o);
            names.push((std::mem::replace(o, outside.clone()), outside));
        }
        let before = self.draft.builder.program().nodes.len();
        let read = self.node(&outer, 0);
        self.draft.take_conflict();
        self.draft.take_needed_fact();
        let program = self.draft.builder.program();
        let is_total = read.is_ok() && program.nodes[before..].iter().all(|n| self.is_total(n));
        let tensors =
            names.iter().all(|(_, o)| self.values.get(o).is_some_and(|v| v.tensor().is_some()));
        if is_total && tensors {
            return Some(names);
        }
        names.iter().for_each(|(_, o)| drop(self.values.remove(o)));
        None
    }

    /// True if computing a node cannot fail, whatever its operands hold: no integer may divide or be an index.
    fn is_total(&self, node: &Node) -> bool {
        let NodeKind::Apply(call, _) = &node.kind else { return true };
        let call = self.draft.library().call(*call);
        let program = self.draft.builder.program();
        let is_integer = |d: DType| d.int_range().is_some() && d != DType::Bool;
        let reads_integers = node.args.iter().any(|&v| is_integer(program.ty(v).dtype));
        match call.class {
            OpClass::View => true,
            OpClass::Pointwise | OpClass::Movement => !reads_integers,
            OpClass::Reduction | OpClass::Contraction => !reads_integers,
            OpClass::Other => matches!(call.kind, CallKind::Def(_)) && !reads_integers,
        }
    }

    /// What a value of a loop is called outside.
    fn outside(&self, prefix: &str, name: &str) -> String {
        let mut outside = format!("{prefix}/{name}");
        while self.values.contains_key(&outside) || self.declared.contains_key(&outside) {
            outside.push('_');
        }
        outside
    }
}

/// Replaces what a node reads, its bodies too.
fn rename(node: &mut RawNode, names: &HashMap<String, String>) {
    for name in node.inputs.iter_mut() {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    }
    for graph in node.attrs.values_mut().flat_map(RawAttr::graphs_mut) {
        rename_in(graph, names);
    }
}

fn rename_in(graph: &mut RawGraph, names: &HashMap<String, String>) {
    graph.nodes.iter_mut().for_each(|n| rename(n, names));
    for output in &mut graph.outputs {
        if let Some(new) = names.get(&output.name) {
            output.name.clone_from(new);
        }
    }
}
