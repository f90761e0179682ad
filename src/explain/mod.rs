//! Explanations: what happened to the nodes of a model, which laws did it, and what that gains.
//!
//! Claims only what can be verified: kernels and seconds are those of the two plans, a law is listed if the result cannot
//! be proved without it, or if it was the first to yield an operator of the result, and its gain is the cost of the result when the law is turned
//! off.

mod apart;
mod declaration;
mod html;
mod kernels;
mod left_out;
mod node;
mod not_fused;
mod numerics;
mod place;
mod regions;
mod split;
mod text;
mod two_models;
mod unmade;
mod whynot;
mod would_gain;

use crate::error::Error;
use crate::names;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Options;
use crate::pipeline::{self, Optimized};
use crate::stack::with_room;
use crate::threads;
pub use declaration::{Declaration, declaration};
pub(crate) use html::{Asked, page};
pub use kernels::{KernelRow, KernelTable, kernel_table};
use mlc_dsl::ir::{NodeId, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_explore::{Explored, Extracted, ProofStep, Reason, progress};
pub use node::{NodeStory, node};
pub use not_fused::{NotFused, not_fused};
pub use numerics::{Amplified, LawError, Numerics, numerics};
pub use place::OfNodes;
pub(crate) use place::{Place, place};
pub(crate) use regions::node_names;
use regions::{Credit, Priced};
pub use regions::{KernelLine, Origin, Region, name_all};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "cli")]
pub(crate) use text::names as first_names;
pub use text::seconds;
pub(crate) use two_models::compare;
pub use two_models::{
    Answer, ChangedConstant, Comparison, Difference, DifferingRegion, OutputDifference, RegionSide,
    RoundedConstant, UsedLaw,
};
pub use unmade::Unmade;
pub use whynot::{WhyNot, why_not};
pub use would_gain::{Figures, GAINS, WouldGain, would_gain};

/// An explanation of one optimisation.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// What the estimates are for.
    pub target: String,
    /// Estimated seconds before and after.
    pub cost: (f64, f64),
    /// Planned bytes of buffers before and after, if extents are known.
    pub peak_bytes: Option<(u64, u64)>,
    /// Bytes of constants before and after.
    pub weights_bytes: (u64, u64),
    /// Kernels before and after by the nodes of the model that they compute; what they save adds up to the whole.
    pub regions: Vec<Region>,
    /// The laws without which the result cannot be proven.
    pub laws: Vec<LawUse>,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

impl Explanation {
    /// Leaves what concerns one node of the model.
    pub fn keep_only(&mut self, node: &str) {
        let is_it = |n: &String| n == node;
        let concerns =
            |r: &Region| r.nodes.iter().chain(r.alike.iter().flatten()).any(|n| n == node);
        self.regions.retain(concerns);
        self.laws.retain(|l| l.nodes.iter().any(is_it));
    }
}

/// One law's part.
#[derive(Clone, Debug, Serialize)]
pub struct LawUse {
    pub law: String,
    /// The first sentence of its documentation.
    pub doc: String,
    pub error: String,
    /// Equations of the proof that it gives.
    pub equations: usize,
    /// Nodes of the model where it was applied: whose values its sides are, or the nearest that are computed from them.
    pub nodes: Vec<String>,
    /// Some of these equations: what was there, what it equals.
    pub examples: Vec<(String, String)>,
    /// Estimated seconds of the result.
    pub with: f64,
    /// Estimated seconds of the result where the law must not fire, if that was tried.
    pub without: Option<f64>,
}

/// Examples kept per law.
const EXAMPLES: usize = 3;

/// Explains what was done, at the prices it was chosen by. Nodes are named as in the model that was read.
///
/// # Errors
/// If the program as read cannot be planned.
pub fn explain(o: &Optimized, library: &Library, options: &Options) -> Result<Explanation, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (before, after) = priced(o, &evaluation);
    Ok(told(o, library, (&before, &after), &noted(o, library)))
}

/// The explanation of these plans and steps.
fn told(
    o: &Optimized,
    library: &Library,
    (before, after): (&Priced<'_>, &Priced<'_>),
    noted: &[Noted<'_>],
) -> Explanation {
    let r = &o.report;
    let (laws, places) = credits(noted, library, r.cost_after);
    Explanation {
        target: r.target.clone(),
        cost: (r.cost_before, r.cost_after),
        peak_bytes: r.peak_bytes_before.zip(r.peak_bytes),
        weights_bytes: (r.weights_bytes_before, r.weights_bytes),
        regions: regions::regions(library, before, after, &places),
        laws,
        notes: r.notes.clone(),
    }
}

/// For each kernel of the result the nodes of the model that it computes, and the laws that led to it. Nodes are named as in the
/// model that was read.
///
/// # Errors
/// If the program as read cannot be planned.
pub fn kernel_origins(
    o: &Optimized,
    library: &Library,
    options: &Options,
) -> Result<Vec<Origin>, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (before, after) = priced(o, &evaluation);
    let (_, places) = credits(&noted(o, library), library, o.report.cost_after);
    Ok(regions::origins(library, &before, &after, &places))
}

/// The plans of the program as read and of the result, with the seconds of their kernels.
fn priced<'a>(o: &'a Optimized, evaluation: &'a Evaluation<'_>) -> (Priced<'a>, Priced<'a>) {
    let of = |plan: &'a Plan| Priced { plan, seconds: evaluation.prices.by_kernel(plan) };
    (of(&evaluation.plain().plan), of(&o.plan))
}

/// A step of the proof, and where it was taken.
struct Noted<'a> {
    /// The search that found it.
    explored: &'a Explored,
    /// Its number among the searches.
    search: usize,
    step: ProofStep,
    /// The law, or what else it is.
    name: String,
    /// The node whose value its sides are, or the nearest that is computed from it; empty if that has no name.
    place: Option<String>,
    /// That one and those whose values its sides compute, and their copies.
    nodes: Vec<String>,
}

