//! Regions where the plans differ: groups of kernels before and after that compute the same nodes of the model.
//!
//! Kernels are in one region if they compute values of the same nodes, of the model or of the result; a value that is neither
//! read from the model nor found in it belongs to its readers. Large regions are [split](super::split). Every kernel of both plans is
//! in exactly one region, so the savings of the regions add up to the total.

use super::split::{Order, Span, split};
use mlc_dsl::ir::{NodeId, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Kernel, Plan};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A kernel as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct KernelLine {
    /// The kernel's name on the target.
    pub kernel: String,
    /// The operators that it computes.
    pub operators: Vec<String>,
    /// Nodes of the model whose values it computes.
    pub nodes: Vec<String>,
    /// Estimated seconds.
    pub seconds: f64,
}

/// Kernels before and after that compute the same nodes of the model.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Region {
    pub nodes: Vec<String>,
    /// Kernels of the program as read.
    pub before: Vec<KernelLine>,
    /// Kernels of the result.
    pub after: Vec<KernelLine>,
    /// Estimated seconds saved; negative if it takes longer.
    pub saved: f64,
    /// Laws of the proof that were applied here.
    pub laws: BTreeSet<String>,
    /// What else was done here: steps of the proof that are no laws, or what the plan alone changes.
    pub steps: BTreeSet<String>,
    /// Regions of other nodes that are alike, copies of a layer for instance: their nodes.
    pub alike: Vec<Vec<String>>,
}

impl Region {
    /// True if the kernels are the same before and after.
    pub fn is_unchanged(&self) -> bool {
        shape(&self.before) == shape(&self.after)
    }

    /// Where no step of the proof accounts for a change, the plan does: names how.
    fn explain_by_plan(&mut self) {
        if self.is_unchanged() || !self.laws.is_empty() || !self.steps.is_empty() {
            return;
        }
        let (before, after) = (operators(&self.before), operators(&self.after));
        let step = if before == after { Some(SELECTION) } else { None };
        let is_fewer = after.iter().all(|(o, n)| before.get(o).is_some_and(|m| n <= m));
        self.steps.extend(step.or(is_fewer.then_some(SHARING)).map(String::from));
    }

    /// How often it occurs.
    pub fn times(&self) -> usize {
        1 + self.alike.len()
    }
}

/// What was done at a node of the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Credit {
    pub node: String,
    /// The law, or another step.
    pub name: String,
    pub is_law: bool,
}

/// Values that are read from where they are known already, or no longer at all.
const SHARING: &str = "(shared values)";

/// The same operators in other kernels, or in kernels that cost less beside others.
const SELECTION: &str = "(selection of kernels)";

/// A plan, and the estimated seconds of its kernels.
pub struct Priced<'a> {
    pub plan: &'a Plan,
    /// Seconds by kernel.
    pub seconds: Vec<f64>,
}

