//! Steps of the proof: what was there and what it equals, drawn; what a step gains, and what it does to numbers.

use super::drawn::{Graph, View};
use super::errors::{Errors, Runs};
use crate::explain::Noted;
use crate::show;
use mlc_dsl::ir::{NodeKind, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::constants::folding;
use mlc_explore::{ProofStep, Sides};
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::kernels::selection::select_kernels_priced;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Drawings at most, and boxes of a side; further steps are told as text.
const DRAWINGS: usize = 600;
const BOXES: usize = 80;

/// Bytes of constants that are folded to price a step.
const FOLDED: u64 = 4 << 20;

/// A step of the proof.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    /// The law, by its number on the page.
    pub law: usize,
    /// The number of the search.
    pub search: usize,
    pub round: u32,
    /// Items of the model.
    pub nodes: Vec<usize>,
    pub drawing: Option<usize>,
    /// Both sides as terms, where there is no drawing.
    pub text: Option<(String, String)>,
}

/// Both sides of a step.
#[derive(Debug, Serialize)]
pub(super) struct Drawing {
    pub left: Term,
    pub right: Term,
    /// Estimated seconds of each by itself.
    pub cost: Option<(f64, f64)>,
    pub error: Option<Errors>,
}

/// A program as it is drawn.
#[derive(Debug, Serialize)]
pub(super) struct Term {
    /// What each box says, its type, and whether the other side has it, too.
    pub boxes: Vec<(String, String, bool)>,
    pub view: View,
}

/// The steps on the page, and their drawings, equal ones once.
pub(super) struct Steps {
    pub steps: Vec<Step>,
    pub drawings: Vec<Drawing>,
    /// Steps that are told as text since there would be too many drawings.
    pub undrawn: usize,
}

/// Draws the steps; `law` numbers what they are called.
pub(super) fn steps(
    noted: &[Noted<'_>],
    runs: &Runs<'_>,
    prices: &TargetPrices<'_>,
    items: &HashMap<String, usize>,
    law: &dyn Fn(&str) -> usize,
) -> Steps {
    let library = runs.library;
    let (mut steps, mut drawings) = (vec![], Drawings::default());
    let mut drawn: Vec<&Noted<'_>> = vec![];
    for n in noted {
        let nodes: BTreeSet<usize> = n.nodes.iter().filter_map(|n| items.get(n).copied()).collect();
        let sides = n.explored.sides(&n.step).ok().filter(is_small);
        let drawing = sides.and_then(|sides| {
            let (at, is_new) = drawings.add(&sides, library, Some(prices))?;
            drawn.extend(is_new.then_some(n));
            Some(at)
        });
        let text = || (n.explored.term(n.step.left), n.explored.term(n.step.right));
        steps.push(Step {
            law: law(&n.name),
            search: n.search,
            round: n.step.round,
            nodes: nodes.into_iter().collect(),
            drawing,
            text: drawing.is_none().then(text),
        });
    }
    // Steps stand search by search.
    let mut errors = drawn.chunk_by(|a, b| a.search == b.search).flat_map(|all| {
        let steps: Vec<ProofStep> = all.iter().map(|n| n.step).collect();
        runs.errors(all[0].explored, &steps)
    });
    drawings.all.iter_mut().for_each(|d| d.error = errors.next().flatten());
    drop(errors);
    Steps { steps, drawings: drawings.all, undrawn: drawings.undrawn }
}

/// The drawings of steps, equal ones once.
#[derive(Default)]
pub(super) struct Drawings {
    pub all: Vec<Drawing>,
    /// Steps that are told as text since there would be too many.
    pub undrawn: usize,
    known: HashMap<u64, usize>,
}

impl Drawings {
    /// The number of a step's drawing, priced if there are prices, and whether it is a new one; nothing where there are too many.
    pub fn add(
        &mut self,
        sides: &Sides,
        library: &Library,
        prices: Option<&TargetPrices<'_>>,
    ) -> Option<(usize, bool)> {
        let key = key(sides, library);
        if let Some(&at) = self.known.get(&key) {
            return Some((at, false));
        }
        if self.all.len() >= DRAWINGS {
            self.undrawn += 1;
            return None;
        }
        self.known.insert(key, self.all.len());
        self.all.push(drawing(sides, library, prices));
        Some((self.all.len() - 1, true))
    }
}

fn is_small(sides: &Sides) -> bool {
    [&sides.left, &sides.right].iter().all(|p| p.nodes.len() <= BOXES)
}

/// What tells the drawings of two steps apart.
fn key(sides: &Sides, library: &Library) -> u64 {
    let mut hasher = DefaultHasher::new();
    for p in [&sides.left, &sides.right] {
        p.inputs.hash(&mut hasher);
        looks(p, library).hash(&mut hasher);
        p.outputs.hash(&mut hasher);
    }
    hasher.finish()
}

/// What each node is, with all that it is computed from.
fn looks(p: &Program, library: &Library) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::with_capacity(p.nodes.len());
    for node in &p.nodes {
        let mut hasher = DefaultHasher::new();
        match &node.kind {
            NodeKind::Input(i) => p.inputs[*i as usize].0.hash(&mut hasher),
            NodeKind::Const(c) => (constant(p.consts.get(*c)), &node.types).hash(&mut hasher),
            NodeKind::Apply(call, attrs) => (&library.call(*call).name, attrs).hash(&mut hasher),
        }
        node.args.iter().for_each(|a| (out[a.node.0 as usize], a.output).hash(&mut hasher));
        out.push(hasher.finish());
    }
    out
}

