//! Programs of primitive operators, and their values node by node, exact or perturbed.
//!
//! Perturbed runs show how ill-conditioned a program is: every rounding of a working type is
//! made at random, inside definitions and operators too.

use crate::generate::given;
use mlc_backends::reference::{Array, Engine, Noise as Round, Precision, Reference, round_to};
use mlc_dsl::ir::unfold::{is_open, unfold};
use mlc_dsl::ir::{DType, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallId, Library, OpClass};
use mlc_dsl::random::Random;

/// The same program with every definition expanded.
pub fn flatten(program: &Program, library: &Library) -> Result<Program, String> {
    let all = |_: CallId| true;
    let flat = unfold(program, library, &all).map_err(|e| e.to_string())?;
    match is_open(&flat, library, &all) {
        true => Err("definitions nest too deeply".into()),
        false => Ok(flat),
    }
}

/// The same program without inputs that nothing reads.
pub fn without_spare_inputs(program: &Program) -> Program {
    with_inputs(&program.pruned()).0
}

/// The same program without inputs that nothing reads, and which inputs were kept.
pub fn with_inputs(program: &Program) -> (Program, Vec<usize>) {
    let mut read = vec![false; program.nodes.len()];
    program.nodes.iter().flat_map(|n| &n.args).for_each(|a| read[a.node.0 as usize] = true);
    program.outputs.iter().for_each(|(_, v)| read[v.node.0 as usize] = true);
    let mut out = Program { consts: program.consts.clone(), ..Program::default() };
    let mut kept = Vec::new();
    let mut ids = vec![NodeId(0); program.nodes.len()];
    for (i, n) in program.nodes.iter().enumerate() {
        let mut n = n.clone();
        if let NodeKind::Input(k) = n.kind {
            if !read[i] {
                continue;
            }
            n.kind = NodeKind::Input(out.inputs.len() as u32);
            out.inputs.push(program.inputs[k as usize].clone());
            kept.push(k as usize);
        }
        n.args.iter_mut().for_each(|a| a.node = ids[a.node.0 as usize]);
        ids[i] = out.push(n);
    }
    let renamed = |v: &Value| Value { node: ids[v.node.0 as usize], ..*v };
    out.outputs = program.outputs.iter().map(|(n, v)| (n.clone(), renamed(v))).collect();
    (out, kept)
}

/// How a program is run.
pub enum Noise<'r> {
    /// Every operator in f64.
    None,
    /// Every float rounded to its type.
    Rounded,
    /// Every float disturbed by a few times its type's rounding.
    Random(&'r mut Random),
}

/// The values of every node, and whether one is so large or small that a working type may lose it.
pub struct Trace {
    /// By node and output.
    pub values: Vec<Vec<Array>>,
    /// A value is near the ends of its type's range.
    pub extreme: bool,
    /// An operator is at a pole or makes NaN of infinities.
    pub limit: bool,
}

impl Trace {
    /// The outputs of the program.
    pub fn outputs(&self, program: &Program) -> Vec<Array> {
        let at = |v: &Value| self.values[v.node.0 as usize][v.output as usize].clone();
        program.outputs.iter().map(|(_, v)| at(v)).collect()
    }
}

/// Runs a program node by node.
pub fn trace(
    program: &Program,
    library: &Library,
    inputs: &[Tensor],
    mut noise: Noise,
) -> Result<Trace, String> {
    let (precision, seed) = match &mut noise {
        Noise::None => (Precision::F64, None),
        Noise::Rounded => (Precision::Rounded, None),
        Noise::Random(rng) => (Precision::F64, Some(rng.bits())),
    };
    let mut values: Vec<Vec<Array>> = Vec::with_capacity(program.nodes.len());
    let (mut extreme, mut limit) = (false, false);
    for n in &program.nodes {
        let (mut made, disturbed) = match &n.kind {
            NodeKind::Input(i) => {
                let t = inputs.get(*i as usize).ok_or("an input is missing")?;
                (vec![Array::from_tensor(t)], true)
            }
            NodeKind::Const(c) => (vec![Array::from_tensor(program.consts.get(*c))], false),
            NodeKind::Apply(call, attrs) => {
                let arg = |v: &Value| values[v.node.0 as usize][v.output as usize].clone();
                let mut args: Vec<Array> = n.args.iter().map(arg).collect();
                let class = library.call(*call).class;
                // A rounded sum is the exact sum of terms that are slightly off.
                if let (true, Noise::Random(rng)) = (sums(class), &mut noise) {
                    args = args.into_iter().map(|a| disturb(a, rng)).collect();
                }
                let engine = seed.map_or(Engine::default(), |seed| inside(seed, &args));
                let mut made = Reference { precision, engine }
                    .apply(library, *call, &given(attrs), &args)
                    .map_err(|e| e.to_string())?;
                limit |= at_limit(&args, &made);
                extreme |= &*library.call(*call).name == "prod" && overflows(&args);
                let moves = matches!(class, OpClass::View | OpClass::Movement);
                if let (true, Noise::Random(rng)) = (sums(class), &mut noise) {
                    made = made.into_iter().map(|a| with_any_zeros(a, rng)).collect();
                }
                (made, !moves)
            }
        };
        extreme |= made.iter().any(is_extreme);
        if let (true, Noise::Random(rng)) = (disturbed, &mut noise) {
            made = made.into_iter().map(|a| disturb(a, rng)).collect();
        }
        values.push(made);
    }
    Ok(Trace { values, extreme, limit })
}

