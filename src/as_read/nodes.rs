//! Evaluates an ONNX file one node at a time: each is read alone, as its item says at the shapes and values of the run, and the reference
//! interpreter computes it in f64. No law, no folding and no symbol is involved, so that what the import of the whole decides shows.
//!
//! Sequences and optionals are no values here: the nodes that make them are read together with those that take tensors out. Bodies of
//! branches and repetitions are run like graphs of their own; of other control flow the import writes the body out.

use mlc_backends::reference::{Array, CodeCache, Elements, Precision, Reference};
use mlc_dsl::ir::{Program, Tensor, Value};
use mlc_dsl::library::Library;
use mlc_onnx::flow;
use mlc_onnx::{
    Flow, ImportStage, KnownValues, MissingValues, NodeItems, RawDim, RawGraph, RawModel, RawNode,
    RawValueInfo, import_nodes, reads,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that one evaluation of a file takes, those of bodies counted each time.
const MOST_NODES: usize = 20_000;
/// Values that one node may ask for.
const MOST_QUESTIONS: usize = 64;
/// Bodies may nest this deep.
const MOST_DEPTH: usize = 64;

/// Why a file was not evaluated.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The node, as messages call it.
    pub node: String,
    /// What is wrong.
    pub reason: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.node, self.reason)
    }
}

/// Values by name.
pub type Values = BTreeMap<String, Array>;

/// Evaluates one file.
pub struct Nodes<'a> {
    raw: &'a RawModel,
    library: &'a Library,
    codes: CodeCache<'a>,
    items: NodeItems<'a>,
    reference: Reference,
    left: Cell<usize>,
}

