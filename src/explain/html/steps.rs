//! Steps of the proof: what was there and what it equals, drawn; what a step gains, and what it does to numbers.

use super::drawn::{Graph, View};
use crate::explain::Noted;
use crate::pipeline::selfcheck;
use crate::show;
use mlc_backends::reference::{Array, Precision, Reference};
use mlc_dsl::ir::{NodeKind, Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_explore::constants::folding;
use mlc_explore::{Reason, Sides};
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::kernels::selection::select_kernels_priced;
use mlc_extract::resources::operations;
use mlc_verify::random_inputs;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Drawings at most, and boxes of a side; further steps are told as text.
const DRAWINGS: usize = 600;
const BOXES: usize = 80;

/// Operations that the interpreter may do for a step, and for all.
const OF_A_STEP: f64 = 2e6;
const OF_ALL: f64 = 3e7;

/// Operations that kernels may do for a step, and for all; steps of each law that they run.
const RUN_OF_A_STEP: f64 = 1e9;
const RUN_OF_ALL: f64 = 6e9;
const RUN_OF_A_LAW: usize = 2;

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

/// What the element type makes of both sides, on operands that are drawn as the self-check draws inputs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Errors {
    /// Largest distance of each from what f64 makes of what was there, relative to the largest element; nothing where the
    /// interpreter would take too long.
    pub sides: Option<(f64, f64)>,
    /// Largest distance between them.
    pub between: f64,
    /// Half a unit in the last place of the type.
    pub roundoff: f64,
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
    library: &Arc<Library>,
    prices: &TargetPrices<'_>,
    items: &HashMap<String, usize>,
    law: &dyn Fn(&str) -> usize,
    (seed, threads): (u64, usize),
) -> Steps {
    let mut out = Steps { steps: vec![], drawings: vec![], undrawn: 0 };
    let mut known: HashMap<u64, usize> = HashMap::new();
    let bench = Bench { library, prices, seed, threads };
    let mut budget = Budget { interpreted: OF_ALL, run: RUN_OF_ALL, of_law: HashMap::new() };
    for n in noted {
        let nodes: BTreeSet<usize> = n.nodes.iter().filter_map(|n| items.get(n).copied()).collect();
        let sides = n.explored.sides(&n.step).ok().filter(is_small);
        let drawing = sides.and_then(|sides| {
            let key = key(&sides, library);
            if let Some(&at) = known.get(&key) {
                return Some(at);
            }
            if out.drawings.len() >= DRAWINGS {
                out.undrawn += 1;
                return None;
            }
            known.insert(key, out.drawings.len());
            out.drawings.push(bench.drawing(&sides, n.step.reason, &mut budget));
            Some(out.drawings.len() - 1)
        });
        let text = || (n.explored.term(n.step.left), n.explored.term(n.step.right));
        out.steps.push(Step {
            law: law(&n.name),
            search: n.search,
            round: n.step.round,
            nodes: nodes.into_iter().collect(),
            drawing,
            text: drawing.is_none().then(text),
        });
    }
    out
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

/// What may still be spent on running sides.
struct Budget {
    /// Operations of the interpreter, and of kernels.
    interpreted: f64,
    run: f64,
    /// Steps of each law that kernels have run.
    of_law: HashMap<Reason, usize>,
}

/// What steps are measured with.
struct Bench<'a> {
    library: &'a Arc<Library>,
    prices: &'a TargetPrices<'a>,
    seed: u64,
    threads: usize,
}

impl Bench<'_> {
    /// Runs both sides on operands that are drawn: by the interpreter if it can afford to, else a few of each law by this
    /// machine's kernels, if the law may round otherwise.
    fn errors(&self, sides: &Sides, reason: Reason, budget: &mut Budget) -> Option<Errors> {
        let (l, r) = (&sides.left, &sides.right);
        let dtype = l.outputs.first().map(|(_, v)| l.ty(*v).dtype).filter(|d| d.is_float())?;
        let roundoff = dtype.unit_roundoff();
        let work = self.work(l) + self.work(r);
        let operands = || random_inputs::inputs(l, self.library, self.seed);
        if work <= OF_A_STEP && work <= budget.interpreted {
            budget.interpreted -= work;
            return self.interpreted(sides, &operands()?, roundoff);
        }
        let exact = match reason {
            Reason::Law(i) => self.library.laws[i as usize].error == ErrorClass::Exact,
            Reason::SameOperands => false,
            _ => true,
        };
        let tried = budget.of_law.entry(reason).or_default();
        if exact || *tried >= RUN_OF_A_LAW || work > RUN_OF_A_STEP || work > budget.run {
            return None;
        }
        *tried += 1;
        budget.run -= work;
        let operands = operands()?;
        let run = |p: &Program| selfcheck::run(p, self.library, &operands, self.threads).ok();
        let (left, right) = (run(l)?, run(r)?);
        let between = selfcheck::difference(left.first()?, right.first()?).ok()?;
        Some(Errors { sides: None, between, roundoff })
    }

    /// Operations of a program, and elements that it makes; endless where an extent is open.
    fn work(&self, p: &Program) -> f64 {
        let types = p.nodes.iter().flat_map(|n| &n.types);
        let elements = types.map(|t| t.elements().as_const().map_or(f64::INFINITY, |n| n as f64));
        operations(p, self.library).max(elements.sum())
    }

    fn interpreted(&self, sides: &Sides, operands: &[Tensor], roundoff: f64) -> Option<Errors> {
        let run = |p: &Program, precision| {
            let reference = Reference { precision, ..Reference::default() };
            let values = reference.run_values(p, self.library, operands).ok()?;
            values.first().map(Array::to_f64)
        };
        let truth = run(&sides.left, Precision::F64)?;
        let left = run(&sides.left, Precision::Rounded)?;
        let right = run(&sides.right, Precision::Rounded)?;
        let largest = truth.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        let distance = |a: &[f64], b: &[f64]| {
            let each = a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite());
            let most = each.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
            if largest > 0.0 { most / largest } else { most }
        };
        let of_sides = (distance(&left, &truth), distance(&right, &truth));
        Some(Errors { sides: Some(of_sides), between: distance(&left, &right), roundoff })
    }

    fn drawing(&self, sides: &Sides, reason: Reason, budget: &mut Budget) -> Drawing {
        let of = |p: &Program| looks(p, self.library).into_iter().collect::<HashSet<u64>>();
        let (a, b) = (of(&sides.left), of(&sides.right));
        let cost = |p: &Program| {
            let folds = p.consts.bytes() <= FOLDED;
            let folded = folds.then(|| folding::fold(p, self.library).ok()).flatten()?;
            Some(select_kernels_priced(folded, self.library, self.prices).cost)
        };
        Drawing {
            left: term(&sides.left, self.library, &b),
            right: term(&sides.right, self.library, &a),
            cost: cost(&sides.left).zip(cost(&sides.right)),
            error: self.errors(sides, reason, budget),
        }
    }
}
