//! Why two nodes of a model are not computed by one kernel.
//!
//! Answers from the plan, the target's text and the search that led to the plan; an estimate is given only for a kernel that the
//! target may have.

use super::apart::Apart;
use super::html::laws::{Joined, joined};
use super::html::prices::Kernels;
use super::regions::{KernelLine, Region, lines};
use super::text::{names, seconds};
use super::whynot::{self, LawStory, NearMiss};
use super::{noted, priced, told};
use crate::error::Error;
use crate::pipeline::Optimized;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Options;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::plan::{Kernel, Plan};
use mlc_extract::cost::target::VIEW;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

/// Reasons that are told of a path of several kernels, and laws that nearly fused.
const LINKS: usize = 3;
const LAWS: usize = 3;

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct NotFused {
    /// The nodes, the one that the other reads first.
    pub nodes: [String; 2],
    /// What the plan is for.
    pub target: String,
    /// One kernel computes both.
    pub fused: bool,
    /// For each node the kernels that compute its value, or what stands in its place.
    pub kernels: [Vec<KernelLine>; 2],
    /// Why they are apart, or how they came together.
    pub reasons: Vec<String>,
    /// Estimated seconds in kernels of their own and in one, where one kernel may compute both.
    pub estimate: Option<(f64, f64)>,
    /// Operators that do the work of both and were found here: the operator, and estimated seconds of the result without it and with
    /// it; none if the target cannot compute it.
    pub dearer: Vec<(String, f64, Option<f64>)>,
    /// Laws that yield an operator which does the work of both, and how far each came.
    pub laws: Vec<LawStory>,
}

/// What the answer is found in.
struct Asked<'a> {
    o: &'a Optimized,
    library: &'a Library,
    options: &'a Options,
    apart: Apart<'a>,
    own: Computing<'a>,
    links: Links,
}

/// Which kernels of a plan compute the nodes of a model.
pub(super) struct Computing<'a> {
    pub source: &'a Program,
    pub plan: &'a Plan,
    pub lines: &'a [KernelLine],
    pub regions: &'a [Region],
}

impl<'a> Computing<'a> {
    /// The kernels that compute a value of this node.
    pub fn kernels(&self, node: &str) -> Vec<usize> {
        let (program, inner) = (&self.plan.program, self.inner(node));
        let is_it = |k: &Kernel| {
            let mut own = k.nodes.iter().map(|n| program.node(*n)).filter(|n| n.origin == node);
            own.any(|n| applied(n).is_none_or(|call| !inner.contains(&call)))
        };
        let all = self.plan.kernels.iter().enumerate();
        let found = all.filter(|(_, k)| is_it(k)).map(|(i, _)| i);
        let (views, others): (Vec<usize>, Vec<usize>) =
            found.partition(|&k| self.plan.kernels[k].name == VIEW);
        if others.is_empty() { views } else { others }
    }

    /// The operators that a node is read as and that are no result of it.
    fn inner(&self, node: &str) -> BTreeSet<CallId> {
        let source = self.source;
        let read = source.nodes.iter().filter(|n| n.origin != node).flat_map(|n| &n.args);
        let read: BTreeSet<NodeId> =
            read.chain(source.outputs.iter().map(|(_, v)| v)).map(|v| v.node).collect();
        let own = (0..).map(NodeId).zip(&source.nodes).filter(|(_, n)| n.origin == node);
        let (results, inner): (Vec<_>, Vec<_>) = own.partition(|(id, _)| read.contains(id));
        let calls = |all: Vec<(NodeId, &Node)>| -> BTreeSet<CallId> {
            all.into_iter().filter_map(|(_, n)| applied(n)).collect()
        };
        let results = calls(results);
        calls(inner).difference(&results).copied().collect()
    }

    /// The region that a node is in, with the names of that copy of it that has the node.
    pub fn region(&self, node: &str) -> Option<(&'a Region, &'a Vec<String>)> {
        self.regions.iter().find_map(|r| {
            let mut copies = std::iter::once(&r.nodes).chain(&r.alike);
            copies.find(|names| names.iter().any(|n| n == node)).map(|names| (r, names))
        })
    }

    /// The kernels that stand in the place of a node that none computes.
    pub fn instead(&self, node: &str) -> Vec<usize> {
        let Some((_, names)) = self.region(node) else { return vec![] };
        let inside = |l: &KernelLine| l.kernel != VIEW && l.nodes.iter().any(|n| names.contains(n));
        (0..self.lines.len()).filter(|&k| inside(&self.lines[k])).collect()
    }
}