impl<'a> Nodes<'a> {
    /// For a file.
    pub fn of(raw: &'a RawModel, library: &'a Library) -> Nodes<'a> {
        let codes = CodeCache::new(library);
        let reference = Reference::default();
        let items = NodeItems::of(raw, library);
        Nodes { raw, library, codes, items, reference, left: Cell::new(MOST_NODES) }
    }

    /// The same with every value on the way moved by some roundings.
    pub fn disturbed(self, seed: u64) -> Nodes<'a> {
        let precision = Precision::Disturbed(seed);
        Nodes { reference: Reference { precision, ..self.reference }, ..self }
    }

    /// The tensors of the main graph that these outputs are computed from, for these inputs. Results of nodes that are not to be evaluated
    /// are among the inputs.
    ///
    /// # Errors
    /// A node refuses its operands, or cannot be evaluated alone.
    pub fn run(&self, inputs: Values, outputs: &[(String, Value)]) -> Result<Values, Refused> {
        self.left.set(MOST_NODES);
        let graph = &self.raw.graph;
        let mut needed: BTreeSet<String> = outputs.iter().map(|(n, _)| n.clone()).collect();
        let mut is_needed = vec![false; graph.nodes.len()];
        for (node, is_needed) in graph.nodes.iter().zip(&mut is_needed).rev() {
            let made = |o: &String| {
                let elements = || needed.iter().any(|n| is_element(n, o));
                !inputs.contains_key(o) && (needed.contains(o) || elements())
            };
            *is_needed = node.outputs.iter().any(made);
            if *is_needed {
                needed.extend(reads(node));
            }
        }
        let mut scope = Scope::of(graph, None);
        scope.values = inputs;
        self.graph(&mut scope, 0, &|i| is_needed[i])?;
        let lists = outputs.iter().filter(|(n, _)| scope.value(n).is_none());
        if let Some((name, _)) = lists.into_iter().next() {
            let reason = "it is a sequence or an optional".to_string();
            let node = format!("output `{}`", mlc_dsl::shown(name));
            return Err(Refused { node, reason });
        }
        let constants = outputs.iter().filter_map(|(n, _)| Some((n, scope.constant(n)?)));
        let constants = constants.map(|(n, t)| (n.clone(), Array::from_tensor(t)));
        let constants: Vec<(String, Array)> = constants.collect();
        scope.values.extend(constants);
        Ok(scope.values)
    }

    fn graph(
        &self,
        scope: &mut Scope<'_>,
        depth: usize,
        is_needed: &dyn Fn(usize) -> bool,
    ) -> Result<(), Refused> {
        let graph = scope.graph;
        for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| is_needed(*i)) {
            let refused = |reason: String| Refused { node: node.label(), reason };
            let left = self.left.get().checked_sub(1);
            self.left.set(left.ok_or_else(|| refused("the file runs too many nodes".into()))?);
            let flowed = match flow(node) {
                Some(flow) if depth < MOST_DEPTH => self.flow(node, flow, scope, depth),
                _ => Ok(None),
            };
            let done = match flowed {
                Ok(Some(done)) => Some(done),
                Ok(None) => self.single(node, scope).map_err(refused)?,
                Err(e) => self.single(node, scope).map_err(|_| e)?,
            };
            match done {
                Some(values) => scope.values.extend(values),
                None => scope.makers.push(node),
            }
        }
        Ok(())
    }

    /// The results of control flow; `None` if it is for the import to say.
    fn flow(
        &self,
        node: &RawNode,
        flow: Flow<'_>,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Result<Option<Values>, Refused> {
        let given = |i: usize| {
            let name = node.inputs.get(i).filter(|n| !n.is_empty());
            name.map(|n| scope.value(n))
        };
        let number = |i: usize| match given(i) {
            Some(Some(a)) => whole(&a).map(Some),
            Some(None) => None,
            None => Some(None),
        };
        match flow {
            Flow::Branch { then, otherwise } => {
                let Some(Some(condition)) = number(0) else { return Ok(None) };
                let body = if condition != 0 { then } else { otherwise };
                let Some(results) = self.body(body, vec![], scope, depth)? else {
                    return Ok(None);
                };
                Ok(Some(named(node, results)))
            }
            Flow::Repeat { body } => {
                let (Some(most), Some(first)) = (number(0), number(1)) else { return Ok(None) };
                let carried = (2..node.inputs.len()).map(|i| given(i).flatten());
                let Some(carried) = carried.collect::<Option<Vec<Array>>>() else {
                    return Ok(None);
                };
                let results = self.repeat(body, (most, first), carried, scope, depth)?;
                Ok(results.map(|r| named(node, r)))
            }
        }
    }

    fn repeat(
        &self,
        body: &RawGraph,
        (most, first): (Option<i64>, Option<i64>),
        mut carried: Vec<Array>,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Result<Option<Vec<Array>>, Refused> {
        let (states, mut time) = (carried.len(), 0);
        let mut goes_on = first.unwrap_or(1) != 0;
        let mut kept: Vec<Vec<Array>> = vec![];
        while goes_on && most.is_none_or(|most| time < most) {
            let (i64, bool) = (mlc_dsl::ir::DType::I64, mlc_dsl::ir::DType::Bool);
            let numbers = [(i64, time), (bool, 1)].map(|(d, n)| Tensor::from_i64(d, vec![], &[n]));
            let inputs = numbers.iter().map(Array::from_tensor).chain(carried).collect();
            let Some(mut results) = self.body(body, inputs, scope, depth)? else {
                return Ok(None);
            };
            if results.len() <= states {
                return Ok(None);
            }
            kept.push(results.split_off(states + 1));
            let condition = results.remove(0);
            goes_on = first.is_none() || whole(&condition) != Some(0);
            carried = results;
            time += 1;
        }
        // The types of what never was are for the import to say.
        let Some(count) = kept.first().map(Vec::len) else {
            return Ok((body.outputs.len() == states + 1).then_some(carried));
        };
        for k in 0..count {
            let slices: Vec<&Array> = kept.iter().map(|all| &all[k]).collect();
            let Some(all) = stacked(&slices) else { return Ok(None) };
            carried.push(all);
        }
        Ok(Some(carried))
    }

    /// What a body yields; `None` if that is not only tensors.
    fn body(
        &self,
        body: &RawGraph,
        inputs: Vec<Array>,
        outer: &Scope<'_>,
        depth: usize,
    ) -> Result<Option<Vec<Array>>, Refused> {
        let mut scope = Scope::of(body, Some(outer));
        scope.values = body.inputs.iter().map(|i| i.name.clone()).zip(inputs).collect();
        self.graph(&mut scope, depth + 1, &|_| true)?;
        Ok(body.outputs.iter().map(|o| scope.value(&o.name)).collect())
    }

    /// The results of one node; `None` if they are no tensors.
    fn single(&self, node: &RawNode, scope: &Scope<'_>) -> Result<Option<Values>, String> {
        let mut graph = RawGraph::default();
        let mut given = Values::new();
        let mut nodes = vec![node.clone()];
        let mut open: Vec<String> = reads(node).into_iter().collect();
        while let Some(name) = open.pop() {
            if given.contains_key(&name) || graph.initializers.contains_key(&name) {
                continue;
            }
            if let Some(tensor) = scope.constant(&name) {
                graph.initializers.insert(name, tensor.clone());
            } else if let Some(array) = scope.value(&name) {
                graph.inputs.push(info(&name, &array));
                given.insert(name, array);
            } else if let Some(maker) = scope.maker(&name) {
                if !nodes.contains(maker) {
                    nodes.push(maker.clone());
                    open.extend(reads(maker));
                }
            } else {
                return Err(format!("`{}` has no value", mlc_dsl::shown(&name)));
            }
        }
        nodes.reverse();
        in_order(&mut nodes);
        graph.nodes = nodes;
        let outputs: Vec<&String> = node.outputs.iter().filter(|o| !o.is_empty()).collect();
        let output = |name: &&String| RawValueInfo { name: (*name).clone(), ..Default::default() };
        graph.outputs = outputs.iter().map(output).collect();
        let opset_imports = self.items.opsets.clone();
        let alone = RawModel {
            ir_version: self.raw.ir_version,
            opset_imports,
            graph,
            ..Default::default()
        };
        let program = self.read(&alone, &given)?;
        let made = |name: &String| program.outputs.iter().any(|(n, _)| n == name);
        if !outputs.iter().all(|o| made(o)) {
            return Ok(None);
        }
        let results = self.values(&program, &given)?;
        let names = program.outputs.iter().map(|(n, _)| n.clone());
        Ok(Some(names.zip(results).collect()))
    }

    /// The program of a node: what it asks for is answered with what it is given.
    fn read(&self, alone: &RawModel, given: &Values) -> Result<Program, String> {
        let mut answers = KnownValues::default();
        for _ in 0..=MOST_QUESTIONS {
            let stage = import_nodes(alone, self.library, &answers, &self.items);
            match stage.map_err(|e| e.to_string())? {
                ImportStage::Done(imported) => return Ok(imported.program),
                ImportStage::NeedsValues(asked) => {
                    answers.add(&asked.requests, self.answers(&asked, given)?);
                }
            }
        }
        Err("it decides too many values one after the other".into())
    }

    fn answers(&self, asked: &MissingValues, given: &Values) -> Result<Vec<Tensor>, String> {
        if asked.program.outputs.is_empty() {
            return Ok(vec![]);
        }
        Ok(self.values(&asked.program, given)?.iter().map(Array::to_tensor).collect())
    }

    fn values(&self, program: &Program, given: &Values) -> Result<Vec<Array>, String> {
        let input = |(name, _): &(String, _)| given.get(name).cloned();
        let inputs = program.inputs.iter().map(input).collect::<Option<Vec<Array>>>();
        let inputs = inputs.ok_or("an input has no value")?;
        self.reference.run_again(program, &self.codes, &inputs).map_err(|e| e.to_string())
    }
}

