//! Search: the new matches of every pattern in one round, on several threads. Reads the e-graph, and changes nothing.

use super::apply::contradicted;
use super::search_steps::StepBudget;
use super::{ChangeTracker, PatternRunner, PendingMatch, Turn};
use crate::Limits;
use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use crate::matcher::flatten::FlatViewCache;
use crate::matcher::{Binding, Matcher, PartialMatch};
use egg::Id;
use mlc_dsl::library::{CallId, Law, OpClass};
use mlc_dsl::pattern::{PatId, PatKind};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Steps of one law in one round before it has to sit out the next; doubles every time.
const STEPS: u64 = 1 << 20;

/// What one round of search may spend.
pub(super) struct RoundBudget<'l> {
    pub(super) turn: Turn,
    pub(super) steps: u64,
    /// Matches of each pattern before bans double it.
    pub(super) matches: usize,
    /// When saturation began.
    pub(super) start: Instant,
    pub(super) limits: &'l Limits,
}

/// What the search of one pattern found.
pub(super) struct PatternSearch {
    pub(super) runner: usize,
    pub(super) found: Vec<PendingMatch>,
    pub(super) over: bool,
    pub(super) steps: u64,
    pub(super) time: Duration,
}

/// Searches every pattern that is not banned, on several threads; the result is in the patterns' order,
/// whatever their number.
pub(super) fn search_all(
    graph: &Graph,
    runners: &[PatternRunner],
    index: &ClassIndex<'_>,
    exact: bool,
    budget: &RoundBudget<'_>,
) -> Vec<PatternSearch> {
    let RoundBudget { turn, steps: left, matches, start, limits } = *budget;
    let next = AtomicUsize::new(0);
    let work = || {
        let flat = FlatViewCache::new(graph, exact);
        let mut out = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(r) = runners.get(i) else { return out };
            let waits = turn == Turn::Layouts && !r.is_layout || r.banned_until >= graph.round;
            if waits || start.elapsed() > limits.time {
                continue;
            }
            if !r.needs.iter().all(|c| index.by_call.contains_key(&Some(*c))) {
                let (found, time) = (Vec::new(), Duration::ZERO);
                out.push(PatternSearch { runner: i, found, over: false, steps: 0, time });
                continue;
            }
            let began = Instant::now();
            let law = &graph.library.laws[r.compiled.law as usize];
            let allowed = matches << r.bans;
            let effort = StepBudget::new(left.min(STEPS << r.bans), start, limits.time);
            let search = Search { graph, law, runner: r, index, flat: &flat, effort: &effort };
            let (found, over) = search.run(allowed);
            let steps = effort.steps();
            out.push(PatternSearch { runner: i, found, over, steps, time: began.elapsed() });
        }
    };
    let mut out = run_on_threads(limits.threads, work);
    out.sort_by_key(|s| s.runner);
    out
}

/// Runs a task that shares its work on this many threads, and collects their results.
fn run_on_threads<T: Send>(threads: usize, work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    if threads < 2 {
        return work();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut out = work();
        for o in others {
            match o.join() {
                Ok(more) => out.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        out
    })
}

/// Where a pattern may match.
pub(super) struct ClassIndex<'c> {
    changes: &'c ChangeTracker,
    /// Classes by the operators of their nodes, in id order.
    by_call: HashMap<Option<CallId>, Vec<Id>>,
    /// The same without arithmetic of constants.
    unfolded: HashMap<Option<CallId>, Vec<Id>>,
    /// Classes by an operator and what it is applied to, in id order.
    users: HashMap<(CallId, Id), Vec<Id>>,
}

/// Classes that the program may be computed by. What a refused match left behind is not among them. Arithmetic of constants is folded however it
/// is spelled: laws that round otherwise do not begin there. Those of the normal form, and exact ones, do, and give others what they match inside;
/// so do those that ask something of all elements, which constants alone can answer.
pub(super) fn index<'c>(
    graph: &Graph,
    reachable: &[Id],
    changes: &'c ChangeTracker,
) -> ClassIndex<'c> {
    let mut by_call: HashMap<Option<CallId>, Vec<Id>> = HashMap::new();
    let mut users: HashMap<(CallId, Id), Vec<Id>> = HashMap::new();
    let mut unfolded: HashMap<Option<CallId>, Vec<Id>> = HashMap::new();
    for &id in reachable {
        let mut calls: Vec<Option<CallId>> = Vec::new();
        let folded = graph.facts(id).is_foldable;
        for n in &graph.egg[id].nodes {
            let Head::Apply(c, _) = n.head else {
                calls.push(None);
                continue;
            };
            calls.push(Some(c));
            for &a in &n.args {
                let of = users.entry((c, graph.egg.find(a))).or_default();
                if of.last() != Some(&id) {
                    of.push(id);
                }
            }
        }
        calls.sort();
        calls.dedup();
        for c in calls {
            by_call.entry(c).or_default().push(id);
            let is_arithmetic = |c| graph.library.call(c).class == OpClass::Pointwise;
            if !folded || !c.is_some_and(is_arithmetic) {
                unfolded.entry(c).or_default().push(id);
            }
        }
    }
    ClassIndex { changes, by_call, unfolded, users }
}

