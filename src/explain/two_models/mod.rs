//! Whether two models are equal by the laws, and where not, the smallest place that differs: translation validation of
//! what another tool made of a model.
//!
//! Equality is proved from inputs to outputs in many small proofs between values that look alike on seeded inputs; numbers
//! propose, laws prove. Claims no difference that the f64 interpreter of meanings, or both models' own runs, do not show.

mod cone;
mod interface;
mod judge;
mod linked;
mod numbers;
mod partners;
mod prove;
mod seen;
mod sweep;
mod text;
mod values;

use crate::error::Error;
use crate::explain::html::pair_page;
use crate::explain::name_all;
use crate::model::Model;
use crate::names;
use crate::pipeline::options::Options;
use crate::stack::with_room;
use interface::{Matched, matched};
use judge::{Changed, Judged, changed_constants};
pub use judge::{Difference, OutputDifference};
pub(super) use linked::{Link, Relation};
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_explore::Reason;
use numbers::{Numbers, Runner};
use prove::{Proved, Prover, called};
pub(super) use seen::{Sample, Seen};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sweep::{Held, Place, Sweep, Swept, as_built};
use values::CommonConstants;

/// What was found of two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Every output of the second is proved to be that of the first.
    Equal,
    /// Not every one is, and no input was found on which one differs by more than rounding.
    NotProved,
    /// They differ.
    Differ,
}

/// What two models have in common, and where they differ.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Whether they are equal.
    pub answer: Answer,
    /// Values of the second model that inputs decide.
    pub values: usize,
    /// Those that are values of the first, if the places below are left aside.
    pub equal: usize,
    /// The laws that the proofs rest on, the most used first.
    pub laws: Vec<UsedLaw>,
    /// Constants of one model that the other one computes, and that differ by rounding.
    pub rounded: Vec<RoundedConstant>,
    /// Places where they differ, or that are not proved, from the inputs on.
    pub regions: Vec<DifferingRegion>,
    /// How far the outputs are apart where both models are run as they are.
    pub outputs: Vec<OutputDifference>,
    /// The inputs on which both were run.
    pub inputs: Vec<String>,
    /// What the user should know besides.
    pub notes: Vec<String>,
    /// What its page is drawn from.
    #[serde(skip)]
    seen: Arc<Seen>,
}

impl Comparison {
    /// The comparison as one page that a browser opens: both models side by side, what is equal linked, and what differs marked.
    /// The file stands alone: it loads nothing and holds no weights.
    ///
    /// # Errors
    /// A shape or value no longer fits a model's file.
    pub fn html(&self) -> Result<String, Error> {
        let names = self.seen.names();
        self.html_called([&names[0], &names[1]])
    }

    /// The same of models that are called so.
    pub(crate) fn html_called(&self, titles: [&str; 2]) -> Result<String, Error> {
        with_room(|| pair_page(self, &self.seen, titles))
    }
}

/// A law that proofs rest on.
#[derive(Clone, Debug, Serialize)]
pub struct UsedLaw {
    pub law: String,
    /// How far it may stray.
    pub error: String,
    /// The first sentence of its documentation.
    pub doc: String,
    /// Equations of all proofs that it gives.
    pub equations: usize,
}

/// A constant that was computed elsewhere.
#[derive(Clone, Debug, Serialize)]
pub struct RoundedConstant {
    pub constant: String,
    /// How far it is from what the other model computes, as a part of its largest element.
    pub difference: f64,
}

/// One side of a place.
#[derive(Clone, Debug, Serialize)]
pub struct RegionSide {
    /// The node that yields the value.
    pub value: String,
    /// The nodes that compute it from what is equal, in order.
    pub nodes: Vec<String>,
    /// Their operators.
    pub operators: Vec<String>,
}

