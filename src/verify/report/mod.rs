//! Counterexamples and reports, as text and as JSON.

pub(crate) mod counterexample_model;
pub(crate) mod shrink;

use super::compare::{BrokenPromise, Mismatch, Sample};
use super::law::facts::LawFacts;
use super::{CounterexampleModel, Outcome, Verdict};
use crate::conditions::infer::Proposal;
use crate::proof::identity_testing::Exactness;
use mlc_backends::reference::Array;
use mlc_dsl::diagnostics::{Code, Diag, Severity, render};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::{Law, LawOrigin, Library};
use serde::Serialize;
use std::fmt::Write;

/// A tensor as text; numbers are words, because JSON has no NaN.
#[derive(Clone, Debug, Serialize)]
pub struct TensorText {
    /// The variable of the law.
    pub name: String,
    /// As the language writes it, such as `f32`.
    pub dtype: String,
    /// Extents of the sample.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub values: Vec<String>,
}

/// An instance of a law on which its sides differ.
#[derive(Clone, Debug, Serialize)]
pub struct Counterexample {
    /// Which promise is broken, in one sentence.
    pub broken: String,
    /// Axes and segments.
    pub extents: Vec<(String, String)>,
    /// Attribute variables.
    pub attributes: Vec<(String, String)>,
    /// Element type variables.
    pub dtypes: Vec<(String, String)>,
    /// The variables' values.
    pub inputs: Vec<TensorText>,
    /// The output that differs.
    pub output: String,
    /// What the left side yields there.
    pub left: Option<TensorText>,
    /// What the right side yields there.
    pub right: Option<TensorText>,
    /// Where the first differing element lies.
    pub at: Vec<usize>,
    /// The two elements there.
    pub values: Option<(String, String)>,
    /// Their difference relative to the larger.
    pub relative: Option<f64>,
    /// A condition that excludes all counterexamples of the law.
    pub holds_when: Option<Proposal>,
    /// The sides differ as functions, not only by rounding.
    pub in_f64: bool,
    /// The sides are one function of real numbers; the working type breaks them.
    pub numerical: bool,
    /// The same as a model that can be run.
    #[serde(skip)]
    pub case: CounterexampleModel,
}

fn number(v: f64) -> String {
    if v == v.trunc() && v.abs() < 1e15 { format!("{v:.0}") } else { format!("{v:?}") }
}

fn tensor_text(name: &str, t: &Tensor) -> TensorText {
    let values = if t.dtype().is_float() {
        t.to_f64().into_iter().map(number).collect()
    } else {
        t.to_i64().iter().map(i64::to_string).collect()
    };
    let (dtype, shape) = (t.dtype().to_string(), t.shape().to_vec());
    TensorText { name: name.to_string(), dtype, shape, values }
}

fn array_text(name: &str, a: &Array) -> TensorText {
    let values = match (a.floats(), a.ints()) {
        (Some(v), _) => v.iter().copied().map(number).collect(),
        (None, Some(v)) => v.iter().map(i64::to_string).collect(),
        (None, None) => vec![],
    };
    let (dtype, shape) = (a.dtype().to_string(), a.shape().to_vec());
    TensorText { name: name.to_string(), dtype, shape, values }
}

/// One entry, or one per member of a family.
fn per_member<T>(list: &[T], text: impl Fn(&T) -> String) -> String {
    list.iter().map(text).collect::<Vec<_>>().join(" and ")
}

