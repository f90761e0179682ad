//! A kernel of a plan as a program of primitive operators over stored values.
//!
//! Definitions are unfolded; views without memory of their own are fused into their readers.

use super::procedure::{Procedure, TypedShape};
use super::procedures;
use super::tuning::{CodeTarget, Tuning};
use crate::launch::Place;
use mlc_backends::BackendError;
use mlc_backends::reference::accelerated::affine::placed;
use mlc_backends::reference::code::cache::compiled;
use mlc_backends::reference::code::compile::{Body, MeaningCode};
use mlc_backends::reference::code::{Affine, Int, Real, Slot};
use mlc_backends::reference::{Engine, code};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::unfold::unfold;
use mlc_dsl::ir::{Attr, ConstId, DType, Extent, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::plan::Plan;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Where the values of a plan are stored.
pub struct StoredValues {
    /// Values that kernels write.
    pub places: HashMap<Value, Place>,
}

/// What a kernel computes.
pub struct KernelProgram {
    /// Primitive operators; its inputs are stored values.
    pub program: Program,
    /// Where the inputs are.
    pub inputs: Vec<Place>,
    /// The code of each node's results.
    pub codes: Vec<Vec<MeaningCode>>,
    /// The launches of nodes that have no meaning.
    pub procedures: BTreeMap<NodeId, Procedure>,
    /// The recurrences, and whether they run backwards.
    pub recurrences: BTreeMap<NodeId, bool>,
    /// Which values go where, in the plan's order.
    pub outputs: Vec<(Value, Place)>,
    /// What the code is for.
    pub tuning: Tuning,
    /// Whether all blocks have the same number of threads.
    pub uniform_blocks: bool,
}

/// An error that names what is not supported.
pub fn unsupported(what: String) -> BackendError {
    BackendError::Unsupported { backend: "cuda", what }
}

/// Element type and extents of a value. Its bytes, and the bytes of its elements along any of its axes, are an `i64`.
pub fn known_type(program: &Program, v: Value) -> Result<TypedShape, BackendError> {
    let ty = program.ty(v);
    let shape = ty.known_shape();
    let shape =
        shape.ok_or_else(|| unsupported(format!("values whose extents data decide ({ty})")))?;
    let mut extents = shape.iter().filter(|n| **n != 0);
    let bytes = extents.try_fold(ty.dtype.size(), |n, &d| n.checked_mul(d));
    match bytes.and_then(|n| i64::try_from(n).ok()) {
        Some(_) => Ok((ty.dtype, shape)),
        None => Err(unsupported(format!("a value of more than 2^63 bytes ({ty})"))),
    }
}

/// These values as a program of primitive operators, and the places of its inputs, as [`KernelProgram::new`] takes them.
pub fn read_program(
    plan: &Plan,
    library: &Library,
    stored: &StoredValues,
    inside: &dyn Fn(Value) -> bool,
    outputs: &[(Value, Place)],
    transposed: &BTreeSet<ConstId>,
) -> Result<(Program, Vec<Place>), BackendError> {
    let mut r = KernelReader {
        plan,
        library,
        stored,
        inside,
        transposed,
        b: Builder::new(library),
        known: HashMap::new(),
        inputs: vec![],
    };
    let values = outputs.iter().map(|(v, _)| r.value(*v)).collect::<Result<Vec<Value>, _>>()?;
    let named = values.iter().enumerate().map(|(i, v)| (i.to_string(), *v)).collect();
    let inputs = r.inputs;
    let is_kept = |c| !procedures::is_known(&library.call(c).name);
    let program = unfold(&r.b.finish(named), library, &is_kept)
        .map_err(|e| unsupported(format!("this body: {e}")))?;
    Ok((program, inputs))
}

/// Whether floats are computed in 64 bits: for `f64`, and where integers become floats and then integers again.
pub fn computes_in_double(program: &Program, v: Value) -> bool {
    let narrow = |d: DType| matches!(d, DType::F16 | DType::BF16 | DType::F32);
    let floats = program.node(v.node).args.iter().map(|a| program.ty(*a).dtype);
    let floats: Vec<DType> = floats.filter(|d| d.is_float()).collect();
    let own = program.ty(v).dtype;
    match own.is_float() {
        true => !narrow(own) || floats.contains(&DType::F64),
        false => floats.is_empty() || floats.contains(&DType::F64),
    }
}

impl KernelProgram {
    /// The program of these values, which are to be stored at these places; `inside` are values that it may not read. The last two axes of
    /// `transposed` constants are exchanged in memory.
    pub fn new(
        plan: &Plan,
        library: &Library,
        stored: &StoredValues,
        inside: &dyn Fn(Value) -> bool,
        outputs: &[(Value, Place)],
        target: CodeTarget,
        transposed: &BTreeSet<ConstId>,
    ) -> Result<KernelProgram, BackendError> {
        let (program, inputs) = read_program(plan, library, stored, inside, outputs, transposed)?;
        let outputs: Vec<Place> = outputs.iter().map(|o| o.1).collect();
        KernelProgram::of(program, library, inputs, &outputs, target)
    }

    /// The same of an unfolded program whose inputs and outputs have these places.
    pub fn of(
        program: Program,
        library: &Library,
        inputs: Vec<Place>,
        outputs: &[Place],
        target: CodeTarget,
    ) -> Result<KernelProgram, BackendError> {
        let (mut codes, procedures, recurrences) = codes(&program, library, target.tuning)?;
        let program = permute_reductions(program, &mut codes);
        let outputs = program.outputs.iter().zip(outputs).map(|((_, v), p)| (*v, *p)).collect();
        Ok(KernelProgram {
            program,
            inputs,
            codes,
            procedures,
            recurrences,
            outputs,
            tuning: target.tuning,
            uniform_blocks: target.uniform_blocks,
        })
    }

    /// The code of a value, if an operator computes it.
    pub fn code(&self, v: Value) -> Option<&MeaningCode> {
        self.codes[v.node.0 as usize].get(v.output as usize)
    }

    /// The input behind a value.
    pub fn input(&self, v: Value) -> Option<usize> {
        match self.program.node(v.node).kind {
            NodeKind::Input(i) => Some(i as usize),
            NodeKind::Const(_) | NodeKind::Apply(..) => None,
        }
    }

    /// The constant behind a value.
    pub fn constant(&self, v: Value) -> Option<&Tensor> {
        self.program.as_const(v)
    }

    /// Elements that the loops of a value run over.
    pub fn loops(&self, v: Value) -> i64 {
        self.code(v).map_or(1, loops)
    }

    /// The extents of the loops of a value.
    pub fn extents_of_loops(&self, v: Value) -> Vec<i64> {
        let over = match self.code(v).map(|c| &c.body) {
            Some(Body::Real(Real::Reduce(r))) => Some(&r.over),
            Some(Body::Int(_, Int::Reduce(r))) => Some(&r.over),
            _ => None,
        };
        over.map_or(vec![self.loops(v)], |over| over.iter().map(|o| o.1).collect())
    }

    /// The largest number of elements of a value, or of iterations of an element's loops.
    pub fn most_elements(&self) -> i64 {
        let types = self.program.nodes.iter().flat_map(|n| &n.types);
        let elements = |t: &Type| t.known_shape().map_or(0, |s| s.iter().product::<usize>() as i64);
        let loops = self.codes.iter().flatten().map(loops);
        types.map(elements).chain(loops).max().unwrap_or(0)
    }

    /// Whether a value needs a loop over elements.
    pub fn reduces(&self, v: Value) -> bool {
        self.code(v).is_some_and(code::reduces)
    }
}

/// Elements that the loops of a code run over.
fn loops(code: &MeaningCode) -> i64 {
    let axes: Vec<Slot> = code.axes.iter().map(|a| a.0).collect();
    let own = code.extents.iter().enumerate().filter(|(s, _)| !axes.contains(s));
    own.map(|(_, n)| *n).fold(1, i64::saturating_mul)
}

/// Constants whose elements are all equal become literals.
fn is_number(t: &Tensor) -> bool {
    t.unread().is_none() && !t.is_empty() && t.splat().is_some()
}

struct KernelReader<'a> {
    plan: &'a Plan,
    library: &'a Library,
    stored: &'a StoredValues,
    inside: &'a dyn Fn(Value) -> bool,
    transposed: &'a BTreeSet<ConstId>,
    b: Builder<'a>,
    known: HashMap<Value, Value>,
    inputs: Vec<Place>,
}