pub(super) fn fingerprint(graph: &Graph, f: &PendingMatch) -> u64 {
    let mut h = DefaultHasher::new();
    for (n, c) in &f.sites {
        graph.egg.find(*c).hash(&mut h);
        n.head.hash(&mut h);
    }
    for st in &f.states {
        for b in &st.vars {
            match b {
                Some(Binding::Class(id)) => graph.egg.find(*id).hash(&mut h),
                Some(Binding::Spread { base, map, .. }) => {
                    graph.egg.find(*base).hash(&mut h);
                    map.hash(&mut h);
                }
                Some(Binding::Number { value, .. }) => value.to_bits().hash(&mut h),
                None => 0u8.hash(&mut h),
            }
        }
        for (n, a) in st.env.attrs() {
            n.hash(&mut h);
            a.hash(&mut h);
        }
        if let Some(rest) = &st.rest {
            rest.operands.hash(&mut h);
            rest.scalar.map(f64::to_bits).hash(&mut h);
        }
    }
    h.finish()
}

/// What a complete match is handed to.
type Callback<'c> = &'c mut dyn FnMut(&[(ENode, Id)], &PartialMatch) -> ControlFlow<()>;

/// One law's search in one round.
struct Search<'a> {
    graph: &'a Graph,
    law: &'a Law,
    runner: &'a PatternRunner,
    index: &'a ClassIndex<'a>,
    flat: &'a FlatViewCache,
    effort: &'a StepBudget,
}

impl Search<'_> {
    /// New matches, at most `allowed`, and whether there may be more.
    fn run(&self, allowed: usize) -> (Vec<PendingMatch>, bool) {
        let family = self.law.left.iter().any(|s| s.each);
        let mut out: Vec<PendingMatch> = Vec::new();
        let mut seen: HashSet<u64> = HashSet::new();
        let mut over = false;
        let _ = self.root(0, false, &mut Vec::new(), &PartialMatch::default(), &mut |sites, st| {
            let found = PendingMatch { sites: sites.to_vec(), states: vec![st.clone()], family };
            let print = fingerprint(self.graph, &found);
            if !family && self.runner.applied.contains(&print) || !seen.insert(print) {
                return ControlFlow::Continue(());
            }
            if out.len() >= allowed {
                over = true;
                return ControlFlow::Break(());
            }
            out.push(found);
            ControlFlow::Continue(())
        });
        (out, over || self.effort.is_spent())
    }

    /// True if a root may match a class in a way that it did not when the law was searched last.
    fn changed(&self, i: usize, class: Id) -> bool {
        let r = self.runner;
        r.restless || self.index.changes.latest(class, r.depths[i]) > r.complete
    }

    /// The classes where a root may match, given what the roots before it are bound to.
    fn places(&self, root: PatId, st: &PartialMatch) -> &[Id] {
        let pat = |p: PatId| &self.runner.compiled.pats[p.0 as usize].kind;
        let call = match pat(root) {
            &PatKind::Apply(c, _, ref args) => {
                let bound = args.iter().find_map(|&a| match pat(a) {
                    &PatKind::Var(v) => match st.vars.get(v) {
                        Some(Some(Binding::Class(id))) => Some(self.graph.egg.find(*id)),
                        _ => None,
                    },
                    _ => None,
                });
                // An operand that is known already leads to its users.
                if let Some(id) = bound {
                    return self.index.users.get(&(c, id)).map_or(&[], Vec::as_slice);
                }
                Some(c)
            }
            &PatKind::Flat(c, ..) => Some(c),
            PatKind::Broadcast(..) => self.graph.structural.broadcast,
            PatKind::Output(..) | PatKind::Var(_) | PatKind::Scalar(_) | PatKind::Table(_) => None,
        };
        let index = self.index;
        let classes = if self.runner.of_constants { &index.by_call } else { &index.unfolded };
        classes.get(&call).map_or(&[], Vec::as_slice)
    }

    /// Matches root `i` and those after it; at least one of all must have changed.
    fn root(
        &self,
        i: usize,
        changed: bool,
        sites: &mut Vec<(ENode, Id)>,
        st: &PartialMatch,
        found: Callback<'_>,
    ) -> ControlFlow<()> {
        let Some(&root) = self.runner.compiled.roots.get(i) else { return found(sites, st) };
        let matcher = Matcher {
            graph: self.graph,
            law: self.law,
            compiled: &self.runner.compiled,
            flat: self.flat,
            effort: self.effort,
        };
        for &class in self.places(root, st) {
            let changed = changed || self.changed(i, class);
            let last = i + 1 == self.runner.compiled.roots.len();
            if last && !changed || sites.iter().any(|(_, c)| *c == class) {
                continue;
            }
            matcher.match_class(root, class, st, &mut |node, st| {
                let vain = self.runner.is_layout && is_itself(self.graph, node, class);
                if vain || !last && contradicted(self.graph, self.law, st) {
                    return ControlFlow::Continue(());
                }
                sites.push((node.clone(), class));
                let flow = self.root(i + 1, changed, sites, st, found);
                sites.pop();
                flow
            })?;
        }
        ControlFlow::Continue(())
    }
}

/// True for an operator that leaves a class as it is, as adding zero does. Nothing is computed by it, and laws of layouts would move changes of
/// layouts past it again and again.
fn is_itself(graph: &Graph, node: &ENode, class: Id) -> bool {
    let Head::Apply(call, _) = node.head else { return false };
    let own = |id: &Id| graph.egg.find(*id) == class;
    let (own, others): (Vec<Id>, Vec<Id>) = node.args.iter().partition(|id| own(id));
    graph.library.call(call).class == OpClass::Pointwise
        && !own.is_empty()
        && others.iter().all(|&id| graph.facts(id).is_constant)
}
