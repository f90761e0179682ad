//! How far two values are apart, by the f64 interpreter of meanings, on what the first model computes them from.

use super::cone::Cone;
use super::numbers::{Numbers, Runner, Sample};
use super::values::Values;
use crate::pipeline::selfcheck::{self, Finding, Rule, Runs};
use mlc_backends::reference;
use mlc_dsl::ir::{DType, NodeId, Program, Tensor, Value};
use mlc_extract::resources;
use serde::Serialize;

/// Operations of the f64 interpreter on one sample, and on all.
const INTERPRETED: f64 = 2e9;
const ALTOGETHER: f64 = 1e10;

/// Where two values differ by more than rounding.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The inputs that are told of: those on which a value is not finite, else the first on which they differ.
    pub inputs: String,
    /// All inputs on which they differ.
    pub differs_on: Vec<String>,
    /// The position of the element that is furthest off, in row-major order.
    pub element: usize,
    /// What it is in the first model.
    #[serde(serialize_with = "number")]
    pub a: f64,
    /// And in the second.
    #[serde(serialize_with = "number")]
    pub b: f64,
    /// How far these are apart; `None` if one of them is not finite.
    pub absolute: Option<f64>,
    /// As a part of the element.
    pub relative: Option<f64>,
    /// In units of the last place of the element type; `None` of integers, too.
    pub units: Option<f64>,
    /// Elements that differ by more than rounding.
    pub elements: usize,
    /// Of so many.
    pub of: usize,
    /// The same for people.
    pub words: String,
}

/// JSON has no numbers that are not finite: these are words.
fn number<S: serde::Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
    match v.is_finite() {
        true => s.serialize_f64(*v),
        false => s.serialize_str(&v.to_string()),
    }
}

/// What samples say of two values.
#[derive(Clone, Debug)]
pub(super) enum Judged {
    /// They differ.
    Differs(Difference),
    /// They agree on so many samples, and are this far apart, relative to the largest element.
    Agrees { samples: usize, largest: f64 },
    /// Nothing could be run.
    Unknown(String),
}

/// What a judge needs.
pub(super) struct Judge<'a, 'p> {
    pub runner: Runner<'a>,
    pub values: &'a Values<'p>,
    pub numbers: &'a Numbers,
}

impl Judge<'_, '_> {
    /// Holds the two values of a cone against each other.
    pub fn judge(&self, cone: &Cone) -> Judged {
        let (mut samples, mut largest, mut spent) = (0, 0.0f64, 0.0);
        let mut refused = self.numbers.none.clone().unwrap_or_else(|| "it does not run".into());
        let mut found: Vec<Difference> = Vec::new();
        for sample in &self.numbers.samples {
            match self.on(cone, sample, &mut spent) {
                Ok(Ok(off)) => (samples, largest) = (samples + 1, largest.max(off)),
                Ok(Err(difference)) => found.push(difference),
                Err(why) => refused = why,
            }
        }
        let rows = if found.is_empty() { self.rows(cone) } else { vec![] };
        found.extend(rows.iter().filter_map(|s| self.on(cone, s, &mut spent).ok()?.err()));
        match (told(found), samples) {
            (Some(difference), _) => Judged::Differs(difference),
            (None, 0) => Judged::Unknown(refused),
            (None, _) => Judged::Agrees { samples, largest },
        }
    }

