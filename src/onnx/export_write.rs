//! Writing ONNX nodes: one per match, its inputs before it.

use super::export::ExportError;
use super::export_core::Core;
use super::export_graph::Graph;
use super::export_match::{Found, find, settle};
use super::export_rules::{Rule, Rules};
use super::export_shape::Shapes;
use super::export_types::allowed;
use super::import::ModelInfo;
use super::raw::{RawAttr, RawGraph, RawModel, RawNode};
use super::raw_tensor;
use indexmap::IndexMap;
use mlc_dsl::eval::eval;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Tensor, Value};
use mlc_dsl::library::Name;
use mlc_dsl::onnx::{Kind, Param, ParamKind, Print};
use std::collections::{HashMap, HashSet};

/// An input of an ONNX node.
#[derive(Clone, Debug)]
enum Operand {
    /// A value of the graph.
    Value(Value),
    /// A constant.
    Const(Tensor),
    /// A list of extents, or a single one.
    Extents(Vec<Extent>, Axes),
    /// Nothing.
    Absent,
}

/// Whether extents make a list or a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axes {
    One,
    None,
}

/// An ONNX node whose inputs have no names yet.
struct Pending {
    op_type: String,
    domain: String,
    inputs: Vec<Operand>,
    attrs: IndexMap<String, RawAttr>,
    outputs: Vec<Value>,
    origin: String,
}

/// What is left to do for a value.
enum Task {
    Need(Value),
    Write(Box<Pending>),
}

/// A model under construction.
pub(super) struct Writer<'a, 'r> {
    /// What is written.
    pub(super) graph: Graph<'a>,
    rules: &'r Rules<'r>,
    names: HashMap<Value, String>,
    out: Sheet,
    shapes: Shapes,
    unwritten: HashSet<NodeId>,
    /// Most nodes of the graph: clauses that write each other in a circle come to an end.
    limit: usize,
}

/// The model's graph, and the names that are taken.
#[derive(Default)]
pub(super) struct Sheet {
    /// The graph.
    pub graph: RawGraph,
    taken: HashSet<String>,
    /// The last number given to a name that was taken.
    numbers: HashMap<String, usize>,
    /// Constants by their sample keys.
    alike: HashMap<u64, Vec<String>>,
}

impl Sheet {
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

impl<'a, 'r> Writer<'a, 'r> {
    /// A model without nodes.
    pub fn new(graph: Graph<'a>, rules: &'r Rules<'r>, model: &ModelInfo, opset: i64) -> Self {
        let mut out = Sheet::default();
        out.graph.name = model.graph_name.clone();
        let mut names = HashMap::new();
        for (name, _) in graph.inputs {
            out.taken.insert(name.clone());
        }
        out.taken.extend(graph.outputs.iter().map(|(n, _)| n.clone()));
        for (name, v) in &graph.outputs {
            if let NodeKind::Apply(..) = graph.node(v.node).kind {
                names.entry(*v).or_insert_with(|| name.clone());
            }
        }
        let shapes = Shapes::new(graph.inputs, opset);
        let limit = graph.len().saturating_mul(8).saturating_add(1 << 10);
        Writer { graph, rules, names, out, shapes, unwritten: HashSet::new(), limit }
    }

    /// Nodes of the program that no pattern writes.
    pub fn take_unwritten(&mut self) -> HashSet<NodeId> {
        std::mem::take(&mut self.unwritten)
    }

    /// The graph, in a model without anything else.
    pub fn finish(self) -> RawModel {
        RawModel { graph: self.out.graph, ..RawModel::default() }
    }

    /// Writes everything that the outputs need.
    pub fn outputs(&mut self) -> Result<(), ExportError> {
        let outputs = self.graph.outputs.clone();
        let mut written = HashSet::new();
        for (name, v) in outputs {
            self.need(v, &mut written)?;
            if self.unwritten.is_empty() {
                let from = self.name(v);
                if from != name {
                    let node = self.out.fresh(&format!("{name}/Identity"));
                    self.out.graph.nodes.push(RawNode {
                        op_type: "Identity".into(),
                        name: node,
                        inputs: vec![from],
                        outputs: vec![name],
                        ..RawNode::default()
                    });
                }
            }
        }
        Ok(())
    }

