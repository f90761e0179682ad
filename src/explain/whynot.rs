//! Why a law did not fire, or an operator is not in the result.

use super::text::{names, seconds};
use super::unmade::{Unmade, recurrences, unmade};
use crate::pipeline::options::Options;
use crate::pipeline::{self, Optimized};
use mlc_dsl::ir::NodeKind;
use mlc_dsl::library::{CallId, CallKind, Law, LawOrigin, Library};
use mlc_dsl::term::TermKind;
use mlc_explore::LawProfile;
use mlc_extract::cost::target::TargetPrices;
use serde::Serialize;
use std::fmt::Write;

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct WhyNot {
    /// What was asked for.
    pub name: String,
    /// The operators that it stands for.
    pub operators: Vec<String>,
    /// What the result has of it: how many applications of the operator.
    pub in_result: usize,
    /// The recurrences that the result has and that the operator is, or consists of.
    pub recurrences: Vec<String>,
    /// Whether the operator is a definition, which the result may compute part by part.
    pub defined: bool,
    /// Where the operator was found though the result does without, and what it would cost.
    pub dearer: Vec<Dearer>,
    /// The laws that have the name or yield the operator.
    pub laws: Vec<LawStory>,
}

/// A place where an operator was found and not taken.
#[derive(Clone, Debug, Serialize)]
pub struct Dearer {
    /// The node of the model.
    pub node: String,
    /// Estimated seconds of the result.
    pub result: f64,
    /// Estimated seconds of the cheapest program that has the operator here; none if the target cannot compute it.
    pub with: Option<f64>,
}

/// What became of a law.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LawStory {
    pub law: String,
    /// Why it was not searched with the others.
    pub off: Option<String>,
    /// Matches found.
    pub matches: usize,
    /// Matches that made something new known.
    pub applied: usize,
    /// Matches that a clause refused: the clause, how many, at which nodes.
    pub refused: Vec<(String, usize, Vec<String>)>,
    /// Matches whose right side has no type here, with one reason.
    pub ill_typed: Option<(usize, String)>,
    /// Where most of its pattern is.
    pub near: Vec<NearMiss>,
    /// What of its pattern nothing becomes.
    pub unmade: Vec<Unmade>,
}

/// A place that has a part of a law's pattern.
#[derive(Clone, Debug, Serialize)]
pub struct NearMiss {
    /// The nodes of the model.
    pub nodes: Vec<String>,
    /// Operators of the pattern that are there, and all of them.
    pub operators: (usize, usize),
    /// The first operator that is missing.
    pub wants: String,
    /// What is in its place.
    pub has: Vec<String>,
}

/// Places told for each law.
const PLACES: usize = 5;

/// Why a law did not fire, or an operator is not in the result; at one node of the model, or anywhere. Nothing if there is
/// no such law or operator.
pub fn why_not(
    o: &Optimized,
    library: &Library,
    prices: &TargetPrices<'_>,
    options: &Options,
    (name, calls): (&str, &[CallId]),
    at: Option<&str>,
) -> Option<WhyNot> {
    let laws: Vec<u32> = (0..library.laws.len() as u32)
        .filter(|&i| concerns(library, &library.laws[i as usize], name, calls))
        .collect();
    if calls.is_empty() && laws.is_empty() {
        return None;
    }
    let is_it = |k: &NodeKind| matches!(k, NodeKind::Apply(c, _) if calls.contains(c));
    let in_result = o.program.nodes.iter().filter(|n| is_it(&n.kind)).count();
    let wanted = |node: &String| at.is_none_or(|a| a == node);
    let mut dearer: Vec<Dearer> = Vec::new();
    for &call in calls.iter().filter(|_| in_result == 0) {
        let found = o.explored.with_operator(call, prices, &*options.extractor_for(prices));
        let told = found.into_iter().map(|(node, with)| Dearer {
            node: node.map_or("?".into(), |n| o.explored.source.node(n).origin.clone()),
            result: o.extracted.cost,
            with,
        });
        dearer.extend(told.filter(|d| wanted(&d.node)));
    }
    dearer.dedup_by(|a, b| a.node == b.node);
    dearer.truncate(PLACES);
    let story = |i: u32| story(o, library, options, i, &wanted);
    let recurs = |c: &&CallId| library.call(**c).recurrence.is_some();
    let mut steps: Vec<String> = vec![];
    if in_result > 0 {
        steps.extend(calls.iter().filter(recurs).map(|&c| library.call(c).name.to_string()));
    }
    steps.extend(recurrences(&o.program, library, calls));
    let is_definition = |c: &CallId| matches!(library.call(*c).kind, CallKind::Def(_));
    Some(WhyNot {
        name: name.into(),
        recurrences: steps,
        defined: !calls.is_empty() && calls.iter().all(is_definition),
        operators: calls.iter().map(|&c| library.call(c).name.to_string()).collect(),
        in_result,
        dearer,
        laws: laws.into_iter().map(story).collect(),
    })
}

/// True for a law of this name, and for one that yields the layer: what yields a primitive operator are too many.
fn concerns(library: &Library, law: &Law, name: &str, calls: &[CallId]) -> bool {
    let bare = law.name.strip_suffix(".rev").unwrap_or(&law.name);
    let called = bare == name || law.answers_to(name);
    let is_layer = |c: CallId| matches!(library.call(c).kind, CallKind::Def(_));
    let yields = law.right.iter().any(|s| match &law.terms.get(s.root).kind {
        TermKind::Apply(c, _) => calls.contains(c) && is_layer(*c),
        _ => false,
    });
    law.origin != LawOrigin::Unfold && (called || yields)
}

