//! Why: which laws turned a model into its optimised form, where, and what that gains.

use crate::explore::{Explored, Extracted, ProofStep, Reason};
use crate::pipeline::Optimized;
use mlc_dsl::ir::{NodeKind, Program, Type};
use mlc_dsl::library::{ErrorClass, Law, LawOrigin, Library};
use mlc_extract::target::TargetPrices;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The name of a reason: a law's, or what the tool does by itself.
pub fn reason(library: &Library, reason: Reason) -> String {
    match reason {
        Reason::Law(i) => library.laws[i as usize].name.to_string(),
        Reason::ConstantFolding => "(constant folding)".into(),
        Reason::UniformConstant => "(uniform constant)".into(),
        Reason::Definition => "(definition)".into(),
    }
}

/// An explanation of one optimisation.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Estimated seconds before and after.
    pub cost: (f64, f64),
    /// Planned bytes of buffers before and after, if extents are known.
    pub peak_bytes: Option<(u64, u64)>,
    /// Bytes of constants before and after.
    pub weights_bytes: (u64, u64),
    /// The laws that the result rests on.
    pub laws: Vec<LawUse>,
    /// Operators by name: how many before and after, at which estimated seconds.
    pub operators: BTreeMap<String, Change>,
}

/// One law's part.
#[derive(Clone, Debug, Serialize)]
pub struct LawUse {
    /// Its name.
    pub law: String,
    /// The first line of its documentation.
    pub doc: String,
    /// Its error class.
    pub error: String,
    /// Equations of the proof that it gives.
    pub equations: usize,
    /// Some of these equations: what was there, what it equals.
    pub examples: Vec<(String, String)>,
}

/// How much of an operator there is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Change {
    /// Applications before.
    pub before: usize,
    /// Applications after.
    pub after: usize,
    /// Estimated seconds before.
    pub seconds_before: f64,
    /// Estimated seconds after.
    pub seconds_after: f64,
}

/// Examples shown per law.
const EXAMPLES: usize = 3;

/// Explains what was done, at the prices it was chosen by.
pub fn explain(o: &Optimized, library: &Library, prices: &TargetPrices<'_>) -> Explanation {
    let mut laws: BTreeMap<String, LawUse> = BTreeMap::new();
    for step in proof(&o.explored, &o.extracted) {
        let name = reason(library, step.reason);
        let entry =
            laws.entry(name.clone()).or_insert_with(|| describe(library, step.reason, name));
        entry.equations += 1;
        if entry.examples.len() < EXAMPLES {
            entry.examples.push((o.explored.term(step.left), o.explored.term(step.right)));
        }
    }
    let mut laws: Vec<LawUse> = laws.into_values().collect();
    laws.sort_by(|a, b| b.equations.cmp(&a.equations).then(a.law.cmp(&b.law)));
    let mut operators: BTreeMap<String, Change> = BTreeMap::new();
    tally(&o.source, library, prices, &mut |name, s| {
        let c = operators.entry(name).or_default();
        c.before += 1;
        c.seconds_before += s;
    });
    tally(&o.program, library, prices, &mut |name, s| {
        let c = operators.entry(name).or_default();
        c.after += 1;
        c.seconds_after += s;
    });
    let r = &o.report;
    Explanation {
        cost: (r.cost_before, r.cost_after),
        peak_bytes: r.peak_bytes_before.zip(r.peak_bytes),
        weights_bytes: (r.weights_bytes_before, r.weights_bytes),
        laws,
        operators,
    }
}

/// The equations that the result rests on, in the order they were found.
pub fn proof(explored: &Explored, extracted: &Extracted) -> Vec<ProofStep> {
    explored.prove(extracted).map(|p| p.steps).unwrap_or_default()
}

fn describe(library: &Library, reason: Reason, law: String) -> LawUse {
    let (doc, error) = match reason {
        Reason::Law(i) => {
            let l = &library.laws[i as usize];
            (l.doc.first().cloned().unwrap_or_default(), class(l.error))
        }
        Reason::ConstantFolding => {
            ("What only constants feed is evaluated.".into(), "exact".into())
        }
        Reason::UniformConstant => {
            ("A constant whose elements are equal is a scalar, broadcast.".into(), "exact".into())
        }
        Reason::Definition => ("A layer is its definition.".into(), "exact".into()),
    };
    LawUse { law, doc, error, equations: 0, examples: vec![] }
}

