//! Inline tests of laws: which side pays (`picks`), and where a law must stay silent (`never`).
//!
//! Both are claims about search and cost, so they are put to the real ones. Truth is `verify`'s business.

use crate::error::Error;
use crate::pipeline::{self, Fp};
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::diagnostics::{Code, Diag, render};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Predicate};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Extent, Program, Tensor, Type, Value};
use mlc_dsl::library::{
    DTypePattern, Dim, Input, Law, LawOrigin, LawTest, Library, Name, TargetItem,
};
use mlc_dsl::random::Random;
use mlc_dsl::term::{TermId, Terms};
use mlc_dsl::typing::infer::resolve_dims;
use mlc_explore::{Limits, explore};
use mlc_extract::GreedyDag;
use mlc_extract::cost::target::TargetPrices;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;

/// The extent of every axis that a test does not name.
const EXTENT: i64 = 8;

/// Axes of a segment at most.
const RANKS: usize = 2;

/// Relative difference of costs that counts as none.
const SAME_COST: f64 = 1e-9;

/// A test that does not hold.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    pub law: String,
    /// The file it is written in.
    pub file: String,
    /// What is wrong.
    pub message: String,
    #[serde(skip)]
    diag: Diag,
    #[serde(skip)]
    text: Arc<str>,
}

impl Broken {
    fn of(library: &Library, law: &Law, span: Span, message: String) -> Broken {
        let source = &library.sources[law.source.file as usize];
        Broken {
            law: law.name.to_string(),
            file: source.name.clone(),
            diag: Diag::error(Code("V004"), message.clone(), span)
                .help("correct the test, or give the law the condition under which it holds"),
            message,
            text: source.text.clone(),
        }
    }

    /// The failure for people, with its place.
    pub fn human(&self, color: bool) -> String {
        render(std::slice::from_ref(&self.diag), &self.file, &self.text, color)
    }
}

/// Runs the inline tests of a library's laws, or of those named, on a target.
///
/// # Errors
/// If there is no such target.
pub fn check(
    library: &Arc<Library>,
    only: Option<&[String]>,
    target: &str,
) -> Result<Vec<Broken>, Error> {
    let target = pipeline::target(library, target)?;
    let mut out = Vec::new();
    let names = only.map(|names| names.iter().map(String::as_str).collect::<HashSet<_>>());
    for (i, law) in library.laws.iter().enumerate() {
        let wanted = names.as_ref().is_none_or(|names| names.contains(&*law.name));
        if !wanted || !matches!(law.origin, LawOrigin::Rule | LawOrigin::Reverse) {
            continue;
        }
        for t in &law.tests {
            let (span, verdict) = match t {
                LawTest::Check { .. } => continue,
                // The sides of a rule that goes both ways are those of its reverse.
                LawTest::Picks { .. } if law.origin == LawOrigin::Reverse => continue,
                LawTest::Picks { side, at, span } => {
                    (*span, picks(library, &target, law, *side, at))
                }
                LawTest::Never { graph, reason, span } => {
                    let graph = build(library, law, &graph.vars, &graph.terms, &graph.roots, &[]);
                    (*span, graph.and_then(|g| silent(library, i as u32, g, reason)))
                }
            };
            out.extend(verdict.err().map(|m| Broken::of(library, law, span, m)));
        }
    }
    Ok(out)
}

/// Holds if the law does not fire on the graph.
fn silent(library: &Arc<Library>, law: u32, graph: Program, reason: &str) -> Result<(), String> {
    let explored = explore(library.clone(), graph, &[law], &Limits::default());
    let fired = explored.profiles.iter().any(|(_, p)| p.applications > 0);
    if fired { Err(format!("the law fires where it never must: {reason}")) } else { Ok(()) }
}

/// Holds if the side costs less than every other side, and is found from each of them.
fn picks(
    library: &Arc<Library>,
    target: &TargetItem,
    law: &Law,
    side: TermId,
    at: &[(Name, Expr)],
) -> Result<(), String> {
    let program = |roots: &[TermId]| build(library, law, &law.vars, &law.terms, roots, at);
    let cost = |p: &Program| {
        let plan = pipeline::plan(p, library, target).map_err(|e| format!("{e:#}"))?;
        Ok::<f64, String>(plan.cost)
    };
    let picked = program(&[side])?;
    let least = cost(&picked)?;
    let laws: Vec<u32> = (0..)
        .zip(&library.laws)
        .filter(|(_, l)| Fp::Reorder.admits(l.error) || l.name == law.name)
        .map(|(i, _)| i)
        .collect();
    let mut rivals = 0;
    for sides in [&law.left, &law.right] {
        let roots: Vec<TermId> = sides.iter().map(|s| s.root).collect();
        let rival = program(&roots)?;
        if same(&rival, &picked) {
            continue;
        }
        rivals += 1;
        let dearer = cost(&rival)?;
        if dearer <= least * (1.0 + SAME_COST) {
            let on = &target.name;
            return Err(format!(
                "on `{on}` this side costs {least:.3e} s, the other {dearer:.3e} s"
            ));
        }
        let mut explored = explore(library.clone(), rival, &laws, &Limits::default());
        let prices = TargetPrices::new(library, target, None);
        let found = explored.extract(&prices, &GreedyDag::default()).map_err(|e| e.to_string())?;
        let found = cost(&found.program)?;
        if found > least * (1.0 + SAME_COST) {
            return Err(format!(
                "this side costs {least:.3e} s; from the other only {found:.3e} s is reached"
            ));
        }
    }
    if rivals == 0 {
        return Err("both sides are this one at these extents".into());
    }
    Ok(())
}