    /// The largest relative difference on one sample, or what is wrong there.
    fn on(
        &self,
        cone: &Cone,
        sample: &Sample,
        spent: &mut f64,
    ) -> Result<Result<f64, Difference>, String> {
        let cuts: Vec<Value> = cone.cuts.iter().map(|c| self.values.definition(*c).1).collect();
        let first = self.values.programs[0];
        let inputs = self.runner.values(first, &cuts, &sample.inputs)?;
        let symbols = resources::symbols_of(first, &sample.inputs);
        let program = cone.program.bound(&|s| symbols.get(s).copied());
        let run = self.runner.run(&program, &inputs);
        let operations = resources::operations(&program, self.runner.library);
        let affordable = operations <= INTERPRETED && *spent + operations <= ALTOGETHER;
        let [truth, other] = match affordable {
            true => {
                *spent += operations;
                let truth = reference::run_values(&program, self.runner.library, &inputs)
                    .map_err(|e| e.to_string())?;
                let mut both = truth.into_iter();
                [both.next(), both.next()]
            }
            false => [None, None],
        };
        let (source, result) = match (run, &truth, &other) {
            (Ok(run), None, _) => (run[0].clone(), run[1].clone()),
            (Ok(run), _, Some(other)) => (run[0].clone(), other.to_tensor()),
            (Err(_), Some(truth), Some(other)) => (truth.to_tensor(), other.to_tensor()),
            (Err(e), _, _) => return Err(e),
            (Ok(_), Some(_), None) => return Err("the interpreter yields one value".into()),
        };
        let runs = Runs {
            truth: truth.as_ref(),
            source: &source,
            moved: None,
            disturbed: None,
            result: &result,
        };
        if source.shape() != result.shape() {
            let words = format!("shapes {:?} and {:?}", source.shape(), result.shape());
            return Ok(Err(self.shapes_differ(sample, words)));
        }
        let unit = source.dtype().unit_roundoff();
        let rule = Rule { tolerance: None, unit, is_approx: false, overflows: false };
        let verdict = selfcheck::verdict(&runs, &rule);
        match verdict.worst() {
            None => Ok(Ok(verdict.error)),
            Some(worst) => {
                let found = verdict.wrong.len();
                Ok(Err(difference(&sample.name, &source, worst, found)))
            }
        }
    }

    fn shapes_differ(&self, sample: &Sample, words: String) -> Difference {
        Difference {
            inputs: sample.name.clone(),
            differs_on: vec![],
            element: 0,
            a: f64::NAN,
            b: f64::NAN,
            absolute: None,
            relative: None,
            units: None,
            elements: 0,
            of: 0,
            words: format!("{words} on {}", sample.name),
        }
    }

    /// Samples whose integers select the row in which two tables of constants differ.
    fn rows(&self, cone: &Cone) -> Vec<Sample> {
        let Some(first) = self.numbers.samples.first() else { return vec![] };
        if !first.inputs.iter().any(|t| t.dtype().is_int()) {
            return vec![];
        }
        let rows = changed_constants(cone).into_iter().filter_map(|c| {
            let shape = c.shape.first().copied().filter(|_| c.shape.len() > 1)?;
            let row = c.element / (c.of / shape.max(1)).max(1);
            let row = i64::try_from(row).ok()?;
            let inputs = selfcheck::with_integers(&first.inputs, row);
            Some(Sample { name: format!("standard normal, integers {row}"), inputs })
        });
        rows.collect()
    }
}

/// The first of several differences at which a value is not finite, else the first: inputs come in the order of what they say.
fn told(found: Vec<Difference>) -> Option<Difference> {
    let differs_on: Vec<String> = found.iter().map(|d| d.inputs.clone()).collect();
    let at = found.iter().position(|d| d.absolute.is_none()).unwrap_or(0);
    let told = found.into_iter().nth(at)?;
    Some(Difference { differs_on, ..told })
}

/// Two constants in each other's place.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub nodes: [NodeId; 2],
    pub shape: Vec<usize>,
    /// The element that differs most, and its values.
    pub element: usize,
    pub values: (f64, f64),
    /// Elements that differ, of so many.
    pub elements: usize,
    pub of: usize,
}

