//! The report of the self-check, as text and as JSON.

use super::by_nodes::ByNodes;
use super::verdict::{Verdict, difference};
use mlc_dsl::ir::Tensor;
use mlc_verify::random_inputs::Style;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Inputs of a check.
#[derive(Clone, Debug)]
pub struct InputSet {
    /// For people.
    pub name: String,
    /// How they were drawn; `None` for the user's own.
    pub style: Option<Style>,
    /// One tensor per input.
    pub inputs: Vec<Tensor>,
    /// What the symbols are, if not what they usually are.
    pub extents: BTreeMap<String, i64>,
    /// Estimated operations of one run of the model.
    pub work: f64,
}

/// What roundings become in a model.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// What was moved.
    pub moved: String,
    /// By how many units of roundoff.
    pub units: f64,
    /// The output that moves most.
    pub output: String,
    /// How far, as a part of its largest element; of integers and truth values the part of elements that change. `None` if its
    /// shape changes.
    pub change: Option<f64>,
    /// How many times as far as what was moved.
    pub times: Option<f64>,
    /// True if that is more than regrouped sums explain.
    pub amplifies: bool,
}

impl Sensitivity {
    /// One line for people; empty if there is nothing to tell.
    pub fn human(&self) -> String {
        if !self.amplifies {
            return String::new();
        }
        let (moved, units, output) = (&self.moved, self.units, &self.output);
        let what = match (self.change, self.times) {
            (Some(change), Some(times)) => {
                format!(
                    "changes output `{output}` by {change:.1e} of its largest element, {times:.0e} times as much"
                )
            }
            (Some(change), None) => format!("changes {:.2} % of output `{output}`", 100.0 * change),
            (None, _) => format!("changes the shape of output `{output}`"),
        };
        format!(
            "the model amplifies rounding: moving {moved} by {units} units of roundoff {what}; runtimes differ there by themselves"
        )
    }
}

/// What was compared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SelfCheck {
    /// Estimated operations of one run of the model.
    pub operations: f64,
    /// The input sets, in the order they ran.
    pub sets: Vec<InputSetReport>,
    /// Input sets that the model's size does not allow.
    pub left_out: Vec<String>,
    /// Why nothing could be compared; `None` if something was.
    pub not_checked: Option<String>,
    /// The values that the symbols of the model had.
    pub symbols: BTreeMap<String, i64>,
    /// How far the model carries roundings; `None` if that was not looked at.
    pub sensitivity: Option<Sensitivity>,
    /// How the program as read was held against the operators of its file.
    pub by_nodes: Option<ByNodes>,
    /// Bytes that a run of the model takes on its first inputs, weights aside.
    pub bytes: u64,
    /// Largest difference between the outputs of model and result, relative to an output's largest
    /// element, on ordinary inputs and the user's; `None` if neither ran.
    pub error: Option<f64>,
}

/// What the result was held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The model as read: the result has its bits.
    Bits,
    /// The f64 interpreter.
    Reference,
    /// The model as read: the interpreter would take too long.
    #[default]
    Model,
}

/// One input set.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputSetReport {
    /// Its name.
    pub name: String,
    /// What the symbols were, if not what they are for all sets.
    pub extents: BTreeMap<String, i64>,
    /// What the result was held against.
    pub against: Against,
    /// Largest distance from that, relative to an output's largest element.
    pub error: f64,
    /// The same of the model as read; only where the f64 interpreter ran.
    pub source_error: f64,
    /// Elements of all outputs that were compared.
    pub compared: usize,
    /// Elements that tell nothing, as the model itself overflows or loses all digits there.
    pub void: usize,
    /// Why the set was not used.
    pub unused: Option<String>,
}

impl InputSetReport {
    /// A set on which the model itself fails.
    pub(super) fn unused(set: &InputSet, why: String) -> InputSetReport {
        let (name, extents) = (set.name.clone(), set.extents.clone());
        InputSetReport { name, extents, unused: Some(why), ..InputSetReport::default() }
    }
}

impl SelfCheck {
    /// Adds what the outputs of a set show.
    pub(super) fn add(
        &mut self,
        set: &InputSet,
        against: Against,
        verdicts: &[Verdict],
        s: &[Tensor],
        r: &[Tensor],
    ) {
        let most = |f: &dyn Fn(&Verdict) -> f64| verdicts.iter().map(f).fold(0.0, f64::max);
        let sum = |f: &dyn Fn(&Verdict) -> usize| verdicts.iter().map(f).sum();
        self.sets.push(InputSetReport {
            name: set.name.clone(),
            extents: set.extents.clone(),
            against,
            error: most(&|v| v.error),
            source_error: most(&|v| v.source_error),
            compared: sum(&|v| v.compared),
            void: sum(&|v| v.void),
            unused: None,
        });
        if matches!(set.style, None | Some(Style::Ordinary)) {
            let between = |(a, b): (&Tensor, &Tensor)| difference(a, b).unwrap_or(0.0);
            let error = s.iter().zip(r).map(between).fold(0.0, f64::max);
            self.error = Some(self.error.unwrap_or(0.0).max(error));
        }
    }