fn same(a: &Program, b: &Program) -> bool {
    let pairs = a.nodes.iter().zip(&b.nodes);
    a.nodes.len() == b.nodes.len()
        && pairs.into_iter().all(|(a, b)| (&a.kind, &a.args) == (&b.kind, &b.args))
}

/// The program of some terms of a law. Axes have the extents of `at`, others [`EXTENT`]; segments have
/// as few axes as the terms permit; variables that a hint wants constant are filled with seeded numbers.
fn build(
    library: &Library,
    law: &Law,
    vars: &[Input],
    terms: &Terms,
    roots: &[TermId],
    at: &[(Name, Expr)],
) -> Result<Program, String> {
    let of_rank = |rank| build_of_rank(library, law, vars, (terms, roots), at, rank);
    of_rank(0).or_else(|e| (1..=RANKS).find_map(|rank| of_rank(rank).ok()).ok_or(e))
}

fn build_of_rank(
    library: &Library,
    law: &Law,
    vars: &[Input],
    (terms, roots): (&Terms, &[TermId]),
    at: &[(Name, Expr)],
    rank: usize,
) -> Result<Program, String> {
    let mut env = Env::default();
    for (n, v) in at {
        let v = eval(v, &env).map_err(|e| e.to_string())?;
        if law.attrs.iter().any(|a| a.name == *n) {
            env.bind_attr(n, v);
            continue;
        }
        let extent = v.as_i64().filter(|v| *v >= 0);
        env.bind_axis(n, Extent::from(extent.ok_or_else(|| format!("`{n}` is no extent"))?));
    }
    let mut b = Builder::new(library);
    let mut values = Vec::new();
    for v in vars {
        let ty = variable_type(v, rank, &mut env)?;
        env.bind_tensor(&v.name, ty.clone());
        values.push(variable(&mut b, law, v, ty));
    }
    let made = b.instantiate(terms, roots, &values, &mut env).map_err(|e| e.to_string())?;
    let outputs = made.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)).collect();
    Ok(b.finish(outputs))
}

fn variable_type(v: &Input, rank: usize, env: &mut Env) -> Result<Type, String> {
    let dtype = crate::model::rules_model::usual_dtype(&v.ty.dtype);
    if let DTypePattern::Var(n) = &v.ty.dtype {
        env.bind_dtype(n, dtype);
    }
    for d in v.ty.dims.iter().flatten() {
        match d {
            Dim::Axis(n) if env.axis(n).is_none() => env.bind_axis(n, Extent::from(EXTENT)),
            Dim::Seg(n) if env.seg(n).is_none() => {
                env.bind_seg(n, vec![Extent::from(EXTENT); rank])
            }
            _ => true,
        };
    }
    let dims = v.ty.dims.as_deref().unwrap_or_default();
    let shape = resolve_dims(dims, env).map_err(|e| e.to_string())?;
    Ok(Type::new(dtype, shape))
}

/// An input, or seeded numbers where a hint of the law wants a constant.
fn variable(b: &mut Builder<'_>, law: &Law, v: &Input, ty: Type) -> Value {
    let constant = law.hints.iter().any(|h| wants_constant(h, &v.name));
    match ty.known_shape() {
        Some(shape) if constant => {
            let mut random = Random::from_state(1);
            let n = shape.iter().product();
            let elements: Vec<f64> = (0..n).map(|_| random.normal()).collect();
            b.constant(Tensor::from_f64(ty.dtype, shape, &elements))
        }
        _ => b.input(&v.name, ty),
    }
}

fn wants_constant(hint: &Expr, var: &str) -> bool {
    match &hint.kind {
        ExprKind::Test(Predicate::Const, args) => {
            args.iter().any(|a| a.as_name().is_some_and(|n| **n == *var))
        }
        ExprKind::Binary(BinaryOp::And, a, b) => wants_constant(a, var) || wants_constant(b, var),
        _ => false,
    }
}
