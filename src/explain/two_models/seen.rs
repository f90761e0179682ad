//! What the page of a comparison is drawn from, beside what is told: both programs, who belongs to whom, and the proofs.

use super::linked::Links;
use super::numbers;
use super::prove::Proved;
use crate::model::Model;
use mlc_dsl::ir::{Program, Tensor, Value};
use serde::Serialize;
use std::fmt;

/// Both models, as they were held against each other.
pub(in crate::explain) struct Seen {
    pub models: [Model; 2],
    pub programs: [Program; 2],
    pub links: Links,
    /// A value of the first, the one of the second, and why they are equal.
    pub proofs: Vec<(Value, Value, Proved)>,
    /// The values of each place.
    pub places: Vec<(Value, Value)>,
    pub samples: Vec<Sample>,
}

impl Seen {
    /// What the models call themselves.
    pub fn names(&self) -> [String; 2] {
        let [a, b] = &self.models;
        let name = |m: &Model, other: &str| match m.info() {
            Some(info) if !info.graph_name.is_empty() => info.graph_name.clone(),
            _ => other.to_string(),
        };
        [name(a, "first"), name(b, "second")]
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("models", &self.models).finish_non_exhaustive()
    }
}

/// Inputs on which both models were run.
#[derive(Clone, Debug, Serialize)]
pub(in crate::explain) struct Sample {
    pub name: String,
    pub inputs: Vec<Numbers>,
}

/// An input, in short.
#[derive(Clone, Debug, Serialize)]
pub(in crate::explain) struct Numbers {
    pub name: String,
    pub ty: String,
    /// The first elements, for people.
    pub first: String,
    pub least: f64,
    pub most: f64,
}

/// Elements that are shown.
const FIRST: usize = 6;

impl Sample {
    pub(super) fn of(sample: &numbers::Sample, program: &Program) -> Sample {
        let named = program.inputs.iter().zip(&sample.inputs);
        let inputs = named.map(|((name, _), t)| Numbers::of(name, t)).collect();
        Sample { name: sample.name.clone(), inputs }
    }
}

impl Numbers {
    fn of(name: &str, t: &Tensor) -> Numbers {
        let all = (0..t.len()).map(|i| t.get_f64(i));
        let mut first: Vec<String> = all.clone().take(FIRST).map(shown).collect();
        if t.len() > FIRST {
            first.push("…".into());
        }
        let extents: Vec<String> = t.shape().iter().map(ToString::to_string).collect();
        let finite = all.filter(|v| v.is_finite());
        Numbers {
            name: name.to_string(),
            ty: format!("{}[{}]", t.dtype(), extents.join(", ")),
            first: first.join(", "),
            least: finite.clone().reduce(f64::min).unwrap_or(0.0),
            most: finite.reduce(f64::max).unwrap_or(0.0),
        }
    }
}

/// A number in few digits.
fn shown(v: f64) -> String {
    match v == v.trunc() && v.abs() < 1e9 {
        true => format!("{v}"),
        false => format!("{v:.3}"),
    }
}
