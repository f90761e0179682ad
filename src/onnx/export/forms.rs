//! Which ONNX nodes a program is written as: the one place where that is chosen.
//!
//! From the outputs down, every value is written by the largest `onnx` pattern that covers it and keeps the kernels of the
//! plan as they were chosen. All nodes are chosen before one is written: what has no form is known by then.

use super::ExportError;
use super::core::Core;
use super::graph::Graph;
use super::matching::{FormMatch, find, holds, settle};
use super::rules::{Rule, Rules};
use super::types::{allowed, has_attributes, is_implemented};
use crate::import::read_facts::ReadFacts;
use crate::raw::RawAttr;
use crate::raw::tensor;
use indexmap::IndexMap;
use mlc_dsl::eval::eval;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Tensor, Type, Value};
use mlc_dsl::library::{CallKind, Name};
use mlc_dsl::onnx::{Kind, Param, ParamKind, Print};
use std::collections::HashSet;

/// An input of an ONNX node.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
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
pub(crate) enum Axes {
    /// A list.
    One,
    /// A scalar.
    None,
}

/// An ONNX node whose inputs have no names yet.
#[derive(Debug)]
pub(crate) struct Form {
    /// The operator.
    pub op_type: String,
    /// Its domain.
    pub domain: String,
    /// Its inputs.
    pub inputs: Vec<Operand>,
    /// Its attributes.
    pub attrs: IndexMap<String, RawAttr>,
    /// So many results of its come before these, and nothing reads them.
    pub before: usize,
    /// The values that it yields, in its order.
    pub outputs: Vec<Value>,
    /// The imported node it comes from; may be empty.
    pub origin: String,
    /// Runtimes have code for it, or the model has such a node.
    runs: bool,
}

impl Form {
    /// True if no extents are computed for it.
    fn is_free(&self) -> bool {
        let known = |i: &Operand| match i {
            Operand::Extents(v, _) => v.iter().all(|e| e.as_const().is_some()),
            Operand::Value(_) | Operand::Const(_) | Operand::Absent => true,
        };
        self.inputs.iter().all(known)
    }
}

/// What is left to do for a value.
enum Task {
    Need(Value),
    Write(Box<Form>),
}

/// The choice of nodes for a graph.
pub(crate) struct Forms<'a, 'r> {
    /// What is written. Operands of nodes that are no value yet become nodes of it.
    pub graph: Graph<'a>,
    /// The nodes of each output, in the order in which they are written.
    pub nodes: Vec<Vec<Form>>,
    /// Nodes of the program that no pattern writes.
    pub unwritten: HashSet<NodeId>,
    rules: &'r Rules<'r>,
    facts: &'r ReadFacts,
    opset: i64,
    /// Most nodes of the graph: clauses that write each other in a circle come to an end.
    limit: usize,
}

impl<'a, 'r> Forms<'a, 'r> {
    /// Chooses the nodes that all outputs need.
    pub fn of(
        graph: Graph<'a>,
        rules: &'r Rules<'r>,
        facts: &'r ReadFacts,
        opset: i64,
    ) -> Result<Forms<'a, 'r>, ExportError> {
        let limit = graph.len().saturating_mul(8).saturating_add(1 << 10);
        let (nodes, unwritten) = (Vec::new(), HashSet::new());
        let mut forms = Forms { graph, nodes, unwritten, rules, facts, opset, limit };
        let mut written = HashSet::new();
        for (_, v) in forms.graph.outputs.clone() {
            let nodes = forms.need(v, &mut written)?;
            forms.nodes.push(nodes);
        }
        Ok(forms)
    }