impl KernelReader<'_> {
    fn input(&mut self, v: Value, place: Place) -> Value {
        let ty = self.plan.program.ty(v).clone();
        self.typed(ty, place)
    }

    fn typed(&mut self, ty: Type, place: Place) -> Value {
        self.inputs.push(place);
        self.b.input(&(self.inputs.len() - 1).to_string(), ty)
    }

    /// A constant that is stored with its last two axes transposed.
    fn transposed(&mut self, v: Value, c: ConstId) -> Result<Value, BackendError> {
        let (dtype, mut shape) = known_type(&self.plan.program, v)?;
        let n = shape.len();
        let mut axes: Vec<i64> = (0..n as i64).collect();
        shape.swap(n - 2, n - 1);
        axes.swap(n - 2, n - 1);
        let there = self.typed(Type::known(dtype, &shape), Place::Transposed(c));
        let transpose = self.library.find("transpose");
        let transpose =
            transpose.ok_or_else(|| unsupported("a library without `transpose`".into()))?;
        let perm = Attr::Ints(axes.into_iter().map(Extent::from).collect());
        let made = self.b.apply(transpose, &[Some(perm)], &[there]);
        Ok(made.map_err(|e| unsupported(format!("exchanged axes: {e}")))?[0])
    }

    fn value(&mut self, v: Value) -> Result<Value, BackendError> {
        if let Some(known) = self.known.get(&v) {
            return Ok(*known);
        }
        let program = &self.plan.program;
        let node = program.node(v.node);
        let place = self.stored.places.get(&v).filter(|_| !(self.inside)(v));
        let new = match (&node.kind, place) {
            (NodeKind::Input(i), _) => self.input(v, Place::Input(*i as usize)),
            (NodeKind::Const(c), _) if is_number(program.consts.get(*c)) => {
                self.b.constant(program.consts.get(*c).clone())
            }
            (NodeKind::Const(c), _) if self.transposed.contains(c) => self.transposed(v, *c)?,
            (NodeKind::Const(c), _) => self.input(v, Place::Constant(*c)),
            (NodeKind::Apply(..), Some(place)) => self.input(v, *place),
            (NodeKind::Apply(call, attrs), None) => {
                let args =
                    node.args.iter().map(|a| self.value(*a)).collect::<Result<Vec<_>, _>>()?;
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                self.b.set_origin(&node.origin);
                let made = self.b.raw(*call, &attrs, &args);
                let made = made.map_err(|e| unsupported(format!("this node: {e}")))?;
                for (output, value) in made.iter().enumerate() {
                    self.known.insert(Value { output: output as u32, ..v }, *value);
                }
                return Ok(made[v.output as usize]);
            }
        };
        self.known.insert(v, new);
        Ok(new)
    }
}

