//! E-matching: pattern against classes, with named axes bound on the way.
//!
//! Reads the e-graph only. Every match is handed to a callback; the search stops when that says so.

use super::flatten::{Flattenings, View};
use super::graph::Graph;
use super::language::{ENode, Head};
use super::pattern::{Compiled, Pat, PatId, PatKind, is_attr};
use egg::Id;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::infer::{resolve_dims, unify, unify_dims};
use mlc_dsl::ir::{Attr, DType, Extent};
use mlc_dsl::library::{CallId, Dim, Input, Law, Name, TypePattern};
use mlc_dsl::lists::{self, Fit};
use mlc_dsl::syntax::ast::{Expr, ExprKind};
use std::ops::ControlFlow;

/// What a variable is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// A class.
    Class(Id),
    /// The canonical broadcast of a class, which need not be in the e-graph yet.
    Spread {
        /// The class.
        base: Id,
        /// Places of its axes.
        map: Vec<i64>,
        /// The shape.
        shape: Vec<Extent>,
    },
}

/// What is left over when a root sum or product has more operands than its pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// The operator.
    pub call: CallId,
    /// Operands that the pattern did not use.
    pub operands: Vec<Id>,
    /// The number that is left.
    pub scalar: Option<f64>,
}

/// A (partial) match.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Names.
    pub env: Env,
    /// Tensor variables.
    pub vars: Vec<Option<Binding>>,
    /// Leftovers of the root.
    pub rest: Option<Rest>,
    /// Comparisons whose names were not bound yet.
    pending: Vec<(Expr, Attr)>,
}

/// Operands that a root pattern may leave over. In a long sum every subset would match otherwise.
const LEFT_OVER: usize = 2;

type Next<'n> = &'n mut dyn FnMut(&mut State) -> ControlFlow<()>;

/// Matches one compiled law.
pub struct Matcher<'a> {
    /// The e-graph.
    pub graph: &'a Graph,
    /// The law.
    pub law: &'a Law,
    /// Its patterns.
    pub compiled: &'a Compiled,
    /// Flattened views of sums and products.
    pub flat: &'a Flattenings,
}