/// The regions of two plans of one model, those that save most first, with the laws applied at each of these nodes.
pub fn regions(
    library: &Library,
    before: &Priced<'_>,
    after: &Priced<'_>,
    credits: &[Credit],
) -> Vec<Region> {
    let mut sets = Sets::default();
    let mut spans: Vec<Span> = Vec::new();
    let (old, new) = (lines(library, before), lines(library, after));
    for line in old.iter().chain(&new) {
        line.nodes.iter().for_each(|n| sets.join(&line.nodes[0], n));
        spans.push(Span { nodes: line.nodes.clone(), seconds: line.seconds });
    }
    let shared: HashSet<&str> = shared(before.plan).chain(shared(after.plan)).collect();
    for (line, readers) in new.iter().zip(unnamed(after.plan)) {
        let Some(first) = line.nodes.first() else { continue };
        readers.iter().for_each(|r| sets.join(first, r));
    }
    // A kernel none of whose values is computed any more went into what reads it.
    let still: BTreeSet<&String> = new.iter().flat_map(|l| &l.nodes).collect();
    let readers = readers(before.plan);
    for (line, readers) in old.iter().zip(&readers) {
        let Some(gone) = line.nodes.first() else { continue };
        if !line.nodes.iter().any(|n| still.contains(n))
            && let Some(&reader) = readers.iter().find(|&&r| !old[r].nodes.is_empty())
        {
            let next = &old[reader].nodes;
            sets.join(gone, &next[0]);
            let next = next.iter().find(|n| !shared.contains(n.as_str()));
            let nodes = line.nodes.iter().chain(next).cloned().collect();
            spans.push(Span { nodes, seconds: line.seconds });
        }
    }
    let mut out: BTreeMap<String, Region> = BTreeMap::new();
    for (line, is_old) in old.iter().map(|l| (l, true)).chain(new.iter().map(|l| (l, false))) {
        let key = line.nodes.first().map_or(String::new(), |n| sets.find(n));
        let region = out.entry(key).or_default();
        let known: BTreeSet<String> = region.nodes.iter().cloned().collect();
        region.nodes.extend(line.nodes.iter().filter(|n| !known.contains(*n)).cloned());
        let (list, sign) =
            if is_old { (&mut region.before, 1.0) } else { (&mut region.after, -1.0) };
        list.push(line.clone());
        region.saved += sign * line.seconds;
    }
    let order = Order { places: places(before.plan, after.plan), shared };
    let mut spans_of: HashMap<String, Vec<Span>> = HashMap::new();
    for span in spans {
        let key = span.nodes.first().map_or(String::new(), |n| sets.find(n));
        spans_of.entry(key).or_default().push(span);
    }
    let applied: BTreeSet<&str> = credits.iter().map(|c| c.node.as_str()).collect();
    let parts = out.into_iter().flat_map(|(key, region)| {
        let spans = spans_of.get(&key).map_or(&[][..], Vec::as_slice);
        split(region, spans, &applied, &order)
    });
    let mut out: Vec<Region> = parts.collect();
    let nodes = out.iter().enumerate().flat_map(|(i, r)| r.nodes.iter().map(move |n| (n, i)));
    let of: HashMap<String, usize> = nodes.map(|(n, i)| (n.clone(), i)).collect();
    for Credit { node, name, is_law } in credits {
        let Some(region) = of.get(node).map(|&i| &mut out[i]) else { continue };
        let list = if *is_law { &mut region.laws } else { &mut region.steps };
        list.insert(name.clone());
    }
    let mut told = gathered(out);
    told.iter_mut().for_each(Region::explain_by_plan);
    told
}

/// The nodes that several kernels of a plan compute.
fn shared(plan: &Plan) -> impl Iterator<Item = &str> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    plan.kernels
        .iter()
        .flat_map(|k| own_names(plan, k))
        .for_each(|n| *count.entry(n).or_default() += 1);
    count.into_iter().filter(|(_, n)| *n > 1).map(|(n, _)| n)
}

/// The places of nodes of the model in the order of the program as read, then of the result.
fn places<'a>(before: &'a Plan, after: &'a Plan) -> HashMap<&'a str, usize> {
    let mut out = HashMap::new();
    let nodes = before.program.nodes.iter().chain(&after.program.nodes);
    for name in nodes.map(|n| n.origin.as_str()).filter(|n| !n.is_empty()) {
        let next = out.len();
        out.entry(name).or_insert(next);
    }
    out
}

/// What is known of where a kernel came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Nodes of the model whose values the kernel computes, or else those that read it.
    pub nodes: Vec<String>,
    /// The laws of the proof that were applied there, or in a region that is alike.
    pub laws: BTreeSet<String>,
}

/// For each kernel of the second plan where it came from.
pub fn origins(
    library: &Library,
    before: &Priced<'_>,
    after: &Priced<'_>,
    credits: &[Credit],
) -> Vec<Origin> {
    let mut known: HashMap<String, BTreeSet<String>> = HashMap::new();
    for region in regions(library, before, after, credits) {
        for node in region.nodes.iter().chain(region.alike.iter().flatten()) {
            known.insert(node.clone(), region.laws.clone());
        }
    }
    let origin = |line: KernelLine| {
        let laws = line.nodes.first().and_then(|n| known.get(n)).cloned().unwrap_or_default();
        Origin { nodes: line.nodes, laws }
    };
    lines(library, after).into_iter().map(origin).collect()
}

/// Regions that are alike told once, those that save most first. A law is proven for one copy of a repeated layer; the
/// others, where no law is noted, are told with it.
fn gathered(mut all: Vec<Region>) -> Vec<Region> {
    all.sort_by_key(|r| (r.laws.is_empty(), r.steps.is_empty()));
    let mut out: Vec<Region> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    let mut first: HashMap<_, usize> = HashMap::new();
    for region in all {
        let shapes = (shape(&region.before), shape(&region.after));
        let at = match region.laws.is_empty() {
            true => first.get(&shapes),
            false => known.get(&(shapes.clone(), region.laws.clone())),
        };
        match at {
            Some(&at) => {
                out[at].alike.push(region.nodes);
                out[at].steps.extend(region.steps);
                out[at].saved += region.saved;
            }
            None => {
                known.insert((shapes.clone(), region.laws.clone()), out.len());
                first.entry(shapes).or_insert(out.len());
                out.push(region);
            }
        }
    }
    out.sort_by(|a, b| b.saved.abs().total_cmp(&a.saved.abs()).then(a.nodes.cmp(&b.nodes)));
    out
}