/// Fuses a transpose into a reduction that it alone reads, so that the reduction stores its result transposed.
fn permute_reductions(mut program: Program, codes: &mut [Vec<MeaningCode>]) -> Program {
    let mut readers: HashMap<Value, usize> = HashMap::new();
    let read = program.nodes.iter().flat_map(|n| &n.args);
    read.chain(program.outputs.iter().map(|o| &o.1)).for_each(|v| {
        *readers.entry(*v).or_default() += 1;
    });
    for i in 0..program.nodes.len() {
        let [own] = codes[i].as_slice() else { continue };
        let Some((input, index)) = permuted(own) else { continue };
        let sum = program.nodes[i].args[input];
        let [of] = codes[sum.node.0 as usize].as_slice() else { continue };
        let reduces =
            matches!(&of.body, Body::Real(Real::Reduce(_)) | Body::Int(_, Int::Reduce(_)));
        if !reduces || readers.get(&sum) != Some(&1) || of.axes.len() != index.len() {
            continue;
        }
        let mut extents = own.extents.clone();
        let body = placed(of, &index, &mut extents);
        codes[i] = vec![MeaningCode { body, axes: own.axes.clone(), extents, step: None }];
        program.nodes[i].args = program.nodes[sum.node.0 as usize].args.clone();
    }
    program
}