/// Pairs of constants of one type that only one of the two values is computed from, in order.
pub(super) fn changed_constants(cone: &Cone) -> Vec<Changed> {
    let [of_a, mut of_b] = cone.own_constants();
    let tensor = |id: NodeId| cone.program.as_const(Value { node: id, output: 0 });
    let mut out = Vec::new();
    for a in of_a {
        let Some(x) = tensor(a).filter(|t| t.unread().is_none() && t.dtype() != DType::Str) else {
            continue;
        };
        let alike = |t: &Tensor| (t.dtype(), t.shape()) == (x.dtype(), x.shape());
        let Some(at) = of_b.iter().position(|b| tensor(*b).is_some_and(alike)) else { continue };
        let b = of_b.remove(at);
        let Some(y) = tensor(b).filter(|t| t.unread().is_none()) else { continue };
        let pairs = x.to_f64().into_iter().zip(y.to_f64()).enumerate();
        let off = |x: f64, y: f64| if x == y { 0.0 } else { (x - y).abs() };
        let differ: Vec<_> = pairs.filter(|(_, (x, y))| off(*x, *y) > 0.0).collect();
        let worst = differ.iter().max_by(|p, q| off(p.1.0, p.1.1).total_cmp(&off(q.1.0, q.1.1)));
        if let Some((element, values)) = worst.copied() {
            let (elements, of, shape) = (differ.len(), x.len(), x.shape().to_vec());
            out.push(Changed { nodes: [a, b], shape, element, values, elements, of });
        }
    }
    out
}

/// The difference at the worst element.
pub(super) fn difference(
    inputs: &str,
    source: &Tensor,
    worst: &Finding,
    elements: usize,
) -> Difference {
    let a = worst.truth.unwrap_or(worst.source);
    let b = worst.result;
    let finite = a.is_finite() && b.is_finite();
    let absolute = finite.then(|| (a - b).abs());
    let relative = absolute
        .map(|off| off / a.abs().max(f64::MIN_POSITIVE))
        .filter(|v| v.is_finite() && a != 0.0);
    let units = absolute
        .filter(|_| source.dtype().is_float())
        .map(|off| off / last_place(source.dtype(), a));
    let mut words = format!(
        "{} of {} elements differ on {inputs}; element {} is {a:?} in the first and {b:?} in the second",
        elements,
        source.len(),
        worst.at
    );
    if let Some(off) = absolute {
        words.push_str(&format!(", {off:.1e} apart"));
    }
    if let Some(part) = relative {
        words.push_str(&format!(" ({part:.1e} of it"));
        words
            .push_str(&units.map_or(")".into(), |u| format!(", {u:.1e} units of the last place)")));
    }
    Difference {
        inputs: inputs.to_string(),
        differs_on: vec![],
        element: worst.at,
        a,
        b,
        absolute,
        relative,
        units,
        elements,
        of: source.len(),
        words,
    }
}

/// The distance of a number from the next one of its type.
pub(super) fn last_place(dtype: DType, v: f64) -> f64 {
    let least = match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 6.1e-5,
        _ => f32::MIN_POSITIVE.into(),
    };
    let power = v.abs().max(least).log2().floor();
    2.0 * dtype.unit_roundoff() * power.exp2()
}

/// How far the outputs of two programs are apart.
#[derive(Clone, Debug, Serialize)]
pub struct OutputDifference {
    /// Its name.
    pub output: String,
    /// The inputs on which they are furthest apart.
    pub inputs: String,
    /// As a part of the output's largest element; `None` if one is not finite where the other is.
    pub relative: Option<f64>,
}

/// For each output where both models, run as they are, are furthest apart.
pub(super) fn outputs(program: &Program, numbers: &Numbers) -> Vec<OutputDifference> {
    let mut out = Vec::new();
    for (i, (name, _)) in program.outputs.iter().enumerate() {
        let mut worst: Option<OutputDifference> = None;
        for (sample, [a, b]) in numbers.samples.iter().zip(&numbers.outputs) {
            let relative = selfcheck::difference(&a[i], &b[i]).ok();
            let size = |r: Option<f64>| r.unwrap_or(f64::INFINITY);
            if worst.as_ref().is_none_or(|w| size(relative) > size(w.relative)) {
                let inputs = sample.name.clone();
                worst = Some(OutputDifference { output: name.clone(), inputs, relative });
            }
        }
        out.extend(worst);
    }
    out
}
