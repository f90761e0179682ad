//! Subgraphs of control-flow nodes that are kept: each as a model of its own, and the types of the node's results.
//!
//! A state of a loop has the type that it begins with, unless the body changes it: an extent that changes is a symbol. So
//! the types hold before every repetition if they hold before the first one. Nothing is executed or rewritten here.

pub(crate) mod at_run;

use super::export::value_info;
use super::import::control::scan::{ScanDirection, scan_directions};
use super::import::{Loops, import_with_opaque_nodes};
use super::opaque::free;
use super::raw::{RawAttr, RawDim, RawGraph, RawModel, RawNode};
use mlc_dsl::ir::{DType, Extent, Program, Tensor, Type};
use mlc_dsl::library::Library;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// So often the types of states are made more general.
const MOST_ROUNDS: usize = 8;

/// A value that a body sees from outside.
#[derive(Clone, Debug)]
pub enum OuterValue {
    /// It is computed.
    Typed(Type),
    /// It is known.
    Constant(Tensor),
}

/// A body as a model: its own inputs come first, then what it reads of the graphs around it.
#[derive(Debug)]
pub struct SubgraphModel {
    /// The attribute that holds it.
    pub attribute: String,
    /// Names of inputs and outputs are those of the body.
    pub model: RawModel,
}

/// The type of a result; an extent is `None` if only a run knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResultType {
    pub dtype: DType,
    pub shape: Vec<Option<Extent>>,
}

/// The bodies of a node.
pub(super) struct Subgraphs {
    pub models: Vec<SubgraphModel>,
    pub results: Vec<Option<ResultType>>,
}

/// The bodies of a node that was kept, with what `outer` says of the values around it; `None` if they cannot be typed.
pub fn subgraphs(
    node: &RawNode,
    opsets: &BTreeMap<String, i64>,
    library: &Library,
    outer: &dyn Fn(&str) -> Option<OuterValue>,
) -> Option<Vec<SubgraphModel>> {
    Some(find(node, opsets, library, outer)?.models)
}

pub(super) fn find(
    node: &RawNode,
    opsets: &BTreeMap<String, i64>,
    library: &Library,
    outer: &dyn Fn(&str) -> Option<OuterValue>,
) -> Option<Subgraphs> {
    let finder = Finder { node, opsets, library, outer };
    match (node.domain.as_str(), node.op_type.as_str()) {
        ("", "If") => finder.branches(),
        ("", "Loop") => finder.repeated(),
        // Before, the values of a scan had a batch.
        ("", "Scan") if opsets.get("").is_some_and(|&o| o >= 9) => finder.scanned(),
        _ => None,
    }
}

struct Finder<'a> {
    node: &'a RawNode,
    opsets: &'a BTreeMap<String, i64>,
    library: &'a Library,
    outer: &'a dyn Fn(&str) -> Option<OuterValue>,
}

/// A body that was read, with the extents outside that its symbols stand for.
struct ReadBody {
    model: RawModel,
    outputs: Vec<Type>,
    symbols: HashMap<String, Extent>,
}

impl ReadBody {
    /// A type as it is outside.
    fn outside(&self, ty: &Type) -> ResultType {
        let extent = |e: &Extent| {
            let known = e.symbols().iter().all(|s| self.symbols.contains_key(&**s));
            known.then(|| e.substitute(&|s| self.symbols.get(s).cloned()))
        };
        ResultType { dtype: ty.dtype, shape: ty.shape.iter().map(extent).collect() }
    }
}

