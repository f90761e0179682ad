//! Operators without a form of their own, spelled out: a meaning becomes operators on whole tensors, and a recurrence becomes
//! a `Scan` whose body is one step.
//!
//! The `Scan` is cut out of the program as a node that is kept: what it reads are outputs, what it yields are inputs. Nothing
//! is optimised here.

pub(crate) mod step;

use super::export::{export, stuck, value_info};
use super::import::ModelInfo;
use super::import::error::ImportError;
use super::raw::{RawAttr, RawGraph, RawNode};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Library};
use mlc_dsl::typing::infer::{Application, infer};
use mlc_dsl::whole_tensors;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use step::{Step, steps};

/// So often operators are spelled out, one inside the other.
const MOST_ROUNDS: usize = 8;

/// The program without operators that ONNX cannot write, and the model with the recurrences among them as nodes that it
/// keeps. `None` if all of it can be written, or if something cannot be spelled out.
pub fn spelled_out(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Option<(Program, ModelInfo)> {
    let mut model = model.clone();
    if model.opaque.nodes.is_empty() {
        // What is kept from here on is of the operator set that is written.
        model.opset_imports.insert(String::new(), opset);
    }
    if model.outputs.is_empty() {
        let outputs = program.outputs.iter();
        model.outputs = outputs.map(|(n, v)| value_info(n, program.ty(*v))).collect();
        model.inputs = program.inputs.iter().map(|(n, t)| value_info(n, t)).collect();
    }
    let (mut current, mut open) = stuck(program, library, &model, opset)?;
    for round in 0..MOST_ROUNDS {
        let cut = ModelCut::new(library, &mut model, opset, round);
        current = cut.rebuilt(&current, &open)?;
        match stuck(&current, library, &model, opset) {
            None => return Some((current, model)),
            Some(next) => (current, open) = next,
        }
    }
    None
}

/// A program that is rebuilt, and what is cut out of it.
pub(super) struct ModelCut<'a> {
    pub library: &'a Library,
    pub builder: Builder<'a>,
    model: &'a mut ModelInfo,
    pub opset: i64,
    round: usize,
    /// What kept nodes read besides inputs and constants.
    read: BTreeMap<String, Value>,
}

