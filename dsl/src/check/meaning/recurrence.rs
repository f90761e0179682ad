//! Recurrences: equations that read the operator's own results at earlier steps of one axis.

use crate::check::report::error;
use crate::diagnostics::Diag;
use crate::diagnostics::span::Span;
use crate::expr::{BinaryOp, Elem, Expr, ExprKind, Meaning, Read};
use crate::library::{Callable, Dim, Name};
use crate::recurrence::Recurrence;

/// What an index of a result is, relative to the element that is computed.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// That of the element.
    Same,
    /// So many steps before it; `true` if "before" is towards higher indices.
    Earlier(i64, bool),
    /// Anything else.
    Other,
}

/// A read of a result by an equation.
struct OwnRead<'a> {
    equation: usize,
    result: usize,
    read: &'a Read,
    span: Span,
}

/// The recurrence of an operator, if its equations read its results; an error if they cannot be computed step by step.
pub(crate) fn find(c: &Callable, meanings: &[Meaning]) -> Result<Option<Recurrence>, Diag> {
    let reads = own_reads(c, meanings);
    if reads.is_empty() {
        return Ok(None);
    }
    let finder = Finder { c, meanings };
    let mut found: Option<Recurrence> = None;
    for r in reads.iter().filter(|r| r.result >= r.equation) {
        let own = finder.shifted(r)?;
        match &found {
            Some(f) if *f != own => {
                let message =
                    format!("`{}` runs along `{}` here, and otherwise along `{}`", c.name, own, f);
                return Err(error(
                    "R027",
                    r.span,
                    message,
                    "a recurrence runs along one axis, one way",
                ));
            }
            _ => found = Some(own),
        }
    }
    let Some(mut found) = found else {
        let message = format!("`{}` reads its own result, but has no recurrence", c.name);
        let help = "results are read in equations of which one reads an earlier step; else write two operators";
        return Err(error("R027", reads[0].span, message, help));
    };
    for r in &reads {
        finder.ordered(r, &found)?;
    }
    found.reach = (0..c.outputs.len()).map(|result| finder.reach(result, &reads, &found)).collect();
    Ok(Some(found))
}

fn own_reads<'a>(c: &Callable, meanings: &'a [Meaning]) -> Vec<OwnRead<'a>> {
    let mut reads = vec![];
    for (equation, m) in meanings.iter().enumerate() {
        m.value.walk(&mut |e| {
            if let ExprKind::Read(read) = &e.kind
                && let Some(result) = read.input.checked_sub(c.inputs.len())
            {
                reads.push(OwnRead { equation, result, read, span: e.span });
            }
        });
    }
    reads
}

struct Finder<'a> {
    c: &'a Callable,
    meanings: &'a [Meaning],
}

impl Finder<'_> {
    fn name(&self, result: usize) -> &str {
        &self.c.outputs[result].0
    }

    /// Whether a result has the axis.
    fn has(&self, result: usize, axis: &Name) -> bool {
        let dims = self.c.outputs[result].1.dims.as_deref().unwrap_or_default();
        dims.iter().any(|d| matches!(d, Dim::Axis(a) if a == axis))
    }

    /// The axes of the result that is read, with what the index is at each.
    fn steps(&self, r: &OwnRead<'_>) -> Vec<(Name, Step)> {
        let dims = self.c.outputs[r.result].1.dims.as_deref().unwrap_or_default();
        if dims.len() != r.read.index.len() {
            return vec![];
        }
        let at = dims.iter().zip(&r.read.index);
        at.filter_map(|(d, e)| match (d, e) {
            (Dim::Axis(a), Elem::One(e)) => {
                let own = self.meanings[r.equation].index.iter().find(|v| v.name == *a);
                Some((a.clone(), own.map_or(Step::Other, |v| step(e, v.id))))
            }
            _ => None,
        })
        .collect()
    }

    /// The recurrence by which a result that is not computed yet is read.
    fn shifted(&self, r: &OwnRead<'_>) -> Result<Recurrence, Diag> {
        let name = self.name(r.result);
        let steps = self.steps(r);
        let earlier = steps.iter().find_map(|(axis, s)| match s {
            Step::Earlier(_, backwards) => {
                Some(Recurrence { axis: axis.clone(), backwards: *backwards, reach: vec![] })
            }
            Step::Same | Step::Other => None,
        });
        let Some(earlier) = earlier else {
            let message = format!("`{name}` is not computed yet where it is read");
            let help =
                format!("read an earlier step of one of its axes: `{name}[t - 1, …] else …`");
            return Err(error("R027", r.span, message, &help));
        };
        if r.read.otherwise.is_none() {
            let message = format!("the first step of `{name}` has no step before it");
            let help = "say what the state is before the first step: `… else 0`";
            return Err(error("R027", r.span, message, help));
        }
        Ok(earlier)
    }

    /// The most steps between an equation and what it reads of a result; `None` unless all of them take part in the steps.
    fn reach(&self, result: usize, reads: &[OwnRead<'_>], of: &Recurrence) -> Option<u32> {
        let distance = |r: &OwnRead<'_>| {
            let steps = self.steps(r);
            match steps.iter().find(|(a, _)| *a == of.axis)?.1 {
                Step::Same => Some(0),
                Step::Earlier(k, _) => u32::try_from(k).ok(),
                Step::Other => None,
            }
        };
        let own = reads.iter().filter(|r| r.result == result);
        own.map(|r| distance(r).filter(|_| self.has(r.equation, &of.axis)))
            .try_fold(0, |most, reach| Some(most.max(reach?)))
            .filter(|_| self.has(result, &of.axis))
    }

    /// What is read is computed before.
    fn ordered(&self, r: &OwnRead<'_>, of: &Recurrence) -> Result<(), Diag> {
        let (name, axis) = (self.name(r.result), &of.axis);
        let stepwise = self.has(r.equation, axis);
        if !self.has(r.result, axis) && (stepwise || r.result >= r.equation) {
            let message =
                format!("`{name}` has no axis `{axis}`, so it is computed after all steps");
            return Err(error("R027", r.span, message, "read a result that has the axis"));
        }
        let at = self.steps(r).into_iter().find(|(a, _)| a == axis).map(|(_, s)| s);
        let fits = match at {
            _ if !stepwise => true,
            Some(Step::Same) => r.result < r.equation,
            Some(Step::Earlier(_, backwards)) => backwards == of.backwards,
            Some(Step::Other) | None => false,
        };
        if fits {
            return Ok(());
        }
        let message =
            format!("`{name}` is read at a step of `{axis}` that may not be computed yet");
        let sign = if of.backwards { '+' } else { '-' };
        let help = format!(
            "an index along `{axis}` is `{axis} {sign} 1`, or `{axis}` of an equation above"
        );
        Err(error("R027", r.span, message, &help))
    }
}

/// What an index is relative to the variable of that number.
fn step(e: &Expr, variable: usize) -> Step {
    let is_variable = |e: &Expr| e.kind == ExprKind::Index(variable);
    match &e.kind {
        ExprKind::Binary(op @ (BinaryOp::Sub | BinaryOp::Add), a, b) if is_variable(a) => {
            match b.kind {
                ExprKind::Int(k) if k >= 1 => Step::Earlier(k, *op == BinaryOp::Add),
                _ => Step::Other,
            }
        }
        _ if is_variable(e) => Step::Same,
        _ => Step::Other,
    }
}
