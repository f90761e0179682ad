//! Equality saturation in rounds: search all laws, apply the matches, rebuild; under hard limits.

mod applicable_laws;
pub(crate) mod apply;
mod incremental;
mod operand_multisets;
mod pattern_search;
pub(crate) mod search_steps;
mod subsumption;
pub mod target_laws;
mod view_chains;

use super::Limits;
use super::analysis::scalar_factors::without_scalar_factor;
use super::graph::Graph;
use super::graph::language::ENode;
use super::matcher::PartialMatch;
use super::matcher::multi_pattern::MultiPatternMatches;
use super::proof::log::LogId;
use apply::{MatchedNode, Outcome, Refusal, apply, apply_family};
use egg::Id;
use incremental::{ChangeTracker, pattern_depth};
use mlc_dsl::expr::{Expr, ExprKind};
use mlc_dsl::library::{CallId, ErrorClass, Law, Library, Name};
use mlc_dsl::pattern::{Compiled, compile, is_layout};
use pattern_search::{RoundBudget, fingerprint, index, search_all};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Matches of one law in one round before it has to sit out the next, or as many as the program has nodes; doubles every
/// time.
const MATCHES: usize = 2_000;

/// Rounds of layouts between two rounds of all laws, more than a chain of operators needs. What goes on longer waits for other laws.
const LAYOUT_ROUNDS: u32 = 24;

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
    /// What was to be found equal is equal.
    Goal,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stop::Saturated => "saturated",
            Stop::Nodes => "node limit",
            Stop::Rounds => "round limit",
            Stop::Effort => "effort limit",
            Stop::Time => "time limit",
            Stop::Goal => "goal reached",
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
    /// Adds what the law did in another program.
    pub fn add(&mut self, other: &LawProfile) {
        let searches = self.searches + other.searches;
        // Its terms are those of the other program.
        self.absorb(LawProfile { refused_at: BTreeMap::new(), ..other.clone() });
        self.searches = searches;
    }

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
    /// Its law is one of layouts.
    is_layout: bool,
    /// It begins at arithmetic of constants, too.
    of_constants: bool,
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
            is_layout: is_layout(law),
            of_constants: compiled.normal || law.error == ErrorClass::Exact || asks_of_all(law),
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

/// True of a law that asks something of the elements of every variable.
fn asks_of_all(law: &Law) -> bool {
    let asked = |name: &Name| {
        let of_it = |e: &Expr| match &e.kind {
            ExprKind::Test(_, args) => args.iter().any(|a| a.as_name() == Some(name)),
            _ => false,
        };
        law.conditions.iter().any(|c| c.any(&mut |e| of_it(e)))
    };
    law.vars.iter().all(|v| asked(&v.name))
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

/// Runs the laws of these indices until nothing is new, a limit is hit, or the classes of each pair are one.
pub fn saturate(graph: &mut Graph, laws: &[u32], limits: &Limits, goal: &[(Id, Id)]) -> Saturation {
    let mut s = Saturator::new(graph, laws, limits);
    let (mut rounds, mut layouts, mut turn) = (0, 0, s.first_turn());
    let stop = loop {
        if s.has_reached(goal) {
            break Stop::Goal;
        }
        if turn == Turn::All && rounds == limits.rounds {
            break Stop::Rounds;
        }
        rounds += u32::from(turn == Turn::All);
        let round = s.round(turn, rounds);
        if let Some(stop) = round.stop {
            break stop;
        }
        turn = match turn {
            Turn::Layouts if round.news && layouts < LAYOUT_ROUNDS => {
                layouts += 1;
                Turn::Layouts
            }
            Turn::Layouts => Turn::All,
            Turn::All if !round.news && !round.banned => break Stop::Saturated,
            Turn::All => {
                layouts = 0;
                s.first_turn()
            }
        };
    };
    let profiles = profiles(s.runners, s.idle);
    Saturation { profiles, stop, sizes: s.sizes, bundles: s.families.bundles }
}

/// Whose turn a round is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Laws of layouts alone. A layout pays only if all operators between two that want it take it, however many these are: between two
    /// rounds of all laws those of layouts go on until they find nothing. What they add is a fixed multiple of what is there.
    Layouts,
    /// All laws.
    All,
}

/// What a round did.
struct Round {
    news: bool,
    /// A law sat it out, or has to sit out the next.
    banned: bool,
    stop: Option<Stop>,
}

/// Saturation as far as it is.
struct Saturator<'a> {
    graph: &'a mut Graph,
    library: Arc<Library>,
    limits: &'a Limits,
    /// Where no law may round differently, none may regroup either.
    exact: bool,
    runners: Vec<PatternRunner>,
    /// Laws that cannot match.
    idle: Vec<u32>,
    changes: ChangeTracker,
    families: MultiPatternMatches,
    sizes: Vec<usize>,
    start: Instant,
    /// Steps that are left.
    left: u64,
    /// Matches of each pattern before bans double it.
    matches: usize,
    /// Levels that the deepest pattern looks through.
    levels: usize,
}

