//! The page of two models: both as they are read, side by side, what is equal linked and what differs marked, with the proofs.

use super::drawn::Drawn;
use super::laws::{self, Said};
use super::nodes::{self, Item, Kind, Nodes, short};
use super::steps::{Drawing, Drawings};
use super::{COMMON, Side, written};
use crate::error::Error;
use crate::explain::two_models::{Comparison, Link, Relation, Sample, Seen};
use crate::names;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_explore::Reason;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of the script, in the order in which they use each other.
const SCRIPT: [&str; 2] = [include_str!("pair_panel.js"), include_str!("pair.js")];

/// The version of the data in the page.
const VERSION: u32 = 1;

/// All that the page says.
#[derive(Serialize)]
struct Page<'a> {
    version: u32,
    titles: [&'a str; 2],
    headline: String,
    found: &'a Comparison,
    sides: [Side<PairItem>; 2],
    /// By place what it has on either side.
    places: Vec<[Vec<usize>; 2]>,
    proofs: Vec<Proof>,
    laws: Vec<LawItem>,
    steps: Vec<Step>,
    drawings: Vec<Drawing>,
    samples: &'a [Sample],
}

/// A node of one model, and what it is to the other.
#[derive(Serialize)]
struct PairItem {
    #[serde(flatten)]
    is: Item,
    state: State,
    /// Items of the other side with its value.
    partners: Vec<usize>,
    places: Vec<usize>,
    proofs: Vec<usize>,
}

/// What an item is: an end, or what it is to the other model.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case", untagged)]
enum State {
    End(End),
    Node(Relation),
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Input,
    Output,
}

/// Why two values are equal.
#[derive(Serialize)]
struct Proof {
    /// The items that yield them.
    items: [Option<usize>; 2],
    steps: Vec<usize>,
    /// Constants that were computed elsewhere, and how far they are apart.
    rounded: Vec<(String, f64)>,
}

/// A law, or another kind of step.
#[derive(Serialize)]
struct LawItem {
    name: String,
    #[serde(flatten)]
    said: Said,
    equations: usize,
    steps: Vec<usize>,
}

/// A step of a proof.
#[derive(Serialize)]
struct Step {
    law: usize,
    proof: usize,
    drawing: Option<usize>,
    /// Both sides as terms, where there is no drawing.
    text: Option<(String, String)>,
}

/// The page of two models that are called so.
///
/// # Errors
/// A shape or value no longer fits a model's file.
pub(in crate::explain) fn page(
    found: &Comparison,
    seen: &Seen,
    titles: [&str; 2],
) -> Result<String, Error> {
    let library = &seen.models[0].library;
    let raws = [seen.models[0].raw()?, seen.models[1].raw()?];
    let both = [0, 1].map(|s| nodes::nodes(&seen.programs[s], library, raws[s].as_ref()));
    let places = places(seen, &both);
    let (proofs, steps, drawings, laws) = proofs(seen, &both);
    let [a, b] = both;
    let item_of = [a.item_of.clone(), b.item_of.clone()];
    let outputs = [&a, &b].map(|n| first_output(&n.items));
    let side = |nodes: Nodes, s: usize| {
        let linked = Linked { seen, side: s, other: &item_of[1 - s], outputs };
        side(nodes, &linked)
    };
    let page = Page {
        version: VERSION,
        titles,
        headline: found.headline(),
        found,
        sides: [side(a, 0), side(b, 1)],
        places,
        proofs,
        laws,
        steps,
        drawings,
        samples: &seen.samples,
    };
    let title = format!("{} and {}", titles[0], titles[1]);
    let script: Vec<&str> = COMMON.into_iter().chain(SCRIPT).collect();
    Ok(written(&title, "two models", &script, &page))
}

/// Where the outputs begin among items.
fn first_output(items: &[Item]) -> usize {
    items.iter().position(|i| i.kind == Kind::Output).unwrap_or(items.len())
}

/// What items of one side are looked at with.
struct Linked<'a> {
    seen: &'a Seen,
    side: usize,
    /// The items of the other side by nodes of its program.
    other: &'a [Option<usize>],
    outputs: [usize; 2],
}

fn side(nodes: Nodes, linked: &Linked<'_>) -> Side<PairItem> {
    let Nodes { items, mut graph, parts, item_of, .. } = nodes;
    let inner = inner(&linked.seen.programs[linked.side], &item_of);
    let told = |(i, is): (usize, Item)| {
        let parts = parts.get(&i).map_or(&[][..], Vec::as_slice);
        linked.item(is, i, parts, &inner)
    };
    let items: Vec<PairItem> = items.into_iter().enumerate().map(told).collect();
    for PairItem { is, state, places, .. } in &items {
        let state = match state {
            State::End(end) => *end as u8,
            State::Node(relation) => 2 + *relation as u8,
        };
        graph.push(&[&is.op, &short(&is.name)], (&is.op, &is.ty, state, places));
    }
    let drawn: Drawn = graph.drawn();
    Side { items, drawn }
}

/// Nodes that are read by their own item alone.
fn inner(program: &Program, item_of: &[Option<usize>]) -> Vec<bool> {
    let count = program.nodes.len();
    let (mut by_own, mut by_others) = (vec![false; count], vec![false; count]);
    program.outputs.iter().for_each(|(_, v)| by_others[v.node.0 as usize] = true);
    for (node, item) in program.nodes.iter().zip(item_of) {
        for at in node.args.iter().map(|a| a.node.0 as usize) {
            let own = item_of[at] == *item;
            by_own[at] |= own;
            by_others[at] |= !own;
        }
    }
    by_own.iter().zip(&by_others).map(|(own, others)| *own && !others).collect()
}

