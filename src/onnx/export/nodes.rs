//! Writing ONNX nodes that are chosen: names for what they read and yield.

use super::forms::{Axes, Form, Forms, Operand};
use super::graph::Graph;
use super::shape::Shapes;
use super::{ExportError, value_info};
use crate::import::ModelInfo;
use crate::raw::{RawAttr, RawGraph, RawNode};
use indexmap::IndexMap;
use mlc_dsl::ir::{NodeKind, Tensor, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A model under construction.
struct GraphWriter<'g, 'a> {
    /// What is written.
    graph: &'g Graph<'a>,
    names: HashMap<Value, String>,
    out: NodeWriter,
    shapes: Shapes,
    /// Whether nodes stay in the order in which they are written.
    written_in_order: bool,
    /// Constants that nodes which are kept read by these names.
    constants: &'g IndexMap<String, Tensor>,
    made: Counts,
    /// Nodes of no name that nothing named has read yet.
    unnamed: usize,
}

/// For each node of the model how many nodes are written for it: what bears its name, what that alone needs, and the extents that
/// it is the first to need.
pub type Counts = BTreeMap<String, usize>;

/// The model's graph, and the names that are taken.
#[derive(Default)]
pub(crate) struct NodeWriter {
    /// The graph.
    pub graph: RawGraph,
    taken: HashSet<String>,
    /// The last number given to a name that was taken.
    numbers: HashMap<String, usize>,
    /// Constants by their sample keys.
    alike: HashMap<u64, Vec<String>>,
}

impl NodeWriter {
    /// A name like `base` that nothing else bears.
    pub fn fresh(&mut self, base: &str) -> String {
        let base = if base.is_empty() { "value" } else { base };
        if self.taken.insert(base.to_string()) {
            return base.to_string();
        }
        let last = self.numbers.entry(base.to_string()).or_default();
        loop {
            *last += 1;
            let name = format!("{base}_{last}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    /// Adds a node with one output and returns the output's name.
    pub fn node(&mut self, op_type: &str, inputs: &[&str], attrs: &[(&str, RawAttr)]) -> String {
        let name = self.fresh(&format!("extent/{op_type}"));
        let output = self.fresh(&format!("{name}_output"));
        self.graph.nodes.push(RawNode {
            op_type: op_type.into(),
            domain: String::new(),
            name,
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: vec![output.clone()],
            attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        });
        output
    }

    /// Adds a constant, or finds an equal one.
    pub fn constant(&mut self, tensor: Tensor, name: &str) -> String {
        let small = tensor.len() <= 64;
        let key = tensor.sample_key();
        let same = self.alike.get(&key).into_iter().flatten().find(|name| {
            let known = self.graph.initializers.get(*name);
            known.is_some_and(|t| t.same_storage(&tensor) || small && *t == tensor)
        });
        if let Some(name) = same {
            return name.clone();
        }
        let name = self.fresh(name);
        self.alike.entry(key).or_default().push(name.clone());
        self.graph.initializers.insert(name.clone(), tensor);
        name
    }
}

/// Writes the nodes that are chosen. Inputs and outputs of the graph are left to the caller.
pub(crate) fn write(
    forms: Forms<'_, '_>,
    model: &ModelInfo,
    opset: i64,
) -> Result<(RawGraph, Counts), ExportError> {
    let Forms { graph, nodes, .. } = forms;
    let mut out = NodeWriter::default();
    out.graph.name = model.graph_name.clone();
    let mut names = HashMap::new();
    for (name, _) in graph.inputs {
        out.taken.insert(name.clone());
    }
    out.taken.extend(model.opaque.names());
    out.taken.extend(graph.outputs.iter().map(|(n, _)| n.clone()));
    for (name, v) in &graph.outputs {
        if let NodeKind::Apply(..) = graph.node(v.node).kind {
            names.entry(*v).or_insert_with(|| name.clone());
        }
    }
    let made: HashSet<&str> = model.opaque.defined().collect();
    let shapes = Shapes::new(graph.inputs, &made, opset);
    let constants = &model.opaque.constants;
    // Nodes that are kept may need what is read off a result before that result is there.
    let written_in_order = model.opaque.nodes.is_empty();
    let mut writer = GraphWriter {
        graph: &graph,
        names,
        out,
        shapes,
        written_in_order,
        constants,
        made: Counts::new(),
        unnamed: 0,
    };
    // Outputs that only say what extents others have come behind these.
    let is_extents = |v: Value| {
        let node = graph.node(v.node);
        model.opaque.nodes.is_empty()
            && matches!(node.kind, NodeKind::Apply(..))
            && node.args.is_empty()
    };
    let outputs = graph.outputs.iter().zip(nodes);
    let (extents, others): (Vec<_>, Vec<_>) = outputs.partition(|((_, v), _)| is_extents(*v));
    for ((name, v), forms) in others.into_iter().chain(extents) {
        for form in forms {
            let (origin, before) = (form.origin.clone(), writer.out.graph.nodes.len());
            writer.write(form)?;
            writer.count(origin, writer.out.graph.nodes.len() - before);
        }
        writer.output(name, *v);
    }
    writer.declare_types();
    Ok((writer.out.graph, writer.made))
}

impl GraphWriter<'_, '_> {
    /// States the types of values between nodes: a runtime that cannot follow a computed shape fuses less around it.
    fn declare_types(&mut self) {
        let mut types: HashMap<&str, Value> =
            self.names.iter().map(|(v, name)| (name.as_str(), *v)).collect();
        for (name, _) in &self.graph.outputs {
            types.remove(name.as_str());
        }
        let made = self.out.graph.nodes.iter().flat_map(|n| &n.outputs);
        let known = made.filter_map(|name| Some((name, *types.get(name.as_str())?)));
        let infos = known.map(|(name, v)| value_info(name, self.graph.ty(v))).collect();
        self.out.graph.value_infos = infos;
    }

    /// Gives a value its name as an output, where it has another.
    fn output(&mut self, name: &str, v: Value) {
        // A constant that a kept node reads has its name already.
        if self.constants.contains_key(name) && self.graph.constant(v).is_some() {
            return;
        }
        let from = self.name(v);
        if from != name {
            let node = self.out.fresh(&format!("{name}/Identity"));
            self.out.graph.nodes.push(RawNode {
                op_type: "Identity".into(),
                name: node,
                inputs: vec![from],
                outputs: vec![name.to_string()],
                ..RawNode::default()
            });
        }
    }

    fn count(&mut self, origin: String, nodes: usize) {
        if origin.is_empty() {
            self.unnamed += nodes;
        } else {
            *self.made.entry(origin).or_default() += nodes + std::mem::take(&mut self.unnamed);
        }
    }

    fn write(&mut self, p: Form) -> Result<(), ExportError> {
        let mut inputs = Vec::with_capacity(p.inputs.len());
        for i in p.inputs {
            inputs.push(match i {
                Operand::Value(v) => self.name(v),
                Operand::Const(t) => self.out.constant(t, "const"),
                Operand::Extents(v, axes) => {
                    let scalar = axes == Axes::None;
                    self.shapes.list(&v, scalar, &mut self.out)?
                }
                Operand::Absent => String::new(),
            });
        }
        // What changes nothing needs no node.
        if let ("Identity", [input], [v]) =
            (p.op_type.as_str(), inputs.as_slice(), p.outputs.as_slice())
            && !self.names.contains_key(v)
        {
            self.names.insert(*v, input.clone());
            return Ok(());
        }
        let base = if p.origin.is_empty() { p.op_type.clone() } else { p.origin };
        let name = self.out.fresh(&base);
        let single = p.outputs.len() == 1;
        let unread = |i| self.out.fresh(&format!("{name}_unread_{i}"));
        let mut outputs: Vec<String> = (0..p.before).map(unread).collect();
        for (i, v) in p.outputs.iter().enumerate() {
            let wanted = self.graph.is_output(v.node) || !self.graph.consumers(v.node).is_empty();
            let known = self.names.get(v).cloned();
            outputs.push(match known {
                Some(n) => n,
                None if single => self.out.fresh(&format!("{name}_output")),
                None if wanted => self.out.fresh(&format!("{name}_output_{i}")),
                None => String::new(),
            });
            self.names.insert(*v, outputs[p.before + i].clone());
            if self.written_in_order {
                self.shapes.is_written(&outputs[p.before + i], self.graph.ty(*v));
            }
        }
        self.out.graph.nodes.push(RawNode {
            op_type: p.op_type,
            domain: p.domain,
            name,
            inputs,
            outputs,
            attrs: p.attrs,
        });
        Ok(())
    }

    /// The name of a value that is written already, an input or a constant.
    fn name(&mut self, v: Value) -> String {
        if let Some(n) = self.names.get(&v) {
            return n.clone();
        }
        if let NodeKind::Input(i) = self.graph.node(v.node).kind {
            return self.graph.inputs[i as usize].0.clone();
        }
        let name = match self.graph.constant(v) {
            Some(t) => {
                let name = t.name().unwrap_or("const").to_string();
                self.out.constant(t, &name)
            }
            None => String::new(),
        };
        self.names.insert(v, name.clone());
        name
    }
}
