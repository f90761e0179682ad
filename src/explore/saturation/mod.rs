//! Equality saturation in rounds: search all laws, apply the matches, rebuild; under hard limits.

mod applicable_laws;
pub(crate) mod apply;
mod incremental;
mod operand_multisets;
pub(crate) mod search_steps;
pub mod target_laws;
mod view_chains;

use super::Limits;
use super::analysis::scalar_factors::without_scalar_factor;
use super::graph::Graph;
use super::graph::language::{ENode, Head};
use super::matcher::flatten::FlatViewCache;
use super::matcher::multi_pattern::MultiPatternMatches;
use super::matcher::{Binding, Matcher, PartialMatch};
use super::proof::log::LogId;
use apply::{MatchedNode, Outcome, Refusal, apply, apply_family, contradicted};
use egg::Id;
use incremental::{ChangeTracker, pattern_depth};
use mlc_dsl::expr::Expr;
use mlc_dsl::library::{CallId, ErrorClass, Law, Library};
use mlc_dsl::pattern::compile;
use mlc_dsl::pattern::{Compiled, PatId, PatKind};
use search_steps::StepBudget;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Matches of one law in one round before it has to sit out the next, or as many as the program has nodes; doubles every
/// time.
const MATCHES: usize = 2_000;

/// Steps of one law in one round before it has to sit out the next; doubles every time.
const STEPS: u64 = 1 << 20;

/// Places kept of each clause's refusals.
const REFUSED: usize = 16;

/// Why exploration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    /// Nothing more to find.
    Saturated,
    /// The node limit was reached.
    Nodes,
    /// The round limit was reached.
    Rounds,
    /// The limit of effort was reached.
    Effort,
    /// The time limit was reached.
    Time,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stop::Saturated => "saturated",
            Stop::Nodes => "node limit",
            Stop::Rounds => "round limit",
            Stop::Effort => "effort limit",
            Stop::Time => "time limit",
        })
    }
}

/// Statistics of one law.
#[derive(Clone, Debug, Default)]
pub struct LawProfile {
    /// Rounds in which it was searched.
    pub searches: usize,
    /// Matches found, those of earlier rounds again included.
    pub matches: usize,
    /// Matches that added an equation.
    pub applications: usize,
    /// Refused matches by clause.
    pub refusals: BTreeMap<String, usize>,
    /// Terms at which each clause refused a match, a few.
    pub refused_at: BTreeMap<String, Vec<LogId>>,
    /// Matches whose right side does not type, with one reason.
    pub ill_typed: (usize, String),
    /// Time searching and applying.
    pub time: Duration,
}

impl LawProfile {
    /// Adds what another pattern of the law did.
    fn absorb(&mut self, other: LawProfile) {
        self.searches = self.searches.max(other.searches);
        self.matches += other.matches;
        self.applications += other.applications;
        for (clause, n) in other.refusals {
            *self.refusals.entry(clause).or_default() += n;
        }
        for (clause, at) in other.refused_at {
            self.refused_at.entry(clause).or_default().extend(at);
        }
        self.ill_typed.0 += other.ill_typed.0;
        if self.ill_typed.1.is_empty() {
            self.ill_typed.1 = other.ill_typed.1;
        }
        self.time += other.time;
    }
}

/// The state of one pattern of a law.
struct PatternRunner {
    compiled: Arc<Compiled>,
    profile: LawProfile,
    banned_until: u32,
    bans: u32,
    applied: HashSet<u64>,
    /// Levels below its class that each root looks at.
    depths: Vec<usize>,
    /// Operators without which nothing matches.
    needs: Vec<CallId>,
    /// The last round in which every match was found; classes that have not changed since have no new ones.
    complete: u32,
    /// Matches may become new without a change: families grow, and what is known of signs does.
    restless: bool,
}

impl PatternRunner {
    fn new(library: &Library, compiled: Arc<Compiled>) -> PatternRunner {
        let law = &library.laws[compiled.law as usize];
        PatternRunner {
            depths: compiled.roots.iter().map(|&r| pattern_depth(&compiled, r)).collect(),
            needs: compiled.operators(),
            restless: law.left.iter().any(|s| s.each)
                || law.conditions.iter().any(Expr::is_learned),
            compiled,
            profile: LawProfile::default(),
            banned_until: 0,
            bans: 0,
            applied: HashSet::new(),
            complete: 0,
        }
    }
}

