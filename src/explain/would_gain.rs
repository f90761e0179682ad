//! What a model would gain if it were planned otherwise: with other laws, or for another objective.
//!
//! The model is planned once more and the two plans are compared; nothing is extrapolated from one of them.

use super::regions::{Priced, Region, regions};
use super::text::{self, names, seconds};
use super::{credits, noted};
use crate::error::{Error, ErrorKind};
use crate::names as known;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::{Fp, Objective, Options};
use crate::pipeline::{self, Optimized, all_laws, why_off};
use mlc_dsl::diagnostics::message_text::bytes;
use mlc_dsl::library::{ErrorClass, Law, LawOrigin, Library};
use mlc_dsl::plan::Plan;
use mlc_dsl::shown;
use mlc_extract::cost::target::VIEW;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct WouldGain {
    /// What was asked for.
    pub asked: String,
    /// What was done otherwise, in words.
    pub tried: String,
    /// What the plans are for.
    pub target: String,
    /// As it is planned.
    pub now: Figures,
    /// As it would be.
    pub then: Figures,
    /// Laws that the other result rests on and this one does not, with their error classes.
    pub gained_laws: Vec<(String, String)>,
    /// Laws that this result rests on and the other one does not.
    pub lost_laws: Vec<(String, String)>,
    /// What would change: kernels of this plan before, of the other after.
    pub changes: Vec<Region>,
}

/// Figures of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Estimated seconds.
    pub seconds: f64,
    /// Planned bytes of buffers, if extents are known.
    pub peak_bytes: Option<u64>,
    /// Bytes of constants.
    pub weights_bytes: u64,
    /// Kernels that are no views.
    pub kernels: usize,
}

/// What may be asked for besides laws.
pub const GAINS: [&str; 6] = ["exact", "reorder", "approx", "latency", "memory", "size"];

/// Plans a model otherwise, and says what that gains.
///
/// # Errors
/// Nothing has that name, it is how the model is planned already, or the model cannot be planned so.
pub fn would_gain(
    o: &Optimized,
    library: &Arc<Library>,
    options: &Options,
    asked: &str,
) -> Result<WouldGain, Error> {
    let (other, tried) = changed(o, library, options, asked)?;
    let other = Options { self_check: false, ..other };
    let then = pipeline::optimize(o.source.clone(), library, &other)?;
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let priced = |plan| Priced { plan, seconds: evaluation.prices.by_kernel(plan) };
    let noted = noted(&then, library);
    let (_, places) = credits(&noted, library, then.report.cost_after);
    let mut changes = regions(library, &priced(&o.plan), &priced(&then.plan), &places);
    changes.retain(|r| !r.is_unchanged());
    let (now_laws, then_laws) = (laws(o, library), laws(&then, library));
    let apart = |a: &BTreeSet<_>, b: &BTreeSet<_>| a.difference(b).cloned().collect();
    Ok(WouldGain {
        asked: asked.into(),
        tried,
        target: options.target.clone(),
        now: figures(o),
        then: figures(&then),
        gained_laws: apart(&then_laws, &now_laws),
        lost_laws: apart(&now_laws, &then_laws),
        changes,
    })
}

/// The laws that a result rests on, each with its error class.
fn laws(o: &Optimized, library: &Library) -> BTreeSet<(String, String)> {
    let class = |name: &String| library.laws.iter().find(|l| *l.name == **name);
    let told = |name: &String| class(name).map(|l| (name.clone(), l.error.to_string()));
    o.report.proof.keys().filter_map(told).collect()
}

fn figures(o: &Optimized) -> Figures {
    let launched = |p: &Plan| p.kernels.iter().filter(|k| k.name != VIEW).count();
    Figures {
        seconds: o.report.cost_after,
        peak_bytes: o.report.peak_bytes,
        weights_bytes: o.report.weights_bytes,
        kernels: launched(&o.plan),
    }
}

/// The options that are asked for, and what they change.
fn changed(
    o: &Optimized,
    library: &Library,
    options: &Options,
    asked: &str,
) -> Result<(Options, String), Error> {
    let fp = match asked {
        "exact" => Some(Fp::Exact),
        "reorder" => Some(Fp::Reorder),
        "approx" => Some(Fp::Approx),
        _ => None,
    };
    let all = [Objective::Latency, Objective::Memory, Objective::Size];
    let objective = all.into_iter().find(|o| o.name() == asked);
    let mut other = options.clone();
    let tried = match (fp, objective) {
        (Some(fp), _) => {
            other.fp = fp;
            format!("--fp {asked}")
        }
        (None, Some(objective)) => {
            other.objective = objective;
            format!("--objective {asked}")
        }
        (None, None) => return of_law(o, library, options, asked),
    };
    if (other.fp, other.objective) == (options.fp, options.objective) {
        let message = format!("`{tried}` is how the model is planned already");
        return Err(Error::new(ErrorKind::Setting, message)
            .with_help(format!("ask for one of {}, or for a law", GAINS.join(", "))));
    }
    Ok((other, tried))
}

