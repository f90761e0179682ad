//! Flattened views of sums and products, for matching modulo associativity and commutativity.
//!
//! A view lists the operands of a nest of one operator, with all numbers merged into one. Views are enumerated
//! through the nodes of a class, up to fixed bounds; nothing is ever added to the e-graph for them.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::expr::BinaryOp;
use mlc_dsl::library::CallId;
use mlc_dsl::pattern::OPERANDS;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Views of one class at most, besides those of its nodes as they stand.
const VIEWS: usize = 8;
/// Nesting that is looked through.
pub(crate) const DEPTH: usize = 3;

/// One view of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatView {
    /// The operands, sorted; none is a number unless the operator merges none.
    pub operands: Vec<Id>,
    /// All numbers among the operands as one.
    pub scalar: Option<f64>,
}

type FlatViews = HashMap<(CallId, Id), Rc<Vec<FlatView>>>;

/// Views by operator and class, for one round of search.
pub struct FlatViewCache {
    /// Look through nothing: bits must stay, so nothing may be regrouped.
    pub exact: bool,
    /// Values that the program as read uses more than once.
    shared: HashSet<Id>,
    known: RefCell<FlatViews>,
}

impl FlatViewCache {
    /// No views yet.
    pub fn new(graph: &Graph, exact: bool) -> FlatViewCache {
        FlatViewCache { exact, shared: graph.shared_values(), known: RefCell::default() }
    }

    /// The views of a class that look through at least one node of the operator.
    pub fn views(&self, graph: &Graph, call: CallId, class: Id) -> Rc<Vec<FlatView>> {
        let class = graph.egg.find(class);
        if let Some(v) = self.known.borrow().get(&(call, class)) {
            return v.clone();
        }
        let depth = if self.exact { 0 } else { DEPTH };
        let mut views = self.enumerate(graph, call, class, &mut vec![class], depth);
        drop_loose_constants(graph, &mut views);
        let views = Rc::new(views);
        self.known.borrow_mut().insert((call, class), views.clone());
        views
    }

    fn enumerate(
        &self,
        graph: &Graph,
        call: CallId,
        class: Id,
        path: &mut Vec<Id>,
        depth: usize,
    ) -> Vec<FlatView> {
        let mut out: Vec<FlatView> = Vec::new();
        let push = |l: &FlatView, r: &FlatView, out: &mut Vec<FlatView>| {
            if let Some(v) = join(graph, call, l, r)
                && !out.contains(&v)
            {
                out.push(v);
            }
        };
        // What a node shows by itself is never left out, however many nests there are.
        for (a, b) in applications(graph, call, class) {
            push(&itself(graph, call, a), &itself(graph, call, b), &mut out);
        }
        for (a, b) in applications(graph, call, class) {
            if out.len() >= VIEWS {
                return out;
            }
            let left = self.side(graph, call, a, path, depth);
            let right = self.side(graph, call, b, path, depth);
            for (l, r) in left.iter().flat_map(|l| right.iter().map(move |r| (l, r))) {
                if out.len() >= VIEWS {
                    return out;
                }
                push(l, r, &mut out);
            }
        }
        out
    }

    /// The views of one argument: itself, and what lies behind it.
    fn side(
        &self,
        graph: &Graph,
        call: CallId,
        id: Id,
        path: &mut Vec<Id>,
        depth: usize,
    ) -> Vec<FlatView> {
        let id = graph.egg.find(id);
        let own = itself(graph, call, id);
        if own.operands.is_empty() {
            return vec![own];
        }
        let mut out = vec![own];
        if depth > 0 && !path.contains(&id) && self.opens(graph, call, id) {
            path.push(id);
            out.extend(self.enumerate(graph, call, id, path, depth - 1));
            path.pop();
        }
        out
    }

    /// True if a nest goes on behind a class. Behind a sum that the program needs anyway only a number
    /// is looked for: regrouping the rest would compute it twice, and along a chain of residual sums
    /// every subset of its addends would be a sum of its own.
    fn opens(&self, graph: &Graph, call: CallId, id: Id) -> bool {
        let number = |id: Id| graph.facts(id).uniform.is_some();
        graph.library.call(call).arithmetic() != Some(BinaryOp::Add)
            || !self.shared.contains(&id)
            || applications(graph, call, id).any(|(a, b)| number(a) || number(b))
    }
}

/// The view of an argument that looks through nothing: a number, or the class.
fn itself(graph: &Graph, call: CallId, id: Id) -> FlatView {
    let merges = graph.library.call(call).arithmetic().is_some();
    match graph.facts(id).uniform.filter(|_| merges) {
        Some(v) => FlatView { operands: vec![], scalar: Some(v) },
        None => FlatView { operands: vec![graph.egg.find(id)], scalar: None },
    }
}

/// Drops views of which another has the same operands with fewer constants among them: constants that
/// were merged once need not be matched apart, in every grouping, each rounded in its own way.
fn drop_loose_constants(graph: &Graph, views: &mut Vec<FlatView>) {
    let constant = |id: &&Id| graph.facts(**id).is_constant;
    let rest =
        |v: &FlatView| v.operands.iter().filter(|id| !constant(id)).copied().collect::<Vec<_>>();
    let constants: Vec<usize> =
        views.iter().map(|v| v.operands.iter().filter(constant).count()).collect();
    let rests: Vec<Vec<Id>> = views.iter().map(rest).collect();
    let loose =
        |i: usize| (0..rests.len()).any(|j| constants[j] < constants[i] && rests[j] == rests[i]);
    let keep: Vec<bool> = (0..views.len()).map(|i| !loose(i)).collect();
    let mut keep = keep.into_iter();
    views.retain(|_| keep.next().unwrap_or(true));
}

/// The arguments of a binary operator's nodes in a class.
fn applications(graph: &Graph, call: CallId, class: Id) -> impl Iterator<Item = (Id, Id)> {
    let of_call = move |n: &&ENode| matches!(n.head, Head::Apply(c, _) if c == call);
    graph.egg[class].nodes.iter().filter(of_call).filter_map(|n| match &*n.args {
        [a, b] => Some((*a, *b)),
        _ => None,
    })
}

fn join(graph: &Graph, call: CallId, a: &FlatView, b: &FlatView) -> Option<FlatView> {
    if a.operands.len() + b.operands.len() > OPERANDS {
        return None;
    }
    let mut operands = a.operands.clone();
    operands.extend(&b.operands);
    operands.sort();
    let scalar = match (a.scalar, b.scalar) {
        (Some(x), Some(y)) => Some(merge(graph, call, x, y)),
        (x, y) => x.or(y),
    };
    Some(FlatView { operands, scalar })
}

/// Two numbers under an operator that merges them.
fn merge(graph: &Graph, call: CallId, a: f64, b: f64) -> f64 {
    match graph.library.call(call).arithmetic() {
        Some(BinaryOp::Add) => a + b,
        _ => a * b,
    }
}