impl<'a> Saturator<'a> {
    fn new(graph: &'a mut Graph, laws: &[u32], limits: &'a Limits) -> Saturator<'a> {
        let library = graph.library.clone();
        let exact = laws.iter().all(|&i| library.laws[i as usize].error == ErrorClass::Exact);
        let (laws, idle) = applicable_laws::split_applicable(graph, laws);
        let mut runners: Vec<PatternRunner> = compile(&library, &laws)
            .into_iter()
            .map(|compiled| PatternRunner::new(&library, compiled))
            .collect();
        // Normalising laws go first: they give the others their one spelling.
        runners.sort_by_key(|r| !r.compiled.normal);
        graph.egg.rebuild();
        Saturator {
            levels: runners.iter().flat_map(|r| r.depths.iter().copied()).max().unwrap_or(0),
            left: limits.steps(graph.node_count()),
            matches: MATCHES.max(graph.node_count()),
            changes: ChangeTracker::default(),
            families: MultiPatternMatches::default(),
            sizes: Vec::new(),
            start: Instant::now(),
            graph,
            library,
            limits,
            exact,
            runners,
            idle,
        }
    }

    /// Whose turn it is before a round of all laws.
    fn first_turn(&self) -> Turn {
        match self.runners.iter().any(|r| r.is_layout) {
            true => Turn::Layouts,
            false => Turn::All,
        }
    }

    /// Searches the laws whose turn it is, applies what they match, and rebuilds.
    fn round(&mut self, turn: Turn, rounds: u32) -> Round {
        self.graph.round += 1;
        let known = self.graph.log.steps().len();
        let spent = self.start.elapsed().as_secs_f64() / self.limits.time.as_secs_f64().max(1e-9);
        let done = f64::from(rounds.saturating_sub(1)) / f64::from(self.limits.rounds);
        crate::progress::report("exploring", Some(spent.max(done)));
        let reachable: Vec<Id> = self.graph.reachable().into_iter().collect();
        let (waiting, banned) = self.search(turn, &reachable);
        self.apply(waiting);
        self.graph.egg.rebuild();
        if view_chains::join(self.graph, &reachable) {
            self.graph.egg.rebuild();
        }
        if operand_multisets::join(self.graph, &reachable, self.exact) {
            self.graph.egg.rebuild();
        }
        subsumption::subsume(self.graph, &reachable);
        self.sizes.push(self.graph.egg.total_number_of_nodes());
        // What a right side's constants fold to may join classes though the law itself says nothing new.
        let news = self.graph.log.steps().len() > known;
        Round { news, banned, stop: self.stop() }
    }

    /// Whether there is a goal, and it is reached.
    fn has_reached(&self, goal: &[(Id, Id)]) -> bool {
        let is_one = |&(a, b): &(Id, Id)| self.graph.egg.find(a) == self.graph.egg.find(b);
        !goal.is_empty() && goal.iter().all(is_one)
    }

    /// The limit that is hit.
    fn stop(&self) -> Option<Stop> {
        if self.graph.is_full() {
            return Some(Stop::Nodes);
        }
        if self.start.elapsed() > self.limits.time {
            return Some(Stop::Time);
        }
        (self.left == 0).then_some(Stop::Effort)
    }

    /// The matches of every pattern whose turn it is, and whether one sits out this round or the next.
    fn search(&mut self, turn: Turn, reachable: &[Id]) -> (Vec<(usize, Vec<PendingMatch>)>, bool) {
        let Saturator { graph, runners, changes, limits, .. } = self;
        changes.update(graph, reachable, self.levels);
        graph.without_scalar_factor = without_scalar_factor(graph, reachable);
        graph.taking_up_numbers = OnceLock::new();
        let round = graph.round;
        let index = index(graph, reachable, changes);
        let mut banned = runners.iter().any(|r| r.banned_until >= round);
        let (start, matches) = (self.start, self.matches);
        let budget = RoundBudget { turn, steps: self.left, matches, start, limits };
        let searched = search_all(graph, runners, &index, self.exact, &budget);
        let mut waiting = Vec::new();
        for s in searched {
            let r = &mut runners[s.runner];
            self.left = self.left.saturating_sub(s.steps);
            if s.over {
                r.bans += 1;
                r.banned_until = round + (1 << r.bans);
                banned = true;
            } else {
                r.complete = round;
            }
            r.profile.searches += 1;
            r.profile.matches += s.found.len();
            r.profile.time += s.time;
            waiting.push((s.runner, s.found));
        }
        (waiting, banned)
    }

    /// Applies matches until a limit is hit.
    fn apply(&mut self, waiting: Vec<(usize, Vec<PendingMatch>)>) {
        let Saturator { graph, runners, families, .. } = self;
        for (i, found) in waiting {
            let r = &mut runners[i];
            let law = &self.library.laws[r.compiled.law as usize];
            let began = Instant::now();
            let found = if law.left.iter().any(|s| s.each) {
                families.group(graph, law, r.compiled.law, found)
            } else {
                found
            };
            for f in found {
                run_match(graph, law, r, &f, families);
                if graph.is_full() || self.start.elapsed() > self.limits.time {
                    r.profile.time += began.elapsed();
                    return;
                }
            }
            r.profile.time += began.elapsed();
        }
    }
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