/// Why these two nodes of the program as read are not in one kernel of the plan.
///
/// # Errors
/// The program as read cannot be planned.
pub fn not_fused(
    o: &Optimized,
    library: &Library,
    options: &Options,
    nodes: [&str; 2],
) -> Result<NotFused, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (before, after) = priced(o, &evaluation);
    let explanation = told(o, library, (&before, &after), &noted(o, library));
    let prices = evaluation.prices.first();
    let joined = joined(o, library, prices);
    let target = &options.target;
    let asked = Asked {
        o,
        library,
        options,
        apart: Apart { plan: &o.plan, library, prices, target, joined: &joined },
        own: Computing {
            source: &o.source,
            plan: &o.plan,
            lines: &lines(library, &after),
            regions: &explanation.regions,
        },
        links: Links::of(&o.plan),
    };
    Ok(asked.answer(nodes))
}

impl Asked<'_> {
    fn answer(&self, nodes: [&str; 2]) -> NotFused {
        let own = nodes.map(|n| self.own.kernels(n));
        let mut answer = NotFused {
            nodes: nodes.map(String::from),
            target: self.options.target.clone(),
            fused: own[0].iter().any(|k| own[1].contains(k)),
            kernels: [vec![], vec![]],
            reasons: vec![],
            estimate: None,
            dearer: vec![],
            laws: vec![],
        };
        let mut places = own.clone();
        for (i, node) in nodes.iter().enumerate().filter(|(i, _)| own[*i].is_empty()) {
            let (instead, why) = self.gone(node);
            answer.reasons.push(why);
            places[i] = instead;
        }
        let shared: Vec<usize> = common(&places[0], &places[1]);
        if !answer.fused && own.iter().any(Vec::is_empty) && !shared.is_empty() {
            answer.fused = true;
            answer.reasons = self.together(nodes, &own);
        }
        answer.kernels = match answer.fused {
            true => [self.told(&shared), self.told(&shared)],
            false => [self.told(&places[0]), self.told(&places[1])],
        };
        if answer.fused || places.iter().any(Vec::is_empty) {
            return answer;
        }
        if let Some(path) = self.links.path(&places[0], &places[1]) {
            self.along(&path, &mut answer);
        } else if let Some(path) = self.links.path(&places[1], &places[0]) {
            answer.nodes.reverse();
            answer.kernels.reverse();
            self.along(&path, &mut answer);
        } else {
            answer.reasons.push(self.unrelated(&places));
        }
        answer.laws = self.nearly(nodes);
        answer.dearer = self.dearer(nodes);
        answer
    }

    /// What stands in the place of a node that no kernel computes, and why it is gone.
    fn gone(&self, node: &str) -> (Vec<usize>, String) {
        let Some((region, _)) = self.own.region(node) else {
            return (vec![], format!("`{node}` is known before a run: constants alone feed it"));
        };
        let instead = self.own.instead(node);
        let by: Vec<&str> = region.laws.iter().chain(&region.steps).map(String::as_str).collect();
        let by = if by.is_empty() { String::new() } else { format!(", by {}", by.join(", ")) };
        let why = match instead.is_empty() {
            true => format!("the result does without `{node}`{by}"),
            false => {
                format!("no kernel of the result computes `{node}`: others stand in its place{by}")
            }
        };
        (instead, why)
    }

    /// How nodes that no kernel computes came into one with others.
    fn together(&self, nodes: [&str; 2], own: &[Vec<usize>; 2]) -> Vec<String> {
        let gone = nodes.iter().zip(own).filter(|(_, own)| own.is_empty()).map(|(n, _)| *n);
        let regions = || gone.clone().filter_map(|n| self.own.region(n)).map(|(r, _)| r);
        let laws: BTreeSet<&String> = regions().flat_map(|r| &r.laws).collect();
        let steps: BTreeSet<&String> = regions().flat_map(|r| &r.steps).collect();
        let by: Vec<&str> = laws.into_iter().chain(steps).map(String::as_str).collect();
        let names: Vec<String> = gone.map(|n| format!("`{n}`")).collect();
        let whose = names.join(" and ");
        match by.is_empty() {
            true => vec![format!("it does the work of {whose}, whose own value is not computed")],
            false => vec![format!(
                "it does the work of {whose}, whose own value is not computed, by {}",
                by.join(", ")
            )],
        }
    }

    fn told(&self, kernels: &[usize]) -> Vec<KernelLine> {
        kernels.iter().map(|&k| self.own.lines[k].clone()).collect()
    }

    /// Why the kernels along a path are several.
    fn along(&self, path: &[usize], answer: &mut NotFused) {
        let plan = &self.o.plan;
        let stages: Vec<usize> =
            path.iter().copied().filter(|&k| plan.kernels[k].name != VIEW).collect();
        let [first, last] = [path[0], path[path.len() - 1]];
        if stages.len() > 2 {
            let between = stages.iter().filter(|k| ![first, last].contains(k));
            let between: Vec<String> = between.map(|&k| self.called(k)).collect();
            let what = match between.len() {
                1 => "a kernel stands between them".to_string(),
                n => format!("{n} kernels stand between them"),
            };
            answer.reasons.push(format!("{what}: {}", names(&between, false)));
        }
        if stages.len() < 2 {
            let why = "one of them is a view, which moves or renames elements and computes nothing";
            answer.reasons.push(why.into());
            return;
        }
        for pair in stages.windows(2).take(LINKS) {
            let why = self.link(pair[0], pair[1], (stages.len() == 2).then_some(&mut *answer));
            let why = match stages.len() {
                2 => why,
                _ => format!("{}, then {}: {why}", self.called(pair[0]), self.called(pair[1])),
            };
            answer.reasons.push(why);
        }
        if stages.len() > LINKS + 1 {
            let more = stages.len() - 1 - LINKS;
            answer.reasons.push(format!("and {more} more such pairs on the way"));
        }
        if let Some(round) = self.links.detour(first, last, plan).filter(|_| stages.len() == 2) {
            answer.reasons.push(format!(
                "{} reads the one and feeds the other: without it one kernel of both would wait for itself",
                self.called(round)
            ));
        }
    }

    /// Why a kernel and the next one are two; with what both take if one kernel could compute them.
    fn link(&self, from: usize, to: usize, answer: Option<&mut NotFused>) -> String {
        let plan = &self.o.plan;
        let (a, b) = (&plan.kernels[from], &plan.kernels[to]);
        let Some(value) = self.links.read(from, to, plan) else {
            return "each reads the other through a view".into();
        };
        let others = self.other_readers(from, to);
        match (self.apart.could_be_one(a, b, value), answer) {
            (Some(why), _) => {
                let target = self.apart.target;
                format!("no kernel of target `{target}` computes both: {why}{others}")
            }
            (None, None) => format!("a kernel of both is possible{others}"),
            (None, Some(answer)) => {
                let (apart, one) = self.estimates(from, to, !others.is_empty());
                answer.estimate = Some((apart, one));
                let (own, both) = (seconds(apart), seconds(one));
                match one >= apart {
                    true => format!(
                        "a kernel of both is possible, and estimated to take {both} where the two take {own}{others}"
                    ),
                    false => format!(
                        "a kernel of both is possible and estimated to take {both} where the two take {own}: layouts differ on the way, or it is larger than the kernels that the selection tries{others}"
                    ),
                }
            }
        }
    }

    /// What besides a kernel reads what another yields, as the rest of a sentence.
    fn other_readers(&self, from: usize, to: usize) -> String {
        let plan = &self.o.plan;
        let yields = &plan.kernels[from].outputs;
        let reads = |k: &Kernel| k.inputs.iter().any(|v| yields.contains(v));
        let others = (0..plan.kernels.len()).filter(|&k| k != to && reads(&plan.kernels[k]));
        let leads = |k: &usize| plan.kernels[*k].name != VIEW || !self.links.leads(*k, to);
        let mut told: Vec<String> = others.filter(leads).map(|k| self.called(k)).collect();
        let outputs = plan.program.outputs.iter().filter(|(_, v)| yields.contains(v));
        told.extend(outputs.map(|(name, _)| format!("the output `{name}`")));
        match told.is_empty() {
            true => String::new(),
            false => format!(
                "; what the first yields is also read by {}, so it is written all the same, or computed again for each",
                names(&told, false)
            ),
        }
    }

    /// Estimated seconds of two kernels, and of one that does the work of both.
    fn estimates(&self, from: usize, to: usize, shared: bool) -> (f64, f64) {
        let (plan, prices) = (&self.o.plan, self.apart.prices);
        let (a, b) = (&plan.kernels[from], &plan.kernels[to]);
        let (mut apart, mut one) = (Kernels::default(), Kernels::default());
        apart.push(&plan.program, a, prices);
        apart.push(&plan.program, b, prices);
        one.push(&plan.program, &both(a, b), prices);
        if shared {
            one.push(&plan.program, a, prices);
        }
        let compared = one.against(&apart, prices);
        (compared.other, compared.own)
    }

    /// What is said of nodes of which neither is computed from the other.
    fn unrelated(&self, places: &[Vec<usize>; 2]) -> String {
        let reads = |all: &[usize]| -> BTreeSet<Value> {
            all.iter().flat_map(|&k| self.o.plan.kernels[k].inputs.iter().copied()).collect()
        };
        let (a, b) = (reads(&places[0]), reads(&places[1]));
        let is_const = |v: &&Value| self.o.plan.program.as_const(**v).is_some();
        let both = a.intersection(&b).filter(|v| !is_const(v)).count();
        let shared = match both {
            0 => "and they read nothing in common",
            _ => "though they read the same value",
        };
        format!(
            "no path leads from one to the other, {shared}: kernels join what is computed from each other"
        )
    }

    /// A kernel by the nodes of the model that it computes.
    fn called(&self, kernel: usize) -> String {
        let line = &self.own.lines[kernel];
        match line.nodes.is_empty() {
            true => format!("kernel `{}`", line.kernel),
            false => format!("`{}`", names(&line.nodes[..1], true)),
        }
    }

    /// The laws that yield an operator whose definition has operators of both nodes, those that came nearest first.
    fn nearly(&self, nodes: [&str; 2]) -> Vec<LawStory> {
        let of = nodes.map(|n| self.calls(n));
        let both =
            |j: &&Joined| of.iter().all(|calls| calls.iter().any(|&c| j.has(c))) && of[0] != of[1];
        let found = self.apart.joined.iter().filter(both).map(|j| j.law);
        let here = self.stand_for(nodes);
        let wanted = |n: &String| here.contains(n);
        let story = |i: u32| whynot::story(self.o, self.library, self.options, i, &wanted);
        let mut all: Vec<LawStory> = found.map(story).collect();
        for l in &mut all {
            l.near.retain(|n| n.operators.0 > 1 && 3 * n.operators.0 >= 2 * n.operators.1);
        }
        all.retain(|l| !l.refused.is_empty() || !l.near.is_empty());
        let part = |n: &NearMiss| n.operators.0 as f64 / n.operators.1.max(1) as f64;
        let nearest = |l: &LawStory| l.near.iter().map(part).fold(0.0, f64::max);
        all.sort_by(|a, b| nearest(b).total_cmp(&nearest(a)).then(a.law.cmp(&b.law)));
        all.truncate(LAWS);
        all
    }

    /// The operators that are defined by both and were found at one of the nodes, and what the result would take with them.
    fn dearer(&self, nodes: [&str; 2]) -> Vec<(String, f64, Option<f64>)> {
        let of = nodes.map(|n| self.calls(n));
        let both =
            |j: &&Joined| j.is_found() && of.iter().all(|calls| calls.iter().any(|&c| j.has(c)));
        let here = self.stand_for(nodes);
        let (o, prices) = (self.o, self.apart.prices);
        let extractor = self.options.extractor_for(prices);
        let mut out = Vec::new();
        for j in self.apart.joined.iter().filter(both).take(LAWS) {
            let Some(call) = self.library.find(&self.library.laws[j.law as usize].name) else {
                continue;
            };
            if self.o.plan.program.nodes.iter().any(|n| applied(n) == Some(call)) {
                continue;
            }
            let found = o.explored.with_operator(call, prices, &*extractor).into_iter();
            let name = |n: NodeId| o.explored.source.node(n).origin.clone();
            let mut found = found.filter(|(at, _)| at.is_some_and(|n| here.contains(&name(n))));
            let operator = self.library.call(call).name.to_string();
            out.extend(found.next().map(|(_, with)| (operator, o.extracted.cost, with)));
        }
        out
    }

    /// The operators that a node of the model is read as.
    fn calls(&self, node: &str) -> BTreeSet<CallId> {
        self.o.source.nodes.iter().filter(|n| n.origin == node).filter_map(applied).collect()
    }

    /// The nodes, and those that were searched in their place where one block stands for all its copies.
    fn stand_for(&self, nodes: [&str; 2]) -> BTreeSet<String> {
        let searched = &self.o.explored.source.nodes;
        let copies = searched.iter().zip(&self.o.copies);
        let stands = copies.filter(|(_, names)| names.iter().any(|n| nodes.contains(&&**n)));
        let own = nodes.iter().map(|n| n.to_string());
        own.chain(stands.map(|(n, _)| n.origin.clone())).collect()
    }
}

