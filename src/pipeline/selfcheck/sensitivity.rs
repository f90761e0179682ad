//! How far a model carries roundings: its inputs, and one value that it computes early, are moved by a few units of roundoff, and its
//! outputs compared. Where they move by far more, no two runtimes agree on them, and equal bits or a small error here tell little.

use super::report::{InputSet, Sensitivity};
use super::verdict::PART;
use super::{Check, beside, moved};
use crate::error::Error;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::ExprKind;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallKind, Library, OpClass};
use mlc_dsl::random::Random;

/// Units of roundoff by which values are moved.
const UNITS: f64 = 4.0;
/// Operations of a run for which it is asked of any model, and of one that rounds or compares on the way.
const SMOOTH: f64 = 1e7;
const JUMPING: f64 = 1e10;

impl Check<'_> {
    /// How far the source carries roundings on a set of inputs with these outputs; `None` if that takes too long.
    pub(super) fn sensitivity(
        &self,
        source: &Program,
        set: &InputSet,
        s: &[Tensor],
    ) -> Result<Option<Sensitivity>, Error> {
        let most = if jumps(source, self.library) { JUMPING } else { SMOOTH };
        if set.work > most || self.guard.tolerance.is_some() {
            return Ok(None);
        }
        let mut found: Vec<Sensitivity> = vec![];
        if set.inputs.iter().any(|t| t.dtype().is_float()) {
            let inputs = beside(&set.inputs, self.seed);
            if let Some(Ok(there)) = self.runs(&self.plan(source), &[&inputs])?.pop() {
                found.extend(most_moved(source, "the inputs".into(), s, &there));
            }
        }
        if let Some((what, there)) = self.moved_early(source, set)? {
            found.extend(most_moved(source, what, s, &there));
        }
        let size = |m: &Sensitivity| m.change.unwrap_or(f64::INFINITY);
        Ok(found.into_iter().max_by(|a, b| size(a).total_cmp(&size(b))))
    }

    /// The outputs where an early value is moved, and what it is called.
    fn moved_early(
        &self,
        source: &Program,
        set: &InputSet,
    ) -> Result<Option<(String, Vec<Tensor>)>, Error> {
        let Some(early) = early(source, self.library) else { return Ok(None) };
        let value = Value { node: early, output: 0 };
        let mut first = source.clone();
        first.outputs = vec![("early".to_string(), value)];
        let Some(Ok(values)) = self.runs(&self.plan(&first), &[&set.inputs])?.pop() else {
            return Ok(None);
        };
        let Some(tensor) = values.first() else { return Ok(None) };
        let mut random = Random::from_state(self.seed ^ 0x5e75);
        let tensor = moved(tensor, 1.0, &mut random, |_| true);
        let mut rest = source.clone();
        let ty = rest.ty(value).clone();
        let node = &mut rest.nodes[early.0 as usize];
        let name = match node.origin.as_str() {
            "" => format!("the first value of `{}`", self.library.node_name(source, early)),
            origin => format!("the result of `{}`", mlc_dsl::shown(origin)),
        };
        (node.kind, node.args) = (NodeKind::Input(rest.inputs.len() as u32), vec![]);
        rest.inputs.push(("moved early".to_string(), ty));
        let mut inputs = set.inputs.clone();
        inputs.push(tensor);
        let run = self.runs(&self.plan(&rest), &[&inputs])?.pop();
        Ok(run.and_then(Result::ok).map(|there| (name, there)))
    }
}

/// The output that moves most.
fn most_moved(
    source: &Program,
    what: String,
    here: &[Tensor],
    there: &[Tensor],
) -> Option<Sensitivity> {
    let mut most: Option<Sensitivity> = None;
    for ((name, _), (a, b)) in source.outputs.iter().zip(here.iter().zip(there)) {
        let change = change(a, b);
        let is_float = a.dtype().is_float();
        let times = change.filter(|_| is_float).map(|c| c / (UNITS * a.dtype().unit_roundoff()));
        let amplifies = change.is_none_or(|c| if is_float { c > PART } else { c > 0.0 });
        let (output, moved) = (name.clone(), what.clone());
        let found = Sensitivity { moved, units: UNITS, output, change, times, amplifies };
        let size = |m: &Sensitivity| m.change.unwrap_or(f64::INFINITY);
        if most.as_ref().is_none_or(|m| size(&found) > size(m)) {
            most = Some(found);
        }
    }
    most
}

/// How far an output moves; `None` if its shape changes.
fn change(a: &Tensor, b: &Tensor) -> Option<f64> {
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return None;
    }
    if a.bytes() == b.bytes() {
        return Some(0.0);
    }
    if !a.dtype().is_float() {
        let (x, y) = (a.to_i64(), b.to_i64());
        let changed = x.iter().zip(&y).filter(|(p, q)| p != q).count();
        return Some(changed as f64 / x.len().max(1) as f64);
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let scale = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let pairs = x.iter().zip(&y).filter(|(p, q)| p.is_finite() && q.is_finite());
    let most = pairs.map(|(p, q)| (p - q).abs()).fold(0.0, f64::max);
    Some(if most == 0.0 { 0.0 } else { most / scale.max(f64::MIN_POSITIVE) })
}

/// True if a program makes integers or truth values of floats, or rounds to whole numbers: a rounding on the way may move a result by a
/// whole step.
fn jumps(program: &Program, library: &Library) -> bool {
    let is_float = |v: &Value| program.ty(*v).dtype.is_float();
    program.nodes.iter().any(|n| {
        let NodeKind::Apply(call, _) = n.kind else { return false };
        let decides = n.args.iter().any(is_float) && n.types.iter().any(|t| !t.dtype.is_float());
        decides || rounds(&library.call(call).kind)
    })
}

/// True of an operator whose meaning rounds to whole numbers.
fn rounds(kind: &CallKind) -> bool {
    let CallKind::Op(meanings) = kind else { return false };
    let is_step = |f: &Function| matches!(f, Function::Floor | Function::Ceil | Function::Round);
    let mut found = |e: &mlc_dsl::expr::Expr| matches!(&e.kind, ExprKind::Call(f, _) if is_step(f));
    meanings.iter().any(|m| m.value.any(&mut found))
}

/// A value that the program computes early: the first reduction or sum of products of its inputs, or else the first value that is
/// computed of them.
fn early(program: &Program, library: &Library) -> Option<NodeId> {
    let mut of_inputs = vec![false; program.nodes.len()];
    let mut first = None;
    for (i, node) in program.nodes.iter().enumerate() {
        of_inputs[i] = matches!(node.kind, NodeKind::Input(_))
            || node.args.iter().any(|a| of_inputs[a.node.0 as usize]);
        let Some(class) = class(node, library).filter(|_| of_inputs[i]) else { continue };
        let is_float = node.types.len() == 1 && node.types[0].dtype.is_float();
        if !is_float || matches!(class, OpClass::View | OpClass::Movement) {
            continue;
        }
        let id = NodeId(i as u32);
        if matches!(class, OpClass::Reduction | OpClass::Contraction) {
            return Some(id);
        }
        first = first.or(Some(id));
    }
    first
}

fn class(node: &Node, library: &Library) -> Option<OpClass> {
    match node.kind {
        NodeKind::Apply(call, _) => Some(library.call(call).class),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    }
}