    /// What a value needs that is not written yet.
    fn need(&mut self, v: Value, written: &mut HashSet<NodeId>) -> Result<Vec<Form>, ExportError> {
        let mut nodes = Vec::new();
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
                    let Some(form) = self.choose(v.node) else {
                        match self.graph.source(v.node) {
                            Some(source) => drop(self.unwritten.insert(source)),
                            None => return Err(self.refused(v.node)),
                        }
                        // Its operands are looked at as well, so that one round finds all.
                        let args = self.graph.node(v.node).args.clone();
                        tasks.extend(args.into_iter().map(Task::Need));
                        continue;
                    };
                    for out in &form.outputs {
                        written.insert(out.node);
                    }
                    let inputs: Vec<Value> = form
                        .inputs
                        .iter()
                        .filter_map(|i| if let Operand::Value(v) = i { Some(*v) } else { None })
                        .collect();
                    tasks.push(Task::Write(Box::new(form)));
                    tasks.extend(inputs.into_iter().rev().map(Task::Need));
                }
                Task::Write(form) => nodes.push(*form),
            }
        }
        Ok(nodes)
    }

    fn refused(&self, node: NodeId) -> ExportError {
        let n = self.graph.node(node);
        let op = match &n.kind {
            NodeKind::Apply(c, _) => self.graph.library.call(*c).name.to_string(),
            NodeKind::Input(_) | NodeKind::Const(_) => "a value".into(),
        };
        ExportError::Operator { op, origin: n.origin.clone(), opset: self.opset }
    }

    /// The ONNX node of the largest pattern that covers a node.
    fn choose(&mut self, id: NodeId) -> Option<Form> {
        let NodeKind::Apply(call, _) = &self.graph.node(id).kind else { return None };
        if self.graph.len() > self.limit {
            return None;
        }
        let is_composed = matches!(self.graph.library.call(*call).kind, CallKind::Def(_));
        let rules = self.rules;
        let (mut best, mut spare) = (None::<(usize, Form)>, None::<Form>);
        for rule in rules.at(*call) {
            // Of patterns of one size one is taken that needs no nodes for extents.
            if best.as_ref().is_some_and(|(size, _)| rule.form.size < *size) {
                break;
            }
            let Some(found) = find(&self.graph, rule, id, &self.facts.positive) else { continue };
            match self.form(rule, &found, id) {
                Some(form) if form.runs && form.is_free() => return Some(form),
                Some(form) if form.runs => drop(best.get_or_insert((rule.form.size, form))),
                form => spare = spare.or(form),
            }
        }
        // What runtimes have no code for is written where nothing else can be: a definition is written as its body.
        best.map(|(_, form)| form).or(spare.filter(|_| !is_composed))
    }

    fn form(&mut self, rule: &Rule<'_>, found: &FormMatch<'_>, id: NodeId) -> Option<Form> {
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
        let before = rule.print.map_or(0, |print| print.result);
        let unread = std::iter::repeat_n(None, before);
        let made: Vec<Option<DType>> = unread.chain(found.outputs.iter().map(dtype)).collect();
        let (name, domain) = (&*rule.item.name, rule.item.decl.domain.as_str());
        let given: Vec<&str> = attrs.keys().map(String::as_str).collect();
        if domain.is_empty()
            && !(allowed(name, self.opset, &taken, &made)
                && has_attributes(name, self.opset, &given))
        {
            return None;
        }
        if !self.is_defined(rule, &inputs) {
            return None;
        }
        let runs = is_implemented(domain, name, self.opset, &taken, &made)
            || self.facts.has_operator(domain, name, taken.first().copied().flatten());
        Some(Form {
            runs,
            op_type: rule.item.name.to_string(),
            domain: rule.item.decl.domain.clone(),
            inputs,
            attrs,
            before,
            outputs: found.outputs.clone(),
            origin,
        })
    }

    /// True if the operator is defined on these inputs, as far as its item says.
    fn is_defined(&self, rule: &Rule<'_>, inputs: &[Operand]) -> bool {
        let decl = &rule.item.decl;
        let mut given = FormMatch::nothing(&self.facts.positive);
        let places = decl.params.iter().filter(|p| !matches!(p.kind, ParamKind::Attr(_)));
        for (p, operand) in places.zip(inputs).filter(|_| !decl.conditions.is_empty()) {
            let ty = match operand {
                Operand::Value(v) => self.graph.ty(*v).clone(),
                Operand::Const(t) => Type::known(t.dtype(), t.shape()),
                Operand::Extents(..) | Operand::Absent => continue,
            };
            given.env.bind_tensor(&p.name, ty);
        }
        decl.conditions.iter().all(|c| holds(c, &given) == Some(true))
    }

    /// Inputs and attributes of an alternative of reading, read backwards.
    fn backwards(
        &mut self,
        rule: &Rule<'_>,
        found: &FormMatch<'_>,
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
        found: &FormMatch<'_>,
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
    fn literal(
        &self,
        a: &Attr,
        place: &Param,
        found: &FormMatch<'_>,
        id: NodeId,
    ) -> Option<Operand> {
        let dtype = || {
            let partner = rule_dtype(place, found);
            partner.unwrap_or(self.graph.node(id).types[0].dtype)
        };
        Some(match (a, &place.kind) {
            (Attr::Ints(_), ParamKind::ConstInput { kind: Kind::Floats, .. }) => {
                let v: Vec<f64> = a.as_i64s()?.into_iter().map(|n| n as f64).collect();
                Operand::Const(Tensor::from_f64(DType::F32, vec![v.len()], &v))
            }
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
}

/// The element type of a number among tensors: that of the first tensor of the match.
fn rule_dtype(place: &Param, found: &FormMatch<'_>) -> Option<DType> {
    let ParamKind::Tensor { .. } = &place.kind else { return None };
    let mut types: Vec<(&Name, DType)> =
        found.tensors.keys().filter_map(|n| Some((n, found.env.tensor(n)?.dtype))).collect();
    types.sort_by(|a, b| b.0.cmp(a.0));
    types.first().map(|t| t.1)
}

fn is_default(p: &Param, a: &Attr, found: &FormMatch<'_>) -> bool {
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
        (Kind::DType, Attr::DType(d)) => RawAttr::Int(i64::from(tensor::code(*d))),
        _ => return None,
    })
}