/// What became of a law.
pub(super) fn story(
    o: &Optimized,
    library: &Library,
    options: &Options,
    index: u32,
    wanted: &dyn Fn(&String) -> bool,
) -> LawStory {
    let law = &library.laws[index as usize];
    let name = law.name.to_string();
    let Some((_, p)) = o.explored.profiles.iter().find(|(i, _)| *i == index) else {
        let off = Some(pipeline::why_off(library, options, index));
        return LawStory { law: name, off, ..LawStory::default() };
    };
    let label = |n: mlc_dsl::ir::NodeId| o.explored.source.node(n).origin.clone();
    let near = match p.matches {
        0 => o.explored.nearest_matches(index, 64),
        _ => vec![],
    };
    let called = |c: CallId| library.call(c).name.to_string();
    let mut misses: Vec<NearMiss> = Vec::new();
    for n in near {
        let (Some((wants, has)), Some(node)) = (n.missing, n.at.map(label)) else { continue };
        if !wanted(&node) {
            continue;
        }
        let miss = NearMiss {
            nodes: vec![node.clone()],
            operators: (n.found, n.all),
            wants: called(wants),
            has: has.into_iter().map(called).collect(),
        };
        let alike = |m: &&mut NearMiss| (&m.wants, &m.has) == (&miss.wants, &miss.has);
        match misses.iter_mut().find(alike) {
            Some(m) if !m.nodes.contains(&node) => m.nodes.push(node),
            Some(_) => {}
            None => misses.push(miss),
        }
    }
    misses.truncate(PLACES);
    let unmade = match p.matches {
        0 => unmade(&o.explored.source, library, law),
        _ => vec![],
    };
    LawStory {
        law: name,
        off: None,
        matches: p.matches,
        applied: p.applications,
        refused: refused(o, p, wanted),
        ill_typed: (p.ill_typed.0 > 0).then(|| p.ill_typed.clone()),
        near: misses,
        unmade,
    }
}

fn refused(
    o: &Optimized,
    p: &LawProfile,
    wanted: &dyn Fn(&String) -> bool,
) -> Vec<(String, usize, Vec<String>)> {
    let told = p.refusals.iter().filter_map(|(clause, n)| {
        let places = p.refused_at.get(clause).map_or(&[][..], Vec::as_slice);
        let mut nodes: Vec<String> = o
            .explored
            .places_of(places)
            .into_iter()
            .flatten()
            .map(|n| o.explored.source.node(n).origin.clone())
            .filter(|n| wanted(n))
            .collect();
        nodes.dedup();
        let any = wanted(&String::new()) || !nodes.is_empty();
        any.then_some((clause.clone(), *n, nodes))
    });
    told.collect()
}

impl WhyNot {
    /// For people.
    pub fn human(&self) -> String {
        let mut out = String::new();
        if self.operators.iter().any(|o| *o != self.name) {
            let all: Vec<String> = self.operators.iter().map(|o| format!("`{o}`")).collect();
            let _ = writeln!(out, "`{}` computes {}", self.name, all.join(", "));
        }
        if self.in_result > 0 {
            let _ = writeln!(out, "the result has {} of `{}`", self.in_result, self.name);
        }
        for d in &self.dearer {
            let _ = match d.with {
                Some(with) if with - d.result < 1e-6 * d.result => writeln!(
                    out,
                    "`{}` was found at {}, in a spelling that the result does without at no loss",
                    self.name, d.node
                ),
                Some(with) => writeln!(
                    out,
                    "`{}` was found at {}: with it the result is estimated to take {} more ({})",
                    self.name,
                    d.node,
                    seconds((with - d.result).max(0.0)),
                    seconds(with)
                ),
                None if self.defined => writeln!(
                    out,
                    "`{}` was found at {}: the target has no kernel for the whole of it, so the result computes its parts",
                    self.name, d.node
                ),
                None => writeln!(
                    out,
                    "`{}` was found at {}: the target cannot compute it",
                    self.name, d.node
                ),
            };
        }
        for r in &self.recurrences {
            let _ = writeln!(
                out,
                "the result has the recurrence `{r}`, which an ONNX file says with a `Scan`"
            );
        }
        for l in &self.laws {
            law(&mut out, l);
        }
        if self.laws.is_empty() && self.dearer.is_empty() && self.in_result == 0 {
            let _ = writeln!(out, "no law yields `{}`, and the model does not have it", self.name);
        }
        out
    }
}

/// Tells what became of a law.
pub(super) fn law(out: &mut String, l: &LawStory) {
    if let Some(off) = &l.off {
        let _ = writeln!(out, "law {}: not searched: {off}", l.law);
        return;
    }
    let _ = writeln!(
        out,
        "law {}: {} matches, {} made something new known",
        l.law, l.matches, l.applied
    );
    for (clause, n, nodes) in &l.refused {
        let at =
            if nodes.is_empty() { String::new() } else { format!(", at {}", names(nodes, false)) };
        let _ = writeln!(out, "  refused {n} times by `{clause}`{at}");
    }
    if let Some((n, why)) = &l.ill_typed {
        let _ = writeln!(out, "  {n} matches have no right side of this type: {why}");
    }
    for n in &l.near {
        let has = match n.has.is_empty() {
            true => "an input or a constant".to_string(),
            false => n.has.iter().map(|h| format!("`{h}`")).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(
            out,
            "  nearest at {}: the pattern wants `{}` where the model has {has}",
            names(&n.nodes, false),
            n.wants
        );
    }
    for u in &l.unmade {
        let _ = writeln!(out, "  {}", u.human());
    }
    if l.matches == 0 && l.near.is_empty() && l.unmade.is_empty() {
        let _ = writeln!(out, "  no operator of its pattern is in the model");
    }
}
