//! Evaluates one application of an operator: by its meaning, its body or its Rust reference.

use super::array::{Array, Elements, count};
use super::code::Fault;
use super::code_cache::{CodeCache, CompiledMeaning};
use super::compile::MeaningCode;
use super::recurrence::{self, Unfinished};
use super::{Reference, exec, externs, scalar};
use mlc_dsl::definition_values::{self, Evaluator};
use mlc_dsl::ir::{Attr, DType, Type};
use mlc_dsl::library::{CallId, CallKind, Callable};
use std::sync::Arc;

/// Results of so many elements are tried for memory first.
const LARGE: usize = 1 << 24;

/// Applies an operator to values.
pub(super) fn apply(
    reference: &Reference,
    codes: &CodeCache<'_>,
    call: CallId,
    attrs: &[Option<Attr>],
    args: &[Array],
) -> Result<Vec<Array>, String> {
    let callable = codes.library().call(call);
    let app = codes.get(reference.engine, call, attrs, args)?;
    let results = match &callable.kind {
        CallKind::Op(_) if callable.recurrence.is_some() => {
            step_by_step(reference, callable, &app, args)?
        }
        CallKind::Op(_) => app
            .types
            .iter()
            .zip(app.codes.iter().zip(&app.tables))
            .map(|(ty, code)| element_by_element(reference, callable, code, ty, args))
            .collect::<Result<_, _>>()?,
        // The results are rounded where they are computed.
        CallKind::Def(body) => {
            return definition_values::body(
                &mut Inside { reference, codes },
                body,
                args,
                app.env.clone(),
            );
        }
        CallKind::Extern(name) => {
            let results = externs::call(name, &app.env, args, &app.types)?;
            let fits = results.len() == app.types.len()
                && results.iter().zip(&app.types).all(|(r, t)| r.ty() == *t);
            if !fits {
                return Err(format!("the reference `{name}` does not yield the declared types"));
            }
            results
        }
    };
    Ok(results.into_iter().map(|a| reference.rounded(callable.class, a)).collect())
}

/// Evaluates a meaning over the whole output.
fn element_by_element(
    reference: &Reference,
    callable: &Callable,
    (code, tables): (&MeaningCode, &Vec<Elements>),
    ty: &Type,
    args: &[Array],
) -> Result<Array, String> {
    let (shape, n) = place(ty)?;
    let elements = exec::run(code, tables, n, args, reference.engine);
    array(ty, shape, elements.map_err(|fault| explained(callable, fault))?)
}

/// Evaluates the meanings of a recurrence.
fn step_by_step(
    reference: &Reference,
    callable: &Callable,
    app: &CompiledMeaning,
    args: &[Array],
) -> Result<Vec<Array>, String> {
    let places = app.types.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let results: Vec<Unfinished> = app
        .codes
        .iter()
        .zip(&app.types)
        .zip(&places)
        .map(|((code, ty), (_, n))| Unfinished::new(code, ty.dtype, *n))
        .collect();
    let backwards = callable.recurrence.as_ref().is_some_and(|r| r.backwards);
    let settle = |a: Array| reference.rounded(callable.class, a);
    let elements = recurrence::run(results, args, backwards, reference.engine, &settle);
    let elements = elements.map_err(|fault| explained(callable, fault))?;
    let typed = app.types.iter().zip(places).zip(elements);
    typed.map(|((ty, (shape, _)), e)| array(ty, shape, e)).collect()
}

/// The extents of a result and how many elements it has.
fn place(ty: &Type) -> Result<(Vec<usize>, usize), String> {
    let shape = ty.known_shape().ok_or_else(|| format!("the result's type {ty} is not known"))?;
    let n = count(&shape).filter(|&n| n < LARGE || Vec::<f64>::new().try_reserve_exact(n).is_ok());
    let n = n.ok_or_else(|| format!("a result of type {ty} is too large"))?;
    Ok((shape, n))
}

/// What a fault says to the user.
fn explained(callable: &Callable, fault: Fault) -> String {
    let names = callable.inputs.iter().map(|i| &i.name);
    let mut names = names.chain(callable.outputs.iter().map(|o| &o.0));
    match (fault.input.and_then(|i| names.nth(i)), fault.at) {
        (Some(input), Some((axis, index, extent))) => format!(
            "index {index} is out of range for axis {axis} of `{input}`, which has extent {extent}"
        ),
        (Some(input), None) => format!("an index of `{input}` exists for no element"),
        (None, _) => "a position is outside of its list".to_string(),
    }
}

fn array(ty: &Type, shape: Vec<usize>, elements: Elements) -> Result<Array, String> {
    let array = match elements {
        Elements::Float(v) => Array::from_f64(ty.dtype, shape, Arc::unwrap_or_clone(v)),
        Elements::Int(v) => Array::from_i64(ty.dtype, shape, Arc::unwrap_or_clone(v)),
    };
    array.ok_or_else(|| "the meaning yields another number of elements".into())
}

/// The reference interpreter inside of a definition.
struct Inside<'a, 'l> {
    reference: &'a Reference,
    codes: &'a CodeCache<'l>,
}

impl Evaluator for Inside<'_, '_> {
    type Value = Array;

    fn ty(&self, v: &Array) -> Type {
        v.ty()
    }

    fn number(&mut self, dtype: DType, v: f64) -> Array {
        scalar(dtype, v)
    }

    fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Array],
    ) -> Result<Vec<Array>, String> {
        let name = || &self.codes.library().call(call).name;
        apply(self.reference, self.codes, call, attrs, args)
            .map_err(|reason| format!("in `{}`: {reason}", name()))
    }
}
