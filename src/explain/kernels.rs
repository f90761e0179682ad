//! The kernels of a plan with the nodes of the model that they compute: what each takes, its share of the whole, and the part of the
//! roofline that it reaches.

use super::html::prices::limit;
use super::priced;
use super::regions::lines;
use super::text::{names, seconds};
use crate::error::Error;
use crate::kernel_times::KernelTime;
use crate::pipeline::Optimized;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Options;
use mlc_dsl::ir::DType;
use mlc_dsl::library::Library;
use mlc_extract::cost::target::VIEW;
use serde::Serialize;
use std::fmt::Write;

/// The kernels of a plan, those that take longest first.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTable {
    /// What the plan is for.
    pub target: String,
    /// Seconds of all, by the clock if kernels were timed, else estimated.
    pub seconds: f64,
    /// True if kernels were timed.
    pub is_measured: bool,
    pub kernels: Vec<KernelRow>,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

/// A kernel.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// Its name on the target.
    pub kernel: String,
    pub operators: Vec<String>,
    /// Nodes of the model that it computes, or that read it.
    pub nodes: Vec<String>,
    /// Estimated seconds.
    pub estimated: f64,
    /// Seconds by the clock.
    pub measured: Option<f64>,
    /// Its part of the whole.
    pub share: f64,
    /// The part of the roofline that it reaches, by the clock if it was timed, else by its estimate.
    pub roofline: Option<f64>,
    /// What sets its estimate.
    pub limit: &'static str,
}

impl KernelRow {
    fn seconds(&self) -> f64 {
        self.measured.unwrap_or(self.estimated)
    }
}

/// The kernels of a result. Views that take no time are left out.
///
/// # Errors
/// The program as read cannot be planned.
pub fn kernel_table(
    o: &Optimized,
    library: &Library,
    options: &Options,
    measured: Option<&[KernelTime]>,
) -> Result<KernelTable, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (_, after) = priced(o, &evaluation);
    let prices = evaluation.prices.first();
    let program = &o.plan.program;
    let all = o.plan.kernels.iter().zip(lines(library, &after)).enumerate();
    let row = |(k, (kernel, line)): (usize, (&mlc_dsl::plan::Kernel, super::KernelLine))| {
        let (limit, work) = limit(program, kernel, prices);
        let dtype = kernel.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
        let ideal = prices.model().roofline(dtype, &work);
        let estimated = (line.seconds > 0.0).then(|| (ideal / line.seconds).min(1.0));
        let time = measured.map(|m| &m[k]);
        KernelRow {
            kernel: line.kernel,
            operators: line.operators,
            nodes: line.nodes,
            estimated: line.seconds,
            measured: time.map(|t| t.measured),
            share: 0.0,
            roofline: time.map_or(estimated, |t| t.roofline),
            limit,
        }
    };
    let mut kernels: Vec<KernelRow> = all.map(row).collect();
    kernels.retain(|k| k.kernel != VIEW || k.seconds() > 0.0);
    let whole: f64 = kernels.iter().map(KernelRow::seconds).sum();
    for k in &mut kernels {
        k.share = if whole > 0.0 { k.seconds() / whole } else { 0.0 };
    }
    kernels.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    let is_measured = measured.is_some();
    let (target, notes) = (options.target.clone(), vec![]);
    Ok(KernelTable { target, seconds: whole, is_measured, kernels, notes })
}

/// Kernels of the same operators that take the same time together.
struct Group<'a> {
    rows: Vec<&'a KernelRow>,
}

impl KernelTable {
    /// For people: kernels of the same operators together, or each by itself where `all` are wanted.
    pub fn human(&self, all: bool) -> String {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for row in &self.kernels {
            let alike = |g: &&mut Group<'_>| {
                let first = g.rows[0];
                !all && (&first.kernel, &first.operators) == (&row.kernel, &row.operators)
            };
            match groups.iter_mut().find(alike) {
                Some(group) => group.rows.push(row),
                None => groups.push(Group { rows: vec![row] }),
            }
        }
        let time = |g: &Group<'_>| g.rows.iter().map(|r| r.seconds()).sum::<f64>();
        groups.sort_by(|a, b| time(b).total_cmp(&time(a)));
        let (count, whole) = (self.kernels.len(), seconds(self.seconds));
        let how = if self.is_measured { "measured" } else { "estimated" };
        let mut out = format!("{count} kernels for {}: {whole} {how}\n", self.target);
        let estimated = if self.is_measured { " estimated" } else { "" };
        let _ = writeln!(out, "{:>10} {:>7} {:>8}{estimated}  kernel", "time", "share", "roofline");
        for g in &groups {
            g.told(&mut out, all);
        }
        for n in &self.notes {
            let _ = writeln!(out, "note: {n}");
        }
        out
    }
}

impl Group<'_> {
    fn told(&self, out: &mut String, all: bool) {
        let sum = |of: &dyn Fn(&KernelRow) -> f64| self.rows.iter().map(|r| of(r)).sum::<f64>();
        let (time, first) = (sum(&KernelRow::seconds), self.rows[0]);
        let reached: Option<f64> =
            self.rows.iter().map(|r| r.roofline.map(|part| part * r.seconds())).sum();
        let reached = reached.filter(|_| time > 0.0);
        let roofline = reached.map_or("-".into(), |r| format!("{:.0} %", 100.0 * r / time));
        let estimated = match first.measured {
            Some(_) => format!(" {:>9}", seconds(sum(&|r| r.estimated))),
            None => String::new(),
        };
        let times =
            if self.rows.len() > 1 { format!("{} x ", self.rows.len()) } else { String::new() };
        let _ = writeln!(
            out,
            "{:>10} {:>5.1} % {roofline:>8}{estimated}  {times}{}: {}",
            seconds(time),
            100.0 * sum(&|r| r.share),
            first.kernel,
            first.operators.join(" + ")
        );
        let mut nodes: Vec<String> = Vec::new();
        for n in self.rows.iter().flat_map(|r| &r.nodes) {
            if !nodes.contains(n) {
                nodes.push(n.clone());
            }
        }
        let by = if self.rows.len() == 1 {
            format!("; limited by {}", first.limit)
        } else {
            String::new()
        };
        if !nodes.is_empty() {
            let indent = if first.measured.is_some() { 38 } else { 28 };
            let _ = writeln!(out, "{:indent$}  {}{by}", "", names(&nodes, all));
        }
    }
}
