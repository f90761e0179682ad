//! Recurrences of a user's texts in the scans of a model: a `Scan` whose body is one step of a recurrence, in any spelling, is read as that
//! recurrence, so that the layers that have it are found around it.
//!
//! A scan is only replaced where the laws prove its step, and what stands before the first one, equal to those of the recurrence.

mod assignment;
mod copies;
mod scan;
mod trial;

use crate::stdlib;
use assignment::Assignment;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, Extent, NodeId, NodeKind, Program, Value};
use mlc_dsl::library::{CallId, ErrorClass, Library};
use mlc_dsl::pattern::{is_early, is_layout};
use mlc_onnx::{Imported, Loops, RawModel, RawNode, import_with_opaque_nodes, reads};
use scan::{Scan, Seed};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A model that is read with its scans as recurrences of the user's texts. Nothing if none of them is one.
pub(crate) fn read(
    raw: &RawModel,
    library: &Arc<Library>,
    kept: &BTreeSet<String>,
    loops: Loops,
) -> Option<Imported> {
    let recurrences = of_user(library);
    let scans = raw.graph.nodes.iter().filter(|n| is_scan(n)).map(|n| name(n).to_string());
    let mut scans: BTreeSet<String> = scans.filter(|n| !kept.contains(n)).collect();
    // Before, the values of a scan had a batch.
    if recurrences.is_empty() || raw.opset_imports.get("").is_none_or(|&o| o < 9) {
        return None;
    }
    let laws = laws(library);
    while !scans.is_empty() {
        let all: BTreeSet<String> = kept.union(&scans).cloned().collect();
        let mut imported = import_with_opaque_nodes(raw.clone(), library, &all, loops).ok()?;
        let mut found: HashMap<String, Recognised> = HashMap::new();
        for (node, _) in &imported.model.opaque.nodes {
            if is_scan(node) && scans.contains(name(node)) {
                let scan = Scan::new(node, &imported, library);
                let of = |s: Scan<'_>| recurrences.iter().find_map(|&call| s.found(call, &laws));
                let assignment = scan.and_then(of);
                let node = node.clone();
                found.extend(
                    assignment
                        .map(|a| (name(&node).to_string(), Recognised { node, assignment: a })),
                );
            }
        }
        if found.len() == scans.len() {
            let nodes = std::mem::take(&mut imported.model.opaque.nodes);
            imported.model.opaque.nodes =
                nodes.into_iter().filter(|(n, _)| !found.contains_key(name(n))).collect();
            let left: BTreeSet<String> =
                imported.model.opaque.nodes.iter().flat_map(|(n, _)| reads(n)).collect();
            imported.model.opaque.constants.retain(|name, _| left.contains(name));
            imported.program = Splice::new(&imported, library, &found).program()?;
            return Some(imported);
        }
        scans = found.into_keys().collect();
    }
    None
}

/// A scan, and how it is a recurrence.
struct Recognised {
    node: RawNode,
    assignment: Assignment,
}

/// The recurrences that the user's texts declare.
fn of_user(library: &Library) -> Vec<CallId> {
    let all = (0..library.calls.len() as u32).map(CallId);
    let is_own = |c: &CallId| {
        let call = library.call(*c);
        call.recurrence.is_some() && call.source.file as usize >= stdlib::SHIPPED_TEXTS
    };
    all.filter(is_own).collect()
}

/// The laws that a step may be proven by: those of a first search that keep every value.
fn laws(library: &Library) -> Vec<u32> {
    let all = library.laws.iter().enumerate();
    let keeps = all.filter(|(_, l)| {
        matches!(l.error, ErrorClass::Exact | ErrorClass::Reorder) && !is_layout(l) && !is_early(l)
    });
    keeps.map(|(i, _)| i as u32).collect()
}

fn is_scan(node: &RawNode) -> bool {
    node.domain.is_empty() && node.op_type == "Scan"
}

/// A node's name, or its first result if it has none.
fn name(node: &RawNode) -> &str {
    match node.name.is_empty() {
        true => node.outputs.iter().find(|o| !o.is_empty()).unwrap_or(&node.name),
        false => &node.name,
    }
}

/// A program that is rebuilt with recurrences in the place of what they yield.
struct Splice<'a> {
    imported: &'a Imported,
    builder: Builder<'a>,
    /// What each result of a scan is called, and whose it is.
    made: HashMap<&'a str, &'a Recognised>,
    inputs: HashMap<&'a str, Value>,
    nodes: HashMap<NodeId, Vec<Value>>,
    /// The results of the recurrences by the names of their scans.
    applied: HashMap<&'a str, Vec<Value>>,
}

