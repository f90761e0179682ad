//! Matches attributes and numbers: names are bound; everything else is compared, now or once its names are bound.

use super::{Continuation, Matcher, PartialMatch};
use mlc_dsl::eval::list_patterns::{self, ListFit};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{AttrKind, Expr};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::Dim;
use mlc_dsl::pattern::{is_attr, solve};
use mlc_dsl::typing::infer::resolve_dims;
use std::ops::ControlFlow;

impl Matcher<'_> {
    /// True if everything deferred agrees. Lists bind the names of their entries now, if they could not before.
    pub(crate) fn deferred_agree(&self, st: &mut PartialMatch) -> bool {
        let PartialMatch { env, pending, .. } = st;
        let open = |n: &str| is_attr(self.law, n);
        let mut waiting: Vec<&(Expr, Attr)> = pending.iter().collect();
        loop {
            let before = waiting.len();
            let mut agrees = true;
            waiting.retain(|(e, a)| match list_patterns::fit(e, a, env, &open) {
                ListFit::Yes => false,
                ListFit::No => {
                    agrees = false;
                    false
                }
                ListFit::Later => match self.solve_for_name(e, a, env) {
                    Some(fits) => {
                        agrees &= fits;
                        false
                    }
                    None => true,
                },
            });
            if !agrees {
                return false;
            }
            if waiting.len() == before {
                return waiting.iter().all(|(e, a)| same_attr(e, a, env));
            }
        }
    }

    /// Binds the name that a number tells, if it is one that stands nowhere by itself; whether it has the kind of the name and yields
    /// the number.
    fn solve_for_name(&self, e: &Expr, a: &Attr, env: &mut Env) -> Option<bool> {
        if self.compiled.solved.is_empty() {
            return None;
        }
        let (name, v) = solve(e, a.as_f64()?, env)?;
        if !self.compiled.solved.contains(&name) {
            return None;
        }
        let value = self.of_kind(&name, Attr::float(v)).filter(|_| v.is_finite());
        let bound = value.is_some_and(|v| env.bind_attr(&name, v));
        Some(bound && same_attr(e, a, env))
    }

    /// Binds or compares attributes that follow from the types: the positions of axes.
    pub(crate) fn derive(&self, st: &mut PartialMatch) -> bool {
        for a in &self.law.attrs {
            let Some(of) = a.ty.axis() else { continue };
            let dims = self.law.vars.iter().filter_map(|v| v.ty.dims.as_ref());
            let position = dims.into_iter().find_map(|dims| {
                let at = dims.iter().position(|d| matches!(d, Dim::Axis(n) if n == of))?;
                resolve_dims(&dims[..at], &st.env).ok().map(|d| d.len())
            });
            let agrees = match position {
                // A name that the pattern bound must agree with where the axis lies.
                Some(at) => st.env.bind_attr(&a.name, Attr::int(at as i64)),
                None => st.env.attr(&a.name).is_some(),
            };
            if !agrees {
                return false;
            }
        }
        true
    }

    /// A number of the e-graph against an expression: within two units in the last place.
    pub(crate) fn scalar(
        &self,
        e: &Expr,
        v: f64,
        dtype: DType,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        if let Some(n) = e.as_name()
            && is_attr(self.law, n)
            && st.env.attr(n).is_none()
        {
            let Some(value) = self.of_kind(n, Attr::float(v)) else {
                return ControlFlow::Continue(());
            };
            let mark = st.env.mark();
            st.env.bind_attr(n, value);
            next(st)?;
            st.env.rollback(mark);
            return ControlFlow::Continue(());
        }
        match eval(e, &st.env) {
            Ok(a) if a.as_f64().is_some_and(|w| close(v, w, dtype)) => next(st),
            Ok(_) => ControlFlow::Continue(()),
            Err(_) => {
                // Its names are bound later in the match, or never.
                // Integers are equal or not; a number among floats may have been rounded.
                let number = if dtype.is_float() { Attr::float(v) } else { Attr::int(v as i64) };
                st.pending.push((e.clone(), number));
                next(st)?;
                st.pending.pop();
                ControlFlow::Continue(())
            }
        }
    }

    /// A value as the attribute variable `n` takes it: an `int` takes real numbers that are integers, and no others.
    fn of_kind(&self, n: &str, value: Attr) -> Option<Attr> {
        let declared = self.law.attrs.iter().find(|a| &*a.name == n);
        match declared.map(|a| a.ty.kind) {
            Some(AttrKind::Int) => value.as_integer(),
            _ => Some(value),
        }
    }

    /// An attribute against an expression: a bare name is bound, as are those in a list; anything else is compared.
    pub(crate) fn attr(&self, e: &Expr, a: &Attr, st: &mut PartialMatch) -> bool {
        if let Some(n) = e.as_name()
            && is_attr(self.law, n)
        {
            let value = self.of_kind(n, a.clone());
            return value.is_some_and(|v| st.env.bind_attr(n, v));
        }
        match list_patterns::fit(e, a, &mut st.env, &|n| is_attr(self.law, n)) {
            ListFit::Yes => return true,
            ListFit::No => return false,
            ListFit::Later => {}
        }
        match eval(e, &st.env) {
            Ok(v) => same_value(&v, a),
            Err(_) => {
                st.pending.push((e.clone(), a.clone()));
                true
            }
        }
    }
}

fn same_attr(e: &Expr, a: &Attr, env: &Env) -> bool {
    eval(e, env).is_ok_and(|v| same_value(&v, a))
}

fn same_value(v: &Attr, a: &Attr) -> bool {
    let equal =
        |near: fn(f64, f64) -> bool| v.as_f64().zip(a.as_f64()).is_some_and(|(v, a)| near(v, a));
    match (v, a) {
        (Attr::Float(_), Attr::Float(_)) => equal(|v, a| close(v, a, DType::F32)),
        (Attr::Float(_), _) | (_, Attr::Float(_)) => equal(|v, a| v == a),
        _ => v == a,
    }
}

/// True if two numbers are at most two units in the last place of `dtype` apart. Zeros of unlike signs have unlike reciprocals.
pub fn close(a: f64, b: f64, dtype: DType) -> bool {
    if a == b || a.is_nan() && b.is_nan() {
        return a != 0.0 || a.is_sign_negative() == b.is_sign_negative();
    }
    if !dtype.is_float() || !a.is_finite() || !b.is_finite() {
        return false;
    }
    let ulp = dtype.unit_roundoff() * 2.0 * a.abs().max(b.abs());
    (a - b).abs() <= 2.0 * ulp
}