impl Counterexample {
    pub(super) fn of(facts: &LawFacts, sample: &Sample, mismatch: &Mismatch) -> Counterexample {
        let draft = &sample.instance.draft;
        let program = &sample.instance.program;
        let axes = draft.axes.iter().map(|(n, v)| (n.to_string(), per_member(v, i64::to_string)));
        let segs =
            draft.segs.iter().map(|(n, v)| (format!("..{n}"), per_member(v, |s| format!("{s:?}"))));
        let inputs = program.inputs.iter().zip(&sample.inputs);
        let output =
            program.outputs.get(mismatch.output).map(|(n, _)| n.clone()).unwrap_or_default();
        let broken = match mismatch.broken {
            BrokenPromise::Types => format!("the types differ: {}", mismatch.message),
            BrokenPromise::Undefined => format!(
                "the law fires where these extents are open, but here the right side is not defined: {}",
                mismatch.message
            ),
            BrokenPromise::Fails => format!("the right side fails: {}", mismatch.message),
            BrokenPromise::Truth => match mismatch.change() {
                Some((l, r)) if l.is_finite() != r.is_finite() => {
                    format!("the sides differ in f64: {} became {}", number(l), number(r))
                }
                _ => "the sides differ in f64".to_string(),
            },
            BrokenPromise::WorkingPrecision => mismatch.message.clone(),
            BrokenPromise::Bits if !mismatch.message.is_empty() => mismatch.message.clone(),
            BrokenPromise::Bits => {
                "the law is declared `exact`, but the bits differ where every operator \
                             is rounded to its type"
                    .to_string()
            }
        };
        let values = mismatch.change();
        let index = |shape: &[usize], mut flat: usize| -> Vec<usize> {
            let mut out = vec![0; shape.len()];
            for (slot, &d) in out.iter_mut().zip(shape).rev() {
                *slot = flat % d.max(1);
                flat /= d.max(1);
            }
            out
        };
        let at = match (&mismatch.left, mismatch.at) {
            (Some(l), Some(flat)) => index(l.shape(), flat),
            _ => vec![],
        };
        Counterexample {
            broken,
            extents: axes.chain(segs).collect(),
            attributes: draft.attrs.iter().map(|(n, a)| (n.to_string(), a.to_string())).collect(),
            dtypes: draft
                .dtypes
                .iter()
                .filter(|(n, _)| facts.dtypes.contains(n))
                .map(|(n, d)| (n.to_string(), d.to_string()))
                .collect(),
            inputs: inputs.map(|((n, _), t)| tensor_text(n, t)).collect(),
            output,
            left: mismatch.left.as_ref().map(|a| array_text("left", a)),
            right: mismatch.right.as_ref().map(|a| array_text("right", a)),
            at,
            relative: values.map(|(l, r)| (l - r).abs() / l.abs().max(r.abs())),
            values: values.map(|(l, r)| (number(l), number(r))),
            holds_when: None,
            in_f64: matches!(mismatch.broken, BrokenPromise::Truth | BrokenPromise::Fails),
            numerical: mismatch.broken == BrokenPromise::WorkingPrecision,
            case: counterexample_model::case(
                facts.library,
                &facts.law.name,
                sample,
                mismatch.broken,
            ),
        }
    }

    /// The counterexample for people, line by line.
    pub fn human(&self) -> String {
        let mut out = String::new();
        let line = |out: &mut String, head: &str, list: &[(String, String)]| {
            if !list.is_empty() {
                let list: Vec<String> = list.iter().map(|(n, v)| format!("{n} = {v}")).collect();
                let _ = writeln!(out, "  {head} {}", list.join(", "));
            }
        };
        let _ = writeln!(out, "  {}", self.broken);
        line(&mut out, "at   ", &self.extents);
        line(&mut out, "with ", &self.attributes);
        line(&mut out, "types", &self.dtypes);
        for t in self.inputs.iter().chain(&self.left).chain(&self.right) {
            let _ = writeln!(
                out,
                "  {}: {}{:?} = {}",
                t.name,
                t.dtype,
                t.shape,
                nested(&t.shape, &t.values)
            );
        }
        if let Some((l, r)) = &self.values {
            let name = if self.output.is_empty() {
                String::new()
            } else {
                format!(" of `{}`", self.output)
            };
            let relative = match self.relative {
                Some(v) if v.is_finite() => format!(" (relative difference {v:.1e})"),
                _ => String::new(),
            };
            let _ =
                writeln!(out, "  first difference at {:?}{name}: {l} and {r}{relative}", self.at);
        }
        if let Some(p) = &self.holds_when {
            let _ = writeln!(
                out,
                "  holds when `{}`: {} samples that meet it pass, {} that do not fail",
                p.condition, p.passing, p.failing
            );
        }
        out
    }
}

