//! What a result does to numbers: the error of each law's steps, replayed on the inputs of the self-check, and how the model
//! amplifies a rounding of its inputs.
//!
//! Units in the last place (ulp) are those of the largest element of a value, in its type. A step moves the result by what is left of
//! its change where the rest of the model is computed in f64 from the value that it changes: this is measured where the sides of a
//! step are the value of a node.

use super::html::errors::{Errors, Runs};
use super::{Noted, noted};
use crate::error::Error;
use crate::pipeline::Optimized;
use crate::pipeline::options::Options;
use crate::pipeline::selfcheck::{self, INTERPRETED};
use mlc_backends::reference::{Array, Precision, Reference};
use mlc_dsl::ir::{DType, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_dsl::random::Random;
use mlc_explore::{Explored, Proof, ProofStep};
use mlc_extract::resources::operations;
use mlc_verify::random_inputs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Operations of one run in the interpreter, and of one by kernels.
const SMALL: f64 = 1e8;
const LARGE: f64 = 5e11;

/// Directions in which inputs are moved.
const DRAWS: u64 = 4;

/// Values that differ by no more than this part in f64 are the same.
const SAME: f64 = 1e-9;

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Numerics {
    /// Seed of the inputs.
    pub seed: u64,
    /// Distances of results; none if a run would take too long.
    pub results: Option<Distances>,
    /// The laws and other steps of the proof, those that change most first.
    pub laws: Vec<LawError>,
    /// The step that moves the result most, of a law that may round if one does.
    pub most: Option<MostMoved>,
    /// What a move of each input by one ulp makes of the outputs; none if a run would take too long.
    pub amplified: Vec<Amplified>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// Distances of results in ulps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distances {
    /// Of the model as read from what f64 makes of it; none where the interpreter would take too long.
    pub as_read: Option<f64>,
    /// Of the result from that.
    pub planned: Option<f64>,
    /// Of the two from each other.
    pub between: f64,
}

/// What the steps of a law do.
#[derive(Clone, Debug, Serialize)]
pub struct LawError {
    pub law: String,
    /// Its error class.
    pub class: String,
    /// It changes no bits by itself, and a step that changes a value rests on other equations beneath it.
    pub exact: bool,
    pub steps: usize,
    /// Steps that were measured.
    pub measured: usize,
    /// The largest change of a step in ulps.
    pub change: Option<f64>,
    /// The largest error of what was there, and of what it equals, against f64.
    pub sides: Option<(f64, f64)>,
    /// The largest move of the result that a step causes, in ulps.
    pub moves: Option<f64>,
}

/// The step that moves the result most.
#[derive(Clone, Debug, Serialize)]
pub struct MostMoved {
    pub law: String,
    pub node: String,
    /// What was there, and what it equals.
    pub equation: (String, String),
    /// In ulps: of the step's value, and of the result.
    pub change: f64,
    pub moves: f64,
}

/// What a move of an input by one ulp makes of an output.
#[derive(Clone, Debug, Serialize)]
pub struct Amplified {
    pub input: String,
    /// The output that moves most.
    pub output: String,
    /// By how many ulps.
    pub ulps: f64,
}

/// Measures what a result does to numbers.
///
/// # Errors
/// The inputs have no known size.
pub fn numerics(
    o: &Optimized,
    library: &Arc<Library>,
    options: &Options,
) -> Result<Numerics, Error> {
    let inputs = random_inputs::inputs(&o.source, library, options.seed);
    let inputs = inputs.ok_or_else(Error::unsized_inputs)?;
    let runner = Runner { library, threads: options.threads, seed: options.seed };
    let noted = noted(o, library);
    let mut out = Numerics {
        seed: options.seed,
        results: runner.distances(o, &inputs),
        laws: vec![],
        most: None,
        amplified: runner.amplified(&o.source, &inputs),
        notes: vec![],
    };
    let measured = runner.steps(&noted);
    let moves = runner.moves(o, &noted, &measured, &inputs);
    out.laws = laws(library, &noted, &measured, &moves);
    out.most = most(library, &noted, &measured, &moves);
    if out.results.is_none() {
        out.notes.push("a run would take too long: results are not compared".into());
    }
    let unmeasured = measured.iter().filter(|m| m.is_none()).count();
    if unmeasured > 0 {
        out.notes.push(format!(
            "{unmeasured} of {} steps are not measured: they have no floats, or their values are too large for the interpreter",
            measured.len()
        ));
    }
    let lost = moves.iter().zip(&measured).filter(|(m, e)| m.is_none() && changes(e)).count();
    if lost > 0 {
        out.notes.push(format!(
            "of {lost} steps that change a value it is not known how they move the result: their sides are no value of a node of the model, or of a block that was searched once for all its copies, or a run would take too long"
        ));
    }
    Ok(out)
}

fn changes(e: &Option<Errors>) -> bool {
    e.is_some_and(|e| e.between > 0.0)
}

/// In units in the last place of the largest element.
fn ulps(part: f64, roundoff: f64) -> f64 {
    part / (2.0 * roundoff)
}

/// By law, in the order of what they change.
fn laws(
    library: &Library,
    noted: &[Noted<'_>],
    measured: &[Option<Errors>],
    moves: &[Option<f64>],
) -> Vec<LawError> {
    let mut all: BTreeMap<&str, LawError> = BTreeMap::new();
    for ((n, e), moved) in noted.iter().zip(measured).zip(moves) {
        let law = all.entry(&n.name).or_insert_with(|| LawError {
            law: n.name.clone(),
            class: super::describe(library, n.step.reason, 0.0).error,
            exact: is_exact(library, n),
            steps: 0,
            measured: 0,
            change: None,
            sides: None,
            moves: None,
        });
        law.steps += 1;
        let larger = |known: Option<f64>, v: f64| Some(known.map_or(v, |k| k.max(v)));
        if let Some(e) = e {
            law.measured += 1;
            law.change = larger(law.change, ulps(e.between, e.roundoff));
            if let Some((a, b)) = e.sides {
                let (a, b) = (ulps(a, e.roundoff), ulps(b, e.roundoff));
                law.sides = Some(law.sides.map_or((a, b), |(c, d)| (c.max(a), d.max(b))));
            }
        }
        // A step that changes nothing tells nothing of the others.
        let moved = moved.filter(|_| changes(e));
        law.moves = moved.map_or(law.moves, |m| larger(law.moves, m));
    }
    let still = |l: &&mut LawError| l.change == Some(0.0);
    all.values_mut().filter(still).for_each(|l| l.moves = Some(0.0));
    let mut all: Vec<LawError> = all.into_values().collect();
    let size = |l: &LawError| l.change.unwrap_or(-1.0);
    all.sort_by(|a, b| size(b).total_cmp(&size(a)).then(a.law.cmp(&b.law)));
    all
}

fn is_exact(library: &Library, n: &Noted<'_>) -> bool {
    super::describe(library, n.step.reason, 0.0).error == ErrorClass::Exact.to_string()
}

/// Of the steps of laws that may round, if one of them moves it, or else of all.
fn most(
    library: &Library,
    noted: &[Noted<'_>],
    measured: &[Option<Errors>],
    moves: &[Option<f64>],
) -> Option<MostMoved> {
    let known = (0..noted.len()).filter_map(|i| Some((i, moves[i].filter(|m| *m > 0.0)?)));
    let first = |a: &(usize, f64), b: &(usize, f64)| {
        let exact = |i: usize| is_exact(library, &noted[i]);
        exact(a.0).cmp(&exact(b.0)).then(b.1.total_cmp(&a.1))
    };
    let (i, moves) = known.min_by(first)?;
    let (n, e) = (&noted[i], measured[i]?);
    Some(MostMoved {
        law: n.name.clone(),
        node: n.place.clone().unwrap_or_default(),
        equation: (n.explored.term(n.step.left), n.explored.term(n.step.right)),
        change: ulps(e.between, e.roundoff),
        moves,
    })
}

/// Runs programs.
struct Runner<'a> {
    library: &'a Arc<Library>,
    threads: usize,
    seed: u64,
}

impl Runner<'_> {
    /// The errors of the steps, search by search.
    fn steps(&self, noted: &[Noted<'_>]) -> Vec<Option<Errors>> {
        let runs = Runs { library: self.library, seed: self.seed, threads: self.threads };
        let searches = noted.chunk_by(|a, b| a.search == b.search);
        let each = searches.flat_map(|all| {
            let steps: Vec<ProofStep> = all.iter().map(|n| n.step).collect();
            runs.errors(all[0].explored, &steps)
        });
        each.collect()
    }

    fn interpreted(
        &self,
        program: &Program,
        precision: Precision,
        inputs: &[Array],
    ) -> Option<Vec<Array>> {
        let reference = Reference { precision, ..Reference::default() };
        reference.run_arrays(program, self.library, inputs).ok()
    }

    fn distances(&self, o: &Optimized, inputs: &[Tensor]) -> Option<Distances> {
        let work = operations(&o.source, self.library);
        let units = units(&o.source);
        if work > SMALL {
            let run = |p| selfcheck::run(p, self.library, inputs, self.threads).ok();
            let (a, b) = (run(&o.source).filter(|_| work <= LARGE)?, run(&o.program)?);
            let arrays = |t: &[Tensor]| t.iter().map(Array::from_tensor).collect::<Vec<_>>();
            let between = distance(&arrays(&a), &arrays(&b), &units)?.1;
            return Some(Distances { as_read: None, planned: None, between });
        }
        let arrays: Vec<Array> = inputs.iter().map(Array::from_tensor).collect();
        let truth = self.interpreted(&o.source, Precision::F64, &arrays)?;
        let read = self.interpreted(&o.source, Precision::Rounded, &arrays)?;
        let planned = self.interpreted(&o.program, Precision::Rounded, &arrays)?;
        Some(Distances {
            as_read: Some(distance(&truth, &read, &units)?.1),
            planned: Some(distance(&truth, &planned, &units)?.1),
            between: distance(&read, &planned, &units)?.1,
        })
    }

    /// For each step that changes a value how far it moves the result, those that change most first as far as there is time.
    fn moves(
        &self,
        o: &Optimized,
        noted: &[Noted<'_>],
        measured: &[Option<Errors>],
        inputs: &[Tensor],
    ) -> Vec<Option<f64>> {
        let mut out: Vec<Option<f64>> = vec![None; noted.len()];
        let mut order: Vec<usize> = (0..noted.len()).filter(|&i| changes(&measured[i])).collect();
        let size = |i: usize| measured[i].map_or(0.0, |e| ulps(e.between, e.roundoff));
        order.sort_by(|&a, &b| size(b).total_cmp(&size(a)).then(a.cmp(&b)));
        let mut left = INTERPRETED;
        let arrays: Vec<Array> = inputs.iter().map(Array::from_tensor).collect();
        for i in order {
            let explored = noted[i].explored;
            // Of a block that stands for its copies the inputs are no inputs of the model.
            let work = 4.0 * operations(&explored.source, self.library);
            if explored.source.inputs != o.source.inputs || work > left {
                continue;
            }
            left -= work;
            out[i] = self.moved(explored, &noted[i].step, &arrays);
        }
        out
    }

    /// How far a step moves the result; nothing if its sides are no value of a node.
    fn moved(&self, explored: &Explored, step: &ProofStep, inputs: &[Array]) -> Option<f64> {
        let source = &explored.source;
        let place = explored.places(std::slice::from_ref(step))[0]?;
        let sides = explored.replay(&Proof { steps: vec![*step] }).ok()?;
        let value = Value { node: place, output: 0 };
        let mut watched = source.clone();
        watched.outputs.push(("here".into(), value));
        let mut truth = self.interpreted(&watched, Precision::F64, inputs)?;
        let here = truth.pop()?.to_f64();
        let exact = self.interpreted(&sides, Precision::F64, inputs)?;
        if !same(&here, &exact[0].to_f64()) {
            return None;
        }
        let rounded = self.interpreted(&sides, Precision::Rounded, inputs)?;
        let change = rounded[1].to_f64().into_iter().zip(rounded[0].to_f64());
        let there = here.iter().zip(change).map(|(v, (b, a))| v + (b - a)).collect();
        let (rest, moved) = self.from(source, place, there)?;
        let inputs: Vec<Array> = inputs.iter().cloned().chain([moved]).collect();
        let after = self.interpreted(&rest, Precision::F64, &inputs)?;
        Some(distance(&truth, &after, &units(source))?.1)
    }

    /// A program with a value of a node as one more input, and that input.
    fn from(&self, source: &Program, place: NodeId, values: Vec<f64>) -> Option<(Program, Array)> {
        let value = Value { node: place, output: 0 };
        let ty = source.ty(value).clone();
        let shape = ty.known_shape()?;
        let array = Array::from_f64(ty.dtype, shape.clone(), values)?;
        let mut rest = source.clone();
        let node = &mut rest.nodes[place.0 as usize];
        (node.kind, node.args) = (NodeKind::Input(rest.inputs.len() as u32), vec![]);
        rest.inputs.push(("moved".into(), ty));
        Some((rest, array))
    }

    /// What a move of each input by one ulp makes of the outputs.
    fn amplified(&self, source: &Program, inputs: &[Tensor]) -> Vec<Amplified> {
        let work = operations(source, self.library);
        let units = units(source);
        let run = |inputs: &[Tensor]| -> Option<Vec<Array>> {
            if work <= SMALL {
                let arrays: Vec<Array> = inputs.iter().map(Array::from_tensor).collect();
                return self.interpreted(source, Precision::F64, &arrays);
            }
            let values = selfcheck::run(source, self.library, inputs, self.threads).ok()?;
            Some(values.iter().map(Array::from_tensor).collect())
        };
        if work * (DRAWS as f64) * inputs.len() as f64 > LARGE {
            return vec![];
        }
        let Some(base) = run(inputs) else { return vec![] };
        let one = |(i, (name, ty)): (usize, &(String, mlc_dsl::ir::Type))| {
            if !ty.dtype.is_float() {
                return None;
            }
            let draw = |k: u64| {
                let mut moved = inputs.to_vec();
                moved[i] = by_one_ulp(&inputs[i], self.seed ^ k);
                distance(&base, &run(&moved)?, &units)
            };
            let most = (0..DRAWS).filter_map(draw).max_by(|a, b| a.1.total_cmp(&b.1))?;
            let output = source.outputs[most.0].0.clone();
            Some(Amplified { input: name.clone(), output, ulps: most.1 })
        };
        source.inputs.iter().enumerate().filter_map(one).collect()
    }
}

/// Half a unit in the last place of each output; nothing of those that are no floats.
fn units(program: &Program) -> Vec<Option<f64>> {
    let of = |t: DType| t.is_float().then(|| t.unit_roundoff());
    program.outputs.iter().map(|(_, v)| of(program.ty(*v).dtype)).collect()
}

/// The output that differs most, and by how many ulps; nothing if none has floats.
fn distance(a: &[Array], b: &[Array], units: &[Option<f64>]) -> Option<(usize, f64)> {
    let each = a.iter().zip(b).zip(units).enumerate();
    let each = each.filter_map(|(i, ((a, b), unit))| {
        let (a, b) = (a.to_f64(), b.to_f64());
        let largest = a.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        let pairs = a.iter().zip(&b).filter(|(a, b)| a.is_finite() && b.is_finite());
        let most = pairs.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        let part = if largest > 0.0 { most / largest } else { most };
        Some((i, ulps(part, (*unit)?)))
    });
    each.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// True of values that f64 does not tell apart.
fn same(a: &[f64], b: &[f64]) -> bool {
    let largest = a.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
    let close = |(a, b): (&f64, &f64)| {
        a.to_bits() == b.to_bits() || a == b || (a - b).abs() <= SAME * largest
    };
    a.len() == b.len() && a.iter().zip(b).all(close)
}

/// Each element one unit in its last place up or down, at random.
fn by_one_ulp(t: &Tensor, seed: u64) -> Tensor {
    let mut random = Random::from_state(seed ^ 0x01_0b);
    let unit = 2.0 * t.dtype().unit_roundoff();
    let mut moved = |v: f64| {
        if v == 0.0 || !v.is_finite() {
            return v;
        }
        let ulp = unit * v.abs().log2().floor().exp2();
        if random.unit() < 0.5 { v - ulp } else { v + ulp }
    };
    let values: Vec<f64> = t.to_f64().into_iter().map(&mut moved).collect();
    Tensor::from_f64(t.dtype(), t.shape().to_vec(), &values)
}

/// Characters of a column.
const COLUMN: usize = 13;

/// Steps that are told without `all`.
const TOLD: usize = 12;

fn number(ulps: Option<f64>) -> String {
    match ulps {
        None => "-".into(),
        Some(0.0) => "0 ulp".into(),
        Some(u) if !(0.01..1e4).contains(&u) => format!("{u:.1e} ulp"),
        Some(u) => format!("{u:.2} ulp"),
    }
}

impl Numerics {
    /// For people; `all` leaves nothing out.
    pub fn human(&self, all: bool) -> String {
        let mut out = format!(
            "on inputs drawn with seed {}; an ulp is a unit in the last place of a value's largest element\n",
            self.seed
        );
        if let Some(Distances { as_read, planned, between }) = self.results {
            let against = as_read.zip(planned).map_or(String::new(), |(a, b)| {
                let (a, b) = (number(Some(a)), number(Some(b)));
                format!("; against f64 {a} as read, {b} as planned")
            });
            let between = number(Some(between));
            let _ =
                writeln!(out, "the result differs from the model as read by {between}{against}");
        }
        self.table(&mut out, all);
        if let Some(m) = &self.most {
            let (change, moves) = (number(Some(m.change)), number(Some(m.moves)));
            let _ = writeln!(
                out,
                "\nthe step that moves the result most: {} at `{}`, which changes its value by {change} and the result by {moves}",
                m.law, m.node
            );
            let _ = writeln!(out, "      {}\n   =  {}", m.equation.0, m.equation.1);
        }
        if !self.amplified.is_empty() {
            out.push_str("\nhow the model amplifies a rounding of its inputs\n");
        }
        for a in &self.amplified {
            let _ = writeln!(
                out,
                "  one ulp of every element of `{}` moves `{}` by {}",
                a.input,
                a.output,
                number(Some(a.ulps))
            );
        }
        for n in &self.notes {
            let _ = writeln!(out, "note: {n}");
        }
        out
    }

    /// The laws and what their steps do.
    fn table(&self, out: &mut String, all: bool) {
        if self.laws.is_empty() {
            return;
        }
        let told = &self.laws[..if all { self.laws.len() } else { TOLD.min(self.laws.len()) }];
        let changes = |l: &LawError| l.exact && l.change.is_some_and(|c| c > 0.0);
        let name =
            |l: &LawError| format!("{}{} [{}]", l.law, if changes(l) { "*" } else { "" }, l.class);
        let head = "step of the proof";
        let wide = told.iter().map(|l| name(l).chars().count()).chain([head.len()]).max();
        let wide = wide.unwrap_or(0) + 1;
        let heads = ["changes by", "was off by", "is off by", "moves result"];
        let heads: String = heads.iter().map(|h| format!("{h:>COLUMN$}")).collect();
        let _ = writeln!(out, "\n{head:<wide$}{:>6}{heads}", "steps");
        for l in told {
            let (was, is) = l.sides.unzip();
            let cells = [l.change, was, is, l.moves].map(|u| format!("{:>COLUMN$}", number(u)));
            let _ = writeln!(out, "{:<wide$}{:>6}{}", name(l), l.steps, cells.concat());
        }
        if self.laws.len() > told.len() {
            let more = self.laws.len() - told.len();
            let _ = writeln!(out, "and {more} more that change less; `--all` tells them");
        }
        if told.iter().any(changes) {
            out.push_str("* changes no bits by itself: its sides read values that steps beneath it found equal\n");
        }
    }
}
