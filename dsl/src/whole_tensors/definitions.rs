//! Evaluates the bodies of definitions, term by term, over the numbers of any evaluator.

use crate::eval::{Env, eval};
use crate::ir::{Attr, DType, Type};
use crate::library::{Body, CallId};
use crate::term::{Term, TermId, TermKind};
use crate::typing::infer::resolve_dtype;
use crate::typing::instantiate::bind_dims;
use std::collections::HashMap;

/// What computes applications.
pub trait Evaluator {
    /// A tensor.
    type Value: Clone;

    /// The element type and extents of a value.
    fn ty(&self, v: &Self::Value) -> Type;

    /// A number of rank 0.
    fn number(&mut self, dtype: DType, v: f64) -> Self::Value;

    /// The results of an operator.
    fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Self::Value],
    ) -> Result<Vec<Self::Value>, String>;
}

/// The values of a definition's body; `env` binds what its signature names. A value is kept until its last use.
pub fn body<E: Evaluator>(
    evaluator: &mut E,
    body: &Body,
    args: &[E::Value],
    mut env: Env,
) -> Result<Vec<E::Value>, String> {
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
    let mut done: HashMap<TermId, Vec<E::Value>> = HashMap::new();
    for &id in needed.iter().rev() {
        let term = terms.get(id);
        let values = one(evaluator, term, args, &env, &done)?;
        for a in &term.args {
            let left = uses.entry(*a).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                done.remove(a);
            }
        }
        if let (Some(dims), [v]) = (&term.dims, values.as_slice()) {
            bind_dims(dims, &evaluator.ty(v).shape, &mut env);
        }
        done.insert(id, values);
    }
    let root = |r: &TermId| done.get(r).and_then(|v| v.first()).cloned();
    body.roots.iter().map(|r| root(r).ok_or_else(|| "a root is missing".into())).collect()
}

fn one<E: Evaluator>(
    evaluator: &mut E,
    term: &Term,
    args: &[E::Value],
    env: &Env,
    done: &HashMap<TermId, Vec<E::Value>>,
) -> Result<Vec<E::Value>, String> {
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
            let dtype = resolve_dtype(&term.dtype, env)?;
            match dtype.is_exact(v) {
                true => Ok(vec![evaluator.number(dtype, v)]),
                false => Err(format!("{v} is no {dtype}")),
            }
        }
        TermKind::Apply(call, attrs) => {
            let attrs = attrs
                .iter()
                .map(|a| a.as_ref().map(|e| eval(e, env)).transpose())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| e.to_string())?;
            let operands =
                term.args.iter().map(|a| operand(a, 0)).collect::<Result<Vec<_>, _>>()?;
            evaluator.apply(*call, &attrs, &operands)
        }
        TermKind::Output(i) => Ok(vec![operand(&term.args[0], *i)?]),
        TermKind::EachFold(..) | TermKind::EachPart(_) => {
            Err("a family has no single value".into())
        }
    }
}