impl Matcher<'_> {
    /// Calls `found` for every match of the pattern's root `root` in a class, with the node that was
    /// matched there.
    pub fn class(
        &self,
        root: PatId,
        class: Id,
        state: &State,
        found: &mut dyn FnMut(&ENode, &State) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let p = self.pat(root);
        let mut st = state.clone();
        if st.vars.is_empty() {
            st.vars = vec![None; self.law.vars.len()];
        }
        self.typed(p, class, &mut st, &mut |st| self.root(p, class, st, found))
    }

    fn root(
        &self,
        p: &Pat,
        class: Id,
        st: &mut State,
        found: &mut dyn FnMut(&ENode, &State) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let graph = self.graph;
        match &p.kind {
            PatKind::Apply(call, attrs, args) => {
                for node in &graph.egg[class].nodes {
                    self.node(*call, attrs, args, node, st, &mut |st| {
                        self.finish(node, st, found)
                    })?;
                }
            }
            PatKind::Flat(call, args, scalar) => {
                let head = |n: &&ENode| matches!(n.head, Head::Apply(c, _) if c == *call);
                let Some(node) = graph.egg[class].nodes.iter().find(head) else {
                    return ControlFlow::Continue(());
                };
                self.views(*call, args, scalar.as_ref(), class, true, st, &mut |st| {
                    self.finish(node, st, found)
                })?;
            }
            PatKind::Broadcast(..) | PatKind::Output(..) => {
                let Some(node) = graph.egg[class].nodes.first() else {
                    return ControlFlow::Continue(());
                };
                self.kind(p, class, st, &mut |st| self.finish(node, st, found))?;
            }
            // A bare variable or number as a whole left side would match everything.
            PatKind::Var(_) | PatKind::Scalar(_) => {}
        }
        ControlFlow::Continue(())
    }

    /// Checks what was deferred and hands the match on.
    fn finish(
        &self,
        node: &ENode,
        st: &mut State,
        found: &mut dyn FnMut(&ENode, &State) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mark = st.env.mark();
        if self.derive(st) && self.settled(st) {
            found(node, st)?;
        }
        st.env.rollback(mark);
        ControlFlow::Continue(())
    }

    /// True if everything deferred agrees. Lists bind the names of their entries now, if they could not before.
    fn settled(&self, st: &mut State) -> bool {
        let State { env, pending, .. } = st;
        let open = |n: &str| is_attr(self.law, n);
        let mut waiting: Vec<&(Expr, Attr)> = pending.iter().collect();
        loop {
            let before = waiting.len();
            let mut agrees = true;
            waiting.retain(|(e, a)| match lists::fit(e, a, env, &open) {
                Fit::Yes => false,
                Fit::No => {
                    agrees = false;
                    false
                }
                Fit::Later => true,
            });
            if !agrees {
                return false;
            }
            if waiting.len() == before {
                return waiting.iter().all(|(e, a)| same_attr(e, a, env));
            }
        }
    }

    /// Binds or compares attributes that follow from the types: the positions of axes.
    fn derive(&self, st: &mut State) -> bool {
        for a in &self.law.attrs {
            let Some(of) = a.ty.of.as_ref().filter(|_| a.ty.name.text == "axis") else { continue };
            let dims = self.law.vars.iter().filter_map(|v| v.ty.dims.as_ref());
            let position = dims.into_iter().find_map(|dims| {
                let at = dims.iter().position(|d| matches!(d, Dim::Axis(n) if **n == *of.text))?;
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

    fn pat(&self, id: PatId) -> &Pat {
        &self.compiled.pats[id.0 as usize]
    }

    /// Matches a class against a pattern.
    fn visit(&self, p: PatId, class: Id, st: &mut State, next: Next<'_>) -> ControlFlow<()> {
        let p = self.pat(p);
        self.typed(p, class, st, &mut |st| self.kind(p, class, st, next))
    }

    /// Unifies the pattern's type with the class's, in every way there is.
    fn typed(&self, p: &Pat, class: Id, st: &mut State, next: Next<'_>) -> ControlFlow<()> {
        let types = &self.graph.facts(class).types;
        let mark = st.env.mark();
        let Some(ty) = types.first() else { return ControlFlow::Continue(()) };
        if types.len() > 1 {
            return next(st);
        }
        let bare = TypePattern { dtype: p.dtype.clone(), dims: None };
        if unify(&bare, ty, &mut st.env, &[]).is_ok() {
            let choices = splits(&p.dims, ty.shape.len(), &st.env);
            // Where two segments meet follows from the operands, if from anything.
            if choices.is_empty() && !matches!(p.kind, PatKind::Var(_)) {
                next(st)?;
            }
            for hints in choices {
                let inner = st.env.mark();
                if unify_dims(&p.dims, &ty.shape, &mut st.env, &hints).is_ok() {
                    next(st)?;
                }
                st.env.rollback(inner);
            }
        }
        st.env.rollback(mark);
        ControlFlow::Continue(())
    }

    fn kind(&self, p: &Pat, class: Id, st: &mut State, next: Next<'_>) -> ControlFlow<()> {
        match &p.kind {
            PatKind::Var(i) => self.bind(*i, Binding::Class(self.graph.egg.find(class)), st, next),
            PatKind::Scalar(e) => match self.graph.facts(class).uniform {
                Some(v) => self.scalar(e, v, self.graph.type_of(class).dtype, st, next),
                None => ControlFlow::Continue(()),
            },
            PatKind::Apply(call, attrs, args) => {
                for node in &self.graph.egg[class].nodes {
                    self.node(*call, attrs, args, node, st, next)?;
                }
                ControlFlow::Continue(())
            }
            PatKind::Output(i, whole) => {
                for node in &self.graph.egg[class].nodes {
                    if node.head == Head::Output(*i as u32) {
                        self.visit(*whole, node.args[0], st, next)?;
                    }
                }
                ControlFlow::Continue(())
            }
            PatKind::Broadcast(arg, map) => self.broadcast(p, *arg, map, class, st, next),
            PatKind::Flat(call, args, scalar) => {
                self.views(*call, args, scalar.as_ref(), class, false, st, next)?;
                self.unit_view(*call, args, scalar.as_ref(), class, st, next)
            }
        }
    }

    /// A class that is no product (or sum) is one of itself and the unit.
    fn unit_view(
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

    fn bind(&self, i: usize, b: Binding, st: &mut State, next: Next<'_>) -> ControlFlow<()> {
        if let Some(known) = &st.vars[i] {
            return if *known == b { next(st) } else { ControlFlow::Continue(()) };
        }
        let var: &Input = &self.law.vars[i];
        let mark = st.env.mark();
        let fits = match &b {
            Binding::Class(id) => {
                let ty = self.graph.type_of(*id);
                // The dimensions were unified already; the name is bound for `shape(x)`.
                st.env.bind_tensor(&var.name, ty.clone())
            }
            Binding::Spread { base, shape, .. } => {
                let dtype = self.graph.type_of(*base).dtype;
                let ty = mlc_dsl::ir::Type::new(dtype, shape.clone());
                st.env.bind_tensor(&var.name, ty)
            }
        };
        if fits {
            st.vars[i] = Some(b);
            next(st)?;
            st.vars[i] = None;
        }
        st.env.rollback(mark);
        ControlFlow::Continue(())
    }

    /// A number of the e-graph against an expression: within two units in the last place.
    fn scalar(
        &self,
        e: &Expr,
        v: f64,
        dtype: DType,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
        if let ExprKind::Name(n) = &e.kind
            && is_attr(self.law, n)
            && st.env.attr(n).is_none()
        {
            let mark = st.env.mark();
            st.env.bind_attr(&Name::from(n.as_str()), Attr::float(v));
            next(st)?;
            st.env.rollback(mark);
            return ControlFlow::Continue(());
        }
        match eval(e, &st.env) {
            Ok(a) if a.as_f64().is_some_and(|w| close(v, w, dtype)) => next(st),
            Ok(_) => ControlFlow::Continue(()),
            Err(_) => {
                // Its names are bound later in the match, or never.
                st.pending.push((e.clone(), Attr::float(v)));
                next(st)?;
                st.pending.pop();
                ControlFlow::Continue(())
            }
        }
    }

    fn node(
        &self,
        call: CallId,
        attrs: &[Option<Expr>],
        args: &[PatId],
        node: &ENode,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
        let Head::Apply(c, id) = node.head else { return ControlFlow::Continue(()) };
        if c != call {
            return ControlFlow::Continue(());
        }
        let found = self.graph.attrs(id).clone();
        let env = st.env.mark();
        let pending = st.pending.len();
        let mut fits = true;
        for (e, a) in attrs.iter().zip(found.iter()) {
            let Some(e) = e else { continue };
            fits = fits && self.attr(e, a, st);
        }
        if fits {
            self.args(args, &node.args, st, next)?;
            let commutes = self.graph.library.call(call).commutative;
            if let (true, [a, b]) = (commutes, &*node.args) {
                self.args(args, &[*b, *a], st, next)?;
            }
        }
        st.pending.truncate(pending);
        st.env.rollback(env);
        ControlFlow::Continue(())
    }

    /// An attribute against an expression: a bare name is bound, as are those in a list; anything else is compared.
    fn attr(&self, e: &Expr, a: &Attr, st: &mut State) -> bool {
        if let ExprKind::Name(n) = &e.kind
            && is_attr(self.law, n)
        {
            return st.env.bind_attr(&Name::from(n.as_str()), a.clone());
        }
        match lists::fit(e, a, &mut st.env, &|n| is_attr(self.law, n)) {
            Fit::Yes => return true,
            Fit::No => return false,
            Fit::Later => {}
        }
        match eval(e, &st.env) {
            Ok(v) => same_value(&v, a),
            Err(_) => {
                st.pending.push((e.clone(), a.clone()));
                true
            }
        }
    }

    fn args(&self, pats: &[PatId], ids: &[Id], st: &mut State, next: Next<'_>) -> ControlFlow<()> {
        match (pats, ids) {
            ([p, pats @ ..], [id, ids @ ..]) => {
                self.visit(*p, *id, st, &mut |st| self.args(pats, ids, st, next))
            }
            _ => next(st),
        }
    }

    /// The operand whose implied broadcast a class is.
    fn broadcast(
        &self,
        p: &Pat,
        arg: PatId,
        map: &Expr,
        class: Id,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
        let a = self.pat(arg);
        if let PatKind::Scalar(e) = &a.kind {
            return match self.graph.facts(class).uniform {
                Some(v) => self.scalar(e, v, self.graph.type_of(class).dtype, st, next),
                None => ControlFlow::Continue(()),
            };
        }
        let (Ok(shape), Ok(own)) = (resolve_dims(&p.dims, &st.env), resolve_dims(&a.dims, &st.env))
        else {
            return ControlFlow::Continue(());
        };
        let Some(map) = eval(map, &st.env).ok().and_then(|m| m.as_i64s()) else {
            return ControlFlow::Continue(());
        };
        if map.len() != own.len() || self.graph.type_of(class).shape != shape {
            return ControlFlow::Continue(());
        }
        for b in super::spread::operands(self.graph, class, &own, &map, &shape) {
            match (&a.kind, &b) {
                (_, Binding::Class(id)) => self.visit(arg, *id, st, next)?,
                (PatKind::Var(i), b) => self.bind(*i, b.clone(), st, next)?,
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Every flattened view of a class against the operands of a sum or product.
    #[allow(clippy::too_many_arguments)]
    fn views(
        &self,
        call: CallId,
        args: &[PatId],
        scalar: Option<&Expr>,
        class: Id,
        root: bool,
        st: &mut State,
        next: Next<'_>,
    ) -> ControlFlow<()> {
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
                let open = matches!(&e.kind, ExprKind::Name(n)
                    if is_attr(self.law, n) && st.env.attr(n).is_none());
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

/// The ways to lay out two segments of unknown length: where the axis between them may lie.
fn splits(dims: &[Dim], rank: usize, env: &Env) -> Vec<Vec<(Name, usize)>> {
    let unknown: Vec<usize> = dims
        .iter()
        .enumerate()
        .filter(|(_, d)| matches!(d, Dim::Seg(s) if env.seg(s).is_none()))
        .map(|(i, _)| i)
        .collect();
    let [first, second, ..] = unknown.as_slice() else { return vec![vec![]] };
    let between = dims[*first..*second].iter().find_map(|d| match d {
        Dim::Axis(n) => Some(n.clone()),
        _ => None,
    });
    match between {
        Some(n) => (0..rank).map(|at| vec![(n.clone(), at)]).collect(),
        None => vec![],
    }
}

fn same_attr(e: &Expr, a: &Attr, env: &Env) -> bool {
    eval(e, env).is_ok_and(|v| same_value(&v, a))
}

fn same_value(v: &Attr, a: &Attr) -> bool {
    v == a
        || matches!((v, a), (Attr::Float(_), _) | (_, Attr::Float(_)))
            && v.as_f64().zip(a.as_f64()).is_some_and(|(v, a)| close(v, a, DType::F32))
}

/// True if two numbers are at most two units in the last place of `dtype` apart.
pub fn close(a: f64, b: f64, dtype: DType) -> bool {
    if a == b || a.is_nan() && b.is_nan() {
        return true;
    }
    if !dtype.is_float() || !a.is_finite() || !b.is_finite() {
        return false;
    }
    let ulp = dtype.unit_roundoff() * 2.0 * a.abs().max(b.abs());
    (a - b).abs() <= 2.0 * ulp
}
