//! One node of a model: what it is read as, what computes its value before and after, which laws touched it, what it costs, and
//! what is beside it.

use super::declaration;
use super::not_fused::Computing;
use super::regions::{KernelLine, lines};
use super::text::{kernels, names, saved, seconds};
use super::{LawUse, credits, names as named, noted, priced};
use crate::error::Error;
use crate::pipeline::Optimized;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Options;
use crate::show;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use serde::Serialize;
use std::fmt::Write;

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStory {
    /// The node.
    pub node: String,
    /// What became of it.
    pub state: State,
    /// What it is read as.
    pub read_as: Vec<String>,
    /// Nodes, inputs and outputs that it reads, and those that read it; constants are left out.
    pub reads: Vec<String>,
    pub readers: Vec<String>,
    /// The kernels of the program as read that compute its value.
    pub before: Vec<KernelLine>,
    /// Those of the result, or what stands in their place.
    pub after: Vec<KernelLine>,
    /// The laws whose equations touched it.
    pub laws: Vec<Touch>,
    /// Steps that are no laws.
    pub steps: Vec<String>,
    /// The nodes whose kernels changed together with its own, and estimated seconds that this saves.
    pub region: Option<(Vec<String>, f64)>,
}

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A kernel of the result computes its value.
    Kept,
    /// The result does without its value.
    Gone,
    /// It is known before a run.
    Known,
}

/// A law that touched a node.
#[derive(Clone, Debug, Serialize)]
pub struct Touch {
    pub law: String,
    pub error: String,
    pub doc: String,
    /// The law as declared.
    pub text: String,
    /// One of its equations here.
    pub equation: (String, String),
}

/// What there is to say of a node of the program as read.
///
/// # Errors
/// The program as read cannot be planned.
pub fn node(
    o: &Optimized,
    library: &Library,
    options: &Options,
    name: &str,
) -> Result<NodeStory, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (before, after) = priced(o, &evaluation);
    let noted = noted(o, library);
    let (_, places) = credits(&noted, library, o.report.cost_after);
    let regions = super::regions::regions(library, &before, &after, &places);
    let (old, new) = (lines(library, &before), lines(library, &after));
    let computing = |plan, lines| Computing { source: &o.source, plan, lines, regions: &regions };
    let own = computing(&o.plan, &new[..]);
    let kept = own.kernels(name);
    let all = |kernels: &[usize], lines: &[KernelLine]| -> Vec<KernelLine> {
        kernels.iter().map(|&k| lines[k].clone()).collect()
    };
    let runs = computing(before.plan, &old[..]).kernels(name);
    let state = match (kept.is_empty(), runs.is_empty()) {
        (false, _) => State::Kept,
        (true, false) => State::Gone,
        (true, true) => State::Known,
    };
    let instead = if kept.is_empty() { own.instead(name) } else { kept };
    let region = own.region(name);
    let (laws, steps) = touched(&noted, library, name);
    Ok(NodeStory {
        node: name.into(),
        state,
        read_as: as_read(&o.source, library, name),
        reads: beside(&o.source, name, true),
        readers: beside(&o.source, name, false),
        before: all(&runs, &old),
        after: all(&instead, &new),
        laws,
        steps,
        region: region.map(|(r, names)| (names.clone(), r.saved / r.times() as f64)),
    })
}

/// The applications that a node is read as.
fn as_read(source: &Program, library: &Library, name: &str) -> Vec<String> {
    let ids = (0..source.nodes.len() as u32).map(NodeId);
    let own = ids.filter(|id| source.node(*id).origin == name);
    own.map(|id| show::application(source, library, id)).filter(|t| !t.is_empty()).collect()
}

