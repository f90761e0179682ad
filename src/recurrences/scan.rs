//! A scan as it is compared: its body as a program, and what stands for its inputs outside. Nothing is assigned here.

use super::assignment::{Assignment, Search};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_onnx::{
    Imported, Loops, OuterValue, RawAttr, RawNode, import_with_opaque_nodes, subgraphs,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// So deep it is looked for operands of a recurrence behind what the body of a scan reads.
const DEPTH: usize = 8;

/// What a scan reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seed {
    /// A value of the program around it.
    Value(Value),
    /// A constant that it alone reads.
    Constant(Tensor),
}

/// A scan of the main graph.
pub(super) struct Scan<'a> {
    pub library: &'a Arc<Library>,
    pub source: &'a Program,
    /// The body; its inputs are the states, the slices, and what it sees from outside.
    pub body: Program,
    pub states: Vec<String>,
    pub slices: Vec<String>,
    pub captured: HashMap<String, Seed>,
    /// The states before the first step.
    pub initial: Vec<Seed>,
    /// What is gone along, and along which axis.
    pub sequences: Vec<(Seed, usize)>,
    /// Along which axis what is made is put.
    pub makes: Vec<usize>,
    pub backwards: bool,
}

impl<'a> Scan<'a> {
    /// A node that was kept; nothing if its body is no program.
    pub fn new(node: &RawNode, imported: &'a Imported, library: &'a Arc<Library>) -> Option<Self> {
        let (source, model) = (&imported.program, &imported.model);
        let seed = |name: &str| -> Option<Seed> {
            if let Some(t) = model.opaque.constants.get(name) {
                return Some(Seed::Constant(t.clone()));
            }
            if let Some((_, v)) = source.outputs.iter().find(|(n, _)| n == name) {
                return Some(Seed::Value(*v));
            }
            let k = source.inputs.iter().position(|(n, _)| n == name)?;
            let is_it = |n: &mlc_dsl::ir::Node| n.kind == NodeKind::Input(k as u32);
            let node = source.nodes.iter().position(is_it)?;
            let node = mlc_dsl::ir::NodeId(node as u32);
            Some(Seed::Value(Value { node, output: 0 }))
        };
        let outer = |name: &str| match seed(name)? {
            Seed::Constant(t) => Some(OuterValue::Constant(t)),
            Seed::Value(v) => Some(OuterValue::Typed(source.ty(v).clone())),
        };
        let body = subgraphs(node, &model.opset_imports, library, &outer)?.pop()?;
        let graph = &body.model.graph;
        let RawAttr::Graph(own) = node.attrs.get("body")? else { return None };
        let own: Vec<String> = own.inputs.iter().map(|i| i.name.clone()).collect();
        let read = import_with_opaque_nodes(
            body.model.clone(),
            library,
            &BTreeSet::new(),
            Loops::WrittenOut,
        );
        let read = read.ok().filter(|r| r.assumed.is_empty() && r.model.opaque.nodes.is_empty())?;
        let sequences = usize::try_from(node.attrs.get("num_scan_inputs")?.as_int()?).ok()?;
        let states = own.len().checked_sub(sequences)?;
        let made = graph.outputs.len().checked_sub(states)?;
        let given = node.inputs.iter().map(|n| seed(n)).collect::<Option<Vec<Seed>>>()?;
        let (initial, gone) = given.split_at_checked(states)?;
        let list = |key: &str, count: usize| match node.attrs.get(key) {
            Some(RawAttr::Ints(v)) => v.clone(),
            _ => vec![0; count],
        };
        let rank = |s: &Seed| match s {
            Seed::Value(v) => source.ty(*v).rank(),
            Seed::Constant(t) => t.shape().len(),
        };
        let place = |axis: i64, rank: usize| {
            let axis = if axis < 0 { axis + rank as i64 } else { axis };
            usize::try_from(axis).ok().filter(|&a| a < rank)
        };
        let axes = list("scan_input_axes", sequences);
        let sequences = gone.iter().zip(axes);
        let sequences = sequences.map(|(s, a)| Some((s.clone(), place(a, rank(s))?)));
        let sequences = sequences.collect::<Option<Vec<_>>>()?;
        let results = read.program.outputs.iter().skip(states);
        let makes = results.zip(list("scan_output_axes", made));
        let makes = makes.map(|((_, v), a)| place(a, read.program.ty(*v).rank() + 1));
        let makes = makes.collect::<Option<Vec<_>>>()?;
        let directions = list("scan_input_directions", sequences.len());
        let all: Vec<i64> =
            directions.into_iter().chain(list("scan_output_directions", made)).collect();
        let backwards = all.first() == Some(&1);
        let one_way = all.iter().all(|&d| (d == 1) == backwards);
        let is_whole = makes.len() == made && read.program.outputs.len() == states + made;
        let captured = read.program.inputs.iter().filter(|(n, _)| !own.contains(n));
        let captured = captured.map(|(n, _)| Some((n.clone(), seed(n)?)));
        let scan = Scan {
            library,
            source,
            captured: captured.collect::<Option<_>>()?,
            body: read.program,
            states: own[..states].to_vec(),
            slices: own[states..].to_vec(),
            initial: initial.to_vec(),
            sequences,
            makes,
            backwards,
        };
        (one_way && is_whole).then_some(scan)
    }