/// An error class as it is written.
pub fn class(e: ErrorClass) -> String {
    match e {
        ErrorClass::Exact => "exact".into(),
        ErrorClass::Reorder => "reorder".into(),
        ErrorClass::Approx { abs, rel } => format!("approx(abs={abs:e}, rel={rel:e})"),
    }
}

fn tally(
    p: &Program,
    library: &Library,
    prices: &TargetPrices<'_>,
    f: &mut dyn FnMut(String, f64),
) {
    for n in &p.nodes {
        if let NodeKind::Apply(call, attrs) = &n.kind {
            let args: Vec<&Type> = n.args.iter().map(|&a| p.ty(a)).collect();
            let s = prices.alone(*call, attrs, &args, &n.types).unwrap_or(0.0);
            f(library.call(*call).name.to_string(), s);
        }
    }
}

impl Explanation {
    /// For people.
    pub fn human(&self) -> String {
        let mut out = String::new();
        let (before, after) = self.cost;
        let _ = writeln!(
            out,
            "estimated cost {} -> {} ({:.2} of the original)",
            seconds(before),
            seconds(after),
            if before > 0.0 { after / before } else { 1.0 }
        );
        if let Some((before, after)) = self.peak_bytes {
            let _ = writeln!(out, "peak memory {} -> {}", bytes(before), bytes(after));
        }
        let (before, after) = self.weights_bytes;
        let _ = writeln!(out, "weights {} -> {}\n", bytes(before), bytes(after));
        let _ = writeln!(out, "what changed and what it gains");
        for (name, c) in &self.operators {
            if c.before == c.after && (c.seconds_before - c.seconds_after).abs() < 1e-12 {
                continue;
            }
            let gain = c.seconds_before - c.seconds_after;
            let sign = if gain >= 0.0 { "saves" } else { "costs" };
            let _ = writeln!(
                out,
                "  {name:<18} {:>5} -> {:<5} {sign} {}",
                c.before,
                c.after,
                seconds(gain.abs())
            );
        }
        let _ = writeln!(out, "\nby which laws (equations in the proof of the result)");
        for l in &self.laws {
            let _ = writeln!(out, "  {} x{} [{}]  {}", l.law, l.equations, l.error, l.doc);
            for (a, b) in &l.examples {
                let _ = writeln!(out, "      {a}\n   =  {b}");
            }
        }
        out
    }
}

/// A duration with a fitting unit.
pub fn seconds(s: f64) -> String {
    match s {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.2} us", s * 1e6),
    }
}

/// Bytes with a fitting unit.
pub fn bytes(b: u64) -> String {
    let of = |unit: u32| b as f64 / f64::from(unit);
    match b {
        b if b >= 1 << 30 => format!("{:.2} GiB", of(1 << 30)),
        b if b >= 1 << 20 => format!("{:.1} MiB", of(1 << 20)),
        b if b >= 1 << 10 => format!("{:.1} KiB", of(1 << 10)),
        b => format!("{b} bytes"),
    }
}

/// What is declared of a law or operator: documentation, text, where.
pub fn declaration(library: &Library, name: &str) -> Option<String> {
    let law = library.laws.iter().find(|l| &*l.name == name);
    let call = library.find(name).map(|c| library.call(c));
    let (source, doc) = match (law, call) {
        (Some(l), _) => (l.source, &l.doc),
        (None, Some(c)) => (c.source, &c.doc),
        (None, None) => return None,
    };
    let text = &library.sources[source.0 as usize];
    let line = text.text[..source.1.start as usize].lines().count() + 1;
    let mut out = String::new();
    for d in doc {
        let _ = writeln!(out, "{d}");
    }
    let _ = writeln!(out, "\n{}", &text.text[source.1.range()].trim_end());
    let _ = writeln!(out, "\ndeclared in {}:{line}", text.name);
    if let Some(l) = law {
        let _ = writeln!(out, "error class {}; {}", class(l.error), origin(l));
    }
    Some(out)
}

fn origin(l: &Law) -> &'static str {
    match l.origin {
        LawOrigin::Rule => "fires from left to right",
        LawOrigin::Reverse => "fires from right to left",
        LawOrigin::Fold => "a definition: its body is recognised in any spelling",
        LawOrigin::Unfold => "a definition: the name is replaced by its body",
    }
}
