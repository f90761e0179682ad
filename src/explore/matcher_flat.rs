//! Matching sums and products on their flattened views: which operand is which, and what is left over.

use super::flatten::View;
use super::language::{ENode, Head};
use super::matcher::{Matcher, Next, Rest, State};
use super::matcher_attrs::close;
use egg::Id;
use mlc_dsl::eval::eval;
use mlc_dsl::expr::Expr;
use mlc_dsl::ir::DType;
use mlc_dsl::library::CallId;
use mlc_dsl::pattern::{PatId, PatKind, is_attr};
use std::ops::ControlFlow;

/// Operands that a root pattern may leave over. In a long sum every subset would match otherwise.
const LEFT_OVER: usize = 2;

impl Matcher<'_> {
    /// A class that is no product (or sum) is one of itself and the unit.
    pub(super) fn unit_view(
        &self,
        call: CallId,
        args: &[PatId],
        scalar: Option<&Expr>,
        class: Id,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
        let unit = self.graph.library.call(call).unit;
        let ([arg], Some(e), Some(unit), false) = (args, scalar, unit, self.flat.exact) else {
            return ControlFlow::Continue(());
        };
        let is_nest = |n: &ENode| matches!(n.head, Head::Apply(c, _) if c == call);
        // A lone variable would match everything.
        if matches!(self.pat(*arg).kind, PatKind::Var(_))
            || self.graph.egg[class].nodes.iter().any(is_nest)
        {
            return ControlFlow::Continue(());
        }
        let dtype = self.graph.type_of(class).dtype;
        self.visit(*arg, class, st, &mut |st| self.scalar(e, unit, dtype, st, next))
    }

    /// Every flattened view of a class against the operands of a sum or product.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn views(
        &self,
        call: CallId,
        args: &[PatId],
        scalar: Option<&Expr>,
        class: Id,
        root: bool,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
        if scalar.is_some()
            && self.compiled.numbered
            && self.graph.numberless.contains(&self.graph.egg.find(class))
        {
            return ControlFlow::Continue(());
        }
        let dtype = self.graph.type_of(class).dtype;
        let unit = self.graph.library.call(call).unit;
        for view in self.flat.views(self.graph, call, class).iter() {
            if view.operands.len() < args.len() {
                continue;
            }
            let mut used = vec![false; view.operands.len()];
            self.assign(args, view, &mut used, st, &mut |st, used| {
                let spare = used.iter().zip(&view.operands).filter(|(u, _)| !**u);
                let operands: Vec<Id> = spare.map(|(_, &o)| o).collect();
                let partial = !operands.is_empty();
                let lone = args.len() + usize::from(scalar.is_some()) < 2
                    || args.len() == 1 && matches!(self.pat(args[0]).kind, PatKind::Var(_));
                if partial && (!root || lone || self.flat.exact || operands.len() > LEFT_OVER) {
                    return ControlFlow::Continue(());
                }
                let root = root && !self.flat.exact;
                self.number(call, scalar, view.scalar, unit, dtype, root, st, &mut |st, left| {
                    let saved = st.rest.take();
                    if partial || left.is_some() {
                        st.rest = Some(Rest { call, operands: operands.clone(), scalar: left });
                    }
                    let flow = next(st);
                    st.rest = saved;
                    flow
                })
            })?;
        }
        ControlFlow::Continue(())
    }

    /// The number of a view against the number of a pattern; `next` gets what is left of it.
    #[allow(clippy::too_many_arguments)]
    fn number(
        &self,
        call: CallId,
        wanted: Option<&Expr>,
        found: Option<f64>,
        unit: Option<f64>,
        dtype: DType,
        root: bool,
        st: &mut State,
        next: &mut dyn FnMut(&mut State, Option<f64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match (wanted, found) {
            (None, None) => next(st, None),
            (None, Some(v)) if root => next(st, Some(v)),
            (None, Some(_)) => ControlFlow::Continue(()),
            (Some(e), found) => {
                let open =
                    e.as_name().is_some_and(|n| is_attr(self.law, n) && st.env.attr(n).is_none());
                let Some(v) = found.or(if open { unit } else { None }) else {
                    return ControlFlow::Continue(());
                };
                self.scalar(e, v, dtype, st, &mut |st| next(st, None))?;
                // A product with another number is the law's side times a quotient.
                let literal = eval(e, &st.env).ok().and_then(|a| a.as_f64());
                let (true, Some(w)) = (root && !open, literal) else {
                    return ControlFlow::Continue(());
                };
                if close(v, w, dtype) {
                    return ControlFlow::Continue(());
                }
                match self.graph.library.call(call).unit {
                    Some(1.0) if w != 0.0 && w.abs() != 1.0 && v.is_finite() && v != 0.0 => {
                        next(st, Some(v / w))
                    }
                    _ => ControlFlow::Continue(()),
                }
            }
        }
    }

    fn assign(
        &self,
        args: &[PatId],
        view: &View,
        used: &mut [bool],
        st: &mut State,
        next: &mut dyn FnMut(&mut State, &[bool]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let [p, rest @ ..] = args else { return next(st, used) };
        let mut tried: Vec<Id> = Vec::new();
        for i in 0..view.operands.len() {
            let id = view.operands[i];
            if used[i] || tried.contains(&id) {
                continue;
            }
            tried.push(id);
            used[i] = true;
            let mut inner = used.to_vec();
            self.visit(*p, id, st, &mut |st| self.assign(rest, view, &mut inner, st, next))?;
            used[i] = false;
        }
        ControlFlow::Continue(())
    }
}
