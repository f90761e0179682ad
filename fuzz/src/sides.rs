//! Holds both sides of an application of a law against each other, by what the law's error class promises.

use crate::input_values::Style;
use crate::oracle::{Subject, hold_pair, hold_run};
use mlc_backends::reference::{Array, Engine, Precision, Reference};
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};

/// An application of a law: both sides over the values that they share.
#[derive(Clone, Debug)]
pub struct Application {
    /// The law, by its place among those that are aimed at.
    pub law: usize,
    /// These values, over the inputs of the program that the law was applied to.
    pub operands: Program,
    /// What was matched.
    pub left: Program,
    /// What it is said to equal.
    pub right: Program,
}

impl Application {
    /// The values that the sides share, where the program has these inputs; none if it does not run on them.
    pub fn values(&self, library: &Library, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
        let values = rounded(&self.operands).run_values(&self.operands, library, inputs).ok()?;
        Some(values.iter().map(Array::to_tensor).collect())
    }
}

/// Compares both sides on the values that they share. What the left side does not compute promises nothing.
///
/// # Errors
/// The right side is another value than the class permits.
pub fn hold_sides(
    library: &Library,
    sides: &Application,
    class: ErrorClass,
    style: Style,
    values: &[Tensor],
) -> Result<(), String> {
    if class != ErrorClass::Exact {
        return hold_pair(library, [&sides.left, &sides.right], class, style, values);
    }
    let run = |p: &Program| rounded(p).run_values(p, library, values);
    let Ok(left) = run(&sides.left) else { return Ok(()) };
    let right = run(&sides.right)
        .map_err(|e| format!("the reference interpreter fails on the right side: {e}"))?;
    left.iter().zip(&right).try_for_each(|(l, r)| same_bits(l, r))
}

/// Runs both sides on the backend under test.
///
/// # Errors
/// A side, and what is wrong about it.
pub fn hold_runs<'s>(
    subject: &Subject<'_>,
    sides: &'s Application,
    style: Style,
    values: &[Tensor],
) -> Result<(), (&'s Program, String)> {
    [&sides.left, &sides.right].into_iter().try_for_each(|side| {
        hold_run(subject.library, side, style, values, subject.run).map_err(|m| (side, m))
    })
}

/// Every operator rounded to its type; where nothing is rounded away, sums are taken in the order that is written.
fn rounded(program: &Program) -> Reference {
    let is_double = program.nodes.iter().flat_map(|n| &n.types).any(|t| t.dtype == DType::F64);
    let engine = if is_double { Engine::Plain } else { Engine::Fast };
    Reference { precision: Precision::Rounded, engine }
}

fn same_bits(left: &Array, right: &Array) -> Result<(), String> {
    let (l, r) = (left.to_f64(), right.to_f64());
    let integers = left.ints().zip(right.ints());
    let differs = |i: &usize| match integers {
        Some((l, r)) => l[*i] != r[*i],
        None => !(l[*i].is_nan() && r[*i].is_nan()) && l[*i].to_bits() != r[*i].to_bits(),
    };
    match (0..l.len().min(r.len())).find(differs) {
        None if l.len() == r.len() => Ok(()),
        None => Err(format!("{} elements instead of {}", r.len(), l.len())),
        Some(i) => Err(format!(
            "element {i}: {:?} expected, {:?} found, where the law is exact",
            l[i], r[i]
        )),
    }
}