/// A number, or what there are too many of to be shown.
fn constant(t: &Tensor) -> String {
    match t.shape() {
        [] if t.dtype().is_float() || t.dtype().is_int() => format!("{}", t.get_f64(0)),
        _ => "constant".into(),
    }
}

fn term(p: &Program, library: &Library, other: &HashSet<u64>) -> Term {
    let mut graph = Graph::default();
    let mut boxes = Vec::new();
    for (i, (node, look)) in p.nodes.iter().zip(looks(p, library)).enumerate() {
        let label = match &node.kind {
            NodeKind::Input(i) => p.inputs[*i as usize].0.clone(),
            NodeKind::Const(c) => constant(p.consts.get(*c)),
            NodeKind::Apply(call, attrs) => {
                let call = library.call(*call);
                let attrs = call.attrs.iter().zip(attrs);
                let attrs: Vec<String> =
                    attrs.map(|(d, a)| format!("{}={}", d.name, show::attr(a))).collect();
                match attrs.is_empty() {
                    true => call.name.to_string(),
                    false => format!("{} {}", call.name, attrs.join(" ")),
                }
            }
        };
        let ty = node.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        graph.push(&[&label, &ty], i);
        graph.edges.extend(node.args.iter().map(|a| (a.node.0 as usize, i)));
        boxes.push((label, ty, other.contains(&look)));
    }
    Term { boxes, view: graph.drawn().folded }
}

/// Draws both sides of a step, and prices them.
fn drawing(sides: &Sides, library: &Library, prices: Option<&TargetPrices<'_>>) -> Drawing {
    let of = |p: &Program| looks(p, library).into_iter().collect::<HashSet<u64>>();
    let (a, b) = (of(&sides.left), of(&sides.right));
    let cost = |p: &Program| {
        let prices = prices?;
        let folds = p.consts.bytes() <= FOLDED;
        let folded = folds.then(|| folding::fold(p, library).ok()).flatten()?;
        Some(select_kernels_priced(folded, library, prices).cost)
    };
    Drawing {
        left: term(&sides.left, library, &b),
        right: term(&sides.right, library, &a),
        cost: cost(&sides.left).zip(cost(&sides.right)),
        error: None,
    }
}