/// What a node reads, or what reads it.
fn beside(source: &Program, name: &str, before: bool) -> Vec<String> {
    let names = named(source);
    let own = |v: &Value| names[v.node.0 as usize] == name;
    let mut out: Vec<String> = Vec::new();
    let mut push = |n: String| {
        if !n.is_empty() && n != name && !out.contains(&n) {
            out.push(n);
        }
    };
    for (i, n) in source.nodes.iter().enumerate() {
        let is_own = names[i] == name && matches!(n.kind, NodeKind::Apply(..));
        match before {
            true if is_own => n.args.iter().for_each(|a| match &source.node(a.node).kind {
                NodeKind::Input(k) => push(source.inputs[*k as usize].0.clone()),
                NodeKind::Const(_) => {}
                NodeKind::Apply(..) => push(names[a.node.0 as usize].to_string()),
            }),
            false if !is_own && n.args.iter().any(own) => push(names[i].to_string()),
            true | false => {}
        }
    }
    if !before {
        let outputs = source.outputs.iter().filter(|(_, v)| own(v));
        outputs.for_each(|(n, _)| push(format!("output {n}")));
    }
    out
}

/// The laws and other steps that touched a node.
fn touched(noted: &[super::Noted<'_>], library: &Library, name: &str) -> (Vec<Touch>, Vec<String>) {
    let (mut laws, mut steps): (Vec<Touch>, Vec<String>) = (vec![], vec![]);
    for n in noted.iter().filter(|n| n.nodes.iter().any(|m| m == name)) {
        if !n.is_law() {
            if !steps.contains(&n.name) {
                steps.push(n.name.clone());
            }
            continue;
        }
        if laws.iter().any(|l| l.law == n.name) {
            continue;
        }
        let LawUse { error, doc, .. } = super::describe(library, n.step.reason, 0.0);
        let text = declaration(library, &n.name).map(|d| d.text).unwrap_or_default();
        let equation = (n.explored.term(n.step.left), n.explored.term(n.step.right));
        laws.push(Touch { law: n.name.clone(), error, doc, text, equation });
    }
    (laws, steps)
}

impl NodeStory {
    /// For people; `all` leaves nothing out.
    pub fn human(&self, all: bool) -> String {
        let mut out = String::new();
        let is = match self.state {
            State::Kept => "a kernel of the result computes its value",
            State::Gone => "the result does without its value",
            State::Known => "its value is known before a run",
        };
        let _ = writeln!(out, "`{}`: {is}", self.node);
        let mut row = |label: &str, text: String| {
            if !text.is_empty() {
                let _ = writeln!(out, "  {label:<9}{text}");
            }
        };
        for (i, text) in self.read_as.iter().enumerate() {
            row(if i == 0 { "read as" } else { "" }, text.clone());
        }
        row("reads", names(&self.reads, all));
        row("read by", names(&self.readers, all));
        if self.state != State::Known {
            row("before", kernels(&self.before, all));
            row("after", kernels(&self.after, all));
        }
        let shares: Vec<String> = self.after.iter().flat_map(|k| &k.nodes).cloned().collect();
        let mut others: Vec<String> = shares.into_iter().filter(|n| *n != self.node).collect();
        others.dedup();
        row("with", names(&others, all));
        if let Some((nodes, gain)) = &self.region {
            let time: f64 = self.after.iter().map(|k| k.seconds).sum();
            let cost = if self.after.is_empty() { "nothing".into() } else { seconds(time) };
            let runs = self.state != State::Known;
            row("cost", if runs { cost } else { String::new() });
            if runs && (nodes.len() > 1 || *gain != 0.0) {
                row("changed", format!("{} together with {}", saved(*gain), names(nodes, all)));
            }
        }
        for l in &self.laws {
            row("law", format!("{} [{}]  {}", l.law, l.error, l.doc));
            if all {
                let (a, b) = &l.equation;
                l.text.lines().for_each(|line| row("", line.to_string()));
                row("", format!("here {a}"));
                row("", format!("  =  {b}"));
            }
        }
        row("steps", self.steps.join(", "));
        out
    }
}
