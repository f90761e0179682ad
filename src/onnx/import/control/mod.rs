//! Control flow: a node with subgraphs becomes what they compute.
//!
//! An `If` is the branch that it takes. The body of a `Loop` is read once for each time that it runs, with what the
//! names of its inputs stand for that time; bodies of all loops together are read a bounded number of times.

pub(crate) mod flow;
mod hoist;
pub(crate) mod scan;

use super::Importer;
use super::error::ImportError;
use super::lists;
use super::value::{NodeValue, not};
use crate::opaque;
use crate::raw::{RawAttr, RawGraph, RawModel, RawNode};
use crate::subgraphs::ResultType;
use mlc_dsl::ir::{DType, Extent, Tensor, Value};
use mlc_dsl::shape_values::KnownElement;
use mlc_dsl::shown;

/// Subgraphs may nest this deep.
const MAX_DEPTH: usize = 64;
/// Bodies of loops may have so many nodes together, each time they run counted, and one more for each time.
pub(crate) const MAX_REPEATED: usize = 1 << 14;
/// A loop that may stay one is written out if that makes no more nodes: longer ones are hardly faster without it.
pub(crate) const FEW_REPEATED: usize = 64;

/// The operators of ONNX that are read here, and not by an `onnx` item.
const KNOWN: [&str; 16] = [
    "If",
    "Loop",
    "Scan",
    "SequenceMap",
    "SequenceEmpty",
    "SequenceConstruct",
    "SequenceInsert",
    "SequenceErase",
    "SequenceAt",
    "SequenceLength",
    "ConcatFromSequence",
    "SplitToSequence",
    "Optional",
    "OptionalHasElement",
    "OptionalGetElement",
    "Identity",
];

/// True if a node needs no `onnx` item.
pub(crate) fn is_known(node: &RawNode) -> bool {
    node.domain.is_empty() && node.op_type != "Identity" && KNOWN.contains(&&*node.op_type)
}

/// True if there are loops in the main graph of a model.
pub fn has_loops(model: &RawModel) -> bool {
    model.graph.nodes.iter().any(is_loop)
}

fn is_loop(node: &RawNode) -> bool {
    node.domain.is_empty() && matches!(&*node.op_type, "Loop" | "Scan")
}

/// A body that is being read.
pub(crate) struct BodyScope<'g> {
    pub graph: &'g RawGraph,
    depth: usize,
    /// What the names that it defines stand for outside.
    hidden: Vec<(&'g str, Option<NodeValue>)>,
}

pub(crate) type Read<T> = Result<T, ImportError>;