/// The index variable, if an index is a single one.
pub fn variable(i: &Int) -> Option<Slot> {
    match i {
        Int::Affine(Affine { constant: 0, terms }) => match terms.as_slice() {
            [(s, 1)] => Some(*s),
            _ => None,
        },
        Int::Slot(s) => Some(*s),
        _ => None,
    }
}

/// The input that a code transposes, and the index.
fn permuted(code: &MeaningCode) -> Option<(usize, Vec<Int>)> {
    let (input, index, is_bare) = match &code.body {
        Body::Real(Real::Read(r)) => (r.input, &r.index, r.otherwise.is_none()),
        Body::Int(_, Int::Read(r)) => (r.input, &r.index, r.otherwise.is_none()),
        Body::Real(_) | Body::Int(..) => return None,
    };
    let axes: Option<BTreeSet<Slot>> = index.iter().map(variable).collect();
    let own: BTreeSet<Slot> = code.axes.iter().map(|a| a.0).collect();
    let is_whole = is_bare && code.axes.len() == index.len();
    (is_whole && axes.as_ref() == Some(&own)).then(|| (input, index.clone()))
}

/// The code of every node's results, the launches of nodes that have none, and the recurrences.
type Codes = (Vec<Vec<MeaningCode>>, BTreeMap<NodeId, Procedure>, BTreeMap<NodeId, bool>);

fn codes(program: &Program, library: &Library, tuning: Tuning) -> Result<Codes, BackendError> {
    let mut out = Vec::with_capacity(program.nodes.len());
    let (mut without, mut steps) = (BTreeMap::new(), BTreeMap::new());
    for (i, node) in program.nodes.iter().enumerate() {
        let NodeKind::Apply(call, attrs) = &node.kind else {
            out.push(vec![]);
            continue;
        };
        let callable = library.call(*call);
        let args =
            node.args.iter().map(|a| known_type(program, *a)).collect::<Result<Vec<_>, _>>()?;
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let app = compiled(callable, Engine::Plain, &attrs, &args)
            .map_err(|reason| BackendError::Operator { op: callable.name.to_string(), reason })?;
        if matches!(callable.kind, CallKind::Extern(_)) || procedures::is_known(&callable.name) {
            let id = NodeId(i as u32);
            let result = |output| known_type(program, Value { node: id, output });
            let results =
                (0..node.types.len() as u32).map(result).collect::<Result<Vec<_>, _>>()?;
            let written = procedures::write(&callable.name, &app.env, tuning, &args, &results);
            let none = "it has a Rust reference, and no code is generated for it";
            let written = written.unwrap_or_else(|| Err(none.into()));
            let named = |why| unsupported(format!("`{}`: {why}", callable.name));
            without.insert(id, written.map_err(named)?);
        }
        if let Some(recurrence) = &callable.recurrence {
            steps.insert(NodeId(i as u32), recurrence.backwards);
        }
        if app.codes.iter().any(|c| loops(c) == i64::MAX) {
            let what = format!("`{}` with loops over more than 2^63 elements", callable.name);
            return Err(unsupported(what));
        }
        out.push(app.codes);
    }
    Ok((out, without, steps))
}