/// What saturation yields besides the graph.
pub struct Saturation {
    /// Profiles in the order of the laws that were given.
    pub profiles: Vec<(u32, LawProfile)>,
    /// Why it ended.
    pub stop: Stop,
    /// Nodes after each round.
    pub sizes: Vec<usize>,
    /// Classes that are profitable only together: the slices that replace each family.
    pub bundles: Vec<Vec<Id>>,
}

/// A match that waits to be applied.
pub(super) struct PendingMatch {
    pub(super) sites: Vec<(ENode, Id)>,
    pub(super) states: Vec<PartialMatch>,
    pub(super) family: bool,
}

/// Runs the laws of these indices until nothing is new or a limit is hit.
pub fn saturate(graph: &mut Graph, laws: &[u32], limits: &Limits) -> Saturation {
    let library = graph.library.clone();
    let start = Instant::now();
    // Where no law may round differently, none may regroup either.
    let exact = laws.iter().all(|&i| library.laws[i as usize].error == ErrorClass::Exact);
    let (laws, idle) = applicable_laws::split_applicable(graph, laws);
    let mut runners: Vec<PatternRunner> = compile(&library, &laws)
        .into_iter()
        .map(|compiled| PatternRunner::new(&library, compiled))
        .collect();
    // Normalising laws go first: they give the others their one spelling.
    runners.sort_by_key(|r| !r.compiled.normal);
    let levels = runners.iter().flat_map(|r| r.depths.iter().copied()).max().unwrap_or(0);
    let mut changes = ChangeTracker::default();
    let mut families = MultiPatternMatches::default();
    let mut sizes = Vec::new();
    let mut stop = Stop::Rounds;
    let mut left = limits.steps(graph.node_count());
    let matches = MATCHES.max(graph.node_count());
    graph.egg.rebuild();
    for round in 1..=limits.rounds {
        graph.round = round;
        let known = graph.log.steps().len();
        let spent = start.elapsed().as_secs_f64() / limits.time.as_secs_f64().max(1e-9);
        let done = spent.max(f64::from(round - 1) / f64::from(limits.rounds));
        crate::progress::report("exploring", Some(done));
        let reachable: Vec<Id> = graph.reachable().into_iter().collect();
        changes.update(graph, &reachable, levels);
        graph.without_scalar_factor = without_scalar_factor(graph, &reachable);
        let index = index(graph, &reachable, &changes);
        let mut waiting: Vec<(usize, Vec<PendingMatch>)> = Vec::new();
        let banned = runners.iter().any(|r| r.banned_until >= round);
        let budget = RoundBudget { steps: left, matches, start, limits };
        let searched = search_all(graph, &runners, &index, exact, &budget);
        let mut over_now = false;
        for s in searched {
            let r = &mut runners[s.runner];
            left = left.saturating_sub(s.steps);
            if s.over {
                r.bans += 1;
                r.banned_until = round + (1 << r.bans);
                over_now = true;
            } else {
                r.complete = round;
            }
            r.profile.searches += 1;
            r.profile.matches += s.found.len();
            r.profile.time += s.time;
            waiting.push((s.runner, s.found));
        }
        let banned = banned || over_now;
        'apply: for (i, found) in waiting {
            let r = &mut runners[i];
            let law = &library.laws[r.compiled.law as usize];
            let began = Instant::now();
            let found = if law.left.iter().any(|s| s.each) {
                families.group(graph, law, r.compiled.law, found)
            } else {
                found
            };
            for f in found {
                run_match(graph, law, r, &f, &mut families);
                if graph.is_full() || start.elapsed() > limits.time {
                    r.profile.time += began.elapsed();
                    break 'apply;
                }
            }
            r.profile.time += began.elapsed();
        }
        graph.egg.rebuild();
        if view_chains::join(graph, &reachable) {
            graph.egg.rebuild();
        }
        if operand_multisets::join(graph, &reachable, exact) {
            graph.egg.rebuild();
        }
        sizes.push(graph.egg.total_number_of_nodes());
        if graph.is_full() {
            stop = Stop::Nodes;
            break;
        }
        if start.elapsed() > limits.time {
            stop = Stop::Time;
            break;
        }
        if left == 0 {
            stop = Stop::Effort;
            break;
        }
        // What a right side's constants fold to may join classes though the law itself says nothing new.
        let news = graph.log.steps().len() > known;
        if !news && !banned {
            stop = Stop::Saturated;
            break;
        }
    }
    Saturation { profiles: profiles(runners, idle), stop, sizes, bundles: families.bundles }
}

