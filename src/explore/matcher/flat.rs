//! Matches sums and products on their flattened views: assigns operands, and determines what is left over.

use super::attrs::close;
use super::flatten::FlatView;
use super::{Binding, Continuation, LeftoverOperands, Matcher, PartialMatch};
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::eval::eval;
use mlc_dsl::expr::{BinaryOp, Expr};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{CallId, TypePattern};
use mlc_dsl::pattern::{PatId, PatKind, is_attr, solve};
use mlc_dsl::typing::infer::{resolve_dims, unify, unify_dims};
use std::ops::ControlFlow;

/// Operands that a root pattern may leave over. In a long sum every subset would match otherwise.
const LEFT_OVER: usize = 2;

/// The number of a pattern.
struct Wanted<'e> {
    number: Option<&'e Expr>,
    is_root: bool,
    /// True if all that it multiplies is one operand, which takes up numbers itself.
    is_taken_up: &'e dyn Fn() -> bool,
}

impl Matcher<'_> {
    /// A class that is no product (or sum) is one of itself and the unit.
    pub(crate) fn unit_view(
        &self,
        call: CallId,
        args: &[PatId],
        scalar: Option<&Expr>,
        class: Id,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        let unit = self.graph.library.call(call).unit;
        let ([arg], Some(e), Some(unit), false) = (args, scalar, unit, self.flat.exact) else {
            return ControlFlow::Continue(());
        };
        let is_nest = |n: &ENode| matches!(n.head, Head::Apply(c, _) if c == call);
        let nests = || self.graph.egg[class].nodes.iter().any(is_nest);
        // A lone variable would match everything; what a pattern names is looked for beside a nest, too.
        let named = match self.pat(*arg).kind {
            PatKind::Var(_) => return ControlFlow::Continue(()),
            PatKind::Apply(..) => true,
            _ => false,
        };
        if !named && nests() {
            return ControlFlow::Continue(());
        }
        let dtype = self.graph.type_of(class).dtype;
        self.visit(*arg, class, st, &mut |st| self.scalar(e, unit, dtype, st, next))
    }

    /// Every flattened view of a class against the operands of a sum or product.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn views(
        &self,
        call: CallId,
        args: &[PatId],
        scalar: Option<&Expr>,
        class: Id,
        root: bool,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        if scalar.is_some()
            && self.compiled.numbered
            && self.graph.without_scalar_factor.contains(&self.graph.egg.find(class))
        {
            return ControlFlow::Continue(());
        }
        let dtype = self.graph.type_of(class).dtype;
        let unit = self.graph.library.call(call).unit;
        for view in self.flat.views(self.graph, call, class).iter() {
            if let (None, Some(number)) = (scalar, view.scalar) {
                self.numbered(call, args, view, number, class, root, st, next)?;
            }
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
                // The number of a lone operand that takes up numbers says nothing: each multiple would make new constants, without end.
                let lone_operand = match args {
                    [_] => used.iter().position(|u| *u).map(|i| view.operands[i]),
                    _ => None,
                };
                let takes_up = |id: Id| self.graph.takes_up_numbers(id);
                let wanted = Wanted {
                    number: scalar,
                    is_root: root,
                    is_taken_up: &|| lone_operand.is_some_and(takes_up),
                };
                self.number(call, wanted, view.scalar, unit, dtype, st, &mut |st, left| {
                    let saved = st.rest.take();
                    if partial || left.is_some() {
                        st.rest = Some(LeftoverOperands {
                            call,
                            operands: operands.clone(),
                            scalar: left,
                        });
                    }
                    let flow = next(st);
                    st.rest = saved;
                    flow
                })
            })?;
        }
        ControlFlow::Continue(())
    }

    /// A view whose number is an operand of the pattern: one that is repeated, as a number may be to any shape.
    #[allow(clippy::too_many_arguments)]
    fn numbered(
        &self,
        call: CallId,
        args: &[PatId],
        view: &FlatView,
        number: f64,
        class: Id,
        root: bool,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        let moves_nothing = self.compiled.numbered
            && self.graph.without_scalar_factor.contains(&self.graph.egg.find(class));
        // A sum with zero, or a product with one, is none: other laws leave it out.
        let nothing = self.graph.library.call(call).unit == Some(number);
        if nothing || args.len() < 2 || view.operands.len() + 1 < args.len() || moves_nothing {
            return ControlFlow::Continue(());
        }
        for (k, &p) in args.iter().enumerate() {
            let Some(i) = self.repeated(p) else { continue };
            let rest: Vec<PatId> = [&args[..k], &args[k + 1..]].concat();
            let mut used = vec![false; view.operands.len()];
            self.assign(&rest, view, &mut used, st, &mut |st, used| {
                let spare = used.iter().zip(&view.operands).filter(|(u, _)| !**u);
                let operands: Vec<Id> = spare.map(|(_, &o)| o).collect();
                let partial = !operands.is_empty();
                if partial && (!root || self.flat.exact || operands.len() > LEFT_OVER) {
                    return ControlFlow::Continue(());
                }
                self.repeat(p, i, number, class, st, &mut |st| {
                    let saved = st.rest.take();
                    if partial {
                        let operands = operands.clone();
                        st.rest = Some(LeftoverOperands { call, operands, scalar: None });
                    }
                    let flow = next(st);
                    st.rest = saved;
                    flow
                })
            })?;
        }
        ControlFlow::Continue(())
    }

    /// The variable that a pattern repeats, by names of axes or by an explicit broadcast.
    fn repeated(&self, p: PatId) -> Option<usize> {
        let arg = match &self.pat(p).kind {
            PatKind::Broadcast(arg, _) => *arg,
            PatKind::Apply(call, _, args) if self.graph.structural.broadcast == Some(*call) => {
                *args.first()?
            }
            _ => return None,
        };
        match self.pat(arg).kind {
            PatKind::Var(i) => Some(i),
            _ => None,
        }
    }

    /// Binds the variable of a pattern that repeats it to a number.
    fn repeat(
        &self,
        p: PatId,
        variable: usize,
        value: f64,
        class: Id,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        let ty = self.graph.type_of(class);
        let dtype = ty.dtype;
        let declared = &self.law.vars[variable].ty;
        let (env, pending) = (st.env.mark(), st.pending.len());
        let own = TypePattern { dtype: declared.dtype.clone(), dims: None };
        let mut shape = unify(&own, ty, &mut st.env, &[]).ok().map(|_| vec![]);
        match &self.pat(p).kind {
            PatKind::Apply(_, attrs, args) => {
                let found = [Attr::Ints(vec![]), Attr::Ints(ty.shape.clone())];
                let fits = attrs.iter().zip(&found).all(|(e, a)| match e {
                    Some(e) => self.attr(e, a, st),
                    None => false,
                });
                let dims = &self.pat(args[0]).dims;
                let scalar = fits && unify_dims(dims, &[], &mut st.env, &[]).is_ok();
                shape = shape.filter(|_| scalar);
            }
            PatKind::Broadcast(arg, _) => {
                let own = resolve_dims(&self.pat(*arg).dims, &st.env).ok();
                shape = shape.and(own);
            }
            _ => shape = None,
        }
        if let Some(shape) = shape {
            self.bind(variable, Binding::Number { value, dtype, shape }, st, next)?;
        }
        st.pending.truncate(pending);
        st.env.rollback(env);
        ControlFlow::Continue(())
    }

    /// The number of a view against the number of a pattern; `next` gets what is left of it.
    #[allow(clippy::too_many_arguments)]
    fn number(
        &self,
        call: CallId,
        wanted: Wanted<'_>,
        found: Option<f64>,
        unit: Option<f64>,
        dtype: DType,
        st: &mut PartialMatch,
        next: &mut dyn FnMut(&mut PartialMatch, Option<f64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match (wanted.number, found) {
            (None, None) => next(st, None),
            (None, Some(v)) if wanted.is_root => next(st, Some(v)),
            (None, Some(_)) => ControlFlow::Continue(()),
            (Some(e), found) => {
                let open = match e.as_name() {
                    Some(n) => is_attr(self.law, n) && st.env.attr(n).is_none(),
                    // A factor of one is not written, whatever it is computed from.
                    None => solve(e, 1.0, &st.env)
                        .is_some_and(|(n, _)| self.compiled.solved.contains(&n)),
                };
                let Some(v) = found.or(if open { unit } else { None }) else {
                    return ControlFlow::Continue(());
                };
                self.scalar(e, v, dtype, st, &mut |st| next(st, None))?;
                // A product with another number is the law's side times a quotient.
                let literal = eval(e, &st.env).ok().and_then(|a| a.as_f64());
                let (true, Some(w)) = (wanted.is_root && !open, literal) else {
                    return ControlFlow::Continue(());
                };
                if close(v, w, dtype) {
                    return ControlFlow::Continue(());
                }
                // A mean of no elements has an infinite number, of which nothing is a multiple.
                let has_quotient = |n: f64| n.is_finite() && n != 0.0;
                match self.graph.library.call(call).arithmetic() {
                    Some(BinaryOp::Mul)
                        if w.abs() != 1.0
                            && [v, w, v / w].into_iter().all(has_quotient)
                            && !(wanted.is_taken_up)() =>
                    {
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
        view: &FlatView,
        used: &mut [bool],
        st: &mut PartialMatch,
        next: &mut dyn FnMut(&mut PartialMatch, &[bool]) -> ControlFlow<()>,
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
