//! Checks inputs against the types of a program, and binds its symbols.

use super::array::Array;
use crate::BackendError;
use mlc_dsl::ir::{Atom, Attr, Extent, Program};
use std::collections::HashMap;
use std::sync::Arc;

/// The values of the symbols, and which input showed each.
#[derive(Debug, Default)]
pub(super) struct SymbolBindings(HashMap<Arc<str>, (i64, usize)>);

impl SymbolBindings {
    /// The value of an extent; `None` if it has a symbol that no input shows.
    pub(super) fn value(&self, e: &Extent) -> Option<i64> {
        e.eval(&|s| self.0.get(s).map(|v| v.0))
    }

    /// The attribute with every symbol replaced.
    pub(super) fn attr(&self, a: &Attr) -> Result<Attr, String> {
        let known = |e: &Extent| {
            self.value(e).map(Extent::from).ok_or_else(|| {
                let unknown = e.symbols().into_iter().find(|s| !self.0.contains_key(s));
                format!(
                    "the value of `{}` cannot be inferred from the inputs",
                    unknown.unwrap_or_default()
                )
            })
        };
        Ok(match a {
            Attr::Int(e) => Attr::Int(known(e)?),
            Attr::Ints(v) => Attr::Ints(v.iter().map(known).collect::<Result<_, _>>()?),
            Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
                a.clone()
            }
        })
    }
}

/// Checks the inputs and finds the values of the symbols.
pub(super) fn unify(program: &Program, inputs: &[Array]) -> Result<SymbolBindings, BackendError> {
    let wrong = |i: usize, reason: String| BackendError::Input {
        name: program.inputs[i].0.clone(),
        reason,
    };
    if inputs.len() != program.inputs.len() {
        let name = match program.inputs.get(inputs.len()) {
            Some((name, _)) => name.clone(),
            None => format!("#{}", program.inputs.len()),
        };
        let (takes, found) = (program.inputs.len(), inputs.len());
        let reason = format!("the program takes {takes} inputs, {found} given");
        return Err(BackendError::Input { name, reason });
    }
    for (i, ((_, ty), array)) in program.inputs.iter().zip(inputs).enumerate() {
        if ty.dtype != array.dtype() {
            return Err(wrong(i, format!("expected {}, found {}", ty.dtype, array.dtype())));
        }
        if ty.rank() != array.shape().len() {
            return Err(wrong(i, format!("expected {ty}, found shape {:?}", array.shape())));
        }
    }
    let mut symbols = SymbolBindings::default();
    let all = || {
        program.inputs.iter().zip(inputs).enumerate().flat_map(|(i, ((_, ty), array))| {
            let axes = ty.shape.iter().zip(array.shape()).enumerate();
            axes.map(move |(axis, (extent, &n))| (i, axis, extent, n as i64))
        })
    };
    // Plain symbols first: polynomials are then checked rather than solved where possible.
    for (i, axis, extent, n) in all() {
        if let Some(name) = plain_symbol(extent) {
            let (known, from) = *symbols.0.entry(name.clone()).or_insert((n, i));
            if known != n {
                let first = &program.inputs[from].0;
                return Err(wrong(
                    i,
                    format!("axis {axis} has extent {n}, but `{name}` is {known} in `{first}`"),
                ));
            }
        }
    }
    for (i, axis, extent, n) in all() {
        if symbols.value(extent).is_none()
            && let Some((name, v)) = solve(extent, n)
        {
            symbols.0.insert(name, (v, i));
        }
        match symbols.value(extent) {
            Some(v) if v != n => {
                let expected = match extent.as_const() {
                    Some(v) => v.to_string(),
                    None => format!("{extent} = {v}"),
                };
                return Err(wrong(i, format!("axis {axis} has extent {n}, expected {expected}")));
            }
            Some(_) | None => {}
        }
    }
    Ok(symbols)
}

fn plain_symbol(e: &Extent) -> Option<Arc<str>> {
    match e.terms().as_slice() {
        [(m, 1)] => match m.as_slice() {
            [(Atom::Sym(s), 1)] => Some(s.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The symbol and its value where the extent is `c * symbol + d`.
fn solve(e: &Extent, n: i64) -> Option<(Arc<str>, i64)> {
    let (mut factor, mut constant) = (None, 0);
    for (m, c) in e.terms() {
        match m.as_slice() {
            [] => constant = c,
            [(Atom::Sym(s), 1)] if factor.is_none() => factor = Some((s.clone(), c)),
            _ => return None,
        }
    }
    let (symbol, c) = factor?;
    let rest = n.checked_sub(constant)?;
    (rest % c == 0 && rest / c >= 0).then(|| (symbol, rest / c))
}