/// What one round of search may spend.
struct RoundBudget<'l> {
    steps: u64,
    /// Matches of each pattern before bans double it.
    matches: usize,
    /// When saturation began.
    start: Instant,
    limits: &'l Limits,
}

/// What the search of one pattern found.
struct PatternSearch {
    runner: usize,
    found: Vec<PendingMatch>,
    over: bool,
    steps: u64,
    time: Duration,
}

/// Searches every pattern that is not banned, on several threads; the result is in the patterns' order,
/// whatever their number.
fn search_all(
    graph: &Graph,
    runners: &[PatternRunner],
    index: &ClassIndex<'_>,
    exact: bool,
    budget: &RoundBudget<'_>,
) -> Vec<PatternSearch> {
    let RoundBudget { steps: left, matches, start, limits } = *budget;
    let next = AtomicUsize::new(0);
    let work = || {
        let flat = FlatViewCache::new(graph, exact);
        let mut out = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(r) = runners.get(i) else { return out };
            if r.banned_until >= graph.round || start.elapsed() > limits.time {
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

/// One profile per law, in the laws' order; a law may have several patterns, and `idle` ones were not searched.
fn profiles(runners: Vec<PatternRunner>, idle: Vec<u32>) -> Vec<(u32, LawProfile)> {
    let mut out: BTreeMap<u32, LawProfile> =
        idle.into_iter().map(|i| (i, LawProfile::default())).collect();
    for r in runners {
        match out.entry(r.compiled.law) {
            Entry::Vacant(e) => drop(e.insert(r.profile)),
            Entry::Occupied(mut e) => e.get_mut().absorb(r.profile),
        }
    }
    out.into_iter().collect()
}

fn run_match(
    graph: &mut Graph,
    law: &Law,
    r: &mut PatternRunner,
    f: &PendingMatch,
    families: &mut MultiPatternMatches,
) {
    let sites: Vec<MatchedNode> = f
        .sites
        .iter()
        .map(|(n, c)| MatchedNode { node: graph.log_node(n), class: graph.egg.find(*c) })
        .collect();
    let index = r.compiled.law;
    let outcome = if f.family {
        let (outcome, made) = apply_family(graph, law, index, &sites, &f.states);
        families.note(graph, index, &made);
        outcome
    } else {
        let print = fingerprint(graph, f);
        let outcome = apply(graph, law, index, &sites, &f.states[0]);
        // What is not known to be above zero or bounded yet may be so once more is known of it.
        if !matches!(&outcome, Outcome::Refused(refusal) if refusal.learned) {
            r.applied.insert(print);
        }
        outcome
    };
    match outcome {
        Outcome::United => r.profile.applications += 1,
        Outcome::Known | Outcome::Full => {}
        Outcome::Refused(Refusal { clause, .. }) => {
            let at = r.profile.refused_at.entry(clause.clone()).or_default();
            if let Some(site) = sites.first().filter(|_| at.len() < REFUSED) {
                at.push(site.node);
            }
            *r.profile.refusals.entry(clause).or_default() += 1;
        }
        Outcome::IllTyped(why) => {
            r.profile.ill_typed.0 += 1;
            if r.profile.ill_typed.1.is_empty() {
                r.profile.ill_typed.1 = why;
            }
        }
    }
}

/// Where a pattern may match.
struct ClassIndex<'c> {
    changes: &'c ChangeTracker,
    /// Classes by the operators of their nodes, in id order.
    by_call: HashMap<Option<CallId>, Vec<Id>>,
    /// Classes by an operator and what it is applied to, in id order.
    users: HashMap<(CallId, Id), Vec<Id>>,
}

/// Classes that the program may be computed by. What a refused match left behind is not among them.
fn index<'c>(graph: &Graph, reachable: &[Id], changes: &'c ChangeTracker) -> ClassIndex<'c> {
    let mut by_call: HashMap<Option<CallId>, Vec<Id>> = HashMap::new();
    let mut users: HashMap<(CallId, Id), Vec<Id>> = HashMap::new();
    for &id in reachable {
        let mut calls: Vec<Option<CallId>> = Vec::new();
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
        }
    }
    ClassIndex { changes, by_call, users }
}

fn fingerprint(graph: &Graph, f: &PendingMatch) -> u64 {
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
        self.index.by_call.get(&call).map_or(&[], Vec::as_slice)
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
                if !last && contradicted(self.graph, self.law, st) {
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
