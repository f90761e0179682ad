//! One application of an operator: its meaning, its body or its Rust reference.

use super::array::{Array, Elements, count};
use super::codes::Codes;
use super::compile::Code;
use super::{Reference, exec, externs, scalar};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::infer::resolve_dtype;
use mlc_dsl::instantiate::bind_dims;
use mlc_dsl::ir::{Attr, Type};
use mlc_dsl::library::{Body, CallId, CallKind, Callable};
use mlc_dsl::term::{Term, TermId, TermKind};
use std::collections::HashMap;
use std::sync::Arc;

/// Results of so many elements are tried for memory first.
const LARGE: usize = 1 << 24;

/// Applies an operator to values.
pub(super) fn apply(
    reference: &Reference,
    codes: &Codes<'_>,
    call: CallId,
    attrs: &[Option<Attr>],
    args: &[Array],
) -> Result<Vec<Array>, String> {
    let callable = codes.library().call(call);
    let app = codes.get(reference.engine, call, attrs, args)?;
    let results = match &callable.kind {
        CallKind::Op(_) => app
            .types
            .iter()
            .zip(&app.codes)
            .map(|(ty, code)| evaluate(reference, callable, code, ty, args))
            .collect::<Result<_, _>>()?,
        // The results are rounded where they are computed.
        CallKind::Def(body) => return expand(reference, codes, body, args, app.env.clone()),
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
fn evaluate(
    reference: &Reference,
    callable: &Callable,
    code: &Code,
    ty: &Type,
    args: &[Array],
) -> Result<Array, String> {
    let shape = ty.known_shape().ok_or_else(|| format!("the result's type {ty} is not known"))?;
    let n = count(&shape).filter(|&n| n < LARGE || Vec::<f64>::new().try_reserve_exact(n).is_ok());
    let n = n.ok_or_else(|| format!("a result of type {ty} is too large"))?;
    let elements = exec::run(code, n, args, reference.engine).map_err(|fault| {
        let input = fault.input.map(|i| &callable.inputs[i].name);
        match (input, fault.at) {
            (Some(input), Some((axis, index, extent))) => format!(
                "index {index} is out of range for axis {axis} of `{input}`, which has extent {extent}"
            ),
            (Some(input), None) => format!("an index of `{input}` exists for no element"),
            (None, _) => "a position is outside of its list".to_string(),
        }
    })?;
    let array = match elements {
        Elements::Float(v) => Array::from_f64(ty.dtype, shape, Arc::unwrap_or_clone(v)),
        Elements::Int(v) => Array::from_i64(ty.dtype, shape, Arc::unwrap_or_clone(v)),
    };
    array.ok_or_else(|| "the meaning yields another number of elements".into())
}

/// Evaluates the terms of a definition.
fn expand(
    reference: &Reference,
    codes: &Codes<'_>,
    body: &Body,
    args: &[Array],
    mut env: Env,
) -> Result<Vec<Array>, String> {
    let terms = &body.terms;
    let mut uses: HashMap<TermId, usize> = HashMap::new();
    body.roots.iter().for_each(|r| *uses.entry(*r).or_default() += 1);
    let mut needed: Vec<TermId> = Vec::new();
    for i in (0..terms.len() as u32).rev().map(TermId) {
        if uses.contains_key(&i) {
            needed.push(i);
            terms.get(i).args.iter().for_each(|a| *uses.entry(*a).or_default() += 1);
        }
    }
    let mut done: HashMap<TermId, Vec<Array>> = HashMap::new();
    for &id in needed.iter().rev() {
        let term = terms.get(id);
        let values = evaluate_term(reference, codes, term, args, &env, &done)?;
        for a in &term.args {
            let left = uses.entry(*a).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                done.remove(a);
            }
        }
        if let (Some(dims), [v]) = (&term.dims, values.as_slice()) {
            bind_dims(dims, &v.ty().shape, &mut env);
        }
        done.insert(id, values);
    }
    body.roots
        .iter()
        .map(|r| {
            done.get(r).and_then(|v| v.first()).cloned().ok_or_else(|| "a root is missing".into())
        })
        .collect()
}

fn evaluate_term(
    reference: &Reference,
    codes: &Codes<'_>,
    term: &Term,
    args: &[Array],
    env: &Env,
    done: &HashMap<TermId, Vec<Array>>,
) -> Result<Vec<Array>, String> {
    let operand = |id: &TermId, output: usize| {
        let value = done.get(id).and_then(|v| v.get(output));
        value.cloned().ok_or_else(|| "a term is used before it is computed".to_string())
    };
    match &term.kind {
        TermKind::Var(i) => {
            Ok(vec![args.get(*i).cloned().ok_or_else(|| format!("there is no input {i}"))?])
        }
        TermKind::Scalar(e) => {
            let v = eval(e, env).map_err(|e| e.to_string())?;
            let v = v.as_f64().ok_or_else(|| format!("{v} is not a known number"))?;
            Ok(vec![scalar(resolve_dtype(&term.dtype, env)?, v)])
        }
        TermKind::Apply(call, attrs) => {
            let attrs = attrs
                .iter()
                .map(|a| a.as_ref().map(|e| eval(e, env)).transpose())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| e.to_string())?;
            let operands =
                term.args.iter().map(|a| operand(a, 0)).collect::<Result<Vec<_>, _>>()?;
            let inside = |reason| format!("in `{}`: {reason}", codes.library().call(*call).name);
            apply(reference, codes, *call, &attrs, &operands).map_err(inside)
        }
        TermKind::Output(i) => Ok(vec![operand(&term.args[0], *i)?]),
        TermKind::EachFold(..) | TermKind::EachPart(_) => {
            Err("a family has no single value".into())
        }
    }
}