/// Elements in nested brackets; long tensors are cut.
fn nested(shape: &[usize], values: &[String]) -> String {
    const MOST: usize = 48;
    match shape {
        [] => values.first().cloned().unwrap_or_default(),
        [_] => {
            let shown = values.len().min(MOST);
            let more = if shown < values.len() { ", …" } else { "" };
            format!("[{}{more}]", values[..shown].join(", "))
        }
        [n, rest @ ..] => {
            let step = rest.iter().product::<usize>();
            let rows = (0..*n)
                .take(MOST)
                .map(|i| nested(rest, values.get(i * step..(i + 1) * step).unwrap_or_default()));
            format!("[{}]", rows.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A law and what is found about it.
#[derive(Clone, Debug, Serialize)]
pub struct Reported {
    /// Name of the law.
    pub law: String,
    /// The file it is written in.
    pub file: String,
    /// The line it begins on, from 1.
    pub line: usize,
    /// The error class that it declares.
    pub class: String,
    /// What is found.
    pub verdict: Verdict,
    #[serde(skip)]
    diag: Option<Diag>,
    #[serde(skip)]
    text: std::sync::Arc<str>,
}

impl Reported {
    /// What is wrong with the law, or suspicious, if anything is.
    pub fn diag(&self) -> Option<&Diag> {
        self.diag.as_ref()
    }

    /// How it is known that it holds.
    fn ground(&self) -> String {
        let Outcome::Holds(evidence) = &self.verdict.outcome else { return String::new() };
        match &evidence.exactness {
            Exactness::Everywhere => "proved for every rank and size".into(),
            Exactness::Proved { bits, .. } => {
                format!("proved for the ranks and sizes tried (error below 2^-{bits})")
            }
            Exactness::Shared { law } => format!("shown by `{law}`, of the same schema"),
            Exactness::Defined => "it says what a definition means".into(),
            Exactness::Sampled { .. } => format!("by {} samples", evidence.samples),
        }
    }

    /// Where the law is false.
    pub fn counterexample(&self) -> Option<&Counterexample> {
        match &self.verdict.outcome {
            Outcome::Fails(c) => Some(c),
            Outcome::Holds(_) | Outcome::NoSample { .. } => None,
        }
    }
}

/// What is found about a library.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Law by law, in the library's order.
    pub laws: Vec<Reported>,
    /// Laws that hold.
    pub hold: usize,
    /// Laws that are false.
    pub fail: usize,
    /// Laws that can never match.
    pub no_sample: usize,
    /// Laws that hold by definition.
    pub defined: usize,
    /// Laws that another instance of their schema shows.
    pub shared: usize,
    /// Laws that are proved for every rank and size.
    pub everywhere: usize,
    /// Laws that are proved for the ranks and sizes that were tried alone.
    pub proved: usize,
    /// The least certain proof errs with a probability below 2 to the minus this.
    pub bits: u32,
    /// Seconds it took.
    pub seconds: f64,
}

impl CheckReport {
    pub(super) fn of(
        library: &Library,
        verdicts: Vec<(&Law, Verdict)>,
        seconds: f64,
    ) -> CheckReport {
        let count =
            |f: &dyn Fn(&Outcome) -> bool| verdicts.iter().filter(|(_, v)| f(&v.outcome)).count();
        let proofs = verdicts.iter().filter_map(|(_, v)| match &v.outcome {
            Outcome::Holds(e) => match e.exactness {
                Exactness::Proved { bits, .. } => Some(bits),
                Exactness::Everywhere
                | Exactness::Defined
                | Exactness::Shared { .. }
                | Exactness::Sampled { .. } => None,
            },
            Outcome::Fails(_) | Outcome::NoSample { .. } => None,
        });
        let proofs: Vec<u32> = proofs.collect();
        let ends = |text: &str| text.match_indices('\n').map(|(at, _)| at).collect();
        let lines: Vec<Vec<usize>> = library.sources.iter().map(|s| ends(&s.text)).collect();
        let known = |o: &Outcome, by: fn(&Exactness) -> bool| match o {
            Outcome::Holds(e) => by(&e.exactness),
            Outcome::Fails(_) | Outcome::NoSample { .. } => false,
        };
        CheckReport {
            defined: count(&|o| known(o, |e| matches!(e, Exactness::Defined))),
            shared: count(&|o| known(o, |e| matches!(e, Exactness::Shared { .. }))),
            everywhere: count(&|o| known(o, |e| matches!(e, Exactness::Everywhere))),
            proved: proofs.len(),
            bits: proofs.into_iter().min().unwrap_or(0),
            hold: count(&|o| matches!(o, Outcome::Holds(_))),
            fail: count(&|o| matches!(o, Outcome::Fails(_))),
            no_sample: count(&|o| matches!(o, Outcome::NoSample { .. })),
            laws: verdicts.into_iter().map(|(law, v)| reported(library, &lines, law, v)).collect(),
            seconds,
        }
    }

    /// True if every law holds.
    pub fn sound(&self) -> bool {
        self.fail == 0 && self.no_sample == 0
    }

    /// What was found, on one line, which is the same on every machine.
    pub fn summary(&self) -> String {
        match (self.laws.as_slice(), self.hold, self.fail + self.no_sample) {
            ([one], 1, _) => format!("the law holds: {}", one.ground()),
            (_, n, 0) => format!("all {n} laws hold: {}", self.grounds()),
            (_, n, wrong) => format!("{n} of {} laws hold", n + wrong),
        }
    }

    /// The report for people: every law that does not hold or is suspicious, then the count.
    pub fn human(&self, color: bool) -> String {
        let mut out = String::new();
        for (i, r) in self.laws.iter().enumerate() {
            // A layer that cannot be applied is one mistake, not one for each of its two laws.
            let said = |other: &Reported| match (&other.diag, &r.diag) {
                (Some(a), Some(b)) => {
                    (a.code, &a.message, other.line, &other.file)
                        == (b.code, &b.message, r.line, &r.file)
                }
                _ => false,
            };
            if matches!(r.verdict.outcome, Outcome::NoSample { .. })
                && self.laws[..i].iter().any(said)
            {
                continue;
            }
            if let Some(d) = &r.diag {
                out += &render(std::slice::from_ref(d), &r.file, &r.text, color);
            }
            if let Outcome::Fails(c) = &r.verdict.outcome {
                out += &c.human();
            }
            if r.diag.is_some() {
                out.push('\n');
            }
        }
        let _ = writeln!(
            out,
            "{} laws hold, {} fail, {} can never match ({:.1} s)",
            self.hold, self.fail, self.no_sample, self.seconds
        );
        if self.hold > 0 {
            let _ = writeln!(out, "of those that hold, {}", self.grounds());
        }
        out
    }

    /// How it is known that laws hold.
    fn grounds(&self) -> String {
        let sampled = self.hold - self.defined - self.everywhere - self.proved - self.shared;
        let mut parts = Vec::new();
        if self.defined > 0 {
            parts.push(format!("{} say what a definition means", self.defined));
        }
        if self.everywhere > 0 {
            parts.push(format!("{} are proved for every rank and size", self.everywhere));
        }
        if self.proved > 0 {
            let CheckReport { proved, bits, .. } = self;
            parts.push(format!(
                "{proved} are proved for the ranks and sizes tried (error below 2^-{bits})"
            ));
        }
        if self.shared > 0 {
            parts.push(format!("{} are shown by another instance of their schema", self.shared));
        }
        if sampled > 0 {
            parts.push(format!("{sampled} rest on samples"));
        }
        parts.join(", ")
    }

    /// One row per law that is looked at by itself, as a table of Markdown.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "| law | class | worst rounding error per type (left, right, growth) | samples | exactness | needed conditions |\n\
             |---|---|---|---|---|---|\n",
        );
        let shared = |r: &&Reported| match &r.verdict.outcome {
            Outcome::Holds(e) => matches!(e.exactness, Exactness::Shared { .. }),
            Outcome::Fails(_) | Outcome::NoSample { .. } => false,
        };
        for r in self.laws.iter().filter(|r| !shared(r)) {
            let _ = writeln!(out, "{}", r.row());
        }
        out
    }
}

impl Reported {
    /// The law's row in [`CheckReport::table`].
    fn row(&self) -> String {
        let code = |list: &[String]| {
            let list: Vec<String> =
                list.iter().map(|c| format!("`{}`", c.replace('|', "\\|"))).collect();
            list.join(", ")
        };
        let (errors, samples, exactness, needed) = match &self.verdict.outcome {
            Outcome::Holds(e) => {
                let errors = e.rounding_errors.iter();
                let errors = errors.map(|d| {
                    format!("{} {:.1e}, {:.1e} ({:.0}×)", d.dtype, d.left, d.right, d.growth)
                });
                let exactness = match &e.exactness {
                    Exactness::Everywhere => "proved for every rank and size".to_string(),
                    Exactness::Proved { bits, confined, .. } => format!(
                        "proved for the ranks and sizes tried, error below 2^-{bits} ({confined})"
                    ),
                    Exactness::Defined => "by definition".to_string(),
                    Exactness::Shared { law } => format!("as `{law}`"),
                    Exactness::Sampled { reason } => format!("samples: {reason}"),
                };
                let errors = errors.collect::<Vec<_>>().join("; ");
                (errors, e.samples.to_string(), exactness, code(&e.needed))
            }
            Outcome::Fails(_) => (String::new(), String::new(), "false".into(), String::new()),
            Outcome::NoSample { .. } => {
                (String::new(), "0".into(), "never matches".into(), String::new())
            }
        };
        format!(
            "| `{}` | {} | {errors} | {samples} | {exactness} | {needed} |",
            self.law, self.class
        )
    }
}

/// `lines` has the ends of each source's lines.
fn reported(library: &Library, lines: &[Vec<usize>], law: &Law, verdict: Verdict) -> Reported {
    let (number, start) = (law.source.file as usize, law.source.span.start as usize);
    let source = library.sources.get(number);
    let text = source.map(|s| s.text.clone()).unwrap_or_else(|| "".into());
    let before = lines.get(number).map_or(0, |ends| ends.partition_point(|end| *end < start));
    Reported {
        law: law.name.to_string(),
        file: source.map(|s| s.name.clone()).unwrap_or_default(),
        line: before + 1,
        class: law.error.to_string(),
        diag: diagnostic(law, &verdict),
        verdict,
        text,
    }
}

/// What to write instead.
fn help(c: &Counterexample) -> String {
    let mut help = match &c.holds_when {
        Some(p) => format!("with `if {}` no sample speaks against it", p.condition),
        None if c.numerical => {
            "add the `if` condition that excludes this, such as `within(x, low, high)`".into()
        }
        None => "add the `if` condition that excludes this, or correct the law".to_string(),
    };
    if c.numerical {
        help += "; or declare how far it strays: `error approx(abs=…, rel=…)`";
    }
    help
}

/// The diagnostic of a law that does not hold, or the warnings of one that does.
fn diagnostic(law: &Law, verdict: &Verdict) -> Option<Diag> {
    let (code, severity, message, help) = match &verdict.outcome {
        Outcome::Fails(c) => (
            "V001",
            Severity::Error,
            format!("the law `{}` is false: {}", law.name, c.broken),
            Some(help(c)),
        ),
        Outcome::NoSample { reason } => (
            "V002",
            Severity::Error,
            match law.origin {
                LawOrigin::Rule | LawOrigin::Reverse => {
                    format!("the law `{}` can never match", law.name)
                }
                LawOrigin::Fold | LawOrigin::Unfold => {
                    format!(
                        "the layer `{}` can never be applied",
                        law.name.trim_end_matches(".rev")
                    )
                }
            },
            Some(match reason.as_str() {
                "" => "no extents and attributes were found that its conditions admit".to_string(),
                reason => format!("what refuses its samples: {reason}"),
            }),
        ),
        Outcome::Holds(_) if verdict.warnings.is_empty() => return None,
        Outcome::Holds(_) => {
            let message = format!("the law `{}` holds, but is suspicious", law.name);
            ("V003", Severity::Warning, message, Some(verdict.warnings.join("\n")))
        }
    };
    let mut d = Diag::error(Code(code), message, law.source.span);
    d.severity = severity;
    d.help = help;
    Some(d)
}