/// A place where two models differ, or are not proved to be equal.
#[derive(Clone, Debug, Serialize)]
pub struct DifferingRegion {
    /// In the first model.
    pub a: RegionSide,
    /// In the second.
    pub b: RegionSide,
    /// The values that both are computed from, as the first model names them.
    pub from: Vec<String>,
    /// Constants that differ.
    pub constants: Vec<ChangedConstant>,
    /// By how much the values differ; `None` if no input was found on which they do.
    pub difference: Option<Difference>,
    /// Inputs on which they agree, if they do on all.
    pub agrees_on: Option<usize>,
    /// How far they are apart there, as a part of the largest element.
    pub largest: Option<f64>,
    /// Why no numbers are known.
    pub not_run: Option<String>,
}

/// A constant in whose place the other model has another one.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedConstant {
    pub a: String,
    pub b: String,
    /// The position of the element that differs most.
    pub element: usize,
    /// What it is in both.
    pub values: (f64, f64),
    /// Elements that differ.
    pub elements: usize,
    /// Of so many.
    pub of: usize,
}

/// Compares two models.
///
/// # Errors
/// Their inputs or outputs differ, one is a text, or a law that must not fire is unknown.
pub(crate) fn compare(a: &Model, b: &Model, options: &Options) -> Result<Comparison, Error> {
    let library = &a.library;
    let Matched { mut programs, mut notes } = matched(a, b)?;
    programs.iter_mut().for_each(|p| name_all(p, library));
    let [p, q] = &programs;
    let runner = Runner { library, options };
    let consts = CommonConstants::of([p, q]);
    let mut numbers = Numbers::default();
    let swept = match as_built([p, q], &consts) {
        Some(swept) => swept,
        None => {
            numbers = runner.numbers([p, q])?;
            let prover = Prover::new(library, options)?;
            Sweep::new([p, q], &consts, prover, runner, &mut numbers).run()?
        }
    };
    if let Some(why) = &numbers.none {
        notes.push(format!(
            "the models were not run: {why}; give extents with `--shape`, or values with `--value`"
        ));
    }
    if numbers.none.is_none() {
        notes.extend(numbers.refused.iter().map(|why| format!("inputs left out: {why}")));
    }
    notes.extend(swept.open.iter().filter_map(|&i| other_extents([p, q], i)));
    if swept.is_cut_short {
        notes.push("the search for proofs ended at its limit; there may be more places".into());
    }
    let outputs = judge::outputs(p, &numbers);
    let inputs = numbers.samples.iter().map(|s| s.name.clone()).collect();
    let told = Told { library, programs: [p, q], swept: &swept };
    let seen = Seen {
        models: [a.clone(), b.clone()],
        links: linked::links(&told, &consts),
        proofs: told.proved().map(|(b, a, proof)| (a, b, proof.clone())).collect(),
        places: told.places().map(|p| p.values).collect(),
        samples: numbers.samples.iter().map(|s| Sample::of(s, p)).collect(),
        programs: programs.clone(),
    };
    Ok(Comparison {
        answer: told.answer(),
        values: swept.counted.0,
        equal: swept.counted.1,
        laws: told.laws(),
        rounded: told.rounded(),
        regions: told.regions(),
        outputs,
        inputs,
        notes,
        seen: Arc::new(seen),
    })
}

/// That an output has other extents in both models, if it has: no law makes such values equal.
fn other_extents([a, b]: [&Program; 2], output: usize) -> Option<String> {
    let ((name, va), (_, vb)) = (&a.outputs[output], &b.outputs[output]);
    let (ta, tb) = (a.ty(*va), b.ty(*vb));
    (ta != tb).then(|| {
        format!(
            "output `{}` is {ta} in the first and {tb} in the second: numbers for the symbols, as with `--bind`, make them one",
            shown(name)
        )
    })
}

/// A sweep as it is told.
struct Told<'a> {
    library: &'a Library,
    programs: [&'a Program; 2],
    swept: &'a Swept,
}

