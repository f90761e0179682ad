//! What is known of declarations from reports of other commands: of laws from `check`, of use in models from `optimize`.
//!
//! A report that has not the form of these commands is an error; what it does not speak of is not told.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A report of `check`, as far as it is told.
#[derive(Deserialize)]
struct Checked {
    laws: Vec<Law>,
}

#[derive(Deserialize)]
struct Law {
    file: String,
    line: usize,
    verdict: Verdict,
}

#[derive(Deserialize)]
struct Verdict {
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum Outcome {
    Holds { samples: usize, damage: Vec<RoundingError>, needed: Vec<String>, exactness: Exactness },
    Fails {},
    NoSample { reason: String },
}

#[derive(Clone, Deserialize)]
struct RoundingError {
    dtype: String,
    /// Null where it is no number.
    left: Option<f64>,
    right: Option<f64>,
    growth: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum Exactness {
    Everywhere,
    Proved { bits: u32, instances: usize },
    Shared {},
    Defined,
    Sampled { reason: String },
}

/// What `check` found, by where a law is declared.
#[derive(Default)]
pub struct Evidence {
    laws: BTreeMap<(String, usize), Vec<Law>>,
}

impl Evidence {
    /// Of a report.
    ///
    /// # Errors
    /// It is none of `check`.
    pub fn read(json: &str) -> Result<Evidence, serde_json::Error> {
        let checked: Checked = serde_json::from_str(json)?;
        let mut laws: BTreeMap<_, Vec<Law>> = BTreeMap::new();
        for law in checked.laws {
            laws.entry((law.file.clone(), law.line)).or_default().push(law);
        }
        Ok(Evidence { laws })
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.laws.is_empty()
    }

    /// What is known of the laws of the declaration that begins on a line of a text, as lines of a list.
    pub fn told(&self, file: &str, line: usize) -> Vec<String> {
        let Some(laws) = self.laws.get(&(file.to_string(), line)) else { return vec![] };
        let mut grounds: BTreeMap<String, usize> = BTreeMap::new();
        let mut needed = BTreeSet::new();
        let mut worst: BTreeMap<&str, &RoundingError> = BTreeMap::new();
        for law in laws {
            *grounds.entry(ground(&law.verdict.outcome)).or_default() += 1;
            let Outcome::Holds { damage, needed: conditions, .. } = &law.verdict.outcome else {
                continue;
            };
            needed.extend(conditions.iter().map(|c| format!("`{c}`")));
            for error in damage {
                let known = worst.entry(&error.dtype).or_insert(error);
                if error.growth > known.growth {
                    *known = error;
                }
            }
        }
        let of = |(ground, n): (String, usize)| match laws.len() {
            1 => ground,
            all => format!("{ground} ({n} of {all} laws)"),
        };
        let grounds: Vec<String> = grounds.into_iter().map(of).collect();
        let mut out = vec![format!("known by: {}", grounds.join("; "))];
        if !worst.is_empty() {
            let errors: Vec<String> = worst.into_values().map(error).collect();
            out.push(format!("largest rounding error, left and right side: {}", errors.join("; ")));
        }
        if !needed.is_empty() {
            let needed: Vec<String> = needed.into_iter().collect();
            out.push(format!("conditions that are needed: {}", needed.join(", ")));
        }
        out
    }
}

fn ground(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Fails {} => "**it is false**".into(),
        Outcome::NoSample { reason } => format!("**it can never match**: {reason}"),
        Outcome::Holds { samples, exactness, .. } => match exactness {
            Exactness::Everywhere => "a proof for every rank and size".into(),
            Exactness::Proved { bits, instances } => {
                format!("a proof for the {instances} ranks and sizes tried (error below 2^-{bits})")
            }
            Exactness::Shared {} => "another law of its schema, which shows it".into(),
            Exactness::Defined => "definition".into(),
            Exactness::Sampled { reason } => format!("{samples} samples ({reason})"),
        },
    }
}

fn error(e: &RoundingError) -> String {
    let number = |n: Option<f64>| n.map_or("not finite".to_string(), |n| format!("{n:.1e}"));
    format!("{} and {} in `{}`", number(e.left), number(e.right), e.dtype)
}

/// A report of `optimize`, as far as it is told.
#[derive(Deserialize)]
struct Optimized {
    proof: BTreeMap<String, usize>,
}

/// Which laws the results of which models rest on.
#[derive(Default)]
pub struct Uses {
    models: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Uses {
    /// Adds a report on a model of this name.
    ///
    /// # Errors
    /// It is none of `optimize`.
    pub fn add(&mut self, model: &str, json: &str) -> Result<(), serde_json::Error> {
        let report: Optimized = serde_json::from_str(json)?;
        for (law, count) in report.proof {
            *self.models.entry(law).or_default().entry(model.to_string()).or_default() += count;
        }
        Ok(())
    }

    /// The models whose results rest on one of these laws, in the order of their names; empty if none is known.
    pub fn told<'n>(&self, laws: impl IntoIterator<Item = &'n str>) -> String {
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        for law in laws {
            for (model, count) in self.models.get(law).into_iter().flatten() {
                *all.entry(model).or_default() += count;
            }
        }
        let mut out = String::new();
        for (model, count) in all {
            let comma = if out.is_empty() { "" } else { ", " };
            let _ = write!(out, "{comma}{model} ({count})");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"version": 1, "laws": [
        {"law": "a", "file": "f", "line": 3, "class": "reorder", "verdict": {"outcome": {"is": "holds", "samples": 250, "void": 0,
          "damage": [{"dtype": "f32", "left": 1e-8, "right": 2e-7, "growth": 4.0}], "needed": ["k > 0"], "refuting": [],
          "exactness": {"is": "everywhere"}}, "warnings": []}},
        {"law": "a.rev", "file": "f", "line": 3, "class": "reorder", "verdict": {"outcome": {"is": "no_sample", "reason": "r"},
          "warnings": []}}]}"#;

    #[test]
    fn laws_of_one_declaration_are_told_together() {
        let evidence = Evidence::read(REPORT).expect("a report");
        let told = evidence.told("f", 3);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("a proof for every rank and size (1 of 2 laws)"), "{told:?}");
        assert!(told[1].contains("1.0e-8 and 2.0e-7 in `f32`"), "{told:?}");
        assert!(told[2].ends_with("`k > 0`"), "{told:?}");
        assert!(evidence.told("f", 4).is_empty());
        assert!(Evidence::read("{}").is_err());
    }

    #[test]
    fn models_are_told_with_their_equations() {
        let mut uses = Uses::default();
        uses.add("b", r#"{"proof": {"a": 2, "c": 1}}"#).expect("a report");
        uses.add("a", r#"{"proof": {"a": 1}}"#).expect("a report");
        assert_eq!(uses.told(["a", "c"]), "a (1), b (3)");
        assert_eq!(uses.told(["x"]), "");
    }
}