/// What kernels are, wherever they stand and in whatever order they compute.
fn shape(lines: &[KernelLine]) -> Vec<(String, Vec<String>, String)> {
    let sorted = |operators: &[String]| {
        let mut out = operators.to_vec();
        out.sort();
        out
    };
    let mut out: Vec<_> = lines
        .iter()
        .map(|l| (l.kernel.clone(), sorted(&l.operators), super::text::seconds(l.seconds)))
        .collect();
    out.sort();
    out
}

/// How often kernels have each operator.
fn operators(lines: &[KernelLine]) -> BTreeMap<&String, usize> {
    let mut out = BTreeMap::new();
    for operator in lines.iter().flat_map(|l| &l.operators) {
        *out.entry(operator).or_default() += 1;
    }
    out
}

/// For each kernel the nodes of the model to which those of its values belong that are not found in the model: what reads them.
fn unnamed(plan: &Plan) -> Vec<BTreeSet<&str>> {
    let names = super::names(&plan.program);
    let readers = |k: &Kernel| {
        let unnamed = k.nodes.iter().filter(|n| plan.program.node(**n).origin.is_empty());
        unnamed.map(|n| names[n.0 as usize]).filter(|n| !n.is_empty()).collect()
    };
    plan.kernels.iter().map(readers).collect()
}

/// A plan's kernels; one whose own nodes have no name gets those of what reads it.
pub(super) fn lines(library: &Library, priced: &Priced<'_>) -> Vec<KernelLine> {
    let plan = priced.plan;
    let kernels = plan.kernels.iter().zip(&priced.seconds).zip(node_names(plan));
    let line = |((k, seconds), nodes): ((&Kernel, &f64), Vec<String>)| {
        let operators = k.nodes.iter().map(|&n| library.node_name(&plan.program, n)).collect();
        KernelLine { kernel: k.name.clone(), operators, nodes, seconds: *seconds }
    };
    kernels.map(line).collect()
}

/// For each kernel the nodes of the model whose values it computes, or else those of what reads it.
pub(crate) fn node_names(plan: &Plan) -> Vec<Vec<String>> {
    let readers = readers(plan);
    let own = |k| own_names(plan, k).into_iter().map(String::from).collect();
    let mut out: Vec<Vec<String>> = plan.kernels.iter().map(own).collect();
    for k in (0..out.len()).rev().filter(|&k| readers[k].iter().all(|&r| r > k)) {
        if out[k].is_empty() {
            out[k] = readers[k].first().map(|&r| out[r].clone()).unwrap_or_default();
        }
    }
    out
}

/// The nodes of the model whose values a kernel computes.
fn own_names<'a>(plan: &'a Plan, kernel: &Kernel) -> Vec<&'a str> {
    let mut out: Vec<&str> = Vec::new();
    for name in kernel.nodes.iter().map(|n| plan.program.node(*n).origin.as_str()) {
        if !name.is_empty() && !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// For each kernel those that read what it yields, in order.
fn readers(plan: &Plan) -> Vec<Vec<usize>> {
    let mut maker: HashMap<NodeId, usize> = HashMap::new();
    for (k, kernel) in plan.kernels.iter().enumerate() {
        maker.extend(kernel.outputs.iter().map(|v| (v.node, k)));
    }
    let mut out = vec![Vec::new(); plan.kernels.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for made in kernel.inputs.iter().filter_map(|v| maker.get(&v.node)) {
            if out[*made].last() != Some(&k) && *made != k {
                out[*made].push(k);
            }
        }
    }
    out
}

/// Gives every application without a name one of its operator and number.
pub fn name_all(program: &mut Program, library: &Library) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for node in &mut program.nodes {
        if let NodeKind::Apply(call, _) = &node.kind
            && node.origin.is_empty()
        {
            let name = library.call(*call).name.to_string();
            let n = count.entry(name.clone()).or_default();
            *n += 1;
            node.origin = format!("{name}#{n}");
        }
    }
}

/// Sets of names that are joined.
#[derive(Default)]
struct Sets {
    above: HashMap<String, String>,
}

impl Sets {
    fn find(&self, name: &str) -> String {
        let mut at = name;
        while let Some(up) = self.above.get(at) {
            at = up;
        }
        at.to_string()
    }

    fn join(&mut self, a: &str, b: &str) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.above.insert(b, a);
        }
    }
}
