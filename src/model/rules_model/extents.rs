//! Extents of a definition's inputs that its conditions decide. Extents that were given are never changed.

use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind};
use mlc_dsl::ir::{Attr, Extent, Program, Type};
use mlc_dsl::library::{Callable, Dim};
use mlc_verify::random_inputs;
use std::collections::HashMap;

/// An input by name.
pub(crate) type Input = (String, Type);

/// Replaces the axes that a condition `|a| == …` of the definition says the extent of.
pub(crate) fn equate(c: &Callable, inputs: &mut [Input]) {
    for condition in &c.conditions {
        let ExprKind::Binary(BinaryOp::Eq, a, b) = &condition.kind else { continue };
        let env = axes(c, inputs);
        let value = |e: &Expr| match eval(e, &env) {
            Ok(Attr::Int(extent)) => Some(extent),
            _ => None,
        };
        let (Some(x), Some(y)) = (value(a), value(b)) else { continue };
        if let Some((symbol, extent)) = defined(&y, &x).or_else(|| defined(&x, &y)) {
            put(inputs, &|s| (s == symbol).then(|| extent.clone()));
        }
    }
}

/// What the named axes of a definition's inputs are.
fn axes(c: &Callable, inputs: &[Input]) -> Env {
    let mut env = Env::default();
    for (declared, (_, ty)) in c.inputs.iter().zip(inputs) {
        let dims = declared.ty.dims.as_deref().unwrap_or_default();
        // Behind a segment, axes are counted from the end.
        let segment = dims.iter().position(|d| matches!(d, Dim::Seg(_)));
        for (i, d) in dims.iter().enumerate() {
            let place = match segment {
                Some(s) if i > s => (ty.rank() + i).checked_sub(dims.len()),
                _ => Some(i),
            };
            if let (Dim::Axis(n), Some(extent)) = (d, place.and_then(|p| ty.shape.get(p))) {
                env.bind_axis(n, extent.clone());
            }
        }
    }
    env
}

/// A symbol and the extent that it has, if `symbol` is one and `extent` does not depend on it.
fn defined(symbol: &Extent, extent: &Extent) -> Option<(String, Extent)> {
    let names = symbol.symbols();
    let [name] = names.as_slice() else { return None };
    let is_free = *symbol == Extent::sym(name) && !extent.symbols().contains(name);
    is_free.then(|| (name.to_string(), extent.clone()))
}

fn put(inputs: &mut [Input], extent: &dyn Fn(&str) -> Option<Extent>) {
    for (_, ty) in inputs {
        ty.shape.iter_mut().for_each(|e| *e = e.substitute(extent));
    }
}

/// A program with numbers for as few of the inputs' symbols as it needs, and what was chosen.
pub(crate) fn chosen(
    inputs: &[Input],
    build: &dyn Fn(&[Input]) -> Option<Program>,
) -> Option<(Program, String)> {
    let at = |numbers: &HashMap<String, i64>| {
        let mut inputs = inputs.to_vec();
        put(&mut inputs, &|s| numbers.get(s).map(|&n| Extent::from(n)));
        build(&inputs)
    };
    let usual = random_inputs::usual_symbols(inputs.iter().map(|(_, ty)| ty));
    let mut numbers = random_inputs::nearby(&usual).find(|numbers| at(numbers).is_some())?;
    let mut names: Vec<String> = numbers.keys().cloned().collect();
    names.sort_unstable();
    for name in &names {
        let mut fewer = numbers.clone();
        fewer.remove(name);
        if at(&fewer).is_some() {
            numbers = fewer;
        }
    }
    let program = at(&numbers)?;
    let told: Vec<String> =
        names.iter().filter_map(|n| numbers.get(n).map(|v| format!("`{n}` is {v}"))).collect();
    let first = names.iter().find(|n| numbers.contains_key(*n))?;
    let note = format!(
        "the text has no program for all extents: {} (`--shape {first}=…` gives another)",
        told.join(", ")
    );
    Some((program, note))
}