impl Told<'_> {
    fn answer(&self) -> Answer {
        let mut places = self.places();
        if places.any(|p| matches!(p.judged, Judged::Differs(_))) {
            return Answer::Differ;
        }
        match self.places().next().is_none() && self.swept.open.is_empty() {
            true => Answer::Equal,
            false => Answer::NotProved,
        }
    }

    /// Values of the second program that are proved to be these of the first.
    fn proved(&self) -> impl Iterator<Item = (Value, Value, &Proved)> {
        self.swept.held.iter().filter_map(|(b, (a, held))| match held {
            Held::Proved(proof) => Some((*b, *a, proof)),
            Held::Placed(_) => None,
        })
    }

    fn proofs(&self) -> impl Iterator<Item = &Proved> {
        self.proved().map(|(_, _, proof)| proof)
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        self.swept.held.values().filter_map(|(_, held)| match held {
            Held::Placed(place) => Some(&**place),
            Held::Proved(_) => None,
        })
    }

    fn laws(&self) -> Vec<UsedLaw> {
        let mut count: BTreeMap<u32, usize> = BTreeMap::new();
        for reason in self.proofs().flat_map(|p| &p.steps).map(|s| s.reason) {
            if let Reason::Law(law) = reason {
                *count.entry(law).or_default() += 1;
            }
        }
        let used = |(law, equations): (u32, usize)| {
            let l = &self.library.laws[law as usize];
            let law = names::reason(self.library, Reason::Law(law));
            let (doc, error) = (names::sentence(&l.doc), l.error.to_string());
            UsedLaw { law, error, doc, equations }
        };
        let mut laws: Vec<UsedLaw> = count.into_iter().map(used).collect();
        laws.sort_by(|x, y| y.equations.cmp(&x.equations).then(x.law.cmp(&y.law)));
        laws
    }

    fn rounded(&self) -> Vec<RoundedConstant> {
        let all = self.proofs().flat_map(|p| &p.rounded);
        let told =
            all.map(|r| RoundedConstant { constant: r.name.clone(), difference: r.difference });
        let mut told: Vec<RoundedConstant> = told.collect();
        told.sort_by(|x, y| y.difference.total_cmp(&x.difference));
        told
    }

    fn regions(&self) -> Vec<DifferingRegion> {
        self.places().map(|p| self.region(p)).collect()
    }

    fn region(&self, place: &Place) -> DifferingRegion {
        let (va, vb) = place.values;
        let from: BTreeSet<String> = place.from.iter().map(|v| self.named(0, *v)).collect();
        let mut region = DifferingRegion {
            a: self.side(0, va, &place.cone.nodes[0]),
            b: self.side(1, vb, &place.cone.nodes[1]),
            from: from.into_iter().collect(),
            constants: self.constants(place),
            difference: None,
            agrees_on: None,
            largest: None,
            not_run: None,
        };
        match &place.judged {
            Judged::Differs(d) => region.difference = Some(d.clone()),
            Judged::Agrees { samples, largest } => {
                (region.agrees_on, region.largest) = (Some(*samples), Some(*largest));
            }
            Judged::Unknown(why) => region.not_run = Some(why.clone()),
        }
        region
    }

    fn constants(&self, place: &Place) -> Vec<ChangedConstant> {
        let name = |id: NodeId| {
            let node = place.cone.program.node(id);
            let tensor = place.cone.program.as_const(Value { node: id, output: 0 });
            let name = tensor.map_or_else(|| node.origin.clone(), |t| called(t, node));
            if name.is_empty() { format!("a constant {}", node.types[0]) } else { name }
        };
        let told = |c: Changed| ChangedConstant {
            a: name(c.nodes[0]),
            b: name(c.nodes[1]),
            element: c.element,
            values: c.values,
            elements: c.elements,
            of: c.of,
        };
        changed_constants(&place.cone).into_iter().map(told).collect()
    }

    fn side(&self, side: usize, value: Value, nodes: &[NodeId]) -> RegionSide {
        let program = self.programs[side];
        let (mut names, mut operators) = (Vec::new(), Vec::new());
        for node in nodes.iter().map(|n| program.node(*n)) {
            let NodeKind::Apply(call, _) = &node.kind else { continue };
            if !names.contains(&node.origin) {
                names.push(node.origin.clone());
            }
            let operator = self.library.call(*call).name.to_string();
            if !operators.contains(&operator) {
                operators.push(operator);
            }
        }
        RegionSide { value: self.named(side, value), nodes: names, operators }
    }

    fn named(&self, side: usize, v: Value) -> String {
        cone::called(self.programs[side], v)
    }
}
