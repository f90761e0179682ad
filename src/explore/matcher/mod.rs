//! E-matching: patterns against classes; named axes are bound along the way.
//!
//! Only reads the e-graph. Every match is passed to a callback, which may stop the search.

mod attrs;
mod flat;
pub(crate) mod flatten;
pub(crate) mod multi_pattern;
mod near_miss;
pub(crate) mod tables;

use super::graph::Graph;
use super::graph::language::{ENode, Head};
use super::saturation::search_steps::StepBudget;
use egg::Id;
use flatten::FlatViewCache;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::Expr;
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{CallId, Dim, Input, Law, Name, TypePattern};
use mlc_dsl::pattern::{Compiled, Pat, PatId, PatKind, Table};
use mlc_dsl::typing::infer::{resolve_dims, unify, unify_dims};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a variable is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// A class.
    Class(Id),
    /// The canonical broadcast of a class, which need not be in the e-graph yet.
    Spread {
        base: Id,
        /// Places of its axes.
        map: Vec<i64>,
        shape: Vec<Extent>,
    },
    /// A number repeated to a shape: what the numbers of a sum or product come to need not be in the e-graph.
    Number {
        /// The number.
        value: f64,
        dtype: DType,
        shape: Vec<Extent>,
    },
}

/// Operands left over when a root sum or product has more operands than its pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftoverOperands {
    pub call: CallId,
    /// Operands that the pattern did not use.
    pub operands: Vec<Id>,
    /// The number that is left.
    pub scalar: Option<f64>,
}

/// A (partial) match.
#[derive(Clone, Debug, Default)]
pub struct PartialMatch {
    /// Names.
    pub env: Env,
    /// Tensor variables.
    pub vars: Vec<Option<Binding>>,
    /// Leftovers of the root, where the pattern has one alone.
    pub rest: Option<LeftoverOperands>,
    /// Comparisons whose names were not bound yet.
    pub(super) pending: Vec<(Expr, Attr)>,
    /// Constants that must have the elements of tables.
    pub(super) tables: Vec<(Arc<Table>, Id)>,
}

pub(super) type Continuation<'n> = &'n mut dyn FnMut(&mut PartialMatch) -> ControlFlow<()>;

/// Matches one compiled law.
pub struct Matcher<'a> {
    /// The e-graph.
    pub graph: &'a Graph,
    pub law: &'a Law,
    /// Its patterns.
    pub compiled: &'a Compiled,
    /// Flattened views of sums and products.
    pub flat: &'a FlatViewCache,
    /// What the search may still do.
    pub(super) effort: &'a StepBudget,
}

impl Matcher<'_> {
    /// Calls `found` for every match of the pattern's root `root` in a class, with the node that was
    /// matched there.
    pub fn match_class(
        &self,
        root: PatId,
        class: Id,
        state: &PartialMatch,
        found: &mut dyn FnMut(&ENode, &PartialMatch) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.may_match(root, class) {
            return self.continue_within_budget();
        }
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
        st: &mut PartialMatch,
        found: &mut dyn FnMut(&ENode, &PartialMatch) -> ControlFlow<()>,
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
                // Of several outputs each would have leftovers of its own.
                let alone = self.compiled.roots.len() == 1;
                self.views(*call, args, scalar.as_ref(), class, alone, st, &mut |st| {
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
            PatKind::Var(_) | PatKind::Scalar(_) | PatKind::Table(_) => {}
        }
        ControlFlow::Continue(())
    }

    /// Checks what was deferred and hands the match on.
    fn finish(
        &self,
        node: &ENode,
        st: &mut PartialMatch,
        found: &mut dyn FnMut(&ENode, &PartialMatch) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mark = st.env.mark();
        if self.derive(st) && self.deferred_agree(st) && self.tables_agree(st) {
            found(node, st)?;
        }
        st.env.rollback(mark);
        ControlFlow::Continue(())
    }

    pub(super) fn pat(&self, id: PatId) -> &Pat {
        &self.compiled.pats[id.0 as usize]
    }

    /// Matches a class against a pattern.
    pub(super) fn visit(
        &self,
        p: PatId,
        class: Id,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
        if !self.may_match(p, class) {
            return self.continue_within_budget();
        }
        let p = self.pat(p);
        self.typed(p, class, st, &mut |st| self.kind(p, class, st, next))
    }

    /// Stops the search once its budget is spent.
    fn continue_within_budget(&self) -> ControlFlow<()> {
        match self.effort.is_spent() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// False if a class lacks an operator of the pattern; a filter that binds nothing. Nothing matches once the
    /// budget is spent.
    fn may_match(&self, p: PatId, class: Id) -> bool {
        self.effort.step();
        if self.effort.is_spent() {
            return false;
        }
        let nodes = || &self.graph.egg[class].nodes;
        let each = |pats: &mut dyn Iterator<Item = &PatId>, args: &[Id]| {
            pats.zip(args).all(|(&p, &a)| self.may_match(p, a))
        };
        match &self.pat(p).kind {
            PatKind::Var(_) | PatKind::Broadcast(..) | PatKind::Flat(..) => true,
            PatKind::Scalar(_) => self.graph.facts(class).uniform.is_some(),
            PatKind::Table(_) => self.graph.facts(class).is_constant,
            PatKind::Output(i, whole) => nodes()
                .iter()
                .any(|n| n.head == Head::Output(*i as u32) && self.may_match(*whole, n.args[0])),
            PatKind::Apply(call, _, pats) => {
                let commutes = self.graph.library.call(*call).commutative;
                nodes().iter().any(|n| {
                    matches!(n.head, Head::Apply(c, _) if c == *call)
                        && (each(&mut pats.iter(), &n.args)
                            || commutes && each(&mut pats.iter().rev(), &n.args))
                })
            }
        }
    }

    /// Unifies the pattern's type with the class's, in every way there is.
    fn typed(
        &self,
        p: &Pat,
        class: Id,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
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

    fn kind(
        &self,
        p: &Pat,
        class: Id,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
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
            PatKind::Table(t) => {
                st.tables.push((t.clone(), class));
                let flow = next(st);
                st.tables.pop();
                flow
            }
            PatKind::Broadcast(arg, map) => self.broadcast(p, *arg, map, class, st, next),
            PatKind::Flat(call, args, scalar) => {
                self.views(*call, args, scalar.as_ref(), class, false, st, next)?;
                self.unit_view(*call, args, scalar.as_ref(), class, st, next)
            }
        }
    }

    pub(super) fn bind(
        &self,
        i: usize,
        b: Binding,
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
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
                st.env.bind_tensor(&var.name, Type::new(dtype, shape.clone()))
            }
            Binding::Number { dtype, shape, .. } => {
                st.env.bind_tensor(&var.name, Type::new(*dtype, shape.clone()))
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

    fn node(
        &self,
        call: CallId,
        attrs: &[Option<Expr>],
        args: &[PatId],
        node: &ENode,
        st: &mut PartialMatch,
        next: Continuation<'_>,
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

    fn args(
        &self,
        pats: &[PatId],
        ids: &[Id],
        st: &mut PartialMatch,
        next: Continuation<'_>,
    ) -> ControlFlow<()> {
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
        st: &mut PartialMatch,
        next: Continuation<'_>,
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
        for b in super::analysis::broadcasts::operands(self.graph, class, &own, &map, &shape) {
            match (&a.kind, &b) {
                (_, Binding::Class(id)) => self.visit(arg, *id, st, next)?,
                (PatKind::Var(i), b) => self.bind(*i, b.clone(), st, next)?,
                _ => {}
            }
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