impl Finder<'_> {
    fn graph(&self, attribute: &str) -> Option<&RawGraph> {
        match self.node.attrs.get(attribute)? {
            RawAttr::Graph(graph) => Some(graph),
            _ => None,
        }
    }

    /// The type of an input of the node.
    fn given(&self, input: usize) -> Option<Type> {
        let name = self.node.inputs.get(input).filter(|n| !n.is_empty())?;
        Some(match (self.outer)(name)? {
            OuterValue::Typed(ty) => ty,
            OuterValue::Constant(t) => Type::known(t.dtype(), t.shape()),
        })
    }

    fn branches(&self) -> Option<Subgraphs> {
        let mut models = vec![];
        let mut results: Option<Vec<Option<ResultType>>> = None;
        for attribute in ["then_branch", "else_branch"] {
            let body = self.read(self.graph(attribute)?, &[])?;
            let of_branch = body.outputs.iter().map(|t| body.outside(t));
            results = Some(match results {
                None => of_branch.map(Some).collect(),
                Some(other) => {
                    other.into_iter().zip(of_branch).map(|(a, b)| either(a?, b)).collect()
                }
            });
            models.push(SubgraphModel { attribute: attribute.into(), model: body.model });
        }
        Some(Subgraphs { models, results: results? })
    }

    fn repeated(&self) -> Option<Subgraphs> {
        let graph = self.graph("body")?;
        let states = self.node.inputs.len().checked_sub(2)?;
        let mut types = vec![number(graph, 0, DType::I64)?, number(graph, 1, DType::Bool)?];
        for i in 0..states {
            types.push(self.given(i + 2)?);
        }
        let (types, body) = self.fixed(graph, types, 2, 1)?;
        let trips = self.trips(graph);
        let mut results: Vec<_> = types[2..].iter().map(|t| Some(body.outside(t))).collect();
        for made in body.outputs.get(1 + states..)? {
            let mut made = body.outside(made);
            made.shape.insert(0, trips.clone());
            results.push(Some(made));
        }
        Some(self.subgraphs(body, results))
    }

    /// How often a loop runs, if that is a constant and nothing ends it before.
    fn trips(&self, graph: &RawGraph) -> Option<Extent> {
        let constant = |input: usize| {
            let name = self.node.inputs.get(input).filter(|n| !n.is_empty())?;
            match (self.outer)(name)? {
                OuterValue::Constant(t) if t.len() == 1 => Some(t.get_i64(0)),
                OuterValue::Constant(_) | OuterValue::Typed(_) => None,
            }
        };
        let is_given = |input: usize| self.node.inputs.get(input).is_some_and(|n| !n.is_empty());
        if is_given(1) && (constant(1) != Some(1) || !goes_on(graph)) {
            return None;
        }
        Some(Extent::from(constant(0)?.max(0)))
    }

    fn scanned(&self) -> Option<Subgraphs> {
        let graph = self.graph("body")?;
        let sequences = self.node.attrs.get("num_scan_inputs")?.as_int()?;
        let sequences = usize::try_from(sequences).ok()?;
        let states = self.node.inputs.len().checked_sub(sequences)?;
        let made = graph.outputs.len().checked_sub(states)?;
        let mut types = (0..states).map(|i| self.given(i)).collect::<Option<Vec<_>>>()?;
        let ways_of = |axes: &str, directions: &str, count| {
            scan_directions(self.node, axes, directions, count)
        };
        let reads = ways_of("scan_input_axes", "scan_input_directions", sequences).ok()?;
        let makes = ways_of("scan_output_axes", "scan_output_directions", made).ok()?;
        let mut length = None;
        for (i, way) in reads.iter().enumerate() {
            let mut ty = self.given(states + i)?;
            let extent = ty.shape.remove(place(way, ty.rank())?);
            length.get_or_insert(extent);
            types.push(ty);
        }
        let (types, body) = self.fixed(graph, types, 0, 0)?;
        let mut results: Vec<_> = types[..states].iter().map(|t| Some(body.outside(t))).collect();
        for (ty, way) in body.outputs.get(states..)?.iter().zip(&makes) {
            let mut made = body.outside(ty);
            made.shape.insert(place(way, ty.rank() + 1)?, length.clone());
            results.push(Some(made));
        }
        Some(self.subgraphs(body, results))
    }

    fn subgraphs(&self, body: ReadBody, results: Vec<Option<ResultType>>) -> Subgraphs {
        let models = vec![SubgraphModel { attribute: "body".into(), model: body.model }];
        Subgraphs { models, results }
    }

    /// The types of a body's inputs that hold before every repetition, from those before the first one. The states are the
    /// inputs from `input` on, and the outputs from `output` on.
    fn fixed(
        &self,
        graph: &RawGraph,
        mut types: Vec<Type>,
        input: usize,
        output: usize,
    ) -> Option<(Vec<Type>, ReadBody)> {
        if types.len() != graph.inputs.len() {
            return None;
        }
        for _ in 0..MOST_ROUNDS {
            let body = self.read(graph, &types)?;
            let next: Vec<ResultType> = body.outputs.iter().map(|t| body.outside(t)).collect();
            let sequences = self.node.attrs.get("num_scan_inputs").and_then(RawAttr::as_int);
            let states = types.len() - input - sequences.map_or(0, |n| n as usize);
            let mut changed = false;
            for (i, next) in next.get(output..output + states)?.iter().enumerate() {
                let ty = &mut types[input + i];
                if ty.dtype != next.dtype || ty.rank() != next.shape.len() {
                    return None;
                }
                for (axis, (e, next)) in ty.shape.iter_mut().zip(&next.shape).enumerate() {
                    let open = Extent::sym(&format!("{}_dim{axis}", graph.inputs[input + i].name));
                    if *e != open && next.as_ref() != Some(&*e) {
                        *e = open;
                        changed = true;
                    }
                }
            }
            if !changed {
                return Some((types, body));
            }
        }
        None
    }

    /// A body with inputs of these types, read.
    fn read(&self, graph: &RawGraph, types: &[Type]) -> Option<ReadBody> {
        let mut symbols = HashMap::new();
        let mut own = graph.clone();
        let mut info = |name: &str, ty: &Type| {
            for e in ty.shape.iter().filter(|e| e.as_const().is_none()) {
                symbols.insert(e.to_string(), e.clone());
            }
            value_info(name, ty)
        };
        let states: BTreeSet<String> = graph.inputs.iter().map(|i| i.name.clone()).collect();
        own.inputs = graph.inputs.iter().zip(types).map(|(i, t)| info(&i.name, t)).collect();
        for name in free(graph) {
            match (self.outer)(&name)? {
                OuterValue::Typed(ty) => own.inputs.push(info(&name, &ty)),
                OuterValue::Constant(tensor) => drop(own.initializers.insert(name, tensor)),
            }
        }
        // An extent that a state makes open is no extent outside.
        symbols.retain(|_, e| !e.symbols().iter().any(|s| is_open(s, &states)));
        let opset_imports = self.opsets.clone();
        let model = RawModel { ir_version: 8, opset_imports, graph: own, ..RawModel::default() };
        let imported =
            import_with_opaque_nodes(model.clone(), self.library, &BTreeSet::new(), Loops::Kept)
                .ok()?;
        // Two extents of a body that would have to be equal need not be.
        if !imported.assumed.is_empty() {
            return None;
        }
        let of = |o: &super::raw::RawValueInfo| output_type(&imported.program, &o.name);
        let outputs = graph.outputs.iter().map(of).collect::<Option<Vec<_>>>()?;
        Some(ReadBody { model, outputs, symbols })
    }
}