/// The operator that a node applies.
fn applied(node: &Node) -> Option<CallId> {
    match node.kind {
        NodeKind::Apply(call, _) => Some(call),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    }
}

/// One kernel of all that two compute.
fn both(a: &Kernel, b: &Kernel) -> Kernel {
    let mut nodes = [&a.nodes[..], &b.nodes].concat();
    nodes.sort_unstable();
    nodes.dedup();
    let mut inputs = [&a.inputs[..], &b.inputs].concat();
    inputs.retain(|v| !nodes.contains(&v.node));
    inputs.sort_unstable();
    inputs.dedup();
    let list = |a: &[_], b: &[_]| [a, b].concat();
    Kernel {
        name: if a.anchors.is_empty() { b.name.clone() } else { a.name.clone() },
        nodes,
        anchors: list(&a.anchors, &b.anchors),
        prologue: list(&a.prologue, &b.prologue),
        epilogue: list(&a.epilogue, &b.epilogue),
        inputs,
        outputs: b.outputs.clone(),
    }
}

fn common(a: &[usize], b: &[usize]) -> Vec<usize> {
    a.iter().copied().filter(|k| b.contains(k)).collect()
}

/// Which kernels of a plan read what others yield.
struct Links {
    readers: Vec<BTreeSet<usize>>,
}