/// How an operator is evaluated whose numbers are rounded on the way, those of 16 bits in 32.
fn inside(seed: u64, args: &[Array]) -> Engine {
    let is_double = args.iter().any(|a| a.dtype() == DType::F64);
    let dtype = if is_double { DType::F64 } else { DType::F32 };
    Engine::Noisy(Round { seed, dtype })
}

/// Whether a product of elements is beyond `f32` in some order: too large, or so small that it is 0, which an infinity makes NaN.
fn overflows(args: &[Array]) -> bool {
    let of = |a: &Array, sign: f64| {
        let numbers = a.floats().unwrap_or_default().iter().filter(|v| v.is_finite() && **v != 0.0);
        numbers.map(|v| (sign * v.abs().log2()).max(0.0)).sum::<f64>()
    };
    let is_beyond = |a: &Array| of(a, 1.0).max(of(a, -1.0)) > 126.0;
    args.iter().any(|a| a.dtype() != DType::F64 && is_beyond(a))
}

/// Zeros of either sign: a sum has the one or the other by how it begins.
fn with_any_zeros(a: Array, rng: &mut Random) -> Array {
    let Some(f) = a.floats().filter(|f| f.contains(&0.0)) else { return a };
    let sign = if rng.unit() < 0.5 { -1.0 } else { 1.0 };
    let values = f.iter().map(|&v| if v == 0.0 { 0.0 * sign } else { v }).collect();
    Array::from_f64(a.dtype(), a.shape().to_vec(), values).unwrap_or(a)
}

/// True of operators that may add up elements.
fn sums(class: OpClass) -> bool {
    match class {
        OpClass::Reduction | OpClass::Contraction | OpClass::Other => true,
        OpClass::Pointwise | OpClass::View | OpClass::Movement => false,
    }
}

/// True where an operator yields NaN of an infinity, or an infinity of a zero, whose sign no law keeps.
fn at_limit(args: &[Array], made: &[Array]) -> bool {
    let any = |list: &[Array], property| list.iter().any(|a| has(a, property));
    let infinite = any(args, f64::is_infinite);
    infinite && any(made, f64::is_nan)
        || !infinite && any(args, |v| v == 0.0) && any(made, f64::is_infinite)
}

fn has(a: &Array, property: fn(f64) -> bool) -> bool {
    a.floats().is_some_and(|f| f.iter().any(|&v| property(v)))
}

fn is_extreme(a: &Array) -> bool {
    let (low, high) = match a.dtype() {
        DType::F16 => (1e-4, 1e3),
        DType::F64 => (1e-100, 1e100),
        _ => (1e-18, 1e18),
    };
    let beyond = |v: &f64| v.is_finite() && *v != 0.0 && !(low..high).contains(&v.abs());
    a.floats().is_some_and(|f| f.iter().any(beyond))
}

/// Elements a few roundings away, as numbers of their type: two that differ by as little may become equal.
fn disturb(a: Array, rng: &mut Random) -> Array {
    let (dtype, u) = (a.dtype(), 4.0 * a.dtype().unit_roundoff());
    let Some(f) = a.floats() else { return a };
    let one = |v: &f64| round_to(dtype, v * (1.0 + u * (2.0 * rng.unit() - 1.0)));
    let values = f.iter().map(one).collect();
    Array::from_f64(a.dtype(), a.shape().to_vec(), values).unwrap_or(a)
}