/// The type of an output; a node that is kept makes it an input of the program.
fn output_type(program: &Program, name: &str) -> Option<Type> {
    let output = program.outputs.iter().find(|(n, _)| n == name);
    let output = output.map(|(_, v)| program.ty(*v).clone());
    output.or_else(|| program.inputs.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()))
}

/// True of `NAME_dimN` for a name among these.
fn is_open(symbol: &str, states: &BTreeSet<String>) -> bool {
    let state = symbol.rsplit_once("_dim").map(|(state, _)| state);
    state.is_some_and(|s| states.contains(s))
}

/// True if the condition that a body yields is always that it was given, or true.
fn goes_on(graph: &RawGraph) -> bool {
    let (Some(given), Some(result)) = (graph.inputs.get(1), graph.outputs.first()) else {
        return false;
    };
    let mut name = &result.name;
    loop {
        if let Some(t) = graph.initializers.get(name) {
            return t.len() == 1 && t.get_i64(0) == 1;
        }
        if *name == given.name {
            return true;
        }
        let makes = |n: &&RawNode| n.outputs.contains(name) && n.op_type == "Identity";
        match graph.nodes.iter().find(makes).and_then(|n| n.inputs.first()) {
            Some(input) => name = input,
            None => return false,
        }
    }
}

/// The number or the condition of a repetition: a scalar, unless its body says that it has an axis.
fn number(graph: &RawGraph, input: usize, dtype: DType) -> Option<Type> {
    let dims = graph.inputs.get(input)?.dims.clone().unwrap_or_default();
    let one = dims.iter().all(|d| *d == RawDim::Known(1));
    one.then(|| Type::new(dtype, vec![Extent::from(1); dims.len()]))
}

/// The place of an axis among so many.
fn place(way: &ScanDirection, rank: usize) -> Option<usize> {
    let axis = if way.axis < 0 { way.axis + rank as i64 } else { way.axis };
    usize::try_from(axis).ok().filter(|&a| a < rank)
}

/// What is known of a result that is one or the other.
fn either(a: ResultType, b: ResultType) -> Option<ResultType> {
    if a.dtype != b.dtype || a.shape.len() != b.shape.len() {
        return None;
    }
    let same = |(a, b): (Option<Extent>, Option<Extent>)| a.filter(|a| b.as_ref() == Some(a));
    let shape = a.shape.into_iter().zip(b.shape).map(same).collect();
    Some(ResultType { dtype: a.dtype, shape })
}