impl Links {
    fn of(plan: &Plan) -> Links {
        let mut maker: BTreeMap<Value, usize> = BTreeMap::new();
        for (k, kernel) in plan.kernels.iter().enumerate() {
            maker.extend(kernel.outputs.iter().map(|v| (*v, k)));
        }
        let mut readers = vec![BTreeSet::new(); plan.kernels.len()];
        for (k, kernel) in plan.kernels.iter().enumerate() {
            for &from in kernel.inputs.iter().filter_map(|v| maker.get(v)) {
                if from != k {
                    readers[from].insert(k);
                }
            }
        }
        Links { readers }
    }

    /// The shortest path from one of these kernels to one of those.
    fn path(&self, from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
        let mut came: BTreeMap<usize, Option<usize>> = from.iter().map(|&k| (k, None)).collect();
        let mut open: VecDeque<usize> = from.iter().copied().collect();
        while let Some(at) = open.pop_front() {
            if to.contains(&at) {
                let mut path = vec![at];
                while let Some(Some(before)) = came.get(&path[path.len() - 1]) {
                    path.push(*before);
                }
                path.reverse();
                return Some(path);
            }
            for &next in &self.readers[at] {
                came.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    Some(at)
                });
            }
        }
        None
    }

    /// True if one kernel is computed from another.
    fn leads(&self, from: usize, to: usize) -> bool {
        self.path(&[from], &[to]).is_some()
    }

    /// A kernel that reads the first and feeds the second, and is no view.
    fn detour(&self, from: usize, to: usize, plan: &Plan) -> Option<usize> {
        let mut next = self.readers[from].iter().copied();
        next.find(|&k| k != to && plan.kernels[k].name != VIEW && self.leads(k, to))
    }

    /// The value that a kernel reads of another, through views if need be.
    fn read(&self, from: usize, to: usize, plan: &Plan) -> Option<Value> {
        let last =
            |k: usize| plan.kernels[to].inputs.iter().find(|v| plan.kernels[k].outputs.contains(v));
        if let Some(value) = last(from) {
            return Some(*value);
        }
        let is_view = |k: &&usize| plan.kernels[**k].name == VIEW && self.leads(**k, to);
        self.readers[from].iter().filter(is_view).find_map(|&view| self.read(view, to, plan))
    }
}