impl<'a> Splice<'a> {
    fn new(
        imported: &'a Imported,
        library: &'a Library,
        found: &'a HashMap<String, Recognised>,
    ) -> Splice<'a> {
        let mut builder = Builder::new(library);
        let each = |r: &'a Recognised| {
            let given = r.node.outputs.iter().filter(|o| !o.is_empty());
            given.map(move |o| (o.as_str(), r))
        };
        let made: HashMap<&str, &Recognised> = found.values().flat_map(each).collect();
        let left = imported.program.inputs.iter().filter(|(n, _)| !made.contains_key(n.as_str()));
        let inputs = left.map(|(n, ty)| (n.as_str(), builder.input(n, ty.clone()))).collect();
        let (nodes, applied) = (HashMap::new(), HashMap::new());
        Splice { imported, builder, made, inputs, nodes, applied }
    }

    fn program(mut self) -> Option<Program> {
        let (source, model) = (&self.imported.program, &self.imported.model);
        let read: BTreeSet<String> =
            model.opaque.nodes.iter().flat_map(|(n, _)| reads(n)).collect();
        let is_output = |name: &str| model.outputs.iter().any(|o| o.name == name);
        let mut outputs: Vec<(String, Value)> = vec![];
        for (name, v) in &source.outputs {
            if is_output(name) || read.contains(name) {
                outputs.push((name.clone(), self.value(*v)?));
            }
        }
        let mut made: Vec<&str> = self.made.keys().copied().collect();
        made.sort_unstable();
        for name in made {
            if is_output(name) || read.contains(name) {
                outputs.push((name.to_string(), self.result(name)?));
            }
        }
        let place = |name: &String| model.outputs.iter().position(|o| o.name == *name);
        outputs.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        Some(self.builder.finish(outputs))
    }

    /// A value of the program as it was read. The caller has room for recursion as deep as a model.
    fn value(&mut self, v: Value) -> Option<Value> {
        if let Some(known) = self.nodes.get(&v.node) {
            return known.get(v.output as usize).copied();
        }
        let source = &self.imported.program;
        let node = source.node(v.node);
        let new = match &node.kind {
            NodeKind::Input(k) => {
                let name = source.inputs[*k as usize].0.as_str();
                match self.inputs.get(name) {
                    Some(&input) => vec![input],
                    None => vec![self.result(name)?],
                }
            }
            NodeKind::Const(c) => vec![self.builder.constant(source.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let args = node.args.iter().map(|&a| self.value(a)).collect::<Option<Vec<_>>>()?;
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                self.builder.set_origin(&node.origin);
                self.builder.apply(*call, &attrs, &args).ok()?
            }
        };
        let value = new.get(v.output as usize).copied();
        self.nodes.insert(v.node, new);
        value
    }

    /// What a scan yields under a name.
    fn result(&mut self, wanted: &str) -> Option<Value> {
        let of: &Recognised = self.made.get(wanted).copied()?;
        let Recognised { node, assignment } = of;
        let made = match self.applied.get(name(node)) {
            Some(made) => made.clone(),
            None => self.applied(node, assignment)?,
        };
        let k = node.outputs.iter().position(|o| o == wanted)?;
        match assignment.states.get(k) {
            Some(&(r, axis)) => self.last(*made.get(r)?, axis, assignment.backwards),
            None => {
                let (r, from, to) = *assignment.made.get(k - assignment.states.len())?;
                self.moved(*made.get(r)?, from, to)
            }
        }
    }

    /// The recurrence in the place of a scan.
    fn applied(&mut self, node: &'a RawNode, assignment: &Assignment) -> Option<Vec<Value>> {
        let mut args = vec![];
        for (seed, moved) in &assignment.operands {
            let v = match seed {
                Seed::Value(v) => self.value(*v)?,
                Seed::Constant(t) => self.builder.constant(t.clone()),
            };
            args.push(match moved {
                Some((from, to)) => self.moved(v, *from, *to)?,
                None => v,
            });
        }
        self.builder.set_origin(name(node));
        let attrs = vec![None; self.builder.library.call(assignment.call).attrs.len()];
        let made = self.builder.apply(assignment.call, &attrs, &args).ok()?;
        self.applied.insert(name(node), made.clone());
        Some(made)
    }

    /// The state after the last step, if there is one.
    fn last(&mut self, v: Value, axis: usize, backwards: bool) -> Option<Value> {
        let mut size = self.builder.ty(v).shape.clone();
        if !size[axis].at_least(1) {
            return None;
        }
        let mut start = vec![Extent::from(0); size.len()];
        if !backwards {
            start[axis] = &size[axis] - &Extent::from(1);
        }
        size[axis] = Extent::from(1);
        let step = vec![Extent::from(1); size.len()];
        let slice = self.builder.structural().slice?;
        let attrs = [start, size.clone(), step].map(|list| Some(Attr::Ints(list)));
        let part = *self.builder.apply(slice, &attrs, &[v]).ok()?.first()?;
        size.remove(axis);
        self.builder.reshape(part, &size).ok()
    }

    /// A tensor with one axis at another place.
    fn moved(&mut self, v: Value, from: usize, to: usize) -> Option<Value> {
        let perm = scan::moving(self.builder.ty(v).rank(), from, to);
        if perm.is_sorted() {
            return Some(v);
        }
        let attr = Attr::ints(perm.into_iter().map(|i| i as i64));
        let transpose = self.builder.structural().transpose?;
        self.builder.apply(transpose, &[Some(attr)], &[v]).ok()?.first().copied()
    }
}
