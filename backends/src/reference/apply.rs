//! Evaluates one application of an operator: by its meaning, its body or its Rust reference.

use super::array::{Array, Elements, count};
use super::code::cache::{CodeCache, CompiledMeaning};
use super::code::compile::MeaningCode;
use super::code::{Fault, InputElements};
use super::recurrence::{self, Unfinished};
use super::{Engine, Precision, Reference, exec, externs, scalar};
use mlc_dsl::ir::{Attr, DType, Tensor, Type};
use mlc_dsl::library::{CallId, CallKind, Callable};
use mlc_dsl::whole_tensors::definitions::{self, Evaluator};
use std::borrow::Cow;
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
    let types = args.iter().map(|a| (a.dtype(), a.shape().to_vec())).collect();
    let app = codes.get(reference.engine, call, attrs, types)?;
    let results = match &callable.kind {
        CallKind::Op(_) if callable.recurrence.is_some() => {
            step_by_step(reference, callable, &app, args)?
        }
        CallKind::Op(_) => app
            .types
            .iter()
            .zip(app.codes.iter().zip(&app.tables))
            .map(|(ty, (code, tables))| {
                element_by_element(reference, callable, code, tables, ty, args)
            })
            .collect::<Result<_, _>>()?,
        // The results are rounded where they are computed.
        CallKind::Def(body) => {
            return definitions::body(
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

/// Applies an operator to tensors and rounds its results to their types: floats of 32 bits are read where they lie, and
/// results are rounded part by part. `None` if it has no meaning of its own, or other floats are among its arguments or results.
pub(super) fn on_singles(
    reference: &Reference,
    codes: &CodeCache<'_>,
    call: CallId,
    attrs: &[Option<Attr>],
    args: &[&Tensor],
) -> Result<Option<Vec<Tensor>>, String> {
    let callable = codes.library().call(call);
    let is_direct = reference.engine == Engine::Fast
        && reference.precision == Precision::F64
        && matches!(callable.kind, CallKind::Op(_))
        && callable.recurrence.is_none()
        && args.iter().all(|t| !t.dtype().is_float() || t.dtype() == DType::F32);
    if !is_direct {
        return Ok(None);
    }
    let types = args.iter().map(|t| (t.dtype(), t.shape().to_vec())).collect();
    let app = codes.get(reference.engine, call, attrs, types)?;
    if app.types.iter().any(|ty| ty.dtype != DType::F32) {
        return Ok(None);
    }
    let args: Vec<Argument> = args.iter().map(|t| Argument::of(t)).collect();
    let singles = |(ty, (code, tables)): (&Type, (&MeaningCode, &Vec<Elements>))| {
        let (shape, n) = place(ty)?;
        let sources: Vec<InputElements> =
            args.iter().map(Argument::elements).chain(tables.iter().map(exec::elements)).collect();
        let values =
            exec::singles(code, n, &sources).map_err(|fault| explained(callable, fault))?;
        Ok(values.map(|v| Tensor::from_f32(shape, v)))
    };
    let results = app.types.iter().zip(app.codes.iter().zip(&app.tables)).map(singles);
    Ok(results.collect::<Result<Vec<_>, String>>()?.into_iter().collect())
}

/// What an operator on tensors reads.
enum Argument<'a> {
    Single(Cow<'a, [f32]>),
    Int(Vec<i64>),
}

impl<'a> Argument<'a> {
    fn of(t: &'a Tensor) -> Argument<'a> {
        if t.dtype().is_float() { Argument::Single(t.to_f32()) } else { Argument::Int(t.to_i64()) }
    }

    fn elements(&self) -> InputElements<'_> {
        match self {
            Argument::Single(v) => InputElements::Single(v),
            Argument::Int(v) => InputElements::Int(v),
        }
    }
}

/// Evaluates a meaning over the whole output.
fn element_by_element(
    reference: &Reference,
    callable: &Callable,
    code: &MeaningCode,
    tables: &[Elements],
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