impl NotFused {
    /// For people.
    pub fn human(&self) -> String {
        let mut out = String::new();
        let [a, b] = &self.nodes;
        let (are, target) = (if self.fused { "are" } else { "are not" }, &self.target);
        let _ = writeln!(out, "`{a}` and `{b}` {are} in one kernel of the plan for `{target}`");
        let kernels = |out: &mut String, label: &str, all: &[KernelLine]| {
            for k in all {
                let (what, time) = (k.operators.join(" + "), seconds(k.seconds));
                let _ = writeln!(out, "  {label}: kernel `{}` of {what}, {time}", k.kernel);
            }
        };
        if self.fused {
            kernels(&mut out, "both", &self.kernels[0]);
        } else {
            kernels(&mut out, a, &self.kernels[0]);
            kernels(&mut out, b, &self.kernels[1]);
        }
        for reason in &self.reasons {
            let _ = writeln!(out, "  {} {reason}", if self.fused { "how:" } else { "why:" });
        }
        for (operator, without, with) in &self.dearer {
            let _ = match with {
                Some(with) => writeln!(
                    out,
                    "  `{operator}` does the work of both and was found here: with it the result is estimated to take {}, without it {}",
                    seconds(*with),
                    seconds(*without)
                ),
                None => writeln!(
                    out,
                    "  `{operator}` does the work of both and was found here: the target has no kernel for the whole of it"
                ),
            };
        }
        for law in &self.laws {
            whynot::law(&mut out, law);
        }
        out
    }
}