    /// How this is a recurrence; nothing if it is not shown to be.
    pub fn found(&self, call: CallId, laws: &[u32]) -> Option<Assignment> {
        Search::new(self, call, laws)?.found()
    }

    pub fn type_of(&self, seed: &Seed) -> Type {
        match seed {
            Seed::Value(v) => self.source.ty(*v).clone(),
            Seed::Constant(t) => Type::known(t.dtype(), t.shape()),
        }
    }

    /// True if a value is a constant by itself.
    pub fn is_constant(&self, seed: &Seed) -> bool {
        match seed {
            Seed::Constant(_) => true,
            Seed::Value(v) => matches!(self.source.node(v.node).kind, NodeKind::Const(_)),
        }
    }

    /// True if a value is computed from others and constants alone.
    pub fn follows(&self, seed: &Seed, from: &[&Seed]) -> bool {
        match seed {
            Seed::Constant(_) => true,
            Seed::Value(v) => self.value_follows(*v, from, DEPTH, &mut HashMap::new()),
        }
    }

    fn value_follows(
        &self,
        v: Value,
        from: &[&Seed],
        depth: usize,
        known: &mut HashMap<Value, bool>,
    ) -> bool {
        if from.contains(&&Seed::Value(v)) {
            return true;
        }
        if let Some(&follows) = known.get(&v) {
            return follows;
        }
        let node = self.source.node(v.node);
        let follows = match node.kind {
            NodeKind::Const(_) => true,
            NodeKind::Apply(..) if depth > 0 => {
                node.args.iter().all(|&a| self.value_follows(a, from, depth - 1, known))
            }
            NodeKind::Input(_) | NodeKind::Apply(..) => false,
        };
        known.insert(v, follows);
        follows
    }

    /// What may be an operand that a step sees whole: what the body sees, what the states begin with, and what these are made of.
    pub fn pool(&self) -> Vec<Seed> {
        let mut outside = Outside::new(self);
        let mut builder = Builder::new(self.library);
        let mut pool: Vec<Seed> = vec![];
        let mut names: Vec<&String> = self.captured.keys().collect();
        names.sort();
        let seeds = names.into_iter().map(|n| &self.captured[n]).chain(&self.initial);
        for seed in seeds {
            outside.value(&mut builder, seed);
            if matches!(seed, Seed::Constant(_)) && !pool.contains(seed) {
                pool.push(seed.clone());
            }
        }
        let mut known: Vec<Value> = outside.known.into_keys().collect();
        known.sort_unstable();
        pool.extend(known.into_iter().map(Seed::Value));
        pool
    }
}

/// Values around a scan, copied as deep as it is looked; what lies deeper stands for itself.
pub(super) struct Outside<'s, 'a> {
    scan: &'s Scan<'a>,
    known: HashMap<Value, Value>,
}

impl<'s, 'a> Outside<'s, 'a> {
    pub fn new(scan: &'s Scan<'a>) -> Self {
        Outside { scan, known: HashMap::new() }
    }

    pub fn value(&mut self, builder: &mut Builder<'_>, seed: &Seed) -> Option<Value> {
        match seed {
            Seed::Value(v) => self.copied(builder, *v, DEPTH),
            Seed::Constant(t) => Some(builder.constant(t.clone())),
        }
    }

    fn copied(&mut self, builder: &mut Builder<'_>, v: Value, depth: usize) -> Option<Value> {
        if let Some(&known) = self.known.get(&v) {
            return Some(known);
        }
        let source = self.scan.source;
        let node = source.node(v.node);
        let new = match &node.kind {
            NodeKind::Const(c) => builder.constant(source.consts.get(*c).clone()),
            NodeKind::Apply(call, attrs) if depth > 0 => {
                let args = node.args.iter().map(|&a| self.copied(builder, a, depth - 1));
                let args = args.collect::<Option<Vec<Value>>>()?;
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                let made = builder.apply(*call, &attrs, &args).ok()?;
                *made.get(v.output as usize)?
            }
            NodeKind::Input(_) | NodeKind::Apply(..) => {
                let name = format!("/outside{}.{}", v.node.0, v.output);
                builder.input(&name, source.ty(v).clone())
            }
        };
        self.known.insert(v, new);
        Some(new)
    }
}

/// The permutation that moves one axis to another place.
pub(super) fn moving(rank: usize, from: usize, to: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).filter(|&i| i != from).collect();
    perm.insert(to.min(perm.len()), from);
    perm
}