impl Importer<'_> {
    /// Reads a node that needs no `onnx` item; `None` if it is not such a node.
    pub(crate) fn control(&mut self, node: &RawNode, depth: usize) -> Option<Read<()>> {
        if lists::makes_maps(node) && self.keeps.is_none() {
            let results = self.columns(node).map(|v| vec![v]);
            return Some(results.and_then(|results| self.define(node, results)));
        }
        let is_long = node.op_type == "Einsum" && node.inputs.len() > 2;
        if !node.domain.is_empty() || !is_long && !KNOWN.contains(&&*node.op_type) {
            return None;
        }
        let results = match node.op_type.as_str() {
            "Einsum" => self.products(node, depth),
            "If" => self.branch(node, depth),
            "Loop" => self.repeat(node, depth),
            "Scan" => self.scan(node, depth),
            _ => self.list(node, depth)?,
        };
        Some(results.and_then(|results| self.define(node, results)))
    }

    /// Gives the results of a node their names.
    fn define(&mut self, node: &RawNode, results: Vec<NodeValue>) -> Read<()> {
        if node.outputs.len() > results.len() {
            let (has, yields) = (node.outputs.len(), results.len());
            return Err(ImportError::node(
                node,
                format!("it has {has} outputs, and yields {yields}"),
            ));
        }
        for (name, value) in node.outputs.iter().zip(results).filter(|(name, _)| !name.is_empty()) {
            self.values.insert(name.clone(), value);
        }
        Ok(())
    }

    /// The input of a number; `None` if it is not given.
    pub(crate) fn given(&self, node: &RawNode, input: usize) -> Read<Option<NodeValue>> {
        let Some(name) = node.inputs.get(input).filter(|n| !n.is_empty()) else { return Ok(None) };
        let undefined = || format!("`{}` is read before it is defined", shown(name));
        let value = self.values.get(name).cloned();
        value.map(Some).ok_or_else(|| ImportError::node(node, undefined()))
    }

    /// The input of a number, which must be given.
    pub(crate) fn needed(&self, node: &RawNode, input: usize) -> Read<NodeValue> {
        let missing = || ImportError::node(node, format!("its input {input} is missing"));
        self.given(node, input)?.ok_or_else(missing)
    }

    /// The same, which must be a tensor.
    pub(crate) fn needed_tensor(&self, node: &RawNode, input: usize) -> Read<Value> {
        let value = self.needed(node, input)?;
        let name = node.inputs.get(input).map_or("", String::as_str);
        value.tensor().ok_or_else(|| ImportError::node(node, not("a tensor", name, &value)))
    }

    /// The only element of a tensor that decides what is read.
    pub(crate) fn decided(&mut self, node: &RawNode, v: Value, what: &str) -> Read<i64> {
        let known = self.draft.required(v);
        let fail = |reason: String| ImportError::node(node, reason);
        let Some(known) = known else {
            return Err(fail(format!("its {what} depends on the inputs")));
        };
        let number = match known.elements.as_slice() {
            [KnownElement::Int(e)] => e.as_const(),
            [KnownElement::Real(v)] => Some(*v as i64),
            _ => return Err(fail(format!("its {what} is not one element"))),
        };
        number.ok_or_else(|| {
            let reason =
                format!("its {what} depends on symbolic extents; `--shape` gives them numbers");
            fail(self.draft.unsupported(reason)).of_shapes()
        })
    }

    pub(crate) fn subgraph<'n>(&self, node: &'n RawNode, key: &str) -> Read<&'n RawGraph> {
        match node.attrs.get(key) {
            Some(RawAttr::Graph(g)) => Ok(g),
            _ => Err(ImportError::node(node, format!("it has no `{key}`"))),
        }
    }

    /// Begins to read a body; [`Importer::leave`] ends it.
    pub(crate) fn enter<'g>(
        &mut self,
        node: &RawNode,
        graph: &'g RawGraph,
        depth: usize,
    ) -> Read<BodyScope<'g>> {
        if depth >= MAX_DEPTH {
            return Err(ImportError::node(node, "it is nested too deeply"));
        }
        let inputs = graph.inputs.iter().map(|i| &i.name);
        let results = graph.nodes.iter().flat_map(|n| &n.outputs).filter(|o| !o.is_empty());
        let defined = inputs.chain(graph.initializers.keys()).chain(results);
        let hidden = defined.map(|n| (n.as_str(), self.values.remove(n))).collect();
        self.constants(graph);
        Ok(BodyScope { graph, depth: depth + 1, hidden })
    }

    /// Gives the names of a body back what they stand for outside.
    pub(crate) fn leave(&mut self, body: BodyScope<'_>) {
        for (name, value) in body.hidden.into_iter().rev() {
            match value {
                Some(value) => drop(self.values.insert(name.to_string(), value)),
                None => drop(self.values.remove(name)),
            }
        }
    }

    /// What a body yields for these inputs.
    pub(crate) fn pass(
        &mut self,
        node: &RawNode,
        body: &BodyScope<'_>,
        inputs: Vec<NodeValue>,
    ) -> Read<Vec<NodeValue>> {
        let fail = |reason: String| Err(ImportError::node(node, reason));
        let graph = body.graph;
        if graph.inputs.len() != inputs.len() {
            let (has, gets) = (graph.inputs.len(), inputs.len());
            return fail(format!("its body has {has} inputs, and gets {gets}"));
        }
        for (input, value) in graph.inputs.iter().zip(inputs) {
            self.values.insert(input.name.clone(), value);
        }
        self.nodes(graph, body.depth)?;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        for o in &graph.outputs {
            match self.values.get(&o.name) {
                Some(v) => outputs.push(v.clone()),
                None => return fail(format!("its body does not define `{}`", shown(&o.name))),
            }
        }
        // What the node itself asks for from here on is a part of its own.
        self.draft.begin_node();
        Ok(outputs)
    }

    /// Counts the nodes of a body that is read `times` more often.
    pub(crate) fn count_passes(
        &mut self,
        node: &RawNode,
        graph: &RawGraph,
        times: i64,
    ) -> Read<()> {
        let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
        self.repeated = self.repeated.saturating_add(times.saturating_mul(nodes_in(graph) + 1));
        if self.repeated <= self.most_repeated {
            return Ok(());
        }
        if self.most_repeated < MAX_REPEATED {
            self.repeated = self.most_repeated;
            let reason =
                format!("written out it would be more than {FEW_REPEATED} nodes: it stays a loop");
            return Err(ImportError::node(node, self.draft.unsupported(reason)));
        }
        let reason = format!(
            "its body is repeated so often that the loops of the model have more than {MAX_REPEATED} nodes together"
        );
        Err(ImportError::TooLong {
            node: node.label(),
            reason: self.draft.unsupported(reason),
            help: "replace the loop by operators on whole tensors when exporting the model, or give it shorter inputs".into(),
        })
    }

    /// True of a loop that is as well kept as written out: it yields tensors of types that are known, and not only constants.
    pub(crate) fn may_stay(&self, node: &RawNode) -> bool {
        if !is_loop(node) {
            return false;
        }
        let read = opaque::reads(node);
        let read = read.iter().map(|name| self.values.get(name).and_then(NodeValue::tensor));
        let Some(read) = read.collect::<Option<Vec<Value>>>() else { return false };
        let program = self.draft.builder.program();
        let all_known = |types: Vec<Option<ResultType>>| {
            types.iter().all(|t| t.as_ref().is_some_and(|t| t.shape.iter().all(Option::is_some)))
        };
        read.iter().any(|&v| program.as_const(v).is_none())
            && self.types_by_bodies(node).is_some_and(all_known)
    }

    /// An `If` is the branch that it takes.
    fn branch(&mut self, node: &RawNode, depth: usize) -> Read<Vec<NodeValue>> {
        let (then, otherwise) =
            (self.subgraph(node, "then_branch")?, self.subgraph(node, "else_branch")?);
        for g in [then, otherwise] {
            if g.outputs.len() != node.outputs.len() {
                let (inner, outer) = (g.outputs.len(), node.outputs.len());
                let reason = format!("a branch has {inner} outputs, the node {outer}");
                return Err(ImportError::node(node, reason));
            }
        }
        let condition = self.needed_tensor(node, 0)?;
        let taken = self.decided(node, condition, "condition")? != 0;
        let body = self.enter(node, if taken { then } else { otherwise }, depth)?;
        let results = self.pass(node, &body, vec![]);
        self.leave(body);
        results
    }

    /// A `Loop` is its body, as often as it runs.
    fn repeat(&mut self, node: &RawNode, depth: usize) -> Read<Vec<NodeValue>> {
        let graph = self.subgraph(node, "body")?;
        let states = node.inputs.len().saturating_sub(2);
        if graph.outputs.len() < states + 1 {
            let reason =
                "its body has fewer outputs than values are carried from one time to the next";
            return Err(ImportError::node(node, reason));
        }
        let trips = match self.given(node, 0)? {
            Some(_) => {
                let trips = self.needed_tensor(node, 0)?;
                self.decided(node, trips, "number of repetitions")?
            }
            None => i64::MAX,
        };
        let condition = match self.given(node, 1)? {
            Some(_) => Some(self.needed_tensor(node, 1)?),
            None => None,
        };
        if condition.is_none() {
            // Nothing else ends it.
            self.count_passes(node, graph, trips)?;
        }
        let carried = (0..states).map(|i| self.needed(node, i + 2)).collect::<Read<Vec<_>>>()?;
        let body = self.enter(node, graph, depth)?;
        let results = self.passes(node, &body, trips, condition, carried);
        self.leave(body);
        results
    }

    fn passes(
        &mut self,
        node: &RawNode,
        body: &BodyScope<'_>,
        trips: i64,
        mut condition: Option<Value>,
        mut carried: Vec<NodeValue>,
    ) -> Read<Vec<NodeValue>> {
        let conditional = condition.is_some();
        let mut stacked: Vec<Vec<NodeValue>> = vec![];
        let mut i = 0;
        while i < trips {
            if let Some(v) = condition {
                if self.decided(node, v, "condition")? == 0 {
                    break;
                }
                self.count_passes(node, body.graph, 1)?;
            }
            let inputs = self.loop_inputs(i, &carried);
            let mut results = self.pass(node, body, inputs)?;
            stacked.push(results.split_off(carried.len() + 1));
            let goes_on = results.remove(0);
            if conditional {
                let not_one = || ImportError::node(node, "its condition is no tensor");
                condition = Some(goes_on.tensor().ok_or_else(not_one)?);
            }
            carried = results;
            i += 1;
        }
        let scanned = body.graph.outputs.len() - carried.len() - 1;
        let ran = !stacked.is_empty();
        if !ran && scanned > 0 {
            let inputs = self.loop_inputs(0, &carried);
            stacked.push(self.dry(node, body, inputs)?.split_off(carried.len() + 1));
        }
        for k in 0..scanned {
            let elements = self.tensors(node, stacked.iter().filter_map(|all| all.get(k)))?;
            carried.push(NodeValue::Tensor(self.stack(node, &elements, 0, ran)?));
        }
        Ok(carried)
    }

    fn loop_inputs(&mut self, i: i64, carried: &[NodeValue]) -> Vec<NodeValue> {
        let number = Tensor::from_i64(DType::I64, vec![], &[i]);
        let goes_on = Tensor::from_i64(DType::Bool, vec![], &[1]);
        let constants =
            [number, goes_on].map(|t| NodeValue::Tensor(self.draft.builder.constant(t)));
        constants.into_iter().chain(carried.iter().cloned()).collect()
    }

    /// What a body that never runs would yield: only its type matters.
    pub(crate) fn dry(
        &mut self,
        node: &RawNode,
        body: &BodyScope<'_>,
        inputs: Vec<NodeValue>,
    ) -> Read<Vec<NodeValue>> {
        self.count_passes(node, body.graph, 1)?;
        self.pass(node, body, inputs).map_err(|e| {
            // Nothing that it asks for has a value, and what it needs is not needed.
            self.draft.begin_node();
            self.draft.take_conflict();
            let reason = format!("it never runs, and the shape of its results is not known: {e}");
            ImportError::node(node, self.draft.unsupported(reason))
        })
    }

    pub(crate) fn tensors<'v>(
        &self,
        node: &RawNode,
        values: impl Iterator<Item = &'v NodeValue>,
    ) -> Read<Vec<Value>> {
        let no_tensor = || ImportError::node(node, "what its body yields each time is no tensor");
        values.map(|v| v.tensor().ok_or_else(no_tensor)).collect()
    }

    /// Tensors as slices of one along a new axis, which counts from the end if it is negative; of extent zero if they are
    /// only `examples` of what would be there.
    pub(crate) fn stack(
        &mut self,
        node: &RawNode,
        elements: &[Value],
        axis: i64,
        are_there: bool,
    ) -> Read<Value> {
        let fail = |reason: String| ImportError::node(node, reason);
        let Some(&first) = elements.first() else { return Err(fail("it has no results".into())) };
        let ty = self.draft.builder.ty(first).clone();
        let at = if axis < 0 { axis + ty.rank() as i64 + 1 } else { axis };
        let at = usize::try_from(at).ok().filter(|&at| at <= ty.rank());
        let at = at.ok_or_else(|| fail(format!("there is no axis {axis} to put results along")))?;
        let mut shape = ty.shape.clone();
        shape.insert(at, Extent::from(i64::from(are_there)));
        if !are_there {
            return self.empty(node, ty.dtype, &shape);
        }
        let mut parts = Vec::with_capacity(elements.len());
        for &v in elements {
            let found = self.draft.builder.ty(v).clone();
            let differ = || fail(format!("its results do not stack: one is {ty}, another {found}"));
            if (found.dtype, found.rank()) != (ty.dtype, ty.rank()) {
                return Err(differ());
            }
            for (a, b) in ty.shape.iter().zip(&found.shape) {
                self.draft.equal(a, b).map_err(|_| differ())?;
            }
            parts.push(self.draft.reshape(v, shape.clone()).map_err(fail)?);
        }
        self.draft.concat(parts, at).map_err(fail)
    }

    fn empty(&mut self, node: &RawNode, dtype: DType, shape: &[Extent]) -> Read<Value> {
        let number = |e: &Extent| e.as_const().and_then(|n| usize::try_from(n).ok());
        match shape.iter().map(number).collect::<Option<Vec<_>>>() {
            Some(shape) => Ok(self.draft.builder.constant(Tensor::from_f64(dtype, shape, &[]))),
            None => {
                let reason = "it never runs, and its results have symbolic extents";
                Err(ImportError::node(node, self.draft.unsupported(reason.into())))
            }
        }
    }
}

/// Nodes of a graph, those of its subgraphs too.
fn nodes_in(graph: &RawGraph) -> usize {
    let inner = graph.nodes.iter().flat_map(|n| n.attrs.values().flat_map(RawAttr::graphs));
    graph.nodes.len() + inner.map(nodes_in).sum::<usize>()
}