impl Linked<'_> {
    fn item(&self, is: Item, at: usize, parts: &[NodeId], inner: &[bool]) -> PairItem {
        let [own, other] = [self.outputs[self.side], self.outputs[1 - self.side]];
        if is.kind == Kind::Output {
            let (state, partners) = (State::End(End::Output), vec![at - own + other]);
            return PairItem { is, state, partners, places: vec![], proofs: vec![] };
        }
        let all = parts.iter().map(|n| (n.0 as usize, &self.seen.links[self.side][n.0 as usize]));
        let all: Vec<(usize, &Link)> = all.collect();
        // What is computed on the way matters where it is in a place.
        let told = |(n, link): &&(usize, &Link)| !inner[*n] || !link.places.is_empty();
        let relation = all.iter().filter(told).map(|(_, l)| l.relation).max();
        let outer = all.iter().filter(|(n, _)| !inner[*n]).map(|(_, l)| *l);
        let partners: BTreeSet<usize> = outer
            .clone()
            .flat_map(|l| &l.partners)
            .filter_map(|n| self.other[n.0 as usize])
            .collect();
        let numbers = |of: &dyn Fn(&Link) -> Vec<usize>| -> Vec<usize> {
            let all: BTreeSet<usize> = all.iter().flat_map(|(_, l)| of(l)).collect();
            all.into_iter().collect()
        };
        let state = match is.kind {
            Kind::Input => State::End(End::Input),
            Kind::Node | Kind::Output => State::Node(relation.unwrap_or(Relation::Known)),
        };
        let places = numbers(&|l| l.places.clone());
        let proofs = numbers(&|l| l.proofs.clone());
        PairItem { is, state, partners: partners.into_iter().collect(), places, proofs }
    }
}

/// The items of each place: what computes its values; where that is a constant, what reads it.
fn places(seen: &Seen, both: &[Nodes; 2]) -> Vec<[Vec<usize>; 2]> {
    let of = |p: usize, s: usize| {
        let links = seen.links[s].iter().zip(&both[s].item_of);
        let own = links.filter(|(l, _)| l.places.contains(&p)).filter_map(|(_, at)| *at);
        let mut items: BTreeSet<usize> = own.collect();
        let (a, b) = seen.places[p];
        if items.is_empty() {
            items = readers(&seen.programs[s], &both[s], [a, b][s]);
        }
        items.into_iter().collect()
    };
    (0..seen.places.len()).map(|p| [of(p, 0), of(p, 1)]).collect()
}

/// The items that yield a value, or read it where that is a constant.
fn readers(program: &Program, nodes: &Nodes, v: Value) -> BTreeSet<usize> {
    if !matches!(program.node(v.node).kind, NodeKind::Const(_)) {
        return nodes.item_of[v.node.0 as usize].into_iter().collect();
    }
    let read = program.nodes.iter().zip(&nodes.item_of);
    let read = read.filter(|(n, _)| n.args.contains(&v)).filter_map(|(_, at)| *at);
    let first = first_output(&nodes.items);
    let outputs = program.outputs.iter().enumerate().filter(|(_, (_, o))| *o == v);
    read.chain(outputs.map(|(i, _)| first + i)).collect()
}

/// The proofs with their steps, drawings and laws.
type Proofs = (Vec<Proof>, Vec<Step>, Vec<Drawing>, Vec<LawItem>);

fn proofs(seen: &Seen, both: &[Nodes; 2]) -> Proofs {
    let library = &seen.models[0].library;
    let all = || seen.proofs.iter().flat_map(|(_, _, p)| &p.steps);
    let reasons: BTreeMap<String, Reason> =
        all().map(|s| (names::reason(library, s.reason), s.reason)).collect();
    let numbers: BTreeMap<&str, usize> =
        reasons.keys().enumerate().map(|(i, n)| (&**n, i)).collect();
    let mut drawings = Drawings::default();
    let (mut proofs, mut steps) = (Vec::new(), Vec::new());
    for (i, (a, b, proved)) in seen.proofs.iter().enumerate() {
        let first = steps.len();
        for step in &proved.steps {
            let sides = step.sides.as_deref();
            let drawing = sides.and_then(|s| drawings.add(s, library, None).map(|(at, _)| at));
            let text = drawing.is_none().then(|| step.text.clone());
            let law = numbers[&*names::reason(library, step.reason)];
            steps.push(Step { law, proof: i, drawing, text });
        }
        let rounded = proved.rounded.iter().map(|r| (r.name.clone(), r.difference)).collect();
        let items = [both[0].item_of[a.node.0 as usize], both[1].item_of[b.node.0 as usize]];
        proofs.push(Proof { items, steps: (first..steps.len()).collect(), rounded });
    }
    let law = |(i, name): (usize, &String)| {
        let own: Vec<usize> = (0..steps.len()).filter(|&s| steps[s].law == i).collect();
        let said = laws::said(name, library);
        LawItem { name: name.clone(), said, equations: own.len(), steps: own }
    };
    let laws = reasons.keys().enumerate().map(law).collect();
    (proofs, steps, drawings.all, laws)
}
