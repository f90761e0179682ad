//! Near misses: programs that differ from another in one extent, attribute, operator or element type, and still type.

use crate::generate::given;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, DType, Extent, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::random::Random;

/// Changes that are tried.
const TRIES: usize = 16;

/// One change.
enum Change {
    /// An axis of an input becomes longer or shorter by one.
    Extent { input: usize, axis: usize, by: i64 },
    /// Floats, or integers, are of another type.
    Type { from: DType, to: DType },
    /// An integer of an application's attribute is another.
    Attribute { node: usize, attr: usize, entry: usize, by: i64 },
    /// Another operator of as many operands and attributes.
    Operator { node: usize, call: CallId },
}

/// A program that one change sets apart; none if what was tried does not type.
pub(crate) fn near_miss(program: &Program, library: &Library, rng: &mut Random) -> Option<Program> {
    (0..TRIES).find_map(|_| {
        let change = drawn(program, library, rng)?;
        changed(program, library, &change)
    })
}

fn drawn(program: &Program, library: &Library, rng: &mut Random) -> Option<Change> {
    let by = rng.pick(&[-1, 1]);
    let applied = |i: &usize| matches!(program.nodes[*i].kind, NodeKind::Apply(..));
    let applied: Vec<usize> = (0..program.nodes.len()).filter(applied).collect();
    let node = *applied.get(rng.below(applied.len()))?;
    let NodeKind::Apply(call, attrs) = &program.nodes[node].kind else { return None };
    match rng.below(4) {
        0 => {
            let input = rng.below(program.inputs.len());
            let rank = program.inputs.get(input)?.1.rank();
            (rank > 0).then(|| Change::Extent { input, axis: rng.below(rank), by })
        }
        1 => {
            let from = program.inputs.get(rng.below(program.inputs.len()))?.1.dtype;
            let others: &[DType] = match from.is_float() {
                true => &[DType::F32, DType::F16, DType::F64, DType::I64],
                false => &[DType::I64, DType::I32, DType::U8, DType::F32],
            };
            Some(Change::Type { from, to: rng.pick(others) }).filter(|_| from != DType::Str)
        }
        2 => {
            let attr = rng.below(attrs.len());
            let entries = match attrs.get(attr)? {
                Attr::Int(_) => 1,
                Attr::Ints(v) => v.len(),
                _ => 0,
            };
            (entries > 0).then(|| Change::Attribute { node, attr, entry: rng.below(entries), by })
        }
        _ => {
            let (own, operands) = (library.call(*call), program.nodes[node].args.len());
            let fits = |c: &CallId| {
                let other = library.call(*c);
                *c != *call
                    && other.class == own.class
                    && other.inputs.len() == operands
                    && other.outputs.len() == own.outputs.len()
                    && other.attrs.len() == attrs.len()
            };
            let all: Vec<CallId> =
                (0..library.calls.len()).map(|i| CallId(i as u32)).filter(fits).collect();
            (!all.is_empty()).then(|| Change::Operator { node, call: rng.pick(&all) })
        }
    }
}

/// The program with one change; none if it does not type.
fn changed(program: &Program, library: &Library, change: &Change) -> Option<Program> {
    let mut b = Builder::new(library);
    let retyped = |dtype: DType| match change {
        Change::Type { from, to } if *from == dtype => *to,
        _ => dtype,
    };
    let mut inputs = Vec::new();
    for (i, (name, ty)) in program.inputs.iter().enumerate() {
        let mut shape = ty.shape.clone();
        if let Change::Extent { input, axis, by } = change
            && *input == i
        {
            let extent = shape[*axis].as_const()? + by;
            shape[*axis] = Extent::from(Some(extent).filter(|e| *e >= 0)?);
        }
        inputs.push(b.input(name, Type::new(retyped(ty.dtype), shape)));
    }
    let mut values: Vec<Vec<Value>> = Vec::with_capacity(program.nodes.len());
    for (i, n) in program.nodes.iter().enumerate() {
        let args: Vec<Value> =
            n.args.iter().map(|a| values[a.node.0 as usize][a.output as usize]).collect();
        let made = match &n.kind {
            NodeKind::Input(k) => vec![inputs[*k as usize]],
            NodeKind::Const(c) => {
                let t = program.consts.get(*c);
                let to = retyped(t.dtype());
                vec![b.constant(match to == t.dtype() {
                    true => t.clone(),
                    false => Tensor::from_f64(to, t.shape().to_vec(), &t.to_f64()),
                })]
            }
            NodeKind::Apply(call, attrs) => {
                let (call, attrs) = application(i, *call, attrs, change)?;
                b.raw(call, &given(&attrs), &args).ok()?
            }
        };
        values.push(made);
    }
    let at = |v: &Value| values[v.node.0 as usize].get(v.output as usize).copied();
    let outputs: Option<Vec<(String, Value)>> =
        program.outputs.iter().map(|(n, v)| Some((n.clone(), at(v)?))).collect();
    Some(b.finish(outputs?))
}

fn application(
    at: usize,
    call: CallId,
    attrs: &[Attr],
    change: &Change,
) -> Option<(CallId, Vec<Attr>)> {
    let mut attrs = attrs.to_vec();
    match change {
        Change::Operator { node, call } if *node == at => Some((*call, attrs)),
        Change::Attribute { node, attr, entry, by } if *node == at => {
            let moved = |e: &Extent| Some(Extent::from(e.as_const()? + by));
            match attrs.get_mut(*attr)? {
                Attr::Int(e) => *e = moved(e)?,
                Attr::Ints(v) => v[*entry] = moved(&v[*entry])?,
                _ => return None,
            }
            Some((call, attrs))
        }
        _ => Some((call, attrs)),
    }
}