impl Noted<'_> {
    fn is_law(&self) -> bool {
        matches!(self.step.reason, Reason::Law(_))
    }
}

/// The searches that led to the result, in their order, with the names of the nodes that each node stands for besides.
fn searches(o: &Optimized) -> Vec<(&Explored, &Extracted, &[Vec<String>])> {
    // What the main search begins with has the names of the model's nodes, too.
    let early = o.early.iter().map(|(explored, extracted)| (explored, extracted, &[][..]));
    let main = std::iter::once((&o.explored, &o.extracted, o.copies.as_slice()));
    early.chain(main).collect()
}

/// The steps that the result rests on, search by search.
fn noted<'a>(o: &'a Optimized, library: &Library) -> Vec<Noted<'a>> {
    let mut all = Vec::new();
    if o.is_kept() {
        return all;
    }
    for (search, (explored, extracted, copies)) in searches(o).into_iter().enumerate() {
        let mut steps = explored.prove_with_few_laws(extracted).unwrap_or_default().steps;
        let names = names(&explored.source);
        // Equations hold between classes: what was found equal beneath them is left out, and so may be the law that a layer, or a
        // layout, is from.
        steps.extend(explored.introductions(extracted));
        steps.sort_unstable();
        steps.dedup();
        let copies = |n: NodeId| copies.get(n.0 as usize).map_or(&[][..], Vec::as_slice);
        let places = explored.places(&steps).into_iter().zip(explored.touched(&steps));
        for (&step, (place, touched)) in steps.iter().zip(places) {
            let mut nodes = Vec::new();
            for n in place.into_iter().chain(touched) {
                let named = std::iter::once(names[n.0 as usize].to_string());
                let named = named.chain(copies(n).iter().cloned()).filter(|n| !n.is_empty());
                nodes.extend(named);
            }
            let name = names::reason(library, step.reason);
            let place = place.map(|n| names[n.0 as usize].to_string());
            all.push(Noted { explored, search, step, name, place, nodes });
        }
    }
    all
}

/// The laws that the result rests on, and at which nodes what was done.
fn credits(noted: &[Noted<'_>], library: &Library, cost: f64) -> (Vec<LawUse>, Vec<Credit>) {
    let mut laws: BTreeMap<String, LawUse> = BTreeMap::new();
    let mut all = Vec::new();
    for n in noted {
        let (name, is_law) = (&n.name, n.is_law());
        let credit = |node: &String| Credit { node: node.clone(), name: name.clone(), is_law };
        all.extend(n.nodes.iter().map(credit));
        if !is_law {
            continue;
        }
        let new = || describe(library, n.step.reason, cost);
        let entry = laws.entry(name.clone()).or_insert_with(new);
        entry.equations += 1;
        if entry.examples.len() < EXAMPLES {
            let ProofStep { left, right, .. } = n.step;
            entry.examples.push((n.explored.term(left), n.explored.term(right)));
        }
        let Some(node) = n.place.clone().filter(|n| !n.is_empty()) else { continue };
        if !entry.nodes.contains(&node) {
            entry.nodes.push(node);
        }
    }
    all.sort();
    all.dedup();
    let mut laws: Vec<LawUse> = laws.into_values().collect();
    laws.sort_by(|a, b| b.equations.cmp(&a.equations).then(a.law.cmp(&b.law)));
    (laws, all)
}

/// The name of every node, or else that of the first node that is computed from it and has one.
pub(crate) fn names(program: &Program) -> Vec<&str> {
    let mut out: Vec<&str> = program.nodes.iter().map(|n| n.origin.as_str()).collect();
    for i in (0..out.len()).rev() {
        for arg in &program.nodes[i].args {
            let arg = arg.node.0 as usize;
            if program.nodes[arg].origin.is_empty() {
                out[arg] = out[i];
            }
        }
    }
    out
}

/// What a model costs where each of these laws must not fire, one at a time.
///
/// # Errors
/// If the model cannot be optimised.
pub fn leave_out(
    explanation: &mut Explanation,
    source: &Program,
    library: &Arc<Library>,
    options: &Options,
) -> Result<(), Error> {
    // Each law needs a search of its own, as what else is found depends on it: they go on side by side.
    let laws = &mut explanation.laws;
    let share = (options.threads / laws.len().max(1)).max(1);
    let token = progress::token();
    let cost = |i: usize| -> Result<f64, Error> {
        let mut options = options.clone();
        options.without.push(laws[i].law.clone());
        (options.self_check, options.threads, options.limits.threads) = (false, share, share);
        let searched = || pipeline::optimize(source.clone(), library, &options);
        let other = progress::with_token(token.clone(), || with_room(searched))?;
        Ok(other.report.cost_after)
    };
    let costs = threads::map(options.threads, laws.len(), &cost);
    for (law, cost) in laws.iter_mut().zip(costs) {
        law.without = Some(cost?);
    }
    Ok(())
}

fn describe(library: &Library, reason: Reason, with: f64) -> LawUse {
    let law = names::reason(library, reason);
    let (doc, error) = match reason {
        Reason::Law(i) => {
            let l = &library.laws[i as usize];
            (names::sentence(&l.doc), l.error.to_string())
        }
        Reason::ConstantFolding
        | Reason::UniformConstant
        | Reason::SameElements
        | Reason::Definition => (String::new(), "exact".into()),
        Reason::SameOperands => (String::new(), mlc_dsl::library::ErrorClass::Reorder.to_string()),
    };
    let (nodes, examples) = (vec![], vec![]);
    LawUse { law, doc, error, equations: 0, nodes, examples, with, without: None }
}