/// What names stand for in a graph.
struct Scope<'a> {
    graph: &'a RawGraph,
    values: Values,
    /// Nodes whose results are no tensors.
    makers: Vec<&'a RawNode>,
    outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    fn of(graph: &'a RawGraph, outer: Option<&'a Scope<'a>>) -> Scope<'a> {
        Scope { graph, values: Values::new(), makers: vec![], outer }
    }

    fn constant(&self, name: &str) -> Option<&Tensor> {
        if self.values.contains_key(name) {
            return None;
        }
        let own = self.graph.initializers.get(name);
        own.or_else(|| self.outer.and_then(|o| o.constant(name)))
    }

    fn value(&self, name: &str) -> Option<Array> {
        let own = self.values.get(name).cloned();
        let own = own.or_else(|| self.graph.initializers.get(name).map(Array::from_tensor));
        own.or_else(|| self.outer.and_then(|o| o.value(name)))
    }

    fn maker(&self, name: &str) -> Option<&RawNode> {
        let own = self.makers.iter().find(|n| n.outputs.iter().any(|o| o == name)).copied();
        own.or_else(|| self.outer.and_then(|o| o.maker(name)))
    }
}

/// True of `list[0]`, `list[1]`, …
fn is_element(name: &str, list: &str) -> bool {
    name.strip_prefix(list).is_some_and(|rest| rest.starts_with('['))
}

/// The results of a node by their names.
fn named(node: &RawNode, results: Vec<Array>) -> Values {
    let pairs = node.outputs.iter().cloned().zip(results);
    pairs.filter(|(name, _)| !name.is_empty()).collect()
}

/// Makers before what reads them.
fn in_order(nodes: &mut Vec<RawNode>) {
    let mut ordered: Vec<RawNode> = Vec::with_capacity(nodes.len());
    while !nodes.is_empty() {
        let made: Vec<&String> = nodes.iter().flat_map(|n| &n.outputs).collect();
        let is_ready = |n: &RawNode| {
            reads(n).iter().all(|name| !made.contains(&name) || n.outputs.contains(name))
        };
        let at = nodes.iter().position(is_ready).unwrap_or(0);
        let next = nodes.remove(at);
        ordered.push(next);
    }
    *nodes = ordered;
}

fn info(name: &str, a: &Array) -> RawValueInfo {
    let dims = a.shape().iter().map(|&n| RawDim::Known(n as u64)).collect();
    let name = name.to_string();
    RawValueInfo { name, dtype: Some(a.dtype()), dims: Some(dims), containers: vec![] }
}

/// The only element of an array of integers or truth values.
fn whole(a: &Array) -> Option<i64> {
    match a.ints() {
        Some([n]) => Some(*n),
        _ => None,
    }
}

/// Arrays of one type as slices along a new first axis.
fn stacked(all: &[&Array]) -> Option<Array> {
    let first = all.first()?;
    if all.iter().any(|a| a.shape() != first.shape() || a.dtype() != first.dtype()) {
        return None;
    }
    let mut shape = vec![all.len()];
    shape.extend(first.shape());
    match first.elements() {
        Elements::Float(_) => {
            let values = all.iter().flat_map(|a| a.to_f64()).collect();
            Array::from_f64(first.dtype(), shape, values)
        }
        Elements::Int(_) => {
            let values = all.iter().flat_map(|a| a.ints().unwrap_or_default().to_vec()).collect();
            Array::from_i64(first.dtype(), shape, values)
        }
    }
}

/// Values by name of tensors in the order of a program's inputs.
pub fn given(program: &Program, inputs: &[Tensor]) -> Values {
    let names = program.inputs.iter().map(|(n, _)| n.clone());
    names.zip(inputs.iter().map(Array::from_tensor)).collect()
}