impl<'a> ModelCut<'a> {
    fn new(
        library: &'a Library,
        model: &'a mut ModelInfo,
        opset: i64,
        round: usize,
    ) -> ModelCut<'a> {
        let builder = Builder::new(library);
        ModelCut { library, builder, model, opset, round, read: BTreeMap::new() }
    }

    fn rebuilt(mut self: ModelCut<'a>, program: &Program, open: &[NodeId]) -> Option<Program> {
        let used = used(program);
        let mut new: Vec<Vec<Value>> = vec![];
        for (i, node) in program.nodes.iter().enumerate() {
            let id = NodeId(i as u32);
            self.builder.set_origin(&node.origin);
            new.push(match &node.kind {
                NodeKind::Input(k) => {
                    let (name, ty) = &program.inputs[*k as usize];
                    vec![self.builder.input(name, ty.clone())]
                }
                NodeKind::Const(c) => {
                    vec![self.builder.constant(program.consts.get(*c).clone())]
                }
                NodeKind::Apply(call, attrs) => {
                    let arg = |a: &Value| new[a.node.0 as usize][a.output as usize];
                    let args: Vec<Value> = node.args.iter().map(arg).collect();
                    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                    match open.contains(&id) {
                        true => {
                            let of = |o| used.contains(&Value { node: id, output: o });
                            let base = format!("{}/{}.{i}", node.origin, self.round);
                            self.spelled(*call, &attrs, &args, &base, &of)?
                        }
                        false => self.builder.apply(*call, &attrs, &args).ok()?,
                    }
                }
            });
        }
        let value = |v: &Value| new[v.node.0 as usize][v.output as usize];
        let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), value(v)));
        let outputs = outputs.chain(self.read).collect();
        Some(self.builder.finish(outputs))
    }

    /// One application, spelled out.
    fn spelled(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
        base: &str,
        used: &dyn Fn(u32) -> bool,
    ) -> Option<Vec<Value>> {
        let declared = self.library.call(call);
        let CallKind::Op(meanings) = &declared.kind else { return None };
        let types: Vec<Type> = args.iter().map(|&a| self.builder.ty(a).clone()).collect();
        let types: Vec<&Type> = types.iter().collect();
        let app = infer(declared, &types, attrs).ok()?;
        let Some(recurrence) = &declared.recurrence else {
            return whole_tensors::whole(&mut self.builder, &app.env, meanings, args, &app.types);
        };
        let step = steps(declared, meanings, recurrence, &app, args.len())?;
        self.scanned(step, &app, args, base.trim_start_matches('/'), used)
    }

    /// A recurrence as a `Scan`.
    fn scanned(
        &mut self,
        step: Step<'_>,
        app: &Application,
        args: &[Value],
        base: &str,
        used: &dyn Fn(u32) -> bool,
    ) -> Option<Vec<Value>> {
        let base = if base.starts_with(|c: char| c.is_ascii_digit()) {
            format!("recurrence/{base}")
        } else {
            base.to_string()
        };
        let names: Vec<String> =
            args.iter().enumerate().map(|(k, &v)| self.named(v, &base, k)).collect();
        let body = step.body(self.library, app, args, &names, &base, &self.builder)?;
        let mut inputs = vec![];
        for (r, value) in step.first(&mut self.builder, app, args)? {
            inputs.push(self.shown(value, format!("{base}/first{r}")));
        }
        let states = inputs.len();
        let mut axes = vec![];
        for (k, axis) in &body.sequences {
            inputs.push(self.shown(args[*k], names[*k].clone()));
            axes.push(*axis as i64);
        }
        if body.counts || body.sequences.is_empty() {
            let iota = self.library.find("iota")?;
            let size = Attr::Int(step.length.clone());
            let to = Attr::DType(DType::I64);
            let declared = self.library.call(iota);
            let given = |p: &mlc_dsl::library::AttrParam| match &*p.name {
                "size" => Some(size.clone()),
                "to" => Some(to.clone()),
                _ => None,
            };
            let attrs: Vec<Option<Attr>> = declared.attrs.iter().map(given).collect();
            let count = *self.builder.apply(iota, &attrs, &[]).ok()?.first()?;
            inputs.push(self.shown(count, format!("{base}/count")));
            axes.push(0);
        }
        for k in &body.captured {
            self.shown(args[*k], names[*k].clone());
        }
        let mut outputs = vec![];
        let mut last: HashMap<usize, Value> = HashMap::new();
        for &r in step.states.keys() {
            let name = format!("{base}/last{r}");
            last.insert(r, self.builder.input(&name, step.slice_type(r, app)?));
            outputs.push(name);
        }
        let mut made: HashMap<usize, Value> = HashMap::new();
        let (mut made_axes, mut wanted) = (vec![], vec![]);
        for (r, axis) in step.stepwise() {
            if used(r as u32) || step.is_read_after(r) {
                let name = format!("{base}/all{r}");
                made.insert(r, self.builder.input(&name, app.types[r].clone()));
                outputs.push(name);
                made_axes.push(axis as i64);
                wanted.push(r);
            }
        }
        let graph =
            self.graph(&step, body.program, &names, &base, &wanted, inputs.len() - states)?;
        let direction = i64::from(step.backwards);
        let attrs = [
            ("body", RawAttr::Graph(Box::new(graph))),
            ("num_scan_inputs", RawAttr::Int(axes.len() as i64)),
            ("scan_input_directions", RawAttr::Ints(vec![direction; axes.len()])),
            ("scan_output_directions", RawAttr::Ints(vec![direction; made_axes.len()])),
            ("scan_input_axes", RawAttr::Ints(axes)),
            ("scan_output_axes", RawAttr::Ints(made_axes)),
        ];
        let node = RawNode {
            op_type: "Scan".into(),
            name: base.clone(),
            inputs,
            outputs,
            attrs: attrs.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
            ..RawNode::default()
        };
        let why = ImportError::node(&node, "it is written for a recurrence");
        self.model.opaque.nodes.push((node, why));
        step.after(&mut self.builder, app, args, &made, &last)
    }

    /// The body as a graph: states, sequences, then what it sees from outside.
    fn graph(
        &self,
        step: &Step<'_>,
        program: Program,
        names: &[String],
        base: &str,
        wanted: &[usize],
        sequences: usize,
    ) -> Option<RawGraph> {
        let mut program = program;
        let is_output = |name: &str| {
            let made = wanted.iter().any(|r| name == format!("{base}/made{r}"));
            made || step.states.keys().any(|r| name == format!("{base}/next{r}"))
        };
        program.outputs.retain(|(name, _)| is_output(name));
        let info =
            ModelInfo { opset_imports: self.model.opset_imports.clone(), ..ModelInfo::default() };
        let mut graph = export(&program, self.library, &info, self.opset).ok()?.graph;
        let states = step.states.keys().map(|r| format!("{base}/state{r}"));
        let given = graph.inputs.iter().map(|i| i.name.clone());
        let given = given.filter(|n| n.starts_with(&format!("{base}/slice")));
        let mut given: Vec<String> = given.collect();
        // By parameter and axis; the number of the step is last.
        given.sort();
        let own: Vec<String> = states.chain(given).collect();
        let by_name: HashMap<String, _> =
            std::mem::take(&mut graph.inputs).into_iter().map(|i| (i.name.clone(), i)).collect();
        let mut inputs = vec![];
        for name in own {
            inputs.push(by_name.get(&name)?.clone());
        }
        if sequences > inputs.len() - step.states.len() {
            // A scan goes along something, if only the numbers of the steps.
            inputs.push(value_info(&format!("{base}/slice_count"), &Type::new(DType::I64, vec![])));
        }
        graph.inputs = inputs;
        let outside: BTreeSet<&String> = names.iter().collect();
        let kept: BTreeSet<&String> = graph.outputs.iter().map(|o| &o.name).collect();
        let made = graph.nodes.iter().flat_map(|n| &n.outputs).filter(|o| !o.is_empty());
        let local = graph.initializers.keys().chain(made);
        let local = local.filter(|n| !kept.contains(n) && !outside.contains(n));
        let renamed: HashMap<String, String> =
            local.map(|n| (n.clone(), format!("{base}/body/{n}"))).collect();
        let initializers = std::mem::take(&mut graph.initializers);
        let new = |n: String| renamed.get(&n).cloned().unwrap_or(n);
        graph.initializers = initializers.into_iter().map(|(n, t)| (new(n), t)).collect();
        rename(&mut graph, &renamed);
        Some(graph)
    }

    /// What a kept node calls a value.
    fn named(&self, v: Value, base: &str, k: usize) -> String {
        let program = self.builder.program();
        match program.node(v.node).kind {
            NodeKind::Input(i) => program.inputs[i as usize].0.clone(),
            NodeKind::Const(_) | NodeKind::Apply(..) => format!("{base}/arg{k}"),
        }
    }

    /// Lets kept nodes read a value under a name.
    fn shown(&mut self, v: Value, name: String) -> String {
        let program = self.builder.program();
        if let NodeKind::Input(i) = program.node(v.node).kind {
            return program.inputs[i as usize].0.clone();
        }
        match program.as_const(v) {
            Some(tensor) => drop(self.model.opaque.constants.insert(name.clone(), tensor.clone())),
            None => drop(self.read.insert(name.clone(), v)),
        }
        name
    }
}

/// The values that something reads.
fn used(program: &Program) -> BTreeSet<Value> {
    let args = program.nodes.iter().flat_map(|n| n.args.iter().copied());
    args.chain(program.outputs.iter().map(|(_, v)| *v)).collect()
}

/// Replaces names of values in a graph, those that bodies inside read too. Initializers keep theirs.
pub fn rename(graph: &mut RawGraph, names: &HashMap<String, String>) {
    let new = |name: &mut String| {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    };
    for node in &mut graph.nodes {
        node.inputs.iter_mut().for_each(new);
        node.outputs.iter_mut().for_each(new);
        node.attrs.values_mut().flat_map(RawAttr::graphs_mut).for_each(|g| rename(g, names));
    }
    graph.outputs.iter_mut().for_each(|o| new(&mut o.name));
}

/// Without an axis.
pub(super) fn without(ty: &Type, axis: usize) -> Type {
    let mut shape: Vec<Extent> = ty.shape.clone();
    shape.remove(axis);
    Type::new(ty.dtype, shape)
}