/// With a law that does not fire, or without one that may.
fn of_law(
    o: &Optimized,
    library: &Library,
    options: &Options,
    asked: &str,
) -> Result<(Options, String), Error> {
    if !library.laws.iter().any(|l| l.answers_to(asked)) {
        let laws = library.laws.iter().filter(|l| l.origin != LawOrigin::Reverse);
        let names: BTreeSet<&str> = laws.map(Law::declared_name).chain(GAINS).collect();
        let help = known::did_you_mean(asked, names, "`mlc-rewrite list laws` names the laws");
        let message =
            format!("`{}` is neither a law nor one of {}", shown(asked), GAINS.join(", "));
        return Err(Error::new(ErrorKind::Setting, message).or_help(help));
    }
    all_laws(library, &[asked.to_string()])?;
    let mut other = options.clone();
    if options.without.iter().any(|w| w == asked) {
        other.without.retain(|w| w != asked);
        return Ok((other, format!("with `{asked}`")));
    }
    let own: Vec<usize> =
        (0..library.laws.len()).filter(|&i| library.laws[i].answers_to(asked)).collect();
    let class = library.laws[own[0]].error;
    if !own.iter().any(|&i| options.fp.admits(library.laws[i].error)) {
        other.fp = if class <= ErrorClass::Reorder { Fp::Reorder } else { Fp::Approx };
        // Of the laws that the coarser class admits this one alone.
        let barred = |l: &&Law| !options.fp.admits(l.error) && !l.answers_to(asked);
        other.without.extend(library.laws.iter().filter(barred).map(|l| l.name.to_string()));
        return Ok((other, format!("with `{asked}`, whose error class is {class}")));
    }
    let searched = |i: &usize| o.explored.profiles.iter().any(|(p, _)| *p as usize == *i);
    if !own.iter().any(searched) && !o.report.proof.keys().any(|n| n == asked) {
        let why = why_off(library, options, own[0] as u32);
        let message = format!("`{asked}` cannot be turned on here: {why}");
        return Err(Error::new(ErrorKind::Setting, message));
    }
    other.without.push(asked.into());
    Ok((other, format!("without `{asked}`")))
}

/// Columns of the table.
const LABEL: usize = 18;
const COLUMN: usize = 14;

impl WouldGain {
    /// For people; `all` leaves nothing out.
    pub fn human(&self, all: bool) -> String {
        let mut out = String::new();
        let (now, then) = (&self.now, &self.then);
        let _ = writeln!(out, "{}, for {}", self.tried, self.target);
        let mut row = |label: &str, cells: [String; 3]| {
            let [a, b, c] = cells;
            let line = format!("{label:<LABEL$}{a:>COLUMN$}{b:>COLUMN$}{c:>COLUMN$}");
            let _ = writeln!(out, "  {}", line.trim_end());
        };
        row("", ["as planned", "then", "change"].map(String::from));
        let change = |a: f64, b: f64| match a {
            _ if a == b => "none".to_string(),
            a if a > 0.0 => format!("{:+.1} %", 100.0 * (b / a - 1.0)),
            _ => "-".into(),
        };
        let (a, b) = (now.seconds, then.seconds);
        row("estimated time", [seconds(a), seconds(b), change(a, b)]);
        if let Some((a, b)) = now.peak_bytes.zip(then.peak_bytes) {
            row("peak memory", [bytes(a), bytes(b), change(a as f64, b as f64)]);
        }
        let (a, b) = (now.weights_bytes, then.weights_bytes);
        row("weights", [bytes(a), bytes(b), change(a as f64, b as f64)]);
        let (a, b) = (now.kernels, then.kernels);
        row("kernels", [a.to_string(), b.to_string(), change(a as f64, b as f64)]);
        let mut laws = |label: &str, laws: &[(String, String)]| {
            if !laws.is_empty() {
                let told: Vec<String> = laws.iter().map(|(n, c)| format!("{n} [{c}]")).collect();
                let _ = writeln!(out, "{label}: {}", names(&told, all));
            }
        };
        laws("it would rest on", &self.gained_laws);
        laws("and no longer on", &self.lost_laws);
        match self.changes.is_empty() {
            true => out.push_str("no kernel would be another one\n"),
            false => out.push_str("what would change, by the nodes of the model\n"),
        }
        self.changes.iter().for_each(|r| text::region(&mut out, r, all));
        out
    }
}