    fn need(&mut self, v: Value, written: &mut HashSet<NodeId>) -> Result<(), ExportError> {
        let mut tasks = vec![Task::Need(v)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Need(v) => {
                    if !written.insert(v.node) {
                        continue;
                    }
                    if !matches!(self.graph.node(v.node).kind, NodeKind::Apply(..))
                        || self.graph.constant(v).is_some()
                    {
                        continue;
                    }
                    let Some(pending) = self.choose(v.node) else {
                        match self.graph.source(v.node) {
                            Some(source) => drop(self.unwritten.insert(source)),
                            None => return Err(self.refused(v.node)),
                        }
                        // Its operands are looked at as well, so that one round finds all.
                        let args = self.graph.node(v.node).args.clone();
                        tasks.extend(args.into_iter().map(Task::Need));
                        continue;
                    };
                    for out in &pending.outputs {
                        written.insert(out.node);
                    }
                    let inputs: Vec<Value> = pending
                        .inputs
                        .iter()
                        .filter_map(|i| if let Operand::Value(v) = i { Some(*v) } else { None })
                        .collect();
                    tasks.push(Task::Write(Box::new(pending)));
                    tasks.extend(inputs.into_iter().rev().map(Task::Need));
                }
                Task::Write(pending) => {
                    if self.unwritten.is_empty() {
                        self.write(*pending)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn refused(&self, node: NodeId) -> ExportError {
        let n = self.graph.node(node);
        let op = match &n.kind {
            NodeKind::Apply(c, _) => self.graph.library.call(*c).name.to_string(),
            NodeKind::Input(_) | NodeKind::Const(_) => "a value".into(),
        };
        ExportError::Operator { op, origin: n.origin.clone(), opset: self.shapes.opset() }
    }

    /// The ONNX node of the largest pattern that covers a node.
    fn choose(&mut self, id: NodeId) -> Option<Pending> {
        let NodeKind::Apply(call, _) = &self.graph.node(id).kind else { return None };
        if self.graph.len() > self.limit {
            return None;
        }
        let rules = self.rules;
        for rule in rules.at(*call) {
            if let Some(found) = find(&self.graph, rule, id)
                && let Some(pending) = self.pending(rule, &found, id)
            {
                return Some(pending);
            }
        }
        None
    }

    fn pending(&mut self, rule: &Rule<'_>, found: &Found<'_>, id: NodeId) -> Option<Pending> {
        let origin = self.graph.node(id).origin.clone();
        let (mut inputs, attrs) = match rule.print {
            Some(print) => self.explicit(rule, print, found, &origin, id)?,
            None => self.backwards(rule, found, id)?,
        };
        while matches!(inputs.last(), Some(Operand::Absent)) {
            inputs.pop();
        }
        let dtype = |v: &Value| Some(self.graph.ty(*v).dtype);
        let given = |i: &Operand| match i {
            Operand::Value(v) => dtype(v),
            Operand::Const(t) => Some(t.dtype()),
            Operand::Extents(..) => Some(DType::I64),
            Operand::Absent => None,
        };
        let taken: Vec<Option<DType>> = inputs.iter().map(given).collect();
        let made: Vec<Option<DType>> = found.outputs.iter().map(dtype).collect();
        let standard = rule.item.decl.domain.is_empty();
        if standard && !allowed(&rule.item.name, self.shapes.opset(), &taken, &made) {
            return None;
        }
        Some(Pending {
            op_type: rule.item.name.to_string(),
            domain: rule.item.decl.domain.clone(),
            inputs,
            attrs,
            outputs: found.outputs.clone(),
            origin,
        })
    }

    /// Inputs and attributes of an alternative of reading, read backwards.
    fn backwards(
        &mut self,
        rule: &Rule<'_>,
        found: &Found<'_>,
        id: NodeId,
    ) -> Option<(Vec<Operand>, IndexMap<String, RawAttr>)> {
        let mut inputs = Vec::new();
        let mut attrs = IndexMap::new();
        for p in &rule.item.decl.params {
            let name = &p.name;
            match &p.kind {
                ParamKind::Tensor { variadic: true, .. } => {
                    inputs.extend(found.lists.get(name)?.iter().map(|&v| Operand::Value(v)));
                }
                ParamKind::Tensor { .. } => inputs.push(match found.tensors.get(name) {
                    Some(&v) => Operand::Value(v),
                    None => Operand::Absent,
                }),
                ParamKind::ConstInput { .. } => inputs.push(match found.env.attr(name) {
                    Some(a) => self.literal(a, p, found, id)?,
                    None => Operand::Absent,
                }),
                ParamKind::Attr(kind) => {
                    if let Some(a) = found.env.attr(name)
                        && !is_default(p, a, found)
                    {
                        attrs.insert(name.to_string(), raw_attr(a, *kind)?);
                    }
                }
            }
        }
        Some((inputs, attrs))
    }

    /// Inputs and attributes of a `prints` clause.
    fn explicit(
        &mut self,
        rule: &Rule<'_>,
        print: &Print,
        found: &Found<'_>,
        origin: &str,
        id: NodeId,
    ) -> Option<(Vec<Operand>, IndexMap<String, RawAttr>)> {
        let params = &rule.item.decl.params;
        let places: Vec<&Param> =
            params.iter().filter(|p| !matches!(p.kind, ParamKind::Attr(_))).collect();
        let mut inputs = Vec::new();
        for (i, e) in print.inputs.iter().enumerate() {
            if let Some(n) = e.as_name() {
                if let Some(list) = found.lists.get(n) {
                    inputs.extend(list.iter().map(|&v| Operand::Value(v)));
                    continue;
                }
                if &**n == "absent" {
                    inputs.push(Operand::Absent);
                    continue;
                }
            }
            let place = places.get(i).or(places.last())?;
            let e = settle(e, found);
            inputs.push(match eval(&e, &found.env) {
                Ok(a) => self.literal(&a, place, found, id)?,
                Err(_) => match self.core(&e, found, origin)? {
                    Core::Value(v) => Operand::Value(v),
                    Core::Number(a) => self.literal(&a, place, found, id)?,
                },
            });
        }
        let mut attrs = IndexMap::new();
        for (name, e) in &print.attrs {
            let p = params.iter().find(|p| p.name == *name)?;
            let ParamKind::Attr(kind) = p.kind else { return None };
            let a = eval(&settle(e, found), &found.env).ok()?;
            if !is_default(p, &a, found) {
                attrs.insert(name.to_string(), raw_attr(&a, kind)?);
            }
        }
        Some((inputs, attrs))
    }

    /// An attribute as an input.
    fn literal(&self, a: &Attr, place: &Param, found: &Found<'_>, id: NodeId) -> Option<Operand> {
        let dtype = || {
            let partner = rule_dtype(place, found);
            partner.unwrap_or(self.graph.node(id).types[0].dtype)
        };
        Some(match (a, &place.kind) {
            (Attr::Ints(v), _) => Operand::Extents(v.clone(), Axes::One),
            (Attr::Int(e), ParamKind::ConstInput { kind: Kind::Ints, .. }) => {
                Operand::Extents(vec![e.clone()], Axes::One)
            }
            (Attr::Int(e), ParamKind::ConstInput { .. }) => {
                Operand::Extents(vec![e.clone()], Axes::None)
            }
            (Attr::Int(e), _) => match e.as_const() {
                Some(v) => Operand::Const(Tensor::from_i64(dtype(), vec![], &[v])),
                None if dtype() == DType::I64 => Operand::Extents(vec![e.clone()], Axes::None),
                None => return None,
            },
            (Attr::Floats(_), _) => {
                let v = a.as_f64s()?;
                Operand::Const(Tensor::from_f64(DType::F32, vec![v.len()], &v))
            }
            (Attr::Float(b), _) => {
                Operand::Const(Tensor::from_f64(dtype(), vec![], &[f64::from_bits(*b)]))
            }
            (Attr::Bool(b), _) => {
                Operand::Const(Tensor::from_i64(DType::Bool, vec![], &[i64::from(*b)]))
            }
            (Attr::Str(_) | Attr::DType(_), _) => return None,
        })
    }

    fn write(&mut self, p: Pending) -> Result<(), ExportError> {
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
        let mut outputs = Vec::with_capacity(p.outputs.len());
        for (i, v) in p.outputs.iter().enumerate() {
            let wanted = self.graph.is_output(v.node) || !self.graph.consumers(v.node).is_empty();
            let known = self.names.get(v).cloned();
            outputs.push(match known {
                Some(n) => n,
                None if single => self.out.fresh(&format!("{name}_output")),
                None if wanted => self.out.fresh(&format!("{name}_output_{i}")),
                None => String::new(),
            });
            self.names.insert(*v, outputs[i].clone());
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

/// The element type of a number among tensors: that of the first tensor of the match.
fn rule_dtype(place: &Param, found: &Found<'_>) -> Option<DType> {
    let ParamKind::Tensor { .. } = &place.kind else { return None };
    let mut types: Vec<(&Name, DType)> =
        found.tensors.keys().filter_map(|n| Some((n, found.env.tensor(n)?.dtype))).collect();
    types.sort_by(|a, b| b.0.cmp(a.0));
    types.first().map(|t| t.1)
}

fn is_default(p: &Param, a: &Attr, found: &Found<'_>) -> bool {
    let default = p.default.as_ref().and_then(|d| eval(&settle(d, found), &found.env).ok());
    default.is_some_and(|d| d == *a || d.as_f64().is_some() && d.as_f64() == a.as_f64())
}

fn raw_attr(a: &Attr, kind: Kind) -> Option<RawAttr> {
    Some(match (kind, a) {
        (Kind::Int, Attr::Int(e)) => RawAttr::Int(e.as_const()?),
        (Kind::Int | Kind::Bool, Attr::Bool(b)) => RawAttr::Int(i64::from(*b)),
        (Kind::Ints, Attr::Ints(_)) => RawAttr::Ints(a.as_i64s()?),
        (Kind::Float, _) => RawAttr::Float(a.as_f64()? as f32),
        (Kind::Floats, _) => RawAttr::Floats(a.as_f64s()?.into_iter().map(|v| v as f32).collect()),
        (Kind::String, Attr::Str(s)) => RawAttr::from(s.as_str()),
        (Kind::DType, Attr::DType(d)) => RawAttr::Int(i64::from(raw_tensor::code(*d))),
        _ => return None,
    })
}