    /// The extents that were tried, by symbol.
    fn extents(&self, used: &[&InputSetReport]) -> String {
        let mut tried: BTreeMap<&String, BTreeSet<i64>> = BTreeMap::new();
        let usual = self.symbols.iter();
        for (s, &n) in usual.chain(used.iter().flat_map(|u| &u.extents)) {
            tried.entry(s).or_default().insert(n);
        }
        let of = |(s, all): (&&String, &BTreeSet<i64>)| {
            let all: Vec<String> = all.iter().map(i64::to_string).collect();
            format!("{s} {}", all.join(" "))
        };
        let all: Vec<String> = tried.iter().map(of).collect();
        if all.is_empty() { String::new() } else { format!("; extents: {}", all.join(", ")) }
    }

    /// All that is told to people.
    pub fn lines(&self) -> Vec<String> {
        let by_nodes = self.by_nodes.iter().map(ByNodes::human);
        let sensitivity = self.sensitivity.iter().map(Sensitivity::human);
        let more = by_nodes.chain(sensitivity.filter(|s| !s.is_empty()));
        std::iter::once(self.human()).chain(more).collect()
    }

    /// One line for people.
    pub fn human(&self) -> String {
        if let Some(why) = &self.not_checked {
            return format!("not checked: {}", why.lines().next().unwrap_or_default());
        }
        let used: Vec<&InputSetReport> = self.sets.iter().filter(|s| s.unused.is_none()).collect();
        let mut out = match self.error {
            Some(e) => format!("largest relative error {e:.1e}; "),
            None => String::new(),
        };
        let _ = write!(out, "{} input sets:", used.len());
        let count = |a: Against| used.iter().filter(|s| s.against == a).count();
        let kinds = [
            (Against::Bits, "the same bits"),
            (Against::Reference, "held against f64"),
            (Against::Model, "held against the model"),
        ];
        let counts = kinds.iter().map(|(a, name)| (count(*a), name)).filter(|(n, _)| *n > 0);
        let counts: Vec<String> = counts.map(|(n, name)| format!("{n} {name}")).collect();
        let _ = write!(out, " {}", counts.join(", "));
        let void = used.iter().filter(|s| s.compared == 0).count();
        if void > 0 {
            let _ = write!(out, ", {void} tell nothing as the model itself overflows");
        }
        let unused = self.sets.len() - used.len();
        if unused > 0 {
            let _ = write!(out, ", {unused} that the model does not run on");
        }
        out.push_str(&self.extents(&used));
        if !self.left_out.is_empty() {
            let _ = write!(
                out,
                "; {} left out, as a run takes {:.1e} operations and {}",
                self.left_out.len(),
                self.operations,
                mlc_dsl::diagnostics::message_text::bytes(self.bytes)
            );
        }
        out
    }
}

/// A law that the guard turned off, and the values that it was found by.
#[derive(Clone, Debug, Serialize)]
pub struct TurnedOff {
    /// Its name.
    pub law: String,
    /// The body of control flow that it was turned off in.
    pub within: Option<String>,
    /// The output of the model that was wrong.
    pub output: String,
    /// The inputs that showed it.
    pub input_set: String,
    /// Position of the worst element in row-major order.
    pub element: Option<usize>,
    /// Its value as the model has it.
    pub source: String,
    /// Its value as the result had it.
    pub result: String,
    /// Its value in f64, where that was computed.
    pub reference: Option<String>,
    /// Its error relative to the output's largest element; `None` where it is another kind of number.
    pub error: Option<f64>,
    /// What the law replaced.
    pub left: String,
    /// By what.
    pub right: String,
}

impl TurnedOff {
    /// Two lines for people.
    pub fn human(&self) -> String {
        let reference = self.reference.as_ref().map_or(String::new(), |j| format!(", f64 {j}"));
        let error = self.error.map_or(String::new(), |e| format!(", a relative error of {e:.1e}"));
        let element = self.element.map_or(String::new(), |i| format!(" element {i}:"));
        let within = self.within.as_ref().map_or(String::new(), |b| format!(" in {b}"));
        format!(
            "law `{}`{within}: output `{}`, {}:{element} {} in place of {}{reference}{error}\n{} => {}",
            self.law, self.output, self.input_set, self.result, self.source, self.left, self.right
        )
    }
}
